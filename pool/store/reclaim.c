/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c - getting space back: quarantine's end, eviction on demand and ahead of it, and
 * emptying a stretch of extents for a size that has none. Owned by the store's thread.
 *
 * ON DEMAND An offer that finds no space takes one step. If the policy's victim is of the offered
 *           size, it goes, and that is all: with one block size every put costs one eviction.
 *
 * OTHER     If it is of another size, its bytes alone would be of no use. Then either a
 *           block of the offered size goes, from the run of that size that was left alone for
 *           longest, or a stretch of whole extents changes its size: whichever has lain
 *           untouched for longer. The policy is not asked here: space of the right shape wins
 *           over the best order, so parents may go before their children. That look is
 *           O(extents).
 *
 * STRETCH   Held for the offered size and emptied, at most KVP_STORE_STEP_MAX evictions a step.
 *           Chosen is the one without open grants, leases and runs of this size, then untouched for
 *           longest (ages count in octaves), then with the least in it (in eighths).
 *
 * PROGRESS  A hold ends when a run is carved in it, or when nothing has left it for a while (its
 *           rest waits for a fence, or nobody asks any more). One stretch at a time: another size
 *           that needs one takes a block of its own, or waits, which is BUSY to its clients.
 */
#include "hal/base/assert.h"
#include "pool/store/state.h"

#include <string.h>

#define HOLD_IDLE_NS 100000000ull /* beyond two quarantines without progress */

struct stretch {
	uint32_t first;
	uint32_t extents;
	uint32_t avoid; /* open grants, and runs that are of the right size already */
	uint32_t age;   /* since it was touched last: log2 of ms */
	uint32_t fill;  /* eighths */
	uint64_t touched_ns;
};

static bool
slot_held(const struct kvp_store *store, uint32_t slot)
{
	struct kvp_slab_hold hold = kvp_slab_hold(store->slab);

	return kvp_slab_run_of(store->slab, store->slots[slot].off) - hold.first < hold.extents;
}

static uint32_t
age_of(uint64_t now_ns, uint64_t touched_ns)
{
	return 64 - (uint32_t)__builtin_clzll((now_ns - touched_ns) / 1000000 | 1); /* of ms */
}

/* The stretch of whole runs and free extents from first on that has at least so many extents; it
 * has fewer when the arena ends before. */
static struct stretch
stretch_at(const struct kvp_store *store, uint32_t first, uint32_t extents, uint64_t block_len,
	uint64_t now_ns)
{
	struct stretch stretch = {.first = first};
	uint32_t count = kvp_slab_extent_count(store->slab);
	uint64_t used = 0;

	while (stretch.extents < extents && first + stretch.extents < count) {
		uint32_t at = first + stretch.extents;
		struct kvp_slab_run run = kvp_slab_run_at(store->slab, at);

		if (run.block_len > 0) {
			used += run.used * run.block_len;
			stretch.avoid += store->runs[at].pinned + (run.block_len == block_len);
			if (store->runs[at].touched_ns > stretch.touched_ns) {
				stretch.touched_ns = store->runs[at].touched_ns;
			}
		}
		stretch.extents += run.extents;
	}
	stretch.age = age_of(now_ns, stretch.touched_ns);
	stretch.fill =
		(uint32_t)(used * 8 / kvp_slab_span_len(store->slab, first, stretch.extents));
	return stretch;
}

static bool
stretch_better(const struct stretch *a, const struct stretch *b)
{
	if ((a->avoid == 0) != (b->avoid == 0)) {
		return a->avoid == 0;
	}
	if (a->age != b->age) {
		return a->age > b->age;
	}
	if (a->fill != b->fill) {
		return a->fill < b->fill;
	}
	return a->touched_ns < b->touched_ns;
}

static void
hold_touch(struct kvp_store *store, uint64_t now_ns)
{
	store->hold_until_ns = now_ns + 2 * store->cfg.quarantine_ns + HOLD_IDLE_NS;
}

static struct stretch
stretch_find(const struct kvp_store *store, uint64_t now_ns, uint64_t len)
{
	uint32_t want = kvp_slab_extents_wanted(store->slab, len);
	uint32_t count = kvp_slab_extent_count(store->slab);
	struct stretch best = {0};

	for (uint32_t at = 0; at < count; at += kvp_slab_run_at(store->slab, at).extents) {
		struct stretch stretch =
			stretch_at(store, at, want, kvp_slab_block_len(len), now_ns);

		if (stretch.extents < want ||
			kvp_slab_span_len(store->slab, at, want) < kvp_slab_block_len(len)) {
			break;
		}
		if (best.extents == 0 || stretch_better(&stretch, &best)) {
			best = stretch;
		}
	}
	kvp_assert(best.extents >= want); /* the whole arena is long enough */
	return best;
}

static void
hold_begin(struct kvp_store *store, uint64_t now_ns, uint64_t len, const struct stretch *stretch)
{
	const struct kvp_slab_hold hold = {
		.first = stretch->first,
		.extents = stretch->extents,
		.block_len = kvp_slab_block_len(len),
	};

	kvp_slab_hold_begin(store->slab, &hold);
	hold_touch(store, now_ns);
}

/* Evicts what is valid in the held stretch; true when the step was too short for all of it. */
static bool
hold_step(struct kvp_store *store, uint64_t now_ns)
{
	struct kvp_slab_hold hold = kvp_slab_hold(store->slab);
	uint32_t budget = KVP_STORE_STEP_MAX;
	uint32_t at = hold.first;

	if (hold.extents > 0 && now_ns >= store->hold_until_ns) {
		kvp_slab_hold_end(store->slab);
		return false;
	}
	while (at < hold.first + hold.extents) {
		const struct kvp_slot_list *slots = &store->runs[at].slots;

		while (slots->count > 0 && store->slots[slots->first].state == KVP_SLOTS_VALID &&
			store->slots[slots->first].leases == 0) {
			if (budget-- == 0) {
				return true;
			}
			store->stats.evicted++;
			kvp_slots_spill(store, slots->first, KVP_SPILL_EVICT);
			kvp_slots_evict(store, now_ns, slots->first);
			hold_touch(store, now_ns);
		}
		at += kvp_slab_run_at(store->slab, at).extents;
	}
	return false;
}

/* The policy's best victim that no lease holds; KVP_BLOCK_NONE: none within a bounded look. */
static uint32_t
victim_find(struct kvp_store *store)
{
	for (uint32_t i = 0; i < KVP_STORE_STEP_MAX; i++) {
		uint32_t victim = store->cfg.evict->victim(store->evict);

		if (victim == KVP_BLOCK_NONE || store->slots[victim].leases == 0) {
			return victim;
		}
		store->cfg.evict->skip(store->evict, victim);
	}
	return KVP_BLOCK_NONE;
}

static bool
victim_evict(struct kvp_store *store, uint64_t now_ns, uint32_t victim)
{
	if (victim == KVP_BLOCK_NONE) {
		return false;
	}
	kvp_assert(store->slots[victim].state == KVP_SLOTS_VALID);
	store->stats.evicted++;
	kvp_slots_spill(store, victim, KVP_SPILL_EVICT);
	kvp_slots_evict(store, now_ns, victim);
	return true;
}

/* Less is free, or becoming so, than the low-water mark asks for: bytes or slots. */
static bool
below_mark(const struct kvp_store *store)
{
	uint64_t permille = store->cfg.low_water_permille;
	uint64_t bytes = kvp_slab_free_bytes(store->slab) + store->quarantine_bytes;
	uint64_t slots = (uint64_t)store->free.count + store->stats.quarantined;

	return bytes < store->cfg.arena_len / 1000 * permille ||
	       slots * 1000 < store->cfg.slots_max * permille;
}

/* The oldest block of a run that may go; KVP_SLOT_NONE: none. Commits go to the front of its list.
 */
static uint32_t
run_oldest(const struct kvp_store *store, uint32_t at)
{
	uint32_t slot = store->runs[at].slots.last;

	while (slot != KVP_SLOT_NONE &&
		(store->slots[slot].state != KVP_SLOTS_VALID || store->slots[slot].leases > 0)) {
		slot = store->slots[slot].link[KVP_LINK_RUN].prev;
	}
	return slot;
}

/* A block of this size out of the run that was left alone for longest, with that run's age. */
static uint32_t
own_find(const struct kvp_store *store, uint64_t now_ns, uint64_t block_len, uint32_t *ret_age)
{
	struct kvp_slab_hold hold = kvp_slab_hold(store->slab);
	uint32_t count = kvp_slab_extent_count(store->slab);
	uint32_t best = KVP_SLOT_NONE;
	uint64_t touched_ns = UINT64_MAX;

	for (uint32_t at = 0; at < count; at += kvp_slab_run_at(store->slab, at).extents) {
		const struct kvp_store_run *run = &store->runs[at];
		uint32_t slot;

		if (kvp_slab_run_at(store->slab, at).block_len != block_len ||
			at - hold.first < hold.extents || run->touched_ns >= touched_ns) {
			continue;
		}
		slot = run_oldest(store, at);
		if (slot != KVP_SLOT_NONE) {
			best = slot;
			touched_ns = run->touched_ns;
		}
	}
	*ret_age = best == KVP_SLOT_NONE ? 0 : age_of(now_ns, touched_ns);
	return best;
}

/* Space for a size that the policy's victim is not of: see OTHER above. */
static void
other_size(struct kvp_store *store, uint64_t now_ns, uint64_t len, struct kvp_store_claim *claim,
	uint64_t hash)
{
	bool holding = kvp_slab_hold(store->slab).extents > 0;
	struct stretch stretch;
	uint32_t age;
	uint32_t own = own_find(store, now_ns, kvp_slab_block_len(len), &age);

	if (!holding) {
		stretch = stretch_find(store, now_ns, len);
		if (own == KVP_SLOT_NONE || stretch.age > age) {
			hold_begin(store, now_ns, len, &stretch);
			(void)hold_step(store, now_ns);
			return;
		}
	}
	if (own != KVP_SLOT_NONE) {
		(void)victim_evict(store, now_ns, own);
		claim->hash = hash;
		claim->until_ns = now_ns + store->cfg.quarantine_ns;
	}
}

bool
kvp_reclaim_ripen(struct kvp_store *store, uint64_t now_ns)
{
	for (uint32_t i = 0; i < KVP_STORE_STEP_MAX; i++) {
		uint32_t slot = store->quarantine.first;

		if (slot == KVP_SLOT_NONE || store->slots[slot].due_ns > now_ns) {
			return false;
		}
		if (slot_held(store, slot)) {
			hold_touch(store, now_ns);
		}
		if (store->slots[slot].pinned) {
			kvp_slots_ripen(store, slot);
		} else {
			kvp_slots_free(store, slot);
		}
	}
	return true;
}

void
kvp_store_held_up(struct kvp_store *store, uint64_t now_ns)
{
	uint32_t slot = store->quarantine.first;

	while (slot != KVP_SLOT_NONE) {
		store->slots[slot].due_ns = now_ns + store->cfg.quarantine_ns;
		slot = store->slots[slot].link[KVP_LINK_STATE].next;
	}
}

void
kvp_reclaim_room(struct kvp_store *store, uint64_t now_ns, uint64_t len, uint64_t hash)
{
	struct kvp_store_claim *claim = &store->claims[(hash >> 32) & (KVP_STORE_CLAIMS - 1)];
	struct kvp_slab_hold hold = kvp_slab_hold(store->slab);
	uint64_t block_len = kvp_slab_block_len(len);
	uint32_t victim = victim_find(store);
	bool fits;

	if (hold.extents > 0 && hold.block_len == block_len && store->free.count > 0) {
		(void)hold_step(store, now_ns); /* the rest at the next step */
		return;
	}
	if (victim == KVP_BLOCK_NONE || (claim->hash == hash && now_ns < claim->until_ns)) {
		return;
	}
	fits = kvp_slab_block_len(store->slots[victim].len) == block_len &&
	       !slot_held(store, victim);
	if (store->free.count == 0 || fits) {
		(void)victim_evict(store, now_ns, victim);
		claim->hash = hash;
		claim->until_ns = now_ns + store->cfg.quarantine_ns;
	} else {
		other_size(store, now_ns, len, claim, hash);
	}
}

bool
kvp_reclaim_turn(struct kvp_store *store, uint64_t now_ns)
{
	bool more = kvp_reclaim_ripen(store, now_ns);

	if (hold_step(store, now_ns)) {
		more = true;
	}
	for (uint32_t i = 0; below_mark(store); i++) {
		if (i == KVP_STORE_STEP_MAX) {
			return true;
		}
		if (!victim_evict(store, now_ns, victim_find(store))) {
			break;
		}
	}
	return more;
}
