/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - the life of one slot: its state, its lists, its entry in the shared table. Owned by the
 * store's thread. The order of stores to the shared entry is what readers rely on: the state word
 * changes first when a block goes, last when it comes (kvp_slot_publish).
 */
#include "hal/base/assert.h"
#include "pool/store/state.h"

#include <string.h>

void
kvp_slots_list_init(struct kvp_slot_list *list)
{
	list->first = KVP_SLOT_NONE;
	list->last = KVP_SLOT_NONE;
	list->count = 0;
}

static void
list_push_back(struct kvp_store *store, struct kvp_slot_list *list, enum kvp_slots_link link,
	uint32_t slot)
{
	struct kvp_slot *slots = store->slots;

	slots[slot].link[link].prev = list->last;
	slots[slot].link[link].next = KVP_SLOT_NONE;
	if (list->last == KVP_SLOT_NONE) {
		list->first = slot;
	} else {
		slots[list->last].link[link].next = slot;
	}
	list->last = slot;
	list->count++;
}

static void
list_push_front(struct kvp_store *store, struct kvp_slot_list *list, enum kvp_slots_link link,
	uint32_t slot)
{
	struct kvp_slot *slots = store->slots;

	slots[slot].link[link].prev = KVP_SLOT_NONE;
	slots[slot].link[link].next = list->first;
	if (list->first == KVP_SLOT_NONE) {
		list->last = slot;
	} else {
		slots[list->first].link[link].prev = slot;
	}
	list->first = slot;
	list->count++;
}

static void
list_insert_before(struct kvp_store *store, struct kvp_slot_list *list, enum kvp_slots_link link,
	uint32_t slot, uint32_t before)
{
	struct kvp_slot *slots = store->slots;
	uint32_t prev = slots[before].link[link].prev;

	if (prev == KVP_SLOT_NONE) {
		list_push_front(store, list, link, slot);
		return;
	}
	slots[slot].link[link].prev = prev;
	slots[slot].link[link].next = before;
	slots[prev].link[link].next = slot;
	slots[before].link[link].prev = slot;
	list->count++;
}

static void
list_remove(struct kvp_store *store, struct kvp_slot_list *list, enum kvp_slots_link link,
	uint32_t slot)
{
	struct kvp_slot *slots = store->slots;
	uint32_t prev = slots[slot].link[link].prev;
	uint32_t next = slots[slot].link[link].next;

	kvp_assert(list->count > 0);
	if (prev == KVP_SLOT_NONE) {
		kvp_assert(list->first == slot);
		list->first = next;
	} else {
		slots[prev].link[link].next = next;
	}
	if (next == KVP_SLOT_NONE) {
		kvp_assert(list->last == slot);
		list->last = prev;
	} else {
		slots[next].link[link].prev = prev;
	}
	list->count--;
}

static struct kvp_store_ns *
slots_ns(struct kvp_store *store, uint32_t slot)
{
	return &store->namespaces.list[store->slots[slot].ns];
}

static struct kvp_store_run *
slots_run(struct kvp_store *store, uint32_t slot)
{
	return &store->runs[kvp_slab_run_of(store->slab, store->slots[slot].off)];
}

static void
slots_event(const struct kvp_store *store, enum kvp_store_event_kind kind, uint32_t slot)
{
	const struct kvp_slot_entry *entry = &store->cfg.table[slot];
	struct kvp_key key = {.len = kvp_entry_klen(entry)};
	struct kvp_store_event event = {.kind = kind, .ns = entry->ns, .key = &key};

	if (store->cfg.event == NULL) {
		return;
	}
	memcpy(key.bytes, entry->key, sizeof(key.bytes));
	event.loc = kvp_slots_loc(store, slot);
	store->cfg.event(store->cfg.arg, &event);
}

static void
slots_word(struct kvp_store *store, uint32_t slot, enum kvp_slot_state state)
{
	store->slots[slot].word = kvp_word_with(store->slots[slot].word, state);
	kvp_entry_word_store(&store->cfg.table[slot], store->slots[slot].word);
}

/* The parent may itself still be written: what counts is what it is when the child is committed. */
static void
slots_parent(struct kvp_store *store, struct kvp_slot *slot, const struct kvp_offer *offer)
{
	uint32_t parent = KVP_SLOT_NONE;

	if (offer->parent != NULL) {
		uint64_t hash = kvp_index_hash(store->index, offer->ns, offer->parent);

		parent = kvp_index_find(store->index, hash, offer->ns, offer->parent);
	}
	slot->touch.parent = parent;
	slot->parent_word = parent == KVP_SLOT_NONE ? 0 : store->slots[parent].word;
}

/* Whoever comes after us must not take this slot for free. */
static void
slots_note(struct kvp_store *store, uint32_t idx)
{
	const struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_note *note = store->cfg.notes;

	if (note == NULL) {
		return;
	}
	note += idx;
	note->parent = slot->touch.parent;
	note->parent_word = kvp_word_with(slot->parent_word, 0);
	__atomic_store_n(&note->owner, slot->owner + 1, __ATOMIC_RELEASE);
}

static void
slots_note_clear(struct kvp_store *store, uint32_t idx)
{
	if (store->cfg.notes != NULL) {
		/* Not before the state word. */
		__atomic_store_n(&store->cfg.notes[idx].owner, 0, __ATOMIC_RELEASE);
	}
}

void
kvp_slots_init(struct kvp_store *store)
{
	kvp_slots_list_init(&store->free);
	kvp_slots_list_init(&store->grants);
	kvp_slots_list_init(&store->quarantine);
	for (uint32_t i = 0; i < store->cfg.slots_max; i++) {
		list_push_back(store, &store->free, KVP_LINK_STATE, i);
	}
	for (uint32_t i = 0; i < store->cfg.owners_max; i++) {
		kvp_slots_list_init(&store->owners[i].slots);
	}
	for (uint32_t i = 0; i < kvp_slab_extent_count(store->slab); i++) {
		kvp_slots_list_init(&store->runs[i].slots);
	}
}

uint32_t
kvp_slots_grant(struct kvp_store *store, const struct kvp_offer *offer, uint64_t off, uint64_t hash,
	uint32_t ns)
{
	uint32_t idx = store->free.first;
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_slot_entry entry = {0};
	struct kvp_store_run *run;

	kvp_assert(idx != KVP_SLOT_NONE && slot->state == KVP_SLOTS_FREE);
	list_remove(store, &store->free, KVP_LINK_STATE, idx);
	store->counter++;
	kvp_assert(store->counter >> 40 == 0); /* ten years at 3,000 grants a second */
	slot->state = KVP_SLOTS_WRITING;
	slot->word = kvp_word_make(store->cfg.incarnation, store->counter, KVP_SLOT_WRITING);
	slot->off = off;
	slot->len = (uint32_t)offer->len;
	slot->owner = offer->owner;
	slot->ns = ns;
	slot->leases = 0;
	slot->due_ns = offer->touch.now_ns + store->cfg.grant_ns;
	slot->touch = offer->touch;
	slot->used = false;
	slots_parent(store, slot, offer);

	memcpy(entry.ns, offer->ns, sizeof(entry.ns));
	memcpy(entry.key, offer->key->bytes, offer->key->len);
	entry.len_klen = offer->len | (uint64_t)offer->key->len << 56;
	entry.off = off;
	entry.word = slot->word;
	slots_note(store, idx);
	kvp_slot_publish_fault(&store->cfg.table[idx], &entry, store->cfg.fault);
	kvp_fault_point(store->cfg.fault, "offer");

	kvp_index_insert(store->index, hash, idx);
	run = slots_run(store, idx);
	run->pinned++;
	list_push_back(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_back(store, &store->grants, KVP_LINK_STATE, idx);
	list_push_back(store, &store->owners[offer->owner].slots, KVP_LINK_OWNER, idx);
	store->taken_bytes += kvp_slab_block_len(slot->len);
	kvp_namespaces_take(store, ns, kvp_slab_block_len(slot->len));
	store->stats.granted++;
	return idx;
}

/* A new block is younger than all others of its namespace but one: without its parent it is of no
 * use, so it goes before that. */
static void
slots_order(struct kvp_store *store, uint32_t idx, uint32_t parent)
{
	struct kvp_slot_list *order = &slots_ns(store, idx)->order;

	if (parent != KVP_BLOCK_NONE && store->slots[parent].leases == 0 &&
		store->slots[parent].ns == store->slots[idx].ns) {
		list_insert_before(store, order, KVP_LINK_NS, idx, parent);
	} else {
		list_push_back(store, order, KVP_LINK_NS, idx);
	}
}

void
kvp_slots_commit(
	struct kvp_store *store, uint64_t now_ns, uint32_t idx, const uint8_t sum[KVP_SUM_LEN])
{
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_slot_entry entry = store->cfg.table[idx];
	struct kvp_store_run *run = slots_run(store, idx);
	uint32_t parent = slot->touch.parent;

	kvp_assert(slot->state == KVP_SLOTS_WRITING);
	list_remove(store, &store->grants, KVP_LINK_STATE, idx);
	list_remove(store, &store->owners[slot->owner].slots, KVP_LINK_OWNER, idx);
	list_remove(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_front(store, &run->slots, KVP_LINK_RUN, idx);
	run->pinned--;
	run->touched_ns = now_ns;
	slot->state = KVP_SLOTS_VALID;
	slot->word = kvp_word_with(slot->word, KVP_SLOT_VALID);
	entry.word = slot->word;
	memcpy(entry.sum, sum, sizeof(entry.sum));
	kvp_slot_publish_fault(&store->cfg.table[idx], &entry, store->cfg.fault);
	kvp_fault_point(store->cfg.fault, "commit");
	slots_note_clear(store, idx);

	slot->touch.now_ns = now_ns;
	if (parent != KVP_SLOT_NONE &&
		(store->slots[parent].state != KVP_SLOTS_VALID ||
			store->slots[parent].word >> 4 != slot->parent_word >> 4)) {
		slot->touch.parent = KVP_BLOCK_NONE;
	}
	store->cfg.evict->insert(store->evict, idx, &slot->touch);
	slots_order(store, idx, slot->touch.parent);
	slots_ns(store, idx)->use.blocks++;
	slots_ns(store, idx)->use.bytes += slot->len;
	store->stats.granted--;
	store->stats.blocks++;
	store->stats.bytes_used += slot->len;
	store->stats.puts++;
	slots_event(store, KVP_STORE_STORED, idx);
	kvp_slots_spill(store, idx, KVP_SPILL_COMMIT);
}

void
kvp_slots_lose(struct kvp_store *store, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];

	kvp_assert(slot->state == KVP_SLOTS_WRITING);
	slots_word(store, idx, KVP_SLOT_EVICTED);
	/* At once, so that another writer can be granted another slot for this key. */
	kvp_index_remove(store->index, kvp_index_hash_slot(store->index, idx), idx);
	list_remove(store, &store->grants, KVP_LINK_STATE, idx);
	slot->state = KVP_SLOTS_LOST;
	store->owners[slot->owner].lost++;
	store->stats.granted--;
	store->stats.lost++;
}

void
kvp_slots_evict(struct kvp_store *store, uint64_t now_ns, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_run *run = slots_run(store, idx);

	kvp_assert(slot->state == KVP_SLOTS_VALID && slot->leases == 0);
	slots_word(store, idx, KVP_SLOT_EVICTED);
	kvp_fault_point(store->cfg.fault, "evict");
	store->cfg.evict->remove(store->evict, idx);
	list_remove(store, &slots_ns(store, idx)->order, KVP_LINK_NS, idx);
	slots_ns(store, idx)->use.blocks--;
	slots_ns(store, idx)->use.bytes -= slot->len;
	kvp_namespaces_give(store, slot->ns, kvp_slab_block_len(slot->len));
	kvp_index_remove(store->index, kvp_index_hash_slot(store->index, idx), idx);
	list_remove(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_back(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_back(store, &store->quarantine, KVP_LINK_STATE, idx);
	slot->state = KVP_SLOTS_EVICTED;
	slot->due_ns = now_ns + store->cfg.quarantine_ns;
	store->quarantine_bytes += kvp_slab_block_len(slot->len);
	store->stats.blocks--;
	store->stats.bytes_used -= slot->len;
	store->stats.quarantined++;
	slots_event(store, KVP_STORE_REMOVED, idx);
}

/* What only a slot that its owner could write to must leave. */
static void
slots_disown(struct kvp_store *store, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_owner *owner = &store->owners[slot->owner];

	if (slot->state == KVP_SLOTS_WRITING) {
		kvp_index_remove(store->index, kvp_index_hash_slot(store->index, idx), idx);
		list_remove(store, &store->grants, KVP_LINK_STATE, idx);
		store->stats.granted--;
	} else {
		owner->lost--;
		store->stats.lost--;
	}
	list_remove(store, &owner->slots, KVP_LINK_OWNER, idx);
	slots_run(store, idx)->pinned--;
	kvp_namespaces_give(store, slot->ns, kvp_slab_block_len(slot->len));
}

void
kvp_slots_ripen(struct kvp_store *store, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];

	kvp_assert(slot->state == KVP_SLOTS_EVICTED && slot->pinned && !slot->ripe);
	list_remove(store, &store->quarantine, KVP_LINK_STATE, idx);
	slot->ripe = true;
}

void
kvp_slots_spill(struct kvp_store *store, uint32_t idx, enum kvp_spill why)
{
	struct kvp_slot *slot = &store->slots[idx];

	kvp_assert(slot->state == KVP_SLOTS_VALID);
	if (store->cfg.spill != NULL && !slot->pinned && !slots_ns(store, idx)->use.old) {
		slot->pinned = store->cfg.spill(store->cfg.arg, idx, why, slot->used);
	}
}

void
kvp_slots_free(struct kvp_store *store, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];

	kvp_assert(slot->state != KVP_SLOTS_VALID && slot->state != KVP_SLOTS_FREE);
	slots_word(store, idx, KVP_SLOT_FREE);
	kvp_fault_point(store->cfg.fault, "release");
	slots_note_clear(store, idx);
	if (slot->state == KVP_SLOTS_EVICTED) {
		kvp_assert(!slot->pinned);
		if (!slot->ripe) {
			list_remove(store, &store->quarantine, KVP_LINK_STATE, idx);
		}
		slot->ripe = false;
		store->quarantine_bytes -= kvp_slab_block_len(slot->len);
		store->stats.quarantined--;
	} else {
		slots_disown(store, idx);
	}
	list_remove(store, &slots_run(store, idx)->slots, KVP_LINK_RUN, idx);
	kvp_slab_free(store->slab, slot->off);
	store->taken_bytes -= kvp_slab_block_len(slot->len);
	slot->state = KVP_SLOTS_FREE;
	list_push_front(store, &store->free, KVP_LINK_STATE, idx);
}

void
kvp_slots_restore(struct kvp_store *store, uint64_t now_ns, uint32_t idx,
	enum kvp_slots_state state, uint32_t owner, uint32_t ns)
{
	const struct kvp_slot_entry *entry = &store->cfg.table[idx];
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_run *run;

	kvp_assert(slot->state == KVP_SLOTS_FREE);
	list_remove(store, &store->free, KVP_LINK_STATE, idx);
	slot->state = state;
	slot->word = entry->word;
	slot->off = entry->off;
	slot->len = (uint32_t)kvp_entry_len(entry);
	slot->owner = owner;
	slot->ns = ns;
	slot->leases = 0;
	slot->used = false;
	slot->pinned = false;
	slot->ripe = false;
	store->taken_bytes += kvp_slab_block_len(slot->len);
	if (state != KVP_SLOTS_EVICTED) { /* quarantine is nobody's */
		kvp_namespaces_take(store, ns, kvp_slab_block_len(slot->len));
	}
	run = slots_run(store, idx);
	run->touched_ns = now_ns;
	if (state == KVP_SLOTS_VALID) {
		list_push_front(store, &run->slots, KVP_LINK_RUN, idx);
		kvp_index_insert(store->index, kvp_index_hash_slot(store->index, idx), idx);
		store->stats.blocks++;
		store->stats.recovered++;
		store->stats.bytes_used += slot->len;
		slots_note_clear(store, idx);
		return;
	}
	list_push_back(store, &run->slots, KVP_LINK_RUN, idx);
	slots_word(store, idx, KVP_SLOT_EVICTED);
	if (state == KVP_SLOTS_EVICTED) {
		list_push_back(store, &store->quarantine, KVP_LINK_STATE, idx);
		slot->due_ns = now_ns + store->cfg.quarantine_ns;
		store->quarantine_bytes += kvp_slab_block_len(slot->len);
		store->stats.quarantined++;
		return;
	}
	kvp_assert(state == KVP_SLOTS_LOST);
	run->pinned++;
	list_push_back(store, &store->owners[owner].slots, KVP_LINK_OWNER, idx);
	store->owners[owner].lost++;
	store->owners[owner].fencing = true;
	store->stats.lost++;
}

void
kvp_slots_rejoin(struct kvp_store *store, uint64_t now_ns, uint32_t idx)
{
	const struct kvp_store_note *note = store->cfg.notes;
	struct kvp_touch touch = {.now_ns = now_ns, .parent = KVP_BLOCK_NONE};

	if (note != NULL && note[idx].parent < store->cfg.slots_max && note[idx].parent != idx) {
		const struct kvp_slot *parent = &store->slots[note[idx].parent];

		if (parent->state == KVP_SLOTS_VALID &&
			kvp_word_with(parent->word, 0) == note[idx].parent_word) {
			touch.parent = note[idx].parent;
		}
	}
	store->cfg.evict->insert(store->evict, idx, &touch);
	slots_order(store, idx, touch.parent);
	slots_ns(store, idx)->use.blocks++;
	slots_ns(store, idx)->use.bytes += store->slots[idx].len;
	slots_event(store, KVP_STORE_STORED, idx);
}

struct kvp_loc
kvp_slots_loc(const struct kvp_store *store, uint32_t slot)
{
	return (struct kvp_loc){
		.word = kvp_word_with(store->slots[slot].word, KVP_SLOT_VALID),
		.off = store->slots[slot].off,
		.len = store->slots[slot].len,
		.slot = slot,
		.tier = KVP_TIER_DRAM,
	};
}

void
kvp_slots_use(struct kvp_store *store, uint32_t idx, const struct kvp_touch *touch)
{
	struct kvp_slot_list *order = &slots_ns(store, idx)->order;

	kvp_assert(store->slots[idx].state == KVP_SLOTS_VALID);
	store->slots[idx].used = true;
	store->cfg.evict->hit(store->evict, idx, touch);
	if (store->slots[idx].leases == 0) {
		list_remove(store, order, KVP_LINK_NS, idx);
		list_push_back(store, order, KVP_LINK_NS, idx);
	}
}

void
kvp_slots_hold(struct kvp_store *store, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_run *run = slots_run(store, idx);

	kvp_assert(slot->state == KVP_SLOTS_VALID);
	slot->leases++;
	if (slot->leases > 1) {
		return;
	}
	list_remove(store, &slots_ns(store, idx)->order, KVP_LINK_NS, idx);
	list_remove(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_back(store, &run->slots, KVP_LINK_RUN, idx);
	run->pinned++;
	store->stats.leased_blocks++;
	store->stats.leased_bytes += kvp_slab_block_len(slot->len);
}

void
kvp_slots_unhold(struct kvp_store *store, uint64_t now_ns, uint32_t idx)
{
	struct kvp_slot *slot = &store->slots[idx];
	struct kvp_store_run *run = slots_run(store, idx);

	kvp_assert(slot->state == KVP_SLOTS_VALID && slot->leases > 0);
	slot->leases--;
	if (slot->leases > 0) {
		return;
	}
	list_push_back(store, &slots_ns(store, idx)->order, KVP_LINK_NS, idx);
	list_remove(store, &run->slots, KVP_LINK_RUN, idx);
	list_push_front(store, &run->slots, KVP_LINK_RUN, idx);
	run->pinned--;
	store->stats.leased_blocks--;
	store->stats.leased_bytes -= kvp_slab_block_len(slot->len);
	if (slots_ns(store, idx)->use.old) {
		store->stats.cleared++;
		kvp_slots_evict(store, now_ns, idx);
	}
}
