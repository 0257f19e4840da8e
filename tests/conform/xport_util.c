/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_util.c - helpers of the transport suite: targets, buffers, waiting.
 */
#include "tests/conform/xport_test.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

bool
test_is(const char *name)
{
	return strcmp(test_ops->name, name) == 0;
}

static const struct kvp_log *
test_log(void)
{
	static struct kvp_log log = {.level = KVP_LOG_DEBUG, .sink = kvp_log_stderr};

	return getenv("KVP_TEST_LOG") != NULL ? &log : NULL;
}

int
test_open(struct kvp_xport_cfg cfg, struct kvp_xport **ret_xport)
{
#ifdef XPORT_FAULT
	static struct kvp_fault_plan never;
#endif
	char prefix[96];

	(void)snprintf(prefix, sizeof(prefix), "%s/session-", test_dir);
	cfg.lock_prefix = prefix;
	cfg.env = kvp_env_real();
	cfg.log = test_log();
#ifdef XPORT_FAULT
	return kvp_fault_open(test_ops, &cfg, &never, ret_xport);
#else
	return test_ops->open(&cfg, ret_xport);
#endif
}

struct kvp_xport *
test_open_ok(struct kvp_xport *share)
{
	struct kvp_xport *x = NULL;

	assert_int_equal(test_open((struct kvp_xport_cfg){.share = share}, &x), 0);
	assert_non_null(x);
	return x;
}

const char *
test_host(void)
{
	const char *host = getenv("KVP_TEST_HOST");

	return host != NULL ? host : "127.0.0.1";
}

size_t
test_many(size_t n)
{
	return getenv("KVP_TEST_SLOW") != NULL ? (n + 3) / 4 : n;
}

void
test_listen_addr(char addr[KVP_ADDR_LEN_MAX])
{
	static unsigned count;

	if (test_is("shm")) {
		(void)snprintf(
			addr, KVP_ADDR_LEN_MAX, "%s/%d-%u.sock", test_dir, getpid(), count++);
	} else {
		(void)snprintf(addr, KVP_ADDR_LEN_MAX, "%s:0", test_host());
	}
}

void
test_token(uint8_t token[KVP_TOKEN_LEN])
{
	kvp_env_real()->random(kvp_env_real(), token, KVP_TOKEN_LEN);
}

static uint64_t
mix(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	v ^= v >> 29;
	return v;
}

/* Every byte depends on its place. */
void
test_fill(void *buf, size_t len, uint64_t seed)
{
	unsigned char *to = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = mix(seed + i);

		memcpy(to + i, &v, len - i < 8 ? len - i : 8);
	}
}

uint64_t
test_sum(const void *buf, size_t len)
{
	const unsigned char *from = buf;
	uint64_t sum = 0;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = 0;

		memcpy(&v, from + i, len - i < 8 ? len - i : 8);
		sum = mix(sum ^ v) + i;
	}
	return sum;
}

uint64_t
test_now_ms(void)
{
	return kvp_now_ns(kvp_env_real()) / KVP_NS_PER_MS;
}

unsigned
test_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	(void)closedir(dir);
	return count;
}

void
test_target_open(struct test_target *t, size_t len)
{
	const struct kvp_mem_cfg cfg = {.len = len, .mode = 0600};
	char addr[KVP_ADDR_LEN_MAX];

	memset(t, 0, sizeof(*t));
	t->x = test_open_ok(NULL);
	assert_int_equal(kvp_mem_create(&cfg, &t->mem), 0);
	assert_int_equal(t->x->ops->mr_reg(t->x, &t->mem, KVP_MR_REMOTE_READ, &t->read_mr), 0);
	assert_int_equal(t->x->ops->mr_reg(t->x, &t->mem, KVP_MR_REMOTE_WRITE, &t->write_mr), 0);
	t->x->ops->mr_rdesc(t->read_mr, &t->read_desc);
	t->x->ops->mr_rdesc(t->write_mr, &t->write_desc);
	test_listen_addr(addr);
	assert_int_equal(t->x->ops->listen(t->x, addr, t->addr), 0);
}

void
test_target_close(struct test_target *t)
{
	const struct kvp_xport_ops *ops = t->x->ops;

	ops->mr_dereg(t->read_mr);
	ops->mr_dereg(t->write_mr);
	ops->close(t->x);
	kvp_mem_close(&t->mem);
}

static void
test_done(struct kvp_io *io)
{
	struct test_io *t = kvp_container_of(io, struct test_io, io);

	t->done++;
	t->status = io->status;
}

void
test_io_init(struct test_io *t)
{
	memset(t, 0, sizeof(*t));
	t->io.done = test_done;
}

int
test_io_wait(struct kvp_xport *x, struct test_io *t)
{
	uint64_t end = test_now_ms() + TEST_WAIT_MS;

	while (t->done == 0) {
		assert_true(x->ops->poll(x, 16) >= 0);
		assert_true(test_now_ms() < end);
	}
	assert_int_equal(t->done, 1);
	return t->status;
}

int
test_connect(struct kvp_xport *x, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_conn **ret_conn)
{
	struct test_io t;
	struct kvp_conn *conn = NULL;
	int ret;

	test_io_init(&t);
	ret = x->ops->connect(x, addr, token, &t.io, &conn);
	if (ret != 0) {
		return ret;
	}
	assert_int_equal(t.done, 0); /* posting never calls back */
	ret = test_io_wait(x, &t);
	if (ret != 0) {
		x->ops->disconnect(conn);
		return ret;
	}
	*ret_conn = conn;
	return 0;
}

struct kvp_conn *
test_connect_ok(struct kvp_xport *x, const char *addr, const uint8_t token[KVP_TOKEN_LEN])
{
	struct kvp_conn *conn = NULL;

	assert_int_equal(test_connect(x, addr, token, &conn), 0);
	assert_non_null(conn);
	return conn;
}

int
test_read(struct kvp_xport *x, struct kvp_conn *conn, struct kvp_mr *mr, void *buf, size_t len,
	const struct kvp_rdesc *rdesc, uint64_t off)
{
	const struct kvp_seg seg = {.mr = mr, .addr = buf, .len = len};
	struct test_io t;
	int ret;

	test_io_init(&t);
	ret = x->ops->read(conn, &seg, 1, rdesc, off, &t.io);
	return ret != 0 ? ret : test_io_wait(x, &t);
}

int
test_write(struct kvp_xport *x, struct kvp_conn *conn, struct kvp_mr *mr, void *buf, size_t len,
	const struct kvp_rdesc *rdesc, uint64_t off)
{
	const struct kvp_seg seg = {.mr = mr, .addr = buf, .len = len};
	struct test_io t;
	int ret;

	test_io_init(&t);
	ret = x->ops->write(conn, &seg, 1, rdesc, off, &t.io);
	return ret != 0 ? ret : test_io_wait(x, &t);
}

void
test_buf_open(struct test_buf *b, struct kvp_xport *x, size_t len)
{
	void *base = NULL;

	assert_int_equal(posix_memalign(&base, 4096, len), 0);
	b->mem = kvp_mem_wrap(base, len);
	b->x = x;
	assert_int_equal(x->ops->mr_reg(x, &b->mem, KVP_MR_LOCAL, &b->mr), 0);
}

void
test_buf_close(struct test_buf *b)
{
	b->x->ops->mr_dereg(b->mr);
	free(b->mem.base);
}
