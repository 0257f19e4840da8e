/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.c - a store out of the table that an earlier process left. Owned by the store's thread.
 *
 * The process may have died between any two stores of slots.c, so:
 *   FREE              whatever the rest says, nobody was told of it.
 *   VALID             a block, if its check fits.
 *   WRITING, no note  cannot be: the note comes first. Damaged, so free.
 *   WRITING           a grant whose owner may still write. If its check does not fit, the process
 *                     died in a commit: its owner had written everything, so it is free.
 *   EVICTED, a note   the same for a slot that was lost. The check is that of WRITING.
 *   EVICTED           was valid, and has the check of that.
 * Three passes: each entry for itself; by place, so that the slab can be built and overlaps show;
 * by age, for the order of eviction.
 */
#include "hal/base/assert.h"
#include "pool/store/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct recover_item {
	uint64_t rank; /* place, then age */
	uint32_t slot;
	uint32_t state; /* enum kvp_slots_state */
};

struct recover {
	struct kvp_store *store;
	uint64_t now_ns;
	struct recover_item *items;
	uint32_t count;
	struct kvp_store_recovery *report;
};

static uint32_t
recover_owner(const struct kvp_store *store, uint32_t slot)
{
	return store->cfg.notes != NULL ? store->cfg.notes[slot].owner : 0;
}

/* The entry is whole, but for its state, which was that one when it was published. */
static bool
entry_whole(const struct kvp_slot_entry *entry, enum kvp_slot_state state)
{
	struct kvp_slot_entry was = *entry;
	uint64_t len = kvp_entry_len(entry);

	was.word = kvp_word_with(was.word, state);
	return entry->check == kvp_slot_check(&was) && len > 0 && len <= KVP_BLOCK_LEN_MAX &&
	       kvp_entry_klen(entry) > 0 && kvp_entry_klen(entry) <= KVP_KEY_LEN_MAX;
}

/* What an entry is by itself; FREE also for what is dropped, with its count. */
static enum kvp_slots_state
recover_judge(struct recover *r, uint32_t slot)
{
	const struct kvp_slot_entry *entry = &r->store->cfg.table[slot];
	enum kvp_slot_state state = kvp_word_state(entry->word);
	uint32_t owner = recover_owner(r->store, slot);
	bool open = state == KVP_SLOT_WRITING || (state == KVP_SLOT_EVICTED && owner != 0);

	if (state == KVP_SLOT_FREE) {
		return KVP_SLOTS_FREE;
	}
	if (state > KVP_SLOT_EVICTED ||
		!entry_whole(entry, open ? KVP_SLOT_WRITING : KVP_SLOT_VALID)) {
		r->report->torn++;
		return KVP_SLOTS_FREE;
	}
	if (open && (owner == 0 || owner > r->store->cfg.owners_max)) {
		r->report->half++;
		return KVP_SLOTS_FREE;
	}
	if (open) {
		return KVP_SLOTS_LOST;
	}
	return state == KVP_SLOT_VALID ? KVP_SLOTS_VALID : KVP_SLOTS_EVICTED;
}

static void
recover_drop(struct recover *r, uint32_t slot)
{
	struct kvp_slot_entry *entry = &r->store->cfg.table[slot];

	if (kvp_word_state(entry->word) != KVP_SLOT_FREE) {
		kvp_entry_word_store(entry, kvp_word_with(entry->word, KVP_SLOT_FREE));
	}
	if (r->store->cfg.notes != NULL) {
		r->store->cfg.notes[slot].owner = 0;
	}
}

static void
recover_entries(struct recover *r)
{
	struct kvp_store *store = r->store;

	for (uint32_t slot = 0; slot < store->cfg.slots_max; slot++) {
		enum kvp_slots_state state = recover_judge(r, slot);
		uint64_t counter = store->cfg.table[slot].word << 20 >> 24;

		if (counter > store->counter) {
			store->counter = counter;
		}
		if (state == KVP_SLOTS_FREE) {
			recover_drop(r, slot);
			continue;
		}
		r->items[r->count++] = (struct recover_item){
			.rank = store->cfg.table[slot].off,
			.slot = slot,
			.state = state,
		};
	}
}

static int
item_compare(const void *one, const void *other)
{
	const struct recover_item *a = one;
	const struct recover_item *b = other;

	if (a->rank != b->rank) {
		return a->rank < b->rank ? -1 : 1;
	}
	return (a->slot > b->slot) - (a->slot < b->slot);
}

static bool
recover_known(const struct recover *r, uint32_t slot)
{
	const struct kvp_slot_entry *entry = &r->store->cfg.table[slot];
	struct kvp_key key = {.len = kvp_entry_klen(entry)};
	uint64_t hash = kvp_index_hash_slot(r->store->index, slot);

	memcpy(key.bytes, entry->key, sizeof(key.bytes));
	return kvp_index_find(r->store->index, hash, entry->ns, &key) != KVP_INDEX_NONE;
}

/* Takes the place; false when it is dropped. */
static bool
recover_place(struct recover *r, const struct recover_item *item)
{
	struct kvp_store *store = r->store;
	const struct kvp_slot_entry *entry = &store->cfg.table[item->slot];
	uint32_t owner = item->state == KVP_SLOTS_LOST ? recover_owner(store, item->slot) - 1 : 0;
	uint32_t ns;

	if (item->state == KVP_SLOTS_VALID && recover_known(r, item->slot)) {
		r->report->doubles++;
		return false;
	}
	if (kvp_slab_restore(store->slab, entry->off, kvp_entry_len(entry)) < 0) {
		r->report->misplaced++;
		return false;
	}
	ns = item->state == KVP_SLOTS_EVICTED ? 0 : kvp_namespaces_rejoin(store, entry->ns);
	if (ns == KVP_BLOCK_NONE) {
		kvp_slab_free(store->slab, entry->off);
		r->report->misplaced++;
		return false;
	}
	kvp_slots_restore(store, r->now_ns, item->slot, item->state, owner, ns);
	r->report->kept += item->state == KVP_SLOTS_VALID;
	r->report->lost += item->state == KVP_SLOTS_LOST;
	r->report->quarantined += item->state == KVP_SLOTS_EVICTED;
	return true;
}

/* Leaves the valid ones in items, ranked by age. */
static void
recover_places(struct recover *r)
{
	uint32_t valid = 0;

	qsort(r->items, r->count, sizeof(r->items[0]), item_compare);
	for (uint32_t i = 0; i < r->count; i++) {
		struct recover_item item = r->items[i];

		if (!recover_place(r, &item)) {
			recover_drop(r, item.slot);
		} else if (item.state == KVP_SLOTS_VALID) {
			item.rank = r->store->slots[item.slot].word << 20 >> 24;
			r->items[valid++] = item;
		}
	}
	r->count = valid;
}

int
kvp_store_recover(struct kvp_store *store, uint64_t now_ns, struct kvp_store_recovery *ret_recovery)
{
	struct recover r = {.store = store, .now_ns = now_ns, .report = ret_recovery};

	kvp_assert(store->counter == 0 && store->stats.blocks == 0);
	r.items = malloc(store->cfg.slots_max * sizeof(r.items[0]));
	if (r.items == NULL) {
		return -ENOMEM;
	}
	*ret_recovery = (struct kvp_store_recovery){0};
	recover_entries(&r);
	recover_places(&r);
	qsort(r.items, r.count, sizeof(r.items[0]), item_compare);
	for (uint32_t i = 0; i < r.count; i++) {
		kvp_slots_rejoin(store, now_ns, r.items[i].slot);
	}
	free(r.items);
	return 0;
}
