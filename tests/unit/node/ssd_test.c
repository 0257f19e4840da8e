/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_test.c - a node with an SSD tier in real files, on each engine, and on one that fails and
 * loses power when told to. Time is virtual; the disk is waited for.
 */
#include "hal/blk/fault.h"
#include "pool/node/ssd_impl.h"
#include "tests/unit/node/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK    16384u
#define ARENA    (256u * 1024) /* 16 blocks */
#define SEGMENT  (1024u * 1024)
#define SEGMENTS 4u
#define WAITS    2000 /* turns of 10 ms of virtual time, in which the disk must have answered */

struct ssd_test {
	struct fake fake;
	struct kvp_ssd_cfg cfg;
	struct kvp_blk_fault plan;
	struct fake_conn *conn;
	char dir[64];
};

static void
ssd_open(struct ssd_test *t)
{
	fake_init(&t->fake);
	t->fake.cfg.arena_len = ARENA;
	t->fake.cfg.quarantine_ms = 20;
	t->fake.cfg.grant_ms = 60000; /* virtual time runs ahead of a busy machine's disk */
	t->fake.cfg.self.incarnation = t->fake.cfg.self.incarnation + 1;
	t->fake.cfg.ssd = &t->cfg;
	fake_open(&t->fake);
	t->conn = fake_session(&t->fake);
}

static void
ssd_init(struct ssd_test *t, const char *engine)
{
	memset(t, 0, sizeof(*t));
	(void)snprintf(t->dir, sizeof(t->dir), "/tmp/kvp-ssd.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	t->cfg = (struct kvp_ssd_cfg){
		.path = t->dir,
		.size = SEGMENTS * SEGMENT,
		.segment = SEGMENT,
		.slots = 256,
		.io_max = 8192,
		.inflight = 1 << 20,
		.read_budget = 1 << 20,
		.flush_ms = 50,
		.engine = engine,
	};
	assert_null(kvp_ssd_cfg_problem(&t->cfg));
}

static void
ssd_faulty(struct ssd_test *t)
{
	ssd_init(t, NULL);
	t->cfg.ops = &kvp_blk_fault;
	t->cfg.ops_arg = &t->plan;
}

static void
ssd_fini(struct ssd_test *t)
{
	char cmd[128];

	fake_close(&t->fake);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", t->dir);
	assert_int_equal(system(cmd), 0);
}

static struct kvp_ssd *
ssd_of(struct ssd_test *t)
{
	return t->fake.node->ssd;
}

/* Lets 10 ms pass, and the disk a moment. */
static void
ssd_step(struct ssd_test *t)
{
	(void)poll(NULL, 0, 1);
	fake_run_ms(&t->fake, 10);
}

static uint64_t
metric(struct ssd_test *t, enum kvp_node_metric idx)
{
	kvp_node_metrics_set(t->fake.node);
	return kvp_metric_get(&t->fake.metrics, idx);
}

static void
ssd_wait(struct ssd_test *t, enum kvp_node_metric idx, uint64_t value)
{
	for (int i = 0; i < WAITS; i++) {
		if (metric(t, idx) == value) {
			return;
		}
		ssd_step(t);
	}
	fail_msg("metric %d is %llu, not %llu", idx, (unsigned long long)metric(t, idx),
		(unsigned long long)value);
}

static void
ssd_serve(struct ssd_test *t)
{
	ssd_open(t);
	ssd_wait(t, KVP_NODE_SSD_SERVING, 1);
}

static void
block_fill(uint8_t *bytes, uint32_t number)
{
	for (uint32_t i = 0; i < BLOCK; i++) {
		bytes[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
	}
}

/* Puts one block, its bytes into the arena; hashed: with its checksum. */
static void
block_put(struct ssd_test *t, uint32_t number, bool hashed)
{
	struct kvp_key key = fake_key(number);
	struct kvp_sum_state *state = kvp_sum_new();
	Kvp__Commit msg = KVP__COMMIT__INIT;
	uint8_t sum[KVP_SUM_LEN] = {0};
	struct fake_offer offer = {0};
	uint8_t *bytes;

	for (int i = 0; offer.granted == 0; i++) {
		assert_true(i < WAITS);
		if (i > 0) {
			fake_offer_free(&offer);
			ssd_step(t);
		}
		offer = fake_offer(t->conn, number, 1, BLOCK);
	}
	bytes = (uint8_t *)t->fake.arena + offer.grants[0].off;
	block_fill(bytes, number);
	if (hashed) {
		kvp_sum_begin(state, fake_ns, &key, BLOCK);
		kvp_sum_update(state, bytes, BLOCK);
		kvp_sum_end(state, sum);
	}
	kvp_sum_free(state);
	msg.grants = kvp_bytes(offer.grants, sizeof(offer.grants[0]));
	msg.sums = kvp_bytes(sum, sizeof(sum));
	assert_int_equal(fake_ask(t->conn, KVP_RPC_COMMIT, &msg.base), 0);
	fake_offer_free(&offer);
}

static void
blocks_put(struct ssd_test *t, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		block_put(t, first + i, (first + i) % 3 > 0);
	}
}

/* Asks for one block; its status. Right bytes, always. */
static int32_t
block_stage(struct ssd_test *t, uint32_t number)
{
	Kvp__Stage msg = KVP__STAGE__INIT;
	const Kvp__StageReply *reply;
	struct kvp_key key = fake_key(number);
	ProtobufCMessage *answer;
	struct fake_call *call;
	uint8_t packed[1 + KVP_KEY_LEN_MAX];
	uint8_t want[BLOCK];
	struct kvp_loc loc;
	int32_t status;

	packed[0] = key.len;
	memcpy(packed + 1, key.bytes, key.len);
	msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	msg.keys = kvp_bytes(packed, 1 + (size_t)key.len);
	msg.wait_ms = 60000;
	call = fake_call(t->conn, KVP_RPC_STAGE, &msg.base);
	for (int i = 0; !call->replied; i++) {
		assert_true(i < WAITS);
		ssd_step(t);
	}
	answer = fake_reply(call);
	reply = (const Kvp__StageReply *)answer;
	assert_int_equal(reply->statuses.len, sizeof(status));
	memcpy(&status, reply->statuses.data, sizeof(status));
	assert_int_equal(reply->locations.len, status == 0 ? sizeof(loc) : 0);
	if (status == 0) {
		memcpy(&loc, reply->locations.data, sizeof(loc));
		assert_int_equal(loc.tier, KVP_TIER_DRAM);
		assert_true(kvp_slot_matches(&t->fake.table[loc.slot], fake_ns, &key, &loc));
		block_fill(want, number);
		assert_memory_equal((uint8_t *)t->fake.arena + loc.off, want, BLOCK);
	}
	protobuf_c_message_free_unpacked(answer, NULL);
	fake_call_free(call);
	return status;
}

static uint32_t
blocks_stage(struct ssd_test *t, uint32_t first, uint32_t count)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		int32_t status = block_stage(t, first + i);

		if (status != 0 && status != -KVP_E_NOKEY) {
			fail_msg("block %u: %s", first + i, kvp_err_str(status));
		}
		found += status == 0;
	}
	return found;
}

static void
flow(const char *engine)
{
	struct ssd_test t;

	ssd_init(&t, engine);
	ssd_serve(&t);
	blocks_put(&t, 0, 64);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_DROPPED_FULL), 0);
	assert_true(metric(&t, KVP_NODE_SSD_WRITES) >= 48);
	assert_true(metric(&t, KVP_NODE_SSD_HASHED) >= 16);
	assert_int_equal(blocks_stage(&t, 0, 64), 64);
	assert_true(metric(&t, KVP_NODE_SSD_STAGED) >= 48);
	assert_int_equal(metric(&t, KVP_NODE_COMMITS), 64);
	/* What was staged is on the SSD: it is not written again. */
	assert_true(metric(&t, KVP_NODE_SSD_WRITES) <= 64);
	assert_int_equal(block_stage(&t, 999), -KVP_E_NOKEY);
	/* Again, as after a crash: nothing is told to the disk at the end but what it has. */
	fake_close(&t.fake);
	ssd_serve(&t);
	assert_true(metric(&t, KVP_NODE_SSD_RECOVERED) >= 48);
	assert_int_equal(blocks_stage(&t, 0, 48), 48);
	ssd_fini(&t);
}

static void
test_flow_threads(void **state)
{
	(void)state;
	flow("threads");
}

static void
test_flow_uring(void **state)
{
	(void)state;
	flow("auto"); /* uring where it is permitted */
}

/* Segments are filled again; what is left is right, and every number agrees. */
static void
test_wraps(void **state)
{
	struct ssd_test t;
	uint32_t found;

	(void)state;
	ssd_init(&t, "threads");
	ssd_serve(&t);
	blocks_put(&t, 0, 400);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	assert_true(metric(&t, KVP_NODE_SSD_EVICTED) > 0);
	assert_true(metric(&t, KVP_NODE_SSD_BLOCKS) > 2 * 60);
	assert_int_equal(
		metric(&t, KVP_NODE_SSD_BYTES_USED), metric(&t, KVP_NODE_SSD_BLOCKS) * BLOCK);
	found = blocks_stage(&t, 0, 400);
	assert_true(found > 2 * 60);
	assert_int_equal(metric(&t, KVP_NODE_SSD_BAD_SUMS), 0);
	ssd_fini(&t);
}

static void
test_through_and_delete(void **state)
{
	struct ssd_test t;
	struct kvp_key key = fake_key(3);

	(void)state;
	ssd_init(&t, "threads");
	t.cfg.policy = KVP_SSD_THROUGH;
	ssd_serve(&t);
	blocks_put(&t, 0, 8);
	ssd_wait(&t, KVP_NODE_SSD_WRITES, 8);
	assert_int_equal(kvp_ssd_delete(ssd_of(&t), fake_ns, &key), 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_BLOCKS), 7);
	fake_run_ms(&t.fake, 100);
	fake_close(&t.fake);
	ssd_serve(&t);
	assert_int_equal(metric(&t, KVP_NODE_SSD_RECOVERED), 7);
	assert_int_equal(block_stage(&t, 3), -KVP_E_NOKEY);
	assert_int_equal(blocks_stage(&t, 0, 8), 7);
	ssd_fini(&t);
}

static void
test_second_use(void **state)
{
	struct ssd_test t;
	struct fake_offer offer;

	(void)state;
	ssd_init(&t, "threads");
	t.cfg.policy = KVP_SSD_SECOND_USE;
	ssd_serve(&t);
	blocks_put(&t, 0, 16);
	offer = fake_offer(t.conn, 0, 1, BLOCK); /* a second writer: it is used */
	assert_int_equal(offer.existing, 1);
	fake_offer_free(&offer);
	blocks_put(&t, 100, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_WRITES), 1);
	assert_true(metric(&t, KVP_NODE_SSD_DROPPED_UNUSED) >= 20);
	assert_int_equal(block_stage(&t, 0), 0);
	ssd_fini(&t);
}

/* A disk that refuses writes: the tier is read only, the service goes on, it resumes by itself. */
static void
fails(int err)
{
	struct ssd_test t;
	uint64_t written;

	ssd_faulty(&t);
	ssd_serve(&t);
	blocks_put(&t, 0, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	written = metric(&t, KVP_NODE_SSD_WRITES);
	assert_true(written >= 24);
	t.plan.ops = 1u << KVP_BLK_WRITE;
	t.plan.err = err;
	t.plan.nth = 1;
	t.plan.again = UINT32_MAX;
	blocks_put(&t, 100, 40);
	assert_int_equal(metric(&t, KVP_NODE_SSD_WRITING), 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_DEGRADED), 1);
	assert_true(metric(&t, KVP_NODE_SSD_WRITE_ERRORS) >= 1);
	assert_true(metric(&t, KVP_NODE_SSD_DROPPED_OFF) > 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_QUEUED), 0);
	assert_int_equal(blocks_stage(&t, 0, 20), 20); /* reads go on */
	assert_int_equal(
		metric(&t, KVP_NODE_SSD_BYTES_USED), metric(&t, KVP_NODE_SSD_BLOCKS) * BLOCK);
	fake_run_ms(&t.fake, 3000);
	assert_int_equal(metric(&t, KVP_NODE_SSD_WRITING), 0); /* probes have failed */
	t.plan.nth = 0;
	t.plan.again = 0;
	ssd_wait(&t, KVP_NODE_SSD_WRITING, 1);
	blocks_put(&t, 200, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	assert_true(metric(&t, KVP_NODE_SSD_WRITES) >= written + 24);
	assert_int_equal(blocks_stage(&t, 200, 40), 40);
	assert_int_equal(metric(&t, KVP_NODE_SSD_DEGRADED), 1);
	ssd_fini(&t);
}

static void
test_enospc(void **state)
{
	(void)state;
	fails(-ENOSPC);
}

static void
test_eio(void **state)
{
	(void)state;
	fails(-EIO);
}

/* One short write is continued below: nothing is lost. A flush that fails counts as a write. */
static void
test_short_and_flush(void **state)
{
	struct ssd_test t;

	(void)state;
	ssd_faulty(&t);
	ssd_serve(&t);
	t.plan.ops = 1u << KVP_BLK_WRITE;
	t.plan.short_len = 4096;
	t.plan.nth = 3;
	t.plan.again = 5;
	blocks_put(&t, 0, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_DEGRADED), 0);
	assert_int_equal(blocks_stage(&t, 0, 40), 40);
	t.plan.ops = 1u << KVP_BLK_FLUSH;
	t.plan.err = -EIO;
	t.plan.nth = 1;
	t.plan.again = 0;
	blocks_put(&t, 100, 20);
	ssd_wait(&t, KVP_NODE_SSD_DEGRADED, 1);
	ssd_wait(&t, KVP_NODE_SSD_WRITING, 1);
	assert_int_equal(blocks_stage(&t, 0, 40), 40);
	ssd_fini(&t);
}

/* A block that cannot be read is a miss, and only that one. */
static void
test_bad_read(void **state)
{
	struct ssd_test t;

	(void)state;
	ssd_faulty(&t);
	ssd_serve(&t);
	blocks_put(&t, 0, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	t.plan.ops = 1u << KVP_BLK_READ;
	t.plan.err = -EIO;
	t.plan.nth = 1;
	assert_int_equal(block_stage(&t, 0), -KVP_E_NOKEY);
	assert_int_equal(metric(&t, KVP_NODE_SSD_READ_ERRORS), 1);
	assert_int_equal(block_stage(&t, 0), -KVP_E_NOKEY);
	assert_int_equal(metric(&t, KVP_NODE_SSD_READ_ERRORS), 1); /* it is not tried again */
	assert_int_equal(blocks_stage(&t, 1, 20), 20);
	assert_int_equal(metric(&t, KVP_NODE_LOST), 0);
	assert_int_equal(metric(&t, KVP_NODE_GRANTED), 0);
	ssd_fini(&t);
}

/* The power goes at any moment. Bytes are right or missing, and what was flushed is there. */
static void
test_power_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct ssd_test t;
		uint32_t found;

		ssd_faulty(&t);
		ssd_serve(&t);
		blocks_put(&t, 0, 60);
		ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
		for (int i = 0; i < 20; i++) {
			ssd_step(&t); /* more than a flush takes */
		}
		blocks_put(&t, 100, 20 + 7 * (uint32_t)seed);
		assert_int_equal(kvp_blk_fault_power_cut(&t.plan, seed), 0);
		fake_close(&t.fake);
		t.plan = (struct kvp_blk_fault){0};
		ssd_serve(&t);
		found = blocks_stage(&t, 0, 44);
		assert_int_equal(found, 44);
		(void)blocks_stage(&t, 44, 16);
		(void)blocks_stage(&t, 100, 20 + 7 * (uint32_t)seed);
		blocks_put(&t, 1000, 40);
		ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
		assert_int_equal(blocks_stage(&t, 1000, 40), 40);
		ssd_fini(&t);
	}
}

/* Bytes that changed on the disk are found out before anybody sees them. */
static void
test_changed_bytes(void **state)
{
	static const char junk[16] = "not what it was";
	struct ssd_test t;
	char path[128];
	uint32_t found;
	int fd;

	(void)state;
	ssd_init(&t, "threads");
	ssd_serve(&t);
	blocks_put(&t, 0, 60);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	fake_close(&t.fake);
	(void)snprintf(path, sizeof(path), "%s/segment-0000", t.dir);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (off_t off = 64 * 1024; off < SEGMENT; off += 65536) {
		assert_int_equal(pwrite(fd, junk, sizeof(junk), off), sizeof(junk));
	}
	assert_int_equal(close(fd), 0);
	ssd_serve(&t);
	found = blocks_stage(&t, 0, 44);
	assert_true(found < 44 && found > 20);
	assert_int_equal(metric(&t, KVP_NODE_SSD_BAD_SUMS), 44 - found);
	ssd_fini(&t);
}

/* No folder can be made: the node serves without, and says so. Two cannot share one. */
static void
test_no_folder(void **state)
{
	struct ssd_test t;
	struct kvp_ssd *other;
	char path[128];
	int fd;

	(void)state;
	ssd_init(&t, "threads");
	(void)snprintf(path, sizeof(path), "%s/file", t.dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
	(void)snprintf(path, sizeof(path), "%s/file/ssd", t.dir);
	t.cfg.path = path;
	ssd_open(&t);
	assert_int_equal(metric(&t, KVP_NODE_SSD_SERVING), 0);
	blocks_put(&t, 0, 40);
	assert_true(metric(&t, KVP_NODE_SSD_DROPPED_OFF) > 0);
	assert_int_equal(block_stage(&t, 0), -KVP_E_NOKEY);
	assert_int_equal(block_stage(&t, 39), 0);
	fake_close(&t.fake);
	t.cfg.path = t.dir;
	ssd_serve(&t);
	assert_int_equal(kvp_ssd_open(t.fake.node, &t.cfg, &other), -KVP_E_IN_USE);
	ssd_fini(&t);
}

/* The session ends while its blocks are on their way; many ask for the same block. */
static void
test_many_ask(void **state)
{
	struct ssd_test t;
	struct fake_call *calls[8];
	struct fake_conn *conns[2];
	uint64_t staged;

	(void)state;
	ssd_init(&t, "threads");
	ssd_serve(&t);
	blocks_put(&t, 0, 40);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	conns[0] = fake_session(&t.fake);
	conns[1] = fake_session(&t.fake);
	staged = metric(&t, KVP_NODE_SSD_STAGED);
	for (int i = 0; i < 8; i++) {
		Kvp__Stage msg = KVP__STAGE__INIT;
		struct kvp_key key = fake_key(2);
		uint8_t packed[1 + KVP_KEY_LEN_MAX];

		packed[0] = key.len;
		memcpy(packed + 1, key.bytes, key.len);
		msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
		msg.keys = kvp_bytes(packed, 1 + (size_t)key.len);
		msg.wait_ms = 60000;
		calls[i] = fake_call(conns[i % 2], KVP_RPC_STAGE, &msg.base);
		assert_false(calls[i]->replied);
	}
	fake_disconnect(&t.fake, conns[1]);
	for (int i = 0; i < 8; i++) {
		for (int j = 0; j < WAITS && !calls[i]->replied; j++) {
			ssd_step(&t);
		}
		assert_int_equal(calls[i]->status, i % 2 == 0 ? 0 : -KVP_E_NO_SESSION);
		fake_call_free(calls[i]);
	}
	assert_int_equal(metric(&t, KVP_NODE_SSD_STAGED), staged + 1);
	ssd_fini(&t);
}

/* A restart finds both tiers, and counts each block once a tier. What was being staged into at the
 * end stays reserved for a while, and staging goes on meanwhile. */
static void
test_restart(void **state)
{
	struct ssd_test t;
	struct kvp_key key = fake_key(5000);
	struct kvp_offer offer = {.ns = fake_ns, .key = &key, .len = BLOCK};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	ssd_init(&t, "threads");
	ssd_serve(&t);
	blocks_put(&t, 0, 48);
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	fake_run_ms(&t.fake, 200);
	offer.touch = (struct kvp_touch){.now_ns = t.fake.now_ns, .parent = KVP_BLOCK_NONE};
	offer.owner = kvp_ssd_owner(t.fake.node);
	while (kvp_store_offer(t.fake.node->store, &offer, &grant, &loc) == -KVP_E_BUSY) {
		ssd_step(&t);
		offer.touch.now_ns = t.fake.now_ns;
	}
	ssd_wait(&t, KVP_NODE_SSD_QUEUED, 0);
	fake_restart(&t.fake);
	assert_int_not_equal(kvp_ssd_owner(t.fake.node), offer.owner);
	assert_true(metric(&t, KVP_NODE_RECOVERED) >= 8);
	ssd_wait(&t, KVP_NODE_SSD_SERVING, 1);
	assert_true(metric(&t, KVP_NODE_SSD_RECOVERED) >= 32);
	assert_int_equal(metric(&t, KVP_NODE_SEQUENCE),
		metric(&t, KVP_NODE_RECOVERED) + metric(&t, KVP_NODE_SSD_RECOVERED));
	t.conn = fake_session(&t.fake);
	assert_int_equal(blocks_stage(&t, 0, 48), 48);
	assert_true(metric(&t, KVP_NODE_SSD_STAGED) >= 32);
	fake_run_ms(&t.fake, 25000);
	assert_int_equal(metric(&t, KVP_NODE_LOST), 1);
	ssd_wait(&t, KVP_NODE_LOST, 0);
	assert_true(t.fake.now_ns - t.fake.node->opened_ns >= 30 * KVP_NS_PER_S);
	ssd_fini(&t);
}

/* What a lease holds in memory keeps its place on the SSD too. */
static void
test_leased_stays(void **state)
{
	struct ssd_test t;
	struct kvp_key key = fake_key(3);
	Kvp__Lease lease = KVP__LEASE__INIT;
	Kvp__Delete delete = KVP__DELETE__INIT;
	uint8_t packed[1 + KVP_KEY_LEN_MAX];

	(void)state;
	packed[0] = key.len;
	memcpy(packed + 1, key.bytes, key.len);
	ssd_init(&t, "threads");
	t.cfg.policy = KVP_SSD_THROUGH;
	ssd_serve(&t);
	blocks_put(&t, 0, 8);
	ssd_wait(&t, KVP_NODE_SSD_WRITES, 8);
	lease.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	lease.keys = kvp_bytes(packed, 1 + (size_t)key.len);
	lease.lease_ms = 60000;
	assert_int_equal(fake_ask(t.conn, KVP_RPC_LEASE, &lease.base), 0);
	delete.ns = lease.ns;
	delete.keys = lease.keys;
	assert_int_equal(fake_ask(t.conn, KVP_RPC_DELETE, &delete.base), 0);
	assert_int_equal(metric(&t, KVP_NODE_BLOCKS), 8);
	assert_int_equal(metric(&t, KVP_NODE_SSD_BLOCKS), 8);
	blocks_put(&t, 100, 40); /* all others go */
	assert_int_equal(block_stage(&t, 3), 0);
	assert_int_equal(metric(&t, KVP_NODE_SSD_STAGE_DRAM), 1);
	ssd_fini(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flow_threads),
		cmocka_unit_test(test_flow_uring),
		cmocka_unit_test(test_wraps),
		cmocka_unit_test(test_through_and_delete),
		cmocka_unit_test(test_second_use),
		cmocka_unit_test(test_enospc),
		cmocka_unit_test(test_eio),
		cmocka_unit_test(test_short_and_flush),
		cmocka_unit_test(test_bad_read),
		cmocka_unit_test(test_power_cut),
		cmocka_unit_test(test_changed_bytes),
		cmocka_unit_test(test_no_folder),
		cmocka_unit_test(test_many_ask),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_leased_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
