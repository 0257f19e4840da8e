/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_test.c - the logic of the SSD tier over a disk in memory, which holds only what the tier
 * asked to be written: filling and emptying segments, and every kind of damage at the start.
 */
#include "pool/store/tier.h"
#include "tests/unit/store/store_test.h"

#define SEGMENTS    4u
#define SEGMENT_LEN (512 * KIB)
#define ENTRIES     64u
#define META_LEN    (4096u * 3)
#define LEN         (30 * KIB)
#define PER_SEGMENT ((SEGMENT_LEN - META_LEN) / (32 * KIB))
#define BASE        1000u

struct disk {
	uint8_t meta[SEGMENTS][META_LEN];
};

struct tier_test {
	struct kvp_tier_log *tier;
	struct disk disk;
	uint32_t live; /* by the events */
	uint64_t events;
	uint32_t incarnation;
	uint64_t seed;
	uint8_t node;
};

static void
on_event(void *arg, const struct kvp_store_event *event)
{
	struct tier_test *t = arg;

	assert_int_equal(event->loc.tier, KVP_TIER_SSD);
	assert_true(event->loc.slot >= BASE && event->loc.slot < BASE + SEGMENTS * ENTRIES);
	assert_int_equal(kvp_word_state(event->loc.word), KVP_SLOT_VALID);
	t->events++;
	t->live += event->kind == KVP_STORE_STORED ? 1 : UINT32_MAX;
}

static struct kvp_key
key_of(uint32_t number)
{
	struct kvp_key key = {.len = 7};

	memcpy(key.bytes, &number, sizeof(number));
	key.bytes[6] = 'k';
	return key;
}

static void
sum_of(uint32_t number, uint8_t ret_sum[KVP_SUM_LEN])
{
	memset(ret_sum, 0xe0, KVP_SUM_LEN);
	memcpy(ret_sum, &number, sizeof(number));
}

static void
tier_open(struct tier_test *t)
{
	struct kvp_tier_cfg cfg = {
		.incarnation = ++t->incarnation,
		.segments = SEGMENTS,
		.segment_len = SEGMENT_LEN,
		.entries = ENTRIES,
		.slot_base = BASE,
		.seed = ++t->seed * 7919,
		.event = on_event,
		.arg = t,
	};

	memset(cfg.node, t->node, sizeof(cfg.node));
	t->live = 0;
	assert_int_equal(kvp_tier_meta_len(ENTRIES), META_LEN);
	assert_int_equal(kvp_tier_open(&cfg, &t->tier), 0);
}

/* What every segment said of itself. */
static void
tier_load(struct tier_test *t, int ret_errs[SEGMENTS])
{
	tier_open(t);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		ret_errs[i] = kvp_tier_load(t->tier, i, t->disk.meta[i]);
	}
	kvp_tier_loaded(t->tier);
}

static struct kvp_tier_stats
tier_stats(const struct tier_test *t)
{
	struct kvp_tier_stats stats;

	kvp_tier_stats(t->tier, &stats);
	assert_int_equal(stats.blocks, t->live);
	return stats;
}

/* Writes what is dirty; max pages. */
static void
tier_sync(struct tier_test *t, uint32_t max)
{
	uint8_t bytes[KVP_TIER_PAGE_LEN];
	struct kvp_tier_page page;

	while (max-- > 0 && kvp_tier_page_next(t->tier, bytes, &page)) {
		assert_true(page.off + sizeof(bytes) <= META_LEN);
		memcpy(t->disk.meta[page.segment] + page.off, bytes, sizeof(bytes));
		kvp_tier_page_end(t->tier, &page, true);
	}
}

static int
block_begin(struct tier_test *t, uint32_t number, uint64_t len, uint32_t *ret_slot)
{
	struct kvp_key key = key_of(number);
	uint8_t sum[KVP_SUM_LEN];

	sum_of(number, sum);
	return kvp_tier_write_begin(t->tier, test_ns, &key, len, sum, ret_slot);
}

static void
block_write(struct tier_test *t, uint32_t number)
{
	uint32_t slot;

	assert_int_equal(block_begin(t, number, LEN, &slot), 0);
	kvp_tier_write_end(t->tier, slot, true);
}

static bool
block_there(const struct tier_test *t, uint32_t number)
{
	struct kvp_key key = key_of(number);
	uint32_t slot = kvp_tier_find(t->tier, test_ns, &key);
	struct kvp_tier_place place;
	uint8_t sum[KVP_SUM_LEN];

	if (slot == KVP_TIER_NONE) {
		return false;
	}
	sum_of(number, sum);
	assert_true(kvp_tier_place(t->tier, slot, &place));
	assert_memory_equal(place.sum, sum, sizeof(sum));
	assert_true(place.off >= META_LEN && place.off + place.len <= SEGMENT_LEN);
	return true;
}

static uint32_t
blocks_there(const struct tier_test *t, uint32_t first, uint32_t count)
{
	uint32_t there = 0;

	for (uint32_t i = 0; i < count; i++) {
		there += block_there(t, first + i);
	}
	return there;
}

static void
tier_fill(struct tier_test *t, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		block_write(t, first + i);
	}
}

static void
test_oldest_segment_goes(void **state)
{
	struct tier_test t = {.node = 1};
	struct kvp_tier_stats stats;
	uint32_t slot;

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	tier_fill(&t, 0, SEGMENTS * PER_SEGMENT);
	assert_int_equal(blocks_there(&t, 0, SEGMENTS * PER_SEGMENT), SEGMENTS * PER_SEGMENT);
	assert_int_equal(block_begin(&t, 3, LEN, &slot), -KVP_E_EXISTS);
	assert_int_equal(block_begin(&t, 9999, SEGMENT_LEN, &slot), -KVP_E_TOO_LARGE);
	block_write(&t, 1000);
	stats = tier_stats(&t);
	assert_int_equal(stats.evicted, PER_SEGMENT);
	assert_int_equal(stats.bytes_used, ((SEGMENTS - 1) * PER_SEGMENT + 1) * LEN);
	assert_int_equal(blocks_there(&t, 0, PER_SEGMENT), 0);
	assert_int_equal(blocks_there(&t, PER_SEGMENT, 3 * PER_SEGMENT), 3 * PER_SEGMENT);
	assert_true(block_there(&t, 1000));
	kvp_tier_close(t.tier);
}

/* A segment being read from or written to is emptied, but not filled. */
static void
test_flight_holds_segment(void **state)
{
	struct tier_test t = {.node = 1};
	struct kvp_key key = key_of(2);
	uint32_t reading;
	uint32_t slot;

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	tier_fill(&t, 0, SEGMENTS * PER_SEGMENT);
	reading = kvp_tier_find(t.tier, test_ns, &key);
	kvp_tier_read_begin(t.tier, reading);
	assert_int_equal(block_begin(&t, 1000, LEN, &slot), -EAGAIN);
	assert_false(block_there(&t, 2));
	assert_false(kvp_tier_turn(t.tier));
	assert_int_equal(block_begin(&t, 1000, LEN, &slot), -EAGAIN);
	kvp_tier_read_end(t.tier, reading, true); /* it is gone already */
	assert_int_equal(block_begin(&t, 1000, LEN, &slot), 0);
	assert_true(block_there(&t, 1000));
	/* Deleted while it is written: it stays away. */
	key = key_of(1000);
	assert_int_equal(kvp_tier_delete(t.tier, test_ns, &key), 0);
	kvp_tier_write_end(t.tier, slot, true);
	assert_false(block_there(&t, 1000));
	/* A write that failed. */
	assert_int_equal(block_begin(&t, 1001, LEN, &slot), 0);
	kvp_tier_write_end(t.tier, slot, false);
	assert_false(block_there(&t, 1001));
	(void)tier_stats(&t);
	kvp_tier_close(t.tier);
}

static void
test_other_length(void **state)
{
	struct tier_test t = {.node = 1};
	struct kvp_store_event event;
	struct kvp_key key;
	uint32_t cursor = 0;
	uint32_t seen = 0;
	uint32_t slot;

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	block_write(&t, 1);
	assert_int_equal(block_begin(&t, 1, LEN + 1, &slot), 0);
	kvp_tier_write_end(t.tier, slot, true);
	block_write(&t, 2);
	while (kvp_tier_next(t.tier, &cursor, &event, &key)) {
		seen++;
	}
	assert_int_equal(seen, 2);
	assert_int_equal(tier_stats(&t).bytes_used, 2 * LEN + 1);
	kvp_tier_close(t.tier);
}

static void
test_recovery(void **state)
{
	static struct tier_test t = {.node = 1};
	int errs[SEGMENTS];
	struct kvp_key key = key_of(5);

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	tier_fill(&t, 0, 3 * PER_SEGMENT);
	tier_sync(&t, UINT32_MAX);
	assert_int_equal(kvp_tier_delete(t.tier, test_ns, &key), 0);
	tier_sync(&t, UINT32_MAX);
	assert_false(kvp_tier_page_waits(t.tier));
	kvp_tier_close(t.tier);
	for (int round = 0; round < 3; round++) { /* it is the same each time */
		tier_load(&t, errs);
		assert_int_equal(errs[0] | errs[1] | errs[2], 0);
		assert_int_equal(errs[3], -ENOENT);
		assert_int_equal(blocks_there(&t, 0, 3 * PER_SEGMENT), 3 * PER_SEGMENT - 1);
		assert_false(block_there(&t, 5));
		assert_int_equal(tier_stats(&t).damaged, 0);
		assert_false(kvp_tier_page_waits(t.tier));
		kvp_tier_close(t.tier);
	}
	/* It goes on behind the newest. */
	tier_load(&t, errs);
	tier_fill(&t, 100, PER_SEGMENT);
	assert_int_equal(tier_stats(&t).evicted, 0);
	block_write(&t, 999);
	assert_int_equal(blocks_there(&t, 0, PER_SEGMENT), 0);
	tier_sync(&t, UINT32_MAX);
	kvp_tier_close(t.tier);
	tier_load(&t, errs);
	assert_int_equal(blocks_there(&t, 100, PER_SEGMENT), PER_SEGMENT);
	assert_int_equal(blocks_there(&t, 0, PER_SEGMENT), 0);
	assert_true(block_there(&t, 999));
	kvp_tier_close(t.tier);
}

/* Each kind of damaged file costs its own blocks. */
static void
test_damage(void **state)
{
	static struct tier_test t = {.node = 1};
	static struct disk good;
	int errs[SEGMENTS];

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	tier_fill(&t, 0, SEGMENTS * PER_SEGMENT);
	tier_sync(&t, UINT32_MAX);
	kvp_tier_close(t.tier);
	good = t.disk;

	t.disk.meta[0][4096 + 128 + 50] ^= 4;   /* an entry */
	t.disk.meta[1][40] ^= 1;                /* a header */
	memset(t.disk.meta[2] + 4096, 0, 8192); /* cut off */
	tier_load(&t, errs);
	assert_int_equal(errs[1], -EIO);
	assert_int_equal(blocks_there(&t, 0, PER_SEGMENT), PER_SEGMENT - 1);
	assert_int_equal(blocks_there(&t, PER_SEGMENT, 2 * PER_SEGMENT), 0);
	assert_int_equal(blocks_there(&t, 3 * PER_SEGMENT, PER_SEGMENT), PER_SEGMENT);
	assert_int_equal(tier_stats(&t).damaged, 2);
	tier_fill(&t, 500, SEGMENTS * PER_SEGMENT); /* and all of it can be used */
	assert_int_equal(tier_stats(&t).blocks, SEGMENTS * PER_SEGMENT);
	kvp_tier_close(t.tier);

	t.disk = good;
	memcpy(t.disk.meta[1], good.meta[0], META_LEN);           /* another segment of ours */
	memset(t.disk.meta[2], 0x77, META_LEN);                   /* something else */
	memcpy(t.disk.meta[3] + 4096, good.meta[0] + 4096, 8192); /* another filling's table */
	tier_load(&t, errs);
	assert_int_equal(errs[0], 0);
	assert_int_equal(errs[1], -KVP_E_IN_USE);
	assert_int_equal(errs[2], -EIO);
	assert_int_equal(tier_stats(&t).blocks, PER_SEGMENT);
	kvp_tier_close(t.tier);

	t.disk = good;
	t.node = 2; /* another node's files */
	tier_load(&t, errs);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		assert_int_equal(errs[i], -KVP_E_IN_USE);
	}
	assert_int_equal(tier_stats(&t).blocks, 0);
	kvp_tier_close(t.tier);
}

/* The newer of two blocks of a key counts; the other one does not come back. */
static void
test_twice(void **state)
{
	static struct tier_test t = {.node = 1};
	struct kvp_key key = key_of(1);
	int errs[SEGMENTS];
	uint32_t slot;

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	block_write(&t, 1);
	tier_fill(&t, 10, PER_SEGMENT);
	tier_sync(&t, UINT32_MAX);
	assert_int_equal(block_begin(&t, 1, LEN + 5, &slot), 0);
	kvp_tier_write_end(t.tier, slot, true);
	{ /* the page of the old one is lost */
		struct disk before = t.disk;

		tier_sync(&t, UINT32_MAX);
		memcpy(t.disk.meta[0], before.meta[0], META_LEN);
	}
	kvp_tier_close(t.tier);
	tier_load(&t, errs);
	slot = kvp_tier_find(t.tier, test_ns, &key);
	assert_int_equal(slot / ENTRIES, 1);
	assert_int_equal(kvp_tier_delete(t.tier, test_ns, &key), 0);
	tier_sync(&t, UINT32_MAX);
	kvp_tier_close(t.tier);
	tier_load(&t, errs);
	assert_int_equal(kvp_tier_find(t.tier, test_ns, &key), KVP_TIER_NONE);
	kvp_tier_close(t.tier);
}

/* Random work with crashes at which any of the last pages, or sectors of them, are lost: what is
 * found is always what was written, and what was synced and not removed is found. */
static void
test_random_crashes(void **state)
{
	static struct tier_test t = {.node = 1};
	static struct disk synced;
	struct test_rng rng = test_rng_open("tier");
	uint64_t found = 0;
	int errs[SEGMENTS];

	(void)state;
	tier_open(&t);
	kvp_tier_loaded(t.tier);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t ops = test_rng_below(&rng, 3 * PER_SEGMENT);

		for (uint32_t i = 0; i < ops; i++) {
			uint32_t number = test_rng_below(&rng, 6 * PER_SEGMENT);
			struct kvp_key key = key_of(number);
			uint32_t slot;

			if (test_rng_below(&rng, 8) == 0) {
				(void)kvp_tier_delete(t.tier, test_ns, &key);
			} else if (block_begin(&t, number, LEN, &slot) == 0) {
				kvp_tier_write_end(t.tier, slot, test_rng_below(&rng, 16) > 0);
			}
			if (test_rng_below(&rng, 4) == 0) {
				tier_sync(&t, 1);
			}
			if (test_rng_below(&rng, 32) == 0) {
				tier_sync(&t, UINT32_MAX);
				synced = t.disk;
			}
		}
		for (uint32_t i = 0; i < SEGMENTS * META_LEN / 512; i++) {
			if (test_rng_below(&rng, 2) == 0) {
				memcpy((uint8_t *)&t.disk + i * 512, (uint8_t *)&synced + i * 512,
					512);
			}
		}
		kvp_tier_close(t.tier);
		tier_load(&t, errs);
		synced = t.disk;
		found += blocks_there(&t, 0, 6 * PER_SEGMENT);
		assert_int_equal(tier_stats(&t).blocks, blocks_there(&t, 0, 6 * PER_SEGMENT));
	}
	assert_true(found > 200 * PER_SEGMENT / 2);
	kvp_tier_close(t.tier);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_oldest_segment_goes),
		cmocka_unit_test(test_flight_holds_segment),
		cmocka_unit_test(test_other_length),
		cmocka_unit_test(test_recovery),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_twice),
		cmocka_unit_test(test_random_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
