// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_session.c - SESSION_OPEN: a token, the limits, and how to reach the arena and the table.
 */
#include "pool/node/session.h"

int
kvp_rpc_session_open(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__SessionOpen *msg = (const Kvp__SessionOpen *)request->msg;
	Kvp__SessionOpenReply reply = KVP__SESSION_OPEN_REPLY__INIT;
	Kvp__Transport transports[KVP_TRANSPORTS_MAX];
	Kvp__Transport *list[KVP_TRANSPORTS_MAX];
	struct kvp_session *session;
	int err;

	if (request->peer->session != NULL ||
		(msg->host_id.len != 0 && msg->host_id.len != KVP_ID_LEN)) {
		return -KVP_E_PROTO;
	}
	err = kvp_session_open(node, request->peer, &session);
	if (err < 0) {
		return err;
	}
	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		struct kvp_node_transport *from = &node->transports[i];
		Kvp__Transport *to = &transports[reply.n_transports];

		if ((session->transports & 1u << i) == 0) {
			continue;
		}
		kvp__transport__init(to);
		to->name = (char *)(uintptr_t)from->xport->ops->name;
		to->address = from->addr;
		to->arena_read = kvp_bytes(from->arena_read.bytes, from->arena_read.len);
		to->table_read = kvp_bytes(from->table_read.bytes, from->table_read.len);
		if (from->xport->ops->caps & KVP_XPORT_LOCAL) {
			to->host_id = kvp_bytes(node->cfg.host_id, KVP_ID_LEN);
		}
		list[reply.n_transports++] = to;
	}
	reply.transports = list;
	reply.token = kvp_bytes(session->token, KVP_TOKEN_LEN);
	reply.quarantine_ms = node->cfg.quarantine_ms;
	reply.grant_ms = node->cfg.grant_ms;
	reply.block_len_max = KVP_BLOCK_LEN_MAX;
	reply.keys_max = KVP_RPC_KEYS_MAX;
	kvp_node_reply(node, request->call, 0, &reply.base);
	return 0;
}
