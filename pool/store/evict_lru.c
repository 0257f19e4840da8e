/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_lru.c - leaf-first LRU: of the blocks without resident children, the one untouched for
 * longest. Owned by the store's thread.
 *
 * Every insert and hit gives its block the next tick. A binary heap, lowest tick first, holds every
 * leaf, but lazily: an entry may carry an older tick than its block has, and may be of a block that
 * has got children since. victim() puts right what it finds on top until that is a leaf with its
 * own tick.
 * COST      hit is O(1). Each correction in victim() is O(log n) and is paid for by the one hit or
 *           child that made the entry wrong, so all else is O(log n) amortised.
 * PARENTS   A block knows its parent's number and identity. A number that is inserted again has
 *           another identity, so children of the old block do not count for the new one, and need
 *           not be found when their parent goes: they are orphans then, leaves and inner blocks
 *           like any other.
 */
#include "hal/base/assert.h"
#include "pool/store/evict.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

extern const struct kvp_evict_ops kvp_evict_lru; /* evict_registry.c */

struct block {
	uint64_t tick;   /* of its last touch */
	uint32_t id;     /* identity: changes at each insert */
	uint32_t parent; /* or KVP_BLOCK_NONE */
	uint32_t parent_id;
	uint32_t children; /* resident ones */
	uint32_t pos;      /* in the heap, or KVP_BLOCK_NONE */
	bool resident;
};

struct entry {
	uint64_t tick;
	uint32_t block;
};

struct kvp_evict {
	struct block *blocks; /* blocks_max */
	struct entry *heap;   /* blocks_max */
	uint32_t blocks_max;
	uint32_t heap_count;
	uint64_t tick;
};

static void
heap_put(struct kvp_evict *evict, uint32_t pos, struct entry entry)
{
	evict->heap[pos] = entry;
	evict->blocks[entry.block].pos = pos;
}

static void
heap_up(struct kvp_evict *evict, uint32_t pos, struct entry entry)
{
	while (pos > 0 && evict->heap[(pos - 1) / 2].tick > entry.tick) {
		heap_put(evict, pos, evict->heap[(pos - 1) / 2]);
		pos = (pos - 1) / 2;
	}
	heap_put(evict, pos, entry);
}

static void
heap_down(struct kvp_evict *evict, uint32_t pos, struct entry entry)
{
	for (;;) {
		uint32_t child = 2 * pos + 1;

		if (child + 1 < evict->heap_count &&
			evict->heap[child + 1].tick < evict->heap[child].tick) {
			child++;
		}
		if (child >= evict->heap_count || evict->heap[child].tick >= entry.tick) {
			break;
		}
		heap_put(evict, pos, evict->heap[child]);
		pos = child;
	}
	heap_put(evict, pos, entry);
}

static void
heap_add(struct kvp_evict *evict, uint32_t block)
{
	struct entry entry = {.tick = evict->blocks[block].tick, .block = block};

	kvp_assert(evict->blocks[block].pos == KVP_BLOCK_NONE);
	evict->heap_count++;
	heap_up(evict, evict->heap_count - 1, entry);
}

static void
heap_remove(struct kvp_evict *evict, uint32_t block)
{
	uint32_t pos = evict->blocks[block].pos;
	struct entry last = evict->heap[evict->heap_count - 1];

	kvp_assert(pos < evict->heap_count && evict->heap[pos].block == block);
	evict->heap_count--;
	evict->blocks[block].pos = KVP_BLOCK_NONE;
	if (last.block == block) {
		return;
	}
	if (pos > 0 && evict->heap[(pos - 1) / 2].tick > last.tick) {
		heap_up(evict, pos, last);
	} else {
		heap_down(evict, pos, last);
	}
}

/* The parent, if it is still the block that it was. */
static struct block *
block_parent(struct kvp_evict *evict, const struct block *block)
{
	struct block *parent;

	if (block->parent == KVP_BLOCK_NONE) {
		return NULL;
	}
	parent = &evict->blocks[block->parent];
	return parent->resident && parent->id == block->parent_id ? parent : NULL;
}

static int
lru_open(uint32_t blocks_max, struct kvp_evict **ret_evict)
{
	struct kvp_evict *evict = calloc(1, sizeof(*evict));

	if (evict == NULL) {
		return -ENOMEM;
	}
	evict->blocks = calloc(blocks_max, sizeof(evict->blocks[0]));
	evict->heap = calloc(blocks_max, sizeof(evict->heap[0]));
	if (evict->blocks == NULL || evict->heap == NULL) {
		free(evict->heap);
		free(evict->blocks);
		free(evict);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < blocks_max; i++) {
		evict->blocks[i].pos = KVP_BLOCK_NONE;
	}
	evict->blocks_max = blocks_max;
	*ret_evict = evict;
	return 0;
}

static void
lru_close(struct kvp_evict *evict)
{
	if (evict == NULL) {
		return;
	}
	free(evict->heap);
	free(evict->blocks);
	free(evict);
}

static void
lru_insert(struct kvp_evict *evict, uint32_t idx, const struct kvp_touch *touch)
{
	struct block *block = &evict->blocks[idx];
	struct block *parent;

	kvp_assert(idx < evict->blocks_max && !block->resident && touch->parent != idx);
	block->resident = true;
	block->id++;
	block->children = 0;
	block->tick = ++evict->tick;
	block->parent = KVP_BLOCK_NONE;
	if (touch->parent != KVP_BLOCK_NONE) {
		kvp_assert(touch->parent < evict->blocks_max);
		block->parent = touch->parent;
		block->parent_id = evict->blocks[touch->parent].id;
	}
	parent = block_parent(evict, block);
	if (parent != NULL) {
		parent->children++;
	}
	heap_add(evict, idx);
}

static void
lru_hit(struct kvp_evict *evict, uint32_t idx, const struct kvp_touch *touch)
{
	(void)touch; /* only the order of touches counts */
	kvp_assert(idx < evict->blocks_max && evict->blocks[idx].resident);
	evict->blocks[idx].tick = ++evict->tick;
}

static void
lru_remove(struct kvp_evict *evict, uint32_t idx)
{
	struct block *block = &evict->blocks[idx];
	struct block *parent;

	kvp_assert(idx < evict->blocks_max && block->resident);
	parent = block_parent(evict, block);
	if (parent != NULL) {
		kvp_assert(parent->children > 0);
		parent->children--;
		if (parent->children == 0 && parent->pos == KVP_BLOCK_NONE) {
			heap_add(evict, block->parent);
		}
	}
	if (block->pos != KVP_BLOCK_NONE) {
		heap_remove(evict, idx);
	}
	block->resident = false;
}

static uint32_t
lru_victim(struct kvp_evict *evict)
{
	while (evict->heap_count > 0) {
		struct entry top = evict->heap[0];
		const struct block *block = &evict->blocks[top.block];

		if (block->children > 0) {
			heap_remove(evict, top.block);
		} else if (block->tick != top.tick) {
			top.tick = block->tick;
			heap_down(evict, 0, top);
		} else {
			return top.block;
		}
	}
	return KVP_BLOCK_NONE;
}

/* A held block goes behind all others, as if it had been read: somebody is doing so. */
static void
lru_skip(struct kvp_evict *evict, uint32_t idx)
{
	kvp_assert(idx < evict->blocks_max && evict->blocks[idx].resident);
	evict->blocks[idx].tick = ++evict->tick;
}

const struct kvp_evict_ops kvp_evict_lru = {
	.name = "lru",
	.open = lru_open,
	.close = lru_close,
	.insert = lru_insert,
	.hit = lru_hit,
	.remove = lru_remove,
	.victim = lru_victim,
	.skip = lru_skip,
};
