/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces_test.c - exact usage, quotas, and what a new epoch drops. */
#include "tests/unit/store/store_test.h"

#define LEN    (64 * KIB)
#define BLOCKS 16u

static const uint8_t family[KVP_NS_LEN] = "the whole family";

static void
ns_make(uint8_t ns[KVP_NS_LEN], uint32_t number)
{
	memset(ns, 0, KVP_NS_LEN);
	memcpy(ns, &number, sizeof(number));
}

/* Offers and commits; the first error. */
static int
put(struct test_store *ts, uint32_t ns_number, uint64_t number, const uint64_t *epoch)
{
	uint8_t ns[KVP_NS_LEN];
	struct kvp_key key = test_key(number);
	struct kvp_offer offer = {
		.ns = ns,
		.key = &key,
		.len = LEN - 5,
		.touch = {.now_ns = ts->now_ns},
		.family = epoch != NULL ? family : NULL,
		.epoch = epoch != NULL ? *epoch : 0,
	};
	struct kvp_grant grant;
	struct kvp_loc loc;
	int err;

	ns_make(ns, ns_number);
	err = kvp_store_offer(ts->store, &offer, &grant, &loc);
	return err < 0 ? err : test_commit(ts, 0, &grant, &loc);
}

static bool
is_there(const struct test_store *ts, uint32_t ns_number, uint64_t number)
{
	uint8_t ns[KVP_NS_LEN];
	struct kvp_key key = test_key(number);
	struct kvp_loc loc;

	ns_make(ns, ns_number);
	return kvp_store_lookup(ts->store, ns, &key, &loc) == 0;
}

static struct kvp_store_usage
usage_of(const struct test_store *ts, uint32_t ns_number)
{
	struct kvp_store_usage usage;
	uint8_t ns[KVP_NS_LEN];
	uint32_t cursor = 0;

	ns_make(ns, ns_number);
	while (kvp_store_usage_next(ts->store, &cursor, &usage)) {
		if (memcmp(usage.ns, ns, sizeof(ns)) == 0) {
			return usage;
		}
	}
	return (struct kvp_store_usage){0};
}

/* A full namespace gets NO_SPACE while another one fills the rest. */
static void
test_quota(void **state)
{
	struct test_store ts = {0};
	uint8_t ns[KVP_NS_LEN];

	(void)state;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	ns_make(ns, 1);
	assert_int_equal(kvp_store_quota_set(ts.store, ns, 4 * LEN + LEN / 2), 0);
	for (uint64_t number = 0; number < 4; number++) {
		assert_int_equal(put(&ts, 1, number, NULL), 0);
	}
	for (uint64_t number = 0; number < BLOCKS - 4; number++) {
		assert_int_equal(put(&ts, 1, 100 + number, NULL), -KVP_E_NO_SPACE);
		assert_int_equal(put(&ts, 2, number, NULL), 0);
	}
	assert_int_equal(usage_of(&ts, 1).blocks, 4);
	assert_int_equal(usage_of(&ts, 1).bytes, 4 * (LEN - 5));
	assert_int_equal(usage_of(&ts, 1).taken, 4 * LEN);
	assert_int_equal(usage_of(&ts, 1).quota, 4 * LEN + LEN / 2);
	assert_int_equal(usage_of(&ts, 2).blocks, BLOCKS - 4);
	assert_int_equal(usage_of(&ts, 2).quota, 0);
	assert_int_equal(test_stats(&ts).over_quota, BLOCKS - 4);
	assert_int_equal(test_stats(&ts).evicted, 0);
	for (uint64_t number = 0; number < 4; number++) {
		assert_true(is_there(&ts, 1, number));
	}

	/* Room comes with a smaller use, or a larger quota. */
	ns_make(ns, 1);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, ns, &(struct kvp_key){.len = 8}), 0);
	ts.now_ns += ts.cfg.quarantine_ns;
	assert_int_equal(put(&ts, 1, 200, NULL), 0);
	assert_int_equal(put(&ts, 1, 201, NULL), -KVP_E_NO_SPACE);
	assert_int_equal(kvp_store_quota_set(ts.store, ns, 0), 0);
	assert_int_equal(put(&ts, 1, 201, NULL), -KVP_E_BUSY);
	test_store_close(&ts);
}

/* With quota_evict a full namespace goes on, at the cost of its own oldest. */
static void
test_quota_evict(void **state)
{
	struct test_store ts = {0};

	(void)state;
	ts.cfg.quota = 4 * LEN;
	ts.cfg.quota_evict = true;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	for (uint64_t number = 0; number < 4; number++) {
		assert_int_equal(put(&ts, 2, number, NULL), 0);
	}
	for (uint64_t number = 0; number < 100; number++) {
		assert_int_equal(put(&ts, 1, number, NULL), 0);
		assert_true(usage_of(&ts, 1).taken <= 4 * LEN);
		ts.now_ns += ts.cfg.quarantine_ns;
	}
	assert_int_equal(usage_of(&ts, 1).blocks, 4);
	assert_true(is_there(&ts, 1, 99) && is_there(&ts, 1, 96) && !is_there(&ts, 1, 95));
	assert_int_equal(usage_of(&ts, 2).blocks, 4);
	assert_int_equal(test_stats(&ts).over_quota, 0);
	test_store_close(&ts);
}

static uint32_t spilled;

static bool
spill(void *arg, uint32_t slot, enum kvp_spill why, bool used)
{
	(void)arg;
	(void)slot;
	(void)used;
	spilled += why == KVP_SPILL_EVICT;
	return false;
}

/* Who loses a block to its quota may find it on the SSD; what is of an epoch that is over goes. */
static void
test_spill(void **state)
{
	struct test_store ts = {0};
	uint64_t one = 1;
	uint8_t ns[KVP_NS_LEN];

	(void)state;
	ts.cfg.quota = 4 * LEN;
	ts.cfg.quota_evict = true;
	ts.cfg.spill = spill;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	for (uint64_t number = 0; number < 10; number++) {
		assert_int_equal(put(&ts, 1, number, &one), 0);
		ts.now_ns += ts.cfg.quarantine_ns;
	}
	assert_int_equal(spilled, 6);
	ns_make(ns, 1);
	assert_false(kvp_store_epoch_over(ts.store, ns));
	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 2), 1);
	assert_true(kvp_store_epoch_over(ts.store, ns));
	while (kvp_store_turn(ts.store, ts.now_ns, NULL, NULL)) {
	}
	assert_int_equal(test_stats(&ts).blocks, 0);
	assert_int_equal(spilled, 6);
	assert_false(kvp_store_epoch_over(ts.store, ns)); /* nothing is left to know it by */
	test_store_close(&ts);
}

static void
test_epoch(void **state)
{
	struct test_store ts = {0};
	uint64_t one = 1;
	uint64_t two = 2;
	uint8_t seen[KVP_NS_LEN];
	uint64_t epoch;
	uint32_t cursor = 0;

	(void)state;
	test_store_open(&ts, 256 * LEN, 300, 0);
	for (uint64_t number = 0; number < 200; number++) {
		assert_int_equal(put(&ts, 1, number, &one), 0);
	}
	assert_int_equal(put(&ts, 9, 0, NULL), 0); /* of no family */
	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 1), 1);
	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 1), 0);
	assert_int_equal(test_turns(&ts, test_no_expiry, NULL), 1);
	assert_true(is_there(&ts, 1, 0));

	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 2), 1);
	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 1), -KVP_E_EPOCH);
	assert_int_equal(put(&ts, 1, 1000, &one), -KVP_E_EPOCH);
	assert_int_equal(put(&ts, 3, 0, &two), 0);
	assert_int_equal(put(&ts, 3, 1, &one), -EINVAL); /* what it says of itself changed */
	assert_int_equal(test_turns(&ts, test_no_expiry, NULL), 4); /* in steps */
	assert_int_equal(usage_of(&ts, 1).blocks, 0);
	assert_int_equal(usage_of(&ts, 1).taken, 0);
	assert_int_equal(test_stats(&ts).cleared, 200);
	assert_int_equal(test_stats(&ts).namespaces, 2);
	assert_true(is_there(&ts, 3, 0) && is_there(&ts, 9, 0));
	assert_true(kvp_store_epoch_next(ts.store, &cursor, seen, &epoch));
	assert_memory_equal(seen, family, sizeof(seen));
	assert_int_equal(epoch, 2);
	assert_false(kvp_store_epoch_next(ts.store, &cursor, seen, &epoch));

	/* A namespace first heard of after it was over. */
	assert_int_equal(put(&ts, 4, 0, &one), -KVP_E_EPOCH);
	assert_int_equal(test_stats(&ts).namespaces, 2);
	test_store_close(&ts);
}

/* What is leased goes when the lease does; what is being written is refused at commit. */
static void
test_epoch_held(void **state)
{
	struct test_store ts = {0};
	uint8_t ns[KVP_NS_LEN];
	struct kvp_key key = test_key(5);
	struct kvp_offer offer = {.ns = ns, .key = &key, .len = LEN, .family = family, .epoch = 1};
	struct kvp_grant grant;
	struct kvp_loc loc;
	uint64_t one = 1;
	uint64_t lease;

	(void)state;
	ts.cfg.leases_max = 1;
	ts.cfg.lease_blocks_max = 1;
	ts.cfg.lease_permille = 500;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	ns_make(ns, 1);
	offer.touch.now_ns = ts.now_ns;
	assert_int_equal(put(&ts, 1, 0, &one), 0);
	assert_int_equal(put(&ts, 1, 1, &one), 0);
	assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), 0);
	key = test_key(0);
	assert_int_equal(kvp_store_lookup(ts.store, ns, &key, &loc), 0);
	assert_int_equal(kvp_store_lease_open(ts.store, 0, ts.now_ns + 50 * MS, &lease), 0);
	assert_int_equal(kvp_store_lease_add(ts.store, ts.now_ns, 0, lease, loc.slot, loc.word), 0);

	assert_int_equal(kvp_store_epoch_raise(ts.store, family, 2), 1);
	test_turns(&ts, test_no_expiry, NULL);
	assert_true(is_there(&ts, 1, 0));
	assert_false(is_there(&ts, 1, 1));
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), -KVP_E_EPOCH);
	assert_int_equal(kvp_store_owner_slots(ts.store, 0), 0);
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), -KVP_E_NO_GRANT);
	ts.now_ns += 50 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_false(is_there(&ts, 1, 0));
	assert_int_equal(test_stats(&ts).namespaces, 0);
	assert_int_equal(test_stats(&ts).cleared, 2);
	test_store_close(&ts);
}

static void
test_bounds(void **state)
{
	struct test_store ts = {0};
	uint8_t ns[KVP_NS_LEN];
	uint8_t seen[KVP_NS_LEN];
	uint64_t epoch;
	uint32_t cursor = 0;
	uint32_t count = 0;

	(void)state;
	ts.cfg.namespaces_max = 3;
	ts.cfg.families_max = 3;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	ns_make(ns, 1);
	assert_int_equal(kvp_store_quota_set(ts.store, ns, LEN), 0);
	assert_int_equal(put(&ts, 2, 0, NULL), 0);
	assert_int_equal(put(&ts, 3, 0, NULL), 0);
	assert_int_equal(put(&ts, 4, 0, NULL), -KVP_E_NO_SPACE);
	ns_make(ns, 5);
	assert_int_equal(kvp_store_quota_set(ts.store, ns, LEN), -ENOSPC);
	ns_make(ns, 2);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, ns, &(struct kvp_key){.len = 8}), 0);
	assert_int_equal(put(&ts, 4, 0, NULL), 0);

	for (uint32_t i = 1; i <= 5; i++) {
		ns_make(ns, i);
		assert_int_equal(kvp_store_epoch_raise(ts.store, ns, 10), 1);
	}
	ns_make(ns, 1); /* forgotten */
	assert_int_equal(kvp_store_epoch_raise(ts.store, ns, 9), 1);
	while (kvp_store_epoch_next(ts.store, &cursor, seen, &epoch)) {
		count++;
	}
	assert_int_equal(count, 3);
	test_store_close(&ts);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_quota_evict),
		cmocka_unit_test(test_spill),
		cmocka_unit_test(test_epoch),
		cmocka_unit_test(test_epoch_held),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests_name("namespaces", tests, NULL, NULL);
}
