/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_fail.c - what devices do wrong: short, interrupted, failed and late requests, files that
 * shrink. The decorator makes them, around the engine under test.
 */
#include "tests/conform/blk_test.h"

#include <poll.h>
#include <unistd.h>

#define FAIL_LEN (1024u * TEST_KIB) /* of an io, cut into 16 requests */

static const struct kvp_blk_cfg fail_cfg = {.io_max = 64 * TEST_KIB};

/* Writes, then reads back, with the plan in force for one of the two; whole or an error. */
static int
fail_round(struct test_set *set, enum kvp_blk_op op, char *want, char *buf, uint64_t seed)
{
	struct kvp_blk_fault plan = set->plan;
	int ret;

	test_fill(want, FAIL_LEN, seed);
	if (op == KVP_BLK_READ) {
		set->plan.nth = 0;
	}
	ret = test_do(set->blk, KVP_BLK_WRITE, 0, 4096, want, FAIL_LEN);
	if (op == KVP_BLK_READ) {
		assert_int_equal(ret, 0);
		set->plan.nth = plan.nth;
	} else {
		set->plan.nth = 0;
	}
	if (ret < 0) {
		return ret;
	}
	memset(buf, 0, FAIL_LEN);
	ret = test_do(set->blk, KVP_BLK_READ, 0, 4096, buf, FAIL_LEN);
	set->plan.nth = 0;
	if (ret == 0) {
		assert_memory_equal(buf, want, FAIL_LEN);
	}
	return ret;
}

static void
fail_short_is_continued(void **state)
{
	static const uint32_t lens[] = {1, 512, 4096, 5000, 40960, 65535};
	struct test_set set = {0};
	char *want = test_alloc(FAIL_LEN);
	char *buf = test_alloc(FAIL_LEN);

	(void)state;
	test_set_open_fault(&set, fail_cfg, 1, 2 * FAIL_LEN);
	for (int op = KVP_BLK_READ; op <= KVP_BLK_WRITE; op++) {
		for (uint32_t i = 0; i < 6 * 5; i++) {
			set.plan.nth = 1 + test_random() % 16;
			set.plan.again = i % 5; /* the continuation is short too */
			set.plan.short_len = lens[i / 5];
			set.plan.failed = 0;
			assert_int_equal(
				fail_round(&set, (enum kvp_blk_op)op, want, buf, i + 1), 0);
			assert_true(set.plan.failed >= 1);
		}
	}
	assert_true(test_stats(set.blk).retries >= 60);
	assert_int_equal(test_stats(set.blk).errors, 0);
	test_set_close(&set);
	free(want);
	free(buf);
}

static void
fail_nothing_moved_is_an_error(void **state)
{
	struct test_set set = {0};
	char *want = test_alloc(FAIL_LEN);
	char *buf = test_alloc(FAIL_LEN);

	(void)state;
	test_set_open_fault(&set, fail_cfg, 1, 2 * FAIL_LEN);
	for (int op = KVP_BLK_READ; op <= KVP_BLK_WRITE; op++) {
		set.plan.nth = 3;
		set.plan.again = 0;
		set.plan.short_len = 0;
		assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, 1), -EIO);
		/* Less than a sector moves, for ever. */
		set.plan.nth = 3;
		set.plan.again = UINT64_MAX;
		set.plan.short_len = 512;
		set.plan.failed = 0;
		assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, 2), -EIO);
		assert_true(set.plan.failed < 16 * 16); /* bounded */
		assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, 3), 0);
	}
	assert_int_equal(test_stats(set.blk).errors, 4);
	test_set_close(&set);
	free(want);
	free(buf);
}

static void
fail_interrupted_is_retried(void **state)
{
	static const int errs[] = {-EINTR, -EAGAIN};
	struct test_set set = {0};
	char *want = test_alloc(FAIL_LEN);
	char *buf = test_alloc(FAIL_LEN);

	(void)state;
	test_set_open_fault(&set, fail_cfg, 1, 2 * FAIL_LEN);
	for (unsigned i = 0; i < 2; i++) {
		for (int op = KVP_BLK_READ; op <= KVP_BLK_WRITE; op++) {
			set.plan.err = errs[i];
			set.plan.nth = 1 + test_random() % 16;
			set.plan.again = 5;
			assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, i), 0);
			set.plan.nth = 1;
			set.plan.again = UINT64_MAX;
			set.plan.failed = 0;
			assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, i), -EIO);
			assert_true(set.plan.failed < 16 * 16);
		}
		set.plan.again = 2;
		set.plan.nth = 1;
		assert_int_equal(test_flush(set.blk, 0), 0);
		set.plan.nth = 0;
	}
	test_set_close(&set);
	free(want);
	free(buf);
}

/* Every request of an io in turn. */
static void
fail_walk(void **state)
{
	static const int errs[] = {-EIO, -ENOSPC, -EDQUOT};
	struct test_set set = {0};
	char *want = test_alloc(FAIL_LEN);
	char *buf = test_alloc(FAIL_LEN);
	struct test_io other = {0};

	(void)state;
	test_set_open_fault(&set, fail_cfg, 2, 2 * FAIL_LEN);
	for (unsigned nth = 1; nth <= 16; nth++) {
		for (int op = KVP_BLK_READ; op <= KVP_BLK_WRITE; op++) {
			set.plan.err = errs[nth % 3];
			set.plan.nth = nth;
			set.plan.failed = 0;
			assert_int_equal(fail_round(&set, (enum kvp_blk_op)op, want, buf, nth),
				errs[nth % 3]);
			assert_int_equal(set.plan.failed, 1);
		}
	}
	assert_int_equal(test_stats(set.blk).errors, 32);
	assert_int_equal(test_stats(set.blk).flight_bytes, 0);
	/* Only the io that was hit fails, not the one beside it. */
	test_io_set(&other, KVP_BLK_WRITE, 1, 0, buf, FAIL_LEN);
	assert_int_equal(test_post(set.blk, &other), 0);
	set.plan.nth = 1;
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, want, FAIL_LEN), set.plan.err);
	test_wait(set.blk, &other.done, 1);
	assert_int_equal(other.status, 0);
	assert_int_equal(fail_round(&set, KVP_BLK_WRITE, want, buf, 1), 0);
	test_set_close(&set);
	free(want);
	free(buf);
}

static void
fail_flush_tells(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(4096);

	(void)state;
	test_set_open_fault(&set, fail_cfg, 1, TEST_MIB);
	set.plan.ops = 1u << KVP_BLK_FLUSH;
	set.plan.err = -EIO;
	set.plan.nth = 1;
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, buf, 4096), 0);
	assert_int_equal(test_flush(set.blk, 0), -EIO);
	assert_int_equal(test_flush(set.blk, 0), 0);
	assert_int_equal(test_stats(set.blk).flushes, 1);
	assert_int_equal(test_stats(set.blk).errors, 1);
	test_set_close(&set);
	free(buf);
}

/* Somebody cut the file short under us: no signal, no success. */
static void
fail_file_shrank(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(FAIL_LEN);

	(void)state;
	test_set_open(&set, fail_cfg, 1, 2 * FAIL_LEN);
	assert_int_equal(truncate(set.paths[0], FAIL_LEN + 8192 + 100), 0);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 0, 0, buf, FAIL_LEN), 0);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 0, FAIL_LEN, buf, FAIL_LEN), -EIO);
	assert_int_equal(truncate(set.paths[0], 0), 0);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 0, 0, buf, FAIL_LEN), -EIO);
	test_set_close(&set);
	free(buf);
}

static void
fail_late_answers(void **state)
{
	const uint64_t delay_ns = 30 * KVP_NS_PER_MS;
	struct test_set set = {0};
	struct test_io ios[8] = {0};
	char *buf = test_alloc(FAIL_LEN);
	uint64_t start = kvp_now_ns(kvp_env_real());
	unsigned total = 0;

	(void)state;
	test_set_open_fault(&set, fail_cfg, 1, FAIL_LEN);
	set.plan.delay_ns = delay_ns;
	for (unsigned i = 0; i < 8; i++) {
		test_io_set(&ios[i], KVP_BLK_WRITE, 0, i * 65536, buf + i * 65536, 65536);
		ios[i].total = &total;
		assert_int_equal(test_post(set.blk, &ios[i]), 0);
	}
	test_wait(set.blk, &total, 8);
	assert_true(kvp_now_ns(kvp_env_real()) - start >= delay_ns);
	/* And the end does not wait for less than all. */
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(test_post(set.blk, &ios[i]), 0);
	}
	test_set_close(&set);
	assert_int_equal(total, 16);
	free(buf);
}

const struct CMUnitTest blk_fail_tests[] = {
	TEST_CASE(fail_short_is_continued),
	TEST_CASE(fail_nothing_moved_is_an_error),
	TEST_CASE(fail_interrupted_is_retried),
	TEST_CASE(fail_walk),
	TEST_CASE(fail_flush_tells),
	TEST_CASE(fail_file_shrank),
	TEST_CASE(fail_late_answers),
};
const size_t blk_fail_count = sizeof(blk_fail_tests) / sizeof(blk_fail_tests[0]);
