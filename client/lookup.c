/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - LOOKUP: made from items of a batch, and read back. See lookup.h.
 */
#include "client/lookup.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKUP_NO_NUMBER UINT16_MAX

int
kvp_lookup_post(struct kvp_oper *oper, const struct kvp_lookup *lookup)
{
	const size_t cap = (size_t)lookup->item_count * (1 + KVP_KEY_LEN_MAX);
	struct kvp_oper_call what = {.to = KVP_TO_META,
		.type = KVP_RPC_LOOKUP,
		.avoid = lookup->avoid,
		.items = lookup->items,
		.item_count = lookup->item_count,
		.done = lookup->done};
	Kvp__Lookup msg = KVP__LOOKUP__INIT;
	uint8_t *keys = malloc(cap);
	struct kvp_writer writer;
	bool posted;

	if (keys == NULL) {
		free(lookup->items);
		return -ENOMEM;
	}
	writer = kvp_writer_over(keys, cap);
	for (uint32_t i = 0; i < lookup->item_count; i++) {
		struct kvp_key key;

		kvp_oper_key(oper, lookup->items[i], &key);
		kvp_write_key(&writer, &key);
	}
	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, cap - writer.left);
	msg.prefix = lookup->prefix;
	msg.replicas_max = lookup->replicas_max;
	what.msg = &msg.base;
	posted = kvp_oper_call(oper, &what) != NULL;
	free(keys);
	kvp_client_count(oper->cq->client, KVP_STAT_LOOKUPS, lookup->item_count);
	return posted ? 0 : -ENOMEM;
}

/* Our number of one of its nodes. */
static uint16_t
lookup_learn(struct kvp_client *client, const Kvp__NodeInfo *node)
{
	bool same_host = node->host_id.len == KVP_ID_LEN &&
			 memcmp(node->host_id.data, client->host_id, KVP_ID_LEN) == 0;
	const struct kvp_peer_info info = {.id = node->id.data,
		.incarnation = node->incarnation,
		.addr = same_host && node->local_address[0] != '\0' ? node->local_address
								    : node->address,
		.same_host = same_host};
	struct kvp_peer *peer;
	uint16_t number;

	if (node->id.len != KVP_ID_LEN || strlen(info.addr) >= KVP_ADDR_LEN_MAX) {
		return LOOKUP_NO_NUMBER;
	}
	peer = kvp_peers_learn(client->peers, &info);
	if (peer == NULL) {
		return LOOKUP_NO_NUMBER;
	}
	number = (uint16_t)peer->number;
	kvp_peer_unref(peer); /* a wrong number is found out by the check of the entry */
	return number;
}

/* Sizes of everything in the answer must fit together. */
static bool
lookup_is_sound(const struct kvp_call *call, const Kvp__LookupReply *msg)
{
	size_t total = 0;

	if (msg->counts.len > call->item_count || msg->n_nodes > KVP_NODES_MAX) {
		return false;
	}
	for (size_t i = 0; i < msg->counts.len; i++) {
		total += msg->counts.data[i];
	}
	return msg->locations.len == total * sizeof(struct kvp_loc);
}

int
kvp_lookup_begin(const struct kvp_call *call, struct kvp_lookup_reader *ret_reader)
{
	Kvp__LookupReply *msg = (Kvp__LookupReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_LOOKUP), call->answer, call->answer_len);
	struct kvp_lookup_reader reader = {.client = call->client, .msg = msg};
	int err = -KVP_E_PROTO;

	if (msg == NULL) {
		return err;
	}
	if (!lookup_is_sound(call, msg)) {
		goto err_free;
	}
	reader.count = (uint32_t)msg->counts.len;
	reader.counts = msg->counts.data;
	reader.locs = msg->locations.data;
	reader.behind = msg->n_behind > 0;
	reader.node_count = (uint32_t)msg->n_nodes;
	reader.numbers = calloc(msg->n_nodes + 1, sizeof(*reader.numbers));
	if (reader.numbers == NULL) {
		err = -ENOMEM;
		goto err_free;
	}
	for (size_t i = 0; i < msg->n_nodes; i++) {
		reader.numbers[i] = lookup_learn(call->client, msg->nodes[i]);
	}
	*ret_reader = reader;
	return 0;

err_free:
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return err;
}

uint32_t
kvp_lookup_next(struct kvp_lookup_reader *reader, struct kvp_loc locs[KVP_REPLICAS_MAX])
{
	uint32_t count = 0;
	uint32_t given = reader->next < reader->count ? reader->counts[reader->next] : 0;

	reader->next++;
	for (uint32_t i = 0; i < given; i++) {
		struct kvp_loc loc;

		memcpy(&loc, reader->locs, sizeof(loc));
		reader->locs += sizeof(loc);
		if (count < KVP_REPLICAS_MAX && loc.node < reader->node_count &&
			reader->numbers[loc.node] != LOOKUP_NO_NUMBER &&
			kvp_word_state(loc.word) == KVP_SLOT_VALID) {
			loc.node = reader->numbers[loc.node];
			locs[count] = loc;
			count++;
		}
	}
	return count;
}

void
kvp_lookup_end(struct kvp_lookup_reader *reader)
{
	ProtobufCMessage *msg = reader->msg;

	protobuf_c_message_free_unpacked(msg, NULL);
	free(reader->numbers);
}
