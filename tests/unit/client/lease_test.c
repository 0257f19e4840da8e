/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_test.c - leases, views, touch, clear, cancel, drain and usage against real nodes in one
 * process.
 */
#include "client/include/kvpool/admin.h"
#include "client/include/kvpool/kvpool.h"
#include "hal/base/err.h"
#include "tests/unit/client/cluster.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_LEN 65536u
#define KEY_LEN   8u
#define HELD      16u /* of 64 blocks */

struct world {
	struct cluster cluster;
	struct kvp_client *client;
	struct kvp_namespace ns;
	uint8_t *memory; /* registered */
	size_t memory_len;
};

static struct kvp_client *
client_make(struct world *world, const char *transport)
{
	struct kvp_client_options options = {.struct_size = sizeof(options),
		.meta = world->cluster.meta.loop.addr,
		.node = world->cluster.nodes[0].loop.addr,
		.transport = transport,
		.deadline_ms = 5000,
		.verify = KVP_VERIFY_ALWAYS};
	struct kvp_client *client;

	assert_int_equal(kvp_client_open(&options, &client), 0);
	assert_int_equal(kvp_memory_register(client, world->memory, world->memory_len), 0);
	return client;
}

static void
ns_make(uint64_t epoch, struct kvp_namespace *ret_ns)
{
	const struct kvp_namespace_desc desc = {
		.struct_size = sizeof(desc), .model = "test", .block_tokens = 16, .epoch = epoch};

	assert_int_equal(kvp_namespace_make(&desc, ret_ns), 0);
}

static void
world_open(struct world *world, const char *transport)
{
	const struct cluster_cfg cfg = {.arena_len = 4u << 20, .quarantine_ms = 5, .nodes = 2};

	memset(world, 0, sizeof(*world));
	cluster_start(&world->cluster, &cfg);
	ns_make(1, &world->ns);
	world->memory_len = 4u << 20;
	world->memory = aligned_alloc(4096, world->memory_len);
	assert_non_null(world->memory);
	world->client = client_make(world, transport);
}

static void
world_close(struct world *world)
{
	kvp_client_close(world->client);
	free(world->memory);
	cluster_stop(&world->cluster);
}

static void
key_make(uint8_t key[KEY_LEN], uint64_t number)
{
	memcpy(key, &number, KEY_LEN);
}

static void
fill(uint8_t *buf, uint64_t number)
{
	for (size_t i = 0; i < BLOCK_LEN; i++) {
		buf[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
	}
}

static int
put(struct world *world, const struct kvp_namespace *ns, uint64_t number)
{
	uint8_t key[KEY_LEN];

	key_make(key, number);
	fill(world->memory, number);
	return kvp_put(world->client, ns, key, KEY_LEN, world->memory, BLOCK_LEN);
}

static int
get(struct world *world, uint64_t number)
{
	uint8_t *dst = world->memory + BLOCK_LEN;
	uint8_t key[KEY_LEN];
	int err;

	key_make(key, number);
	err = kvp_get(world->client, &world->ns, key, KEY_LEN, dst, BLOCK_LEN);
	if (err == 0) {
		fill(world->memory, number);
		assert_memory_equal(dst, world->memory, BLOCK_LEN);
	}
	return err;
}

static void
put_many(struct world *world, uint64_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(put(world, &world->ns, first + i), 0);
	}
}

/* A batch without segments over keys first..first+count-1. */
static struct kvp_completion
run(struct world *world, struct kvp_client *client, enum kvp_opcode op, uint64_t first,
	uint32_t count, uint32_t lease_ms, struct kvp_item *items)
{
	struct kvp_batch batch = {.op = op,
		.items = items,
		.item_count = count,
		.ns = &world->ns,
		.lease_ms = lease_ms};
	uint8_t keys[64][KEY_LEN];
	struct kvp_completion done;
	int err;

	assert_true(count <= 64);
	memset(items, 0, count * sizeof(*items));
	for (uint32_t i = 0; i < count; i++) {
		key_make(keys[i], first + i);
		items[i].key = keys[i];
		items[i].key_len = KEY_LEN;
	}
	err = kvp_run(client, &batch, &done);
	assert_true(err == 0 || err == -KVP_E_NO_PROVIDER);
	for (uint32_t i = 0; i < count; i++) {
		items[i].key = NULL;
	}
	return done;
}

static void
tier_note(void *arg, const struct kvp_admin_tier *tier)
{
	*(struct kvp_admin_tier *)arg = *tier;
}

static struct kvp_admin_tier
tier_of(struct world *world)
{
	struct kvp_admin_tier tier = {0};

	assert_int_equal(
		kvp_admin_usage(world->cluster.nodes[0].loop.addr, 5000, tier_note, NULL, &tier),
		0);
	assert_int_equal(tier.medium, KVP_MEDIUM_DRAM);
	return tier;
}

/* Until the node says that so many blocks are leased. */
static void
wait_leased(struct world *world, uint64_t blocks)
{
	for (int i = 0; i < 1000 && tier_of(world).leased_blocks != blocks; i++) {
		(void)poll(NULL, 0, 5);
	}
	assert_int_equal(tier_of(world).leased_blocks, blocks);
}

static void
lease_holds_with(const char *transport)
{
	struct kvp_item items[HELD + 2];
	struct kvp_completion done;
	struct world world;
	uint8_t key[KEY_LEN];
	uint32_t left = 0;

	world_open(&world, transport);
	put_many(&world, 0, HELD);
	done = run(&world, world.client, KVP_LEASE, 0, HELD + 2, 30000, items);
	assert_int_equal(done.prefix, HELD);
	assert_int_equal(done.ok_count, HELD);
	assert_true(done.lease != 0);
	assert_true(done.lease_ms > 20000 && done.lease_ms <= 30000);
	assert_int_equal(items[0].medium, KVP_MEDIUM_DRAM);
	assert_int_equal(items[HELD].status, -KVP_E_NOKEY);
	assert_int_equal(items[HELD + 1].status, -KVP_E_NOKEY);
	put_many(&world, 1000, 200);
	for (uint64_t i = 0; i < HELD; i++) {
		assert_int_equal(get(&world, i), 0);
	}
	key_make(key, 3);
	assert_int_equal(kvp_delete(world.client, &world.ns, key, KEY_LEN), -KVP_E_BUSY);

	kvp_release(world.client, done.lease);
	kvp_release(world.client, done.lease);
	kvp_release(world.client, 0);
	wait_leased(&world, 0);
	assert_int_equal(kvp_delete(world.client, &world.ns, key, KEY_LEN), 0);
	put_many(&world, 2000, 200);
	for (uint64_t i = 0; i < HELD; i++) {
		left += get(&world, i) == 0;
	}
	assert_int_equal(left, 0);
	done = run(&world, world.client, KVP_LEASE, 0, 4, 1000, items);
	assert_int_equal(done.ok_count, 0);
	assert_int_equal(done.lease, 0);
	world_close(&world);
}

static void
test_lease_holds_shm(void **state)
{
	(void)state;
	lease_holds_with("shm");
}

static void
test_lease_holds_ofi(void **state)
{
	(void)state;
	lease_holds_with("ofi");
}

/* Time ends it, the owner's death does, and so does the operator. */
static void
test_lease_ends(void **state)
{
	struct kvp_item items[HELD];
	struct kvp_completion done;
	struct kvp_client *other;
	struct world world;

	(void)state;
	world_open(&world, "shm");
	put_many(&world, 0, HELD);
	done = run(&world, world.client, KVP_LEASE, 0, HELD, 20, items);
	assert_int_equal(done.ok_count, HELD);
	wait_leased(&world, 0);
	kvp_release(world.client, done.lease); /* too late is fine */

	other = client_make(&world, "shm");
	done = run(&world, other, KVP_LEASE, 0, HELD, 60000, items);
	assert_int_equal(done.ok_count, HELD);
	wait_leased(&world, HELD);
	kvp_client_close(other);
	wait_leased(&world, 0);

	done = run(&world, world.client, KVP_LEASE, 0, HELD, 60000, items);
	assert_int_equal(
		kvp_admin_leases(world.cluster.nodes[0].loop.addr, 5000, 0, NULL, NULL), 0);
	wait_leased(&world, HELD);
	assert_int_equal(
		kvp_admin_leases(world.cluster.nodes[0].loop.addr, 5000, 1, NULL, NULL), 1);
	wait_leased(&world, 0);
	world_close(&world);
}

static void
test_view(void **state)
{
	struct kvp_item items[HELD + 1];
	struct kvp_completion done;
	struct world world;
	uint64_t len;

	(void)state;
	world_open(&world, "shm");
	put_many(&world, 0, HELD);
	done = run(&world, world.client, KVP_VIEW, 0, HELD + 1, 60000, items);
	assert_int_equal(done.prefix, HELD);
	assert_null(items[HELD].view);
	put_many(&world, 1000, 200);
	for (uint64_t i = 0; i < HELD; i++) {
		assert_int_equal(items[i].local, 1);
		fill(world.memory, i);
		assert_memory_equal(kvp_view_data(items[i].view, &len), world.memory, BLOCK_LEN);
		assert_int_equal(len, BLOCK_LEN);
		assert_int_equal(kvp_view_valid(items[i].view), 1);
	}
	/* Ended by force: readable, and it says that it is not the block. */
	kvp_release(world.client, done.lease);
	wait_leased(&world, 0);
	put_many(&world, 2000, 200);
	for (uint64_t i = 0; i < HELD; i++) {
		volatile const uint8_t *data = kvp_view_data(items[i].view, NULL);

		(void)data[0];
		(void)data[BLOCK_LEN - 1];
		assert_int_equal(kvp_view_valid(items[i].view), 0);
		kvp_view_release(items[i].view);
	}
	kvp_view_release(NULL);

	/* The last view's end is the lease's. */
	put_many(&world, 0, 2);
	done = run(&world, world.client, KVP_VIEW, 0, 2, 60000, items);
	assert_int_equal(done.ok_count, 2);
	kvp_view_release(items[0].view);
	wait_leased(&world, 2);
	kvp_view_release(items[1].view);
	wait_leased(&world, 0);

	/* The node goes: the view stays readable. */
	done = run(&world, world.client, KVP_VIEW, 0, 1, 60000, items);
	assert_int_equal(done.ok_count, 1);
	cluster_stop_node(&world.cluster, 0);
	fill(world.memory, 0);
	assert_memory_equal(kvp_view_data(items[0].view, NULL), world.memory, BLOCK_LEN);
	kvp_view_release(items[0].view);
	world_close(&world);
}

/* Over the network there is nothing to look into. */
static void
test_view_remote(void **state)
{
	struct kvp_item items[2];
	struct kvp_completion done;
	struct world world;

	(void)state;
	world_open(&world, "ofi");
	put_many(&world, 0, 2);
	done = run(&world, world.client, KVP_VIEW, 0, 2, 60000, items);
	assert_int_equal(done.ok_count, 0);
	assert_int_equal(items[0].status, -KVP_E_NO_PROVIDER);
	assert_null(items[0].view);
	wait_leased(&world, 0);
	world_close(&world);
}

static uint64_t
touches_of(const struct world *world)
{
	return kvp_metric_get(&world->cluster.nodes[0].loop.metrics, KVP_NODE_TOUCHES);
}

static void
test_touch(void **state)
{
	struct kvp_item items[8];
	struct kvp_completion done;
	struct kvp_client *other;
	struct world world;
	uint64_t before;
	uint32_t left = 0;

	(void)state;
	world_open(&world, "shm");
	other = client_make(&world, "shm"); /* whose cache knows nothing */
	put_many(&world, 0, 8);
	for (uint64_t round = 0; round < 20; round++) {
		put_many(&world, 1000 + 10 * round, 10);
		before = touches_of(&world);
		done = run(&world, other, KVP_TOUCH, 0, 8, 0, items);
		assert_int_equal(done.ok_count, 8);
		for (int i = 0; i < 1000 && touches_of(&world) < before + 8; i++) {
			(void)poll(NULL, 0, 5);
		}
	}
	for (uint64_t i = 0; i < 8; i++) {
		left += get(&world, i) == 0;
	}
	assert_int_equal(left, 8);
	done = run(&world, other, KVP_TOUCH, 5000, 2, 0, items);
	assert_int_equal(done.ok_count, 0);
	assert_int_equal(items[0].status, -KVP_E_NOKEY);
	kvp_client_close(other);
	world_close(&world);
}

static void
ns_note(void *arg, const struct kvp_admin_namespace *ns)
{
	struct kvp_admin_namespace *sum = arg;

	sum->blocks += ns->blocks;
	sum->bytes += ns->bytes;
	sum->old++;
}

static void
test_clear(void **state)
{
	struct kvp_admin_namespace sum = {0};
	struct kvp_namespace next;
	struct world world;

	(void)state;
	world_open(&world, "shm");
	put_many(&world, 0, 32);
	ns_make(2, &next);
	assert_memory_equal(next.family, world.ns.family, sizeof(next.family));
	assert_int_equal(
		kvp_admin_usage(world.cluster.nodes[0].loop.addr, 5000, NULL, ns_note, &sum), 0);
	assert_int_equal(sum.old, 1);
	assert_int_equal(sum.blocks, 32);
	assert_int_equal(sum.bytes, 32 * BLOCK_LEN);
	assert_int_equal(kvp_clear(world.client, &next, 5000), 0);
	assert_int_equal(kvp_clear(world.client, &next, 5000), 0);
	for (int i = 0; i < 1000 && tier_of(&world).blocks > 0; i++) {
		(void)poll(NULL, 0, 5);
	}
	assert_int_equal(tier_of(&world).blocks, 0);
	assert_int_equal(get(&world, 0), -KVP_E_NOKEY);
	assert_int_equal(put(&world, &world.ns, 0), -KVP_E_EPOCH); /* late */
	assert_int_equal(put(&world, &next, 0), 0);
	assert_int_equal(kvp_clear(world.client, &world.ns, 5000), -KVP_E_EPOCH);
	next.epoch = 0;
	assert_int_equal(kvp_clear(world.client, &next, 5000), -KVP_E_NAMESPACE);
	world_close(&world);
}

/* A batch that waits for a node that is frozen can be taken back; memory is free after it. */
static void
test_cancel_and_drain(void **state)
{
	struct kvp_item items[2] = {0};
	struct iovec segs[2];
	struct kvp_batch batch = {.op = KVP_PUT, .items = items, .item_count = 2, .tag = 7};
	struct kvp_completion done;
	struct kvp_cq *cq;
	struct world world;
	uint8_t keys[2][KEY_LEN];

	(void)state;
	world_open(&world, "shm");
	put_many(&world, 0, 1); /* connected */
	assert_int_equal(kvp_cq_open(world.client, 4, &cq), 0);
	batch.ns = &world.ns;
	for (uint32_t i = 0; i < 2; i++) {
		key_make(keys[i], 100 + i);
		segs[i] = (struct iovec){world.memory + i * BLOCK_LEN, BLOCK_LEN};
		items[i].key = keys[i];
		items[i].key_len = KEY_LEN;
		items[i].segs = &segs[i];
		items[i].seg_count = 1;
	}
	assert_int_equal(kvp_cancel(cq, 7), 0);
	cluster_freeze(&world.cluster.nodes[0].loop);
	assert_int_equal(kvp_submit(cq, &batch), 0);
	assert_int_equal(kvp_drain(cq, world.memory, 1, 20), -KVP_E_TIMEOUT);
	assert_int_equal(kvp_drain(cq, world.memory + 2 * BLOCK_LEN, BLOCK_LEN, 0), 0);
	assert_int_equal(kvp_cancel(cq, 8), 0);
	assert_int_equal(kvp_cancel(cq, 7), 1);
	assert_int_equal(kvp_drain(cq, world.memory, world.memory_len, 0), 0);
	assert_int_equal(kvp_cq_poll(cq, &done, 1), 1);
	assert_int_equal(done.status, -KVP_E_CANCELLED);
	assert_int_equal(items[0].status, -KVP_E_CANCELLED);
	assert_int_equal(kvp_cancel(cq, 7), 0);
	cluster_thaw();

	/* What is not taken back ends by itself, and then the memory is free. */
	assert_int_equal(kvp_submit(cq, &batch), 0);
	assert_int_equal(kvp_drain(cq, world.memory, world.memory_len, 5000), 0);
	assert_int_equal(kvp_cq_poll(cq, &done, 1), 1);
	assert_int_equal(done.ok_count, 2);
	assert_int_equal(kvp_drain(cq, world.memory, 0, 0), -EINVAL);
	kvp_cq_close(cq);
	world_close(&world);
}

static void
test_bad_batches(void **state)
{
	struct kvp_item item = {.key = "k", .key_len = 1};
	struct kvp_batch batch = {.op = KVP_LEASE, .items = &item, .item_count = 1};
	struct kvp_completion done;
	struct world world;

	(void)state;
	world_open(&world, "shm");
	batch.ns = &world.ns;
	assert_int_equal(kvp_run(world.client, &batch, &done), -EINVAL); /* for how long? */
	batch.op = KVP_TOUCH;
	batch.lease_ms = 5;
	assert_int_equal(kvp_run(world.client, &batch, &done), -EINVAL);
	batch.op = KVP_VIEW;
	item.key_len = 0;
	assert_int_equal(kvp_run(world.client, &batch, &done), 0);
	assert_int_equal(item.status, -KVP_E_KEY_LEN);
	assert_int_equal(done.lease, 0);
	world_close(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lease_holds_shm),
		cmocka_unit_test(test_lease_holds_ofi),
		cmocka_unit_test(test_lease_ends),
		cmocka_unit_test(test_view),
		cmocka_unit_test(test_view_remote),
		cmocka_unit_test(test_touch),
		cmocka_unit_test(test_clear),
		cmocka_unit_test(test_cancel_and_drain),
		cmocka_unit_test(test_bad_batches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
