/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_test.h - what the store's tests share: seeded random numbers, keys, and a store over an
 * arena that nobody ever touches, so that it may be of any length.
 */
#ifndef KVP_TESTS_UNIT_STORE_STORE_TEST_H
#define KVP_TESTS_UNIT_STORE_STORE_TEST_H

#include "hal/base/err.h"
#include "pool/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB     1024ull
#define MIB     (1024ull * KIB)
#define GIB     (1024ull * MIB)
#define MS      1000000ull
#define MLA_LEN 1124352ull /* a block of 16 tokens of a DeepSeek model */

struct test_rng {
	uint64_t state;
};

/* KVP_TEST_SEED, or a fixed one; printed, so that a failure can be repeated. */
static inline struct test_rng
test_rng_open(const char *what)
{
	const char *text = getenv("KVP_TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 20250101;

	printf("%s: KVP_TEST_SEED=%" PRIu64 "\n", what, seed);
	return (struct test_rng){seed};
}

static inline uint64_t
test_rng_next(struct test_rng *rng)
{
	uint64_t z = (rng->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* 0..max-1 */
static inline uint32_t
test_rng_below(struct test_rng *rng, uint32_t max)
{
	return (uint32_t)(test_rng_next(rng) % max);
}

static const uint8_t test_ns[KVP_NS_LEN] = "namespace digest";

/* Keys of different numbers differ, in length too. */
static inline struct kvp_key
test_key(uint64_t number)
{
	struct kvp_key key = {.len = (uint8_t)(8 + number % 57)};

	memcpy(key.bytes, &number, sizeof(number));
	return key;
}

struct test_store {
	struct kvp_store *store;
	struct kvp_slot_entry *table;
	struct kvp_store_note *notes;
	struct kvp_store_cfg cfg;
	uint64_t now_ns;
};

static inline void
test_store_open(struct test_store *ts, size_t arena_len, uint32_t slots_max, uint32_t permille)
{
	ts->table = aligned_alloc(4096, (slots_max * sizeof(ts->table[0]) + 4095) / 4096 * 4096);
	assert_non_null(ts->table);
	memset(ts->table, 0, slots_max * sizeof(ts->table[0]));
	ts->notes = calloc(slots_max, sizeof(ts->notes[0]));
	assert_non_null(ts->notes);
	ts->now_ns = 1000 * MS;
	ts->cfg.arena = (void *)(uintptr_t)4096; /* never touched */
	ts->cfg.arena_len = arena_len;
	ts->cfg.table = ts->table;
	ts->cfg.notes = ts->notes;
	ts->cfg.slots_max = slots_max;
	ts->cfg.incarnation = 7;
	ts->cfg.seed = 42;
	ts->cfg.evict = kvp_evict_find("lru");
	ts->cfg.quarantine_ns = 100 * MS;
	ts->cfg.grant_ns = 1000 * MS;
	ts->cfg.owners_max = 8;
	ts->cfg.low_water_permille = permille;
	assert_int_equal(kvp_store_open(&ts->cfg, &ts->store), 0);
}

static inline void
test_store_close(struct test_store *ts)
{
	kvp_store_close(ts->store);
	free(ts->notes);
	free(ts->table);
}

/* As a process that died leaves it and the next one finds it. */
static inline struct kvp_store_recovery
test_store_restart(struct test_store *ts)
{
	struct kvp_store_recovery recovery;

	kvp_store_close(ts->store);
	ts->cfg.incarnation++;
	assert_int_equal(kvp_store_open(&ts->cfg, &ts->store), 0);
	assert_int_equal(kvp_store_recover(ts->store, ts->now_ns, &recovery), 0);
	return recovery;
}

static inline int
test_offer(struct test_store *ts, uint64_t number, uint64_t len, uint32_t owner,
	struct kvp_grant *ret_grant, struct kvp_loc *ret_loc)
{
	struct kvp_key key = test_key(number);
	struct kvp_offer offer = {
		.ns = test_ns,
		.key = &key,
		.len = len,
		.touch = {.now_ns = ts->now_ns},
		.owner = owner,
	};

	return kvp_store_offer(ts->store, &offer, ret_grant, ret_loc);
}

static inline int
test_commit(struct test_store *ts, uint32_t owner, const struct kvp_grant *grant,
	struct kvp_loc *ret_loc)
{
	static const uint8_t sum[KVP_SUM_LEN] = {1};

	return kvp_store_commit(ts->store, ts->now_ns, owner, grant, sum, ret_loc);
}

/* Offer and commit, which must both succeed. */
static inline struct kvp_loc
test_put(struct test_store *ts, uint64_t number, uint64_t len)
{
	struct kvp_grant grant;
	struct kvp_loc loc;

	assert_int_equal(test_offer(ts, number, len, 0, &grant, &loc), 0);
	assert_int_equal(test_commit(ts, 0, &grant, &loc), 0);
	return loc;
}

static inline struct kvp_store_stats
test_stats(const struct test_store *ts)
{
	struct kvp_store_stats stats;

	kvp_store_stats(ts->store, &stats);
	return stats;
}

/* Does the shared entry say this to a reader? */
static inline bool
test_matches(const struct test_store *ts, uint64_t number, const struct kvp_loc *loc)
{
	struct kvp_slot_entry copy = ts->table[loc->slot];
	struct kvp_key key = test_key(number);

	return kvp_slot_matches(&copy, test_ns, &key, loc);
}

static inline void
test_no_expiry(void *arg, uint32_t owner)
{
	(void)arg;
	fail_msg("owner %u expired", owner);
}

/* Turns until nothing is due at once; returns how often. */
static inline uint32_t
test_turns(struct test_store *ts, void (*expired)(void *arg, uint32_t owner), void *arg)
{
	uint32_t count = 1;

	while (kvp_store_turn(ts->store, ts->now_ns, expired, arg)) {
		count++;
		assert_true(count < 100000);
	}
	return count;
}

#endif /* KVP_TESTS_UNIT_STORE_STORE_TEST_H */
