/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.c - the allocator over the arena. Owned by the store's thread.
 *
 * A run's free blocks are bits (1: free) in the words that belong to its extents, under a summary
 * with one bit a word (1: the word has a free block). Both levels are sized for the smallest block,
 * one page, so carving never needs memory: 1/32768 of the arena together.
 */
#include "pool/store/slab.h"

#include "hal/base/assert.h"
#include "hal/base/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define NONE            UINT32_MAX
#define PAGE_LEN        ((uint64_t)KVP_BLOCK_ALIGN)
#define EXTENTS_AIM     256u /* extents that an arena is cut into, within the limits below */
#define EXTENT_LEN_MIN  (64ull << 10)
#define EXTENT_LEN_MAX  (256ull << 20)
#define RUN_EXTRA_MAX   15u /* extents beyond the fewest possible, to waste less */
#define RUN_SHARE       8u  /* extra ones only while a run is at most 1/8 of the arena */
#define RUN_WASTE_SHARE 64u /* tail that is small enough: 1/64 of the run */

/* One an extent. All but head are of a run's first extent only. */
struct run {
	uint32_t head; /* first extent of the run, NONE: this extent is free */
	uint32_t class;
	uint32_t extents;
	uint32_t blocks_max;
	uint32_t used;
	uint32_t prev; /* runs of the class that have a free block and are not held */
	uint32_t next;
	bool listed;
};

struct class
{
	uint32_t pages; /* of a block */
	uint32_t runs;
	uint32_t first; /* listed runs */
	uint32_t last;
	uint32_t chain; /* next class of the hash bucket, or next free class */
};

struct kvp_slab {
	uint64_t arena_pages;
	uint32_t extent_pages;
	uint32_t extent_count;
	uint32_t extents_free;
	uint32_t words; /* bitmap words of an extent */
	uint64_t free_pages;
	struct run *runs;      /* extent_count */
	struct class *classes; /* extent_count */
	uint32_t *buckets;     /* bucket_count heads of classes */
	uint32_t bucket_count; /* a power of two */
	uint32_t class_free;
	uint64_t *free_bits;  /* words * extent_count */
	uint64_t *free_words; /* a bit for each of those */
	struct kvp_slab_hold hold;
	uint32_t restore_head; /* the last run restored, or NONE */
	uint64_t restore_end;  /* pages: behind the last block restored */
};

/* The first set bit in [from, to), or to. */
static uint64_t
bits_find(const uint64_t *bits, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at = (at | 63) + 1) {
		uint64_t word = bits[at / 64] & (~0ull << (at % 64));

		if (word != 0) {
			uint64_t found = (at & ~63ull) + (uint64_t)__builtin_ctzll(word);

			return found < to ? found : to;
		}
	}
	return to;
}

static void
bit_set(uint64_t *bits, uint64_t at)
{
	bits[at / 64] |= 1ull << (at % 64);
}

static void
bit_clear(uint64_t *bits, uint64_t at)
{
	bits[at / 64] &= ~(1ull << (at % 64));
}

static uint64_t
pages_of(uint64_t len)
{
	return (len + PAGE_LEN - 1) / PAGE_LEN;
}

static uint64_t
span_pages(const struct kvp_slab *slab, uint32_t first, uint32_t extents)
{
	uint64_t start = (uint64_t)first * slab->extent_pages;
	uint64_t end = start + (uint64_t)extents * slab->extent_pages;

	return (end < slab->arena_pages ? end : slab->arena_pages) - start;
}

/* Extents that a run of blocks of so many pages wants. */
static uint32_t
run_shape(const struct kvp_slab *slab, uint64_t pages)
{
	uint32_t least = (uint32_t)((pages + slab->extent_pages - 1) / slab->extent_pages);
	uint32_t most = least + RUN_EXTRA_MAX;
	uint32_t best = least;
	uint64_t best_waste = UINT64_MAX; /* permyriad of the run */

	if (most > slab->extent_count / RUN_SHARE) {
		most = slab->extent_count / RUN_SHARE;
	}
	for (uint32_t extents = least; extents <= most; extents++) {
		uint64_t total = (uint64_t)extents * slab->extent_pages;
		uint64_t waste = total % pages;

		if (waste * RUN_WASTE_SHARE <= total) {
			return extents;
		}
		if (waste * 10000 / total < best_waste) {
			best_waste = waste * 10000 / total;
			best = extents;
		}
	}
	return best;
}

static uint32_t
class_bucket(const struct kvp_slab *slab, uint64_t pages)
{
	return (uint32_t)(pages * 0x9e3779b97f4a7c15ull >> 32) & (slab->bucket_count - 1);
}

static uint32_t
class_find(const struct kvp_slab *slab, uint64_t pages)
{
	uint32_t class = slab->buckets[class_bucket(slab, pages)];

	while (class != NONE && slab->classes[class].pages != pages) {
		class = slab->classes[class].chain;
	}
	return class;
}

static uint32_t
class_new(struct kvp_slab *slab, uint64_t pages)
{
	uint32_t *bucket = &slab->buckets[class_bucket(slab, pages)];
	uint32_t idx = slab->class_free;
	struct class *class;

	kvp_assert(idx != NONE); /* a class has a run, a run has an extent */
	class = &slab->classes[idx];
	slab->class_free = class->chain;
	*class = (struct class){
		.pages = (uint32_t)pages,
		.first = NONE,
		.last = NONE,
		.chain = *bucket,
	};
	*bucket = idx;
	return idx;
}

static void
class_free(struct kvp_slab *slab, uint32_t idx)
{
	struct class *class = &slab->classes[idx];
	uint32_t *at = &slab->buckets[class_bucket(slab, class->pages)];

	kvp_assert(class->runs == 0 && class->first == NONE);
	while (*at != idx) {
		at = &slab->classes[*at].chain;
	}
	*at = class->chain;
	class->chain = slab->class_free;
	slab->class_free = idx;
}

static bool
extent_held(const struct kvp_slab *slab, uint32_t extent)
{
	return extent - slab->hold.first < slab->hold.extents;
}

/* Makes the run give out blocks, as long as it has some and is not held. */
static void
run_list(struct kvp_slab *slab, uint32_t head)
{
	struct run *run = &slab->runs[head];
	struct class *class = &slab->classes[run->class];

	if (run->listed || run->used == run->blocks_max || extent_held(slab, head)) {
		return;
	}
	run->listed = true;
	run->next = NONE;
	run->prev = class->last;
	if (class->last == NONE) {
		class->first = head;
	} else {
		slab->runs[class->last].next = head;
	}
	class->last = head;
}

static void
run_unlist(struct kvp_slab *slab, uint32_t head)
{
	struct run *run = &slab->runs[head];
	struct class *class = &slab->classes[run->class];

	if (!run->listed) {
		return;
	}
	run->listed = false;
	if (run->prev == NONE) {
		class->first = run->next;
	} else {
		slab->runs[run->prev].next = run->next;
	}
	if (run->next == NONE) {
		class->last = run->prev;
	} else {
		slab->runs[run->next].prev = run->prev;
	}
}

/* Length of the stretch of extents from first on that may be carved for this size. */
static uint32_t
stretch_len(const struct kvp_slab *slab, uint32_t first, uint64_t pages)
{
	uint32_t at = first;
	bool held = extent_held(slab, first);

	if (held && slab->hold.block_len != pages * PAGE_LEN) {
		return 0;
	}
	while (at < slab->extent_count && slab->runs[at].head == NONE &&
		extent_held(slab, at) == held) {
		at++;
	}
	return at - first;
}

/*
 * Finds extents for a run: the first stretch that is long enough, else the longest one that holds a
 * block (outside a hold: inside, the rest is on its way). 0 when there is none.
 */
static uint32_t
stretch_find(const struct kvp_slab *slab, uint64_t pages, uint32_t *ret_first)
{
	uint32_t want = run_shape(slab, pages);
	uint32_t best = 0;

	for (uint32_t at = 0; at < slab->extent_count;) {
		uint32_t len = 0;

		if (slab->runs[at].head != NONE) {
			at += slab->runs[at].extents;
			continue;
		}
		len = stretch_len(slab, at, pages);
		if (len >= want && span_pages(slab, at, want) >= pages) {
			*ret_first = at;
			return want;
		}
		if (len > best && !extent_held(slab, at) && span_pages(slab, at, len) >= pages) {
			*ret_first = at;
			best = len < want ? len : want;
		}
		at += len > 0 ? len : 1;
	}
	return best;
}

static void
run_carve(struct kvp_slab *slab, uint32_t head, uint32_t extents, uint64_t pages)
{
	struct run *run = &slab->runs[head];
	uint64_t base = (uint64_t)head * slab->words;
	uint64_t total = span_pages(slab, head, extents);
	uint32_t blocks = (uint32_t)(total / pages);
	uint32_t class = class_find(slab, pages);

	if (class == NONE) {
		class = class_new(slab, pages);
	}
	if (extent_held(slab, head)) {
		kvp_slab_hold_end(slab);
	}
	for (uint32_t i = 0; i < extents; i++) {
		kvp_assert(slab->runs[head + i].head == NONE);
		slab->runs[head + i].head = head;
	}
	run->class = class;
	run->extents = extents;
	run->blocks_max = blocks;
	run->used = 0;
	for (uint32_t i = 0; i < blocks; i += 64) {
		slab->free_bits[base + i / 64] =
			blocks - i >= 64 ? ~0ull : (1ull << (blocks - i)) - 1;
		bit_set(slab->free_words, base + i / 64);
	}
	slab->classes[class].runs++;
	slab->extents_free -= extents;
	slab->free_pages -= total - blocks * pages;
	run_list(slab, head);
}

/* Marks these blocks of the run, which are new, as free. */
static void
run_fill(struct kvp_slab *slab, uint32_t head, uint32_t from, uint32_t to)
{
	uint64_t base = (uint64_t)head * slab->words;

	for (uint32_t i = from; i < to; i++) {
		bit_set(slab->free_bits + base, i);
		bit_set(slab->free_words, base + i / 64);
	}
}

/* Adds the free extents behind it, up to so many in all. */
static void
run_extend(struct kvp_slab *slab, uint32_t head, uint32_t extents)
{
	struct run *run = &slab->runs[head];
	uint32_t pages = slab->classes[run->class].pages;
	uint64_t before = span_pages(slab, head, run->extents);
	uint64_t after = span_pages(slab, head, extents);
	uint32_t blocks = (uint32_t)(after / pages);

	for (uint32_t i = run->extents; i < extents; i++) {
		kvp_assert(slab->runs[head + i].head == NONE);
		slab->runs[head + i].head = head;
	}
	run_fill(slab, head, run->blocks_max, blocks);
	slab->free_pages += before - (uint64_t)run->blocks_max * pages;
	slab->free_pages -= after - (uint64_t)blocks * pages;
	slab->extents_free -= extents - run->extents;
	run->extents = extents;
	run->blocks_max = blocks;
	run_list(slab, head);
}

static void
run_free(struct kvp_slab *slab, uint32_t head)
{
	struct run *run = &slab->runs[head];
	struct class *class = &slab->classes[run->class];
	uint64_t base = (uint64_t)head * slab->words;
	uint64_t total = span_pages(slab, head, run->extents);

	kvp_assert(run->used == 0);
	run_unlist(slab, head);
	for (uint32_t i = 0; i < run->blocks_max; i += 64) {
		slab->free_bits[base + i / 64] = 0;
		bit_clear(slab->free_words, base + i / 64);
	}
	slab->extents_free += run->extents;
	slab->free_pages += total - (uint64_t)run->blocks_max * class->pages;
	for (uint32_t i = 0; i < run->extents; i++) {
		slab->runs[head + i].head = NONE;
	}
	if (--class->runs == 0) {
		class_free(slab, run->class);
	}
}

/* Gives out this block of the run, which is free. */
static void
run_take_at(struct kvp_slab *slab, uint32_t head, uint64_t idx)
{
	struct run *run = &slab->runs[head];
	uint64_t word = (uint64_t)head * slab->words + idx / 64;

	kvp_assert(idx < run->blocks_max && (slab->free_bits[word] >> (idx % 64) & 1) != 0);
	slab->free_bits[word] &= ~(1ull << (idx % 64));
	if (slab->free_bits[word] == 0) {
		bit_clear(slab->free_words, word);
	}
	run->used++;
	slab->free_pages -= slab->classes[run->class].pages;
	if (run->used == run->blocks_max) {
		run_unlist(slab, head);
	}
}

static uint64_t
run_take(struct kvp_slab *slab, uint32_t head)
{
	struct run *run = &slab->runs[head];
	uint32_t pages = slab->classes[run->class].pages;
	uint64_t base = (uint64_t)head * slab->words;
	uint64_t end = base + (run->blocks_max + 63) / 64;
	uint64_t word = bits_find(slab->free_words, base, end);
	uint64_t idx;

	kvp_assert(word < end);
	idx = (word - base) * 64 + (uint64_t)__builtin_ctzll(slab->free_bits[word]);
	run_take_at(slab, head, idx);
	return ((uint64_t)head * slab->extent_pages + idx * pages) * PAGE_LEN;
}

/*
 * A run that a block at this page can be part of, given that the runs before it are restored. What
 * alloc carved is one answer, so there is one for every block that alloc gave out:
 * - the last run restored, if the block lies on its grid and it need not become longer than alloc
 *   makes runs;
 * - else a new one from the nearest extent on whose grid has the block. It begins where the true
 *   run does or later, so it ends before the true one's successor;
 * - else the last run all the same: it took in blocks of the true run's head, so they share a grid.
 */
static int
restore_run(struct kvp_slab *slab, uint64_t page, uint64_t pages, uint32_t *ret_head)
{
	uint32_t last = slab->restore_head;
	uint32_t end = (uint32_t)((page + pages - 1) / slab->extent_pages) + 1;
	uint32_t floor = last == NONE ? 0 : last + slab->runs[last].extents;
	bool on_grid = last != NONE && slab->classes[slab->runs[last].class].pages == pages &&
		       (page - (uint64_t)last * slab->extent_pages) % pages == 0;

	if (on_grid && (end <= floor || end - last <= run_shape(slab, pages))) {
		*ret_head = last;
	} else {
		uint32_t at = (uint32_t)(page / slab->extent_pages) + 1;

		do {
			at--;
		} while (at > floor && (page - (uint64_t)at * slab->extent_pages) % pages != 0);
		if (at >= floor && (page - (uint64_t)at * slab->extent_pages) % pages == 0) {
			run_carve(slab, at, end - at, pages);
			*ret_head = at;
			return 0;
		}
		if (!on_grid) {
			return -EINVAL;
		}
		*ret_head = last;
	}
	if (end > floor) {
		run_extend(slab, last, end - last);
	}
	return 0;
}

static uint64_t
extent_len_for(uint64_t arena_len)
{
	uint64_t len = EXTENT_LEN_MIN;

	while (len < EXTENT_LEN_MAX && len * 2 * EXTENTS_AIM <= arena_len) {
		len *= 2;
	}
	return len;
}

static int
slab_tables(struct kvp_slab *slab)
{
	uint64_t words = (uint64_t)slab->words * slab->extent_count;

	slab->bucket_count = 1;
	while (slab->bucket_count < slab->extent_count) {
		slab->bucket_count *= 2;
	}
	slab->runs = calloc(slab->extent_count, sizeof(slab->runs[0]));
	slab->classes = calloc(slab->extent_count, sizeof(slab->classes[0]));
	slab->buckets = calloc(slab->bucket_count, sizeof(slab->buckets[0]));
	slab->free_bits = calloc(words, sizeof(slab->free_bits[0]));
	slab->free_words = calloc((words + 63) / 64, sizeof(slab->free_words[0]));
	if (slab->runs == NULL || slab->classes == NULL || slab->buckets == NULL ||
		slab->free_bits == NULL || slab->free_words == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < slab->extent_count; i++) {
		slab->runs[i].head = NONE;
		slab->classes[i].chain = i + 1 < slab->extent_count ? i + 1 : NONE;
	}
	for (uint32_t i = 0; i < slab->bucket_count; i++) {
		slab->buckets[i] = NONE;
	}
	return 0;
}

int
kvp_slab_open(size_t arena_len, struct kvp_slab **ret_slab)
{
	struct kvp_slab *slab;
	int err;

	if (arena_len == 0 || arena_len % KVP_BLOCK_ALIGN != 0 ||
		arena_len / EXTENT_LEN_MAX >= NONE / 2) {
		return -EINVAL;
	}
	slab = calloc(1, sizeof(*slab));
	if (slab == NULL) {
		return -ENOMEM;
	}
	slab->arena_pages = arena_len / PAGE_LEN;
	slab->free_pages = slab->arena_pages;
	slab->extent_pages = (uint32_t)(extent_len_for(arena_len) / PAGE_LEN);
	slab->extent_count =
		(uint32_t)((slab->arena_pages + slab->extent_pages - 1) / slab->extent_pages);
	slab->extents_free = slab->extent_count;
	slab->words = (slab->extent_pages + 63) / 64;
	slab->restore_head = NONE;
	err = slab_tables(slab);
	if (err < 0) {
		kvp_slab_close(slab);
		return err;
	}
	*ret_slab = slab;
	return 0;
}

void
kvp_slab_close(struct kvp_slab *slab)
{
	if (slab == NULL) {
		return;
	}
	free(slab->free_words);
	free(slab->free_bits);
	free(slab->buckets);
	free(slab->classes);
	free(slab->runs);
	free(slab);
}

int
kvp_slab_alloc(struct kvp_slab *slab, uint64_t len, uint64_t *ret_off)
{
	uint64_t pages = pages_of(len);
	uint32_t class = class_find(slab, pages);
	uint32_t head = class == NONE ? NONE : slab->classes[class].first;

	kvp_assert(pages > 0 && pages <= slab->arena_pages);
	if (head == NONE) {
		uint32_t extents = 0;

		if (slab->extents_free > 0) {
			extents = stretch_find(slab, pages, &head);
		}
		if (extents == 0) {
			return -ENOSPC;
		}
		run_carve(slab, head, extents, pages);
	}
	*ret_off = run_take(slab, head);
	return 0;
}

int
kvp_slab_restore(struct kvp_slab *slab, uint64_t off, uint64_t len)
{
	uint64_t page = off / PAGE_LEN;
	uint64_t pages = pages_of(len);
	uint32_t head;
	int err;

	if (off % PAGE_LEN != 0 || len == 0 || pages > slab->arena_pages ||
		page > slab->arena_pages - pages || page < slab->restore_end) {
		return -EINVAL;
	}
	err = restore_run(slab, page, pages, &head);
	if (err < 0) {
		return err;
	}
	run_take_at(slab, head, (page - (uint64_t)head * slab->extent_pages) / pages);
	slab->restore_head = head;
	slab->restore_end = page + pages;
	return 0;
}

void
kvp_slab_free(struct kvp_slab *slab, uint64_t off)
{
	uint32_t head = kvp_slab_run_of(slab, off);
	struct run *run = &slab->runs[head];
	uint32_t pages = slab->classes[run->class].pages;
	uint64_t page = off / PAGE_LEN - (uint64_t)head * slab->extent_pages;
	uint64_t idx = page / pages;
	uint64_t word = (uint64_t)head * slab->words + idx / 64;

	kvp_assert(off % PAGE_LEN == 0 && page % pages == 0 && idx < run->blocks_max);
	kvp_assert((slab->free_bits[word] >> (idx % 64) & 1) == 0);
	slab->free_bits[word] |= 1ull << (idx % 64);
	bit_set(slab->free_words, word);
	slab->free_pages += pages;
	run->used--;
	if (run->used == 0) {
		run_free(slab, head);
	} else {
		run_list(slab, head);
	}
}

uint64_t
kvp_slab_block_len(uint64_t len)
{
	return pages_of(len) * PAGE_LEN;
}

uint64_t
kvp_slab_capacity(const struct kvp_slab *slab, uint64_t len)
{
	uint64_t pages = pages_of(len);
	uint32_t want;
	uint64_t blocks = 0;

	if (pages > slab->arena_pages) {
		return 0;
	}
	want = run_shape(slab, pages);
	for (uint32_t at = 0; at < slab->extent_count; at += want) {
		blocks += span_pages(slab, at, want) / pages;
	}
	return blocks;
}

uint64_t
kvp_slab_free_bytes(const struct kvp_slab *slab)
{
	return slab->free_pages * PAGE_LEN;
}

uint32_t
kvp_slab_extent_count(const struct kvp_slab *slab)
{
	return slab->extent_count;
}

struct kvp_slab_run
kvp_slab_run_at(const struct kvp_slab *slab, uint32_t extent)
{
	const struct run *run = &slab->runs[extent];

	kvp_assert(extent < slab->extent_count);
	if (run->head == NONE) {
		return (struct kvp_slab_run){.extents = 1};
	}
	kvp_assert(run->head == extent);
	return (struct kvp_slab_run){
		.extents = run->extents,
		.used = run->used,
		.block_len = slab->classes[run->class].pages * PAGE_LEN,
	};
}

uint32_t
kvp_slab_run_of(const struct kvp_slab *slab, uint64_t off)
{
	uint64_t extent = off / PAGE_LEN / slab->extent_pages;

	kvp_assert(extent < slab->extent_count && slab->runs[extent].head != NONE);
	return slab->runs[extent].head;
}

uint32_t
kvp_slab_extents_wanted(const struct kvp_slab *slab, uint64_t len)
{
	return run_shape(slab, pages_of(len));
}

uint64_t
kvp_slab_span_len(const struct kvp_slab *slab, uint32_t first, uint32_t extents)
{
	return span_pages(slab, first, extents) * PAGE_LEN;
}

void
kvp_slab_hold_begin(struct kvp_slab *slab, const struct kvp_slab_hold *hold)
{
	uint32_t end = hold->first + hold->extents;
	uint32_t at = hold->first;

	kvp_assert(slab->hold.extents == 0 && hold->extents > 0 && end <= slab->extent_count);
	while (at < end) {
		struct kvp_slab_run run = kvp_slab_run_at(slab, at);

		if (run.block_len > 0) {
			run_unlist(slab, at);
		}
		at += run.extents;
	}
	kvp_assert(at == end);
	slab->hold = *hold;
}

void
kvp_slab_hold_end(struct kvp_slab *slab)
{
	struct kvp_slab_hold hold = slab->hold;

	slab->hold = (struct kvp_slab_hold){0};
	for (uint32_t at = hold.first; at < hold.first + hold.extents;) {
		struct kvp_slab_run run = kvp_slab_run_at(slab, at);

		if (run.block_len > 0) {
			run_list(slab, at);
		}
		at += run.extents;
	}
}

struct kvp_slab_hold
kvp_slab_hold(const struct kvp_slab *slab)
{
	return slab->hold;
}
