/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_power.c - flushes and power cuts: what was flushed is there, what was not is old, new or
 * torn.
 */
#include "tests/conform/blk_test.h"

#include <unistd.h>

#define POWER_LEN    (256u * TEST_KIB)
#define POWER_SECTOR 512u

struct power {
	struct test_set set;
	char *old;
	char *fresh;
	char *buf;
};

static void
power_start(struct power *p)
{
	*p = (struct power){.old = test_alloc(POWER_LEN),
		.fresh = test_alloc(POWER_LEN),
		.buf = test_alloc(POWER_LEN)};
	test_set_open_fault(&p->set, (struct kvp_blk_cfg){.io_max = 64 * TEST_KIB}, 2, TEST_MIB);
	test_fill(p->old, POWER_LEN, 1);
	test_fill(p->fresh, POWER_LEN, 1u << 30);
}

static int
power_write(struct power *p, uint32_t file, char *from)
{
	return test_do(p->set.blk, KVP_BLK_WRITE, file, 4096, from, POWER_LEN);
}

/* Cuts, closes, opens without the decorator, and reads what is left of file 0. */
static void
power_cut(struct power *p, uint64_t seed)
{
	assert_int_equal(kvp_blk_fault_power_cut(&p->set.plan, seed), 0);
	assert_int_equal(test_do(p->set.blk, KVP_BLK_READ, 0, 0, p->buf, 4096), -EIO);
	assert_int_equal(test_do(p->set.blk, KVP_BLK_WRITE, 0, 0, p->buf, 4096), -EIO);
	assert_int_equal(test_flush(p->set.blk, 0), -EIO);
	kvp_blk_close(p->set.blk);
	assert_int_equal(test_set_try(&p->set, (struct kvp_blk_cfg){.engine = BLK_NAME}), 0);
	assert_int_equal(test_do(p->set.blk, KVP_BLK_READ, 0, 4096, p->buf, POWER_LEN), 0);
}

static void
power_end(struct power *p)
{
	test_set_close(&p->set);
	free(p->old);
	free(p->fresh);
	free(p->buf);
}

/* Units of 4 KiB in p->buf that are new, old, and torn between the two. */
static void
power_count(const struct power *p, unsigned ret_kinds[3])
{
	memset(ret_kinds, 0, 3 * sizeof(ret_kinds[0]));
	for (uint32_t off = 0; off < POWER_LEN; off += KVP_BLK_ALIGN) {
		unsigned fresh = 0;

		for (uint32_t s = off; s < off + KVP_BLK_ALIGN; s += POWER_SECTOR) {
			bool is_fresh = memcmp(p->buf + s, p->fresh + s, POWER_SECTOR) == 0;

			assert_true(is_fresh || memcmp(p->buf + s, p->old + s, POWER_SECTOR) == 0);
			fresh += is_fresh;
		}
		ret_kinds[fresh == 8 ? 0 : fresh == 0 ? 1 : 2]++;
	}
}

static void
power_unflushed_is_mixed(void **state)
{
	unsigned first[3] = {0};

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		unsigned kinds[3];
		struct power p;

		power_start(&p);
		assert_int_equal(power_write(&p, 0, p.old), 0);
		assert_int_equal(test_flush(p.set.blk, 0), 0);
		/* More than once, and through an io of its own: the flushed bytes come back. */
		assert_int_equal(power_write(&p, 0, p.buf), 0);
		assert_int_equal(power_write(&p, 0, p.fresh), 0);
		power_cut(&p, round == 2 ? 99 : 7);
		power_count(&p, kinds);
		assert_true(kinds[0] > 5 && kinds[1] > 5 && kinds[2] > 5);
		if (round == 0) {
			memcpy(first, kinds, sizeof(first));
		} else if (round == 1) {
			assert_memory_equal(kinds, first, sizeof(first)); /* the seed decides */
		}
		power_end(&p);
	}
}

static void
power_flushed_is_there(void **state)
{
	struct power p;

	(void)state;
	power_start(&p);
	assert_int_equal(power_write(&p, 0, p.old), 0);
	assert_int_equal(power_write(&p, 0, p.fresh), 0);
	assert_int_equal(test_flush(p.set.blk, 0), 0);
	power_cut(&p, 3);
	assert_memory_equal(p.buf, p.fresh, POWER_LEN);
	power_end(&p);
}

/* A flush of one file says nothing about another. */
static void
power_flush_is_by_file(void **state)
{
	unsigned kinds[3];
	struct power p;

	(void)state;
	power_start(&p);
	memset(p.old, 0, POWER_LEN); /* what a new file holds */
	assert_int_equal(power_write(&p, 0, p.fresh), 0);
	assert_int_equal(test_flush(p.set.blk, 1), 0);
	power_cut(&p, 3);
	power_count(&p, kinds);
	assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
	power_end(&p);
}

/* Posted together with later writes, it still covers all that was done before. */
static void
power_flush_order(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 8; round++) {
		struct test_io ios[5] = {0};
		struct kvp_blk_io *batch[5];
		unsigned total = 0;
		struct power p;

		power_start(&p);
		assert_int_equal(power_write(&p, 0, p.fresh), 0);
		for (unsigned i = 0; i < 5; i++) {
			test_io_set(&ios[i], KVP_BLK_WRITE, 0, 512 * TEST_KIB + i * 65536, p.buf,
				65536);
			if (i == round % 5) {
				test_io_set(&ios[i], KVP_BLK_FLUSH, 0, 0, NULL, 0);
			}
			ios[i].total = &total;
			batch[i] = &ios[i].io;
		}
		assert_int_equal(kvp_blk_post(p.set.blk, batch, 5), 0);
		test_wait(p.set.blk, &ios[round % 5].done, 1);
		assert_int_equal(ios[round % 5].status, 0);
		test_wait(p.set.blk, &total, 5 - round % 2); /* some cut with i/o in flight */
		power_cut(&p, round);
		assert_memory_equal(p.buf, p.fresh, POWER_LEN);
		assert_int_equal(total, 5);
		power_end(&p);
	}
}

/* The decorator keeps writes and flushes apart, so that it knows what a flush covered. */
static void
power_flush_is_a_barrier(void **state)
{
	static const enum kvp_blk_op ops[] = {
		KVP_BLK_WRITE, KVP_BLK_WRITE, KVP_BLK_FLUSH, KVP_BLK_WRITE, KVP_BLK_READ};
	struct test_io ios[5] = {0};
	struct kvp_blk_io *batch[5];
	unsigned total = 0;
	struct power p;

	(void)state;
	power_start(&p);
	for (unsigned i = 0; i < 5; i++) {
		bool flush = ops[i] == KVP_BLK_FLUSH;

		test_io_set(&ios[i], ops[i], 0, flush ? 0 : i * 65536, flush ? NULL : p.buf,
			flush ? 0 : 65536);
		ios[i].total = &total;
		batch[i] = &ios[i].io;
	}
	ios[4].io.addr = p.old;
	assert_int_equal(kvp_blk_post(p.set.blk, batch, 5), 0);
	assert_int_equal(p.set.plan.flight, 3); /* two writes, the read */
	test_wait(p.set.blk, &total, 5);
	power_end(&p);
}

/* The kernel forgets what a failed flush could not write: a later good one saves nothing. */
static void
power_failed_flush_is_remembered(void **state)
{
	unsigned kinds[3];
	struct power p;

	(void)state;
	power_start(&p);
	assert_int_equal(power_write(&p, 0, p.old), 0);
	assert_int_equal(test_flush(p.set.blk, 0), 0);
	assert_int_equal(power_write(&p, 0, p.fresh), 0);
	p.set.plan.ops = 1u << KVP_BLK_FLUSH;
	p.set.plan.err = -EIO;
	p.set.plan.nth = 1;
	assert_int_equal(test_flush(p.set.blk, 0), -EIO);
	assert_int_equal(test_flush(p.set.blk, 0), 0);
	power_cut(&p, 11);
	power_count(&p, kinds);
	assert_true(kinds[1] > 0 && kinds[2] > 0);
	power_end(&p);
}

static void
power_cut_in_flight(void **state)
{
	struct test_io ios[8] = {0};
	unsigned total = 0;
	struct power p;

	(void)state;
	power_start(&p);
	assert_int_equal(power_write(&p, 0, p.old), 0);
	assert_int_equal(test_flush(p.set.blk, 0), 0);
	for (unsigned i = 0; i < 8; i++) {
		test_io_set(&ios[i], i % 3 == 2 ? KVP_BLK_READ : KVP_BLK_WRITE, 1, i * 65536,
			i % 3 == 2 ? p.buf + i / 3 * 65536 : p.fresh, 65536);
		ios[i].total = &total;
		assert_int_equal(test_post(p.set.blk, &ios[i]), 0);
	}
	assert_int_equal(kvp_blk_fault_power_cut(&p.set.plan, 1), 0);
	test_wait(p.set.blk, &total, 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ios[i].done, 1);
		assert_int_equal(ios[i].status, -EIO);
	}
	kvp_blk_close(p.set.blk);
	assert_int_equal(test_set_try(&p.set, (struct kvp_blk_cfg){.engine = BLK_NAME}), 0);
	assert_int_equal(test_do(p.set.blk, KVP_BLK_READ, 0, 4096, p.buf, POWER_LEN), 0);
	assert_memory_equal(p.buf, p.old, POWER_LEN);
	power_end(&p);
}

const struct CMUnitTest blk_power_tests[] = {
	TEST_CASE(power_unflushed_is_mixed),
	TEST_CASE(power_flushed_is_there),
	TEST_CASE(power_flush_is_by_file),
	TEST_CASE(power_flush_order),
	TEST_CASE(power_flush_is_a_barrier),
	TEST_CASE(power_failed_flush_is_remembered),
	TEST_CASE(power_cut_in_flight),
};
const size_t blk_power_count = sizeof(blk_power_tests) / sizeof(blk_power_tests[0]);
