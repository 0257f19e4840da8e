/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - kvpoold's shared memory: the arena and the slot table, and the lock on their name.
 */
#ifndef KVP_POOL_NODE_MEMORY_H
#define KVP_POOL_NODE_MEMORY_H

#include "hal/base/log.h"
#include "hal/mem/mem.h"
#include "hal/os/env.h"

#include <stdint.h>

#define KVP_MEMORY_NAME_LEN_MAX 48 /* of a node's name: it is part of the objects' names */

struct kvp_memory {
	struct kvp_mem arena;
	struct kvp_mem table;
	int lock_fd; /* -1: nothing to close */
	char lock_path[96];
};

/*
 * Reserves all pages, so it takes as long as zeroing them does; the time is logged. Objects of a
 * dead process of that name are replaced, those of a living one give -KVP_E_IN_USE. Logs failures.
 */
int kvp_memory_open(const char *name, uint64_t arena_len, uint32_t slots, const struct kvp_env *env,
	const struct kvp_log *log, struct kvp_memory *ret_memory);
void kvp_memory_close(struct kvp_memory *memory); /* removes the objects */

#endif /* KVP_POOL_NODE_MEMORY_H */
