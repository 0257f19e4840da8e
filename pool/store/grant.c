/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant.c - the right to fill a slot: offered, committed, given back, run out, fenced. Owned by the
 * store's thread.
 *
 * A key with an open grant is in the index like a stored one, so a second writer sees IN_PROGRESS.
 * When the grant is lost, the key leaves the index at once and another slot may be granted for it:
 * the lost slot can only be written to by its owner, and its entry never matches again.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/store/state.h"

#include <errno.h>

/* The slot of a grant that this owner holds, WRITING or LOST, or KVP_SLOT_NONE. */
static uint32_t
grant_slot(const struct kvp_store *store, uint32_t owner, const struct kvp_grant *grant)
{
	const struct kvp_slot *slot;

	if (grant->slot >= store->cfg.slots_max) {
		return KVP_SLOT_NONE;
	}
	slot = &store->slots[grant->slot];
	if ((slot->state != KVP_SLOTS_WRITING && slot->state != KVP_SLOTS_LOST) ||
		slot->owner != owner ||
		kvp_word_with(slot->word, KVP_SLOT_WRITING) != grant->word) {
		return KVP_SLOT_NONE;
	}
	return grant->slot;
}

static int
offer_check(const struct kvp_store *store, const struct kvp_offer *offer)
{
	if (offer->len == 0 || offer->owner >= store->cfg.owners_max) {
		return -EINVAL;
	}
	if (offer->key->len == 0 || offer->key->len > KVP_KEY_LEN_MAX ||
		(offer->parent != NULL &&
			(offer->parent->len == 0 || offer->parent->len > KVP_KEY_LEN_MAX))) {
		return -KVP_E_KEY_LEN;
	}
	if (offer->len > KVP_BLOCK_LEN_MAX || offer->len > store->cfg.arena_len) {
		return -KVP_E_TOO_LARGE;
	}
	return 0;
}

/* The key is there. A writer that comes too late has just used these tokens: that is an access. */
static int
offer_known(struct kvp_store *store, const struct kvp_offer *offer, uint32_t slot,
	struct kvp_loc *ret_loc)
{
	if (store->slots[slot].state == KVP_SLOTS_WRITING) {
		store->stats.in_progress++;
		return -KVP_E_IN_PROGRESS;
	}
	kvp_assert(store->slots[slot].state == KVP_SLOTS_VALID);
	kvp_slots_use(store, slot, &offer->touch);
	store->stats.exists++;
	*ret_loc = kvp_slots_loc(store, slot);
	return -KVP_E_EXISTS;
}

static int
offer_space(struct kvp_store *store, const struct kvp_offer *offer, uint64_t *ret_off)
{
	if (store->free.count == 0) {
		return -ENOSPC;
	}
	return kvp_slab_alloc(store->slab, offer->len, ret_off);
}

static int
offer_full(struct kvp_store *store)
{
	uint64_t evictable = store->stats.blocks - store->stats.leased_blocks;

	if (evictable + store->stats.quarantined + store->stats.lost > 0) {
		store->stats.busy++;
		return -KVP_E_BUSY;
	}
	store->stats.no_space++;
	return -KVP_E_NO_SPACE;
}

int
kvp_store_offer(struct kvp_store *store, const struct kvp_offer *offer, struct kvp_grant *ret_grant,
	struct kvp_loc *ret_loc)
{
	int err = offer_check(store, offer);
	uint64_t now_ns = offer->touch.now_ns;
	uint64_t hash;
	uint64_t off;
	uint32_t slot;
	uint32_t ns;

	if (err < 0) {
		return err;
	}
	hash = kvp_index_hash(store->index, offer->ns, offer->key);
	slot = kvp_index_find(store->index, hash, offer->ns, offer->key);
	if (slot != KVP_INDEX_NONE) {
		return offer_known(store, offer, slot, ret_loc);
	}
	if (store->owners[offer->owner].fencing) {
		store->stats.busy++;
		return -KVP_E_BUSY;
	}
	err = kvp_namespaces_admit(store, offer, &ns);
	if (err < 0) {
		return err;
	}
	(void)kvp_reclaim_ripen(store, now_ns); /* the rest at the next offer or turn */
	err = offer_space(store, offer, &off);
	if (err < 0) {
		kvp_reclaim_room(store, now_ns, offer->len, hash);
		(void)kvp_reclaim_ripen(store, now_ns); /* likewise; without quarantine: now */
		err = offer_space(store, offer, &off);
	}
	if (err < 0) {
		kvp_namespaces_leave(store, ns);
		return offer_full(store);
	}
	slot = kvp_slots_grant(store, offer, off, hash, ns);
	kvp_namespaces_leave(store, ns);
	*ret_grant = (struct kvp_grant){
		.word = store->slots[slot].word,
		.off = off,
		.len = offer->len,
		.slot = slot,
	};
	return 0;
}

int
kvp_store_commit(struct kvp_store *store, uint64_t now_ns, uint32_t owner,
	const struct kvp_grant *grant, const uint8_t sum[KVP_SUM_LEN], struct kvp_loc *ret_loc)
{
	uint32_t slot = grant_slot(store, owner, grant);

	if (slot == KVP_SLOT_NONE || store->slots[slot].state == KVP_SLOTS_LOST ||
		now_ns >= store->slots[slot].due_ns) {
		store->stats.commits_refused++;
		return -KVP_E_NO_GRANT;
	}
	if (store->namespaces.list[store->slots[slot].ns].use.old) {
		/* Who commits has written all it wanted to. */
		kvp_slots_free(store, slot);
		store->stats.commits_refused++;
		store->stats.old_epoch++;
		return -KVP_E_EPOCH;
	}
	kvp_slots_commit(store, now_ns, slot, sum);
	*ret_loc = kvp_slots_loc(store, slot);
	return 0;
}

int
kvp_store_release(
	struct kvp_store *store, uint64_t now_ns, uint32_t owner, const struct kvp_grant *grant)
{
	uint32_t slot = grant_slot(store, owner, grant);

	(void)now_ns; /* a grant that ran out is given back like any other */
	if (slot == KVP_SLOT_NONE) {
		return -KVP_E_NO_GRANT;
	}
	kvp_slots_free(store, slot);
	if (store->owners[owner].lost == 0 && !store->owners[owner].fencing) {
		store->owners[owner].told = false; /* nothing left to fence for */
	}
	return 0;
}

void
kvp_store_owner_fence(struct kvp_store *store, uint64_t now_ns, uint32_t owner)
{
	uint32_t slot;

	kvp_assert(owner < store->cfg.owners_max);
	store->owners[owner].fencing = true;
	slot = store->owners[owner].slots.first;
	while (slot != KVP_SLOT_NONE) {
		if (store->slots[slot].state == KVP_SLOTS_WRITING) {
			kvp_slots_lose(store, slot);
		}
		slot = store->slots[slot].link[KVP_LINK_OWNER].next;
	}
	(void)kvp_store_leases_purge(store, now_ns, owner); /* of whom it says nothing new */
}

void
kvp_store_owner_fenced(struct kvp_store *store, uint64_t now_ns, uint32_t owner)
{
	uint32_t slot;

	(void)now_ns; /* nobody reads a slot that was never valid: no quarantine */
	kvp_assert(owner < store->cfg.owners_max);
	slot = store->owners[owner].slots.first;
	while (slot != KVP_SLOT_NONE) {
		uint32_t next = store->slots[slot].link[KVP_LINK_OWNER].next;

		if (store->slots[slot].state == KVP_SLOTS_LOST) {
			kvp_slots_free(store, slot);
		}
		slot = next;
	}
	kvp_assert(store->owners[owner].lost == 0);
	store->owners[owner].fencing = false;
	store->owners[owner].told = false;
}

uint32_t
kvp_store_owner_slots(const struct kvp_store *store, uint32_t owner)
{
	kvp_assert(owner < store->cfg.owners_max);
	return store->owners[owner].slots.count;
}

/* Grants whose time is over are LOST; true when the step was too short for all of them. */
static bool
grants_expire(struct kvp_store *store, uint64_t now_ns, void (*expired)(void *arg, uint32_t owner),
	void *arg)
{
	for (uint32_t i = 0; i < KVP_STORE_STEP_MAX; i++) {
		uint32_t slot = store->grants.first;
		uint32_t owner;

		if (slot == KVP_SLOT_NONE || store->slots[slot].due_ns > now_ns) {
			return false;
		}
		owner = store->slots[slot].owner;
		kvp_slots_lose(store, slot);
		store->stats.grants_expired++;
		if (!store->owners[owner].told) {
			store->owners[owner].told = true;
			expired(arg, owner); /* may fence it: nothing is held over this call */
		}
	}
	return true;
}

bool
kvp_store_turn(struct kvp_store *store, uint64_t now_ns, void (*expired)(void *arg, uint32_t owner),
	void *arg)
{
	bool expiring = grants_expire(store, now_ns, expired, arg);
	bool ending = kvp_leases_turn(store, now_ns);
	bool clearing = kvp_namespaces_turn(store, now_ns);
	bool reclaiming = kvp_reclaim_turn(store, now_ns);

	return expiring || ending || clearing || reclaiming;
}
