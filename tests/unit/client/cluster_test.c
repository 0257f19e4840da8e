/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_test.c - the client against a real metadata server and real nodes in one process, over
 * each transport.
 */
#include "client/client.h"
#include "client/include/kvpool/kvpool.h"
#include "hal/base/err.h"
#include "tests/unit/client/cluster.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_LEN 65536u

/* The promise is 100 ms after a deadline; a machine that runs many tests at once adds its own. */
#define LATE_MS 1000u
#define THREADS 16

struct world {
	struct cluster cluster;
	struct kvp_client *client;
	struct kvp_namespace ns;
	uint8_t *memory; /* registered */
	size_t memory_len;
};

static uint64_t
now_ms(void)
{
	return kvp_now_ns(kvp_env_real()) / KVP_NS_PER_MS;
}

static struct kvp_client *
client_make_at(struct world *world, const char *meta, uint32_t home, const char *transport,
	enum kvp_verify verify)
{
	struct kvp_client_options options = {.struct_size = sizeof(options),
		.meta = meta,
		.node = world->cluster.nodes[home].loop.addr,
		.transport = transport,
		.deadline_ms = 5000,
		.verify = verify};
	struct kvp_client *client;

	assert_int_equal(kvp_client_open(&options, &client), 0);
	return client;
}

static struct kvp_client *
client_make(struct world *world, const char *transport, enum kvp_verify verify)
{
	return client_make_at(world, world->cluster.meta.loop.addr, 0, transport, verify);
}

static void
world_open(struct world *world, const char *transport, enum kvp_verify verify,
	const struct cluster_cfg *cfg)
{
	const struct kvp_namespace_desc desc = {
		.struct_size = sizeof(desc), .model = "test", .block_tokens = 16};

	memset(world, 0, sizeof(*world));
	cluster_start(&world->cluster, cfg);
	assert_int_equal(kvp_namespace_make(&desc, &world->ns), 0);
	world->client = client_make(world, transport, verify);
	world->memory_len = 16u << 20;
	world->memory = aligned_alloc(4096, world->memory_len);
	assert_non_null(world->memory);
	assert_int_equal(kvp_memory_register(world->client, world->memory, world->memory_len), 0);
}

static void
world_close(struct world *world)
{
	kvp_client_close(world->client);
	free(world->memory);
	cluster_stop(&world->cluster);
}

static void
fill(uint8_t *buf, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++) {
		buf[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
	}
}

static struct kvp_client_stats
stats_of(struct kvp_client *client)
{
	struct kvp_client_stats stats = {.struct_size = sizeof(stats)};

	kvp_client_stats_get(client, &stats);
	return stats;
}

/* --- one block
 * --------------------------------------------------------------------------------------- */

static void
put_get_with(const char *transport)
{
	struct world world;
	struct kvp_client_stats stats;
	struct kvp_client *other;
	uint8_t *src;
	uint8_t *dst;

	world_open(&world, transport, KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	src = world.memory;
	dst = world.memory + BLOCK_LEN;
	fill(src, BLOCK_LEN, 1);
	assert_int_equal(kvp_get(world.client, &world.ns, "k", 1, dst, BLOCK_LEN), -KVP_E_NOKEY);
	assert_int_equal(kvp_match(world.client, &world.ns, "k", 1, 1), 0);
	assert_int_equal(kvp_put(world.client, &world.ns, "k", 1, src, BLOCK_LEN), 0);
	assert_int_equal(kvp_put(world.client, &world.ns, "k", 1, src, BLOCK_LEN), -KVP_E_EXISTS);
	assert_int_equal(kvp_get(world.client, &world.ns, "k", 1, dst, BLOCK_LEN), 0);
	assert_memory_equal(src, dst, BLOCK_LEN);
	assert_int_equal(kvp_get(world.client, &world.ns, "k", 1, dst, BLOCK_LEN - 1), -KVP_E_SIZE);
	assert_int_equal(kvp_match(world.client, &world.ns, "k", 1, 1), 1);

	/* Another client finds it by the metas. */
	other = client_make(&world, transport, KVP_VERIFY_ALWAYS);
	assert_int_equal(kvp_memory_register(other, world.memory, world.memory_len), 0);
	memset(dst, 0, BLOCK_LEN);
	assert_int_equal(kvp_get(other, &world.ns, "k", 1, dst, BLOCK_LEN), 0);
	assert_memory_equal(src, dst, BLOCK_LEN);
	stats = stats_of(other);
	assert_int_equal(stats.lookups, 1);
	assert_int_equal(stats.get_hits, 1);
	assert_int_equal(stats.gets, stats.get_hits + stats.get_misses + stats.get_errors);
	assert_int_equal(
		strcmp(transport, "shm") == 0 ? stats.bytes_read_local : stats.bytes_read_remote,
		BLOCK_LEN);

	assert_int_equal(kvp_delete(other, &world.ns, "k", 1), 0);
	assert_int_equal(kvp_delete(other, &world.ns, "k", 1), -KVP_E_NOKEY);
	/* The first client's cached location is stale now. */
	assert_int_equal(kvp_get(world.client, &world.ns, "k", 1, dst, BLOCK_LEN), -KVP_E_NOKEY);
	assert_int_equal(stats_of(world.client).stale, 1);
	kvp_client_close(other);
	world_close(&world);
}

/* What a get leaves for the loop to do, reporting the read, must not outlive a close right after.
 */
static void
test_close_after_get(void **state)
{
	struct world world;

	(void)state;
	world_open(&world, "shm", KVP_VERIFY_OFF, &(struct cluster_cfg){0});
	assert_int_equal(kvp_put(world.client, &world.ns, "k", 1, world.memory, BLOCK_LEN), 0);
	/* The node may not have joined the meta yet. */
	for (uint64_t end = now_ms() + 5000; kvp_match(world.client, &world.ns, "k", 1, 1) != 1;) {
		assert_true(now_ms() < end);
	}
	for (int i = 0; i < 60; i++) {
		struct kvp_client *client = client_make(&world, "shm", KVP_VERIFY_OFF);

		assert_int_equal(kvp_memory_register(client, world.memory, world.memory_len), 0);
		assert_int_equal(kvp_get(client, &world.ns, "k", 1, world.memory, BLOCK_LEN), 0);
		kvp_client_close(client);
	}
	world_close(&world);
}

static void
test_put_get_shm(void **state)
{
	(void)state;
	put_get_with("shm");
}

static void
test_put_get_ofi(void **state)
{
	(void)state;
	put_get_with("ofi");
}

/* --- batches
 * ------------------------------------------------------------------------------------------ */

struct one {
	char key[16];
	struct iovec segs[KVP_SEGS_MAX];
};

static int
run_batch(struct world *world, struct kvp_cq *cq, enum kvp_opcode op, struct kvp_item *items,
	uint32_t count, uint32_t flags, struct kvp_completion *ret_done)
{
	const struct kvp_batch batch = {.op = op,
		.item_count = count,
		.items = items,
		.ns = &world->ns,
		.flags = flags,
		.tag = 77};
	int err = kvp_submit(cq, &batch);

	if (err < 0) {
		return err;
	}
	assert_int_equal(kvp_cq_wait(cq, ret_done, 1, 10000), 1);
	assert_int_equal(ret_done->tag, 77);
	return 0;
}

/* One block for each number of segments, of odd sizes, gathered and scattered differently. */
static void
segments_with(const char *transport)
{
	static const uint32_t counts[] = {1, 2, 3, 7, 32, 80, 255, 256};
	enum { COUNT = sizeof(counts) / sizeof(counts[0]) };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_completion done;
	struct world world;
	struct kvp_cq *cq;
	uint8_t *pos;
	uint8_t *copy;
	uint64_t total = 0;

	world_open(&world, transport, KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 0, &cq), 0);
	pos = world.memory;
	memset(items, 0, sizeof(items));
	for (size_t i = 0; i < COUNT; i++) {
		snprintf(ones[i].key, sizeof(ones[i].key), "seg-%zu", i);
		for (uint32_t j = 0; j < counts[i]; j++) {
			size_t len = 1 + (j * 37 + i * 101) % 2000;

			ones[i].segs[j] = (struct iovec){.iov_base = pos, .iov_len = len};
			fill(pos, len, (uint32_t)(i * 1000 + j));
			pos += len + j % 3;
			total += len;
		}
		items[i] = (struct kvp_item){.key = ones[i].key,
			.key_len = (uint8_t)strlen(ones[i].key),
			.segs = ones[i].segs,
			.seg_count = counts[i],
			.position = (uint32_t)i * 16,
			.tokens = 16};
	}
	assert_int_equal(run_batch(&world, cq, KVP_PUT, items, COUNT, 0, &done), 0);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.ok_count, COUNT);
	assert_int_equal(done.prefix, COUNT);
	assert_int_equal(done.bytes, total);
	assert_int_equal(done.flags, 0);
	copy = malloc((size_t)(pos - world.memory));
	memcpy(copy, world.memory, (size_t)(pos - world.memory));
	for (size_t i = 0; i < COUNT; i++) {
		for (uint32_t j = 0; j < counts[i]; j++) {
			memset(ones[i].segs[j].iov_base, 0, ones[i].segs[j].iov_len);
		}
	}
	assert_int_equal(run_batch(&world, cq, KVP_GET, items, COUNT, 0, &done), 0);
	assert_int_equal(done.ok_count, COUNT);
	assert_memory_equal(copy, world.memory, (size_t)(pos - world.memory));
	for (size_t i = 0; i < COUNT; i++) {
		assert_int_equal(items[i].status, 0);
		assert_int_equal(items[i].medium, KVP_MEDIUM_DRAM);
		assert_int_equal(items[i].local, strcmp(transport, "shm") == 0);
	}
	free(copy);
	free(ones);
	kvp_cq_close(cq);
	world_close(&world);
}

static void
test_segments_shm(void **state)
{
	(void)state;
	segments_with("shm");
}

static void
test_segments_ofi(void **state)
{
	(void)state;
	segments_with("ofi");
}

/* Items of one block each, at off in the world's memory. */
static void
items_make(struct world *world, struct one *ones, struct kvp_item *items, uint32_t count,
	const char *prefix, size_t len)
{
	for (uint32_t i = 0; i < count; i++) {
		snprintf(ones[i].key, sizeof(ones[i].key), "%s-%u", prefix, i);
		ones[i].segs[0] =
			(struct iovec){.iov_base = world->memory + (size_t)i * len, .iov_len = len};
		items[i] = (struct kvp_item){.key = ones[i].key,
			.key_len = (uint8_t)strlen(ones[i].key),
			.segs = ones[i].segs,
			.seg_count = 1};
	}
}

static void
test_prefix_and_bad_items(void **state)
{
	enum { COUNT = 8 };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_completion done;
	struct world world;
	struct kvp_cq *cq;
	uint8_t outside[64];

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	items_make(&world, ones, items, COUNT, "p", 5000);
	fill(world.memory, COUNT * 5000, 3);

	/* Two of them never stored, one that lies outside, one with a bad key. */
	items[3].segs = &(struct iovec){.iov_base = outside, .iov_len = sizeof(outside)};
	items[5].key_len = 0;
	assert_int_equal(run_batch(&world, cq, KVP_PUT, items, COUNT, 0, &done), 0);
	assert_int_equal(done.ok_count, 6);
	assert_int_equal(done.prefix, 3);
	assert_int_equal(items[3].status, -KVP_E_NOT_REGISTERED);
	assert_int_equal(items[5].status, -KVP_E_KEY_LEN);

	items_make(&world, ones, items, COUNT, "p", 5000);
	assert_int_equal(run_batch(&world, cq, KVP_GET, items, COUNT, 0, &done), 0);
	assert_int_equal(done.ok_count, 6);
	assert_int_equal(items[7].status, 0);
	assert_int_equal(items[3].status, -KVP_E_NOKEY);

	assert_int_equal(run_batch(&world, cq, KVP_GET, items, COUNT, KVP_BATCH_PREFIX, &done), 0);
	assert_int_equal(done.ok_count, 3);
	assert_int_equal(done.prefix, 3);
	for (uint32_t i = 3; i < COUNT; i++) {
		assert_int_equal(items[i].status, -KVP_E_NOKEY);
	}

	for (uint32_t i = 0; i < COUNT; i++) {
		items[i].seg_count = 0;
	}
	assert_int_equal(run_batch(&world, cq, KVP_MATCH, items, COUNT, 0, &done), 0);
	assert_int_equal(done.prefix, 3);
	assert_int_equal(items[0].medium, KVP_MEDIUM_DRAM);
	kvp_cq_close(cq);
	free(ones);
	world_close(&world);
}

/* More blocks than the arena holds: those evicted are misses, the rest is right. */
static void
test_eviction(void **state)
{
	enum { COUNT = 128 };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item *items = calloc(COUNT, sizeof(*items));
	struct kvp_completion done;
	struct world world;
	struct kvp_cq *cq;
	uint8_t *copy;
	uint32_t hits = 0;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_ALWAYS,
		&(struct cluster_cfg){.arena_len = 4u << 20, .quarantine_ms = 5});
	assert_int_equal(kvp_cq_open(world.client, 0, &cq), 0);
	items_make(&world, ones, items, COUNT, "e", BLOCK_LEN);
	for (uint32_t i = 0; i < COUNT; i++) {
		fill(world.memory + (size_t)i * BLOCK_LEN, BLOCK_LEN, i);
	}
	copy = malloc((size_t)COUNT * BLOCK_LEN);
	memcpy(copy, world.memory, (size_t)COUNT * BLOCK_LEN);
	assert_int_equal(run_batch(&world, cq, KVP_PUT, items, COUNT / 2, 0, &done), 0);
	assert_int_equal(run_batch(&world, cq, KVP_PUT, items + COUNT / 2, COUNT / 2, 0, &done), 0);
	assert_true(done.ok_count > 0);
	memset(world.memory, 0, (size_t)COUNT * BLOCK_LEN);
	assert_int_equal(run_batch(&world, cq, KVP_GET, items, COUNT, 0, &done), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		if (items[i].status == 0) {
			hits++;
			assert_memory_equal(world.memory + (size_t)i * BLOCK_LEN,
				copy + (size_t)i * BLOCK_LEN, BLOCK_LEN);
		} else {
			assert_int_equal(items[i].status, -KVP_E_NOKEY);
		}
	}
	assert_true(hits > 0 && hits <= 64);
	assert_true(stats_of(world.client).stale > 0);
	free(copy);
	free(items);
	free(ones);
	kvp_cq_close(cq);
	world_close(&world);
}

/* A flipped byte in the arena is a miss, and counted. */
static void
test_bad_checksum(void **state)
{
	struct world world;
	uint8_t *found;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	fill(world.memory, BLOCK_LEN, 9);
	assert_int_equal(kvp_put(world.client, &world.ns, "bad", 3, world.memory, BLOCK_LEN), 0);
	found = memmem(world.cluster.nodes[0].arena.base, world.cluster.nodes[0].arena.len,
		world.memory, BLOCK_LEN);
	assert_non_null(found);
	found[777] ^= 1;
	assert_int_equal(
		kvp_get(world.client, &world.ns, "bad", 3, world.memory, BLOCK_LEN), -KVP_E_NOKEY);
	assert_true(stats_of(world.client).bad_checksums > 0);
	found[777] ^= 1;
	assert_int_equal(kvp_get(world.client, &world.ns, "bad", 3, world.memory, BLOCK_LEN), 0);
	world_close(&world);
}

/* --- many threads
 * ---------------------------------------------------------------------------------------- */

struct worker {
	struct world *world;
	uint32_t number;
	uint32_t errors;
};

static void *
worker_run(void *arg)
{
	enum { COUNT = 16, LEN = 4096 };
	struct worker *worker = arg;
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_completion done;
	struct kvp_cq *cq;
	uint8_t *mine = worker->world->memory + (size_t)worker->number * COUNT * LEN;

	if (kvp_cq_open(worker->world->client, 8, &cq) < 0) {
		worker->errors++;
		free(ones);
		return NULL;
	}
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < COUNT; i++) {
			snprintf(ones[i].key, sizeof(ones[i].key), "%u.%u.%u", worker->number,
				round, i);
			ones[i].segs[0] =
				(struct iovec){.iov_base = mine + (size_t)i * LEN, .iov_len = LEN};
			items[i] = (struct kvp_item){.key = ones[i].key,
				.key_len = (uint8_t)strlen(ones[i].key),
				.segs = ones[i].segs,
				.seg_count = 1};
			fill(mine + (size_t)i * LEN, LEN, worker->number * 100 + round * 10 + i);
		}
		run_batch(worker->world, cq, KVP_PUT, items, COUNT, 0, &done);
		worker->errors += done.ok_count != COUNT;
		memset(mine, 0, COUNT * LEN);
		run_batch(worker->world, cq, KVP_GET, items, COUNT, 0, &done);
		worker->errors += done.ok_count != COUNT;
		for (uint32_t i = 0; i < COUNT; i++) {
			uint8_t want[LEN];

			fill(want, LEN, worker->number * 100 + round * 10 + i);
			worker->errors += memcmp(want, mine + (size_t)i * LEN, LEN) != 0;
		}
	}
	kvp_cq_close(cq);
	free(ones);
	return NULL;
}

static void
threads_with(const char *transport)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	struct world world;

	world_open(&world, transport, KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.world = &world, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].errors, 0);
	}
	world_close(&world);
}

static void
test_threads_shm(void **state)
{
	(void)state;
	threads_with("shm");
}

static void
test_threads_ofi(void **state)
{
	(void)state;
	threads_with("ofi");
}

/* --- the eventfd
 * ------------------------------------------------------------------------------------------ */

/* A user that sleeps on the descriptor only misses nothing. */
static void
wake_with(const char *transport)
{
	enum { COUNT = 4 };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_completion done;
	struct world world;
	struct kvp_batch batch;
	struct kvp_cq *cq;

	world_open(&world, transport, KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	items_make(&world, ones, items, COUNT, "w", BLOCK_LEN);
	for (uint32_t round = 0; round < 6; round++) {
		struct pollfd wait = {.fd = kvp_cq_fd(cq), .events = POLLIN};
		int count;

		batch = (struct kvp_batch){.op = round % 2 == 0 ? KVP_PUT : KVP_GET,
			.items = items,
			.item_count = COUNT,
			.ns = &world.ns};
		assert_int_equal(kvp_submit(cq, &batch), 0);
		while ((count = kvp_cq_poll(cq, &done, 1)) == 0) {
			assert_int_equal(poll(&wait, 1, 3000), 1);
		}
		assert_int_equal(count, 1);
		assert_int_equal(done.status == 0 || done.status == -KVP_E_EXISTS, 1);
	}
	/* Nothing is out: it becomes quiet. */
	for (uint32_t i = 0; i < 10 && kvp_cq_poll(cq, &done, 1) == 0; i++) {
		struct pollfd wait = {.fd = kvp_cq_fd(cq), .events = POLLIN};

		if (poll(&wait, 1, 20) == 0) {
			break;
		}
		assert_true(i < 9);
	}
	kvp_cq_close(cq);
	free(ones);
	world_close(&world);
}

static void
test_wake_shm(void **state)
{
	(void)state;
	wake_with("shm");
}

static void
test_wake_ofi(void **state)
{
	(void)state;
	wake_with("ofi");
}

/* --- peers that fail
 * ---------------------------------------------------------------------------------------- */

static void
test_node_dies(void **state)
{
	struct world world;
	uint64_t begin;
	int status;

	(void)state;
	world_open(&world, "ofi", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	fill(world.memory, BLOCK_LEN, 1);
	assert_int_equal(kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	assert_int_equal(kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	cluster_stop_node(&world.cluster, 0);
	begin = now_ms();
	status = kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN);
	assert_true(status == -KVP_E_NODEDOWN || status == -KVP_E_NOKEY);
	status = kvp_put(world.client, &world.ns, "b", 1, world.memory, BLOCK_LEN);
	assert_int_equal(status, -KVP_E_NODEDOWN);
	assert_true(now_ms() - begin < 5500 + 5500);
	world_close(&world);
}

/* In the middle of a put: it ends by its deadline, whatever its items got. */
static void
test_node_dies_in_put(void **state)
{
	enum { COUNT = 128 };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_completion done;
	struct kvp_batch batch;
	struct world world;
	struct kvp_cq *cq;
	uint64_t begin;

	(void)state;
	world_open(&world, "ofi", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	items_make(&world, ones, items, COUNT, "d", BLOCK_LEN);
	batch = (struct kvp_batch){.op = KVP_PUT,
		.items = items,
		.item_count = COUNT,
		.ns = &world.ns,
		.deadline_ms = 1000};
	begin = now_ms();
	assert_int_equal(kvp_submit(cq, &batch), 0);
	while (stats_of(world.client).bytes_written_remote == 0 && now_ms() - begin < 10) {
		assert_int_equal(kvp_cq_poll(cq, &done, 0), 0);
	}
	cluster_stop_node(&world.cluster, 0);
	assert_int_equal(kvp_cq_wait(cq, &done, 1, 5000), 1);
	assert_true(now_ms() - begin <= 1000 + LATE_MS);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_true(items[i].status <= 0);
	}
	kvp_cq_close(cq);
	free(ones);
	world_close(&world);
}

/* It comes back empty under a new incarnation: old blocks are misses, new ones are stored. */
static void
test_node_restarts(void **state)
{
	const char *transports[] = {"shm", "ofi"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct world world;
		int status;

		world_open(&world, transports[i], KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
		fill(world.memory, BLOCK_LEN, 1);
		assert_int_equal(
			kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		cluster_restart_node(&world.cluster, 0);
		assert_int_equal(
			kvp_put(world.client, &world.ns, "b", 1, world.memory, BLOCK_LEN), 0);
		status = kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN);
		assert_true(status == -KVP_E_NOKEY || status == -KVP_E_NODEDOWN);
		fill(world.memory, BLOCK_LEN, 2);
		assert_int_equal(
			kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		assert_int_equal(kvp_get(world.client, &world.ns, "a", 1, world.memory + BLOCK_LEN,
					 BLOCK_LEN),
			0);
		assert_memory_equal(world.memory, world.memory + BLOCK_LEN, BLOCK_LEN);
		assert_true(stats_of(world.client).reconnects > 0);
		world_close(&world);
	}
}

/* Silent longer than a heartbeat allows: its link is made anew, and works when it wakes. */
static void
test_node_silent(void **state)
{
	struct world world;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	fill(world.memory, BLOCK_LEN, 1);
	assert_int_equal(kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	cluster_freeze(&world.cluster.nodes[0].loop);
	assert_int_equal(
		kvp_put(world.client, &world.ns, "b", 1, world.memory, BLOCK_LEN), -KVP_E_NODEDOWN);
	cluster_thaw();
	assert_int_equal(kvp_put(world.client, &world.ns, "c", 1, world.memory, BLOCK_LEN), 0);
	assert_int_equal(kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	world_close(&world);
}

/* A block of one node, read by a client whose home is another; the first meta is not there. */
static void
test_two_nodes(void **state)
{
	const char *transports[] = {"shm", "ofi"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct kvp_client *other;
		struct world world;
		char metas[KVP_ADDR_LEN_MAX + 32];

		world_open(&world, transports[i], KVP_VERIFY_ALWAYS,
			&(struct cluster_cfg){.nodes = 2});
		snprintf(metas, sizeof(metas), "127.0.0.1:1,%s", world.cluster.meta.loop.addr);
		other = client_make_at(&world, metas, 1, transports[i], KVP_VERIFY_ALWAYS);
		assert_int_equal(kvp_memory_register(other, world.memory, world.memory_len), 0);
		fill(world.memory, BLOCK_LEN, 1);
		assert_int_equal(
			kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		assert_int_equal(
			kvp_get(other, &world.ns, "a", 1, world.memory + BLOCK_LEN, BLOCK_LEN), 0);
		assert_memory_equal(world.memory, world.memory + BLOCK_LEN, BLOCK_LEN);
		/* A second copy there; both go. */
		assert_int_equal(kvp_put(other, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		assert_int_equal(kvp_delete(world.client, &world.ns, "a", 1), 0);
		assert_int_equal(
			kvp_get(other, &world.ns, "a", 1, world.memory, BLOCK_LEN), -KVP_E_NOKEY);
		kvp_client_close(other);
		world_close(&world);
	}
}

/* An offer that is answered after the put gave up: the grant is given back, so that neither the key
 * stays taken nor the session ends with it. */
static void
test_late_offer(void **state)
{
	struct kvp_item item = {.key = "b", .key_len = 1, .seg_count = 1};
	struct kvp_batch batch = {
		.op = KVP_PUT, .items = &item, .item_count = 1, .deadline_ms = 200};
	struct world world;
	struct iovec seg;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
	fill(world.memory, BLOCK_LEN, 1);
	assert_int_equal(kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	seg = (struct iovec){world.memory, BLOCK_LEN};
	item.segs = &seg;
	batch.ns = &world.ns;
	cluster_freeze(&world.cluster.nodes[0].loop);
	(void)kvp_run(world.client, &batch, NULL);
	assert_int_equal(item.status, -KVP_E_TIMEOUT);
	cluster_thaw();
	poll(NULL, 0, 100);
	batch.deadline_ms = 2000; /* less than a grant */
	(void)kvp_run(world.client, &batch, NULL);
	assert_int_equal(item.status, 0);
	world_close(&world);
}

/* Its loop stands still: puts end by their deadlines; warm gets need no loop and go on. */
static void
test_node_frozen(void **state)
{
	const char *transports[] = {"shm", "ofi"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct kvp_item item = {.key = "b", .key_len = 1, .seg_count = 1};
		struct kvp_batch batch = {
			.op = KVP_PUT, .items = &item, .item_count = 1, .deadline_ms = 300};
		struct world world;
		struct iovec seg;
		uint64_t begin;

		world_open(&world, transports[i], KVP_VERIFY_ALWAYS, &(struct cluster_cfg){0});
		fill(world.memory, BLOCK_LEN, 1);
		assert_int_equal(
			kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		assert_int_equal(
			kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		cluster_freeze(&world.cluster.nodes[0].loop);
		assert_int_equal(
			kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
		seg = (struct iovec){.iov_base = world.memory, .iov_len = BLOCK_LEN};
		item.segs = &seg;
		batch.ns = &world.ns;
		begin = now_ms();
		assert_int_equal(kvp_run(world.client, &batch, NULL), -KVP_E_TIMEOUT);
		assert_true(now_ms() - begin >= 290 && now_ms() - begin <= 300 + LATE_MS);
		assert_int_equal(item.status, -KVP_E_TIMEOUT);
		cluster_thaw();
		assert_int_equal(
			kvp_put(world.client, &world.ns, "c", 1, world.memory, BLOCK_LEN), 0);
		world_close(&world);
	}
}

static void
test_meta_dies(void **state)
{
	struct world world;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	fill(world.memory, BLOCK_LEN, 1);
	assert_int_equal(kvp_put(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	cluster_stop_meta(&world.cluster);
	assert_int_equal(kvp_get(world.client, &world.ns, "a", 1, world.memory, BLOCK_LEN), 0);
	assert_int_equal(kvp_get(world.client, &world.ns, "b", 1, world.memory, BLOCK_LEN),
		-KVP_E_META_DOWN);
	assert_int_equal(kvp_match(world.client, &world.ns, "b", 1, 1), -KVP_E_META_DOWN);
	world_close(&world);
}

/* A large batch does not hold a small one up. */
static void
test_large_and_small(void **state)
{
	enum { COUNT = 65536, LEN = 64, STORED = 200 };
	struct kvp_item *items = calloc(COUNT, sizeof(*items));
	struct one *ones = calloc(STORED, sizeof(*ones));
	uint32_t *keys = calloc(COUNT, sizeof(*keys));
	struct iovec seg;
	struct kvp_completion done[2];
	struct kvp_batch batch;
	struct world world;
	struct kvp_cq *cq;

	(void)state;
	world_open(&world, "auto", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	items_make(&world, ones, items, STORED, "s", LEN);
	assert_int_equal(run_batch(&world, cq, KVP_PUT, items, STORED, 0, &done[0]), 0);
	assert_int_equal(done[0].ok_count, STORED);
	seg = (struct iovec){.iov_base = world.memory, .iov_len = LEN};
	for (uint32_t i = 0; i < COUNT; i++) {
		keys[i] = i;
		items[i] = (struct kvp_item){
			.key = &keys[i], .key_len = sizeof(keys[i]), .segs = &seg, .seg_count = 1};
	}
	batch = (struct kvp_batch){
		.op = KVP_GET, .items = items, .item_count = COUNT, .ns = &world.ns, .tag = 1};
	assert_int_equal(kvp_submit(cq, &batch), 0);
	batch.items = &(struct kvp_item){.key = "s-0", .key_len = 3, .segs = &seg, .seg_count = 1};
	batch.item_count = 1;
	batch.tag = 2;
	assert_int_equal(kvp_submit(cq, &batch), 0);
	assert_int_equal(kvp_cq_wait(cq, done, 1, 5000), 1);
	assert_int_equal(done[0].tag, 2);
	assert_int_equal(done[0].ok_count, 1);
	assert_int_equal(kvp_cq_wait(cq, done, 1, 5000), 1);
	assert_int_equal(done[0].tag, 1);
	assert_int_equal(done[0].ok_count, 0);
	assert_int_equal(done[0].status, 0);
	kvp_cq_close(cq);
	free(items);
	free(ones);
	free(keys);
	world_close(&world);
}

/* Closing with operations out completes them. */
static void
test_close_with_work_out(void **state)
{
	enum { COUNT = 64 };
	struct one *ones = calloc(COUNT, sizeof(*ones));
	struct kvp_item items[COUNT];
	struct kvp_batch batch;
	struct world world;
	struct kvp_cq *cq;

	(void)state;
	world_open(&world, "ofi", KVP_VERIFY_SAMPLED, &(struct cluster_cfg){0});
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	items_make(&world, ones, items, COUNT, "c", BLOCK_LEN);
	batch = (struct kvp_batch){
		.op = KVP_PUT, .items = items, .item_count = COUNT, .ns = &world.ns};
	assert_int_equal(kvp_submit(cq, &batch), 0);
	world_close(&world);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(items[i].status, -KVP_E_CANCELLED);
	}
	free(ones);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_get_shm),
		cmocka_unit_test(test_close_after_get),
		cmocka_unit_test(test_put_get_ofi),
		cmocka_unit_test(test_segments_shm),
		cmocka_unit_test(test_segments_ofi),
		cmocka_unit_test(test_prefix_and_bad_items),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_bad_checksum),
		cmocka_unit_test(test_threads_shm),
		cmocka_unit_test(test_threads_ofi),
		cmocka_unit_test(test_wake_shm),
		cmocka_unit_test(test_wake_ofi),
		cmocka_unit_test(test_node_dies),
		cmocka_unit_test(test_node_dies_in_put),
		cmocka_unit_test(test_node_restarts),
		cmocka_unit_test(test_node_silent),
		cmocka_unit_test(test_two_nodes),
		cmocka_unit_test(test_late_offer),
		cmocka_unit_test(test_node_frozen),
		cmocka_unit_test(test_meta_dies),
		cmocka_unit_test(test_large_and_small),
		cmocka_unit_test(test_close_with_work_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
