/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_delete.c - frees the copies known now: FIND -> SEND -> DONE.
 *
 * FIND asks the metas for all locations of every key, and the location cache for one they may not
 * know yet. SEND asks each node for its keys, a few messages at a time. An item is done well when
 * some node freed it; else it has the worst that was said.
 *
 * delete_step() is the only function that changes the state.
 */
#include "client/lookup.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum delete_state { DELETE_FIND, DELETE_SEND, DELETE_DONE };

/* One copy. */
struct delete_copy {
	uint32_t item;
	uint32_t number; /* of the node */
};

struct delete
{
	enum delete_state state;
	uint32_t next;              /* the first item not asked about */
	struct delete_copy *copies; /* owned; sorted by node once all are known */
	uint32_t copy_count;
	uint32_t copy_cap;
	uint32_t sent; /* copies */
};

struct delete_item {
	bool freed;
	int error; /* of a node */
};

static struct delete_item *
delete_item(struct kvp_oper *oper, uint32_t idx)
{
	return &((struct delete_item *)oper->items)[idx];
}

static int
delete_add(struct kvp_oper *oper, uint32_t idx, uint32_t number)
{
	struct delete *del = oper->head;

	if (del->copy_count == del->copy_cap) {
		uint32_t cap = del->copy_cap == 0 ? 64 : del->copy_cap * 2;
		struct delete_copy *copies = realloc(del->copies, cap * sizeof(*copies));

		if (copies == NULL) {
			return -ENOMEM;
		}
		del->copies = copies;
		del->copy_cap = cap;
	}
	del->copies[del->copy_count] = (struct delete_copy){.item = idx, .number = number};
	del->copy_count++;
	return 0;
}

/* All copies of one key: those the meta knows and the one in the cache. */
static int
delete_found(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *locs, uint32_t count)
{
	struct kvp_client *client = oper->cq->client;
	struct kvp_loc cached;
	struct kvp_key key;
	bool extra;
	int err = 0;

	kvp_oper_key(oper, idx, &key);
	extra = kvp_loc_cache_get(client->cache, oper->ns.digest, &key, &cached);
	if (extra) {
		kvp_loc_cache_drop(client->cache, oper->ns.digest, &key, &cached);
	}
	for (uint32_t i = 0; i < count && err == 0; i++) {
		extra = extra && cached.node != locs[i].node;
		err = delete_add(oper, idx, locs[i].node);
	}
	if (extra && err == 0) {
		err = delete_add(oper, idx, cached.node);
	}
	return err;
}

static void
delete_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct kvp_lookup_reader reader;
	int err = call->status;

	if (err == 0) {
		err = kvp_lookup_begin(call, &reader);
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		struct kvp_loc locs[KVP_REPLICAS_MAX];
		uint32_t idx = call->items[i];
		uint32_t count = err == 0 ? kvp_lookup_next(&reader, locs) : 0;
		int add_err = delete_found(oper, idx, locs, count);

		if (err < 0) {
			delete_item(oper, idx)->error = err;
		} else if (add_err < 0) {
			delete_item(oper, idx)->error = add_err;
		}
	}
	if (err == 0) {
		kvp_lookup_end(&reader);
	}
}

/* Asks where the next slice is. */
static int
delete_find(struct kvp_oper *oper)
{
	struct delete *del = oper->head;
	struct kvp_lookup lookup = {.replicas_max = KVP_REPLICAS_MAX, .done = delete_answered};

	lookup.items = malloc(KVP_RPC_KEYS_MAX * sizeof(*lookup.items));
	if (lookup.items == NULL) {
		return -ENOMEM;
	}
	while (lookup.item_count < KVP_RPC_KEYS_MAX && del->next < oper->batch.item_count) {
		if (oper->batch.items[del->next].status == KVP_ITEM_OPEN) {
			lookup.items[lookup.item_count] = del->next;
			lookup.item_count++;
		}
		del->next++;
	}
	if (lookup.item_count == 0) {
		free(lookup.items);
		return 0;
	}
	return kvp_lookup_post(oper, &lookup);
}

static int
copy_compare(const void *a, const void *b)
{
	const struct delete_copy *left = a;
	const struct delete_copy *right = b;

	if (left->number != right->number) {
		return left->number < right->number ? -1 : 1;
	}
	return left->item < right->item ? -1 : left->item > right->item;
}

static void
delete_done(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	Kvp__DeleteReply *msg = NULL;
	const uint8_t *statuses = NULL;
	int err = call->status;

	if (err == 0) {
		msg = (Kvp__DeleteReply *)kvp_msg_decode(
			kvp_rpc_reply_desc(KVP_RPC_DELETE), call->answer, call->answer_len);
		statuses = msg != NULL
				   ? kvp_array(&msg->statuses, call->item_count, sizeof(int32_t))
				   : NULL;
		err = statuses != NULL ? 0 : -KVP_E_PROTO;
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		struct delete_item *item = delete_item(oper, call->items[i]);
		int32_t status = err;

		if (err == 0) {
			memcpy(&status, statuses + i * sizeof(status), sizeof(status));
		}
		if (status == 0) {
			item->freed = true;
		} else if (status != -KVP_E_NOKEY) {
			item->error = status == -KVP_E_TIMEOUT || status == -KVP_E_BUSY
					      ? status
					      : -KVP_E_NODEDOWN;
		}
	}
	if (msg != NULL) {
		protobuf_c_message_free_unpacked(&msg->base, NULL);
	}
}

/* Sends one node's next slice. */
static int
delete_send(struct kvp_oper *oper)
{
	struct delete *del = oper->head;
	uint32_t number = del->copies[del->sent].number;
	uint32_t max = del->copy_count - del->sent;
	Kvp__Delete msg = KVP__DELETE__INIT;
	struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_DELETE,
		.number = number,
		.msg = &msg.base,
		.done = delete_done};
	struct kvp_writer writer;
	uint8_t *keys;
	size_t cap;
	bool posted;

	max = max < KVP_RPC_KEYS_MAX ? max : KVP_RPC_KEYS_MAX;
	cap = (size_t)max * (1 + KVP_KEY_LEN_MAX);
	keys = malloc(cap);
	what.items = malloc(max * sizeof(*what.items));
	if (keys == NULL || what.items == NULL) {
		free(keys);
		free(what.items);
		return -ENOMEM;
	}
	writer = kvp_writer_over(keys, cap);
	while (what.item_count < max && del->copies[del->sent].number == number) {
		struct kvp_key key;

		what.items[what.item_count] = del->copies[del->sent].item;
		kvp_oper_key(oper, what.items[what.item_count], &key);
		kvp_write_key(&writer, &key);
		what.item_count++;
		del->sent++;
	}
	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, cap - writer.left);
	posted = kvp_oper_call(oper, &what) != NULL;
	free(keys);
	return posted ? 0 : -ENOMEM;
}

static void
delete_finish(struct kvp_oper *oper)
{
	const struct delete *del = oper->head;
	int late = oper->end == -KVP_E_TIMEOUT && del->sent == 0 ? -KVP_E_META_DOWN : oper->end;

	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		const struct delete_item *item = delete_item(oper, i);

		if (oper->batch.items[i].status != KVP_ITEM_OPEN) {
			continue;
		}
		if (late != 0 && !item->freed) {
			oper->batch.items[i].status = late;
		} else if (item->error != 0) {
			oper->batch.items[i].status = item->error;
		} else {
			oper->batch.items[i].status = item->freed ? 0 : -KVP_E_NOKEY;
		}
	}
}

static void
delete_step(struct kvp_oper *oper)
{
	struct delete *del = oper->head;

	for (;;) {
		if (oper->end != 0) {
			del->state = DELETE_DONE;
		}
		switch (del->state) {
		case DELETE_FIND:
			if (del->next < oper->batch.item_count && oper->calls < KVP_CALLS_MAX) {
				if (delete_find(oper) < 0) {
					kvp_oper_end(oper, -ENOMEM);
				}
				break;
			}
			if (oper->calls > 0) {
				return;
			}
			if (del->copy_count > 0) {
				qsort(del->copies, del->copy_count, sizeof(*del->copies),
					copy_compare);
			}
			del->state = DELETE_SEND;
			break;
		case DELETE_SEND:
			if (del->sent < del->copy_count && oper->calls < 2 * KVP_CALLS_MAX) {
				if (delete_send(oper) < 0) {
					kvp_oper_end(oper, -ENOMEM);
				}
				break;
			}
			if (oper->calls > 0) {
				return;
			}
			del->state = DELETE_DONE;
			break;
		case DELETE_DONE:
			delete_finish(oper);
			free(del->copies);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
delete_start(struct kvp_oper *oper)
{
	struct delete *del = oper->head;

	del->state = DELETE_FIND;
}

const struct kvp_oper_ops kvp_oper_delete = {
	.head_len = sizeof(struct delete),
	.item_len = sizeof(struct delete_item),
	.moves_data = false,
	.start = delete_start,
	.step = delete_step,
};
