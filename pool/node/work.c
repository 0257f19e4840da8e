// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - see work.h. A message of one slice never waits: it is handled where it arrives.
 */
#include "pool/node/work.h"

#include "pool/node/announce.h"
#include "pool/node/session.h"

/* One slice; done() when it was the last. */
static void
work_slice(struct kvp_work *work)
{
	struct kvp_node *node = work->node;
	uint32_t left = work->count - work->next;
	uint32_t end = work->next + (left < KVP_NODE_SLICE_KEYS ? left : KVP_NODE_SLICE_KEYS);

	work->now_ns = kvp_node_now(node);
	while (work->next < end) {
		work->ops->item(work, work->next++);
	}
	kvp_node_worked(node, work->now_ns);
	kvp_announce_flush(node->announce);
	if (work->next == work->count) {
		work->ops->done(work);
		return;
	}
	kvp_list_push_back(&node->works, &work->link);
	node->cfg.rpc->ops->timer_start(node->cfg.rpc, &node->slice, 0);
}

void
kvp_work_start(struct kvp_node *node, struct kvp_request *request, struct kvp_work *work)
{
	struct kvp_session *session = request->peer->session;

	work->node = node;
	work->session = session;
	work->call = request->call;
	work->msg = request->msg;
	request->msg = NULL;
	kvp_list_init(&work->link);
	kvp_list_push_back(&session->works, &work->of_session);
	session->works_count++;
	session->works_len += work->call->len;
	work_slice(work);
}

void
kvp_work_reply(struct kvp_work *work, int status, const ProtobufCMessage *reply)
{
	struct kvp_session *session = work->session;

	session->works_count--;
	session->works_len -= work->call->len;
	kvp_list_remove(&work->link);
	kvp_list_remove(&work->of_session);
	kvp_node_reply(work->node, work->call, status, reply);
	protobuf_c_message_free_unpacked(work->msg, NULL);
	work->ops->free(work);
}

void
kvp_work_turn(struct kvp_rpc_timer *timer)
{
	struct kvp_node *node = kvp_container_of(timer, struct kvp_node, slice);
	struct kvp_list *link = kvp_list_pop_front(&node->works);

	if (link == NULL) {
		return;
	}
	work_slice(kvp_container_of(link, struct kvp_work, link));
	if (!kvp_list_empty(&node->works)) {
		node->cfg.rpc->ops->timer_start(node->cfg.rpc, &node->slice, 0);
	}
}
