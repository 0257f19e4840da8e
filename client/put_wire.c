/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put_wire.c - the messages of a put: OFFER, COMMIT, RELEASE, made and read back. See op_put.h.
 */
#include "client/op_put.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PUT_RETRY_MS_MIN 1u
#define PUT_RETRY_MS_MAX 200u

/* --- OFFER
 * ----------------------------------------------------------------------------------------- */

/* What an offer is put together from. */
struct offer_build {
	uint32_t *idxs;
	uint32_t count;
	struct kvp_offer_item *items;
	uint8_t *keys;
	struct kvp_writer writer;
	struct kvp_key parent; /* the message's; len 0: none yet */
};

/* Says who the parent of an item is: the one before it in this message, or the message's parent
 * key. There is one of that in a message: a second one is left out, it only informs. */
static int32_t
offer_parent(struct kvp_oper *oper, struct offer_build *build, uint32_t idx)
{
	const struct kvp_item *item = &oper->batch.items[idx];
	const struct kvp_item *before = idx > 0 ? item - 1 : NULL;
	struct kvp_key key;
	bool is_before;

	if (item->parent_len > 0) {
		is_before = before != NULL && before->key_len == item->parent_len &&
			    before->key != NULL &&
			    memcmp(before->key, item->parent, item->parent_len) == 0;
		if (kvp_key_set(&key, item->parent, item->parent_len) < 0) {
			return KVP_PARENT_NONE;
		}
	} else if (item->position > 0 && before != NULL && before->key != NULL) {
		is_before = true;
		if (kvp_key_set(&key, before->key, before->key_len) < 0) {
			return KVP_PARENT_NONE;
		}
	} else {
		return KVP_PARENT_NONE;
	}
	if (is_before && build->count > 0 && build->idxs[build->count - 1] == idx - 1) {
		return (int32_t)build->count - 1;
	}
	if (build->parent.len == 0) {
		build->parent = key;
	}
	return kvp_key_equal(&build->parent, &key) ? KVP_PARENT_KEY : KVP_PARENT_NONE;
}

static void
offer_add(struct kvp_oper *oper, struct offer_build *build, uint32_t idx)
{
	const struct kvp_item *item = &oper->batch.items[idx];
	struct kvp_key key;

	kvp_oper_key(oper, idx, &key);
	kvp_write_key(&build->writer, &key);
	build->items[build->count] = (struct kvp_offer_item){.len = oper->lens[idx],
		.position = item->position,
		.tokens = item->tokens,
		.parent = offer_parent(oper, build, idx)};
	build->idxs[build->count] = idx;
	build->count++;
	put_item(oper, idx)->phase = PUT_ITEM_OFFERED;
}

/* An OFFER that nobody waits for any more was granted: give that back. Left alone the grant would
 * keep the key from everybody until it runs out, and then end our whole session. */
static void
offer_orphan(struct kvp_call *call)
{
	Kvp__OfferReply *msg = (Kvp__OfferReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_OFFER), call->answer, call->answer_len);
	size_t count;
	struct kvp_grant *grants;

	if (msg == NULL) {
		return;
	}
	count = msg->grants.len / sizeof(*grants);
	grants = count > 0 && count <= call->item_count ? malloc(count * sizeof(*grants)) : NULL;
	if (grants != NULL) {
		memcpy(grants, msg->grants.data, count * sizeof(*grants));
		kvp_put_release(call->client, call->peer->number, call->session_seq, grants,
			(uint32_t)count);
		free(grants);
	}
	protobuf_c_message_free_unpacked(&msg->base, NULL);
}

static const uint8_t no_family[KVP_NS_LEN]; /* of a namespace that was not made by us */

static int
offer_send(struct kvp_oper *oper, const struct kvp_offer *offer, struct offer_build *build)
{
	struct put *put = oper->head;
	Kvp__Context context = KVP__CONTEXT__INIT;
	Kvp__Offer msg = KVP__OFFER__INIT;
	struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_OFFER,
		.number = put->home,
		.session_seq = put->session_seq,
		.linger_ns = put->grant_ms * KVP_NS_PER_MS,
		.msg = &msg.base,
		.items = build->idxs,
		.item_count = build->count,
		.done = offer->done,
		.orphan = offer_orphan};
	uint8_t parent[1 + KVP_KEY_LEN_MAX];
	struct kvp_writer parent_writer = kvp_writer_over(parent, sizeof(parent));

	context.conversation = oper->batch.context.conversation;
	context.turn = oper->batch.context.turn;
	context.class_ = oper->batch.context.service_class;
	msg.context = &context;
	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.epoch = oper->ns.epoch;
	if (memcmp(oper->ns.family, no_family, KVP_NS_LEN) != 0) {
		msg.family = kvp_bytes(oper->ns.family, KVP_NS_LEN);
	}
	msg.transport = (char *)(uintptr_t)offer->transport; /* read only */
	msg.keys = kvp_bytes(build->keys, (size_t)(build->writer.pos - build->keys));
	msg.items = kvp_bytes(build->items, build->count * sizeof(*build->items));
	if (build->parent.len > 0) {
		kvp_write_key(&parent_writer, &build->parent);
		msg.parent = kvp_bytes(parent, sizeof(parent) - parent_writer.left);
	}
	return kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;
}

int
kvp_offer_post(struct kvp_oper *oper, const struct kvp_offer *offer)
{
	struct put *put = oper->head;
	uint32_t max = put->offer.count < offer->keys_max ? put->offer.count : offer->keys_max;
	struct offer_build build = {.idxs = malloc(max * sizeof(uint32_t)),
		.items = malloc(max * sizeof(struct kvp_offer_item)),
		.keys = malloc((size_t)max * (1 + KVP_KEY_LEN_MAX))};
	uint64_t bytes = 0;
	int err = -ENOMEM;

	if (build.idxs == NULL || build.items == NULL || build.keys == NULL) {
		free(build.idxs);
		goto out_free;
	}
	build.writer = kvp_writer_over(build.keys, (size_t)max * (1 + KVP_KEY_LEN_MAX));
	while (build.count < max) {
		uint32_t idx = put->offer.head;

		if (build.count > 0 && bytes + oper->lens[idx] > offer->bytes_max) {
			break;
		}
		(void)kvp_fifo_pop(oper, &put->offer);
		bytes += oper->lens[idx];
		offer_add(oper, &build, idx);
	}
	err = offer_send(oper, offer, &build);

out_free:
	free(build.items);
	free(build.keys);
	return err;
}

/* Sizes of everything in the answer must fit the statuses. */
static bool
offer_is_sound(const struct kvp_call *call, const Kvp__OfferReply *msg)
{
	size_t granted = 0;
	size_t exist = 0;
	int32_t status;

	if (kvp_array(&msg->statuses, call->item_count, sizeof(status)) == NULL) {
		return false;
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		memcpy(&status, msg->statuses.data + i * sizeof(status), sizeof(status));
		granted += status == 0;
		exist += status == -KVP_E_EXISTS;
		if (status > 0) {
			return false;
		}
	}
	return msg->grants.len == granted * sizeof(struct kvp_grant) &&
	       msg->locations.len == exist * sizeof(struct kvp_loc);
}

int
kvp_offer_begin(const struct kvp_call *call, struct kvp_offer_reader *ret_reader)
{
	Kvp__OfferReply *msg = (Kvp__OfferReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_OFFER), call->answer, call->answer_len);
	uint32_t retry_ms;

	if (msg == NULL) {
		return -KVP_E_PROTO;
	}
	if (!offer_is_sound(call, msg)) {
		protobuf_c_message_free_unpacked(&msg->base, NULL);
		return -KVP_E_PROTO;
	}
	retry_ms = msg->retry_ms < PUT_RETRY_MS_MIN ? PUT_RETRY_MS_MIN : msg->retry_ms;
	retry_ms = retry_ms > PUT_RETRY_MS_MAX ? PUT_RETRY_MS_MAX : retry_ms;
	*ret_reader = (struct kvp_offer_reader){.msg = msg,
		.statuses = msg->statuses.data,
		.grants = msg->grants.data,
		.locs = msg->locations.data,
		.desc_count = (uint32_t)msg->n_write_descs,
		.retry_ns = retry_ms * KVP_NS_PER_MS};
	return 0;
}

int
kvp_offer_next(struct kvp_offer_reader *reader, uint64_t len, struct kvp_grant *ret_grant,
	struct kvp_loc *ret_loc)
{
	int32_t status;

	memcpy(&status, reader->statuses, sizeof(status));
	reader->statuses += sizeof(status);
	if (status == -KVP_E_EXISTS) {
		memcpy(ret_loc, reader->locs, sizeof(*ret_loc));
		reader->locs += sizeof(*ret_loc);
		if (kvp_word_state(ret_loc->word) != KVP_SLOT_VALID) {
			ret_loc->word = 0;
		}
	} else if (status == 0) {
		memcpy(ret_grant, reader->grants, sizeof(*ret_grant));
		reader->grants += sizeof(*ret_grant);
		if (ret_grant->wdesc >= reader->desc_count || ret_grant->len < len) {
			return -KVP_E_PROTO;
		}
	}
	return status;
}

void
kvp_offer_end(struct kvp_offer_reader *reader)
{
	ProtobufCMessage *msg = reader->msg;

	protobuf_c_message_free_unpacked(msg, NULL);
}

int
kvp_put_add_descs(struct kvp_oper *oper, const struct kvp_offer_reader *reader)
{
	struct put *put = oper->head;
	const Kvp__OfferReply *msg = reader->msg;
	struct kvp_rdesc *descs;

	if (msg->n_write_descs == 0) {
		return 0;
	}
	descs = realloc(put->descs, (put->desc_count + msg->n_write_descs) * sizeof(*descs));
	if (descs == NULL) {
		return -ENOMEM;
	}
	put->descs = descs;
	for (size_t i = 0; i < msg->n_write_descs; i++) {
		const ProtobufCBinaryData *from = &msg->write_descs[i];
		struct kvp_rdesc *to = &descs[put->desc_count + i];

		if (from->len > KVP_RDESC_LEN_MAX) {
			return -KVP_E_PROTO;
		}
		memset(to, 0, sizeof(*to));
		to->len = (uint8_t)from->len;
		memcpy(to->bytes, from->data, from->len);
	}
	put->desc_base = put->desc_count;
	put->desc_count += (uint32_t)msg->n_write_descs;
	return 0;
}

/* --- COMMIT
 * ------------------------------------------------------------------------------------------- */

/* The time the node may wait for the metas: not so long that its answer comes after the deadline.
 */
static uint32_t
commit_wait_ms(const struct kvp_oper *oper)
{
	uint64_t now = kvp_now_ns(oper->cq->client->env);
	uint64_t left = oper->deadline_ns > now ? oper->deadline_ns - now : 0;

	if (left > 400 * KVP_NS_PER_MS) {
		return 0; /* the node's default, 100 ms */
	}
	return (uint32_t)(left / 4 / KVP_NS_PER_MS) + 1;
}

int
kvp_commit_post(struct kvp_oper *oper, void (*done)(struct kvp_call *call))
{
	struct put *put = oper->head;
	uint32_t max = put->commit.count < KVP_RPC_KEYS_MAX ? put->commit.count : KVP_RPC_KEYS_MAX;
	struct kvp_grant *grants = malloc(max * sizeof(*grants));
	uint8_t *sums = malloc((size_t)max * KVP_SUM_LEN);
	uint32_t *idxs = malloc(max * sizeof(*idxs));
	Kvp__Commit msg = KVP__COMMIT__INIT;
	struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_COMMIT,
		.number = put->home,
		.session_seq = put->session_seq,
		.msg = &msg.base,
		.items = idxs,
		.item_count = max,
		.done = done};
	int err = -ENOMEM;

	if (grants == NULL || sums == NULL || idxs == NULL) {
		free(idxs);
		goto out_free;
	}
	for (uint32_t i = 0; i < max; i++) {
		struct put_item *item;

		idxs[i] = kvp_fifo_pop(oper, &put->commit);
		item = put_item(oper, idxs[i]);
		item->phase = PUT_ITEM_COMMITTING;
		grants[i] = item->grant;
		memcpy(&sums[(size_t)i * KVP_SUM_LEN], item->sum, KVP_SUM_LEN);
	}
	msg.grants = kvp_bytes(grants, max * sizeof(*grants));
	msg.sums = kvp_bytes(sums, (size_t)max * KVP_SUM_LEN);
	msg.index_wait_ms = commit_wait_ms(oper);
	msg.local_only = (oper->batch.flags & KVP_BATCH_LOCAL_COMMIT) != 0;
	err = kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;

out_free:
	free(grants);
	free(sums);
	return err;
}

int
kvp_commit_begin(const struct kvp_call *call, struct kvp_commit_reader *ret_reader)
{
	Kvp__CommitReply *msg = (Kvp__CommitReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_COMMIT), call->answer, call->answer_len);
	size_t stored = 0;

	if (msg == NULL) {
		return -KVP_E_PROTO;
	}
	if (kvp_array(&msg->statuses, call->item_count, sizeof(int32_t)) == NULL) {
		goto err_free;
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		int32_t status;

		memcpy(&status, msg->statuses.data + i * sizeof(status), sizeof(status));
		if (status > 0) {
			goto err_free;
		}
		stored += status == 0;
	}
	if (msg->locations.len != stored * sizeof(struct kvp_loc)) {
		goto err_free;
	}
	*ret_reader = (struct kvp_commit_reader){.msg = msg,
		.statuses = msg->statuses.data,
		.locs = msg->locations.data,
		.unindexed = msg->unindexed};
	return 0;

err_free:
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return -KVP_E_PROTO;
}

int
kvp_commit_next(struct kvp_commit_reader *reader, struct kvp_loc *ret_loc)
{
	int32_t status;

	memcpy(&status, reader->statuses, sizeof(status));
	reader->statuses += sizeof(status);
	if (status == 0) {
		memcpy(ret_loc, reader->locs, sizeof(*ret_loc));
		reader->locs += sizeof(*ret_loc);
	}
	return status;
}

void
kvp_commit_end(struct kvp_commit_reader *reader)
{
	ProtobufCMessage *msg = reader->msg;

	protobuf_c_message_free_unpacked(msg, NULL);
}

/* --- the rest
 * -------------------------------------------------------------------------------------------- */

void
kvp_put_release(struct kvp_client *client, uint32_t number, uint32_t session_seq,
	const struct kvp_grant *grants, uint32_t count)
{
	Kvp__Release msg = KVP__RELEASE__INIT;
	struct kvp_call *call = NULL;
	struct kvp_peer *peer;
	uint8_t *body;
	size_t len;

	if (count == 0) {
		return;
	}
	peer = kvp_peers_ref(client->peers, number);
	msg.grants = kvp_bytes(grants, count * sizeof(*grants));
	if (peer != NULL && kvp_msg_encode(&msg.base, &body, &len) == 0) {
		call = kvp_call_new(client, NULL, KVP_TO_NODE, KVP_RPC_RELEASE, body, len);
	}
	if (call == NULL) {
		kvp_peer_unref(peer);
		return; /* they run out by themselves */
	}
	call->peer = peer;
	call->session_seq = session_seq;
	call->deadline_ns = kvp_now_ns(client->env) + KVP_NS_PER_S;
	kvp_call_post(call);
}

void
kvp_put_renew(struct kvp_client *client, uint32_t number, uint32_t session_seq)
{
	struct kvp_peer *peer = kvp_peers_ref(client->peers, number);
	struct kvp_call *call =
		peer != NULL ? kvp_call_new(client, NULL, KVP_TO_RENEW, 0, NULL, 0) : NULL;

	if (call == NULL) {
		kvp_peer_unref(peer);
		return; /* the grant runs out by itself, and the session with it */
	}
	call->peer = peer;
	call->session_seq = session_seq;
	kvp_call_post(call);
}

void
kvp_put_cache(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *loc)
{
	struct put *put = oper->head;
	struct kvp_loc ours = *loc;
	struct kvp_key key;

	if (kvp_word_state(loc->word) != KVP_SLOT_VALID || loc->tier != KVP_TIER_DRAM) {
		return;
	}
	ours.node = (uint16_t)put->home;
	kvp_oper_key(oper, idx, &key);
	kvp_loc_cache_put(oper->cq->client->cache, oper->ns.digest, &key, &ours);
	oper->batch.items[idx].medium = KVP_MEDIUM_DRAM;
}
