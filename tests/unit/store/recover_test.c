/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover_test.c - tables made by hand, each with one kind of damage: what it costs, and that it
 * costs nothing else. What random operations leave is in store_random_test.c.
 */
#include "tests/unit/store/store_test.h"

#include <time.h>

#define BLOCKS 8u
#define LEN    (64 * KIB)
#define MANY   100000u

#define DAMAGE_SLOTS 128u

static void
open_filled(struct test_store *ts)
{
	test_store_open(ts, 16 * LEN, 64, 0);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		(void)test_put(ts, i, LEN);
	}
}

/* How many of the first BLOCKS numbers are there, each as its entry says. */
static uint32_t
count_there(const struct test_store *ts)
{
	uint32_t count = 0;

	for (uint64_t i = 0; i < BLOCKS; i++) {
		struct kvp_key key = test_key(i);
		struct kvp_loc loc;

		if (kvp_store_lookup(ts->store, test_ns, &key, &loc) == 0) {
			assert_true(test_matches(ts, i, &loc));
			count++;
		}
	}
	return count;
}

/* The sum of what was dropped. */
static uint32_t
count_dropped(const struct kvp_store_recovery *r)
{
	return r->half + r->torn + r->misplaced + r->doubles;
}

static void
seal(struct kvp_slot_entry *entry)
{
	entry->check = kvp_slot_check(entry);
}

static void
test_undamaged(void **state)
{
	struct test_store ts = {0};
	struct kvp_store_recovery r;
	struct kvp_loc before[BLOCKS];
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 16 * LEN, 64, 0);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		before[i] = test_put(&ts, i, LEN - i);
	}
	for (int again = 0; again < 3; again++) {
		r = test_store_restart(&ts);
		assert_int_equal(r.kept, BLOCKS);
		assert_int_equal(count_dropped(&r), 0);
		assert_int_equal(test_stats(&ts).recovered, BLOCKS);
		assert_int_equal(test_stats(&ts).bytes_free, 8 * LEN);
		for (uint64_t i = 0; i < BLOCKS; i++) {
			struct kvp_key key = test_key(i);

			assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &loc), 0);
			assert_memory_equal(&loc, &before[i], sizeof(loc));
		}
	}
	loc = test_put(&ts, 100, LEN);
	assert_true(loc.word >> 4 > before[BLOCKS - 1].word >> 4); /* no generation comes again */
	test_store_close(&ts);
}

/* Each field of an entry, one bit: that block goes and no other. */
static void
test_flips(void **state)
{
	(void)state;
	for (uint32_t bit = 0; bit < 8 * sizeof(struct kvp_slot_entry); bit += 5) {
		struct test_store ts = {0};
		struct kvp_store_recovery r;
		uint8_t *bytes;

		open_filled(&ts);
		bytes = (uint8_t *)&ts.table[3];
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		r = test_store_restart(&ts);
		assert_int_equal(r.kept, BLOCKS - 1);
		assert_int_equal(count_there(&ts), BLOCKS - 1);
		assert_true(count_dropped(&r) <= 1); /* a bit of the state may say free */
		r = test_store_restart(&ts);
		assert_int_equal(count_dropped(&r), 0); /* it is said once */
		(void)test_put(&ts, 3, LEN);
		assert_int_equal(count_there(&ts), BLOCKS);
		test_store_close(&ts);
	}
}

/* Entries that are whole and cannot be. */
static void
test_places(void **state)
{
	static const struct {
		uint64_t off;
		uint64_t len;
	} rows[] = {
		{4 * LEN + 1, LEN},           /* not aligned */
		{16 * LEN, LEN},              /* outside */
		{16 * LEN - 4096, LEN},       /* partly */
		{UINT64_MAX & ~4095ull, LEN}, /* far */
		{2 * LEN, LEN},               /* another's */
		{2 * LEN + 4096, 8192},       /* within another's */
		{10 * LEN, 0}, {10 * LEN, KVP_BLOCK_LEN_MAX + 1ull},
		{10 * LEN, 17 * LEN}, /* longer than the arena */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct test_store ts = {0};
		struct kvp_store_recovery r;
		struct kvp_slot_entry *entry;

		open_filled(&ts);
		entry = &ts.table[3];
		entry->off = rows[i].off;
		entry->len_klen = rows[i].len | (uint64_t)kvp_entry_klen(entry) << 56;
		seal(entry);
		r = test_store_restart(&ts);
		assert_int_equal(r.kept, BLOCKS - 1);
		assert_int_equal(r.torn + r.misplaced, 1);
		assert_int_equal(count_dropped(&r), 1);
		assert_int_equal(test_stats(&ts).bytes_free, 9 * LEN);
		(void)test_put(&ts, 3, LEN);
		assert_int_equal(count_there(&ts), BLOCKS);
		test_store_close(&ts);
	}
}

static void
test_copies(void **state)
{
	struct test_store ts = {0};
	struct kvp_store_recovery r;

	(void)state;
	open_filled(&ts);
	ts.table[20] = ts.table[2]; /* the same place, the same key */
	ts.table[21] = ts.table[5]; /* the same key at a place of its own */
	ts.table[21].off = 12 * LEN;
	seal(&ts.table[21]);
	r = test_store_restart(&ts);
	assert_int_equal(r.kept, BLOCKS);
	assert_int_equal(r.doubles, 2);
	assert_int_equal(count_there(&ts), BLOCKS);
	test_store_close(&ts);
}

/* A table of anything: no block, no harm. */
static void
test_garbage(void **state)
{
	struct test_store ts = {0};
	struct test_rng rng = test_rng_open("recover garbage");
	struct kvp_store_recovery r;
	uint64_t *words;

	(void)state;
	test_store_open(&ts, 16 * LEN, 64, 0);
	words = (uint64_t *)ts.table;
	for (size_t i = 0; i < 64 * sizeof(struct kvp_slot_entry) / 8; i++) {
		words[i] = test_rng_next(&rng);
	}
	memset(ts.notes, 0x5a, 64 * sizeof(ts.notes[0]));
	r = test_store_restart(&ts);
	assert_int_equal(r.kept + r.lost + r.quarantined, 0);
	assert_int_equal(test_stats(&ts).bytes_free, 16 * LEN);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		(void)test_put(&ts, i, LEN);
	}
	test_store_close(&ts);
}

/* Any bytes of some entries and notes are changed: the other blocks are there, as they were. */
static void
test_random_damage(void **state)
{
	static const uint64_t lens[] = {100, 4096, 20000, LEN, 100000, 300000, MLA_LEN};
	struct test_store ts = {0};
	struct test_rng rng = test_rng_open("recover damage");
	struct kvp_slot_entry table[DAMAGE_SLOTS];
	struct kvp_loc before[DAMAGE_SLOTS];
	uint32_t count = 0;

	(void)state;
	test_store_open(&ts, 64 * MIB, DAMAGE_SLOTS, 0);
	for (; count < DAMAGE_SLOTS - 20; count++) {
		before[count] = test_put(&ts, count, lens[test_rng_below(&rng, 7)]);
	}
	memcpy(table, ts.table, sizeof(table));
	for (uint32_t round = 0; round < 2000; round++) {
		bool damaged[DAMAGE_SLOTS] = {false};

		memcpy(ts.table, table, sizeof(table));
		for (uint32_t i = test_rng_below(&rng, 12); i > 0; i--) {
			uint32_t slot = test_rng_below(&rng, DAMAGE_SLOTS);

			damaged[slot] = true;
			((uint8_t *)&ts.table[slot])[test_rng_below(&rng, 128)] ^=
				(uint8_t)(1 + test_rng_below(&rng, 255));
			((uint8_t *)&ts.notes[slot])[test_rng_below(&rng, 16)] ^=
				(uint8_t)test_rng_below(&rng, 256);
		}
		(void)test_store_restart(&ts);
		for (uint32_t i = 0; i < count; i++) {
			struct kvp_key key = test_key(i);
			struct kvp_loc loc;
			int err = kvp_store_lookup(ts.store, test_ns, &key, &loc);

			assert_int_equal(err, damaged[before[i].slot] ? -KVP_E_NOKEY : 0);
			assert_true(err < 0 || memcmp(&loc, &before[i], sizeof(loc)) == 0);
		}
	}
	test_store_close(&ts);
}

/* The writer lives: its slot is nobody's until it is fenced, across two restarts. */
static void
test_open_grants(void **state)
{
	struct test_store ts = {0};
	struct kvp_store_recovery r;
	struct kvp_grant grants[3];
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 16 * LEN, 64, 0);
	assert_int_equal(test_offer(&ts, 0, LEN, 5, &grants[0], &loc), 0);
	assert_int_equal(test_offer(&ts, 1, LEN, 5, &grants[1], &loc), 0);
	assert_int_equal(test_offer(&ts, 2, LEN, 6, &grants[2], &loc), 0);
	kvp_store_owner_fence(ts.store, ts.now_ns, 6); /* lost already before */
	for (int again = 0; again < 2; again++) {
		r = test_store_restart(&ts);
		assert_int_equal(r.lost, 3);
		assert_int_equal(kvp_store_owner_slots(ts.store, 5), 2);
		assert_int_equal(kvp_store_owner_slots(ts.store, 6), 1);
		assert_int_equal(test_stats(&ts).bytes_free, 13 * LEN);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(
				test_commit(&ts, i < 2 ? 5 : 6, &grants[i], &loc), -KVP_E_NO_GRANT);
		}
		assert_int_equal(test_offer(&ts, 9, LEN, 5, &grant, &loc), -KVP_E_BUSY);
	}
	for (uint64_t i = 0; i < 13; i++) {
		loc = test_put(&ts, i, LEN);
		for (int j = 0; j < 3; j++) {
			assert_int_not_equal(loc.off, grants[j].off);
		}
	}
	kvp_store_owner_fenced(ts.store, ts.now_ns, 5);
	assert_int_equal(test_stats(&ts).bytes_free, 2 * LEN);
	kvp_store_owner_fenced(ts.store, ts.now_ns, 6);
	assert_int_equal(test_stats(&ts).lost, 0);
	/* A grant that names nobody, or nobody there can be, is free at once. */
	assert_int_equal(test_offer(&ts, 50, LEN, 1, &grant, &loc), 0);
	ts.notes[grant.slot].owner = 0;
	assert_int_equal(test_offer(&ts, 51, LEN, 1, &grant, &loc), 0);
	ts.notes[grant.slot].owner = 77;
	r = test_store_restart(&ts);
	assert_int_equal(r.half, 2);
	assert_int_equal(r.kept, 13);
	test_store_close(&ts);
}

struct removed {
	uint64_t numbers[BLOCKS];
	uint32_t count;
};

static void
note_removed(void *arg, const struct kvp_store_event *event)
{
	struct removed *removed = arg;

	if (event->kind == KVP_STORE_REMOVED) {
		memcpy(&removed->numbers[removed->count++], event->key->bytes, sizeof(uint64_t));
	}
}

/* A chain of four, then one alone: the chain goes from its end, as it would have before. */
static void
test_order(void **state)
{
	static const uint64_t order[] = {3, 2, 1, 0, 10};
	struct test_store ts = {0};
	struct removed removed = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	ts.cfg.event = note_removed;
	ts.cfg.arg = &removed;
	test_store_open(&ts, 5 * LEN, 64, 1000);
	for (uint64_t i = 0; i < 4; i++) {
		struct kvp_key key = test_key(i);
		struct kvp_key parent = test_key(i - 1);
		struct kvp_offer offer = {
			.ns = test_ns,
			.key = &key,
			.len = LEN,
			.parent = i > 0 ? &parent : NULL,
			.touch = {.now_ns = ts.now_ns},
		};

		assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), 0);
		assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);
	}
	(void)test_put(&ts, 10, LEN);
	assert_int_equal(test_store_restart(&ts).kept, 5);
	test_turns(&ts, test_no_expiry, NULL); /* low water is the whole arena */
	assert_int_equal(removed.count, 5);
	assert_memory_equal(removed.numbers, order, sizeof(order));
	test_store_close(&ts);
}

static void
test_evicted(void **state)
{
	struct test_store ts = {0};
	struct kvp_key key = test_key(2);
	struct kvp_store_recovery r;

	(void)state;
	open_filled(&ts);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	ts.now_ns += ts.cfg.quarantine_ns - 1;
	r = test_store_restart(&ts);
	assert_int_equal(r.kept, BLOCKS - 1);
	assert_int_equal(r.quarantined, 1);
	ts.now_ns += ts.cfg.quarantine_ns - 1;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).quarantined, 1); /* begun anew */
	ts.now_ns++;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).bytes_free, 9 * LEN);
	test_store_close(&ts);
}

static void
test_verify(void **state)
{
	struct test_store ts = {0};
	struct kvp_slot_entry entry;
	uint32_t cursor = 0;
	uint32_t count = 0;

	(void)state;
	open_filled(&ts);
	assert_false(kvp_store_recovered(ts.store, &cursor, &entry));
	(void)test_store_restart(&ts);
	(void)test_put(&ts, 100, LEN);
	for (cursor = 0; kvp_store_recovered(ts.store, &cursor, &entry); cursor++) {
		kvp_store_corrupt(ts.store, ts.now_ns, cursor, entry.word ^ 16); /* another's */
		if (count++ == 4) {
			kvp_store_corrupt(ts.store, ts.now_ns, cursor, entry.word);
		}
	}
	assert_int_equal(count, BLOCKS);
	assert_int_equal(count_there(&ts), BLOCKS - 1);
	assert_int_equal(test_stats(&ts).corrupt, 1);
	test_store_close(&ts);
}

static void
test_many(void **state)
{
	struct test_store ts = {0};
	struct timespec begin, end;
	struct kvp_store_recovery r;

	(void)state;
	test_store_open(&ts, MANY * 4 * KIB, MANY, 0);
	for (uint64_t i = 0; i < MANY; i++) {
		(void)test_put(&ts, i, 4 * KIB);
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &begin);
	r = test_store_restart(&ts);
	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	assert_int_equal(r.kept, MANY);
	printf("%u slots recovered in %.1f ms\n", MANY,
		(double)(end.tv_sec - begin.tv_sec) * 1e3 +
			(double)(end.tv_nsec - begin.tv_nsec) / 1e6);
	test_store_close(&ts);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_undamaged),
		cmocka_unit_test(test_flips),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_random_damage),
		cmocka_unit_test(test_open_grants),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_evicted),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
