/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_flow.c - bounds, back-pressure, wakeups, and the end with i/o in flight.
 */
#include "hal/os/thread.h"
#include "tests/conform/blk_test.h"

#include <poll.h>
#include <unistd.h>

/* An engine that counts what passes through it to the engine under test. */
struct probe {
	struct kvp_blk_engine engine;
	struct kvp_blk_engine *inner;
	const struct kvp_blk_ops *inner_ops;
	uint64_t bytes; /* in flight */
	uint64_t bytes_max;
	uint32_t reqs;
	uint32_t reqs_max;
	uint32_t len_max;
	uint32_t posts;
};

static const struct kvp_blk_ops probe_ops;

static int
probe_open(const struct kvp_blk_engine_cfg *cfg, struct kvp_blk_engine **ret_engine)
{
	struct probe *p = cfg->arg;

	p->engine.ops = &probe_ops;
	p->inner_ops = kvp_blk_find(BLK_NAME);
	*ret_engine = &p->engine;
	return p->inner_ops->open(cfg, &p->inner);
}

static void
probe_close(struct kvp_blk_engine *engine)
{
	struct probe *p = (struct probe *)engine;

	p->inner_ops->close(p->inner);
}

static void
probe_post(struct kvp_blk_engine *engine, struct kvp_list *reqs)
{
	struct probe *p = (struct probe *)engine;

	p->posts++;
	kvp_list_for_each (link, reqs) {
		struct kvp_blk_req *req = kvp_container_of(link, struct kvp_blk_req, link);

		p->reqs++;
		p->bytes += req->len;
		p->len_max = req->len > p->len_max ? req->len : p->len_max;
	}
	p->bytes_max = p->bytes > p->bytes_max ? p->bytes : p->bytes_max;
	p->reqs_max = p->reqs > p->reqs_max ? p->reqs : p->reqs_max;
	p->inner_ops->post(p->inner, reqs);
}

static void
probe_poll(struct kvp_blk_engine *engine, struct kvp_list *ret_reqs)
{
	struct probe *p = (struct probe *)engine;
	struct kvp_list got;
	struct kvp_list *link;

	kvp_list_init(&got);
	p->inner_ops->poll(p->inner, &got);
	while ((link = kvp_list_pop_front(&got)) != NULL) {
		p->reqs--;
		p->bytes -= kvp_container_of(link, struct kvp_blk_req, link)->len;
		kvp_list_push_back(ret_reqs, link);
	}
}

static int
probe_wait_fd(struct kvp_blk_engine *engine)
{
	struct probe *p = (struct probe *)engine;

	return p->inner_ops->wait_fd(p->inner);
}

static const struct kvp_blk_ops probe_ops = {
	.name = "probe",
	.open = probe_open,
	.close = probe_close,
	.post = probe_post,
	.poll = probe_poll,
	.wait_fd = probe_wait_fd,
};

static void
flow_bytes_in_flight_bounded(void **state)
{
	struct probe probe = {0};
	struct test_set set = {0};
	struct test_io ios[24] = {0};
	struct kvp_blk_io *batch[24];
	char *buf = test_alloc(24ull * TEST_MIB);
	unsigned total = 0;

	(void)state;
	test_set_open(&set,
		(struct kvp_blk_cfg){.ops = &probe_ops,
			.ops_arg = &probe,
			.io_max = 256 * TEST_KIB,
			.bytes_max = 640 * TEST_KIB,
			.depth = 16},
		1, 24ull * TEST_MIB);
	for (int op = KVP_BLK_WRITE; op >= KVP_BLK_READ; op--) {
		for (unsigned i = 0; i < 24; i++) {
			test_io_set(&ios[i], (enum kvp_blk_op)op, 0, i * (uint64_t)TEST_MIB,
				buf + i * (uint64_t)TEST_MIB, TEST_MIB);
			ios[i].total = &total;
			batch[i] = &ios[i].io;
		}
		assert_int_equal(kvp_blk_post(set.blk, batch, 24), 0);
		assert_true(test_stats(set.blk).flight_bytes <= 640 * TEST_KIB);
		test_wait(set.blk, &total, op == KVP_BLK_WRITE ? 24 : 48);
	}
	/* Two requests of 256 KiB fit into 640 KiB, a third does not. */
	assert_int_equal(probe.bytes_max, 512 * TEST_KIB);
	assert_int_equal(test_stats(set.blk).flight_bytes_max, 512 * TEST_KIB);
	assert_int_equal(test_stats(set.blk).flight_bytes, 0);
	assert_int_equal(probe.len_max, 256 * TEST_KIB);
	assert_int_equal(probe.bytes + probe.reqs, 0);
	test_set_close(&set);
	free(buf);
}

static void
flow_depth_bounded_batch_is_one_post(void **state)
{
	struct probe probe = {0};
	struct test_set set = {0};
	struct test_io ios[64] = {0};
	struct kvp_blk_io *batch[64];
	char *buf = test_alloc(64 * 4096);
	unsigned total = 0;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){.ops = &probe_ops, .ops_arg = &probe, .depth = 5},
		1, TEST_MIB);
	for (unsigned i = 0; i < 64; i++) {
		test_io_set(&ios[i], KVP_BLK_WRITE, 0, i * 4096, buf + i * 4096, 4096);
		ios[i].total = &total;
		batch[i] = &ios[i].io;
	}
	assert_int_equal(kvp_blk_post(set.blk, batch, 5), 0);
	assert_int_equal(probe.posts, 1);
	assert_int_equal(probe.reqs_max, 5);
	assert_int_equal(kvp_blk_post(set.blk, batch + 5, 59), 0);
	assert_int_equal(probe.posts, 1); /* no room */
	test_wait(set.blk, &total, 64);
	assert_int_equal(probe.reqs_max, 5);
	test_set_close(&set);
	free(buf);
}

static void
flow_full_queue_refuses_all(void **state)
{
	struct test_set set = {0};
	struct test_io ios[6] = {0};
	struct kvp_blk_io *batch[6];
	char *buf = test_alloc(6 * 65536);
	unsigned total = 0;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){.queue_max = 4}, 1, TEST_MIB);
	for (unsigned i = 0; i < 6; i++) {
		test_io_set(&ios[i], KVP_BLK_WRITE, 0, i * 65536, buf + i * 65536, 65536);
		ios[i].total = &total;
		batch[i] = &ios[i].io;
	}
	assert_int_equal(kvp_blk_post(set.blk, batch, 5), -EINVAL); /* would never fit */
	assert_int_equal(kvp_blk_post(set.blk, batch, 3), 0);
	assert_int_equal(kvp_blk_post(set.blk, batch + 3, 2), -EAGAIN);
	assert_int_equal(test_stats(set.blk).posted, 3); /* not one of the two */
	assert_int_equal(kvp_blk_post(set.blk, batch + 3, 1), 0);
	assert_int_equal(kvp_blk_post(set.blk, batch + 4, 1), -EAGAIN);
	test_wait(set.blk, &total, 4);
	assert_int_equal(ios[4].done + ios[5].done, 0);
	assert_int_equal(kvp_blk_post(set.blk, batch + 4, 2), 0);
	test_wait(set.blk, &total, 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(ios[i].done, 1);
		assert_int_equal(ios[i].status, 0);
	}
	assert_int_equal(test_stats(set.blk).posted, 0);
	test_set_close(&set);
	free(buf);
}

/* done() posts the next one. */
struct chain {
	struct kvp_blk_io io;
	struct kvp_blk *blk;
	unsigned count;
	unsigned left;
};

static void
chain_done(struct kvp_blk_io *io)
{
	struct chain *chain = (struct chain *)io;

	assert_int_equal(io->status, 0);
	chain->count++;
	if (--chain->left > 0) {
		io->off = (io->off + 8192) % TEST_MIB;
		assert_int_equal(kvp_blk_post(chain->blk, &io, 1), 0);
	}
}

static void
flow_done_may_post(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(8192);
	struct chain chain = {.left = 300};
	struct kvp_blk_io *io = &chain.io;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	chain.blk = set.blk;
	chain.io = (struct kvp_blk_io){.done = chain_done,
		.op = KVP_BLK_WRITE,
		.buf = KVP_BLK_BUF_NONE,
		.addr = buf,
		.len = 8192};
	assert_int_equal(kvp_blk_post(set.blk, &io, 1), 0);
	test_wait(set.blk, &chain.count, 300);
	assert_int_equal(chain.count, 300);
	test_set_close(&set);
	free(buf);
}

static void
flow_poll_keeps_to_max(void **state)
{
	struct test_set set = {0};
	struct test_io ios[10] = {0};
	char *buf = test_alloc(40960);
	unsigned total = 0;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	for (unsigned i = 0; i < 10; i++) {
		test_io_set(&ios[i], KVP_BLK_WRITE, 0, i * 4096, buf + i * 4096, 4096);
		ios[i].total = &total;
		assert_int_equal(test_post(set.blk, &ios[i]), 0);
	}
	while (test_stats(set.blk).flight_bytes > 0) {
		assert_int_equal(kvp_blk_poll(set.blk, 0), 0);
	}
	assert_int_equal(total, 0); /* all is there, nothing was told */
	assert_int_equal(kvp_blk_wait_fd(set.blk), -EAGAIN);
	assert_int_equal(kvp_blk_poll(set.blk, 3), 3);
	assert_int_equal(total, 3);
	assert_int_equal(kvp_blk_wait_fd(set.blk), -EAGAIN);
	assert_int_equal(kvp_blk_poll(set.blk, 100), 7);
	assert_int_equal(kvp_blk_poll(set.blk, 100), 0);
	test_set_close(&set);
	free(buf);
}

/* Sleeps before each look; a wakeup that got lost is a sleep that times out. */
static void
flow_no_lost_wakeup(void **state)
{
	struct test_set set = {0};
	struct test_io ios[4] = {0};
	char *buf = test_alloc(4 * 4096);
	struct pollfd pfd = {.events = POLLIN};
	unsigned total = 0;
	unsigned posted = 0;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	while (total < 4000) {
		unsigned burst = 1 + (unsigned)(test_random() % 4);
		unsigned want = total + 1 + (unsigned)(test_random() % burst);

		for (unsigned i = 0; i < 4 && burst > 0; i++) {
			if (ios[i].io.posted) {
				continue;
			}
			test_io_set(&ios[i], KVP_BLK_READ, 0, i * 4096, buf + i * 4096, 4096);
			ios[i].total = &total;
			assert_int_equal(test_post(set.blk, &ios[i]), 0);
			posted++;
			burst--;
		}
		want = want < posted ? want : posted;
		while (total < want) {
			pfd.fd = kvp_blk_wait_fd(set.blk);
			if (pfd.fd >= 0 && poll(&pfd, 1, TEST_WAIT_MS) == 0) {
				fail_msg("slept through it after %u", total);
			}
			(void)kvp_blk_poll(set.blk, 1 + (uint32_t)(test_random() % 4));
		}
	}
	test_wait(set.blk, &total, posted);
	/* Idle: it does not wake for nothing. */
	pfd.fd = kvp_blk_wait_fd(set.blk);
	assert_true(pfd.fd >= 0);
	assert_int_equal(kvp_blk_poll(set.blk, 1), 0);
	assert_int_equal(kvp_blk_wait_fd(set.blk), pfd.fd);
	assert_int_equal(poll(&pfd, 1, 20), 0);
	test_set_close(&set);
	free(buf);
}

/* Closes at a random moment; all is told once, and memory is left alone from then on. */
static void
flow_close_drains(void **state)
{
	char *buf = test_alloc(16ull * TEST_MIB);
	unsigned cancelled = 0;

	(void)state;
	for (unsigned round = 0; round < 12; round++) {
		struct test_set set = {0};
		struct test_io ios[17] = {0};
		unsigned total = 0;
		uint32_t id;

		test_set_open(&set, (struct kvp_blk_cfg){0}, 1, 16ull * TEST_MIB);
		assert_int_equal(kvp_blk_buf_reg(set.blk, buf, 16ull * TEST_MIB, &id), 0);
		for (unsigned i = 0; i < 16; i++) {
			test_io_set(&ios[i], i % 2 == 0 ? KVP_BLK_READ : KVP_BLK_WRITE, 0,
				i * (uint64_t)TEST_MIB, buf + i * (uint64_t)TEST_MIB, TEST_MIB);
			ios[i].io.buf = round % 2 == 0 ? id : KVP_BLK_BUF_NONE;
			ios[i].total = &total;
			assert_int_equal(test_post(set.blk, &ios[i]), 0);
		}
		test_io_set(&ios[16], KVP_BLK_FLUSH, 0, 0, NULL, 0);
		ios[16].total = &total;
		assert_int_equal(test_post(set.blk, &ios[16]), 0);
		test_wait(set.blk, &total, round);
		test_set_close(&set);
		memset(buf, (int)round, 16ull * TEST_MIB);
		for (unsigned i = 0; i < 17; i++) {
			assert_int_equal(ios[i].done, 1);
			assert_true(ios[i].status == 0 || ios[i].status == -ECANCELED);
			cancelled += ios[i].status != 0;
		}
		(void)poll(NULL, 0, 5);
		for (size_t i = 0; i < 16ull * TEST_MIB; i++) {
			if (buf[i] != (char)round) {
				fail_msg("touched after close: byte %zu", i);
			}
		}
	}
	assert_true(cancelled > 0);
	free(buf);
}

static void
flow_cancel(void **state)
{
	struct test_set set = {0};
	struct test_io ios[9] = {0};
	char *buf = test_alloc(16ull * TEST_MIB);
	unsigned cancelled = 0;
	unsigned total = 0;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){.bytes_max = TEST_MIB}, 1, 16ull * TEST_MIB);
	for (unsigned i = 0; i < 8; i++) {
		test_io_set(&ios[i], KVP_BLK_WRITE, 0, i * 2ull * TEST_MIB, buf, 2 * TEST_MIB);
		ios[i].total = &total;
		assert_int_equal(test_post(set.blk, &ios[i]), 0);
	}
	kvp_blk_cancel(set.blk);
	assert_int_equal(total, 0); /* told by poll() only */
	test_wait(set.blk, &total, 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ios[i].done, 1);
		cancelled += ios[i].status == -ECANCELED;
	}
	assert_int_equal(cancelled, 8); /* the first was half way */
	assert_int_equal(test_stats(set.blk).cancels, 8);
	assert_int_equal(test_stats(set.blk).errors, 0);
	assert_int_equal(test_stats(set.blk).flight_bytes, 0);
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, buf, 2 * TEST_MIB), 0);
	test_set_close(&set);
	free(buf);
}

static void
owner_main(void *arg)
{
	struct test_set *set = arg;
	char *buf = test_alloc(TEST_MIB);

	assert_int_equal(test_do(set->blk, KVP_BLK_WRITE, 0, 0, buf, TEST_MIB), 0);
	assert_int_equal(test_flush(set->blk, 0), 0);
	free(buf);
}

static void
flow_opened_used_and_closed_by_two_threads(void **state)
{
	struct kvp_thread *owner;
	struct test_set set = {0};
	char *buf = test_alloc(TEST_MIB);
	uint32_t id;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 1, TEST_MIB);
	assert_int_equal(kvp_blk_buf_reg(set.blk, buf, TEST_MIB, &id), 0);
	assert_int_equal(kvp_thread_start("owner", owner_main, &set, &owner), 0);
	kvp_thread_join(owner);
	test_set_close(&set);
	free(buf);
}

const struct CMUnitTest blk_flow_tests[] = {
	TEST_CASE(flow_bytes_in_flight_bounded),
	TEST_CASE(flow_depth_bounded_batch_is_one_post),
	TEST_CASE(flow_full_queue_refuses_all),
	TEST_CASE(flow_done_may_post),
	TEST_CASE(flow_poll_keeps_to_max),
	TEST_CASE(flow_no_lost_wakeup),
	TEST_CASE(flow_close_drains),
	TEST_CASE(flow_cancel),
	TEST_CASE(flow_opened_used_and_closed_by_two_threads),
};
const size_t blk_flow_count = sizeof(blk_flow_tests) / sizeof(blk_flow_tests[0]);
