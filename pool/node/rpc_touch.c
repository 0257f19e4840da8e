// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_touch.c - TOUCH: reads that passed this node by, so that the hottest blocks do not look
 * coldest. One way, lossy, believed only as far as the store still knows the generation.
 *
 * Taken from the last to the first, like the keys of an offer: clients list a prompt in order.
 */
#include "pool/node/session.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

static void
touch_free(struct kvp_work *work)
{
	free(work);
}

static void
touch_item(struct kvp_work *work, uint32_t idx)
{
	const Kvp__Touch *msg = (const Kvp__Touch *)work->msg;
	struct kvp_touch_item item;
	struct kvp_touch touch = {.now_ns = work->now_ns, .parent = KVP_BLOCK_NONE};

	memcpy(&item, msg->touches.data + (work->count - 1 - idx) * sizeof(item), sizeof(item));
	if (item.slot >= work->node->cfg.slots_max) {
		return;
	}
	touch.conversation = item.conversation;
	touch.class = item.class;
	kvp_store_touch(work->node->store, item.slot, item.word, &touch);
}

static void
touch_done(struct kvp_work *work)
{
	kvp_work_reply(work, 0, NULL);
}

static const struct kvp_work_ops touch_ops = {
	.item = touch_item,
	.done = touch_done,
	.free = touch_free,
};

int
kvp_rpc_touch(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Touch *msg = (const Kvp__Touch *)request->msg;
	size_t count = msg->touches.len / sizeof(struct kvp_touch_item);
	struct kvp_work *work;

	if (count == 0 || count > KVP_RPC_KEYS_MAX ||
		kvp_array(&msg->touches, count, sizeof(struct kvp_touch_item)) == NULL) {
		return -KVP_E_PROTO;
	}
	work = calloc(1, sizeof(*work));
	if (work == NULL) {
		return -ENOMEM;
	}
	work->ops = &touch_ops;
	work->count = (uint32_t)count;
	kvp_work_start(node, request, work);
	return 0;
}
