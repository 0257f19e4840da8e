/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_cm.c - connections: who gets in, what their end does, and what is left behind.
 */
#include "tests/conform/xport_test.h"

#include "hal/base/addr.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ARENA_SMALL (1u << 20)

static void
drain_close(struct kvp_xport *x)
{
	while (x->ops->poll(x, 64) > 0) {
	}
	x->ops->close(x);
}

static void
cm_token(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	struct test_target t;
	struct kvp_conn *conn;
	struct kvp_conn *none = NULL;
	uint64_t start;

	(void)state;
	test_target_open(&t, ARENA_SMALL);
	test_token(token);
	start = test_now_ms();
	assert_true(test_connect(x, t.addr, token, &none) < 0); /* nobody was admitted */
	assert_null(none);
	assert_int_equal(t.x->ops->admit(t.x, token), 0);
	assert_int_equal(t.x->ops->admit(t.x, token), 0); /* idempotent */
	conn = test_connect_ok(x, t.addr, token);
	token[KVP_TOKEN_LEN - 1] ^= 1;
	assert_int_equal(test_connect(x, t.addr, token, &none), -KVP_E_NO_SESSION);
	assert_true(test_now_ms() - start < 8000);
	x->ops->disconnect(conn);
	drain_close(x);
	test_target_close(&t);
}

static void
un_path(struct sockaddr_un *un, const char *path)
{
	size_t len = strlen(path);

	assert_true(len < sizeof(un->sun_path));
	memcpy(un->sun_path, path, len);
}

/* An address where something listens and never answers, or nothing does. */
static int
dead_end(bool listens, char addr[KVP_ADDR_LEN_MAX])
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(in);
	int fd;

	test_listen_addr(addr);
	if (test_is("verbs")) { /* its ports are not those of sockets: nobody is on any of these */
		(void)snprintf(addr, KVP_ADDR_LEN_MAX, "%s:9", listens ? "10.0.0.77" : test_host());
		return -1;
	}
	if (test_is("shm")) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		un_path(&un, addr);
		assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	} else {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
		(void)snprintf(addr, KVP_ADDR_LEN_MAX, "127.0.0.1:%u", ntohs(in.sin_port));
	}
	if (listens) {
		assert_int_equal(listen(fd, 8), 0);
	}
	return fd;
}

static void
cm_nobody(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN] = {0};
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_conn *none = NULL;

	(void)state;
	for (int listens = 0; listens < 2; listens++) {
		uint64_t start = test_now_ms();
		int fd = dead_end(listens, addr);

		assert_true(test_connect(x, addr, token, &none) < 0);
		assert_true(test_now_ms() - start < 8000);
		(void)close(fd);
		if (test_is("shm")) {
			(void)unlink(addr);
		}
	}
	assert_true(test_connect(x, "nonsense", token, &none) < 0);
	drain_close(x);
}

/* The time-out of an attempt wakes a sleeper. */
static void
cm_nobody_sleeping(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN] = {0};
	char addr[KVP_ADDR_LEN_MAX];
	uint64_t start = test_now_ms();
	struct kvp_conn *conn;
	struct test_io t;
	int rounds = 0;
	int fd = dead_end(true, addr);

	(void)state;
	test_io_init(&t);
	assert_int_equal(x->ops->connect(x, addr, token, &t.io, &conn), 0);
	while (t.done == 0) {
		int wait = x->ops->wait_fd(x);

		if (wait >= 0) {
			struct pollfd in = {.fd = wait, .events = POLLIN};

			assert_int_equal(poll(&in, 1, 8000), 1);
		}
		(void)x->ops->poll(x, 4);
		assert_true(rounds++ < 1000);
	}
	assert_true(t.status == -KVP_E_TIMEOUT || (test_is("verbs") && t.status < 0));
	assert_true(test_now_ms() - start < 8000);
	x->ops->disconnect(conn);
	(void)close(fd);
	if (test_is("shm")) {
		(void)unlink(addr);
	}
	drain_close(x);
}

static int
raw_connect(const char *addr)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct kvp_addr parsed;
	int fd;
	int ret;

	if (test_is("shm")) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		un_path(&un, addr);
		ret = connect(fd, (struct sockaddr *)&un, sizeof(un));
	} else {
		assert_int_equal(kvp_addr_parse(addr, -1, &parsed), 0);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		in.sin_port = htons(parsed.port);
		ret = connect(fd, (struct sockaddr *)&in, sizeof(in));
	}
	assert_int_equal(ret, 0);
	return fd;
}

/* Connectors that say nothing, or nonsense, keep nobody out. */
static void
cm_hostile(void **state)
{
	enum { COUNT = 100 };
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	uint8_t junk[300];
	struct test_target t;
	int fds[COUNT];
	uint64_t start;

	(void)state;
	if (test_is("verbs")) {
		skip(); /* who sends something else than a hello is in the kernel's hands */
	}
	test_target_open(&t, ARENA_SMALL);
	test_token(token);
	assert_int_equal(t.x->ops->admit(t.x, token), 0);
	test_fill(junk, sizeof(junk), 9);
	for (int i = 0; i < COUNT; i++) {
		fds[i] = raw_connect(t.addr);
		if (i % 2 == 0) {
			(void)send(fds[i], junk, 1 + (size_t)i * 2, MSG_NOSIGNAL);
		}
	}
	start = test_now_ms();
	for (int i = 0; i < 8; i++) {
		struct kvp_conn *conn = test_connect_ok(x, t.addr, token);

		x->ops->disconnect(conn);
		(void)x->ops->poll(x, 16);
	}
	assert_true(test_now_ms() - start < 4000);
	for (int i = 0; i < COUNT; i++) {
		(void)close(fds[i]);
	}
	drain_close(x);
	test_target_close(&t);
}

static void
many_once(struct kvp_xport *x, struct test_target *t, const uint8_t token[KVP_TOKEN_LEN])
{
	enum { COUNT = 64 };
	struct kvp_conn *conns[COUNT];
	struct test_io ios[COUNT];

	for (int i = 0; i < COUNT; i++) {
		test_io_init(&ios[i]);
		assert_int_equal(x->ops->connect(x, t->addr, token, &ios[i].io, &conns[i]), 0);
		if (i % 8 == 7) {
			assert_int_equal(test_io_wait(x, &ios[i]), 0);
		}
	}
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(ios[i].done == 1 ? ios[i].status : test_io_wait(x, &ios[i]), 0);
	}
	for (int i = 0; i < COUNT; i++) {
		x->ops->disconnect(conns[i]);
	}
	while (x->ops->poll(x, 64) > 0) {
	}
}

/* fds settle when the target has noticed too. */
static void
fds_settle(unsigned want)
{
	uint64_t end = test_now_ms() + TEST_WAIT_MS;

	while (test_fd_count() != want) {
		struct timespec ms = {.tv_nsec = 1000000};

		assert_true(test_now_ms() < end);
		(void)nanosleep(&ms, NULL);
	}
}

static void
cm_many(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	struct test_target t;
	unsigned fds;

	(void)state;
	test_target_open(&t, ARENA_SMALL);
	fds = test_fd_count();
	for (size_t round = 0; round < test_many(10); round++) {
		test_token(token);
		assert_int_equal(t.x->ops->admit(t.x, token), 0);
		many_once(x, &t, token);
		assert_int_equal(t.x->ops->fence(t.x, token), 0); /* all have disconnected */
		fds_settle(fds);
	}
	drain_close(x);
	test_target_close(&t);
}

static unsigned
dir_count(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	if (dir == NULL) {
		return 0;
	}
	while (readdir(dir) != NULL) {
		count++;
	}
	(void)closedir(dir);
	return count;
}

static void
cm_nothing_left(void **state)
{
	unsigned run = dir_count(test_dir);
	unsigned fds = test_fd_count();

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kvp_xport *x = test_open_ok(NULL);
		uint8_t token[KVP_TOKEN_LEN];
		struct test_target t;

		test_target_open(&t, ARENA_SMALL);
		test_token(token);
		assert_int_equal(t.x->ops->admit(t.x, token), 0);
		x->ops->disconnect(test_connect_ok(x, t.addr, token));
		drain_close(x);
		test_target_close(&t);
		fds_settle(fds);
		assert_int_equal(dir_count(test_dir), run);
	}
}

static void
cm_disconnect_posted(void **state)
{
	enum { COUNT = 64 };
	const size_t len = test_many(test_many(8u << 20));
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	struct test_child child;
	struct test_io ios[COUNT];
	struct test_buf buf;

	(void)state;
	test_token(token);
	test_child_start(&child, 32u << 20);
	test_child_admit(&child, token);
	test_buf_open(&buf, x, 32u << 20);
	for (int round = 0; round < 6; round++) {
		struct kvp_conn *conn = test_connect_ok(x, child.addr, token);
		struct kvp_seg seg = {.mr = buf.mr, .addr = buf.mem.base, .len = len};
		uint64_t end = test_now_ms() + TEST_WAIT_MS;
		int posted = 0;
		int done = 0;
		uint64_t sum;

		for (; posted < COUNT; posted++) {
			test_io_init(&ios[posted]);
			if (x->ops->read(conn, &seg, 1, &child.read_desc, 0, &ios[posted].io) !=
				0) {
				break;
			}
		}
		assert_int_equal(posted, COUNT);
		for (int i = 0; i < round; i++) {
			done += x->ops->poll(x, 1);
		}
		x->ops->disconnect(conn);
		while (done < posted && test_now_ms() < end) {
			done += x->ops->poll(x, 7);
		}
		assert_int_equal(done, posted);
		assert_int_equal(x->ops->poll(x, 64), 0);
		test_fill(buf.mem.base, len, 77); /* it is ours again */
		sum = test_sum(buf.mem.base, len);
		for (int i = 0; i < posted; i++) {
			assert_int_equal(ios[i].done, 1);
			assert_true(ios[i].status == 0 || ios[i].status == -KVP_E_CONNDOWN);
		}
		assert_int_equal(ios[COUNT - 1].status, -KVP_E_CONNDOWN);
		for (int i = 0; i < 20; i++) {
			(void)x->ops->poll(x, 16);
		}
		assert_true(test_sum(buf.mem.base, len) == sum);
	}
	test_buf_close(&buf);
	drain_close(x);
	test_child_stop(&child);
}

/* A target that dies ends reads in bounded time; where its memory stays mapped they succeed. */
static void
cm_target_killed(void **state)
{
	enum { COUNT = 16 };
	struct kvp_xport *x = test_open_ok(NULL);
	uint8_t token[KVP_TOKEN_LEN];
	struct test_child child;
	struct test_io ios[COUNT];
	struct kvp_conn *conn;
	struct test_buf buf;
	struct kvp_seg seg;

	(void)state;
	test_token(token);
	test_child_start(&child, 32u << 20);
	test_child_admit(&child, token);
	test_buf_open(&buf, x, 32u << 20);
	conn = test_connect_ok(x, child.addr, token);
	seg = (struct kvp_seg){.mr = buf.mr, .addr = buf.mem.base, .len = 32u << 20};
	for (int i = 0; i < COUNT; i++) {
		test_io_init(&ios[i]);
		assert_int_equal(x->ops->read(conn, &seg, 1, &child.read_desc, 0, &ios[i].io), 0);
	}
	(void)x->ops->poll(x, 1);
	test_child_kill(&child);
	for (int i = 0; i < COUNT; i++) {
		int status = ios[i].done == 1 ? ios[i].status : test_io_wait(x, &ios[i]);

		assert_true(status == 0 || (status == -KVP_E_CONNDOWN && !test_is("shm")));
	}
	if (!test_is("shm")) {
		assert_int_equal(ios[COUNT - 1].status, -KVP_E_CONNDOWN);
		assert_int_equal(test_read(x, conn, buf.mr, buf.mem.base, 8, &child.read_desc, 0),
			-KVP_E_CONNDOWN);
	} else {
		(void)unlink(child.addr); /* nobody else does */
	}
	x->ops->disconnect(conn);
	test_buf_close(&buf);
	drain_close(x);
}

static void
cm_addr_in_use(void **state)
{
	struct test_target t;
	struct kvp_xport *x = test_open_ok(NULL);
	char addr[KVP_ADDR_LEN_MAX];
	struct stat st;

	(void)state;
	test_target_open(&t, ARENA_SMALL);
	assert_int_equal(x->ops->listen(x, t.addr, addr), -EADDRINUSE);
	drain_close(x);
	if (test_is("shm")) {
		assert_int_equal(stat(t.addr, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0660);
	}
	test_target_close(&t);
	if (test_is("shm")) { /* what a killed target leaves is replaced */
		(void)close(dead_end(true, addr));
		x = test_open_ok(NULL);
		assert_int_equal(x->ops->listen(x, addr, t.addr), 0);
		drain_close(x);
		assert_int_equal(access(addr, F_OK), -1);
	}
}

static void
cm_idle(void **state)
{
	struct kvp_xport *x = test_open_ok(NULL);
	struct timespec nap = {.tv_nsec = 300 * 1000000};
	uint8_t token[KVP_TOKEN_LEN];
	struct test_cmd cmd = {.op = CMD_CPU_US};
	struct test_child child;
	struct kvp_conn *conns[8];
	struct test_buf buf;
	uint64_t before;

	(void)state;
	test_token(token);
	test_child_start(&child, ARENA_SMALL);
	test_child_admit(&child, token);
	test_buf_open(&buf, x, ARENA_SMALL);
	for (int i = 0; i < 8; i++) {
		conns[i] = test_connect_ok(x, child.addr, token);
		assert_int_equal(test_read(x, conns[i], buf.mr, buf.mem.base, ARENA_SMALL,
					 &child.read_desc, 0),
			0);
	}
	before = test_child_ask(&child, &cmd).value;
	(void)nanosleep(&nap, NULL);
	assert_true(test_child_ask(&child, &cmd).value - before < 6000); /* 2 % of 300 ms */
	for (int i = 0; i < 8; i++) {
		x->ops->disconnect(conns[i]);
	}
	test_buf_close(&buf);
	drain_close(x);
	test_child_stop(&child);
}

static void
cm_refused_providers(void **state)
{
	static const char *const names[] = {
		"shm", "udp", "sockets", "udp;ofi_rxd", "tcp;ofi_rxm", "efa", "no-such-provider"};

	(void)state;
	if (!test_is("ofi")) {
		skip();
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct kvp_xport *x = NULL;

		assert_int_equal(test_open((struct kvp_xport_cfg){.provider = names[i]}, &x),
			-KVP_E_NO_PROVIDER);
		assert_null(x);
	}
}

const struct CMUnitTest xport_cm_tests[] = {
	cmocka_unit_test(cm_token),
	cmocka_unit_test(cm_nobody),
	cmocka_unit_test(cm_nobody_sleeping),
	cmocka_unit_test(cm_hostile),
	cmocka_unit_test(cm_many),
	cmocka_unit_test(cm_nothing_left),
	cmocka_unit_test(cm_disconnect_posted),
	cmocka_unit_test(cm_target_killed),
	cmocka_unit_test(cm_addr_in_use),
	cmocka_unit_test(cm_idle),
	cmocka_unit_test(cm_refused_providers),
};
const size_t xport_cm_count = sizeof(xport_cm_tests) / sizeof(xport_cm_tests[0]);
