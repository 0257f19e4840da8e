/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - the right to keep blocks where they are: given, extended over more blocks, released,
 * run out, purged. Owned by the store's thread.
 *
 * A lease is a group of blocks with one owner and one deadline. A heap orders leases by deadline;
 * each owner has a list of its own. All memory is made at the start; what it does not suffice for
 * is refused, and so is what would hold more than lease_permille of the arena.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/store/state.h"

#include <errno.h>
#include <stdlib.h>

#define LEASE_NONE UINT32_MAX

/* --- the heap ------------------------------------------------------------------------------------
 */

static void
heap_set(struct kvp_store_leases *leases, uint32_t pos, uint32_t idx)
{
	leases->heap[pos] = idx;
	leases->leases[idx].pos = pos;
}

static void
heap_up(struct kvp_store_leases *leases, uint32_t pos, uint32_t idx)
{
	while (pos > 0) {
		uint32_t above = leases->heap[(pos - 1) / 2];

		if (leases->leases[above].until_ns <= leases->leases[idx].until_ns) {
			break;
		}
		heap_set(leases, pos, above);
		pos = (pos - 1) / 2;
	}
	heap_set(leases, pos, idx);
}

static void
heap_down(struct kvp_store_leases *leases, uint32_t pos, uint32_t idx)
{
	for (;;) {
		uint32_t child = 2 * pos + 1;

		if (child >= leases->count) {
			break;
		}
		if (child + 1 < leases->count &&
			leases->leases[leases->heap[child + 1]].until_ns <
				leases->leases[leases->heap[child]].until_ns) {
			child++;
		}
		if (leases->leases[leases->heap[child]].until_ns >= leases->leases[idx].until_ns) {
			break;
		}
		heap_set(leases, pos, leases->heap[child]);
		pos = child;
	}
	heap_set(leases, pos, idx);
}

static void
heap_remove(struct kvp_store_leases *leases, uint32_t idx)
{
	uint32_t pos = leases->leases[idx].pos;
	uint32_t last;

	kvp_assert(leases->count > 0 && leases->heap[pos] == idx);
	leases->count--;
	last = leases->heap[leases->count];
	if (last == idx) {
		return;
	}
	if (pos > 0 && leases->leases[last].until_ns <
			       leases->leases[leases->heap[(pos - 1) / 2]].until_ns) {
		heap_up(leases, pos, last);
	} else {
		heap_down(leases, pos, last);
	}
}

/* --- one lease -----------------------------------------------------------------------------------
 */

static uint64_t
lease_number(const struct kvp_store_leases *leases, uint32_t idx)
{
	return (uint64_t)leases->leases[idx].seq << 32 | idx;
}

/* The lease of that number if it is open and this owner's, or LEASE_NONE. */
static uint32_t
lease_find(const struct kvp_store *store, uint32_t owner, uint64_t number)
{
	uint32_t idx = (uint32_t)number;
	const struct kvp_store_lease *lease;

	if (idx >= store->cfg.leases_max) {
		return LEASE_NONE;
	}
	lease = &store->leases.leases[idx];
	if (!lease->open || lease->owner != owner || lease->seq != number >> 32) {
		return LEASE_NONE;
	}
	return idx;
}

static void
lease_close(struct kvp_store *store, uint64_t now_ns, uint32_t idx)
{
	struct kvp_store_leases *leases = &store->leases;
	struct kvp_store_lease *lease = &leases->leases[idx];
	uint32_t at = lease->first;

	while (at != LEASE_NONE) {
		uint32_t next = leases->blocks[at].next;

		kvp_slots_unhold(store, now_ns, leases->blocks[at].slot);
		leases->blocks[at].next = leases->block_free;
		leases->block_free = at;
		at = next;
	}
	heap_remove(leases, idx);
	if (lease->prev == LEASE_NONE) {
		leases->owned[lease->owner] = lease->next;
	} else {
		leases->leases[lease->prev].next = lease->next;
	}
	if (lease->next != LEASE_NONE) {
		leases->leases[lease->next].prev = lease->prev;
	}
	lease->open = false;
	lease->next = leases->free;
	leases->free = idx;
	store->stats.leases--;
}

int
kvp_store_lease_open(
	struct kvp_store *store, uint32_t owner, uint64_t until_ns, uint64_t *ret_lease)
{
	struct kvp_store_leases *leases = &store->leases;
	uint32_t idx = leases->free;
	struct kvp_store_lease *lease;

	kvp_assert(owner < store->cfg.owners_max);
	if (idx == LEASE_NONE || store->owners[owner].fencing) {
		store->stats.leases_refused++;
		return -KVP_E_BUSY;
	}
	lease = &leases->leases[idx];
	leases->free = lease->next;
	leases->seq += leases->seq == UINT32_MAX ? 2 : 1; /* no lease is number 0 */
	*lease = (struct kvp_store_lease){
		.until_ns = until_ns,
		.owner = owner,
		.seq = leases->seq,
		.first = LEASE_NONE,
		.prev = LEASE_NONE,
		.next = leases->owned[owner],
		.open = true,
	};
	if (lease->next != LEASE_NONE) {
		leases->leases[lease->next].prev = idx;
	}
	leases->owned[owner] = idx;
	leases->count++;
	heap_up(leases, leases->count - 1, idx);
	store->stats.leases++;
	*ret_lease = lease_number(leases, idx);
	return 0;
}

/* Would holding this block, too, be too much? */
static bool
lease_is_too_much(const struct kvp_store *store, const struct kvp_slot *slot)
{
	uint64_t max = store->cfg.arena_len / 1000 * store->cfg.lease_permille;

	if (store->leases.block_free == LEASE_NONE) {
		return true;
	}
	return slot->leases == 0 && store->stats.leased_bytes + kvp_slab_block_len(slot->len) > max;
}

int
kvp_store_lease_add(struct kvp_store *store, uint64_t now_ns, uint32_t owner, uint64_t number,
	uint32_t slot, uint64_t word)
{
	struct kvp_store_leases *leases = &store->leases;
	const struct kvp_touch touch = {.now_ns = now_ns, .parent = KVP_BLOCK_NONE};
	uint32_t idx = lease_find(store, owner, number);
	uint32_t at;

	if (idx == LEASE_NONE || leases->leases[idx].until_ns <= now_ns) {
		return -KVP_E_TIMEOUT;
	}
	if (slot >= store->cfg.slots_max || store->slots[slot].state != KVP_SLOTS_VALID ||
		store->slots[slot].word != word ||
		store->namespaces.list[store->slots[slot].ns].use.old) {
		return -KVP_E_NOKEY;
	}
	if (lease_is_too_much(store, &store->slots[slot])) {
		store->stats.leases_refused++;
		return -KVP_E_BUSY;
	}
	at = leases->block_free;
	leases->block_free = leases->blocks[at].next;
	leases->blocks[at].slot = slot;
	leases->blocks[at].next = leases->leases[idx].first;
	leases->leases[idx].first = at;
	leases->leases[idx].blocks++;
	kvp_slots_use(store, slot, &touch);
	kvp_slots_hold(store, slot);
	return 0;
}

void
kvp_store_lease_end(struct kvp_store *store, uint64_t now_ns, uint32_t owner, uint64_t number)
{
	uint32_t idx = lease_find(store, owner, number);

	if (idx != LEASE_NONE) {
		lease_close(store, now_ns, idx);
	}
}

/* --- many ----------------------------------------------------------------------------------------
 */

uint32_t
kvp_store_leases_purge(struct kvp_store *store, uint64_t now_ns, uint32_t owner)
{
	struct kvp_store_leases *leases = &store->leases;
	uint32_t count = 0;

	if (owner == KVP_STORE_OWNER_ANY) {
		for (; leases->count > 0; count++) {
			lease_close(store, now_ns, leases->heap[leases->count - 1]);
		}
		return count;
	}
	kvp_assert(owner < store->cfg.owners_max);
	for (; leases->owned[owner] != LEASE_NONE; count++) {
		lease_close(store, now_ns, leases->owned[owner]);
	}
	return count;
}

bool
kvp_store_lease_next(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_store_lease_info *ret_info)
{
	const struct kvp_store_lease *lease;

	while (*cursor < store->cfg.leases_max && !store->leases.leases[*cursor].open) {
		(*cursor)++;
	}
	if (*cursor >= store->cfg.leases_max) {
		return false;
	}
	lease = &store->leases.leases[*cursor];
	*ret_info = (struct kvp_store_lease_info){
		.lease = lease_number(&store->leases, *cursor),
		.until_ns = lease->until_ns,
		.owner = lease->owner,
		.blocks = lease->blocks,
	};
	(*cursor)++;
	return true;
}

bool
kvp_leases_turn(struct kvp_store *store, uint64_t now_ns)
{
	struct kvp_store_leases *leases = &store->leases;

	for (uint32_t i = 0; i < KVP_STORE_STEP_MAX; i++) {
		if (leases->count == 0 || leases->leases[leases->heap[0]].until_ns > now_ns) {
			return false;
		}
		store->stats.leases_expired++;
		lease_close(store, now_ns, leases->heap[0]);
	}
	return true;
}

int
kvp_leases_init(struct kvp_store *store)
{
	struct kvp_store_leases *leases = &store->leases;
	uint32_t max = store->cfg.leases_max;
	uint32_t blocks_max = max == 0 ? 0 : store->cfg.lease_blocks_max;

	leases->leases = calloc((size_t)max + 1, sizeof(*leases->leases));
	leases->heap = calloc((size_t)max + 1, sizeof(*leases->heap));
	leases->blocks = calloc((size_t)blocks_max + 1, sizeof(*leases->blocks));
	leases->owned = calloc(store->cfg.owners_max, sizeof(*leases->owned));
	if (leases->leases == NULL || leases->heap == NULL || leases->blocks == NULL ||
		leases->owned == NULL) {
		return -ENOMEM;
	}
	leases->free = max == 0 ? LEASE_NONE : 0;
	for (uint32_t i = 0; i < max; i++) {
		leases->leases[i].next = i + 1 < max ? i + 1 : LEASE_NONE;
	}
	leases->block_free = blocks_max == 0 ? LEASE_NONE : 0;
	for (uint32_t i = 0; i < blocks_max; i++) {
		leases->blocks[i].next = i + 1 < blocks_max ? i + 1 : LEASE_NONE;
	}
	for (uint32_t i = 0; i < store->cfg.owners_max; i++) {
		leases->owned[i] = LEASE_NONE;
	}
	return 0;
}

void
kvp_leases_fini(struct kvp_store *store)
{
	free(store->leases.owned);
	free(store->leases.blocks);
	free(store->leases.heap);
	free(store->leases.leases);
}
