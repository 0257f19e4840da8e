// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_offer.c - OFFER: for each key a slot to fill, or why not.
 *
 * Two passes over the keys. First from the last to the first those that are stored already: each
 * is an access, and a prompt's first block must be the youngest, its last one goes first. Then from
 * the first to the last those that are new: if space is short, the beginning of a prompt gets it.
 */
#include "pool/node/announce.h"
#include "pool/node/session.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

#define OFFER_NEW 1 /* status of a key that the first pass did not find */

struct offer {
	struct kvp_work work;
	const Kvp__Offer *msg; /* work.msg */
	const struct kvp_node_transport *transport;
	const uint8_t *items; /* packed kvp_offer_item in msg */
	uint32_t count;
	bool parent_given;
	struct kvp_key parent;
	/* count of each; the last two are filled at the key's index, closed up at the end */
	uint32_t *key_offs;
	int32_t *statuses;
	struct kvp_grant *grants;
	struct kvp_loc *locs;
};

static void
offer_free(struct kvp_work *work)
{
	struct offer *offer = kvp_container_of(work, struct offer, work);

	free(offer->key_offs);
	free(offer->statuses);
	free(offer->grants);
	free(offer->locs);
	free(offer);
}

/* Checked when the message came in, so it cannot fail here. */
static struct kvp_key
offer_key(const struct offer *offer, uint32_t idx)
{
	const uint8_t *packed = offer->msg->keys.data + offer->key_offs[idx];
	struct kvp_key key = {.len = packed[0]};

	memcpy(key.bytes, packed + 1, key.len);
	return key;
}

/* 0 with *ret_parent set or its len 0: none. -EINVAL. */
static int
offer_parent(const struct offer *offer, uint32_t idx, int32_t parent, struct kvp_key *ret_parent)
{
	ret_parent->len = 0;
	if (parent == KVP_PARENT_NONE) {
		return 0;
	}
	if (parent == KVP_PARENT_KEY && offer->parent_given) {
		*ret_parent = offer->parent;
		return 0;
	}
	if (parent < 0 || (uint32_t)parent >= offer->count || (uint32_t)parent == idx) {
		return -EINVAL;
	}
	*ret_parent = offer_key(offer, (uint32_t)parent);
	return 0;
}

static int
offer_one(struct offer *offer, uint32_t idx, const struct kvp_key *key)
{
	const Kvp__Context *context = offer->msg->context;
	struct kvp_offer_item item;
	struct kvp_key parent;
	struct kvp_offer ask = {
		.ns = offer->msg->ns.data,
		.key = key,
		.owner = offer->work.session->owner,
		.family = offer->msg->family.len != 0 ? offer->msg->family.data : NULL,
		.epoch = offer->msg->epoch,
	};

	memcpy(&item, offer->items + idx * sizeof(item), sizeof(item));
	if (item.flags != 0 || offer_parent(offer, idx, item.parent, &parent) < 0) {
		return -EINVAL;
	}
	if (item.len > KVP_BLOCK_LEN_MAX) {
		return -KVP_E_TOO_LARGE;
	}
	ask.len = item.len;
	ask.parent = parent.len != 0 ? &parent : NULL;
	ask.touch = (struct kvp_touch){
		.now_ns = offer->work.now_ns,
		.conversation = context != NULL ? context->conversation : 0,
		.turn = context != NULL ? context->turn : 0,
		.class = context != NULL ? context->class_ : 0,
		.position = item.position,
		.tokens = item.tokens,
		.parent = KVP_BLOCK_NONE,
	};
	return kvp_store_offer(
		offer->work.node->store, &ask, &offer->grants[idx], &offer->locs[idx]);
}

static void
offer_item(struct kvp_work *work, uint32_t turn)
{
	struct offer *offer = kvp_container_of(work, struct offer, work);
	bool first_pass = turn < offer->count;
	uint32_t idx = first_pass ? offer->count - 1 - turn : turn - offer->count;
	struct kvp_key key;
	struct kvp_loc loc;

	if (!first_pass && offer->statuses[idx] != OFFER_NEW) {
		return;
	}
	key = offer_key(offer, idx);
	if (first_pass &&
		kvp_store_lookup(work->node->store, offer->msg->ns.data, &key, &loc) < 0) {
		offer->statuses[idx] = OFFER_NEW;
		return;
	}
	offer->statuses[idx] = offer_one(offer, idx, &key);
}

/* Space comes free as quarantines end; half of one is a fair guess at the next. */
static uint32_t
offer_retry_ms(const struct kvp_node *node)
{
	return node->cfg.quarantine_ms / 2 + 1;
}

static void
offer_done(struct kvp_work *work)
{
	struct offer *offer = kvp_container_of(work, struct offer, work);
	struct kvp_node *node = work->node;
	Kvp__OfferReply reply = KVP__OFFER_REPLY__INIT;
	ProtobufCBinaryData desc =
		kvp_bytes(offer->transport->arena_write.bytes, offer->transport->arena_write.len);
	uint32_t granted = 0;
	uint32_t existing = 0;
	uint32_t refused = 0;

	for (uint32_t i = 0; i < offer->count; i++) {
		switch (offer->statuses[i]) {
		case 0:
			offer->grants[granted++] = offer->grants[i];
			break;
		case -KVP_E_EXISTS:
			offer->locs[existing++] = offer->locs[i];
			break;
		case -KVP_E_BUSY:
			reply.retry_ms = offer_retry_ms(node);
			break;
		case -KVP_E_IN_PROGRESS:
		case -KVP_E_NO_SPACE:
		case -KVP_E_EPOCH:
			break;
		default:
			refused++;
		}
	}
	kvp_metric_add(node->cfg.metrics, KVP_NODE_OFFERS_GRANTED, granted);
	kvp_metric_add(node->cfg.metrics, KVP_NODE_OFFERS_REFUSED, refused);
	reply.statuses = kvp_bytes(offer->statuses, offer->count * sizeof(*offer->statuses));
	reply.grants = kvp_bytes(offer->grants, granted * sizeof(*offer->grants));
	reply.locations = kvp_bytes(offer->locs, existing * sizeof(*offer->locs));
	if (granted > 0) {
		reply.write_descs = &desc;
		reply.n_write_descs = 1;
	}
	reply.sequence = kvp_announce_sequence(node->announce);
	kvp_work_reply(work, 0, &reply.base);
}

static const struct kvp_work_ops offer_ops = {
	.item = offer_item,
	.done = offer_done,
	.free = offer_free,
};

static const struct kvp_node_transport *
offer_transport(const struct kvp_node *node, const char *name)
{
	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		if (strcmp(node->transports[i].xport->ops->name, name) == 0) {
			return &node->transports[i];
		}
	}
	return NULL;
}

/* The message as a whole: how many keys, or a negative error. */
static int
offer_check(const Kvp__Offer *msg)
{
	int count;

	if (msg->ns.len != KVP_NS_LEN || (msg->family.len != 0 && msg->family.len != KVP_NS_LEN)) {
		return -KVP_E_PROTO;
	}
	if (msg->parent.len != 0 && kvp_keys_count(msg->parent.data, msg->parent.len, 1) != 1) {
		return -KVP_E_PROTO;
	}
	count = kvp_keys_count(msg->keys.data, msg->keys.len, KVP_RPC_KEYS_MAX);
	if (count <= 0 ||
		kvp_array(&msg->items, (size_t)count, sizeof(struct kvp_offer_item)) == NULL) {
		return -KVP_E_PROTO;
	}
	return count;
}

static int
offer_new(const Kvp__Offer *msg, uint32_t count, struct offer **ret_offer)
{
	struct offer *offer = calloc(1, sizeof(*offer));
	struct kvp_reader r = kvp_reader_over(msg->keys.data, msg->keys.len);
	struct kvp_key key;

	if (offer == NULL) {
		return -ENOMEM;
	}
	offer->work.ops = &offer_ops;
	offer->work.count = 2 * count;
	offer->msg = msg;
	offer->count = count;
	offer->items = msg->items.data;
	offer->key_offs = calloc(count, sizeof(*offer->key_offs));
	offer->statuses = calloc(count, sizeof(*offer->statuses));
	offer->grants = calloc(count, sizeof(*offer->grants));
	offer->locs = calloc(count, sizeof(*offer->locs));
	if (offer->key_offs == NULL || offer->statuses == NULL || offer->grants == NULL ||
		offer->locs == NULL) {
		offer_free(&offer->work);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		offer->key_offs[i] = (uint32_t)(r.pos - msg->keys.data);
		kvp_read_key(&r, &key);
	}
	if (msg->parent.len != 0) {
		r = kvp_reader_over(msg->parent.data, msg->parent.len);
		kvp_read_key(&r, &offer->parent);
		offer->parent_given = true;
	}
	*ret_offer = offer;
	return 0;
}

int
kvp_rpc_offer(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Offer *msg = (const Kvp__Offer *)request->msg;
	const struct kvp_node_transport *transport = offer_transport(node, msg->transport);
	int count = offer_check(msg);
	struct offer *offer;
	int err;

	if (count < 0) {
		return count;
	}
	if (transport == NULL) {
		return -KVP_E_NO_PROVIDER;
	}
	if (msg->family.len != 0) {
		/* A writer of a newer epoch brings the news; one of an older one gets EPOCH. */
		err = kvp_epochs_raise(node, msg->family.data, msg->epoch);
		if (err < 0) {
			return err;
		}
	}
	err = offer_new(msg, (uint32_t)count, &offer);
	if (err < 0) {
		return err;
	}
	offer->transport = transport;
	kvp_work_start(node, request, &offer->work);
	return 0;
}
