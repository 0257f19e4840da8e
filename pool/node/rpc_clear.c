// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_clear.c - CLEAR: older epochs of a family are over. On disk before the answer; their blocks
 * go in the turns that follow, and each one's end is announced like any other.
 */
#include "pool/node/session.h"

int
kvp_rpc_clear(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Clear *msg = (const Kvp__Clear *)request->msg;
	Kvp__ClearReply reply = KVP__CLEAR_REPLY__INIT;
	int err;

	if (msg->family.len != KVP_NS_LEN || msg->epoch == 0) {
		return -KVP_E_PROTO;
	}
	err = kvp_epochs_raise(node, msg->family.data, msg->epoch);
	err = err < 0 ? err : kvp_epochs_flush(node);
	if (err < 0) {
		return err;
	}
	kvp_info(node->cfg.log, "%s at %s cleared what is older than epoch %llu of a namespace",
		request->peer->conn->peer.name, request->peer->conn->peer.addr,
		(unsigned long long)msg->epoch);
	kvp_node_reply(node, request->call, 0, &reply.base);
	return 0;
}
