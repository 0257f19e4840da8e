/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads_test.c - the table of unreported reads: counts what is the same, keeps what differs apart,
 * says when to report, drops what does not fit, and loses nothing else between threads.
 */
#include "client/reads.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct kvp_loc
loc_of(uint32_t slot)
{
	return (struct kvp_loc){
		.word = kvp_word_make(1, slot / 4 + 1, KVP_SLOT_VALID), .slot = slot};
}

static void
test_counts(void **state)
{
	struct kvp_touch_item items[KVP_READS_MAX];
	struct kvp_loc a = loc_of(1);
	struct kvp_loc b = loc_of(2);
	struct kvp_reads *reads;

	(void)state;
	assert_int_equal(kvp_reads_open(&reads), 0);
	assert_int_equal(kvp_reads_take(reads, items), 0);
	for (int i = 0; i < 5; i++) {
		assert_false(kvp_reads_add(reads, &a, 7, 1));
	}
	assert_false(kvp_reads_add(reads, &a, 8, 1)); /* another conversation */
	assert_false(kvp_reads_add(reads, &a, 7, 2)); /* another class */
	assert_false(kvp_reads_add(reads, &b, 7, 1)); /* another slot */
	a.word = kvp_word_make(1, 99, KVP_SLOT_VALID);
	assert_false(kvp_reads_add(reads, &a, 7, 1)); /* another generation */

	assert_int_equal(kvp_reads_take(reads, items), 5);
	assert_int_equal(items[0].count, 5);
	assert_int_equal(items[0].slot, 1);
	assert_int_equal(items[0].conversation, 7);
	assert_int_equal(items[0].class, 1);
	for (int i = 1; i < 5; i++) {
		assert_int_equal(items[i].count, 1);
		assert_int_equal(items[i].zero, 0);
	}
	assert_int_equal(items[4].word, a.word);
	assert_int_equal(kvp_reads_take(reads, items), 0);
	kvp_reads_close(reads);
}

/* So many that places in the index collide: what differs in one field alone stays apart. */
static void
test_differ_in_one_field(void **state)
{
	struct kvp_touch_item items[KVP_READS_MAX];
	struct kvp_reads *reads;

	(void)state;
	assert_int_equal(kvp_reads_open(&reads), 0);
	for (int field = 0; field < 4; field++) {
		for (uint32_t i = 0; i < KVP_READS_MAX; i++) {
			uint32_t n = i * i * 0x5851f42du; /* distinct, without a pattern */
			struct kvp_loc loc = loc_of(7);

			loc.word += field == 0 ? (uint64_t)n << 4 : 0;
			loc.slot += field == 1 ? n : 0;
			(void)kvp_reads_add(reads, &loc, field == 2 ? n : 0, field == 3 ? n : 0);
		}
		assert_int_equal(kvp_reads_take(reads, items), KVP_READS_MAX);
	}
	kvp_reads_close(reads);
}

static void
test_full(void **state)
{
	struct kvp_touch_item items[KVP_READS_MAX];
	struct kvp_reads *reads;

	(void)state;
	assert_int_equal(kvp_reads_open(&reads), 0);
	for (int round = 0; round < 3; round++) {
		for (uint32_t slot = 0; slot < 3 * KVP_READS_MAX; slot++) {
			struct kvp_loc loc = loc_of(slot);

			assert_int_equal(
				kvp_reads_add(reads, &loc, 0, 0), slot + 1 >= KVP_READS_MAX / 2);
		}
		/* What is in the table is counted even now. */
		for (uint32_t slot = 0; slot < KVP_READS_MAX; slot++) {
			struct kvp_loc loc = loc_of(slot);

			assert_true(kvp_reads_add(reads, &loc, 0, 0));
		}
		assert_int_equal(kvp_reads_take(reads, items), KVP_READS_MAX);
		for (uint32_t i = 0; i < KVP_READS_MAX; i++) {
			assert_int_equal(items[i].slot, i);
			assert_int_equal(items[i].count, 2);
		}
	}
	kvp_reads_close(reads);
	kvp_reads_close(NULL);
}

enum { THREADS = 4, ADDS = 20000, SLOTS = 200 };

static void *
thread_main(void *arg)
{
	for (uint32_t i = 0; i < ADDS; i++) {
		struct kvp_loc loc = loc_of(i % SLOTS);

		(void)kvp_reads_add(arg, &loc, 0, 0);
	}
	return NULL;
}

static uint64_t
take_sum(struct kvp_reads *reads)
{
	struct kvp_touch_item items[KVP_READS_MAX];
	uint32_t count = kvp_reads_take(reads, items);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < count; i++) {
		sum += items[i].count;
	}
	return sum;
}

static void
test_threads(void **state)
{
	struct kvp_reads *reads;
	pthread_t threads[THREADS];
	uint64_t sum = 0;

	(void)state;
	assert_int_equal(kvp_reads_open(&reads), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, reads), 0);
	}
	for (int i = 0; i < 200; i++) {
		sum += take_sum(reads);
		sched_yield();
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	sum += take_sum(reads);
	assert_int_equal(sum, THREADS * ADDS); /* it never filled up, so nothing was dropped */
	kvp_reads_close(reads);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_differ_in_one_field),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
