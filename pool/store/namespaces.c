/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespaces.c - what each namespace takes up, how much it may, and which epochs are over. Owned by
 * the store's thread.
 *
 * TABLE  One entry a namespace that has a slot or a quota of its own; bounded. A namespace that
 *        finds no place is refused: what is not counted cannot be limited.
 * QUOTA  Counts what slots take up of the arena, from the grant to the eviction (quarantine is
 *        nobody's). At its quota a namespace is refused, or, with quota_evict, loses the block of
 *        its own that was used longest ago; others are never touched for it.
 * EPOCH  Namespaces that differ in their epoch only are a family. Raising a family's epoch makes
 * its older namespaces old: nothing can be stored in them any more, and each turn drops some of
 *        their blocks until none is left. What a lease holds goes when that ends.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/store/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_MAX_DEFAULT 1024u
#define NS_NONE        KVP_BLOCK_NONE

static const uint8_t ns_zero[KVP_NS_LEN];

/* --- the table -----------------------------------------------------------------------------------
 */

/* Peers choose digests, so the hash is seeded; long chains would be slow, not wrong. */
static uint32_t
ns_bucket(const struct kvp_store *store, const uint8_t digest[KVP_NS_LEN])
{
	uint64_t half[2];
	uint64_t hash;

	memcpy(half, digest, sizeof(half));
	hash = (half[0] ^ store->cfg.seed) * 0x9e3779b97f4a7c15ull;
	hash = (hash ^ hash >> 29 ^ half[1]) * 0xbf58476d1ce4e5b9ull;
	return (uint32_t)(hash >> 32) & store->namespaces.mask;
}

static uint32_t
ns_find(const struct kvp_store *store, const uint8_t digest[KVP_NS_LEN])
{
	const struct kvp_store_namespaces *table = &store->namespaces;
	uint32_t idx = table->buckets[ns_bucket(store, digest)];

	while (idx != NS_NONE && memcmp(table->list[idx].use.ns, digest, KVP_NS_LEN) != 0) {
		idx = table->list[idx].next;
	}
	return idx;
}

/* NS_NONE: the table is full. */
static uint32_t
ns_add(struct kvp_store *store, const uint8_t digest[KVP_NS_LEN])
{
	struct kvp_store_namespaces *table = &store->namespaces;
	uint32_t *bucket = &table->buckets[ns_bucket(store, digest)];
	uint32_t idx = table->free;
	struct kvp_store_ns *ns;

	if (idx == NS_NONE) {
		return NS_NONE;
	}
	ns = &table->list[idx];
	table->free = ns->next;
	memset(ns, 0, sizeof(*ns));
	kvp_slots_list_init(&ns->order);
	memcpy(ns->use.ns, digest, KVP_NS_LEN);
	ns->use.quota = store->cfg.quota;
	ns->used = true;
	ns->next = *bucket;
	*bucket = idx;
	store->stats.namespaces++;
	return idx;
}

/* Nobody needs it any more. */
static void
ns_drop(struct kvp_store *store, uint32_t idx)
{
	struct kvp_store_namespaces *table = &store->namespaces;
	struct kvp_store_ns *ns = &table->list[idx];
	uint32_t *at = &table->buckets[ns_bucket(store, ns->use.ns)];

	kvp_assert(ns->used && ns->use.taken == 0 && ns->order.count == 0);
	while (*at != idx) {
		at = &table->list[*at].next;
	}
	*at = ns->next;
	ns->used = false;
	ns->next = table->free;
	table->free = idx;
	store->stats.namespaces--;
}

void
kvp_namespaces_take(struct kvp_store *store, uint32_t idx, uint64_t block_len)
{
	store->namespaces.list[idx].slots++;
	store->namespaces.list[idx].use.taken += block_len;
}

void
kvp_namespaces_give(struct kvp_store *store, uint32_t idx, uint64_t block_len)
{
	struct kvp_store_ns *ns = &store->namespaces.list[idx];

	kvp_assert(ns->slots > 0 && ns->use.taken >= block_len);
	ns->slots--;
	ns->use.taken -= block_len;
	if (ns->slots == 0 && !ns->kept) {
		ns_drop(store, idx);
	}
}

bool
kvp_store_usage_next(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_store_usage *ret_usage)
{
	const struct kvp_store_namespaces *table = &store->namespaces;

	while (*cursor < table->max && !table->list[*cursor].used) {
		(*cursor)++;
	}
	if (*cursor >= table->max) {
		return false;
	}
	*ret_usage = table->list[*cursor].use;
	(*cursor)++;
	return true;
}

int
kvp_store_quota_set(struct kvp_store *store, const uint8_t digest[KVP_NS_LEN], uint64_t bytes)
{
	uint32_t idx = ns_find(store, digest);

	if (idx == NS_NONE) {
		idx = ns_add(store, digest);
	}
	if (idx == NS_NONE) {
		return -ENOSPC;
	}
	store->namespaces.list[idx].kept = true;
	store->namespaces.list[idx].use.quota = bytes;
	return 0;
}

/* --- epochs --------------------------------------------------------------------------------------
 */

static struct kvp_store_family *
family_find(const struct kvp_store *store, const uint8_t family[KVP_NS_LEN])
{
	const struct kvp_store_namespaces *table = &store->namespaces;

	for (uint32_t i = 0; i < table->family_max; i++) {
		if (table->families[i].stamp != 0 &&
			memcmp(table->families[i].family, family, KVP_NS_LEN) == 0) {
			return &table->families[i];
		}
	}
	return NULL;
}

/* A place for another one: a free one, or the one raised longest ago. */
static struct kvp_store_family *
family_place(const struct kvp_store *store)
{
	const struct kvp_store_namespaces *table = &store->namespaces;
	struct kvp_store_family *oldest = &table->families[0];

	for (uint32_t i = 1; i < table->family_max && oldest->stamp != 0; i++) {
		if (table->families[i].stamp < oldest->stamp) {
			oldest = &table->families[i];
		}
	}
	return oldest;
}

static void
ns_make_old(struct kvp_store *store, uint32_t idx)
{
	store->namespaces.list[idx].use.old = true;
	store->namespaces.clearing = 0; /* all are looked at anew */
}

int
kvp_store_epoch_raise(struct kvp_store *store, const uint8_t family[KVP_NS_LEN], uint64_t epoch)
{
	struct kvp_store_namespaces *table = &store->namespaces;
	struct kvp_store_family *known = family_find(store, family);

	if (epoch == (known != NULL ? known->epoch : 0)) {
		return 0;
	}
	if (known != NULL && epoch < known->epoch) {
		return -KVP_E_EPOCH;
	}
	if (known == NULL) {
		known = family_place(store);
		memcpy(known->family, family, KVP_NS_LEN);
	}
	known->epoch = epoch;
	known->stamp = ++table->stamp;
	for (uint32_t i = 0; i < table->max; i++) {
		struct kvp_store_ns *ns = &table->list[i];

		if (ns->used && ns->use.epoch < epoch &&
			memcmp(ns->use.family, family, KVP_NS_LEN) == 0) {
			ns_make_old(store, i);
		}
	}
	return 1;
}

bool
kvp_store_epoch_over(const struct kvp_store *store, const uint8_t ns[KVP_NS_LEN])
{
	uint32_t idx = ns_find(store, ns);

	return idx != NS_NONE && store->namespaces.list[idx].use.old;
}

bool
kvp_store_epoch_next(const struct kvp_store *store, uint32_t *cursor,
	uint8_t ret_family[KVP_NS_LEN], uint64_t *ret_epoch)
{
	const struct kvp_store_namespaces *table = &store->namespaces;

	while (*cursor < table->family_max && table->families[*cursor].stamp == 0) {
		(*cursor)++;
	}
	if (*cursor >= table->family_max) {
		return false;
	}
	memcpy(ret_family, table->families[*cursor].family, KVP_NS_LEN);
	*ret_epoch = table->families[*cursor].epoch;
	(*cursor)++;
	return true;
}

bool
kvp_namespaces_turn(struct kvp_store *store, uint64_t now_ns)
{
	struct kvp_store_namespaces *table = &store->namespaces;
	uint32_t budget = KVP_STORE_STEP_MAX;

	for (; table->clearing < table->max; table->clearing++) {
		struct kvp_store_ns *ns = &table->list[table->clearing];

		while (ns->used && ns->use.old && ns->order.count > 0) {
			if (budget-- == 0) {
				return true;
			}
			store->stats.cleared++;
			kvp_slots_evict(store, now_ns, ns->order.first); /* may free the entry */
		}
	}
	return false;
}

/* --- an offer ------------------------------------------------------------------------------------
 */

/* Notes which family and epoch a namespace is of. */
static int
ns_tag(struct kvp_store *store, uint32_t idx, const struct kvp_offer *offer)
{
	struct kvp_store_usage *use = &store->namespaces.list[idx].use;
	const struct kvp_store_family *known;

	if (offer->family == NULL || memcmp(offer->family, ns_zero, KVP_NS_LEN) == 0) {
		return 0;
	}
	if (memcmp(use->family, ns_zero, KVP_NS_LEN) == 0) {
		known = family_find(store, offer->family);
		memcpy(use->family, offer->family, KVP_NS_LEN);
		use->epoch = offer->epoch;
		if (known != NULL && offer->epoch < known->epoch) {
			ns_make_old(store, idx);
		}
		return 0;
	}
	return use->epoch == offer->epoch && memcmp(use->family, offer->family, KVP_NS_LEN) == 0
		       ? 0
		       : -EINVAL;
}

/* Room within the quota for one block more. */
static int
ns_room(struct kvp_store *store, struct kvp_store_ns *ns, const struct kvp_offer *offer)
{
	uint64_t block_len = kvp_slab_block_len(offer->len);

	for (uint32_t i = 0; i < KVP_STORE_STEP_MAX; i++) {
		if (ns->use.quota == 0 || ns->use.taken + block_len <= ns->use.quota) {
			return 0;
		}
		/* Not its last slot: the entry must stay. */
		if (!store->cfg.quota_evict || ns->order.count == 0 || block_len > ns->use.quota ||
			(ns->slots == 1 && !ns->kept)) {
			break;
		}
		store->stats.evicted++;
		kvp_slots_spill(store, ns->order.first, KVP_SPILL_EVICT);
		kvp_slots_evict(store, offer->touch.now_ns, ns->order.first);
	}
	store->stats.over_quota++;
	store->stats.no_space++;
	return -KVP_E_NO_SPACE;
}

void
kvp_namespaces_leave(struct kvp_store *store, uint32_t idx)
{
	struct kvp_store_ns *ns = &store->namespaces.list[idx];

	kvp_assert(ns->slots > 0);
	ns->slots--;
	if (ns->slots == 0 && !ns->kept) {
		ns_drop(store, idx);
	}
}

uint32_t
kvp_namespaces_rejoin(struct kvp_store *store, const uint8_t digest[KVP_NS_LEN])
{
	uint32_t idx = ns_find(store, digest);

	return idx == NS_NONE ? ns_add(store, digest) : idx;
}

int
kvp_namespaces_admit(struct kvp_store *store, const struct kvp_offer *offer, uint32_t *ret_ns)
{
	uint32_t idx = ns_find(store, offer->ns);
	struct kvp_store_ns *ns;
	int err;

	if (idx == NS_NONE) {
		idx = ns_add(store, offer->ns);
	}
	if (idx == NS_NONE) {
		store->stats.no_space++;
		return -KVP_E_NO_SPACE;
	}
	ns = &store->namespaces.list[idx];
	ns->slots++; /* so that no eviction on the way takes the entry away */
	err = ns_tag(store, idx, offer);
	if (err == 0 && ns->use.old) {
		store->stats.old_epoch++;
		err = -KVP_E_EPOCH;
	}
	err = err < 0 ? err : ns_room(store, ns, offer);
	if (err < 0) {
		kvp_namespaces_leave(store, idx);
		return err;
	}
	*ret_ns = idx;
	return 0;
}

/* --- life ----------------------------------------------------------------------------------------
 */

int
kvp_namespaces_init(struct kvp_store *store)
{
	struct kvp_store_namespaces *table = &store->namespaces;
	uint32_t buckets = 1;

	table->max = store->cfg.namespaces_max != 0 ? store->cfg.namespaces_max : NS_MAX_DEFAULT;
	table->family_max = store->cfg.families_max != 0 ? store->cfg.families_max : NS_MAX_DEFAULT;
	while (buckets < table->max) {
		buckets *= 2;
	}
	table->mask = buckets - 1;
	table->clearing = table->max;
	table->list = calloc(table->max, sizeof(*table->list));
	table->buckets = calloc(buckets, sizeof(*table->buckets));
	table->families = calloc(table->family_max, sizeof(*table->families));
	if (table->list == NULL || table->buckets == NULL || table->families == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < buckets; i++) {
		table->buckets[i] = NS_NONE;
	}
	for (uint32_t i = 0; i < table->max; i++) {
		table->list[i].next = i + 1 < table->max ? i + 1 : NS_NONE;
	}
	return 0;
}

void
kvp_namespaces_fini(struct kvp_store *store)
{
	free(store->namespaces.families);
	free(store->namespaces.buckets);
	free(store->namespaces.list);
}
