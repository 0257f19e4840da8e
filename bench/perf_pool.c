/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_pool.c - the path through the public API to a running cluster: get or put of blocks in a
 * namespace of our own, which no engine's key can meet. HOT.
 *
 * A unit is a batch. Gets go round in blocks that begin() has put. Every put needs a new key; when
 * the region is full, refill() deletes what is there, so that we never push out others' blocks.
 */
#include "bench/perf.h"
#include "hal/base/assert.h"
#include "hal/base/list.h"
#include "hal/os/env.h"

#include <kvpool/admin.h>
#include <kvpool/kvpool.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_CHUNK_LEN   (8ull << 20) /* bytes put or read back in one batch */
#define POOL_CHUNK_ITEMS 256u

#define POOL_NODE_DEFAULT  "unix:/run/kvpool/kvpoold.sock"
#define POOL_STATUS_MS     100
#define POOL_QUARANTINE_NS (300 * KVP_NS_PER_MS) /* the longest wait; others' may never end */

struct pool_key {
	uint64_t serial; /* unique within the run */
	uint64_t size;
};

struct pool {
	struct kvp_perf_path base;
	struct kvp_perf *perf;
	struct kvp_client *client;
	struct kvp_cq *cq;
	struct kvp_namespace ns;
	struct kvp_perf_shape shape;
	bool begun;
	uint64_t first;      /* serial of the first block that is there */
	uint64_t next;       /* serial of the next to be put */
	uint32_t block_next; /* to get */
	uint64_t local;      /* items by shared memory, and others */
	uint64_t remote;
	uint32_t segments;
	struct kvp_item *items; /* unit * batch + i */
	struct iovec *segs;     /* of that item, segments each */
	struct pool_key *keys;
	uint32_t *blocks;
};

static struct pool *
pool_of(struct kvp_perf_path *path)
{
	return kvp_container_of(path, struct pool, base);
}

static uint8_t *
pool_buf(const struct pool *pool, uint32_t block)
{
	return pool->perf->buf + block * kvp_perf_stride(pool->shape.size);
}

/* Item at of the arrays: this key, over the local buffer of this block. */
static void
item_make(struct pool *pool, uint32_t at, uint64_t serial, uint32_t block)
{
	uint64_t part = pool->shape.size / pool->segments;
	struct iovec *segs = &pool->segs[(size_t)at * pool->segments];
	uint8_t *buf = pool_buf(pool, block);

	for (uint32_t i = 0; i < pool->segments; i++) {
		segs[i] = (struct iovec){.iov_base = buf + i * part, .iov_len = part};
	}
	segs[pool->segments - 1].iov_len += pool->shape.size - part * pool->segments;
	pool->keys[at] = (struct pool_key){.serial = serial, .size = pool->shape.size};
	pool->blocks[at] = block;
	pool->items[at] = (struct kvp_item){
		.key = &pool->keys[at],
		.key_len = sizeof(pool->keys[at]),
		.segs = segs,
		.seg_count = pool->segments,
	};
}

static int
pool_post(struct kvp_perf_path *path, uint32_t unit)
{
	struct pool *pool = pool_of(path);
	uint32_t count = pool->shape.batch;
	bool write = pool->perf->cfg->write;
	struct kvp_batch batch = {
		.op = write ? KVP_PUT : KVP_GET,
		.item_count = count,
		.items = &pool->items[(size_t)unit * count],
		.ns = &pool->ns,
		.tag = unit,
	};
	int ret;

	if (write && pool->next + count > pool->first + pool->shape.blocks) {
		return -ENOBUFS;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t block = write ? (uint32_t)(pool->next++ - pool->first) : pool->block_next;

		pool->block_next = (pool->block_next + 1) % pool->shape.blocks;
		item_make(pool, unit * count + i, pool->first + block, block);
		if (pool->perf->cfg->validate && !write) {
			memset(pool_buf(pool, block), 0xa5, pool->shape.size);
		}
	}
	ret = kvp_submit(pool->cq, &batch);
	if (ret < 0) {
		return kvp_perf_fail(pool->perf, ret, "pool: submitting: %s", kvp_strerror(ret));
	}
	return 0;
}

static const char *
item_hint(int status)
{
	if (status == -KVP_E_NO_SPACE) {
		return "; the node must have room for --region, in bytes and in slots";
	}
	return status == -KVP_E_NOKEY
		       ? "; pushed out: the node must have room for --region, in bytes and in slots"
		       : "";
}

/* Counts what one item of a get or put did. -KVP_E_BADSUM counts as wrong bytes. */
static int
item_take(struct pool *pool, uint32_t at, enum kvp_opcode op)
{
	const struct kvp_item *item = &pool->items[at];
	uint32_t block = pool->blocks[at];

	if (item->status == -KVP_E_BADSUM) {
		pool->base.wrong_bytes += pool->shape.size;
		return 0;
	}
	if (item->status < 0) {
		return kvp_perf_fail(pool->perf, item->status, "pool: %s of %llu bytes: %s%s",
			op == KVP_GET ? "get" : "put", (unsigned long long)pool->shape.size,
			kvp_strerror(item->status), item_hint(item->status));
	}
	pool->local += item->local != 0;
	pool->remote += item->local == 0;
	if (op == KVP_GET && pool->perf->cfg->validate) {
		pool->base.wrong_bytes +=
			kvp_perf_wrong(pool_buf(pool, block), pool->shape.size, block);
	}
	return 0;
}

static int
pool_poll(struct kvp_perf_path *path, struct kvp_perf_done *ret_done, uint32_t max)
{
	struct pool *pool = pool_of(path);
	enum kvp_opcode op = pool->perf->cfg->write ? KVP_PUT : KVP_GET;
	struct kvp_completion done[64];
	int n = kvp_cq_poll(pool->cq, done, max < 64 ? max : 64);
	uint64_t now = n > 0 ? kvp_now_ns(kvp_env_real()) : 0;

	for (int i = 0; i < n; i++) {
		uint32_t unit = (uint32_t)done[i].tag;

		kvp_assert(unit < pool->shape.units);
		if (done[i].status < 0) {
			return kvp_perf_fail(pool->perf, done[i].status, "pool: %s",
				kvp_strerror(done[i].status));
		}
		for (uint32_t k = 0; k < pool->shape.batch; k++) {
			int ret = item_take(pool, unit * pool->shape.batch + k, op);

			if (ret < 0) {
				return ret;
			}
		}
		ret_done[i] = (struct kvp_perf_done){.unit = unit, .end_ns = now};
	}
	return n;
}

static void
pool_wait(struct kvp_perf_path *path)
{
	struct pollfd fd = {.fd = kvp_cq_fd(pool_of(path)->cq), .events = POLLIN};

	(void)poll(&fd, 1, KVP_PERF_WAIT_MS);
}

/* Blocks that one batch of run_all may have. */
static uint32_t
chunk_of(const struct pool *pool, enum kvp_opcode op)
{
	uint64_t fit = op == KVP_DELETE ? POOL_CHUNK_ITEMS : POOL_CHUNK_LEN / pool->shape.size;

	return fit < 1 ? 1 : fit < POOL_CHUNK_ITEMS ? (uint32_t)fit : POOL_CHUNK_ITEMS;
}

/* Runs op over blocks [0, count) by serial, waiting. Nothing is in flight. */
static int
run_all(struct pool *pool, enum kvp_opcode op, uint32_t count)
{
	uint32_t chunk = chunk_of(pool, op);

	for (uint32_t from = 0; from < count; from += chunk) {
		uint32_t n = count - from < chunk ? count - from : chunk;
		struct kvp_batch batch = {
			.op = op, .item_count = n, .items = pool->items, .ns = &pool->ns};
		int ret;

		for (uint32_t i = 0; i < n; i++) {
			item_make(pool, i, pool->first + from + i, from + i);
			pool->items[i].seg_count = op == KVP_DELETE ? 0 : pool->items[i].seg_count;
		}
		ret = kvp_run(pool->client, &batch, NULL);
		if (ret < 0) {
			return kvp_perf_fail(pool->perf, ret, "pool: %s", kvp_strerror(ret));
		}
		for (uint32_t i = 0; i < n && op != KVP_DELETE; i++) {
			ret = item_take(pool, i, op);
			if (ret < 0) {
				return ret;
			}
		}
	}
	return 0;
}

/* Reads back what was put and checks it; the buffers hold the right bytes afterwards. */
static int
put_check(struct pool *pool, uint32_t count)
{
	int ret;

	for (uint32_t k = 0; k < count; k++) {
		memset(pool_buf(pool, k), 0xa5, pool->shape.size);
	}
	ret = run_all(pool, KVP_GET, count);
	for (uint32_t k = 0; k < count; k++) {
		kvp_perf_fill(pool_buf(pool, k), pool->shape.size, k);
	}
	return ret;
}

/* Takes all blocks away that were put. */
static int
pool_empty(struct pool *pool)
{
	uint32_t count = (uint32_t)(pool->next - pool->first);
	int ret = 0;

	if (count > 0 && pool->perf->cfg->validate && pool->perf->cfg->write) {
		ret = put_check(pool, count);
	}
	if (count > 0) {
		int deleted = run_all(pool, KVP_DELETE, count);

		ret = ret < 0 ? ret : deleted;
	}
	pool->first = pool->next;
	return ret;
}

static void
quarantined_take(void *arg, const char *name, const char *value)
{
	if (strcmp(name, "kvpool_node_slots_quarantined") == 0) {
		*(uint64_t *)arg = strtoull(value, NULL, 10);
	}
}

/* What was deleted stays unusable for a moment. Puts that wait for it are not what we measure. */
static void
quarantine_wait(const struct pool *pool)
{
	const char *node = pool->perf->cfg->node;
	uint64_t end = kvp_now_ns(kvp_env_real()) + POOL_QUARANTINE_NS;
	uint64_t left = 1;

	while (left > 0 && kvp_now_ns(kvp_env_real()) < end) {
		(void)poll(NULL, 0, 5);
		/* A node that does not tell: the longest wait. */
		(void)kvp_admin_status(node != NULL ? node : POOL_NODE_DEFAULT, POOL_STATUS_MS,
			quarantined_take, &left);
	}
}

static int
pool_refill(struct kvp_perf_path *path)
{
	struct pool *pool = pool_of(path);
	int ret = pool_empty(pool);

	if (ret == 0) {
		quarantine_wait(pool);
	}
	return ret;
}

static void
pool_units_free(struct pool *pool)
{
	free(pool->items);
	free(pool->segs);
	free(pool->keys);
	free(pool->blocks);
	pool->items = NULL;
	pool->segs = NULL;
	pool->keys = NULL;
	pool->blocks = NULL;
}

static int
pool_begin(struct kvp_perf_path *path, const struct kvp_perf_shape *shape)
{
	struct pool *pool = pool_of(path);
	size_t count = (size_t)shape->units * shape->batch;

	count = count < POOL_CHUNK_ITEMS ? POOL_CHUNK_ITEMS : count;
	pool_units_free(pool);
	pool->shape = *shape;
	pool->segments = kvp_perf_segments(pool->perf->cfg, shape->size);
	pool->items = calloc(count, sizeof(*pool->items));
	pool->segs = calloc(count * pool->segments, sizeof(*pool->segs));
	pool->keys = calloc(count, sizeof(*pool->keys));
	pool->blocks = calloc(count, sizeof(*pool->blocks));
	if (pool->items == NULL || pool->segs == NULL || pool->keys == NULL ||
		pool->blocks == NULL) {
		return kvp_perf_fail(pool->perf, -ENOMEM, "out of memory");
	}
	pool->block_next = 0;
	pool->first = pool->next;
	pool->begun = true;
	if (pool->perf->cfg->write) {
		return 0;
	}
	pool->next += shape->blocks;
	return run_all(pool, KVP_PUT, shape->blocks);
}

static int
pool_end(struct kvp_perf_path *path)
{
	struct pool *pool = pool_of(path);

	pool->begun = false;
	return pool_empty(pool);
}

static void
pool_used(const struct kvp_perf_path *path, char *buf, size_t cap)
{
	const struct pool *pool = kvp_container_of(path, struct pool, base);
	const char *forced = pool->perf->cfg->transport;
	const char *remote = strcmp(forced, "auto") == 0 ? "remote" : forced;

	if (pool->local > 0 && pool->remote > 0) {
		snprintf(buf, cap, "shm+%s", remote);
	} else {
		snprintf(buf, cap, "%s", pool->local > 0 ? "shm" : remote);
	}
}

static void
pool_close(struct kvp_perf_path *path)
{
	struct pool *pool = pool_of(path);

	kvp_cq_close(pool->cq); /* cancels what is in flight */
	if (pool->begun) {      /* it ended early: leave nothing behind, if that is possible */
		pool->cq = NULL;
		(void)run_all(pool, KVP_DELETE, (uint32_t)(pool->next - pool->first));
	}
	kvp_client_close(pool->client);
	pool_units_free(pool);
	free(pool);
}

static int
namespace_make(struct pool *pool)
{
	char run[24];
	struct kvp_namespace_desc desc = {.struct_size = sizeof(desc),
		.model = "kvpool-perf",
		.layout = "perf-1",
		.tenant = run,
		.block_tokens = 1};
	uint64_t number;

	kvp_env_real()->random(kvp_env_real(), &number, sizeof(number));
	snprintf(run, sizeof(run), "%016llx", (unsigned long long)number);
	return kvp_namespace_make(&desc, &pool->ns);
}

static int
client_start(struct pool *pool)
{
	const struct kvp_perf_cfg *cfg = pool->perf->cfg;
	struct kvp_client_options options = {
		.struct_size = sizeof(options),
		.meta = cfg->meta,
		.node = cfg->node,
		.transport = cfg->transport,
		.name = "kvpool-perf",
		.deadline_ms = cfg->deadline_ms,
		.verify = cfg->verify,
		.checksum = cfg->checksum,
	};
	int ret = kvp_client_open(&options, &pool->client);

	if (ret == 0) {
		ret = kvp_memory_register(pool->client, pool->perf->buf, pool->perf->buf_len);
	}
	if (ret == 0) {
		ret = kvp_cq_open(pool->client, KVP_PERF_DEPTH_MAX, &pool->cq);
	}
	return ret;
}

static const struct kvp_perf_path_ops pool_ops = {
	.name = "pool",
	.begin = pool_begin,
	.post = pool_post,
	.poll = pool_poll,
	.wait = pool_wait,
	.refill = pool_refill,
	.end = pool_end,
	.used = pool_used,
	.close = pool_close,
};

int
kvp_perf_pool_open(struct kvp_perf *perf, struct kvp_perf_path **ret_path)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int ret = -ENOMEM;

	if (pool != NULL) {
		pool->base.ops = &pool_ops;
		pool->perf = perf;
		ret = namespace_make(pool);
	}
	if (ret == 0) {
		ret = client_start(pool);
	}
	if (ret < 0) {
		if (pool != NULL) {
			pool_close(&pool->base);
		}
		return kvp_perf_fail(perf, ret, "pool: %s", kvp_strerror(ret));
	}
	*ret_path = &pool->base;
	return 0;
}
