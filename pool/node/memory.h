/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - the arena, the slot table and their head: shared memory that outlives this process
 * when it is killed or told to, and one owner at a time of their name.
 */
#ifndef KVP_POOL_NODE_MEMORY_H
#define KVP_POOL_NODE_MEMORY_H

#include "hal/base/log.h"
#include "hal/mem/arena.h"
#include "hal/os/env.h"
#include "hal/os/thread.h"
#include "pool/node/head.h"

#include <stdatomic.h>
#include <stdint.h>

#define KVP_MEMORY_NAME_LEN_MAX 48 /* of a node's name: it is part of the objects' names */

struct kvp_memory_cfg {
	const char *name;
	uint64_t arena_len;
	uint32_t slots;
	struct kvp_mem_want want; /* of the arena */
	const uint8_t *node_id;   /* KVP_ID_LEN bytes */
	uint64_t incarnation;     /* of this start */
	const struct kvp_env *env;
	const struct kvp_log *log;
};

struct kvp_memory {
	struct kvp_mem arena;
	struct kvp_mem table;
	struct kvp_mem head;
	bool recovered; /* they hold what an earlier process left; else they are empty */
	char name[KVP_MEMORY_NAME_LEN_MAX + 1];
	char session_prefix[96]; /* of the paths of session locks */
	int lock_fd;             /* -1: nothing to close */
	char lock_path[96];
	const struct kvp_log *log;
	struct kvp_thread *locker; /* locks pages of memory that was taken over; NULL: none */
	_Atomic bool locker_stop;
};

/*
 * What an earlier process of that name left is taken over if it is whole, of this node id, of this
 * format and of this size; else it is dropped, with one line that says why, and new memory is made,
 * which takes as long as clearing its pages does. Waits up to 10 s for the earlier process to be
 * gone. -KVP_E_IN_USE: it, or another one that has the name, lives. Logs failures and each thing
 * that the machine did not give.
 */
int kvp_memory_open(const struct kvp_memory_cfg *cfg, struct kvp_memory *ret_memory);
/* keep: the objects stay, for a successor. Else they go, and session locks of that name too. */
void kvp_memory_close(struct kvp_memory *memory, bool keep);

#endif /* KVP_POOL_NODE_MEMORY_H */
