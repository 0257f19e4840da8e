/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_loop_test.c - the measuring loop over a path that does nothing: it posts what it should,
 * never too much at once, refills when asked and not on the clock, and its statistics are those of
 * the samples.
 */
#include "bench/perf.h"
#include "hal/base/list.h"
#include "hal/os/env.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cmocka.h>

#define REFILL_NS (50 * KVP_NS_PER_MS)

struct fake {
	struct kvp_perf_path base;
	struct kvp_perf_shape shape;
	uint64_t posted; /* units */
	uint64_t room;   /* units until a refill */
	uint64_t room_full;
	uint64_t fail_at; /* this post fails; 0: none */
	uint32_t refills;
	uint32_t ticks;
	uint32_t count; /* in flight */
	uint32_t units[64];
};

static struct fake *
fake_of(struct kvp_perf_path *path)
{
	return kvp_container_of(path, struct fake, base);
}

static int
fake_post(struct kvp_perf_path *path, uint32_t unit)
{
	struct fake *f = fake_of(path);

	if (f->room == 0) {
		return -ENOBUFS;
	}
	if (f->fail_at != 0 && f->posted + 1 == f->fail_at) {
		return -EIO;
	}
	for (uint32_t i = 0; i < f->count; i++) {
		assert_int_not_equal(f->units[i], unit);
	}
	assert_true(f->count < f->shape.units);
	f->units[f->count++] = unit;
	f->posted++;
	f->room--;
	return 0;
}

static int
fake_poll(struct kvp_perf_path *path, struct kvp_perf_done *ret_done, uint32_t max)
{
	struct fake *f = fake_of(path);

	assert_true(max > 0);
	if (f->count == 0) {
		return 0;
	}
	*ret_done = (struct kvp_perf_done){
		.unit = f->units[--f->count], .end_ns = kvp_now_ns(kvp_env_real())};
	return 1;
}

static int
fake_refill(struct kvp_perf_path *path)
{
	struct fake *f = fake_of(path);
	uint64_t end = kvp_now_ns(kvp_env_real()) + REFILL_NS;

	assert_int_equal(f->count, 0);
	while (kvp_now_ns(kvp_env_real()) < end) {
	}
	f->room = f->room_full;
	f->refills++;
	return 0;
}

static void
fake_tick(struct kvp_perf_path *path)
{
	fake_of(path)->ticks++;
}

static const struct kvp_perf_path_ops fake_ops = {.name = "fake",
	.post = fake_post,
	.poll = fake_poll,
	.refill = fake_refill,
	.tick = fake_tick};

struct bench {
	struct kvp_perf_cfg cfg;
	struct kvp_perf perf;
	struct fake fake;
	struct kvp_perf_result *result;
};

static void
bench_open(struct bench *b, uint32_t units, uint32_t batch)
{
	sigset_t none;

	memset(b, 0, sizeof(*b));
	sigemptyset(&none);
	b->perf.cfg = &b->cfg;
	b->perf.stop_fd = signalfd(-1, &none, SFD_CLOEXEC | SFD_NONBLOCK);
	b->perf.paths[0] = &b->fake.base;
	b->perf.path_count = 1;
	b->fake.base.ops = &fake_ops;
	b->fake.shape = (struct kvp_perf_shape){
		.size = 100, .blocks = units * batch, .units = units, .batch = batch};
	b->fake.room = UINT64_MAX;
	b->result = calloc(1, sizeof(*b->result));
	b->result->shape = b->fake.shape;
	b->result->samples = calloc(KVP_PERF_SAMPLES_MAX, sizeof(uint64_t));
}

static int
bench_run(struct bench *b, uint64_t ops, struct kvp_perf_result *result)
{
	return kvp_perf_loop_run(&b->perf, &b->fake.base, &b->fake.shape, ops, 1, result);
}

static void
bench_close(struct bench *b)
{
	(void)close(b->perf.stop_fd);
	free(b->result->samples);
	free(b->result);
}

static void
test_counts(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, 7, 4);
	assert_int_equal(bench_run(&b, 1001, b.result), 0); /* 251 units: the last one is whole */
	assert_int_equal(b.fake.posted, 251);
	assert_int_equal(b.fake.count, 0);
	assert_int_equal(b.result->ops, 1004);
	assert_int_equal(b.result->bytes, 100400);
	assert_int_equal(b.result->moved, 100400);
	assert_int_equal(b.result->hist.count, 251);
	assert_true(b.result->wall_ns > 0);
	assert_true(b.result->peak_bps > 0);
	/* A second round adds up; a warm-up leaves no trace. */
	assert_int_equal(bench_run(&b, 1004, b.result), 0);
	assert_int_equal(b.result->ops, 2008);
	assert_int_equal(bench_run(&b, 1004, NULL), 0);
	assert_int_equal(b.result->ops, 2008);
	assert_int_equal(b.fake.posted, 3 * 251);
	bench_close(&b);
}

static void
test_statistics(void **state)
{
	struct bench b;
	double mean = 0;
	double m2 = 0;

	(void)state;
	bench_open(&b, 3, 1);
	assert_int_equal(bench_run(&b, 5000, b.result), 0);
	assert_int_equal(b.result->sample_count, 5000);
	for (size_t i = 0; i < 5000; i++) {
		mean += (double)b.result->samples[i] / 5000;
	}
	for (size_t i = 0; i < 5000; i++) {
		m2 += ((double)b.result->samples[i] - mean) * ((double)b.result->samples[i] - mean);
	}
	assert_true(fabs(b.result->mean_ns - mean) <= 1e-9 * mean);
	assert_true(fabs(b.result->m2_ns - m2) <= 1e-6 * m2);
	bench_close(&b);
}

/* Refills are not on the clock, neither on ours nor in a latency, nor in the CPU time. */
static void
test_refill(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, 4, 1);
	b.fake.room = 10;
	b.fake.room_full = 10;
	assert_int_equal(bench_run(&b, 45, b.result), 0);
	assert_int_equal(b.fake.refills, 4);
	assert_int_equal(b.result->ops, 45);
	assert_true(b.result->wall_ns < 4 * REFILL_NS);
	assert_true(b.result->hist.max_ns < 4 * REFILL_NS);
	assert_true(b.result->cpu_ns < 2.0 * REFILL_NS);
	bench_close(&b);
}

static void
test_duration(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, 2, 1);
	b.cfg.duration_ns = 400 * KVP_NS_PER_MS;
	b.cfg.margin_ns = 100 * KVP_NS_PER_MS;
	assert_int_equal(bench_run(&b, 1, b.result), 0);
	assert_int_equal(b.result->wall_ns, 200 * KVP_NS_PER_MS);
	assert_true(b.result->ops > 100);
	assert_true(b.result->ops < b.fake.posted); /* the margins are left out */
	assert_int_equal(b.result->moved, b.fake.posted * 100);
	assert_true(b.fake.ticks >= 3);
	bench_close(&b);
}

static void
test_errors(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, 4, 1);
	b.fake.fail_at = 30;
	assert_int_equal(bench_run(&b, 100, b.result), -EIO);
	assert_true(b.result->ops >= 26 && b.result->ops < 30);
	bench_close(&b);
	/* Stopped before it began: nothing, and no error. */
	bench_open(&b, 4, 1);
	b.perf.stopped = true;
	assert_int_equal(bench_run(&b, 100, b.result), 0);
	assert_int_equal(b.result->ops, 0);
	bench_close(&b);
}

static void
test_shape(void **state)
{
	struct kvp_perf_cfg cfg = {.region = 1 << 20, .depth = 128, .batch = 1};
	struct kvp_perf_shape shape = kvp_perf_shape_of(&cfg, 65536);

	(void)state;
	assert_int_equal(shape.blocks, 16);
	assert_int_equal(shape.units, 16); /* each operation in flight has its own block */
	shape = kvp_perf_shape_of(&cfg, 2);
	assert_int_equal(shape.blocks, KVP_PERF_BLOCKS_MAX);
	assert_int_equal(shape.units, 128);
	cfg.batch = 48;
	shape = kvp_perf_shape_of(&cfg, 65536); /* more than the region: what a batch needs */
	assert_int_equal(shape.blocks, 48);
	assert_int_equal(shape.units, 1);
}

static void
test_fill(void **state)
{
	static const size_t sizes[] = {1, 2, 31, 32, 33, 4096};
	unsigned char buf[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		kvp_perf_fill(buf, sizes[i], 7);
		assert_int_equal(kvp_perf_wrong(buf, sizes[i], 7), 0);
		assert_true(kvp_perf_wrong(buf, sizes[i], 8) > 0);
		buf[sizes[i] - 1] ^= 1;
		assert_true(kvp_perf_wrong(buf, sizes[i], 7) > 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_statistics),
		cmocka_unit_test(test_refill),
		cmocka_unit_test(test_duration),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_fill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
