/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h - where blocks lie in the arena: extents of equal length, carved for one exact block size.
 *
 * It only counts: it gives out offsets and never touches the arena. All its memory is made in
 * open, so nothing allocates after it.
 *
 * EXTENT  Equal power-of-two stretches of the arena: 1/256 of it, 64 KiB at least, 256 MiB at
 *         most; the last one may be shorter.
 * RUN     Contiguous extents carved together for one block size (payload rounded up to
 *         KVP_BLOCK_ALIGN). The number of extents is the smallest whose tail is under 1/64 of the
 *         run, so a size that fits an extent badly takes a few extents at a time and wastes little;
 *         a block longer than an extent simply needs more of them. Where no so many lie together,
 *         the longest free stretch that holds a block is taken. A run that holds no block any more
 *         goes back whole.
 * CLASS   One block size with a run. There cannot be more classes than extents.
 * HOLD    One stretch of extents at a time may be held for a size: its runs give out no block, and
 *         its free extents go to that size only. So the store can empty a stretch for a size that
 *         has none. The first run carved in it ends the hold.
 * COST    alloc and free look at one class and at most (run pages / 4096) words of a bitmap;
 *         carving a run is O(extents).
 */
#ifndef KVP_POOL_STORE_SLAB_H
#define KVP_POOL_STORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

struct kvp_slab;

/* -EINVAL: arena_len is 0 or no multiple of KVP_BLOCK_ALIGN; -ENOMEM. */
int kvp_slab_open(size_t arena_len, struct kvp_slab **ret_slab);
void kvp_slab_close(struct kvp_slab *slab); /* NULL is fine */

/* 0, or -ENOSPC: no free block of this size and no free extents to carve. len: 1..arena_len. */
int kvp_slab_alloc(struct kvp_slab *slab, uint64_t len, uint64_t *ret_off);
void kvp_slab_free(struct kvp_slab *slab, uint64_t off); /* asserts that it is a block */

/*
 * Takes the block at off as given out, for a store that finds its blocks again. Only in a slab that
 * has given out nothing else, in rising order of off. Where runs began is found again as far as it
 * matters: every set of blocks that alloc gave out fits. -EINVAL: no place of a block of this
 * length, or it is taken; nothing changed then.
 */
int kvp_slab_restore(struct kvp_slab *slab, uint64_t off, uint64_t len);

/* Bytes that a block of len takes up. */
uint64_t kvp_slab_block_len(uint64_t len);
/* Blocks of len that an empty arena holds. */
uint64_t kvp_slab_capacity(const struct kvp_slab *slab, uint64_t len);
/* Bytes that could be given out: free extents and free blocks of runs, without the runs' tails. */
uint64_t kvp_slab_free_bytes(const struct kvp_slab *slab);

/* Extents and runs, for who must empty some. */
struct kvp_slab_run {
	uint32_t extents;   /* 1 when free */
	uint32_t used;      /* blocks given out */
	uint64_t block_len; /* 0: a free extent */
};

uint32_t kvp_slab_extent_count(const struct kvp_slab *slab);
/* The run that starts at extent, or the free extent there. */
struct kvp_slab_run kvp_slab_run_at(const struct kvp_slab *slab, uint32_t extent);
/* The first extent of the run that a block lies in. */
uint32_t kvp_slab_run_of(const struct kvp_slab *slab, uint64_t off);
/* Extents that one run of this size wants, and the bytes of so many extents from first on. */
uint32_t kvp_slab_extents_wanted(const struct kvp_slab *slab, uint64_t len);
uint64_t kvp_slab_span_len(const struct kvp_slab *slab, uint32_t first, uint32_t extents);

struct kvp_slab_hold {
	uint32_t first;
	uint32_t extents; /* 0: nothing is held */
	uint64_t block_len;
};

/* The stretch must start and end with whole runs; nothing may be held yet. */
void kvp_slab_hold_begin(struct kvp_slab *slab, const struct kvp_slab_hold *hold);
void kvp_slab_hold_end(struct kvp_slab *slab); /* held or not */
struct kvp_slab_hold kvp_slab_hold(const struct kvp_slab *slab);

#endif /* KVP_POOL_STORE_SLAB_H */
