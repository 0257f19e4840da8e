/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offer_test.c - the calls of a session: offers in slices, commits, deletes, touches, and what
 * hostile clients send.
 */
#include "tests/unit/node/fake.h"

#include <errno.h>
#include <stdlib.h>

static void
test_put_exists(void **state)
{
	struct fake fake;
	struct fake_conn *a;
	struct fake_conn *b;
	struct fake_offer mine;
	struct fake_offer theirs;
	struct fake_call *call;
	ProtobufCMessage *reply;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	a = fake_session(&fake);
	b = fake_session(&fake);
	mine = fake_offer(a, 10, 3, 5000);
	assert_int_equal(mine.granted, 3);
	assert_int_equal(mine.sequence, 0);
	theirs = fake_offer(b, 10, 4, 5000);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(theirs.statuses[i], -KVP_E_IN_PROGRESS);
	}
	assert_int_equal(theirs.statuses[3], 0);
	assert_int_equal(theirs.granted, 1);
	assert_int_equal(theirs.existing, 0);
	fake_offer_free(&theirs);

	call = fake_commit(a, mine.grants, 3);
	reply = fake_reply(call);
	assert_int_equal(((Kvp__CommitReply *)reply)->locations.len, 3 * sizeof(struct kvp_loc));
	assert_true(((Kvp__CommitReply *)reply)->unindexed); /* no meta at all */
	assert_int_equal(((Kvp__CommitReply *)reply)->sequence, 3);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);

	theirs = fake_offer(b, 9, 5, 5000);
	assert_int_equal(theirs.statuses[0], 0);
	assert_int_equal(theirs.existing, 3);
	assert_int_equal(theirs.sequence, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(theirs.statuses[1 + i], -KVP_E_EXISTS);
		assert_int_equal(theirs.locs[i].slot, mine.grants[i].slot);
		assert_int_equal(
			theirs.locs[i].word, kvp_word_with(mine.grants[i].word, KVP_SLOT_VALID));
		assert_int_equal(theirs.locs[i].len, 5000);
	}
	fake_offer_free(&theirs);
	fake_offer_free(&mine);
	fake_close(&fake);
}

/* 8192 keys come in slices; a small offer in between is not held up. */
static void
test_slices(void **state)
{
	struct fake fake;
	struct fake_conn *a;
	struct fake_conn *b;
	struct fake_call *big;
	struct fake_offer offer;

	(void)state;
	fake_init(&fake);
	fake.cfg.slots_max = 16384;
	fake.cfg.arena_len = 64 << 20;
	fake_open(&fake);
	a = fake_session(&fake);
	b = fake_session(&fake);
	big = fake_offer_begin(a, 0, KVP_RPC_KEYS_MAX, 4096);
	assert_false(big->replied);
	offer = fake_offer(b, 100000, 1, 4096);
	assert_int_equal(offer.granted, 1);
	fake_offer_free(&offer);
	assert_false(big->replied);
	fake_run_ms(&fake, 0);
	offer = fake_offer_end(big, KVP_RPC_KEYS_MAX);
	assert_int_equal(offer.granted, KVP_RPC_KEYS_MAX);
	big = fake_commit(a, offer.grants, KVP_RPC_KEYS_MAX);
	assert_false(big->replied);
	fake_run_ms(&fake, 0);
	assert_true(big->replied);
	fake_call_free(big);
	fake_offer_free(&offer);
	assert_int_equal(
		kvp_metric_get(&fake.metrics, KVP_NODE_OFFERS_GRANTED), KVP_RPC_KEYS_MAX + 1);

	/* The session ends in the middle: the call is answered, nothing is left behind. */
	big = fake_offer_begin(a, 20000, KVP_RPC_KEYS_MAX, 4096);
	assert_false(big->replied);
	fake_disconnect(&fake, a);
	assert_int_equal(big->status, -KVP_E_NO_SESSION);
	fake_call_free(big);
	fake_run_ms(&fake, 20);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_GRANTED), 1);
	fake_close(&fake);
}

/* A prompt's blocks go last to first, also when they were only offered again. */
static void
test_eviction_order(void **state)
{
	struct fake fake;
	struct fake_conn *conn;
	struct fake_offer offer;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	fake_put(conn, 0, 32, 4096);
	fake_put(conn, 100, 32, 4096);
	offer = fake_offer(conn, 0, 32, 4096);
	assert_int_equal(offer.existing, 32);
	fake_offer_free(&offer);
	/* Full: one more evicts from the end of the older prompt. */
	offer = fake_offer(conn, 200, 1, 4096);
	assert_int_equal(offer.statuses[0], -KVP_E_BUSY);
	assert_true(offer.retry_ms > 0 && offer.retry_ms <= 100);
	fake_offer_free(&offer);
	offer = fake_offer(conn, 100, 31, 4096);
	assert_int_equal(offer.existing, 31);
	fake_offer_free(&offer);
	fake_run_ms(&fake, 110);
	offer = fake_offer(conn, 200, 1, 4096);
	assert_int_equal(offer.statuses[0], 0);
	fake_offer_free(&offer);
	fake_close(&fake);
}

/* A node that stood still between reading the clock and evicting must not count that time as
 * quarantine: readers of the block began theirs meanwhile. */
static void
test_held_up(void **state)
{
	Kvp__Delete delete = KVP__DELETE__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct kvp_key key = fake_key(0);
	uint8_t keys[32];
	struct kvp_writer w = kvp_writer_over(keys, sizeof(keys));
	uint64_t early_ns;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	fake_put(conn, 0, 1, 4096);
	kvp_write_key(&w, &key);
	delete.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	delete.keys = kvp_bytes(keys, sizeof(keys) - w.left);
	early_ns = fake.now_ns + 125 * KVP_NS_PER_MS; /* 100 ms would do, had nothing held it up */
	fake.look_ns = 26 * KVP_NS_PER_MS;
	assert_int_equal(fake_ask(conn, KVP_RPC_DELETE, &delete.base), 0);
	fake.look_ns = 0;
	assert_true(fake.now_ns < early_ns);
	fake_run_ms(&fake, (early_ns - fake.now_ns) / KVP_NS_PER_MS);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_QUARANTINED), 1);
	fake_run_ms(&fake, 200);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_QUARANTINED), 0);
	fake_close(&fake);
}

static void
test_delete_touch_release(void **state)
{
	Kvp__Delete delete = KVP__DELETE__INIT;
	Kvp__Touch touch = KVP__TOUCH__INIT;
	Kvp__Release release = KVP__RELEASE__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct fake_offer offer;
	struct kvp_touch_item items[3] = {0};
	uint8_t keys[32];
	struct kvp_writer w = kvp_writer_over(keys, sizeof(keys));
	struct kvp_key key;
	struct fake_call *call;
	ProtobufCMessage *reply;
	int32_t statuses[2];

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	fake_put(conn, 0, 1, 4096);
	offer = fake_offer(conn, 0, 2, 4096);
	items[0].slot = offer.locs[0].slot;
	items[0].word = offer.locs[0].word;
	items[1].slot = offer.locs[0].slot;
	items[1].word = offer.locs[0].word + 16;
	items[2].slot = UINT32_MAX;
	touch.touches = kvp_bytes(items, sizeof(items));
	assert_int_equal(fake_ask(conn, KVP_RPC_TOUCH, &touch.base), 0);
	release.grants = kvp_bytes(offer.grants, sizeof(struct kvp_grant));
	assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), 0);
	assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), 0);
	fake_offer_free(&offer);

	for (uint32_t i = 0; i < 2; i++) {
		key = fake_key(i);
		kvp_write_key(&w, &key);
	}
	delete.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	delete.keys = kvp_bytes(keys, sizeof(keys) - w.left);
	call = fake_call(conn, KVP_RPC_DELETE, &delete.base);
	reply = fake_reply(call);
	assert_int_equal(((Kvp__DeleteReply *)reply)->statuses.len, sizeof(statuses));
	memcpy(statuses, ((Kvp__DeleteReply *)reply)->statuses.data, sizeof(statuses));
	assert_int_equal(statuses[0], 0);
	assert_int_equal(statuses[1], -KVP_E_NOKEY);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
	fake_run_ms(&fake, 20);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_TOUCHES), 1);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_RELEASED), 1);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_DELETED), 1);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_BLOCKS), 0);
	fake_close(&fake);
}

/* One good message; each row of the test spoils something of it. */
struct parts {
	Kvp__Offer msg;
	uint8_t keys[2 * 65];
	struct kvp_offer_item items[2];
};

static void
parts_init(struct parts *parts)
{
	struct kvp_writer w = kvp_writer_over(parts->keys, sizeof(parts->keys));

	memset(parts->items, 0, sizeof(parts->items));
	kvp__offer__init(&parts->msg);
	for (uint32_t i = 0; i < 2; i++) {
		struct kvp_key key = fake_key(i);

		kvp_write_key(&w, &key);
		parts->items[i].len = 100;
		parts->items[i].parent = KVP_PARENT_NONE;
	}
	parts->msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	parts->msg.transport = (char *)(uintptr_t) "one";
	parts->msg.keys = kvp_bytes(parts->keys, sizeof(parts->keys) - w.left);
	parts->msg.items = kvp_bytes(parts->items, sizeof(parts->items));
}

static void
test_hostile_offer(void **state)
{
	static const uint8_t long_key[66] = {65};
	static const uint8_t two_keys[4] = {1, 'a', 1, 'b'};
	struct fake fake;
	struct fake_conn *conn;
	struct parts parts;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	for (int row = 0;; row++) {
		int want = -KVP_E_PROTO;

		parts_init(&parts);
		switch (row) {
		case 0:
			parts.msg.ns.len = 15;
			break;
		case 1:
			parts.msg.keys.len = 0;
			break;
		case 2:
			parts.msg.keys.len--;
			break;
		case 3:
			parts.keys[0] = 0;
			break;
		case 4:
			parts.keys[0] = 255;
			break;
		case 5:
			parts.msg.items.len--;
			break;
		case 6:
			parts.msg.items.len /= 2;
			break;
		case 7:
			parts.msg.items.len = 0;
			break;
		case 8:
			parts.msg.parent = kvp_bytes(long_key, sizeof(long_key));
			break;
		case 9:
			parts.msg.parent = kvp_bytes(two_keys, sizeof(two_keys));
			break;
		case 10:
			parts.msg.transport = (char *)(uintptr_t) "three";
			want = -KVP_E_NO_PROVIDER;
			break;
		case 11:
			parts.msg.transport = (char *)(uintptr_t) "";
			want = -KVP_E_NO_PROVIDER;
			break;
		default:
			fake_close(&fake);
			return;
		}
		assert_int_equal(fake_ask(conn, KVP_RPC_OFFER, &parts.msg.base), want);
	}
}

/* One bad item costs only itself. */
static void
test_bad_items(void **state)
{
	static const struct {
		uint64_t len;
		int32_t parent;
		uint32_t flags;
		int want;
	} rows[] = {
		{0, KVP_PARENT_NONE, 0, -EINVAL},
		{UINT64_MAX, KVP_PARENT_NONE, 0, -KVP_E_TOO_LARGE},
		{KVP_BLOCK_LEN_MAX + 1ull, KVP_PARENT_NONE, 0, -KVP_E_TOO_LARGE},
		{KVP_BLOCK_LEN_MAX, KVP_PARENT_NONE, 0, -KVP_E_TOO_LARGE}, /* than the arena */
		{100, 0, 0, -EINVAL}, {100, 2, 0, -EINVAL}, {100, INT32_MAX, 0, -EINVAL},
		{100, INT32_MIN, 0, -EINVAL},
		{100, KVP_PARENT_KEY, 0, -EINVAL}, /* the message has none */
		{100, KVP_PARENT_NONE, 1, -EINVAL},
		{100, 1, 0, 0}, /* a parent may stand behind its child */
	};
	struct fake fake;
	struct fake_conn *conn;
	struct parts parts;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fake_offer offer;

		conn = fake_session(&fake);
		parts_init(&parts);
		parts.items[0].len = rows[i].len;
		parts.items[0].parent = rows[i].parent;
		parts.items[0].flags = rows[i].flags;
		offer = fake_offer_end(fake_call(conn, KVP_RPC_OFFER, &parts.msg.base), 2);
		assert_int_equal(offer.statuses[0], rows[i].want);
		assert_int_equal(offer.statuses[1], 0);
		fake_offer_free(&offer);
		fake_disconnect(&fake, conn);
	}
	fake_close(&fake);
}

static void
test_too_many_keys(void **state)
{
	enum { COUNT = KVP_RPC_KEYS_MAX + 1 };
	Kvp__Offer offer = KVP__OFFER__INIT;
	Kvp__Commit commit = KVP__COMMIT__INIT;
	Kvp__Release release = KVP__RELEASE__INIT;
	Kvp__Delete delete = KVP__DELETE__INIT;
	Kvp__Touch touch = KVP__TOUCH__INIT;
	uint8_t *bytes = calloc(COUNT, 32);
	uint8_t *keys = malloc(2 * COUNT);
	struct fake fake;
	struct fake_conn *conn;

	(void)state;
	assert_true(bytes != NULL && keys != NULL);
	memset(keys, 1, 2 * COUNT); /* keys of one byte 1 */
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	offer.ns = delete.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	offer.transport = (char *)(uintptr_t) "one";
	offer.keys = delete.keys = kvp_bytes(keys, 2 * COUNT);
	offer.items = kvp_bytes(bytes, COUNT * sizeof(struct kvp_offer_item));
	commit.grants = release.grants = touch.touches = kvp_bytes(bytes, COUNT * 32);
	commit.sums = kvp_bytes(bytes, COUNT * KVP_SUM_LEN);
	assert_int_equal(fake_ask(conn, KVP_RPC_OFFER, &offer.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_COMMIT, &commit.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_DELETE, &delete.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_TOUCH, &touch.base), -KVP_E_PROTO);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_REJECT_MALFORMED), 5);

	/* Empty, and of a broken length. */
	commit.grants.len = release.grants.len = touch.touches.len = 0;
	delete.keys.len = 0;
	commit.sums.len = 0;
	assert_int_equal(fake_ask(conn, KVP_RPC_COMMIT, &commit.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_DELETE, &delete.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_TOUCH, &touch.base), -KVP_E_PROTO);
	commit.grants.len = release.grants.len = touch.touches.len = 63;
	delete.keys.len = 3;
	assert_int_equal(fake_ask(conn, KVP_RPC_COMMIT, &commit.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_DELETE, &delete.base), -KVP_E_PROTO);
	assert_int_equal(fake_ask(conn, KVP_RPC_TOUCH, &touch.base), -KVP_E_PROTO);
	commit.grants.len = 64;
	commit.sums.len = 16;
	assert_int_equal(fake_ask(conn, KVP_RPC_COMMIT, &commit.base), -KVP_E_PROTO);
	free(bytes);
	free(keys);
	fake_close(&fake);
}

/* Grants that never were: by status, and the node stands. */
static void
test_made_up_grants(void **state)
{
	struct fake fake;
	struct fake_conn *conn;
	struct kvp_grant grants[200];

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	fake_put(conn, 0, 8, 4096);
	for (int round = 0; round < 20; round++) {
		Kvp__Release release = KVP__RELEASE__INIT;
		struct fake_call *call;
		ProtobufCMessage *reply;

		fake.env.random(&fake.env, grants, sizeof(grants));
		for (int i = 0; i < 200; i++) {
			grants[i].slot = i % 2 == 0 ? (uint32_t)i % 70 : grants[i].slot;
		}
		call = fake_commit(conn, grants, 200);
		reply = fake_reply(call);
		assert_int_equal(((Kvp__CommitReply *)reply)->locations.len, 0);
		assert_false(((Kvp__CommitReply *)reply)->unindexed);
		protobuf_c_message_free_unpacked(reply, NULL);
		fake_call_free(call);
		release.grants = kvp_bytes(grants, sizeof(grants));
		assert_int_equal(fake_ask(conn, KVP_RPC_RELEASE, &release.base), 0);
	}
	fake_run_ms(&fake, 20);
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_BLOCKS), 8);
	fake_close(&fake);
}

/* Every prefix of good messages, and bytes at random. */
static void
test_random_bytes(void **state)
{
	static const uint16_t types[] = {KVP_RPC_SESSION_OPEN, KVP_RPC_OFFER, KVP_RPC_COMMIT,
		KVP_RPC_RELEASE, KVP_RPC_DELETE, KVP_RPC_TOUCH, KVP_RPC_STATUS, KVP_RPC_PING,
		KVP_RPC_LEASE, KVP_RPC_UNLEASE, KVP_RPC_CLEAR, KVP_RPC_USAGE, KVP_RPC_LEASES};
	struct fake fake;
	struct fake_conn *conn;
	struct parts parts;
	uint8_t *body;
	size_t len;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	parts_init(&parts);
	assert_int_equal(kvp_msg_encode(&parts.msg.base, &body, &len), 0);
	for (size_t type = 0; type < sizeof(types) / sizeof(types[0]); type++) {
		for (size_t cut = 0; cut <= len; cut++) {
			(void)fake_ask_bytes(conn, types[type], body, cut);
		}
		for (int round = 0; round < 500; round++) {
			uint8_t noise[64];
			size_t at;

			fake.env.random(&fake.env, noise, sizeof(noise));
			(void)fake_ask_bytes(conn, types[type], noise, noise[0] % sizeof(noise));
			at = noise[1] % len;
			body[at] ^= noise[2];
			(void)fake_ask_bytes(conn, types[type], body, len);
			body[at] ^= noise[2];
		}
	}
	free(body);
	fake_close(&fake);
}

/* Calls that are not answered are bounded. */
static void
test_backlog(void **state)
{
	static struct fake_call *calls[KVP_SESSION_WORKS_MAX + 1];
	struct fake fake;
	struct fake_conn *conn;
	uint32_t made = 0;
	bool refused = false;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_session(&fake);
	while (!refused && made <= KVP_SESSION_WORKS_MAX) {
		struct fake_call *call = fake_offer_begin(conn, 0, KVP_RPC_KEYS_MAX, 4096);

		refused = call->replied;
		if (refused) {
			assert_int_equal(call->status, -KVP_E_BUSY);
			fake_call_free(call);
		} else {
			calls[made++] = call;
		}
	}
	assert_true(refused && made > 16);
	fake_run_ms(&fake, 0);
	for (uint32_t i = 0; i < made; i++) {
		assert_true(calls[i]->replied);
		fake_call_free(calls[i]);
	}
	assert_int_equal(kvp_metric_get(&fake.metrics, KVP_NODE_REJECT_BUSY), 1);
	fake_close(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_exists),
		cmocka_unit_test(test_slices),
		cmocka_unit_test(test_eviction_order),
		cmocka_unit_test(test_held_up),
		cmocka_unit_test(test_delete_touch_release),
		cmocka_unit_test(test_hostile_offer),
		cmocka_unit_test(test_bad_items),
		cmocka_unit_test(test_too_many_keys),
		cmocka_unit_test(test_made_up_grants),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_backlog),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
