/* SPDX-License-Identifier: Apache-2.0 */
/*
 * announce_test.c - the stream: joins, snapshots, heartbeats, and whom a commit waits for. A mirror
 * applies what a meta would and is compared with the store.
 */
#include "pool/node/announce.h"
#include "tests/unit/node/fake.h"

#include <stdlib.h>

/* Words by slot, as a meta has them; 0: nothing there. */
struct mirror {
	uint64_t *words;
	bool *restated;
	uint32_t slots;
	uint64_t applied;
	bool open; /* within a snapshot */
	uint32_t snapshots;
};

static const char *const one_meta[] = {"10.0.0.2:7493"};
static const char *const two_metas[] = {"10.0.0.2:7493", "10.0.0.3:7493"};

static void
mirror_record(struct mirror *mirror, struct kvp_reader *r)
{
	struct kvp_announce head;
	struct kvp_key key;

	kvp_read_announce(r, &head, &key);
	assert_false(r->failed);
	assert_true(head.slot < mirror->slots);
	if (head.word != 0) {
		assert_memory_equal(head.ns, fake_ns, KVP_NS_LEN);
	}
	if (head.kind == KVP_ANNOUNCE_STORED) {
		assert_int_equal(head.klen, 8);
		mirror->words[head.slot] = head.word;
		mirror->restated[head.slot] = true;
	} else if (head.word != 0 && mirror->words[head.slot] == head.word) {
		mirror->words[head.slot] = 0;
	}
}

/* Applies and answers the oldest announcement; false when there is none. */
static bool
mirror_step(struct mirror *mirror, struct fake_link *link)
{
	Kvp__AnnounceReply reply = KVP__ANNOUNCE_REPLY__INIT;
	ProtobufCMessage *sent;
	const Kvp__Announce *msg;
	struct kvp_reader r;

	if (link->sent_count == 0) {
		return false;
	}
	sent = fake_sent_msg(link, KVP_RPC_ANNOUNCE);
	msg = (const Kvp__Announce *)sent;
	if (msg->snapshot_begin) {
		assert_true(msg->sequence >= msg->records_count);
		mirror->open = true;
		mirror->snapshots++;
		memset(mirror->restated, 0, mirror->slots * sizeof(bool));
	} else {
		assert_int_equal(msg->sequence - msg->records_count, mirror->applied);
	}
	r = kvp_reader_over(msg->records.data, msg->records.len);
	for (uint32_t i = 0; i < msg->records_count; i++) {
		mirror_record(mirror, &r);
	}
	assert_int_equal(r.left, 0);
	mirror->applied = msg->sequence;
	if (msg->snapshot_end) {
		assert_true(mirror->open);
		mirror->open = false;
		for (uint32_t i = 0; i < mirror->slots; i++) {
			mirror->words[i] = mirror->restated[i] ? mirror->words[i] : 0;
		}
	}
	reply.sequence = mirror->applied;
	protobuf_c_message_free_unpacked(sent, NULL);
	fake_answer(link, 0, &reply.base);
	return true;
}

static void
mirror_init(struct mirror *mirror, const struct fake *fake)
{
	*mirror = (struct mirror){.slots = fake->cfg.slots_max};
	mirror->words = calloc(mirror->slots, sizeof(uint64_t));
	mirror->restated = calloc(mirror->slots, sizeof(bool));
	assert_true(mirror->words != NULL && mirror->restated != NULL);
}

/* Frees it when it says what the store says. */
static void
mirror_compare(struct mirror *mirror, const struct fake *fake)
{
	struct kvp_store_event event;
	struct kvp_key key;
	uint32_t cursor = 0;
	uint32_t blocks = 0;

	while (kvp_store_next(fake->node->store, &cursor, &event, &key)) {
		assert_int_equal(mirror->words[event.loc.slot], event.loc.word);
		blocks++;
	}
	for (uint32_t i = 0; i < mirror->slots; i++) {
		blocks -= mirror->words[i] != 0;
	}
	assert_int_equal(blocks, 0);
	free(mirror->words);
	free(mirror->restated);
}

static void
answer_join(struct fake_link *link, bool snapshot, uint64_t want_sequence)
{
	Kvp__JoinReply reply = KVP__JOIN_REPLY__INIT;
	ProtobufCMessage *sent = fake_sent_msg(link, KVP_RPC_JOIN);
	const Kvp__Join *join = (const Kvp__Join *)sent;

	assert_int_equal(join->sequence, want_sequence);
	assert_int_equal(join->node->incarnation, 3);
	assert_string_equal(join->node->address, "10.0.0.1:7490");
	assert_string_equal(join->node->local_address, "unix:/x");
	assert_int_equal(join->node->id.len, KVP_ID_LEN);
	assert_int_equal(join->node->host_id.len, KVP_ID_LEN);
	protobuf_c_message_free_unpacked(sent, NULL);
	reply.snapshot = snapshot;
	reply.heartbeat_ms = 200;
	fake_answer(link, 0, &reply.base);
}

static void
open_with(struct fake *fake, const char *const *metas, uint32_t count)
{
	fake_init(fake);
	fake->cfg.metas = metas;
	fake->cfg.meta_count = count;
	fake_open(fake);
}

static void
check_unindexed(struct fake_call *call, bool want)
{
	ProtobufCMessage *reply = fake_reply(call);

	assert_int_equal(((Kvp__CommitReply *)reply)->unindexed, want);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
}

static struct fake_call *
begin_put(struct fake_conn *conn, uint32_t key)
{
	struct fake_offer offer = fake_offer(conn, key, 1, 4096);
	struct fake_call *call;

	assert_int_equal(offer.granted, 1);
	call = fake_commit(conn, offer.grants, 1);
	fake_offer_free(&offer);
	return call;
}

/* Does not wait for metas. */
static void
commit_local(struct fake_conn *conn, const struct fake_offer *offer)
{
	Kvp__Commit msg = KVP__COMMIT__INIT;

	msg.grants = kvp_bytes(offer->grants, offer->granted * sizeof(struct kvp_grant));
	msg.local_only = true;
	assert_int_equal(fake_ask(conn, KVP_RPC_COMMIT, &msg.base), 0);
}

static void
put_local(struct fake_conn *conn, uint32_t first, uint32_t count)
{
	struct fake_offer offer = fake_offer(conn, first, count, 4096);

	assert_int_equal(offer.granted, count);
	commit_local(conn, &offer);
	fake_offer_free(&offer);
}

static void
test_stream(void **state)
{
	struct fake fake;
	struct mirror mirror;
	struct fake_link *link;
	struct fake_conn *conn;

	(void)state;
	open_with(&fake, one_meta, 1);
	mirror_init(&mirror, &fake);
	link = &fake.links[0];
	assert_string_equal(link->addr, one_meta[0]);
	conn = fake_session(&fake);
	fake_put(conn, 0, 20, 4096); /* before the meta is there */
	fake_link_up(link);
	answer_join(link, true, 0);
	while (mirror_step(&mirror, link)) {
	}
	assert_int_equal(mirror.snapshots, 1);
	assert_int_equal(mirror.applied, 20);
	/* Streaming: puts and evictions come by themselves. */
	for (uint32_t i = 1; i < 200; i++) {
		struct fake_offer offer = fake_offer(conn, 1000 + i, 1, 4096);

		if (offer.granted == 1) {
			struct fake_call *call = fake_commit(conn, offer.grants, 1);

			assert_false(call->replied);
			while (mirror_step(&mirror, link)) {
			}
			check_unindexed(call, false);
		}
		fake_offer_free(&offer);
		fake_run_ms(&fake, 17);
		while (mirror_step(&mirror, link)) {
		}
	}
	assert_int_equal(mirror.snapshots, 1);
	assert_true(kvp_metric_get(&fake.metrics, KVP_NODE_EVICTED) > 0);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_METAS_LIVE), 1);
	mirror_compare(&mirror, &fake);
	fake_close(&fake);
}

/* Changes while a long snapshot is under way, message by message. */
static void
test_snapshot_under_load(void **state)
{
	struct fake fake;
	struct mirror mirror;
	struct fake_link *link;
	struct fake_conn *conn;

	(void)state;
	fake_init(&fake);
	fake.cfg.metas = one_meta;
	fake.cfg.meta_count = 1;
	fake.cfg.slots_max = 4096;
	fake.cfg.arena_len = 4096 * 4096;
	fake.cfg.low_water_permille = 100;
	fake.cfg.quarantine_ms = 10;
	fake_open(&fake);
	mirror_init(&mirror, &fake);
	link = &fake.links[0];
	conn = fake_session(&fake);
	for (uint32_t i = 0; i < 14; i++) {
		fake_put(conn, i * 256, 256, 4096);
		fake_run_ms(&fake, 10);
	}
	fake_link_up(link);
	answer_join(link, true, 0);
	for (uint32_t i = 0; i < 300; i++) {
		struct fake_offer offer = fake_offer(conn, 100000 + i * 4, 4, 4096);

		if (offer.granted > 0) {
			commit_local(conn, &offer);
		}
		fake_offer_free(&offer);
		if (i % 3 == 0) {
			(void)mirror_step(&mirror, link);
		}
		fake_run_ms(&fake, 10);
	}
	while (mirror_step(&mirror, link)) {
	}
	assert_int_equal(mirror.snapshots, 1);
	assert_false(mirror.open);
	assert_int_equal(mirror.applied, kvp_announce_sequence(fake.node->announce));
	mirror_compare(&mirror, &fake);
	fake_close(&fake);
}

static void
test_commit_waits_for_both(void **state)
{
	struct fake fake;
	struct fake_conn *conn;
	struct fake_call *call;

	(void)state;
	open_with(&fake, two_metas, 2);
	conn = fake_session(&fake);
	check_unindexed(begin_put(conn, 1), true); /* none is live: at once */
	fake_meta_join(&fake.links[0]);
	fake_meta_join(&fake.links[1]);
	call = begin_put(conn, 2);
	assert_false(call->replied);
	assert_int_equal(fake_meta_ack(&fake.links[0]), 2);
	assert_false(call->replied);
	assert_int_equal(fake_meta_ack(&fake.links[1]), 2);
	check_unindexed(call, false);

	/* One is slow: the wait ends, and the client is told. */
	call = begin_put(conn, 3);
	assert_int_equal(fake_meta_ack(&fake.links[0]), 3);
	fake_run_ms(&fake, 90);
	assert_false(call->replied);
	fake_run_ms(&fake, 20);
	check_unindexed(call, true);
	(void)fake_meta_ack(&fake.links[1]);

	/* One dies: for two heartbeats it may still answer lookups, so it still counts. */
	call = begin_put(conn, 4);
	fake_link_down(&fake.links[1]);
	(void)fake_meta_ack(&fake.links[0]);
	assert_false(call->replied);
	fake_run_ms(&fake, 110);
	check_unindexed(call, true);
	fake_run_ms(&fake, 300);
	(void)fake_meta_ack(&fake.links[0]);
	call = begin_put(conn, 5);
	assert_false(call->replied);
	(void)fake_meta_ack(&fake.links[0]);
	check_unindexed(call, false);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_UNINDEXED), 3);
	fake_close(&fake);
}

static void
test_local_only(void **state)
{
	Kvp__Commit msg = KVP__COMMIT__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct fake_offer offer;
	struct fake_call *call;

	(void)state;
	open_with(&fake, one_meta, 1);
	conn = fake_session(&fake);
	fake_meta_join(&fake.links[0]);
	offer = fake_offer(conn, 1, 2, 4096);
	msg.grants = kvp_bytes(offer.grants, sizeof(struct kvp_grant));
	msg.local_only = true;
	call = fake_call(conn, KVP_RPC_COMMIT, &msg.base);
	check_unindexed(call, false);
	/* A wait of the client's own; the session's end cuts it short. */
	msg.grants = kvp_bytes(offer.grants + 1, sizeof(struct kvp_grant));
	msg.local_only = false;
	msg.index_wait_ms = UINT32_MAX;
	call = fake_call(conn, KVP_RPC_COMMIT, &msg.base);
	fake_offer_free(&offer);
	fake_run_ms(&fake, 500);
	assert_false(call->replied);
	fake_disconnect(&fake, conn);
	assert_int_equal(call->status, -KVP_E_NO_SESSION);
	fake_call_free(call);
	fake_close(&fake);
}

/* An idle meta hears something each heartbeat; a silent one is dropped and joined again. */
static void
test_heartbeat(void **state)
{
	struct fake fake;
	struct fake_link *link;
	struct fake_conn *conn;
	int beats = 0;

	(void)state;
	open_with(&fake, one_meta, 1);
	link = &fake.links[0];
	conn = fake_session(&fake);
	fake_meta_join(link);
	for (int i = 0; i < 200; i++) {
		fake_run_ms(&fake, 10);
		beats += link->sent_count;
		(void)fake_meta_ack(link);
	}
	assert_in_range(beats, 9, 11);
	assert_int_equal(kvp_announce_live_count(fake.node->announce), 1);
	/* Silent from now on: dropped after three heartbeats at the latest from the first one. */
	fake_run_ms(&fake, 820);
	assert_int_equal(kvp_announce_live_count(fake.node->announce), 0);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_METAS_DROPPED), 1);
	fake_run_ms(&fake, 400); /* so long it counts all the same */
	check_unindexed(begin_put(conn, 1), true);
	/* Joined again over the same link after a while; what it missed follows, no snapshot. */
	while (link->sent_count == 0 || link->sent[0].req->type != KVP_RPC_JOIN) {
		fake_run_ms(&fake, 10);
	}
	answer_join(link, false, 0);
	assert_int_equal(link->sent_count, 1);
	assert_int_equal(fake_meta_ack(link), 1);
	assert_int_equal(kvp_announce_live_count(fake.node->announce), 1);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_SNAPSHOTS), 1);
	fake_close(&fake);
}

/* Down while more changes than the ring holds went by: it cannot go on where it was. */
static void
test_ring_overrun(void **state)
{
	struct fake fake;
	struct mirror mirror;
	struct fake_link *link;
	struct fake_conn *conn;

	(void)state;
	fake_init(&fake);
	fake.cfg.metas = one_meta;
	fake.cfg.meta_count = 1;
	fake.cfg.quarantine_ms = 1;
	fake.cfg.low_water_permille = 200;
	fake_open(&fake);
	mirror_init(&mirror, &fake);
	link = &fake.links[0];
	conn = fake_session(&fake);
	fake_link_up(link);
	answer_join(link, true, 0);
	fake_run_ms(&fake, 1);
	while (mirror_step(&mirror, link)) {
	}
	/* Few changes: it goes on. */
	fake_link_down(link);
	put_local(conn, 0, 10);
	fake_link_up(link);
	answer_join(link, false, 0);
	while (mirror_step(&mirror, link)) {
	}
	assert_int_equal(mirror.snapshots, 1);
	assert_int_equal(mirror.applied, 10);
	/* Many: the node says so itself, whatever the meta believes. */
	fake_link_down(link);
	while (kvp_announce_sequence(fake.node->announce) < 1100) {
		struct fake_offer offer = fake_offer(
			conn, 1000 + (uint32_t)kvp_announce_sequence(fake.node->announce), 8, 4096);

		if (offer.granted > 0) {
			commit_local(conn, &offer);
		}
		fake_offer_free(&offer);
		fake_run_ms(&fake, 10);
	}
	fake_link_up(link);
	answer_join(link, false, 10);
	while (mirror_step(&mirror, link)) {
	}
	assert_int_equal(mirror.snapshots, 2);
	mirror_compare(&mirror, &fake);
	fake_close(&fake);
}

/* A gap that the meta sees; answers of what was sent before do not count twice. */
static void
test_resync(void **state)
{
	Kvp__AnnounceReply resync = KVP__ANNOUNCE_REPLY__INIT;
	struct fake fake;
	struct mirror mirror;
	struct fake_link *link;
	struct fake_conn *conn;
	struct fake_call *calls[3];

	(void)state;
	open_with(&fake, one_meta, 1);
	mirror_init(&mirror, &fake);
	link = &fake.links[0];
	conn = fake_session(&fake);
	fake_meta_join(link);
	for (uint32_t i = 0; i < 3; i++) {
		calls[i] = begin_put(conn, i);
	}
	assert_int_equal(link->sent_count, 3);
	resync.resync = true;
	for (int i = 0; i < 3; i++) {
		fake_answer(link, 0, &resync.base);
	}
	while (mirror_step(&mirror, link)) {
	}
	assert_int_equal(mirror.snapshots, 1);
	fake_run_ms(&fake, 150);
	for (uint32_t i = 0; i < 3; i++) {
		fake_call_free(calls[i]);
	}
	mirror_compare(&mirror, &fake);
	fake_close(&fake);
}

/* A meta that refuses, answers nonsense, claims what never was, or asks without end. */
static void
test_hostile_meta(void **state)
{
	Kvp__AnnounceReply reply = KVP__ANNOUNCE_REPLY__INIT;
	struct fake fake;
	struct fake_link *link;
	int snapshots;

	(void)state;
	open_with(&fake, one_meta, 1);
	link = &fake.links[0];
	fake_link_up(link);
	fake_answer(link, -KVP_E_IN_USE, NULL);
	fake_run_ms(&fake, 190);
	assert_int_equal(link->sent_count, 0);
	fake_run_ms(&fake, 20);
	assert_int_equal(link->sent_count, 1); /* again, one heartbeat later */
	fake_answer(link, 0, NULL);            /* an empty reply is a good one: no snapshot */
	assert_true(link->sent_count > 0);     /* but this node has told it nothing so far */
	reply.sequence = 77;
	fake_answer(link, 0, &reply.base);
	fake_run_ms(&fake, 20);
	assert_int_equal(kvp_announce_live_count(fake.node->announce), 0);
	/* Resync for every message: one snapshot a heartbeat at most. */
	reply.sequence = 0;
	reply.resync = true;
	for (int i = 0; i < 100; i++) {
		fake_run_ms(&fake, 10);
		while (link->sent_count > 0) {
			if (link->sent[0].req->type == KVP_RPC_JOIN) {
				answer_join(link, true, 0);
			} else {
				fake_answer(link, 0, &reply.base);
			}
		}
	}
	snapshots = (int)kvp_metric_get(&fake.metrics, KVP_NODE_SNAPSHOTS);
	assert_in_range(snapshots, 2, 8);
	/* Somebody else lives at that address. */
	fake_link_down(link);
	link->pub.up = true;
	link->pub.peer.kind = KVP_PEER_NODE;
	link->cfg.up(link->cfg.arg, &link->pub);
	fake_run_ms(&fake, 3000);
	assert_int_equal(link->sent_count, 0);
	fake_close(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_snapshot_under_load),
		cmocka_unit_test(test_commit_waits_for_both),
		cmocka_unit_test(test_local_only),
		cmocka_unit_test(test_heartbeat),
		cmocka_unit_test(test_ring_overrun),
		cmocka_unit_test(test_resync),
		cmocka_unit_test(test_hostile_meta),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
