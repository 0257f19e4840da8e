/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_data.c - bytes: they arrive whole, only where they should, and completions mean it.
 */
#include "tests/conform/xport_test.h"

#include <poll.h>

#define ARENA_SMALL (4u << 20)

/* A connected pair, the target in a child process or in this one. */
struct pair {
	bool in_child;
	struct test_child child;
	struct test_target target;
	struct kvp_xport *x;
	struct kvp_conn *conn;
	struct test_buf buf;
	const char *addr;
	struct kvp_rdesc read_desc;
	struct kvp_rdesc write_desc;
	uint8_t token[KVP_TOKEN_LEN];
};

static void
pair_open(struct pair *p, bool in_child, size_t len)
{
	memset(p, 0, sizeof(*p));
	p->in_child = in_child;
	test_token(p->token);
	if (in_child) {
		test_child_start(&p->child, len);
		test_child_admit(&p->child, p->token);
		p->addr = p->child.addr;
		p->read_desc = p->child.read_desc;
		p->write_desc = p->child.write_desc;
	} else {
		test_target_open(&p->target, len);
		assert_int_equal(p->target.x->ops->admit(p->target.x, p->token), 0);
		p->addr = p->target.addr;
		p->read_desc = p->target.read_desc;
		p->write_desc = p->target.write_desc;
	}
	p->x = test_open_ok(NULL);
	test_buf_open(&p->buf, p->x, len);
	p->conn = test_connect_ok(p->x, p->addr, p->token);
}

static void
pair_close(struct pair *p)
{
	p->x->ops->disconnect(p->conn);
	(void)p->x->ops->poll(p->x, 64);
	test_buf_close(&p->buf);
	p->x->ops->close(p->x);
	if (p->in_child) {
		test_child_stop(&p->child);
	} else {
		test_target_close(&p->target);
	}
}

static char *
pair_at(const struct pair *p, size_t off)
{
	return (char *)p->buf.mem.base + off;
}

/* Cuts len bytes at base into count pieces of odd sizes. */
static void
cut(struct kvp_seg *segs, uint32_t count, struct kvp_mr *mr, char *base, size_t len)
{
	for (uint32_t i = 0; i < count; i++) {
		size_t left = count - 1 - i;
		size_t most = len - left; /* at least a byte for each that follows */
		size_t take = left == 0
				      ? len
				      : 1 + kvp_random_below(kvp_env_real(), 2 * len / (left + 1));

		take = take < most ? take : most;
		segs[i] = (struct kvp_seg){.mr = mr, .addr = base, .len = take};
		base += take;
		len -= take;
	}
}

static void
round_trip(struct pair *p, uint32_t count, size_t len, uint64_t off)
{
	struct kvp_seg segs[KVP_SEGS_MAX];
	struct test_io t;
	char *buf = pair_at(p, 0);
	uint64_t sum;

	test_fill(buf, len, off + len);
	sum = test_sum(buf, len);
	cut(segs, count, p->buf.mr, buf, len);
	test_io_init(&t);
	assert_int_equal(p->x->ops->write(p->conn, segs, count, &p->write_desc, off, &t.io), 0);
	assert_int_equal(test_io_wait(p->x, &t), 0);
	memset(buf, 0, len);
	cut(segs, count, p->buf.mr, buf, len);
	test_io_init(&t);
	assert_int_equal(p->x->ops->read(p->conn, segs, count, &p->read_desc, off, &t.io), 0);
	assert_int_equal(test_io_wait(p->x, &t), 0);
	assert_true(test_sum(buf, len) == sum);
}

static void
round_trips(bool in_child)
{
	static const uint32_t counts[] = {1, 2, 3, 4, 5, 8, 9, 31, 64, 65, 255, 256};
	struct pair p;

	pair_open(&p, in_child, ARENA_SMALL);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		uint32_t count = counts[i];

		round_trip(&p, count, count, 0);
		for (int n = 0; n < 8; n++) {
			size_t len = count + kvp_random_below(kvp_env_real(), 1u << (8 + n));
			uint64_t off = kvp_random_below(kvp_env_real(), ARENA_SMALL - len);

			round_trip(&p, count, len, off);
		}
		round_trip(&p, count, 70001, ARENA_SMALL - 70001);
	}
	pair_close(&p);
}

static void
data_round_trip_child(void **state)
{
	(void)state;
	round_trips(true);
}

static void
data_round_trip_here(void **state)
{
	(void)state;
	round_trips(false);
}

static void
data_large(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, false, TEST_ARENA_LEN);
	round_trip(&p, 1, 1u << 20, 4096);
	round_trip(&p, 7, test_many(16u << 20), 12345);
	round_trip(&p, 1, test_many(64u << 20), 4096);
	round_trip(&p, 256, test_many(64u << 20), 8191);
	pair_close(&p);
}

/* Refused at once or by the other side; in any case nothing else is hurt. Returns the error. */
static int
refused(struct pair *p, bool write, const struct kvp_rdesc *rdesc, uint64_t off, size_t len)
{
	struct kvp_conn *conn = test_connect_ok(p->x, p->addr, p->token);
	int ret = write ? test_write(p->x, conn, p->buf.mr, pair_at(p, 0), len, rdesc, off)
			: test_read(p->x, conn, p->buf.mr, pair_at(p, 0), len, rdesc, off);

	assert_true(ret < 0);
	assert_int_not_equal(ret, -EAGAIN);
	p->x->ops->disconnect(conn);
	(void)p->x->ops->poll(p->x, 64);
	/* The pair's own connection has seen nothing of it. */
	assert_int_equal(
		test_read(p->x, p->conn, p->buf.mr, pair_at(p, 4096), 64, &p->read_desc, 0), 0);
	return ret;
}

static void
data_bounds(void **state)
{
	static const uint64_t end = ARENA_SMALL;
	static const struct {
		uint64_t off;
		size_t len;
	} bad[] = {
		{ARENA_SMALL, 1},
		{ARENA_SMALL + 1, 1},
		{ARENA_SMALL - 1, 2},
		{1, ARENA_SMALL},
		{1ull << 32, 1},
		{UINT64_MAX, 1},
		{UINT64_MAX, 2},
		{UINT64_MAX - 4095, 8192},
		{1ull << 63, 64},
	};
	struct pair p;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	assert_int_equal(
		test_read(p.x, p.conn, p.buf.mr, pair_at(&p, 0), 1, &p.read_desc, end - 1), 0);
	assert_int_equal(
		test_write(p.x, p.conn, p.buf.mr, pair_at(&p, 0), 1, &p.write_desc, end - 1), 0);
	assert_int_equal(test_read(p.x, p.conn, p.buf.mr, pair_at(&p, 0), end, &p.read_desc, 0), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(refused(&p, false, &p.read_desc, bad[i].off, bad[i].len), -EINVAL);
		assert_int_equal(refused(&p, true, &p.write_desc, bad[i].off, bad[i].len), -EINVAL);
	}
	pair_close(&p);
}

/* Descriptors that are not what this target gave out. */
static void
data_rdesc(void **state)
{
	struct test_target other;
	struct kvp_rdesc bad;
	struct pair p;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	test_target_open(&other, ARENA_SMALL);
	refused(&p, false, &other.read_desc, 0, 64); /* of another target */
	refused(&p, true, &other.write_desc, 0, 64);
	test_target_close(&other);
	refused(&p, true, &p.read_desc, 0, 64);   /* for reading only */
	refused(&p, false, &p.write_desc, 0, 64); /* for writing only */
	bad = p.read_desc;
	bad.len = 0;
	refused(&p, false, &bad, 0, 64);
	bad.len = KVP_RDESC_LEN_MAX;
	refused(&p, false, &bad, 0, 64);
	memset(&bad, 0xa5, sizeof(bad));
	bad.len = p.read_desc.len;
	refused(&p, false, &bad, 0, 64);
	for (unsigned i = 0; i < p.read_desc.len;
		i++) { /* any byte made larger: a range or a key */
		bad = p.read_desc;
		bad.bytes[i] = 0xff;
		if (bad.bytes[i] != p.read_desc.bytes[i]) {
			refused(&p, false, &bad, ARENA_SMALL, 64);
		}
	}
	pair_close(&p);
}

static void
data_visible(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	for (int i = 0; i < 200; i++) {
		struct test_cmd cmd = {.op = CMD_SUM};

		cmd.len = 1 + kvp_random_below(kvp_env_real(), i % 10 == 0 ? 1u << 20 : 1u << 16);
		cmd.off = kvp_random_below(kvp_env_real(), ARENA_SMALL - cmd.len);
		test_fill(pair_at(&p, 0), cmd.len, (uint64_t)i);
		assert_int_equal(test_write(p.x, p.conn, p.buf.mr, pair_at(&p, 0), cmd.len,
					 &p.write_desc, cmd.off),
			0);
		assert_true(
			test_child_ask(&p.child, &cmd).value == test_sum(pair_at(&p, 0), cmd.len));
	}
	pair_close(&p);
}

/* Posts until it is full; nothing of what was refused happens, all else completes once. */
static void
fill_up(struct pair *p, struct kvp_seg *segs, uint32_t count, uint32_t most)
{
	struct test_io *ios = calloc(most, sizeof(*ios));
	uint32_t posted = 0;
	int ret = 0;

	assert_non_null(ios);
	for (int round = 0; round < 3; round++) {
		uint64_t end = test_now_ms() + TEST_WAIT_MS;
		uint32_t done = 0;

		for (posted = 0; posted < most; posted++) {
			test_io_init(&ios[posted]);
			ret = p->x->ops->read(
				p->conn, segs, count, &p->read_desc, 0, &ios[posted].io);
			if (ret != 0) {
				break;
			}
		}
		assert_int_equal(ret, -EAGAIN);
		assert_true(posted >= 1 && posted < most);
		while (done < posted && test_now_ms() < end) {
			int n = p->x->ops->poll(p->x, 3);

			assert_in_range(n, 0, 3);
			done += (uint32_t)n;
		}
		assert_int_equal(done, posted);
		for (uint32_t i = 0; i < posted; i++) {
			assert_int_equal(ios[i].done, 1);
			assert_int_equal(ios[i].status, 0);
		}
		assert_int_equal(ios[posted].done, 0);
	}
	free(ios);
}

static void
data_full(void **state)
{
	struct kvp_seg segs[KVP_SEGS_MAX];
	struct pair p;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	cut(segs, 1, p.buf.mr, pair_at(&p, 0), 4096);
	fill_up(&p, segs, 1, 4096);
	cut(segs, KVP_SEGS_MAX, p.buf.mr, pair_at(&p, 0), 100000);
	fill_up(&p, segs, KVP_SEGS_MAX, 4096);
	pair_close(&p);
}

/* Sleeps whenever it may: every completion must wake it. */
static void
data_wait(void **state)
{
	struct pair p;
	int slept = 0;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	for (int i = 0; i < 1000; i++) {
		size_t len = i % 50 == 0 ? 1u << 20 : 1 + (size_t)i * 7;
		struct kvp_seg seg = {.mr = p.buf.mr, .addr = pair_at(&p, 0), .len = len};
		struct test_io t;

		test_io_init(&t);
		if (i % 3 == 0) {
			assert_int_equal(
				p.x->ops->write(p.conn, &seg, 1, &p.write_desc, 0, &t.io), 0);
		} else {
			assert_int_equal(
				p.x->ops->read(p.conn, &seg, 1, &p.read_desc, 0, &t.io), 0);
		}
		while (t.done == 0) {
			int fd = p.x->ops->wait_fd(p.x);

			if (fd >= 0) {
				struct pollfd wait = {.fd = fd, .events = POLLIN};

				assert_int_equal(poll(&wait, 1, TEST_WAIT_MS), 1);
				slept++;
			} else {
				assert_int_equal(fd, -EAGAIN);
			}
			(void)p.x->ops->poll(p.x, 16);
		}
		assert_int_equal(t.status, 0);
	}
	/* Nothing is left: it may sleep and is not woken. */
	for (int tries = 0; tries < 100; tries++) {
		int fd = p.x->ops->wait_fd(p.x);
		struct pollfd wait = {.fd = fd, .events = POLLIN};

		if (fd >= 0 && poll(&wait, 1, 20) == 0) {
			break;
		}
		(void)p.x->ops->poll(p.x, 16);
		assert_true(tries < 99);
	}
	if (!test_is("shm") && !test_is("verbs")) { /* Soft-RoCE often moves data while posting */
		assert_true(slept > 100);
	}
	pair_close(&p);
}

/* Memory registered on one xport works on those that share it. */
static void
data_share(void **state)
{
	struct kvp_xport *second;
	struct kvp_conn *conn;
	struct pair p;

	(void)state;
	pair_open(&p, true, ARENA_SMALL);
	second = test_open_ok(p.x);
	conn = test_connect_ok(second, p.addr, p.token);
	test_fill(pair_at(&p, 0), 50000, 3);
	assert_int_equal(
		test_write(p.x, p.conn, p.buf.mr, pair_at(&p, 0), 50000, &p.write_desc, 64), 0);
	assert_int_equal(
		test_read(second, conn, p.buf.mr, pair_at(&p, 65536), 50000, &p.read_desc, 64), 0);
	assert_memory_equal(pair_at(&p, 0), pair_at(&p, 65536), 50000);
	second->ops->disconnect(conn);
	(void)second->ops->poll(second, 16);
	second->ops->close(second);
	assert_int_equal(test_read(p.x, p.conn, p.buf.mr, pair_at(&p, 0), 10, &p.read_desc, 0), 0);
	pair_close(&p);
}

/* With ORDERED, a read posted later never shows an older state than one posted before. */
static void
data_ordered(void **state)
{
	struct pair p;
	struct test_io t[2];
	uint64_t *words;

	(void)state;
	if (!(test_ops->caps & KVP_XPORT_ORDERED)) {
		skip();
	}
	pair_open(&p, false, ARENA_SMALL);
	words = (uint64_t *)(void *)pair_at(&p, 0);
	for (uint64_t i = 1; i < 1000; i++) {
		struct kvp_seg first = {.mr = p.buf.mr, .addr = &words[0], .len = 8};
		struct kvp_seg second = {.mr = p.buf.mr, .addr = &words[1], .len = 8};

		test_io_init(&t[0]);
		test_io_init(&t[1]);
		assert_int_equal(p.x->ops->read(p.conn, &first, 1, &p.read_desc, 0, &t[0].io), 0);
		assert_int_equal(p.x->ops->read(p.conn, &second, 1, &p.read_desc, 0, &t[1].io), 0);
		__atomic_store_n((uint64_t *)p.target.mem.base, i, __ATOMIC_RELEASE);
		assert_int_equal(test_io_wait(p.x, &t[1]), 0);
		assert_int_equal(t[0].done, 1);
		assert_true(words[1] >= words[0]);
	}
	pair_close(&p);
}

/* A connection ended in the middle of a read: its memory stays alone from then on, and what others
 * of the same transport do afterwards is not mixed up. */
static void
data_cut_in_read(void **state)
{
	const size_t len = 32u << 20;
	const size_t part = 4u << 20;
	struct pair p;

	(void)state;
	pair_open(&p, true, len);
	for (uint32_t round = 0; round < 8; round++) {
		struct kvp_seg whole = {.mr = p.buf.mr, .addr = pair_at(&p, 0), .len = len};
		volatile char *first = pair_at(&p, 0);
		struct test_io t[4];
		uint64_t sums[4];

		test_child_ask(&p.child, &(struct test_cmd){.op = CMD_FILL, .len = len, .seed = 5});
		memset(pair_at(&p, 0), 0, len);
		test_io_init(&t[0]);
		assert_int_equal(p.x->ops->read(p.conn, &whole, 1, &p.read_desc, 0, &t[0].io), 0);
		for (uint32_t n = 0; n < 100000 && t[0].done == 0 && *first == 0; n++) {
			(void)p.x->ops->poll(p.x, 64);
		}
		p.x->ops->disconnect(p.conn);
		(void)test_io_wait(p.x, &t[0]);
		p.conn = test_connect_ok(p.x, p.addr, p.token);
		for (uint32_t i = 0; i < 4; i++) {
			struct kvp_seg seg = {
				.mr = p.buf.mr, .addr = pair_at(&p, i * part), .len = part};

			test_fill(pair_at(&p, i * part), part, 100 * round + i);
			sums[i] = test_sum(pair_at(&p, i * part), part);
			test_io_init(&t[i]);
			assert_int_equal(
				p.x->ops->write(p.conn, &seg, 1, &p.write_desc, i * part, &t[i].io),
				0);
		}
		for (uint32_t i = 0; i < 4; i++) {
			struct test_reply reply;

			assert_int_equal(test_io_wait(p.x, &t[i]), 0);
			reply = test_child_ask(&p.child,
				&(struct test_cmd){.op = CMD_SUM, .off = i * part, .len = part});
			assert_true(reply.value == sums[i]);
		}
	}
	pair_close(&p);
}

const struct CMUnitTest xport_data_tests[] = {
	cmocka_unit_test(data_round_trip_child),
	cmocka_unit_test(data_round_trip_here),
	cmocka_unit_test(data_large),
	cmocka_unit_test(data_bounds),
	cmocka_unit_test(data_rdesc),
	cmocka_unit_test(data_visible),
	cmocka_unit_test(data_full),
	cmocka_unit_test(data_wait),
	cmocka_unit_test(data_share),
	cmocka_unit_test(data_ordered),
	cmocka_unit_test(data_cut_in_read),
};
const size_t xport_data_count = sizeof(xport_data_tests) / sizeof(xport_data_tests[0]);
