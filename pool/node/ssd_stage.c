/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_stage.c - blocks on their way from the SSD into DRAM. A flight is one block: granted a slot
 * in the store under an owner number of its own, read, verified, committed like any other put.
 */
#include "hal/base/assert.h"
#include "pool/node/ssd_impl.h"

#include <errno.h>
#include <stdlib.h>

uint32_t
kvp_ssd_owner(const struct kvp_node *node)
{
	return KVP_SSD_OWNERS + node->cfg.self.incarnation % 2;
}

/* Tells all who wait. The flight is spare before, since who is told may ask again. */
static void
flight_end(struct kvp_ssd_flight *flight, int status, const struct kvp_loc *loc)
{
	struct kvp_ssd *ssd = flight->ssd;
	struct kvp_list waiters;
	struct kvp_list *pos;

	kvp_list_init(&waiters);
	while ((pos = kvp_list_pop_front(&flight->waiters)) != NULL) {
		kvp_list_push_back(&waiters, pos);
	}
	kvp_list_remove(&flight->bucket);
	kvp_list_remove(&flight->link);
	kvp_list_push_front(&ssd->flight_spare, &flight->link);
	ssd->flight_count--;
	ssd->counts.stage_miss += status == -KVP_E_NOKEY;
	while ((pos = kvp_list_pop_front(&waiters)) != NULL) {
		struct kvp_ssd_waiter *waiter = kvp_container_of(pos, struct kvp_ssd_waiter, link);

		waiter->done(waiter, status, loc);
	}
}

/* 0: what lies in the slot is the block. */
static int
flight_verify(struct kvp_ssd_flight *flight)
{
	struct kvp_ssd *ssd = flight->ssd;
	uint8_t sum[KVP_SUM_LEN];

	kvp_ssd_sum(ssd, flight->ns, &flight->key, flight->grant.off, flight->place.len, sum);
	if (memcmp(sum, flight->place.sum, sizeof(sum)) == 0) {
		return 0;
	}
	ssd->counts.bad_sums++;
	kvp_warn(ssd->node->cfg.log,
		"ssd segment %u at %llu: payload checksum is wrong, the block is dropped",
		flight->place.segment, (unsigned long long)flight->place.off);
	return -KVP_E_BADSUM;
}

static void
flight_done(struct kvp_blk_io *io)
{
	struct kvp_ssd_flight *flight = kvp_container_of(io, struct kvp_ssd_flight, io);
	struct kvp_ssd *ssd = flight->ssd;
	struct kvp_store *store = ssd->node->store;
	uint64_t now_ns = kvp_node_now(ssd->node);
	struct kvp_loc loc;
	int err = io->status;

	ssd->read_bytes -= kvp_ssd_rounded(flight->place.len);
	if (err < 0 && !ssd->closing) {
		ssd->counts.read_errors++;
		kvp_warn(ssd->node->cfg.log,
			"ssd segment %u at %llu cannot be read: %s; the block is dropped",
			flight->place.segment, (unsigned long long)flight->place.off,
			kvp_err_str(err));
	}
	err = err < 0 ? err : flight_verify(flight);
	kvp_tier_read_end(ssd->tier, flight->slot, err < 0 && !ssd->closing);
	if (err == 0) {
		err = kvp_store_commit(store, now_ns, kvp_ssd_owner(ssd->node), &flight->grant,
			flight->place.sum, &loc);
		ssd->counts.staged += err == 0;
		err = err < 0 ? -KVP_E_BUSY : 0; /* it took longer than a grant lasts */
	} else {
		err = -KVP_E_NOKEY;
	}
	if (err < 0) {
		(void)kvp_store_release(store, now_ns, kvp_ssd_owner(ssd->node), &flight->grant);
	}
	flight_end(flight, err, &loc);
}

static void
flight_count(struct kvp_ssd_counts *counts, int err)
{
	counts->offer_exists += err == -KVP_E_EXISTS;
	counts->offer_in_progress += err == -KVP_E_IN_PROGRESS;
	counts->offer_no_space += err == -KVP_E_NO_SPACE;
	counts->offer_busy += err == -KVP_E_BUSY;
}

/* Grants it a slot and posts the read. 0; -EAGAIN: later; -EBUSY: not this one, the next may do;
 * else it has ended. */
static int
flight_start(struct kvp_ssd_flight *flight, uint64_t now_ns)
{
	struct kvp_ssd *ssd = flight->ssd;
	struct kvp_offer offer = {
		.ns = flight->ns,
		.key = &flight->key,
		.touch = {.now_ns = now_ns, .parent = KVP_BLOCK_NONE},
		.owner = kvp_ssd_owner(ssd->node),
	};
	uint64_t len;
	struct kvp_loc loc;
	int err;

	if (!kvp_tier_place(ssd->tier, flight->slot, &flight->place) ||
		flight->place.word != flight->word) {
		flight_end(flight, -KVP_E_NOKEY, NULL);
		return -ENOENT;
	}
	if (!flight->place.written) {
		return -EBUSY;
	}
	len = kvp_ssd_rounded(flight->place.len);
	if (ssd->read_bytes > 0 && ssd->read_bytes + len > ssd->cfg.read_budget) {
		return -EAGAIN;
	}
	offer.len = flight->place.len;
	kvp_tier_read_begin(
		ssd->tier, flight->slot); /* the offer may evict, and that fill segments */
	err = kvp_store_offer(ssd->node->store, &offer, &flight->grant, &loc);
	if (err < 0) {
		flight_count(&ssd->counts, err);
		kvp_tier_read_end(ssd->tier, flight->slot, false);
	}
	if (err == -KVP_E_EXISTS) {
		flight_end(flight, 0, &loc);
		return err;
	}
	if (err == -KVP_E_BUSY || err == -KVP_E_IN_PROGRESS) {
		return -EBUSY;
	}
	if (err < 0) {
		flight_end(flight, err == -KVP_E_EPOCH ? -KVP_E_NOKEY : -KVP_E_BUSY, NULL);
		return err;
	}
	flight->io = (struct kvp_blk_io){
		.done = flight_done,
		.op = KVP_BLK_READ,
		.file = flight->place.segment,
		.buf = ssd->arena_buf,
		.addr = (uint8_t *)ssd->node->cfg.arena + flight->grant.off,
		.off = flight->place.off,
		.len = len,
	};
	err = kvp_ssd_post(ssd, &flight->io);
	if (err < 0) {
		kvp_tier_read_end(ssd->tier, flight->slot, false);
		(void)kvp_store_release(ssd->node->store, now_ns, offer.owner, &flight->grant);
		return -EAGAIN;
	}
	kvp_list_remove(&flight->link);
	ssd->read_bytes += len;
	return 0;
}

void
kvp_ssd_stage_pump(struct kvp_ssd *ssd)
{
	uint64_t now_ns = kvp_node_now(ssd->node);
	uint64_t waiting =
		0; /* bytes for which space is being made: each offer evicts for itself */

	kvp_list_for_each_safe (pos, &ssd->flight_queue) {
		struct kvp_ssd_flight *flight = kvp_container_of(pos, struct kvp_ssd_flight, link);
		int err;

		if (kvp_list_empty(&flight->waiters)) {
			flight_end(flight, -KVP_E_CANCELLED, NULL);
			continue;
		}
		err = flight_start(flight, now_ns);
		waiting += err == -EBUSY ? flight->place.len : 0;
		if (err == -EAGAIN || ssd->read_bytes + waiting > ssd->cfg.read_budget) {
			break;
		}
	}
	kvp_node_worked(ssd->node, now_ns);
}

void
kvp_ssd_stage_end(struct kvp_ssd *ssd)
{
	while (!kvp_list_empty(&ssd->flight_queue)) {
		flight_end(kvp_container_of(ssd->flight_queue.next, struct kvp_ssd_flight, link),
			-KVP_E_NOKEY, NULL);
	}
}

static struct kvp_ssd_flight *
flight_find(struct kvp_ssd *ssd, uint32_t slot, uint64_t word)
{
	kvp_list_for_each (pos, &ssd->flight_buckets[slot % KVP_SSD_BUCKETS]) {
		struct kvp_ssd_flight *flight =
			kvp_container_of(pos, struct kvp_ssd_flight, bucket);

		if (flight->slot == slot && flight->word == word) {
			return flight;
		}
	}
	return NULL;
}

static struct kvp_ssd_flight *
flight_new(struct kvp_ssd *ssd, uint32_t slot, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, uint64_t word)
{
	struct kvp_list *pos = kvp_list_pop_front(&ssd->flight_spare);
	struct kvp_ssd_flight *flight;

	if (pos == NULL) {
		return NULL;
	}
	flight = kvp_container_of(pos, struct kvp_ssd_flight, link);
	flight->slot = slot;
	flight->word = word;
	flight->key = *key;
	memcpy(flight->ns, ns, sizeof(flight->ns));
	kvp_list_push_back(&ssd->flight_buckets[slot % KVP_SSD_BUCKETS], &flight->bucket);
	kvp_list_push_back(&ssd->flight_queue, &flight->link);
	ssd->flight_count++;
	return flight;
}

void
kvp_ssd_stage(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	struct kvp_ssd_waiter *waiter)
{
	struct kvp_ssd_flight *flight;
	struct kvp_tier_place place;
	struct kvp_loc loc;
	uint32_t slot;

	if (kvp_store_lookup(ssd->node->store, ns, key, &loc) == 0) {
		ssd->counts.stage_dram++;
		waiter->done(waiter, 0, &loc);
		return;
	}
	slot = ssd->state == KVP_SSD_SERVING ? kvp_tier_find(ssd->tier, ns, key) : KVP_TIER_NONE;
	if (slot != KVP_TIER_NONE && kvp_store_epoch_over(ssd->node->store, ns)) {
		(void)kvp_ssd_delete(ssd, ns, key);
		slot = KVP_TIER_NONE;
	}
	if (slot == KVP_TIER_NONE || !kvp_tier_place(ssd->tier, slot, &place)) {
		ssd->counts.stage_miss++;
		waiter->done(waiter, -KVP_E_NOKEY, NULL);
		return;
	}
	flight = flight_find(ssd, slot, place.word);
	if (flight == NULL) {
		flight = flight_new(ssd, slot, ns, key, place.word);
	}
	if (flight == NULL) {
		ssd->counts.stage_busy++;
		waiter->done(waiter, -KVP_E_BUSY, NULL);
		return;
	}
	kvp_list_push_back(&flight->waiters, &waiter->link);
	kvp_ssd_kick(ssd);
}

int
kvp_ssd_stage_init(struct kvp_ssd *ssd)
{
	kvp_list_init(&ssd->flight_spare);
	kvp_list_init(&ssd->flight_queue);
	for (uint32_t i = 0; i < KVP_SSD_BUCKETS; i++) {
		kvp_list_init(&ssd->flight_buckets[i]);
	}
	ssd->flights = calloc(KVP_SSD_FLIGHTS_MAX, sizeof(*ssd->flights));
	ssd->sum = kvp_sum_new();
	if (ssd->flights == NULL || ssd->sum == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < KVP_SSD_FLIGHTS_MAX; i++) {
		struct kvp_ssd_flight *flight = &ssd->flights[i];

		flight->ssd = ssd;
		kvp_list_init(&flight->bucket);
		kvp_list_init(&flight->waiters);
		kvp_list_push_back(&ssd->flight_spare, &flight->link);
	}
	return 0;
}
