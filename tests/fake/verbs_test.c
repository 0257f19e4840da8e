/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_test.c - the verbs provider over the fake libraries: every call, event and completion made
 * to fail once, one after the other. Each time everything ends with an error or as if nothing had
 * happened, and nothing is left behind.
 */
#include "hal/base/err.h"
#include "tests/fake/ibverbs.h"
#include "transport/xport.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARENA_LEN (20u << 20) /* three slices of the fake device's 8 MiB */
#define WAIT_MS   20000

static const struct kvp_xport_ops *ops;
static struct {
	fake_fail_fn plan;
	fake_failed_fn failed;
	fake_live_fn live;
} fake;

struct side {
	struct kvp_xport *x;
	struct kvp_mem mem;
	struct kvp_mr *mrs[2];
	struct kvp_rdesc descs[2];
};

struct io {
	struct kvp_io io;
	int done;
	int status;
};

static uint64_t
now_ms(void)
{
	return kvp_now_ns(kvp_env_real()) / KVP_NS_PER_MS;
}

static void
io_done(struct kvp_io *kvp_io)
{
	struct io *io = kvp_container_of(kvp_io, struct io, io);

	io->done++;
	io->status = kvp_io->status;
}

static int
io_wait(struct kvp_xport *x, struct io *io)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (io->done == 0) {
		int fd = ops->wait_fd(x);
		struct pollfd wait = {.fd = fd, .events = POLLIN};

		if (fd >= 0) {
			(void)poll(&wait, 1, 1000);
		}
		assert_true(ops->poll(x, 4) >= 0);
		assert_true(now_ms() < end);
	}
	assert_int_equal(io->done, 1);
	return io->status;
}

static int
side_open(struct side *side, bool target)
{
	const struct kvp_xport_cfg cfg = {.env = kvp_env_real()};
	static const uint32_t access[2] = {KVP_MR_REMOTE_READ, KVP_MR_REMOTE_WRITE};
	int ret = ops->open(&cfg, &side->x);

	for (int i = 0; i < (target ? 2 : 1) && ret == 0; i++) {
		ret = ops->mr_reg(
			side->x, &side->mem, target ? access[i] : KVP_MR_LOCAL, &side->mrs[i]);
		if (ret == 0 && target) {
			ops->mr_rdesc(side->mrs[i], &side->descs[i]);
		}
	}
	return ret;
}

static void
side_close(struct side *side)
{
	for (int i = 0; i < 2; i++) {
		if (side->mrs[i] != NULL) {
			ops->mr_dereg(side->mrs[i]);
			side->mrs[i] = NULL;
		}
	}
	if (side->x != NULL) {
		while (ops->poll(side->x, 64) > 0) {
		}
		ops->close(side->x);
		side->x = NULL;
	}
}

static int
move(struct side *client, struct kvp_conn *conn, bool write, size_t local, size_t len,
	const struct kvp_rdesc *rdesc, uint64_t off)
{
	char *base = (char *)client->mem.base + local;
	struct kvp_seg segs[3] = {
		{.mr = client->mrs[0], .addr = base, .len = len / 3},
		{.mr = client->mrs[0], .addr = base + len / 3, .len = 1},
		{.mr = client->mrs[0], .addr = base + len / 3 + 1, .len = len - len / 3 - 1},
	};
	struct io io = {.io.done = io_done};
	int ret = -EAGAIN;

	for (int i = 0; i < 3 && ret == -EAGAIN; i++) { /* full: again after the next poll */
		ret = write ? ops->write(conn, segs, 3, rdesc, off, &io.io)
			    : ops->read(conn, segs, 3, rdesc, off, &io.io);
		if (ret == -EAGAIN) {
			assert_int_equal(ops->poll(client->x, 1), 0);
		}
	}
	return ret != 0 ? ret : io_wait(client->x, &io);
}

/* Writes across a slice's end, reads it back into other memory. */
static int
round_trip(struct side *client, struct side *target, struct kvp_conn *conn)
{
	enum { LEN = 3 << 20, OFF = (8 << 20) - 4321, BACK = 10 << 20 };
	char *sent = client->mem.base;
	char *got = sent + BACK;
	int ret;

	memset(got, 0, LEN);
	memset((char *)target->mem.base + OFF, 0, LEN);
	ret = move(client, conn, true, 0, LEN, &target->descs[1], OFF);
	if (ret == 0) {
		assert_memory_equal((char *)target->mem.base + OFF, sent, LEN);
		ret = move(client, conn, false, BACK, LEN, &target->descs[0], OFF);
	}
	if (ret == 0) {
		assert_memory_equal(got, sent, LEN);
	}
	return ret;
}

/* Everything once, from open to close. 0, or the first error. */
static int
scenario(struct side *client, struct side *target)
{
	static const uint8_t token[KVP_TOKEN_LEN] = {1, 2, 3};
	struct io io = {.io.done = io_done};
	struct kvp_conn *conn = NULL;
	char addr[KVP_ADDR_LEN_MAX];
	int ret = side_open(target, true);

	if (ret == 0) {
		ret = ops->listen(target->x, "127.0.0.1:0", addr);
	}
	if (ret == 0) {
		ret = ops->admit(target->x, token);
	}
	if (ret == 0) {
		ret = side_open(client, false);
	}
	if (ret == 0) {
		ret = ops->connect(client->x, addr, token, &io.io, &conn);
	}
	if (ret == 0) {
		ret = io_wait(client->x, &io);
		if (ret == 0) {
			ret = round_trip(client, target, conn);
		}
		assert_int_equal(ops->fence(target->x, token), 0);
		if (ret == 0) {
			assert_int_equal(round_trip(client, target, conn), -KVP_E_CONNDOWN);
		}
		ops->disconnect(conn);
	}
	side_close(client);
	side_close(target);
	return ret;
}

/* Fails the first, second, third... of a kind until there are no more. */
static void
walk(enum fake_kind kind, int err)
{
	struct side client = {0};
	struct side target = {0};
	const struct kvp_mem_cfg cfg = {.len = ARENA_LEN, .mode = 0600};
	uint64_t n = 0;
	uint64_t failed;
	unsigned survived = 0;

	assert_int_equal(kvp_mem_create(&cfg, &client.mem), 0);
	assert_int_equal(kvp_mem_create(&cfg, &target.mem), 0);
	for (size_t i = 0; i < ARENA_LEN; i++) {
		((uint8_t *)client.mem.base)[i] = (uint8_t)(i * 7 + i / 251);
	}
	do {
		int ret;

		fake.plan(kind, ++n, err);
		ret = scenario(&client, &target);
		failed = fake.failed(kind);
		fake.plan(kind, 0, 0);
		assert_true(ret <= 0);
		assert_int_equal(fake.live(), 0);
		survived += ret == 0;
	} while (failed > 0);
	print_message("kind %d errno %d: %llu cases, %u of them without harm\n", (int)kind, err,
		(unsigned long long)(n - 1), survived - 1);
	assert_true(n > 2);
	kvp_mem_close(&client.mem);
	kvp_mem_close(&target.mem);
}

static void
walk_calls(void **state)
{
	(void)state;
	walk(FAKE_CALL, ENOMEM);
	walk(FAKE_CALL, EIO);
}

static void
walk_polls(void **state)
{
	(void)state;
	walk(FAKE_POLL, EIO);
}

static void
walk_completions(void **state)
{
	(void)state;
	walk(FAKE_COMPLETION, 0);
}

static void
walk_events(void **state)
{
	(void)state;
	walk(FAKE_EVENT, 0);
}

static void
walk_without_windows(void **state)
{
	(void)state;
	assert_int_equal(setenv("KVP_TEST_NO_WINDOWS", "1", 1), 0);
	walk(FAKE_COMPLETION, 0);
	assert_int_equal(unsetenv("KVP_TEST_NO_WINDOWS"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(walk_calls),
		cmocka_unit_test(walk_polls),
		cmocka_unit_test(walk_completions),
		cmocka_unit_test(walk_events),
		cmocka_unit_test(walk_without_windows),
	};
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	ops = kvp_xport_find("verbs");
	if (lib != NULL) {
		*(void **)&fake.plan = dlsym(lib, "fake_fail");
		*(void **)&fake.failed = dlsym(lib, "fake_failed");
		*(void **)&fake.live = dlsym(lib, "fake_live");
	}
	if (ops == NULL || fake.plan == NULL || fake.failed == NULL || fake.live == NULL) {
		fprintf(stderr, "the fake libraries must come first in LD_LIBRARY_PATH\n");
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
