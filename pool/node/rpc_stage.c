/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_stage.c - STAGE: blocks of the SSD are brought into DRAM. Answered when all of them are
 * there or known not to come, or when the asker's time is over; grants nothing.
 */
#include "pool/node/announce.h"
#include "pool/node/session.h"
#include "pool/node/ssd.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

struct stage;

struct stage_key {
	struct kvp_ssd_waiter waiter;
	struct stage *stage;
	int32_t status; /* -KVP_E_TIMEOUT while it waits */
	struct kvp_loc loc;
};

struct stage {
	struct kvp_work work;
	struct kvp_reader keys; /* the next key; checked before */
	struct stage_key *items;
	uint32_t pending;
	bool asked; /* all keys are */
	uint64_t deadline_ns;
};

static void
stage_free(struct kvp_work *work)
{
	struct stage *stage = kvp_container_of(work, struct stage, work);

	for (uint32_t i = 0; i < work->count; i++) {
		kvp_list_remove(&stage->items[i].waiter.link);
	}
	free(stage->items);
	free(stage);
}

static void
stage_reply(struct stage *stage)
{
	struct kvp_node *node = stage->work.node;
	Kvp__StageReply reply = KVP__STAGE_REPLY__INIT;
	uint32_t count = stage->work.count;
	int32_t *statuses = calloc(count, sizeof(*statuses));
	struct kvp_loc *locs = calloc(count, sizeof(*locs));
	uint32_t staged = 0;

	if (statuses == NULL || locs == NULL) {
		free(statuses);
		free(locs);
		kvp_work_reply(&stage->work, -ENOMEM, NULL);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		statuses[i] = stage->items[i].status;
		if (statuses[i] == 0) {
			locs[staged++] = stage->items[i].loc;
		}
	}
	reply.statuses = kvp_bytes(statuses, count * sizeof(*statuses));
	reply.locations = kvp_bytes(locs, staged * sizeof(*locs));
	reply.sequence = kvp_announce_sequence(node->announce);
	kvp_work_reply(&stage->work, 0, &reply.base);
	free(statuses);
	free(locs);
}

static void
stage_key_done(struct kvp_ssd_waiter *waiter, int status, const struct kvp_loc *loc)
{
	struct stage_key *key = kvp_container_of(waiter, struct stage_key, waiter);
	struct stage *stage = key->stage;

	key->status = status;
	if (status == 0) {
		key->loc = *loc;
	}
	stage->pending--;
	if (stage->asked && stage->pending == 0) {
		stage_reply(stage);
	}
}

static void
stage_item(struct kvp_work *work, uint32_t idx)
{
	struct stage *stage = kvp_container_of(work, struct stage, work);
	const Kvp__Stage *msg = (const Kvp__Stage *)work->msg;
	struct kvp_loc loc;
	struct kvp_key key;
	int err;

	kvp_read_key(&stage->keys, &key);
	stage->pending++;
	if (work->node->ssd != NULL) {
		kvp_ssd_stage(work->node->ssd, msg->ns.data, &key, &stage->items[idx].waiter);
		return;
	}
	err = kvp_store_lookup(work->node->store, msg->ns.data, &key, &loc);
	stage_key_done(&stage->items[idx].waiter, err, &loc);
}

static void
stage_done(struct kvp_work *work)
{
	struct stage *stage = kvp_container_of(work, struct stage, work);

	stage->asked = true;
	if (stage->pending == 0) {
		stage_reply(stage);
		return;
	}
	kvp_list_push_back(&work->node->stages, &work->link);
}

void
kvp_stage_poll(struct kvp_node *node, uint64_t now_ns)
{
	kvp_list_for_each_safe (pos, &node->stages) {
		struct kvp_work *work = kvp_container_of(pos, struct kvp_work, link);
		struct stage *stage = kvp_container_of(work, struct stage, work);

		if (now_ns >= stage->deadline_ns) {
			stage_reply(stage);
		}
	}
}

static const struct kvp_work_ops stage_ops = {
	.item = stage_item,
	.done = stage_done,
	.free = stage_free,
};

int
kvp_rpc_stage(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Stage *msg = (const Kvp__Stage *)request->msg;
	int count = kvp_keys_count(msg->keys.data, msg->keys.len, KVP_RPC_KEYS_MAX);
	uint32_t wait_ms = msg->wait_ms;
	struct stage *stage;

	if (count <= 0 || msg->ns.len != KVP_NS_LEN) {
		return -KVP_E_PROTO;
	}
	stage = calloc(1, sizeof(*stage));
	if (stage == NULL) {
		return -ENOMEM;
	}
	stage->items = calloc((size_t)count, sizeof(*stage->items));
	if (stage->items == NULL) {
		free(stage);
		return -ENOMEM;
	}
	for (int i = 0; i < count; i++) {
		stage->items[i].stage = stage;
		stage->items[i].status = -KVP_E_TIMEOUT;
		stage->items[i].waiter.done = stage_key_done;
		kvp_list_init(&stage->items[i].waiter.link);
	}
	wait_ms = wait_ms > KVP_NODE_STAGE_WAIT_MS_MAX ? KVP_NODE_STAGE_WAIT_MS_MAX : wait_ms;
	stage->work.ops = &stage_ops;
	stage->work.count = (uint32_t)count;
	stage->keys = kvp_reader_over(msg->keys.data, msg->keys.len);
	stage->deadline_ns = kvp_node_now(node) + wait_ms * KVP_NS_PER_MS;
	kvp_work_start(node, request, &stage->work);
	return 0;
}
