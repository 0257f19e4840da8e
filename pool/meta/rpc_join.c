/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_join.c - JOIN: a node says who it is, where it listens, and how far its stream got.
 */
#include "hal/base/addr.h"
#include "hal/base/err.h"
#include "pool/meta/meta_impl.h"
#include "transport/proto/wire.h"

#include <inttypes.h>
#include <string.h>

/* -KVP_E_PROTO when it does not fit. Control characters become '?': names end up in logs. */
static int
text_copy(char *ret_text, size_t cap, const char *text)
{
	size_t len = strlen(text);

	if (len >= cap) {
		return -KVP_E_PROTO;
	}
	for (size_t i = 0; i <= len; i++) {
		unsigned char c = (unsigned char)text[i];

		ret_text[i] = (c < 0x20 && i < len) || c == 0x7f ? '?' : text[i];
	}
	return 0;
}

static int
info_decode(const Kvp__NodeInfo *node, struct kvp_member_info *ret_info)
{
	struct kvp_member_info info = {0};

	if (node == NULL || node->id.len != KVP_ID_LEN || node->incarnation == 0 ||
		(node->host_id.len != 0 && node->host_id.len != KVP_ID_LEN)) {
		return -KVP_E_PROTO;
	}
	if (text_copy(info.name, sizeof(info.name), node->name) < 0 ||
		text_copy(info.address, sizeof(info.address), node->address) < 0 ||
		text_copy(info.local_address, sizeof(info.local_address), node->local_address) <
			0) {
		return -KVP_E_PROTO;
	}
	memcpy(info.id, node->id.data, KVP_ID_LEN);
	info.incarnation = node->incarnation;
	if (node->host_id.len != 0) {
		memcpy(info.host_id, node->host_id.data, KVP_ID_LEN);
	}
	*ret_info = info;
	return 0;
}

/* Clients will be sent there: 0.0.0.0 or a malformed text must show here, not as a hit rate of 0.
 */
static bool
addresses_valid(const struct kvp_member_info *info)
{
	struct kvp_addr addr;

	if (kvp_addr_parse(info->address, -1, &addr) < 0 || addr.is_unix || addr.port == 0 ||
		kvp_addr_is_wildcard(&addr)) {
		return false;
	}
	return info->local_address[0] == '\0' ||
	       (kvp_addr_parse(info->local_address, -1, &addr) == 0 && addr.is_unix);
}

void
meta_rpc_join(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Join *req)
{
	Kvp__JoinReply reply = KVP__JOIN_REPLY__INIT;
	struct kvp_rpc_conn *conn = call->conn;
	struct kvp_member_info info;
	struct kvp_member *member;
	bool snapshot;
	int err;

	if (info_decode(req->node, &info) < 0) {
		meta_refuse_close(meta, call, -KVP_E_PROTO, KVP_META_REJECT_MESSAGE);
		return;
	}
	if (conn->peer.kind != KVP_PEER_NODE ||
		memcmp(conn->peer.id, info.id, sizeof(info.id)) != 0 ||
		conn->peer.incarnation != info.incarnation) {
		meta_refuse_close(meta, call, -KVP_E_AUTH, KVP_META_REJECT_IDENTITY);
		return;
	}
	if (!addresses_valid(&info)) {
		kvp_error(meta->cfg.log,
			"node %s at %s cannot be reached at the address it advertises, '%s'",
			info.name, conn->peer.addr, info.address);
		meta_refuse(meta, call, -KVP_E_CONFIG, KVP_META_REJECT_ADDRESS);
		return;
	}
	err = kvp_membership_join(&meta->ms, kvp_now_ns(meta->cfg.env), &info, conn, req->sequence,
		&member, &snapshot);
	if (err < 0) { /* counted and logged where it was found, with both sides' names */
		meta->cfg.rpc->ops->reply(call, err, NULL, 0);
		return;
	}
	kvp_metric_add(meta->cfg.metrics, KVP_META_JOINS, 1);
	kvp_info(meta->cfg.log,
		"node %s at %s joined: incarnation %" PRIu64 ", sequence %" PRIu64 ", %s",
		info.name, info.address, info.incarnation, req->sequence,
		snapshot ? "snapshot needed" : "goes on");
	meta_dir_changed(meta);
	reply.snapshot = snapshot;
	reply.heartbeat_ms = meta->cfg.heartbeat_ms;
	meta_reply(meta, call, &reply.base);
}
