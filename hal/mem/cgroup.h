/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h - how much memory the control groups of this process allow, version 1 and 2. root as in
 * mounts.h.
 */
#ifndef KVP_HAL_MEM_CGROUP_H
#define KVP_HAL_MEM_CGROUP_H

#include "hal/mem/mounts.h"

#include <stdint.h>

struct kvp_cgroup {
	uint64_t limit; /* the lowest of the group and those above it; UINT64_MAX: none */
	uint64_t room;  /* what the tightest of them has left, droppable file pages included */
	char limit_file[2 * KVP_MOUNT_PATH_LEN]; /* where the limit stands; not prefixed */
	char room_dir[2 * KVP_MOUNT_PATH_LEN];
};

/* No group, or one that cannot be read, is no limit. */
void kvp_cgroup_memory(const char *root, struct kvp_cgroup *ret_cgroup);

#endif /* KVP_HAL_MEM_CGROUP_H */
