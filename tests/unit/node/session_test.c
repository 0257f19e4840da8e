/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session_test.c - sessions: what opening tells, limits, and that no slot is granted again before
 * every transport has said that its old owner cannot write any more.
 */
#include "pool/node/session.h"
#include "tests/unit/node/fake.h"

#include <errno.h>

static void
test_open_tells(void **state)
{
	Kvp__SessionOpen msg = KVP__SESSION_OPEN__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct fake_call *call;
	ProtobufCMessage *reply_msg;
	const Kvp__SessionOpenReply *reply;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_connect(&fake);
	call = fake_call(conn, KVP_RPC_SESSION_OPEN, &msg.base);
	reply_msg = fake_reply(call);
	reply = (const Kvp__SessionOpenReply *)reply_msg;
	assert_int_equal(reply->token.len, KVP_TOKEN_LEN);
	assert_memory_equal(reply->token.data, fake.xports[0].tokens[0], KVP_TOKEN_LEN);
	assert_memory_equal(reply->token.data, fake.xports[1].tokens[0], KVP_TOKEN_LEN);
	assert_int_equal(reply->quarantine_ms, 100);
	assert_int_equal(reply->grant_ms, 1000);
	assert_int_equal(reply->block_len_max, KVP_BLOCK_LEN_MAX);
	assert_int_equal(reply->keys_max, KVP_RPC_KEYS_MAX);
	assert_int_equal(reply->n_transports, 2);
	assert_string_equal(reply->transports[0]->name, "one");
	assert_string_equal(reply->transports[0]->address, "addr-0");
	assert_int_equal(reply->transports[0]->host_id.len, 0);
	assert_memory_equal(reply->transports[0]->arena_read.data, "ar", 2);
	assert_memory_equal(reply->transports[0]->table_read.data, "tr", 2);
	assert_string_equal(reply->transports[1]->name, "two");
	assert_int_equal(reply->transports[1]->host_id.len, KVP_ID_LEN);
	protobuf_c_message_free_unpacked(reply_msg, NULL);
	fake_call_free(call);
	/* Not twice on one connection. */
	assert_int_equal(fake_ask(conn, KVP_RPC_SESSION_OPEN, &msg.base), -KVP_E_PROTO);
	fake_close(&fake);
	assert_int_equal(fake.xports[0].token_count, 0);
	assert_int_equal(fake.xports[1].token_count, 0);
}

static void
test_admit_fails(void **state)
{
	Kvp__SessionOpen msg = KVP__SESSION_OPEN__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct fake_call *call;
	ProtobufCMessage *reply;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	fake.xports[0].admit_err = -ENOSPC;
	conn = fake_connect(&fake);
	call = fake_call(conn, KVP_RPC_SESSION_OPEN, &msg.base);
	reply = fake_reply(call);
	assert_int_equal(((Kvp__SessionOpenReply *)reply)->n_transports, 1);
	assert_string_equal(((Kvp__SessionOpenReply *)reply)->transports[0]->name, "two");
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
	fake.xports[1].admit_err = -ENOSPC;
	conn = fake_connect(&fake);
	assert_int_equal(fake_ask(conn, KVP_RPC_SESSION_OPEN, &msg.base), -KVP_E_NO_PROVIDER);
	fake_close(&fake);
}

static void
test_limits(void **state)
{
	Kvp__SessionOpen msg = KVP__SESSION_OPEN__INIT;
	struct fake fake;
	struct fake_conn *conns[4];
	struct fake_conn *extra;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	for (int i = 0; i < 4; i++) {
		conns[i] = fake_session(&fake);
	}
	extra = fake_connect(&fake);
	assert_int_equal(fake_ask(extra, KVP_RPC_SESSION_OPEN, &msg.base), -KVP_E_BUSY);
	/* Those that wait for a fence do not keep new ones out, up to as many again. */
	fake.xports[0].fence_polls = 1000000;
	for (int i = 0; i < 4; i++) {
		fake_disconnect(&fake, conns[i]);
	}
	fake_run_ms(&fake, 50);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_SESSIONS), 0);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_FENCES_PENDING), 4);
	assert_int_equal(fake_ask(extra, KVP_RPC_SESSION_OPEN, &msg.base), 0);
	for (int i = 0; i < 3; i++) {
		(void)fake_session(&fake);
	}
	fake_disconnect(&fake, extra);
	extra = fake_connect(&fake);
	assert_int_equal(fake_ask(extra, KVP_RPC_SESSION_OPEN, &msg.base), -KVP_E_BUSY);
	fake_close(&fake);
}

/* Everything that needs a session says so before one is open, whatever is in it. */
static void
test_no_session(void **state)
{
	static const uint16_t types[] = {
		KVP_RPC_OFFER, KVP_RPC_COMMIT, KVP_RPC_RELEASE, KVP_RPC_DELETE, KVP_RPC_TOUCH};
	struct fake fake;
	struct fake_conn *conn;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_connect(&fake);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(fake_ask_bytes(conn, types[i], "x", 1), -KVP_E_NO_SESSION);
	}
	assert_int_equal(fake_ask_bytes(conn, KVP_RPC_PING, NULL, 0), 0);
	assert_int_equal(fake_ask_bytes(conn, KVP_RPC_STATUS, NULL, 0), 0);
	assert_int_equal(fake_ask_bytes(conn, KVP_RPC_LOOKUP, NULL, 0), -ENOSYS);
	assert_int_equal(fake_ask_bytes(conn, 999, NULL, 0), -ENOSYS);
	fake_close(&fake);
}

/* The arena has 64 blocks of 4 KiB; one client takes them all and goes away. */
static void
test_slots_wait_for_fence(void **state)
{
	struct fake fake;
	struct fake_conn *first;
	struct fake_conn *second;
	struct fake_offer offer;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	first = fake_session(&fake);
	second = fake_session(&fake);
	offer = fake_offer(first, 0, 64, 4096);
	assert_int_equal(offer.granted, 64);
	fake_offer_free(&offer);
	fake.xports[1].fence_polls = 10;
	fake_disconnect(&fake, first);
	assert_int_equal(fake.xports[0].token_count, 1); /* the second's */
	assert_int_equal(fake.xports[1].token_count, 2);
	for (int i = 0; i < 9; i++) {
		offer = fake_offer(second, 1000, 1, 4096);
		assert_int_equal(offer.statuses[0], -KVP_E_BUSY);
		assert_true(offer.retry_ms > 0);
		fake_offer_free(&offer);
		fake_run_ms(&fake, 10);
		assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_LOST), 64);
	}
	fake_run_ms(&fake, 20);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_LOST), 0);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_FENCES_PENDING), 0);
	offer = fake_offer(second, 1000, 1, 4096);
	assert_int_equal(offer.statuses[0], 0);
	fake_offer_free(&offer);
	fake_close(&fake);
}

/* A grant runs out: commits are refused, the connection goes, the slot waits for the fence. */
static void
test_expiry(void **state)
{
	struct fake fake;
	struct fake_conn *slow;
	struct fake_conn *other;
	struct fake_offer offer;
	struct fake_offer again;
	struct fake_call *call;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	slow = fake_session(&fake);
	other = fake_session(&fake);
	fake.xports[0].fence_polls = 3;
	offer = fake_offer(slow, 0, 64, 4096);
	assert_int_equal(offer.granted, 64);
	fake_run_ms(&fake, 990);
	assert_false(slow->closing);
	/* Just before the tick that notices. */
	fake.now_ns += 11 * KVP_NS_PER_MS;
	call = fake_commit(slow, offer.grants, 64);
	again = (struct fake_offer){0};
	{
		ProtobufCMessage *reply = fake_reply(call);
		const Kvp__CommitReply *commit = (const Kvp__CommitReply *)reply;

		for (uint32_t i = 0; i < 64; i++) {
			int32_t status;

			memcpy(&status, commit->statuses.data + i * 4, 4);
			assert_int_equal(status, -KVP_E_NO_GRANT);
		}
		assert_int_equal(commit->locations.len, 0);
		protobuf_c_message_free_unpacked(reply, NULL);
	}
	fake_call_free(call);
	fake_run_ms(&fake, 10);
	assert_true(slow->closed);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_SESSIONS_EXPIRED), 1);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_LOST), 64);
	again = fake_offer(other, 0, 1, 4096);
	assert_int_equal(again.statuses[0], -KVP_E_BUSY);
	fake_offer_free(&again);
	fake_run_ms(&fake, 40);
	again = fake_offer(other, 0, 1, 4096);
	assert_int_equal(again.statuses[0], 0);
	assert_int_not_equal(again.grants[0].word, offer.grants[0].word);
	fake_offer_free(&again);
	fake_offer_free(&offer);
	assert_false(other->closing);
	fake_close(&fake);
}

/* A client of somebody else's grants gets nowhere. */
static void
test_foreign_grants(void **state)
{
	Kvp__Release release = KVP__RELEASE__INIT;
	struct fake fake;
	struct fake_conn *owner;
	struct fake_conn *thief;
	struct fake_offer offer;
	struct fake_call *call;
	ProtobufCMessage *reply;
	int32_t status;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	owner = fake_session(&fake);
	thief = fake_session(&fake);
	offer = fake_offer(owner, 0, 1, 4096);
	release.grants = kvp_bytes(offer.grants, sizeof(struct kvp_grant));
	assert_int_equal(fake_ask(thief, KVP_RPC_RELEASE, &release.base), 0);
	call = fake_commit(thief, offer.grants, 1);
	reply = fake_reply(call);
	memcpy(&status, ((Kvp__CommitReply *)reply)->statuses.data, sizeof(status));
	assert_int_equal(status, -KVP_E_NO_GRANT);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
	call = fake_commit(owner, offer.grants, 1);
	reply = fake_reply(call);
	memcpy(&status, ((Kvp__CommitReply *)reply)->statuses.data, sizeof(status));
	assert_int_equal(status, 0);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
	fake_offer_free(&offer);
	fake_close(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_tells),
		cmocka_unit_test(test_admit_fails),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_no_session),
		cmocka_unit_test(test_slots_wait_for_fence),
		cmocka_unit_test(test_expiry),
		cmocka_unit_test(test_foreign_grants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
