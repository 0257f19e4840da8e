/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_test.c - leases over the wire: what they hold, who ends them, and what hostile clients
 * send; epochs: who is refused, what goes, what is still known after a restart; quotas; usage.
 */
#include "tests/unit/node/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const uint8_t family[KVP_NS_LEN] = "family of names.";

struct held {
	int32_t statuses[64];
	uint64_t lease;
	uint32_t lease_ms;
	size_t locs;
};

/* Packed keys first..first+count-1. */
static size_t
keys_write(uint8_t *buf, size_t cap, uint32_t first, uint32_t count)
{
	struct kvp_writer w = kvp_writer_over(buf, cap);

	for (uint32_t i = 0; i < count; i++) {
		struct kvp_key key = fake_key(first + i);

		kvp_write_key(&w, &key);
	}
	assert_false(w.failed);
	return cap - w.left;
}

static struct held
lease(struct fake_conn *conn, uint32_t first, uint32_t count, uint32_t ms, bool prefix)
{
	Kvp__Lease msg = KVP__LEASE__INIT;
	struct fake_call *call;
	Kvp__LeaseReply *reply;
	struct held held = {0};
	uint8_t keys[64 * (1 + KVP_KEY_LEN_MAX)];

	msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, keys_write(keys, sizeof(keys), first, count));
	msg.lease_ms = ms;
	msg.prefix = prefix;
	call = fake_call(conn, KVP_RPC_LEASE, &msg.base);
	reply = (Kvp__LeaseReply *)fake_reply(call);
	assert_int_equal(reply->statuses.len, count * sizeof(int32_t));
	memcpy(held.statuses, reply->statuses.data, reply->statuses.len);
	held.lease = reply->lease;
	held.lease_ms = reply->lease_ms;
	held.locs = reply->locations.len / sizeof(struct kvp_loc);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	fake_call_free(call);
	return held;
}

static void
unlease(struct fake_conn *conn, uint64_t number)
{
	Kvp__Unlease msg = KVP__UNLEASE__INIT;

	msg.leases = kvp_bytes(&number, sizeof(number));
	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &msg.base), 0);
}

static uint64_t
metric(struct fake *fake, enum kvp_node_metric which)
{
	kvp_node_metrics_set(fake->node);
	return kvp_metric_get(&fake->metrics, which);
}

/* So many blocks of 4 KiB are stored, one after the other, whatever must go for them. */
static void
press(struct fake *fake, struct fake_conn *conn, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct fake_offer offer = fake_offer(conn, first + i, 1, 4096);

		while (offer.statuses[0] == -KVP_E_BUSY) {
			fake_offer_free(&offer);
			fake_run_ms(fake, 110);
			offer = fake_offer(conn, first + i, 1, 4096);
		}
		assert_int_equal(offer.statuses[0], 0);
		fake_call_free(fake_commit(conn, offer.grants, 1));
		fake_offer_free(&offer);
	}
}

static uint32_t
existing(struct fake_conn *conn, uint32_t first, uint32_t count)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct held held = lease(conn, first + i, 1, 1, false);

		found += held.statuses[0] == 0;
		unlease(conn, held.lease);
	}
	return found;
}

static void
test_hold_and_release(void **state)
{
	struct fake fake;
	struct fake_conn *a;
	struct fake_conn *b;
	struct held held;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	a = fake_session(&fake);
	b = fake_session(&fake);
	fake_put(a, 0, 8, 4096);
	held = lease(a, 0, 12, 30000, false);
	assert_int_equal(held.locs, 8);
	assert_true(held.lease != 0);
	assert_int_equal(held.lease_ms, 30000);
	for (int i = 0; i < 12; i++) {
		assert_int_equal(held.statuses[i], i < 8 ? 0 : -KVP_E_NOKEY);
	}
	press(&fake, b, 1000, 80);
	assert_int_equal(existing(b, 0, 8), 8);
	unlease(b, held.lease); /* another session's */
	assert_int_equal(metric(&fake, KVP_NODE_LEASED_BLOCKS), 8);
	unlease(a, held.lease);
	unlease(a, held.lease);
	assert_int_equal(metric(&fake, KVP_NODE_LEASES), 0);
	press(&fake, b, 2000, 80);
	assert_int_equal(existing(b, 0, 8), 0);

	/* Prefix: nothing after the first miss; nothing at all is no lease. */
	held = lease(a, 2078, 4, 100000, true);
	assert_int_equal(held.locs, 2);
	assert_int_equal(held.lease_ms, 60000);
	held = lease(a, 1, 4, 100, true);
	assert_int_equal(held.locs, 0);
	assert_int_equal(held.lease, 0);
	assert_int_equal(metric(&fake, KVP_NODE_LEASES), 1);
	fake_close(&fake);
}

/* What a dead client held is free at once; what a live one forgot, at its deadline. */
static void
test_ends(void **state)
{
	struct fake fake;
	struct fake_conn *a;
	struct fake_conn *b;
	struct held held;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	a = fake_session(&fake);
	b = fake_session(&fake);
	fake_put(a, 0, 8, 4096);
	(void)lease(a, 0, 8, 30000, false);
	held = lease(b, 0, 2, 50, false);
	assert_int_equal(held.locs, 2);
	fake_disconnect(&fake, a);
	assert_int_equal(metric(&fake, KVP_NODE_LEASED_BLOCKS), 2);
	fake_run_ms(&fake, 70);
	assert_int_equal(metric(&fake, KVP_NODE_LEASED_BLOCKS), 0);
	assert_int_equal(metric(&fake, KVP_NODE_LEASES_EXPIRED), 1);
	unlease(b, held.lease);
	fake_close(&fake);
}

static void
test_purge(void **state)
{
	struct fake fake;
	struct fake_conn *a;
	struct fake_conn *b;
	Kvp__Leases msg = KVP__LEASES__INIT;
	struct fake_call *call;
	Kvp__LeasesReply *reply;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	a = fake_session(&fake);
	fake_put(a, 0, 8, 4096);
	(void)lease(a, 0, 8, 30000, false);
	(void)lease(a, 0, 4, 40000, false);
	b = fake_connect(&fake); /* no session */
	call = fake_call(b, KVP_RPC_LEASES, &msg.base);
	reply = (Kvp__LeasesReply *)fake_reply(call);
	assert_int_equal(reply->n_leases, 2);
	assert_int_equal(reply->leases[0]->blocks + reply->leases[1]->blocks, 12);
	assert_true(strlen(reply->leases[0]->client) > 4);
	assert_int_equal(reply->purged, 0);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	fake_call_free(call);
	msg.of_owner = true;
	msg.owner = 7; /* nobody */
	msg.purge = true;
	assert_int_equal(fake_ask(b, KVP_RPC_LEASES, &msg.base), 0);
	assert_int_equal(metric(&fake, KVP_NODE_LEASES), 2);
	msg.owner = UINT32_MAX;
	assert_int_equal(fake_ask(b, KVP_RPC_LEASES, &msg.base), -EINVAL);
	msg.of_owner = false;
	assert_int_equal(fake_ask(b, KVP_RPC_LEASES, &msg.base), 0);
	assert_int_equal(metric(&fake, KVP_NODE_LEASED_BLOCKS), 0);
	fake_close(&fake);
}

static void
test_hostile(void **state)
{
	Kvp__Lease msg = KVP__LEASE__INIT;
	Kvp__Unlease un = KVP__UNLEASE__INIT;
	Kvp__Clear clear = KVP__CLEAR__INIT;
	static const uint64_t numbers[600];
	uint8_t keys[2 * (1 + KVP_KEY_LEN_MAX)];
	struct fake fake;
	struct fake_conn *conn;
	size_t len;

	(void)state;
	fake_init(&fake);
	fake_open(&fake);
	conn = fake_connect(&fake);
	len = keys_write(keys, sizeof(keys), 1, 2);
	msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, len);
	msg.lease_ms = 10;
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), -KVP_E_NO_SESSION);
	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &un.base), -KVP_E_NO_SESSION);
	assert_int_equal(fake_ask(conn, KVP_RPC_CLEAR, &clear.base), -KVP_E_NO_SESSION);
	conn = fake_session(&fake);
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), 0);
	msg.lease_ms = 0;
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), -KVP_E_PROTO);
	msg.lease_ms = 10;
	msg.ns.len--;
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), -KVP_E_PROTO);
	msg.ns.len++;
	msg.keys.len--;
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), -KVP_E_PROTO);
	msg.keys.len = 0;
	assert_int_equal(fake_ask(conn, KVP_RPC_LEASE, &msg.base), -KVP_E_PROTO);

	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &un.base), -KVP_E_PROTO);
	un.leases = kvp_bytes(numbers, 12);
	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &un.base), -KVP_E_PROTO);
	un.leases = kvp_bytes(numbers, sizeof(numbers));
	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &un.base), -KVP_E_PROTO);
	un.leases = kvp_bytes(numbers, 512 * sizeof(numbers[0]));
	assert_int_equal(fake_ask(conn, KVP_RPC_UNLEASE, &un.base), 0);

	clear.epoch = 3;
	assert_int_equal(fake_ask(conn, KVP_RPC_CLEAR, &clear.base), -KVP_E_PROTO);
	clear.family = kvp_bytes(family, sizeof(family));
	clear.epoch = 0;
	assert_int_equal(fake_ask(conn, KVP_RPC_CLEAR, &clear.base), -KVP_E_PROTO);
	fake_close(&fake);
}

/* --- epochs --------------------------------------------------------------------------------------
 */

/* One key, as a writer of that epoch: the call's status, or the key's. */
static int
offer_at(struct fake_conn *conn, const char *ns, uint32_t number, uint64_t epoch,
	struct kvp_grant *ret_grant)
{
	Kvp__Offer msg = KVP__OFFER__INIT;
	struct kvp_offer_item item = {.len = 4096, .parent = KVP_PARENT_NONE};
	uint8_t keys[1 + KVP_KEY_LEN_MAX];
	struct fake_call *call;
	int32_t status;

	msg.ns = kvp_bytes(ns, KVP_NS_LEN);
	msg.family = kvp_bytes(family, sizeof(family));
	msg.epoch = epoch;
	msg.transport = (char *)(uintptr_t) "one";
	msg.keys = kvp_bytes(keys, keys_write(keys, sizeof(keys), number, 1));
	msg.items = kvp_bytes(&item, sizeof(item));
	call = fake_call(conn, KVP_RPC_OFFER, &msg.base);
	assert_true(call->replied);
	status = call->status;
	if (status == 0) {
		Kvp__OfferReply *reply = (Kvp__OfferReply *)fake_reply(call);

		memcpy(&status, reply->statuses.data, sizeof(status));
		if (status == 0) {
			memcpy(ret_grant, reply->grants.data, sizeof(*ret_grant));
		}
		protobuf_c_message_free_unpacked(&reply->base, NULL);
	}
	fake_call_free(call);
	return status;
}

static int
commit_one(struct fake_conn *conn, const struct kvp_grant *grant)
{
	struct fake_call *call = fake_commit(conn, grant, 1);
	Kvp__CommitReply *reply = (Kvp__CommitReply *)fake_reply(call);
	int32_t status;

	memcpy(&status, reply->statuses.data, sizeof(status));
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	fake_call_free(call);
	return status;
}

static int
clear_to(struct fake_conn *conn, uint64_t epoch)
{
	Kvp__Clear msg = KVP__CLEAR__INIT;

	msg.family = kvp_bytes(family, sizeof(family));
	msg.epoch = epoch;
	return fake_ask(conn, KVP_RPC_CLEAR, &msg.base);
}

static const char old_ns[] = "namespace of one";
static const char new_ns[] = "namespace of two";

static void
test_clear(void **state)
{
	char path[] = "/tmp/kvpool-epochs-XXXXXX";
	struct fake fake;
	struct fake_conn *conn;
	struct kvp_grant grant;
	struct kvp_grant late;
	FILE *file;

	(void)state;
	assert_true(close(mkstemp(path)) == 0);
	assert_int_equal(unlink(path), 0);
	fake_init(&fake);
	fake.cfg.epochs_path = path;
	fake_open(&fake);
	conn = fake_session(&fake);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(offer_at(conn, old_ns, i, 1, &grant), 0);
		assert_int_equal(commit_one(conn, &grant), 0);
	}
	assert_int_equal(offer_at(conn, old_ns, 100, 1, &late), 0);
	assert_int_equal(clear_to(conn, 2), 0);
	assert_int_equal(access(path, R_OK), 0); /* before the answer */
	assert_int_equal(clear_to(conn, 2), 0);
	assert_int_equal(clear_to(conn, 1), -KVP_E_EPOCH);

	/* A late writer is refused at both ends; what was there goes, and is announced. */
	assert_int_equal(offer_at(conn, old_ns, 101, 1, &grant), -KVP_E_EPOCH);
	assert_int_equal(commit_one(conn, &late), -KVP_E_EPOCH);
	fake_run_ms(&fake, 20);
	assert_int_equal(metric(&fake, KVP_NODE_BLOCKS), 0);
	assert_int_equal(metric(&fake, KVP_NODE_CLEARED), 8);
	assert_int_equal(metric(&fake, KVP_NODE_SEQUENCE), 16);
	assert_int_equal(offer_at(conn, new_ns, 0, 2, &grant), 0);

	/* A writer of a newer epoch brings the news just so. */
	assert_int_equal(commit_one(conn, &grant), 0);
	assert_int_equal(offer_at(conn, old_ns, 0, 3, &grant), 0);
	fake_run_ms(&fake, 20);
	assert_int_equal(metric(&fake, KVP_NODE_CLEARED), 9);
	fake_close(&fake);

	/* After a restart it still knows. */
	fake_init(&fake);
	fake.cfg.epochs_path = path;
	fake_open(&fake);
	conn = fake_session(&fake);
	assert_int_equal(offer_at(conn, new_ns, 0, 2, &grant), -KVP_E_EPOCH);
	fake_close(&fake);

	/* A damaged file does not keep it from starting. */
	file = fopen(path, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, 20, SEEK_SET), 0);
	assert_int_equal(fputc(0x55, file), 0x55);
	assert_int_equal(fclose(file), 0);
	fake_init(&fake);
	fake.cfg.epochs_path = path;
	fake_open(&fake);
	conn = fake_session(&fake);
	assert_int_equal(offer_at(conn, new_ns, 0, 2, &grant), 0);
	fake_close(&fake);
	assert_int_equal(unlink(path), 0);
}

/* --- quota and usage -----------------------------------------------------------------------------
 */

static void
test_quota_and_usage(void **state)
{
	struct kvp_node_quota quota = {.bytes = 8192};
	Kvp__Usage msg = KVP__USAGE__INIT;
	struct fake fake;
	struct fake_conn *conn;
	struct fake_call *call;
	struct kvp_grant grant;
	Kvp__UsageReply *reply;

	(void)state;
	fake_init(&fake);
	memcpy(quota.ns, old_ns, KVP_NS_LEN);
	fake.cfg.quotas = &quota;
	fake.cfg.quota_count = 1;
	fake_open(&fake);
	conn = fake_session(&fake);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(offer_at(conn, old_ns, i, 1, &grant), i < 2 ? 0 : -KVP_E_NO_SPACE);
	}
	fake_put(conn, 0, 5, 5000);
	conn = fake_connect(&fake);
	call = fake_call(conn, KVP_RPC_USAGE, &msg.base);
	reply = (Kvp__UsageReply *)fake_reply(call);
	assert_int_equal(reply->n_tiers, 1);
	assert_int_equal(reply->tiers[0]->tier, KVP_TIER_DRAM);
	assert_int_equal(reply->tiers[0]->blocks, 5);
	assert_int_equal(reply->tiers[0]->bytes_used, 25000);
	assert_int_equal(reply->n_namespaces, 2);
	for (size_t i = 0; i < 2; i++) {
		const Kvp__NamespaceUsage *use = reply->namespaces[i];
		bool is_old = memcmp(use->ns.data, old_ns, KVP_NS_LEN) == 0;

		assert_int_equal(use->quota, is_old ? 8192 : 0);
		assert_int_equal(use->taken, is_old ? 8192 : 5 * 8192);
		assert_int_equal(use->blocks, is_old ? 0 : 5);
		assert_int_equal(use->epoch, is_old ? 1 : 0);
	}
	assert_int_equal(metric(&fake, KVP_NODE_OVER_QUOTA), 1);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	fake_call_free(call);
	fake_close(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hold_and_release),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_purge),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_clear),
		cmocka_unit_test(test_quota_and_usage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
