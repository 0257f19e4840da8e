/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_data.c - what is read is what was written: against a model, through every kind of buffer.
 */
#include "tests/conform/blk_test.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#define MODEL_FILES 2u
#define MODEL_BYTES (32ull * TEST_MIB)
#define MODEL_LEN   (16ull * TEST_MIB) /* of the longest io */
#define MODEL_LANES 4u
#define MODEL_OPS   160u

struct lane {
	struct test_io t;
	char *buf;
	bool busy;
};

struct model {
	struct test_set set;
	char *bytes[MODEL_FILES];
	struct lane lanes[MODEL_LANES];
	unsigned ended;
};

static bool
lane_overlaps(const struct lane *lane, uint32_t file, uint64_t off, uint64_t len)
{
	const struct kvp_blk_io *io = &lane->t.io;

	return lane->busy && io->file == file && io->off < off + len && off < io->off + io->len;
}

/* Checks what has ended and makes it free again. */
static void
model_check(struct model *m)
{
	for (unsigned i = 0; i < MODEL_LANES; i++) {
		struct lane *lane = &m->lanes[i];
		const struct kvp_blk_io *io = &lane->t.io;

		if (!lane->busy || lane->t.done == 0) {
			continue;
		}
		assert_int_equal(lane->t.done, 1);
		assert_int_equal(lane->t.status, 0);
		if (io->op == KVP_BLK_WRITE) {
			memcpy(m->bytes[io->file] + io->off, lane->buf, io->len);
		} else {
			assert_memory_equal(lane->buf, m->bytes[io->file] + io->off, io->len);
		}
		lane->busy = false;
	}
}

/* Starts one random io beside those in flight. */
static void
model_start(struct model *m, struct lane *lane, uint32_t buf)
{
	uint64_t len;
	uint64_t off;
	uint32_t file;
	bool clash;

	do {
		len = (1 + test_random() % ((MODEL_LEN / 4096) >> (test_random() % 13))) * 4096;
		off = test_random() % ((MODEL_BYTES - len) / 4096 + 1) * 4096;
		file = (uint32_t)(test_random() % MODEL_FILES);
		clash = false;
		for (unsigned i = 0; i < MODEL_LANES; i++) {
			clash = clash || lane_overlaps(&m->lanes[i], file, off, len);
		}
	} while (clash);
	test_io_set(&lane->t, test_random() % 2 == 0 ? KVP_BLK_READ : KVP_BLK_WRITE, file, off,
		lane->buf, len);
	test_fill(lane->buf, len, test_random());
	lane->t.io.buf = test_random() % 2 == 0 ? buf : KVP_BLK_BUF_NONE;
	lane->t.total = &m->ended;
	lane->busy = true;
	assert_int_equal(test_post(m->set.blk, &lane->t), 0);
}

static void
model_run(struct kvp_blk_cfg cfg)
{
	struct model m = {0};
	char *arena = test_alloc(MODEL_LANES * MODEL_LEN);
	unsigned started = 0;
	uint32_t buf;

	test_set_open(&m.set, cfg, MODEL_FILES, MODEL_BYTES);
	assert_int_equal(kvp_blk_buf_reg(m.set.blk, arena, MODEL_LANES * MODEL_LEN, &buf), 0);
	for (unsigned i = 0; i < MODEL_FILES; i++) {
		m.bytes[i] = test_alloc(MODEL_BYTES); /* new files read as zeros */
	}
	for (unsigned i = 0; i < MODEL_LANES; i++) {
		m.lanes[i].buf = arena + i * MODEL_LEN;
	}
	while (m.ended < MODEL_OPS) {
		for (unsigned i = 0; i < MODEL_LANES && started < MODEL_OPS; i++) {
			if (!m.lanes[i].busy) {
				model_start(&m, &m.lanes[i], buf);
				started++;
			}
		}
		test_wait(m.set.blk, &m.ended, m.ended + 1);
		model_check(&m);
	}
	for (unsigned i = 0; i < MODEL_FILES; i++) {
		for (uint64_t off = 0; off < MODEL_BYTES; off += MODEL_LEN) {
			assert_int_equal(
				test_do(m.set.blk, KVP_BLK_READ, i, off, arena, MODEL_LEN), 0);
			assert_memory_equal(arena, m.bytes[i] + off, MODEL_LEN);
		}
		free(m.bytes[i]);
	}
	assert_int_equal(test_stats(m.set.blk).errors, 0);
	test_set_close(&m.set);
	free(arena);
}

static void
data_model_defaults(void **state)
{
	(void)state;
	model_run((struct kvp_blk_cfg){0});
}

static void
data_model_small_requests(void **state)
{
	(void)state;
	model_run((struct kvp_blk_cfg){.io_max = 64 * TEST_KIB, .bytes_max = TEST_MIB, .depth = 7});
}

static void
data_model_large_requests(void **state)
{
	(void)state;
	model_run((struct kvp_blk_cfg){.io_max = 4 * TEST_MIB, .bytes_max = 64ull * TEST_MIB});
}

static void
data_survives_reopen(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(TEST_MIB);
	char *want = test_alloc(TEST_MIB);
	struct kvp_blk_stats stats;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 2, 2 * TEST_MIB);
	assert_int_equal(set.files[0].ret_found, 0);
	test_fill(want, TEST_MIB, 5);
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 1, TEST_MIB, want, TEST_MIB), 0);
	assert_int_equal(test_flush(set.blk, 1), 0);
	stats = test_stats(set.blk);
	assert_int_equal(stats.write_bytes, TEST_MIB);
	assert_int_equal(stats.writes, 1);
	assert_int_equal(stats.flushes, 1);
	assert_int_equal(stats.read_bytes + stats.reads + stats.errors + stats.posted, 0);
	kvp_blk_close(set.blk);
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){0}), 0);
	assert_int_equal(set.files[0].ret_found, 2 * TEST_MIB);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 1, TEST_MIB, buf, TEST_MIB), 0);
	assert_memory_equal(buf, want, TEST_MIB);
	assert_int_equal(test_stats(set.blk).read_bytes, TEST_MIB);
	test_set_close(&set);
	free(buf);
	free(want);
}

/* The same few pages mapped again and again: longer than a slice without taking so much memory. */
static char *
window_map(size_t len, size_t step)
{
	int fd = memfd_create("kvp-blk-test", MFD_CLOEXEC);
	char *base = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(fd >= 0 && base != MAP_FAILED);
	assert_int_equal(ftruncate(fd, (off_t)step), 0);
	for (size_t off = 0; off < len; off += step) {
		assert_ptr_equal(mmap(base + off, step, PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_FIXED, fd, 0),
			base + off);
	}
	(void)close(fd);
	return base;
}

static void
data_crosses_slices(void **state)
{
	const size_t step = 16 * TEST_MIB;
	const size_t len = KVP_BLK_SLICE_LEN + step;
	struct test_set set = {0};
	char *base = window_map(len, step);
	/* 3 MiB with the end of the first slice inside, at no multiple of io_max. */
	char *addr = base + KVP_BLK_SLICE_LEN - TEST_MIB - 20480;
	char *want = test_alloc(3 * TEST_MIB);
	struct test_io t = {0};
	uint32_t buf;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, 4 * TEST_MIB);
	assert_int_equal(kvp_blk_buf_reg(set.blk, base, len, &buf), 0);
	test_fill(want, 3 * TEST_MIB, 9);
	for (int op = KVP_BLK_WRITE; op >= KVP_BLK_READ; op--) {
		memcpy(addr, want, 3 * TEST_MIB);
		if (op == KVP_BLK_READ) {
			memset(addr, 0, 3 * TEST_MIB);
		}
		test_io_set(&t, (enum kvp_blk_op)op, 0, 8192, addr, 3 * TEST_MIB);
		t.io.buf = buf;
		assert_int_equal(test_post(set.blk, &t), 0);
		test_wait(set.blk, &t.done, 1);
		assert_int_equal(t.status, 0);
		assert_memory_equal(addr, want, 3 * TEST_MIB);
	}
	test_set_close(&set);
	assert_int_equal(munmap(base, len), 0);
	free(want);
}

static void
data_buffers_come_and_go(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(KVP_BLK_BUFS_MAX * 8192);
	uint32_t ids[KVP_BLK_BUFS_MAX];
	struct test_io t = {0};
	uint32_t extra;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < KVP_BLK_BUFS_MAX; i++) {
			assert_int_equal(
				kvp_blk_buf_reg(set.blk, buf + i * 8192, 8192, &ids[i]), 0);
		}
		assert_int_equal(kvp_blk_buf_reg(set.blk, buf, 4096, &extra), -ENOSPC);
		for (unsigned i = 0; i < KVP_BLK_BUFS_MAX; i++) {
			test_io_set(&t, KVP_BLK_WRITE, 0, i * 8192, buf + i * 8192, 8192);
			t.io.buf = ids[i];
			assert_int_equal(test_post(set.blk, &t), 0);
			assert_int_equal(kvp_blk_buf_dereg(set.blk, ids[i]), -EBUSY);
			test_wait(set.blk, &t.done, 1);
			assert_int_equal(t.status, 0);
			/* Memory of another buffer, or beyond the end of this one. */
			t.io.addr = buf + (i + 1) % KVP_BLK_BUFS_MAX * 8192;
			assert_int_equal(test_post(set.blk, &t), -EINVAL);
			t.io.addr = buf + i * 8192 + 4096;
			assert_int_equal(test_post(set.blk, &t), -EINVAL);
			assert_int_equal(kvp_blk_buf_dereg(set.blk, ids[i]), 0);
			t.io.addr = buf + i * 8192;
			assert_int_equal(test_post(set.blk, &t), -EINVAL);
		}
	}
	assert_int_equal(kvp_blk_buf_reg(set.blk, buf + 1, 4096, &extra), -EINVAL);
	assert_int_equal(kvp_blk_buf_reg(set.blk, buf, 4097, &extra), -EINVAL);
	assert_int_equal(kvp_blk_buf_reg(set.blk, buf, 0, &extra), -EINVAL);
	assert_int_equal(kvp_blk_buf_reg(set.blk, NULL, 4096, &extra), -EINVAL);
	test_set_close(&set);
	free(buf);
}

static void
data_bad_ranges_refused(void **state)
{
	static const struct {
		const char *said;
		uint64_t off;
		uint64_t len;
		uint32_t file;
		uint32_t shift; /* of the address */
		int op;
	} bad[] = {
		{"offset is not", 512, 4096, 0, 0, KVP_BLK_READ},
		{"length is not", 0, 512, 0, 0, KVP_BLK_READ},
		{"length is not", 0, 0, 0, 0, KVP_BLK_WRITE},
		{"address is not", 0, 4096, 0, 512, KVP_BLK_WRITE},
		{"outside of the file", TEST_MIB, 4096, 0, 0, KVP_BLK_READ},
		{"outside of the file", TEST_MIB - 4096, 8192, 0, 0, KVP_BLK_WRITE},
		{"outside of the file", 0, 2 * TEST_MIB, 0, 0, KVP_BLK_WRITE},
		{"outside of the file", UINT64_MAX - 4095, 8192, 0, 0, KVP_BLK_WRITE},
		{"no such file", 0, 4096, 1, 0, KVP_BLK_READ},
		{"no such operation", 0, 4096, 0, 0, 7},
		{"no length", 0, 4096, 0, 0, KVP_BLK_FLUSH},
	};
	struct test_set set = {0};
	char *buf = test_alloc(2 * TEST_MIB);
	struct test_io good = {0};
	struct test_io t = {0};

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvp_blk_io *batch[] = {&good.io, &t.io};

		test_log_reset();
		test_io_set(&good, KVP_BLK_READ, 0, 0, buf, 4096);
		test_io_set(&t, (enum kvp_blk_op)bad[i].op, bad[i].file, bad[i].off,
			buf + bad[i].shift, bad[i].len);
		assert_int_equal(kvp_blk_post(set.blk, batch, 2), -EINVAL);
		assert_int_equal(test_stats(set.blk).posted, 0); /* the good one neither */
		/* A call site of the log says ten lines a second, then it is silent for a while. */
		for (int tries = 0; test_log_count(bad[i].said) == 0; tries++) {
			assert_true(tries < 200);
			(void)poll(NULL, 0, 20);
			assert_int_equal(kvp_blk_post(set.blk, batch, 2), -EINVAL);
		}
	}
	test_set_close(&set);
	free(buf);
}

const struct CMUnitTest blk_data_tests[] = {
	TEST_CASE(data_model_defaults),
	TEST_CASE(data_model_small_requests),
	TEST_CASE(data_model_large_requests),
	TEST_CASE(data_survives_reopen),
	TEST_CASE(data_crosses_slices),
	TEST_CASE(data_buffers_come_and_go),
	TEST_CASE(data_bad_ranges_refused),
};
const size_t blk_data_count = sizeof(blk_data_tests) / sizeof(blk_data_tests[0]);
