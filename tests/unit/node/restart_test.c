/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart_test.c - a node over the memory of one that was killed: what it has, whose slots stay
 * reserved until when, and that the bytes of what it has are verified.
 */
#include "pool/node/session.h"
#include "tests/unit/node/fake.h"

#include <errno.h>

#define LEN 4096u

static uint64_t
metric(const struct fake *fake, enum kvp_node_metric which)
{
	return kvp_metric_get(&fake->metrics, which);
}

static void
test_blocks_stay(void **state)
{
	struct fake fake;
	struct fake_conn *conn;
	struct fake_offer offer;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	fake_put(fake_session(&fake), 0, 10, LEN);
	for (int again = 0; again < 2; again++) {
		fake_restart(&fake);
		fake_run_ms(&fake, 20);
		assert_int_equal(metric(&fake, KVP_NODE_BLOCKS), 10);
		assert_int_equal(metric(&fake, KVP_NODE_RECOVERED), 10);
		assert_int_equal(metric(&fake, KVP_NODE_SEQUENCE), 10); /* metas are told all */
		conn = fake_session(&fake);
		offer = fake_offer(conn, 0, 10, LEN);
		assert_int_equal(offer.existing, 10);
		fake_offer_free(&offer);
	}
	fake_close(&fake);
}

/* A writer of this host goes on; its slots are its own until the transport says otherwise. */
static void
test_writers_are_fenced(void **state)
{
	struct fake fake;
	struct fake_conn *conn;
	struct fake_offer held;
	struct fake_offer offer;
	struct fake_call *call;
	ProtobufCMessage *reply;
	int32_t status;

	(void)state;
	fake_init(&fake);
	fake.cfg.grant_ms = 60000;
	fake_open(&fake);
	(void)fake_session(&fake); /* so that the owner is not number 0 */
	conn = fake_session(&fake);
	held = fake_offer(conn, 0, 3, LEN);
	assert_int_equal(held.granted, 3);
	fake.xports[1].fence_polls = 100;
	fake_restart(&fake);
	fake_run_ms(&fake, 20);
	assert_int_equal(metric(&fake, KVP_NODE_LOST), 3);
	assert_int_equal(metric(&fake, KVP_NODE_FENCES_PENDING), 1);
	conn = fake_session(&fake);
	call = fake_commit(conn, held.grants, 1);
	reply = fake_reply(call);
	memcpy(&status, ((Kvp__CommitReply *)reply)->statuses.data, sizeof(status));
	assert_int_equal(status, -KVP_E_NO_GRANT);
	protobuf_c_message_free_unpacked(reply, NULL);
	fake_call_free(call);
	offer = fake_offer(conn, 0, 60, LEN);
	for (uint32_t i = 0; i < offer.granted; i++) {
		for (uint32_t j = 0; j < 3; j++) {
			assert_int_not_equal(offer.grants[i].off, held.grants[j].off);
		}
	}
	fake_offer_free(&offer);
	fake_run_ms(&fake, 500);
	assert_int_equal(metric(&fake, KVP_NODE_LOST), 3);
	fake_run_ms(&fake, 1000);
	assert_int_equal(metric(&fake, KVP_NODE_LOST), 0);
	assert_int_equal(metric(&fake, KVP_NODE_FENCES_PENDING), 0);
	fake_offer_free(&held);
	fake_close(&fake);
}

/* Without a transport that could tell, they stay reserved. */
static void
test_nobody_tells(void **state)
{
	struct fake fake;
	struct fake_offer held;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	held = fake_offer(fake_session(&fake), 0, 3, LEN);
	fake.cfg.transport_count = 1;
	fake_restart(&fake);
	fake_run_ms(&fake, 3000);
	assert_int_equal(metric(&fake, KVP_NODE_LOST), 3);
	fake.cfg.transport_count = 2; /* it is back */
	fake_restart(&fake);
	fake_run_ms(&fake, 20);
	assert_int_equal(metric(&fake, KVP_NODE_LOST), 0);
	fake_offer_free(&held);
	fake_close(&fake);
}

/* fake_put() gives sums that are none of the arena's bytes: as if all had changed. */
static void
test_scrub(void **state)
{
	struct fake fake;
	struct kvp_sum_state *sum = kvp_sum_new();

	(void)state;
	fake_init(&fake);
	fake.cfg.scrub_rate = 1 << 20;
	fake_open(&fake);
	memset(fake.arena, 0x5a, fake.cfg.arena_len);
	fake_put(fake_session(&fake), 0, 20, LEN);
	for (uint32_t slot = 0; slot < fake.cfg.slots_max; slot++) {
		struct kvp_slot_entry *entry = &fake.table[slot];
		struct kvp_slot_entry with = *entry;
		struct kvp_key key = {.len = kvp_entry_klen(entry)};

		if (kvp_word_state(entry->word) != KVP_SLOT_VALID) {
			continue;
		}
		memcpy(key.bytes, entry->key, sizeof(key.bytes));
		kvp_sum_begin(sum, entry->ns, &key, LEN);
		kvp_sum_update(sum, (uint8_t *)fake.arena + entry->off, LEN);
		kvp_sum_end(sum, with.sum);
		with.sum[0] ^= slot % 5 == 0; /* four of them will not fit */
		kvp_slot_publish(entry, &with);
	}
	fake_restart(&fake);
	fake_run_ms(&fake, 20);
	assert_true(metric(&fake, KVP_NODE_SCRUBBED) <= 2 * (1 << 20) / 50); /* its rate */
	fake_run_ms(&fake, 200);
	assert_int_equal(metric(&fake, KVP_NODE_SCRUBBED), 20 * LEN);
	assert_int_equal(metric(&fake, KVP_NODE_CORRUPT), 4);
	assert_int_equal(metric(&fake, KVP_NODE_BLOCKS), 16);
	kvp_sum_free(sum);
	fake_close(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_stay),
		cmocka_unit_test(test_writers_are_fenced),
		cmocka_unit_test(test_nobody_tells),
		cmocka_unit_test(test_scrub),
	};

	return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
