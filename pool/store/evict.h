/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.h - the contract that every eviction policy implements (evict_lru.c).
 *
 * A policy only orders blocks. It never frees, locks or looks at the clock: the store asks for a
 * victim, checks that nothing holds it, and tells the policy what became of it.
 * LEAF FIRST A block whose parent is known is its child; a block with resident children may not be
 *            the victim while any block without is there: without its parent no prefix reaches a
 *            child, so it would lie there for nothing.
 * OWNERSHIP  One kvp_evict belongs to one store, so to one thread. All state is made in open();
 *            nothing allocates after it.
 */
#ifndef KVP_POOL_STORE_EVICT_H
#define KVP_POOL_STORE_EVICT_H

#include <stddef.h>
#include <stdint.h>

#define KVP_BLOCK_NONE UINT32_MAX

struct kvp_evict; /* a policy's state */

/* What is known about one access. */
struct kvp_touch {
	uint64_t now_ns;
	uint64_t conversation; /* 0: not known */
	uint32_t turn;
	uint32_t class;
	uint32_t position; /* tokens of the prompt before this block */
	uint32_t tokens;   /* tokens in it; 0: not known */
	uint32_t parent;   /* block (its slot's index), or KVP_BLOCK_NONE; insert() only */
};

struct kvp_evict_ops {
	const char *name; /* value of the option store.evict */

	/* blocks are numbered 0..blocks_max-1. -ENOMEM. */
	int (*open)(uint32_t blocks_max, struct kvp_evict **ret_evict);
	void (*close)(struct kvp_evict *evict);

	void (*insert)(struct kvp_evict *evict, uint32_t block, const struct kvp_touch *touch);
	void (*hit)(struct kvp_evict *evict, uint32_t block, const struct kvp_touch *touch);
	void (*remove)(struct kvp_evict *evict, uint32_t block); /* evicted or deleted */
	/* The best victim now, KVP_BLOCK_NONE when there is none. Amortised O(1) or O(log n). */
	uint32_t (*victim)(struct kvp_evict *evict);
	/* The victim was held: do not offer it again before the others. */
	void (*skip)(struct kvp_evict *evict, uint32_t block);
};

/* evict_registry.c: the one table of policies. NULL: none of that name. */
const struct kvp_evict_ops *kvp_evict_find(const char *name);
const struct kvp_evict_ops *const *kvp_evict_all(size_t *ret_count);

#endif /* KVP_POOL_STORE_EVICT_H */
