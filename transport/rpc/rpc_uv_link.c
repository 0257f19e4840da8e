/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_link.c - an outgoing connection that comes back by itself, and the calls on it. Loop
 * thread only.
 *
 * States are in rpc_uv.h; link_enter() alone changes them. SOON, RESOLVE, CONNECT and HELLO keep
 * calls waiting, UP sends them, BACKOFF fails them. A callback may close the link: its memory
 * stays until the loop comes round (the timer `later`), and every loop over its lists starts anew
 * from the head.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call that waits, or was sent and has no answer yet. */
struct link_call {
	struct kvp_rpc_req *req; /* the caller's, until done() */
	struct kvp_rpc_uv_link *link;
	struct kvp_list node; /* in link->waiting or link->sent[] */
	struct kvp_rpc_timer deadline;
	struct kvp_rpc_out *out; /* owned; NULL once sent */
	uint32_t id;
};

static struct kvp_rpc_uv_link *
link_of(struct kvp_rpc_link *pub)
{
	return kvp_container_of(pub, struct kvp_rpc_uv_link, pub);
}

/* --- states -------------------------------------------------------------------------------------
 */
void
kvp_rpc_link_enter(struct kvp_rpc_uv_link *link, enum kvp_rpc_link_state state)
{
	struct kvp_rpc *rpc = &link->rpc->pub;
	const struct kvp_env *env = link->rpc->cfg.env;
	uint64_t half = link->backoff_ns / 2;

	kvp_assert(link->state != KVP_RPC_LINK_CLOSED);
	link->state = state;
	switch (state) {
	case KVP_RPC_LINK_SOON:
		/* Spread, for everybody lost that server at one moment. */
		kvp_rpc_timer_start(
			rpc, &link->turn, kvp_random_below(env, KVP_RPC_BACKOFF_MIN_NS));
		break;
	case KVP_RPC_LINK_RESOLVE:
	case KVP_RPC_LINK_CONNECT:
		if (!kvp_rpc_timer_running(&link->turn)) {
			kvp_rpc_timer_start(rpc, &link->turn, link->rpc->bounds.connect_ns);
		}
		break;
	case KVP_RPC_LINK_HELLO:
		kvp_rpc_timer_start(rpc, &link->turn, link->rpc->bounds.hello_ns);
		break;
	case KVP_RPC_LINK_BACKOFF:
		kvp_rpc_timer_start(rpc, &link->turn, half + kvp_random_below(env, half));
		link->backoff_ns *= 2;
		if (link->backoff_ns > KVP_RPC_BACKOFF_MAX_NS) {
			link->backoff_ns = KVP_RPC_BACKOFF_MAX_NS;
		}
		break;
	case KVP_RPC_LINK_UP:
	case KVP_RPC_LINK_CLOSED:
		kvp_rpc_timer_stop(rpc, &link->turn);
		break;
	}
}

static void
link_turn(struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_uv_link *link = kvp_container_of(timer, struct kvp_rpc_uv_link, turn);

	switch (link->state) {
	case KVP_RPC_LINK_SOON:
	case KVP_RPC_LINK_BACKOFF:
		kvp_rpc_dial_start(link);
		break;
	case KVP_RPC_LINK_RESOLVE:
	case KVP_RPC_LINK_CONNECT:
		kvp_rpc_link_failed(link, -ETIMEDOUT);
		break;
	case KVP_RPC_LINK_HELLO:
		kvp_rpc_link_failed(link, -KVP_E_TIMEOUT);
		break;
	case KVP_RPC_LINK_UP:
	case KVP_RPC_LINK_CLOSED:
		kvp_assert(!"no turn in this state");
	}
}

/* --- calls --------------------------------------------------------------------------------------
 */
/* Gives the request back to its owner. The link may be closed after it. */
static void
call_end(struct link_call *call, int status, const uint8_t *body, size_t len)
{
	struct kvp_rpc_uv_link *link = call->link;
	struct kvp_rpc_req *req = call->req;

	kvp_list_remove(&call->node);
	kvp_rpc_timer_stop(&link->rpc->pub, &call->deadline);
	if (call->out != NULL) {
		link->waiting_bytes -= call->out->len;
		free(call->out);
	}
	kvp_assert(link->calls_count > 0);
	link->calls_count--;
	free(call);
	req->done(req, status, body, len);
}

static void
call_late(struct kvp_rpc_timer *timer)
{
	/* A reply that still comes finds no call of its id. */
	call_end(kvp_container_of(timer, struct link_call, deadline), -KVP_E_TIMEOUT, NULL, 0);
}

static void
calls_end_list(struct kvp_list *list, int status)
{
	while (!kvp_list_empty(list)) {
		call_end(kvp_container_of(list->next, struct link_call, node), status, NULL, 0);
	}
}

static void
calls_end_sent(struct kvp_rpc_uv_link *link, int status)
{
	for (size_t i = 0; i < KVP_RPC_LINK_BUCKETS; i++) {
		calls_end_list(&link->sent[i], status);
	}
}

static int
call_send(struct link_call *call)
{
	struct kvp_rpc_uv_link *link = call->link;
	struct kvp_rpc_out *out = call->out;

	call->out = NULL;
	link->waiting_bytes -= out->len;
	kvp_list_remove(&call->node);
	kvp_list_push_back(&link->sent[call->id % KVP_RPC_LINK_BUCKETS], &call->node);
	return kvp_rpc_stream_send(&link->tie->stream, out);
}

/* A request that became no call: its place in a list and its status lie in req->impl. */
static struct kvp_list *
failed_node(struct kvp_rpc_req *req)
{
	_Static_assert(sizeof(struct kvp_list) <= 2 * sizeof(req->impl[0]), "fits");
	return (struct kvp_list *)&req->impl[0];
}

static void
link_fail_later(struct kvp_rpc_uv_link *link, struct kvp_rpc_req *req, int status)
{
	req->impl[2] = (void *)(intptr_t)status;
	kvp_list_push_back(&link->failed, failed_node(req));
	kvp_rpc_timer_start(&link->rpc->pub, &link->later, 0);
}

/* Ends what is on the list now; what the callbacks add comes in the next round. */
static void
link_end_failed(struct kvp_rpc_uv_link *link)
{
	struct kvp_list *last = link->failed.prev;
	struct kvp_list *node = NULL;

	while (node != last && (node = kvp_list_pop_front(&link->failed)) != NULL) {
		struct kvp_rpc_req *req = kvp_container_of((void **)node, struct kvp_rpc_req, impl);

		req->done(req, (int)(intptr_t)req->impl[2], NULL, 0);
	}
}

static void
link_free(struct kvp_rpc_uv_link *link)
{
	kvp_assert(link->calls_count == 0 && link->tie == NULL && link->lookup == NULL);
	kvp_rpc_timer_stop(&link->rpc->pub, &link->later);
	kvp_list_remove(&link->node);
	free(link);
}

static void
link_later(struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_uv_link *link = kvp_container_of(timer, struct kvp_rpc_uv_link, later);

	if (!kvp_list_empty(&link->failed)) {
		link_end_failed(link);
		if (link->state == KVP_RPC_LINK_CLOSED) {
			kvp_rpc_timer_start(&link->rpc->pub, &link->later, 0);
		}
	} else if (link->state == KVP_RPC_LINK_CLOSED) {
		link_free(link);
	}
}

/* --- what the dial says
 * --------------------------------------------------------------------------- */
void
kvp_rpc_link_failed(struct kvp_rpc_uv_link *link, int why)
{
	const struct kvp_log *log = link->rpc->cfg.log;

	kvp_assert(why < 0);
	kvp_rpc_dial_stop(link);
	link->pub.why = why;
	if (why != link->logged_err) {
		link->logged_err = why;
		kvp_warn(log, "link to %s: not connected, trying on: %s", link->text,
			kvp_err_str(why));
	} else {
		kvp_debug(log, "link to %s: not connected: %s", link->text, kvp_err_str(why));
	}
	kvp_rpc_link_enter(link, KVP_RPC_LINK_BACKOFF);
	calls_end_list(&link->waiting, why);
}

void
kvp_rpc_link_dialed(struct kvp_rpc_uv_link *link, const struct kvp_hello *peer)
{
	link->pub.peer = peer->ident;
	memcpy(link->pub.peer.addr, link->text, sizeof(link->pub.peer.addr));
	link->pub.up = true;
	link->pub.why = 0;
	link->logged_err = 0;
	link->up_ns = kvp_now_ns(link->rpc->cfg.env);
	link->tie->stream.len_max = KVP_FRAME_LEN_MAX;
	kvp_rpc_link_enter(link, KVP_RPC_LINK_UP);
	kvp_debug(link->rpc->cfg.log, "link to %s: up, peer '%s'", link->text, peer->ident.name);
	if (link->cfg.up != NULL) {
		link->cfg.up(link->cfg.arg, &link->pub);
	}
	while (link->state == KVP_RPC_LINK_UP && !kvp_list_empty(&link->waiting)) {
		struct link_call *call =
			kvp_container_of(link->waiting.next, struct link_call, node);
		int err = call_send(call);

		if (err < 0) {
			call_end(call, err, NULL, 0);
		}
	}
}

void
kvp_rpc_link_lost(struct kvp_rpc_uv_link *link, int why)
{
	bool steady = kvp_now_ns(link->rpc->cfg.env) - link->up_ns >= KVP_RPC_STEADY_NS;

	kvp_rpc_dial_stop(link);
	link->pub.up = false;
	link->pub.why = why;
	kvp_warn(link->rpc->cfg.log, "link to %s: peer '%s' lost: %s", link->text,
		link->pub.peer.name, kvp_err_str(why));
	if (steady) {
		link->backoff_ns = 2 * KVP_RPC_BACKOFF_MIN_NS;
	}
	/* Who takes us in and drops us at once is no better than who does not answer. */
	kvp_rpc_link_enter(link, steady ? KVP_RPC_LINK_SOON : KVP_RPC_LINK_BACKOFF);
	calls_end_sent(link, -KVP_E_CONNDOWN);
	if (link->state != KVP_RPC_LINK_CLOSED && link->cfg.down != NULL) {
		link->cfg.down(link->cfg.arg, &link->pub, why);
	}
}

static struct link_call *
link_find(struct kvp_rpc_uv_link *link, uint32_t id)
{
	struct kvp_list *bucket = &link->sent[id % KVP_RPC_LINK_BUCKETS];

	kvp_list_for_each (pos, bucket) {
		struct link_call *call = kvp_container_of(pos, struct link_call, node);

		if (call->id == id) {
			return call;
		}
	}
	return NULL;
}

/* Only replies come this way; the connection survives anything else. */
static void
link_reject_message(struct kvp_rpc_uv_link *link, const struct kvp_frame *frame)
{
	struct kvp_frame reply = {.type = frame->type,
		.kind = KVP_FRAME_REPLY,
		.id = frame->id,
		.status = -KVP_E_PROTO};
	struct kvp_rpc_out *out;

	kvp_rpc_count(link->rpc, KVP_ROW_RPC_REJECT_MESSAGE);
	kvp_warn(link->rpc->cfg.log, "link to %s: unexpected message %s (%u) kind %u", link->text,
		kvp_rpc_name(frame->type), frame->type, frame->kind);
	/* A peer that asks without reading the answers gets no more of them. */
	if (frame->kind != KVP_FRAME_REQUEST ||
		link->tie->stream.out_bytes > link->rpc->bounds.out_max) {
		return;
	}
	out = kvp_rpc_out_new(&reply, NULL);
	if (out != NULL) {
		(void)kvp_rpc_stream_send(&link->tie->stream, out); /* it asked what it must not */
	}
}

void
kvp_rpc_link_frame(struct kvp_rpc_uv_link *link, const struct kvp_frame *frame, uint8_t *body)
{
	struct link_call *call;

	if (frame->kind != KVP_FRAME_REPLY) {
		link_reject_message(link, frame);
		return;
	}
	call = link_find(link, frame->id);
	if (call == NULL) {
		return; /* its deadline has passed */
	}
	if (call->req->type != frame->type) {
		link_reject_message(link, frame);
		call_end(call, -KVP_E_PROTO, NULL, 0);
		return;
	}
	call_end(call, frame->status, body, frame->body_len);
}

/* --- operations ---------------------------------------------------------------------------------
 */
static size_t
link_queued(const struct kvp_rpc_uv_link *link)
{
	return link->waiting_bytes + (link->tie != NULL ? link->tie->stream.out_bytes : 0);
}

static bool
link_has_room(const struct kvp_rpc_uv_link *link, size_t len)
{
	return link_queued(link) + KVP_FRAME_HEADER_LEN + len <= link->rpc->bounds.out_max &&
	       link->calls_count < KVP_RPC_LINK_CALLS_MAX;
}

static struct link_call *
call_new(struct kvp_rpc_uv_link *link, struct kvp_rpc_req *req, const void *body, size_t len)
{
	struct kvp_frame frame = {
		.body_len = (uint32_t)len, .type = req->type, .kind = KVP_FRAME_REQUEST};
	struct link_call *call = calloc(1, sizeof(*call));
	uint64_t now = kvp_now_ns(link->rpc->cfg.env);

	if (call == NULL) {
		return NULL;
	}
	link->id_last++;
	if (link->id_last == 0) {
		link->id_last = 1; /* 0 is hello's */
	}
	frame.id = link->id_last;
	call->out = kvp_rpc_out_new(&frame, body);
	if (call->out == NULL) {
		free(call);
		return NULL;
	}
	call->req = req;
	call->link = link;
	call->id = frame.id;
	call->deadline.fn = call_late;
	kvp_list_push_back(&link->waiting, &call->node);
	link->waiting_bytes += call->out->len;
	link->calls_count++;
	kvp_rpc_timer_start(&link->rpc->pub, &call->deadline,
		req->deadline_ns > now ? req->deadline_ns - now : 0);
	return call;
}

void
kvp_rpc_link_call(struct kvp_rpc_link *pub, struct kvp_rpc_req *req, const void *body, size_t len)
{
	struct kvp_rpc_uv_link *link = link_of(pub);
	struct link_call *call;

	kvp_assert(req->done != NULL && kvp_rpc_reply_desc(req->type) != NULL);
	req->link = pub;
	if (link->state == KVP_RPC_LINK_CLOSED) {
		link_fail_later(link, req, -KVP_E_CANCELLED); /* from a callback of its closing */
		return;
	}
	if (len > KVP_FRAME_LEN_MAX) {
		link_fail_later(link, req, -KVP_E_TOO_LARGE);
		return;
	}
	if (link->state == KVP_RPC_LINK_BACKOFF) {
		link_fail_later(link, req, pub->why);
		return;
	}
	if (!link_has_room(link, len)) {
		link_fail_later(link, req, -KVP_E_BUSY);
		return;
	}
	call = call_new(link, req, body, len);
	if (call == NULL) {
		link_fail_later(link, req, -ENOMEM);
		return;
	}
	/* While calls still wait (inside up()) a new one takes no one's turn but goes at once. */
	if (link->state == KVP_RPC_LINK_UP) {
		/* An unsent call is ended by the connection's end, which follows. */
		(void)call_send(call);
	}
}

void
kvp_rpc_link_notify(struct kvp_rpc_link *pub, uint16_t type, const void *body, size_t len)
{
	struct kvp_rpc_uv_link *link = link_of(pub);
	struct kvp_frame frame = {
		.body_len = (uint32_t)len, .type = type, .kind = KVP_FRAME_ONE_WAY};
	struct kvp_rpc_out *out;

	kvp_assert(kvp_rpc_request_desc(type) != NULL && kvp_rpc_reply_desc(type) == NULL);
	if (link->state != KVP_RPC_LINK_UP || len > KVP_FRAME_LEN_MAX ||
		!link_has_room(link, len)) {
		return;
	}
	out = kvp_rpc_out_new(&frame, body);
	if (out != NULL) {
		(void)kvp_rpc_stream_send(&link->tie->stream, out); /* may be lost, by contract */
	}
}

int
kvp_rpc_link_open(
	struct kvp_rpc *pub, const struct kvp_rpc_link_cfg *cfg, struct kvp_rpc_link **ret_link)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct kvp_rpc_uv_link *link = calloc(1, sizeof(*link));
	int err;

	if (link == NULL) {
		return -ENOMEM;
	}
	kvp_assert(!rpc->closing);
	err = kvp_addr_parse(cfg->addr, -1, &link->addr);
	if (err == 0 && !link->addr.is_unix && link->addr.port == 0) {
		err = -EINVAL;
	}
	if (err < 0) {
		free(link);
		return err;
	}
	link->pub.rpc = pub;
	link->rpc = rpc;
	link->cfg = *cfg;
	link->cfg.addr = link->text;
	kvp_addr_format(&link->addr, link->text, sizeof(link->text));
	link->turn.fn = link_turn;
	link->later.fn = link_later;
	link->backoff_ns = 2 * KVP_RPC_BACKOFF_MIN_NS;
	kvp_list_init(&link->waiting);
	kvp_list_init(&link->failed);
	for (size_t i = 0; i < KVP_RPC_LINK_BUCKETS; i++) {
		kvp_list_init(&link->sent[i]);
	}
	kvp_list_push_back(&rpc->links, &link->node);
	link->state = KVP_RPC_LINK_SOON;
	kvp_rpc_timer_start(pub, &link->turn, 0); /* the loop dials, so callbacks come from it */
	*ret_link = &link->pub;
	return 0;
}

void
kvp_rpc_link_close(struct kvp_rpc_link *pub)
{
	struct kvp_rpc_uv_link *link;

	if (pub == NULL) {
		return;
	}
	link = link_of(pub);
	kvp_rpc_link_enter(link, KVP_RPC_LINK_CLOSED); /* asserts that it is the first time */
	kvp_rpc_dial_stop(link);
	pub->up = false;
	pub->why = -KVP_E_CANCELLED;
	calls_end_list(&link->waiting, -KVP_E_CANCELLED);
	calls_end_sent(link, -KVP_E_CANCELLED);
	link_end_failed(link);
	kvp_rpc_timer_start(&link->rpc->pub, &link->later, 0);
}

void
kvp_rpc_link_free_all(struct kvp_rpc_uv *rpc)
{
	while (!kvp_list_empty(&rpc->links)) {
		struct kvp_rpc_uv_link *link =
			kvp_container_of(rpc->links.next, struct kvp_rpc_uv_link, node);

		kvp_assert(link->state == KVP_RPC_LINK_CLOSED);
		while (!kvp_list_empty(&link->failed)) {
			link_end_failed(link);
		}
		link_free(link);
	}
}
