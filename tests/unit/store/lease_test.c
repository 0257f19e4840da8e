/* SPDX-License-Identifier: Apache-2.0 */
/* lease_test.c - what a lease holds, how each kind of end lets it go, and what is refused. */
#include "tests/unit/store/store_test.h"

#define LEN    (64 * KIB)
#define BLOCKS 16u

/* 16 blocks, of which leases may hold half. */
static void
open_full(struct test_store *ts)
{
	ts->cfg.leases_max = 4;
	ts->cfg.lease_blocks_max = 12;
	ts->cfg.lease_permille = 510;
	test_store_open(ts, BLOCKS * LEN, 64, 0);
	for (uint64_t number = 0; number < BLOCKS; number++) {
		(void)test_put(ts, number, LEN);
	}
}

static struct kvp_loc
loc_of(const struct test_store *ts, uint64_t number)
{
	struct kvp_key key = test_key(number);
	struct kvp_loc loc;

	assert_int_equal(kvp_store_lookup(ts->store, test_ns, &key, &loc), 0);
	return loc;
}

static int
lease_add(struct test_store *ts, uint32_t owner, uint64_t lease, uint64_t number)
{
	struct kvp_loc loc = loc_of(ts, number);

	return kvp_store_lease_add(ts->store, ts->now_ns, owner, lease, loc.slot, loc.word);
}

/* A lease on the oldest blocks. */
static uint64_t
lease_oldest(struct test_store *ts, uint32_t owner, uint64_t ns, uint32_t count)
{
	uint64_t lease;

	assert_int_equal(kvp_store_lease_open(ts->store, owner, ts->now_ns + ns, &lease), 0);
	for (uint32_t number = 0; number < count; number++) {
		assert_int_equal(lease_add(ts, owner, lease, number), 0);
	}
	return lease;
}

static bool
is_there(const struct test_store *ts, uint64_t number)
{
	struct kvp_key key = test_key(number);
	struct kvp_loc loc;

	return kvp_store_lookup(ts->store, test_ns, &key, &loc) == 0;
}

/* Stores new blocks, as many as there is room made for; how many. */
static uint32_t
press(struct test_store *ts, uint64_t first, uint32_t count)
{
	uint32_t stored = 0;

	for (uint32_t i = 0; i < 4 * count && stored < count; i++) {
		struct kvp_grant grant;
		struct kvp_loc loc;

		if (test_offer(ts, first + stored, LEN, 1, &grant, &loc) == 0) {
			assert_int_equal(test_commit(ts, 1, &grant, &loc), 0);
			stored++;
		}
		ts->now_ns += ts->cfg.quarantine_ns;
	}
	return stored;
}

static void
test_holds(void **state)
{
	struct test_store ts = {0};
	struct kvp_key key = test_key(0);
	uint64_t lease;

	(void)state;
	open_full(&ts);
	lease = lease_oldest(&ts, 0, 3600 * 1000 * MS, 8);
	assert_int_equal(test_stats(&ts).leased_blocks, 8);
	assert_int_equal(press(&ts, 100, 40), 40);
	for (uint32_t number = 0; number < BLOCKS; number++) {
		assert_int_equal(is_there(&ts, number), number < 8);
	}
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), -KVP_E_BUSY);

	/* Released, twice: they go like any other. */
	kvp_store_lease_end(ts.store, ts.now_ns, 1, lease); /* another's */
	assert_int_equal(test_stats(&ts).leased_blocks, 8);
	kvp_store_lease_end(ts.store, ts.now_ns, 0, lease);
	kvp_store_lease_end(ts.store, ts.now_ns, 0, lease);
	assert_int_equal(test_stats(&ts).leased_blocks, 0);
	assert_int_equal(test_stats(&ts).leased_bytes, 0);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	assert_int_equal(press(&ts, 200, 40), 40);
	assert_false(is_there(&ts, 7));
	test_store_close(&ts);
}

/* Another size wants the space, so the policy is not asked: leases hold all the same. */
static void
test_holds_against_stretch(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	open_full(&ts);
	(void)lease_oldest(&ts, 0, 3600 * 1000 * MS, 8);
	for (uint32_t i = 0; i < 100; i++) {
		(void)test_offer(&ts, 500 + i, 3 * LEN, 1, &grant, &loc);
		ts.now_ns += ts.cfg.quarantine_ns;
		test_turns(&ts, test_no_expiry, NULL);
		kvp_store_owner_fence(ts.store, ts.now_ns, 1);
		kvp_store_owner_fenced(ts.store, ts.now_ns, 1);
	}
	for (uint32_t number = 0; number < 8; number++) {
		assert_true(is_there(&ts, number));
	}
	test_store_close(&ts);
}

static void
test_ends(void **state)
{
	struct test_store ts = {0};
	uint64_t lease;

	(void)state;
	open_full(&ts);
	lease = lease_oldest(&ts, 0, 10 * MS, 4);
	(void)lease_oldest(&ts, 0, 20 * MS, 2);
	assert_int_equal(test_stats(&ts).leased_blocks, 4);
	ts.now_ns += 10 * MS;
	assert_int_equal(lease_add(&ts, 0, lease, 5), -KVP_E_TIMEOUT);
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).leased_blocks, 2);
	assert_int_equal(test_stats(&ts).leases_expired, 1);
	ts.now_ns += 10 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).leases, 0);
	kvp_store_lease_end(ts.store, ts.now_ns, 0, lease);

	/* With its owner, at once. */
	(void)lease_oldest(&ts, 2, 1000 * MS, 4);
	(void)lease_oldest(&ts, 3, 1000 * MS, 5);
	kvp_store_owner_fence(ts.store, ts.now_ns, 3);
	assert_int_equal(test_stats(&ts).leased_blocks, 4);
	assert_int_equal(kvp_store_lease_open(ts.store, 3, ts.now_ns + MS, &lease), -KVP_E_BUSY);
	kvp_store_owner_fenced(ts.store, ts.now_ns, 3);
	assert_int_equal(kvp_store_lease_open(ts.store, 3, ts.now_ns + MS, &lease), 0);

	/* By hand. */
	assert_int_equal(kvp_store_leases_purge(ts.store, ts.now_ns, KVP_STORE_OWNER_ANY), 2);
	assert_int_equal(test_stats(&ts).leased_blocks, 0);
	test_store_close(&ts);
}

static void
test_limits(void **state)
{
	struct test_store ts = {0};
	struct kvp_store_lease_info info;
	struct kvp_loc loc;
	uint64_t lease;
	uint32_t cursor = 0;

	(void)state;
	open_full(&ts);
	lease = lease_oldest(&ts, 0, 1000 * MS, 8);
	assert_int_equal(lease_add(&ts, 0, lease, 8), -KVP_E_BUSY); /* half of the arena */
	assert_int_equal(lease_add(&ts, 0, lease, 7), 0);           /* held already */
	(void)lease_oldest(&ts, 1, 1000 * MS, 3);
	assert_int_equal(lease_add(&ts, 0, lease, 1), -KVP_E_BUSY); /* 12 in all */
	loc = loc_of(&ts, 3);
	assert_int_equal(
		kvp_store_lease_add(ts.store, ts.now_ns, 0, lease, loc.slot, 77), -KVP_E_NOKEY);
	assert_int_equal(
		kvp_store_lease_add(ts.store, ts.now_ns, 0, lease, 64, loc.word), -KVP_E_NOKEY);
	assert_int_equal(
		kvp_store_lease_add(ts.store, ts.now_ns, 0, lease + 1, 1, 1), -KVP_E_TIMEOUT);
	(void)lease_oldest(&ts, 1, 1000 * MS, 0);
	(void)lease_oldest(&ts, 1, 1000 * MS, 0);
	assert_int_equal(kvp_store_lease_open(ts.store, 2, 9, &lease), -KVP_E_BUSY);
	for (int i = 0; i < 4; i++) {
		assert_true(kvp_store_lease_next(ts.store, &cursor, &info));
		assert_true(info.lease != 0 && info.owner < 2);
	}
	assert_false(kvp_store_lease_next(ts.store, &cursor, &info));
	test_store_close(&ts);
}

/* Nothing can go: that is NO_SPACE, not BUSY for ever. */
static void
test_all_held(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	ts.cfg.leases_max = 1;
	ts.cfg.lease_blocks_max = BLOCKS;
	ts.cfg.lease_permille = 1000;
	test_store_open(&ts, BLOCKS * LEN, 64, 0);
	for (uint64_t number = 0; number < BLOCKS - 1; number++) {
		(void)test_put(&ts, number, LEN);
	}
	(void)lease_oldest(&ts, 0, 100 * MS, BLOCKS - 1);
	(void)test_put(&ts, 99, LEN);
	assert_int_equal(test_offer(&ts, 100, LEN, 1, &grant, &loc), -KVP_E_BUSY);
	ts.now_ns += ts.cfg.quarantine_ns;
	assert_int_equal(test_offer(&ts, 100, LEN, 1, &grant, &loc), 0);
	assert_int_equal(test_offer(&ts, 101, LEN, 1, &grant, &loc), -KVP_E_NO_SPACE);
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_offer(&ts, 101, LEN, 1, &grant, &loc), -KVP_E_BUSY);
	test_store_close(&ts);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holds),
		cmocka_unit_test(test_holds_against_stretch),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_all_held),
	};

	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
