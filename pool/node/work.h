/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - a call of a session that is too long for one turn of the loop: handled in slices of
 * keys, those of all sessions in turn, so that a long message holds nobody up.
 *
 * OWNERSHIP A handler allocates its own struct around a kvp_work and gives it to kvp_work_start();
 *           from then on it ends by kvp_work_reply(), which frees it. The session's end does that
 *           too, so items and done() always have a session.
 */
#ifndef KVP_POOL_NODE_WORK_H
#define KVP_POOL_NODE_WORK_H

#include "pool/node/node_impl.h"

struct kvp_work;

struct kvp_work_ops {
	/* Handles item idx; each is called once, in order. */
	void (*item)(struct kvp_work *work, uint32_t idx);
	/* After the last item: replies, or puts the work on a list of its own to reply later. */
	void (*done)(struct kvp_work *work);
	void (*free)(struct kvp_work *work);
};

struct kvp_work {
	const struct kvp_work_ops *ops;
	struct kvp_node *node;
	struct kvp_session *session;
	struct kvp_rpc_call *call;
	ProtobufCMessage *msg; /* owned; what the items point into */
	struct kvp_list link;  /* node->works or node->waits, or on none */
	struct kvp_list of_session;
	uint64_t now_ns; /* of the current slice */
	uint32_t next;
	uint32_t count;
};

/* Takes over the request's message, runs the first slice. ops and count are set, the rest zero. */
void kvp_work_start(struct kvp_node *node, struct kvp_request *request, struct kvp_work *work);

/* Replies and frees the work. */
void kvp_work_reply(struct kvp_work *work, int status, const ProtobufCMessage *reply);

/* The node's slice timer. */
void kvp_work_turn(struct kvp_rpc_timer *timer);

#endif /* KVP_POOL_NODE_WORK_H */
