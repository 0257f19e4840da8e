/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_lease.c - which of these keys, in order, does the pool hold, and keep that in place: FIND ->
 * ASK
 * -> DONE for KVP_LEASE; FIND -> ASK -> MAP -> DONE for KVP_VIEW.
 *
 * ASK has each node lease its items, by key, so what counts is what the node has now. MAP makes
 * each leased item readable in place, over the queue's connection to its node. At DONE the nodes'
 * leases become one of the caller's; an operation that was given up with nothing to show returns
 * them.
 *
 * lease_step() is the only function that changes the state.
 */
#include "client/leases.h"
#include "client/spread.h"
#include "client/view.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum lease_state { LEASE_FIND, LEASE_ASK, LEASE_MAP, LEASE_DONE };

struct lease {
	struct kvp_spread spread; /* first */
	enum lease_state state;
	struct kvp_lease_part *parts; /* owned */
	uint32_t part_count;
	uint64_t until_ns;
	uint32_t mapped; /* of spread.found, dealt with */
	uint32_t views;
};

/* Items of KVP_VIEW that are leased and not mapped yet: open, with a location. */
struct lease_item {
	struct kvp_loc loc; /* len 0: none */
};

static struct lease_item *
lease_item(struct kvp_oper *oper, uint32_t idx)
{
	return &((struct lease_item *)oper->items)[idx];
}

/* --- ASK -----------------------------------------------------------------------------------------
 */

/* NULL: it makes no sense. */
static Kvp__LeaseReply *
reply_decode(const struct kvp_call *call)
{
	Kvp__LeaseReply *msg = (Kvp__LeaseReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_LEASE), call->answer, call->answer_len);
	size_t held = 0;
	bool sound;

	if (msg == NULL) {
		return NULL;
	}
	sound = kvp_array(&msg->statuses, call->item_count, sizeof(int32_t)) != NULL;
	for (uint32_t i = 0; sound && i < call->item_count; i++) {
		int32_t status;

		memcpy(&status, msg->statuses.data + i * sizeof(status), sizeof(status));
		sound = status <= 0;
		held += status == 0;
	}
	if (!sound || msg->locations.len != held * sizeof(struct kvp_loc) ||
		(held > 0) != (msg->lease != 0)) {
		protobuf_c_message_free_unpacked(&msg->base, NULL);
		return NULL;
	}
	return msg;
}

static int
lease_part_add(struct lease *lease, const struct kvp_call *call, const Kvp__LeaseReply *msg)
{
	uint64_t until_ns = call->sent_ns + msg->lease_ms * KVP_NS_PER_MS;
	struct kvp_lease_part part = {.number = call->peer->number,
		.session_seq = kvp_peer_session_seq(call->peer),
		.lease = msg->lease};
	struct kvp_lease_part *parts =
		realloc(lease->parts, (lease->part_count + 1) * sizeof(*parts));

	if (parts == NULL) {
		kvp_lease_part_release(call->client, &part);
		return -ENOMEM;
	}
	parts[lease->part_count++] = part;
	lease->parts = parts;
	lease->until_ns = until_ns < lease->until_ns ? until_ns : lease->until_ns;
	return 0;
}

/* A leased item: where it is, now for certain. */
static void
lease_held(struct kvp_oper *oper, const struct kvp_call *call, uint32_t idx, struct kvp_loc loc)
{
	struct kvp_item *item = &oper->batch.items[idx];
	struct kvp_key key;

	loc.node = (uint16_t)call->peer->number;
	item->medium = loc.tier == KVP_TIER_SSD ? KVP_MEDIUM_SSD : KVP_MEDIUM_DRAM;
	item->local = call->peer->same_host;
	kvp_oper_key(oper, idx, &key);
	if (loc.tier == KVP_TIER_DRAM && kvp_word_state(loc.word) == KVP_SLOT_VALID) {
		kvp_loc_cache_put(oper->cq->client->cache, oper->ns.digest, &key, &loc);
	}
	lease_item(oper, idx)->loc = loc;
	if (oper->batch.op == KVP_LEASE) {
		item->status = 0;
	}
}

static void
lease_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	Kvp__LeaseReply *msg = call->status == 0 ? reply_decode(call) : NULL;
	int err = call->status == 0 && msg == NULL ? -KVP_E_PROTO : call->status;
	const uint8_t *locs = msg != NULL ? msg->locations.data : NULL;

	if (msg != NULL && msg->lease != 0) {
		err = lease_part_add(oper->head, call, msg);
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		uint32_t idx = call->items[i];
		int32_t status = err;
		struct kvp_loc loc;

		if (err == 0) {
			memcpy(&status, msg->statuses.data + i * sizeof(status), sizeof(status));
		}
		if (status < 0) {
			oper->batch.items[idx].status = status;
			continue;
		}
		memcpy(&loc, locs, sizeof(loc));
		locs += sizeof(loc);
		lease_held(oper, call, idx, loc);
	}
	if (msg != NULL) {
		protobuf_c_message_free_unpacked(&msg->base, NULL);
	}
}

/* Nobody waits for it any more: give it back. */
static void
lease_orphan(struct kvp_call *call)
{
	Kvp__LeaseReply *msg = reply_decode(call);

	if (msg == NULL) {
		return;
	}
	if (msg->lease != 0) {
		const struct kvp_lease_part part = {.number = call->peer->number,
			.session_seq = kvp_peer_session_seq(call->peer),
			.lease = msg->lease};

		kvp_lease_part_release(call->client, &part);
	}
	protobuf_c_message_free_unpacked(&msg->base, NULL);
}

/* Asks one node for its next slice. */
static int
lease_ask(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;
	const struct kvp_spread_item *found = &lease->spread.found[lease->spread.sent];
	uint32_t count = kvp_spread_run(&lease->spread, KVP_RPC_KEYS_MAX);
	size_t cap = (size_t)count * (1 + KVP_KEY_LEN_MAX);
	uint8_t *keys = malloc(cap);
	struct kvp_writer writer = kvp_writer_over(keys, cap);
	Kvp__Lease msg = KVP__LEASE__INIT;
	struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_LEASE,
		.number = found->loc.node,
		.msg = &msg.base,
		.items = malloc(count * sizeof(*what.items)),
		.item_count = count,
		.done = lease_answered,
		.orphan = lease_orphan};
	bool posted;

	if (keys == NULL || what.items == NULL) {
		free(keys);
		free(what.items);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct kvp_key key;

		what.items[i] = found[i].item;
		kvp_oper_key(oper, found[i].item, &key);
		kvp_write_key(&writer, &key);
	}
	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, cap - writer.left);
	msg.lease_ms = oper->batch.lease_ms;
	posted = kvp_oper_call(oper, &what) != NULL;
	free(keys);
	lease->spread.sent += count;
	return posted ? 0 : -ENOMEM;
}

/* --- MAP -----------------------------------------------------------------------------------------
 */

/* -EINPROGRESS: the connection is on its way. Its transport decides: whether a node is on this host
 * is not always known before. */
static int
lease_map_one(struct kvp_oper *oper, uint32_t idx)
{
	struct lease *lease = oper->head;
	struct kvp_item *item = &oper->batch.items[idx];
	struct kvp_chan *chan;
	struct kvp_key key;
	int err;

	if (item->status != KVP_ITEM_OPEN) {
		return 0;
	}
	err = kvp_chan_want(oper->cq, lease_item(oper, idx)->loc.node, &chan);
	if (err == -EINPROGRESS) {
		return err;
	}
	kvp_oper_key(oper, idx, &key);
	if (err == 0) {
		err = kvp_view_make(
			chan, oper->ns.digest, &key, &lease_item(oper, idx)->loc, &item->view);
	}
	if (err == 0) {
		item->local = 1;
		lease->views++;
	}
	item->status = err;
	return 0;
}

/* --- the end -------------------------------------------------------------------------------------
 */

/* The views go with what they are of. */
static void
lease_drop_views(struct kvp_oper *oper, int status)
{
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		struct kvp_item *item = &oper->batch.items[i];

		if (item->view != NULL) {
			kvp_view_free(item->view);
			item->view = NULL;
		}
		item->status = item->status == 0 ? status : item->status;
	}
}

static void
lease_finish(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;
	struct kvp_client *client = oper->cq->client;
	uint64_t now = kvp_now_ns(client->env);
	uint32_t held = 0;
	int err;

	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status == KVP_ITEM_OPEN) {
			oper->batch.items[i].status = oper->end != 0 ? oper->end : -ENOMEM;
		}
		held += oper->batch.items[i].status == 0;
	}
	if (held == 0 || oper->silent) {
		for (uint32_t i = 0; i < lease->part_count; i++) {
			kvp_lease_part_release(client, &lease->parts[i]);
		}
		free(lease->parts);
		lease_drop_views(oper, -KVP_E_CANCELLED);
	} else {
		err = kvp_leases_add(client->leases, lease->parts, lease->part_count,
			lease->until_ns, lease->views, &oper->lease);
		if (err < 0) {
			lease_drop_views(oper, err);
		}
		oper->lease_ms = err == 0 && lease->until_ns > now
					 ? (uint32_t)((lease->until_ns - now) / KVP_NS_PER_MS)
					 : 0;
	}
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].view != NULL) {
			kvp_view_set_lease(oper->batch.items[i].view, oper->lease);
		}
	}
	kvp_spread_free(&lease->spread);
}

/* True: the state is to be looked at again. */
static bool
lease_step_ask(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;

	if (lease->spread.sent < lease->spread.count && oper->calls < 2 * KVP_CALLS_MAX) {
		if (lease_ask(oper) < 0) {
			kvp_oper_end(oper, -ENOMEM);
		}
		return true;
	}
	if (oper->calls > 0) {
		return false;
	}
	lease->state = oper->batch.op == KVP_VIEW ? LEASE_MAP : LEASE_DONE;
	return true;
}

static bool
lease_step_map(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;
	uint32_t quantum = KVP_QUANTUM;

	oper->unparked = false;
	while (lease->mapped < oper->batch.item_count) {
		if (lease_map_one(oper, lease->mapped) == -EINPROGRESS) {
			return false; /* stepped again when that changes */
		}
		lease->mapped++;
		quantum--;
		if (quantum == 0) {
			kvp_oper_run(oper); /* behind the others */
			return false;
		}
	}
	lease->state = LEASE_DONE;
	return true;
}

static void
lease_step(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;
	int err;

	for (;;) {
		if (oper->end != 0) {
			lease->state = LEASE_DONE;
		}
		switch (lease->state) {
		case LEASE_FIND:
			err = kvp_spread_find(oper);
			if (err == -EINPROGRESS) {
				return;
			}
			lease->state = err < 0 ? LEASE_DONE : LEASE_ASK;
			break;
		case LEASE_ASK:
			if (!lease_step_ask(oper)) {
				return;
			}
			break;
		case LEASE_MAP:
			if (!lease_step_map(oper)) {
				return;
			}
			break;
		case LEASE_DONE:
			lease_finish(oper);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
lease_start(struct kvp_oper *oper)
{
	struct lease *lease = oper->head;

	lease->state = LEASE_FIND;
	lease->spread.prefix = true;
	lease->until_ns = UINT64_MAX;
}

const struct kvp_oper_ops kvp_oper_lease = {
	.head_len = sizeof(struct lease),
	.item_len = sizeof(struct lease_item),
	.moves_data = false,
	.start = lease_start,
	.step = lease_step,
};
