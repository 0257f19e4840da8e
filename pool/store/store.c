/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - a store as a whole: opened, asked, walked, counted. Owned by the store's thread. Grants
 * are in grant.c, leases in lease.c, namespaces in namespaces.c, space in reclaim.c, the states of
 * a slot in slots.c.
 */
#include "pool/store/store.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/store/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int
store_tables(struct kvp_store *store)
{
	const struct kvp_store_cfg *cfg = &store->cfg;
	uint32_t extents = kvp_slab_extent_count(store->slab);

	store->slots = calloc(cfg->slots_max, sizeof(store->slots[0]));
	store->owners = calloc(cfg->owners_max, sizeof(store->owners[0]));
	store->runs = calloc(extents, sizeof(store->runs[0]));
	store->claims = calloc(KVP_STORE_CLAIMS, sizeof(store->claims[0]));
	if (store->slots == NULL || store->owners == NULL || store->runs == NULL ||
		store->claims == NULL) {
		return -ENOMEM;
	}
	kvp_slots_init(store);
	if (kvp_leases_init(store) < 0 || kvp_namespaces_init(store) < 0) {
		return -ENOMEM;
	}
	return cfg->evict->open(cfg->slots_max, &store->evict);
}

int
kvp_store_open(const struct kvp_store_cfg *cfg, struct kvp_store **ret_store)
{
	struct kvp_store *store;
	int err;

	if (cfg->arena == NULL || (uintptr_t)cfg->arena % KVP_BLOCK_ALIGN != 0 ||
		cfg->table == NULL || cfg->evict == NULL || cfg->owners_max == 0 ||
		cfg->low_water_permille > 1000 || cfg->lease_permille > 1000) {
		return -EINVAL;
	}
	store = calloc(1, sizeof(*store));
	if (store == NULL) {
		return -ENOMEM;
	}
	store->cfg = *cfg;
	store->stats.bytes_total = cfg->arena_len;
	err = kvp_slab_open(cfg->arena_len, &store->slab);
	if (err < 0) {
		goto err_close;
	}
	err = kvp_index_open(cfg->table, cfg->slots_max, cfg->seed, &store->index);
	if (err < 0) {
		goto err_close;
	}
	err = store_tables(store);
	if (err < 0) {
		goto err_close;
	}
	*ret_store = store;
	return 0;

err_close:
	kvp_store_close(store);
	return err;
}

void
kvp_store_close(struct kvp_store *store)
{
	if (store == NULL) {
		return;
	}
	if (store->evict != NULL) {
		store->cfg.evict->close(store->evict);
	}
	kvp_namespaces_fini(store);
	kvp_leases_fini(store);
	free(store->claims);
	free(store->runs);
	free(store->owners);
	free(store->slots);
	kvp_index_close(store->index);
	kvp_slab_close(store->slab);
	free(store);
}

/* The slot of a key that is stored, or KVP_SLOT_NONE. */
static uint32_t
store_find(const struct kvp_store *store, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	uint32_t slot;

	if (key->len == 0 || key->len > KVP_KEY_LEN_MAX) {
		return KVP_SLOT_NONE;
	}
	slot = kvp_index_find(store->index, kvp_index_hash(store->index, ns, key), ns, key);
	if (slot == KVP_INDEX_NONE || store->slots[slot].state != KVP_SLOTS_VALID) {
		return KVP_SLOT_NONE;
	}
	return slot;
}

int
kvp_store_lookup(const struct kvp_store *store, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, struct kvp_loc *ret_loc)
{
	uint32_t slot = store_find(store, ns, key);

	if (slot == KVP_SLOT_NONE) {
		return -KVP_E_NOKEY;
	}
	*ret_loc = kvp_slots_loc(store, slot);
	return 0;
}

int
kvp_store_delete(struct kvp_store *store, uint64_t now_ns, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key)
{
	uint32_t slot = store_find(store, ns, key);

	if (slot == KVP_SLOT_NONE) {
		return -KVP_E_NOKEY;
	}
	if (store->slots[slot].leases > 0) {
		return -KVP_E_BUSY;
	}
	store->stats.deleted++;
	kvp_slots_evict(store, now_ns, slot);
	return 0;
}

void
kvp_store_touch(
	struct kvp_store *store, uint32_t slot, uint64_t word, const struct kvp_touch *touch)
{
	if (slot >= store->cfg.slots_max || store->slots[slot].state != KVP_SLOTS_VALID ||
		store->slots[slot].word != word) {
		store->stats.touches_stale++;
		return;
	}
	store->stats.touches++;
	store->runs[kvp_slab_run_of(store->slab, store->slots[slot].off)].touched_ns =
		touch->now_ns;
	kvp_slots_use(store, slot, touch);
}

bool
kvp_store_recovered(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_slot_entry *ret_entry)
{
	for (; *cursor < store->cfg.slots_max; (*cursor)++) {
		const struct kvp_slot *slot = &store->slots[*cursor];

		if (slot->state == KVP_SLOTS_VALID &&
			slot->word >> 44 != (store->cfg.incarnation & 0xfffffu)) {
			*ret_entry = store->cfg.table[*cursor];
			return true;
		}
	}
	return false;
}

void
kvp_store_corrupt(struct kvp_store *store, uint64_t now_ns, uint32_t slot, uint64_t word)
{
	if (slot < store->cfg.slots_max && store->slots[slot].state == KVP_SLOTS_VALID &&
		store->slots[slot].word == word) {
		store->stats.corrupt++;
		kvp_slots_evict(store, now_ns, slot);
	}
}

void
kvp_store_unpin(struct kvp_store *store, uint32_t slot)
{
	kvp_assert(slot < store->cfg.slots_max && store->slots[slot].pinned);
	store->slots[slot].pinned = false;
	if (store->slots[slot].ripe) {
		kvp_slots_free(store, slot);
	}
}

bool
kvp_store_next(const struct kvp_store *store, uint32_t *cursor, struct kvp_store_event *ret_event,
	struct kvp_key *ret_key)
{
	const struct kvp_slot_entry *entry;
	uint32_t slot = *cursor;

	while (slot < store->cfg.slots_max && store->slots[slot].state != KVP_SLOTS_VALID) {
		slot++;
	}
	if (slot >= store->cfg.slots_max) {
		*cursor = slot;
		return false;
	}
	entry = &store->cfg.table[slot];
	ret_key->len = kvp_entry_klen(entry);
	memcpy(ret_key->bytes, entry->key, sizeof(ret_key->bytes));
	ret_event->kind = KVP_STORE_STORED;
	ret_event->ns = entry->ns;
	ret_event->key = ret_key;
	ret_event->loc = kvp_slots_loc(store, slot);
	*cursor = slot + 1;
	return true;
}

void
kvp_store_stats(const struct kvp_store *store, struct kvp_store_stats *ret_stats)
{
	kvp_assert(store->taken_bytes <= store->cfg.arena_len);
	*ret_stats = store->stats;
	ret_stats->bytes_free = store->cfg.arena_len - store->taken_bytes;
}
