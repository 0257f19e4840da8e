/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - naming a process so that its successor can wait for its end. A pid alone comes again;
 * with its start time it does not, within one pid namespace and boot. Any thread.
 */
#ifndef KVP_HAL_OS_PROCESS_H
#define KVP_HAL_OS_PROCESS_H

#include <stdint.h>

struct kvp_process {
	uint64_t start; /* clock ticks from boot to its start */
	uint64_t ns;    /* inode of its pid namespace */
	uint32_t pid;
};

/* -errno when /proc cannot be read. */
int kvp_process_self(struct kvp_process *ret_process);

/* Blocks until the process is gone: its memory and descriptors with it. 0 also when it went long
 * ago. -ETIMEDOUT; -EXDEV: it is of another namespace, so nothing is known of it; -errno. */
int kvp_process_wait(const struct kvp_process *process, uint32_t timeout_ms);

#endif /* KVP_HAL_OS_PROCESS_H */
