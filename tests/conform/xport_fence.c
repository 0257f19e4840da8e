/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_fence.c - the fence: once it says 0, what that peer posted changes nothing any more. Also
 * the fault decorator's own promises.
 */
#include "tests/conform/xport_test.h"

#include <glob.h>
#include <time.h>
#include <unistd.h>

#define ARENA_LEN (16u << 20)

static void
nap_ms(long ms)
{
	struct timespec t = {.tv_nsec = ms * 1000000};

	(void)nanosleep(&t, NULL);
}

/* Until it says 0. */
static void
fence_wait(struct test_target *t, const uint8_t token[KVP_TOKEN_LEN])
{
	uint64_t end = test_now_ms() + TEST_WAIT_MS;
	int ret;

	while ((ret = t->x->ops->fence(t->x, token)) == -EINPROGRESS) {
		assert_true(test_now_ms() < end);
		nap_ms(2);
	}
	assert_int_equal(ret, 0);
}

static void
assert_quiet(struct test_target *t)
{
	uint64_t sum = test_sum(t->mem.base, ARENA_LEN);

	for (int i = 0; i < 5; i++) {
		nap_ms(20);
		assert_true(test_sum(t->mem.base, ARENA_LEN) == sum);
	}
}

static void
fence_simple(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	uint8_t other[KVP_TOKEN_LEN];
	struct test_target t;
	struct kvp_conn *conn;
	struct kvp_conn *kept;
	struct kvp_conn *none = NULL;
	struct test_buf buf;

	(void)state;
	test_target_open(&t, ARENA_LEN);
	test_token(token);
	test_token(other);
	assert_int_equal(t.x->ops->fence(t.x, token), 0); /* unknown */
	assert_int_equal(t.x->ops->admit(t.x, token), 0);
	assert_int_equal(t.x->ops->admit(t.x, other), 0);
	test_buf_open(&buf, x, 65536);
	conn = test_connect_ok(x, t.addr, token);
	kept = test_connect_ok(x, t.addr, other);
	assert_int_equal(test_write(x, conn, buf.mr, buf.mem.base, 64, &t.write_desc, 0), 0);
	if (test_is("shm")) {
		assert_int_equal(t.x->ops->fence(t.x, token), -EINPROGRESS);
		assert_int_equal(t.x->ops->fence(t.x, token), -EINPROGRESS);
	} else {
		assert_int_equal(t.x->ops->fence(t.x, token), 0);
		assert_int_equal(t.x->ops->fence(t.x, token), 0);
		assert_int_equal(test_write(x, conn, buf.mr, buf.mem.base, 64, &t.write_desc, 0),
			-KVP_E_CONNDOWN);
	}
	assert_int_equal(test_connect(x, t.addr, token, &none), -KVP_E_NO_SESSION);
	x->ops->disconnect(conn);
	assert_int_equal(t.x->ops->fence(t.x, token), 0);
	/* The other session has seen nothing of it. */
	assert_int_equal(test_write(x, kept, buf.mr, buf.mem.base, 65536, &t.write_desc, 0), 0);
	x->ops->disconnect(kept);
	(void)x->ops->poll(x, 16);
	assert_int_equal(t.x->ops->fence(t.x, other), 0);
	assert_int_equal(t.x->ops->admit(t.x, other), 0); /* a token may come back */
	x->ops->disconnect(test_connect_ok(x, t.addr, other));
	test_buf_close(&buf);
	(void)x->ops->poll(x, 16);
	x->ops->close(x);
	test_target_close(&t);
}

/* A process that writes as fast as it can is fenced: the memory stands still from then on. */
static void
fence_writer(void **state)
{
	struct test_target t;

	(void)state;
	test_target_open(&t, ARENA_LEN);
	for (int round = 0; round < 6; round++) {
		uint8_t token[KVP_TOKEN_LEN];
		struct test_child writer;
		uint64_t start;

		test_token(token);
		assert_int_equal(t.x->ops->admit(t.x, token), 0);
		test_writer_start(&writer, t.addr, token, &t.write_desc);
		assert_int_equal(test_writer_event(&writer), 'U');
		assert_int_equal(test_writer_event(&writer), 'W');
		nap_ms(round * 3);
		if (test_is("shm")) {
			for (int i = 0; i < 5; i++) {
				assert_int_equal(t.x->ops->fence(t.x, token), -EINPROGRESS);
				nap_ms(5);
			}
			if (round % 2 == 0) {
				test_child_kill(&writer);
			} else {
				test_child_stop(&writer); /* disconnects */
			}
			fence_wait(&t, token);
			assert_quiet(&t);
			continue;
		}
		start = test_now_ms();
		assert_int_equal(t.x->ops->fence(t.x, token), 0);
		assert_true(test_now_ms() - start < 2000);
		assert_quiet(&t);
		assert_int_equal(test_writer_event(&writer), 'D');
		test_child_stop(&writer);
	}
	test_target_close(&t);
}

/* One of several writers is fenced; the others go on. */
static void
fence_one_of_many(void **state)
{
	enum { COUNT = 3 };
	struct test_target t;
	struct test_child writers[COUNT];
	uint8_t tokens[COUNT][KVP_TOKEN_LEN];

	(void)state;
	if (test_many(4) < 4) {
		/* Over Soft-RoCE the writers that go on stand still now and then, without an error:
		 * not understood yet, so neither a fault of ours is excluded nor one of theirs. */
		print_message("skipped in the virtual machine: see transport/verbs/README.md\n");
		skip();
	}
	test_target_open(&t, ARENA_LEN);
	for (int i = 0; i < COUNT; i++) {
		test_token(tokens[i]);
		assert_int_equal(t.x->ops->admit(t.x, tokens[i]), 0);
		test_writer_start(&writers[i], t.addr, tokens[i], &t.write_desc);
		assert_int_equal(test_writer_event(&writers[i]), 'U');
	}
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(test_writer_event(&writers[i]), 'W');
	}
	if (!test_is("shm")) {
		uint64_t sum;
		uint64_t end = test_now_ms() + TEST_WAIT_MS;

		fence_wait(&t, tokens[0]);
		assert_int_equal(test_writer_event(&writers[0]), 'D');
		sum = test_sum(t.mem.base, 4096); /* the others still write */
		while (test_sum(t.mem.base, 4096) == sum) {
			assert_true(test_now_ms() < end);
		}
	}
	for (int i = 0; i < COUNT; i++) {
		test_child_stop(&writers[i]);
		fence_wait(&t, tokens[i]);
	}
	assert_quiet(&t);
	test_target_close(&t);
}

static unsigned
session_locks(void)
{
	char pattern[96];
	glob_t found;
	unsigned count = 0;

	(void)snprintf(pattern, sizeof(pattern), "%s/session-*", test_dir);
	if (glob(pattern, 0, NULL, &found) == 0) {
		count = (unsigned)found.gl_pathc;
		globfree(&found);
	}
	return count;
}

/* The target is killed; the next one, which never admitted the token, fences it all the same. */
static void
fence_successor(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	uint8_t idle[KVP_TOKEN_LEN];
	struct kvp_conn *gone = NULL;
	struct kvp_conn *conn = NULL;
	struct test_child first;
	struct test_target t;

	(void)state;
	test_child_start(&first, ARENA_LEN);
	test_token(token);
	test_token(idle);
	test_child_admit(&first, token);
	test_child_admit(&first, idle);
	assert_int_equal(test_connect(x, first.addr, token, &conn), 0);
	assert_int_equal(test_connect(x, first.addr, idle, &gone), 0);
	x->ops->disconnect(gone);
	(void)x->ops->poll(x, 64);
	test_child_kill(&first);
	(void)unlink(first.addr);        /* of ofi it is no file */
	test_target_open(&t, ARENA_LEN); /* removes what nobody holds */
	assert_int_equal(session_locks(), test_is("shm") ? 1 : 0);
	assert_int_equal(t.x->ops->fence(t.x, idle), 0);
	if (test_is("shm")) {
		assert_int_equal(t.x->ops->fence(t.x, token), -EINPROGRESS);
		assert_int_equal(t.x->ops->fence(t.x, token), -EINPROGRESS);
	}
	x->ops->disconnect(conn);
	(void)x->ops->poll(x, 64);
	fence_wait(&t, token);
	assert_int_equal(t.x->ops->fence(t.x, token), 0);
	assert_int_equal(session_locks(), 0);
	x->ops->close(x);
	test_target_close(&t);
}

/* The first 40 posts and completions made to fail, one at a time. */
static void
fault_walk(void **state)
{
	struct kvp_fault_plan plan = {0};
	struct kvp_xport_cfg cfg = {.env = kvp_env_real()};
	struct kvp_xport *x = NULL;
	uint8_t token[KVP_TOKEN_LEN];
	struct test_target t;
	struct test_buf buf;

	(void)state;
	test_target_open(&t, ARENA_LEN);
	test_token(token);
	assert_int_equal(t.x->ops->admit(t.x, token), 0);
	assert_int_equal(kvp_fault_open(test_ops, &cfg, &plan, &x), 0);
	assert_int_equal(x->ops->caps, test_ops->caps);
	test_buf_open(&buf, x, 65536);
	for (uint64_t n = 1; n <= 40; n++) {
		enum { COUNT = 10 };
		struct kvp_seg seg = {.mr = buf.mr, .addr = buf.mem.base, .len = 4096};
		struct kvp_conn *conn = NULL;
		struct test_io ios[COUNT];
		int posted = 0;
		int failed = 0;
		int ret = 0;

		plan = (struct kvp_fault_plan){
			.post_nth = n <= 20 ? n : 0, .done_nth = n > 20 ? n - 20 : 0};
		ret = test_connect(x, t.addr, token, &conn);
		if (ret != 0) {
			assert_int_equal(n, 21); /* the first completion is the connect's */
			continue;
		}
		for (; posted < COUNT && ret == 0; posted += ret == 0) {
			test_io_init(&ios[posted]);
			ret = x->ops->read(conn, &seg, 1, &t.read_desc, 0, &ios[posted].io);
		}
		for (int i = 0; i < posted; i++) {
			int status = ios[i].done == 1 ? ios[i].status : test_io_wait(x, &ios[i]);

			failed += status != 0;
			assert_true(failed == 0 || status != 0); /* none succeeds after it */
		}
		assert_int_equal(plan.failed, n <= COUNT || (n > 20 && n - 20 <= COUNT + 1));
		x->ops->disconnect(conn);
		assert_int_equal(x->ops->poll(x, 64), 0);
	}
	test_buf_close(&buf);
	x->ops->close(x);
	test_target_close(&t);
}

const struct CMUnitTest xport_fence_tests[] = {
	cmocka_unit_test(fence_simple),
	cmocka_unit_test(fence_writer),
	cmocka_unit_test(fence_one_of_many),
	cmocka_unit_test(fence_successor),
	cmocka_unit_test(fault_walk),
};
const size_t xport_fence_count = sizeof(xport_fence_tests) / sizeof(xport_fence_tests[0]);
