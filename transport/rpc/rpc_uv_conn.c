/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_conn.c - an accepted connection: hello first, then requests to the service and its
 * replies. Loop thread only.
 *
 * A request owns its body and outlives its connection: it then stands on the loop's list of
 * orphans until the service replies, into the void. What one peer can make us hold is bounded:
 * over the limit we stop reading from it until replies have gone out.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replies to what was already accepted may exceed the limit so far; beyond, the peer goes. */
#define OUT_HARD_FACTOR 4

struct conn_call {
	struct kvp_rpc_call pub;
	struct kvp_rpc_uv *rpc; /* NULL: the loop is gone */
	struct kvp_list node;   /* in conn->calls or rpc->orphans */
	uint32_t id;
	uint8_t *body; /* owned */
};

static void
conn_drop_body(struct kvp_rpc_uv *rpc, uint8_t *body, size_t len)
{
	free(body);
	kvp_rpc_stream_unhold(rpc, len);
}

static struct kvp_rpc_uv_conn *
conn_of(struct kvp_rpc_stream *stream)
{
	return kvp_container_of(stream, struct kvp_rpc_uv_conn, stream);
}

void
kvp_rpc_conn_end(struct kvp_rpc_uv_conn *conn, int why)
{
	if (conn->stream.closing) {
		return;
	}
	conn->why = why;
	kvp_rpc_timer_stop(conn->pub.rpc, &conn->hello);
	kvp_rpc_stream_close(&conn->stream);
}

/* --- limits -------------------------------------------------------------------------------------
 */
static void
conn_throttle(struct kvp_rpc_uv_conn *conn)
{
	size_t divisor = conn->stream.paused ? 2 : 1; /* goes on at half, so as not to flutter */
	bool full = conn->stream.out_bytes > conn->stream.rpc->bounds.out_max / divisor ||
		    conn->calls_len > KVP_RPC_CALLS_LEN_MAX / divisor ||
		    conn->calls_count > KVP_RPC_CALLS_MAX / divisor;

	kvp_rpc_stream_pause(&conn->stream, full || conn->refused);
}

static int
conn_send(struct kvp_rpc_uv_conn *conn, const struct kvp_frame *frame, const void *body)
{
	struct kvp_rpc_out *out;
	int err;

	if (conn->stream.out_bytes > OUT_HARD_FACTOR * conn->stream.rpc->bounds.out_max) {
		kvp_rpc_count(conn->stream.rpc, KVP_ROW_RPC_REJECT_LIMIT);
		kvp_warn(conn->stream.rpc->cfg.log,
			"peer '%s' at %s: closed, it does not read %zu bytes of replies",
			conn->pub.peer.name, conn->pub.peer.addr, conn->stream.out_bytes);
		kvp_rpc_conn_end(conn, -KVP_E_BUSY);
		return -KVP_E_BUSY;
	}
	out = kvp_rpc_out_new(frame, body);
	if (out == NULL) {
		/* The peer would wait for ever for this answer. */
		kvp_rpc_conn_end(conn, -ENOMEM);
		return -ENOMEM;
	}
	err = kvp_rpc_stream_send(&conn->stream, out);
	if (err == 0) {
		conn_throttle(conn);
	}
	return err;
}

static void
conn_answer(struct kvp_rpc_uv_conn *conn, uint16_t type, uint32_t id, int status, const void *body,
	size_t len)
{
	struct kvp_frame frame = {.type = type, .kind = KVP_FRAME_REPLY, .id = id};

	kvp_assert(status <= 0);
	if (len > KVP_FRAME_LEN_MAX) {
		kvp_error(conn->stream.rpc->cfg.log, "reply to %s of '%s': %zu bytes are too large",
			kvp_rpc_name(type), conn->pub.peer.name, len);
		status = -KVP_E_TOO_LARGE;
		len = 0;
	}
	frame.status = status;
	frame.body_len = (uint32_t)len;
	(void)conn_send(conn, &frame, body); /* a dead connection says so by itself */
}

/* --- hello --------------------------------------------------------------------------------------
 */
static void
conn_reject_hello(struct kvp_rpc_uv_conn *conn, const char *what)
{
	kvp_rpc_count(conn->stream.rpc, KVP_ROW_RPC_REJECT_HELLO);
	kvp_warn(conn->stream.rpc->cfg.log, "peer at %s: closed, %s", conn->pub.peer.addr, what);
	kvp_rpc_conn_end(conn, -KVP_E_PROTO);
}

static void
conn_hello_late(struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_uv_conn *conn = kvp_container_of(timer, struct kvp_rpc_uv_conn, hello);

	if (conn->refused) {
		kvp_rpc_conn_end(conn, -KVP_E_VERSION); /* it does not even read our answer */
		return;
	}
	conn_reject_hello(conn, "no hello came in time");
}

static void
conn_refuse(struct kvp_rpc_uv_conn *conn, const struct kvp_hello *peer)
{
	struct kvp_rpc_uv *rpc = conn->stream.rpc;

	kvp_rpc_count(rpc, KVP_ROW_RPC_REJECT_VERSION);
	kvp_warn(rpc->cfg.log,
		"peer '%s' at %s speaks protocol versions %u..%u, this one %u..%u: refused",
		peer->ident.name, conn->pub.peer.addr, peer->range.min, peer->range.max,
		rpc->versions.min, rpc->versions.max);
	conn->refused = true;
	conn_throttle(conn);
}

static void
conn_hello(struct kvp_rpc_uv_conn *conn, const struct kvp_frame *frame, const uint8_t *body)
{
	struct kvp_rpc_uv *rpc = conn->stream.rpc;
	struct kvp_frame out = {.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REPLY, .id = frame->id};
	struct kvp_hello peer;
	uint8_t *reply = NULL;
	size_t reply_len = 0;
	int err;

	if (frame->kind != KVP_FRAME_REQUEST || frame->type != KVP_RPC_HELLO) {
		conn_reject_hello(conn, "its first message is no hello");
		return;
	}
	out.status = kvp_hello_judge(&rpc->versions, body, frame->body_len, &peer);
	if (out.status == -KVP_E_PROTO) {
		conn_reject_hello(conn, "its hello is malformed");
		return;
	}
	err = kvp_hello_reply(
		&rpc->cfg.self, &rpc->versions, peer.ident.version, &reply, &reply_len);
	if (err < 0) {
		kvp_rpc_conn_end(conn, err);
		return;
	}
	if (out.status < 0) {
		conn_refuse(conn, &peer);
	}
	out.body_len = (uint32_t)reply_len;
	err = conn_send(conn, &out, reply);
	free(reply);
	if (err < 0 || conn->refused) {
		return;
	}
	kvp_rpc_timer_stop(&rpc->pub, &conn->hello);
	memcpy(peer.ident.addr, conn->pub.peer.addr, sizeof(peer.ident.addr));
	conn->pub.peer = peer.ident;
	conn->stream.len_max = KVP_FRAME_LEN_MAX;
	conn->opened = true;
	kvp_debug(rpc->cfg.log, "peer '%s' at %s: connected", peer.ident.name, peer.ident.addr);
	conn->service.opened(conn->service.arg, &conn->pub);
}

/* --- requests -----------------------------------------------------------------------------------
 */
/* Not a known request, or not in the form that its type has. The connection stays: a newer peer
 * may know more than we do. */
static void
conn_reject_message(struct kvp_rpc_uv_conn *conn, const struct kvp_frame *frame)
{
	kvp_rpc_count(conn->stream.rpc, KVP_ROW_RPC_REJECT_MESSAGE);
	kvp_warn(conn->stream.rpc->cfg.log, "peer '%s' at %s: unexpected message %s (%u) kind %u",
		conn->pub.peer.name, conn->pub.peer.addr, kvp_rpc_name(frame->type), frame->type,
		frame->kind);
	if (frame->kind == KVP_FRAME_REQUEST) {
		conn_answer(conn, frame->type, frame->id, -KVP_E_PROTO, NULL, 0);
	}
}

static bool
conn_expects(const struct kvp_frame *frame)
{
	bool one_way = kvp_rpc_reply_desc(frame->type) == NULL;

	return frame->type != KVP_RPC_HELLO && kvp_rpc_request_desc(frame->type) != NULL &&
	       frame->kind == (one_way ? KVP_FRAME_ONE_WAY : KVP_FRAME_REQUEST);
}

/* Takes body. */
static void
conn_serve(struct kvp_rpc_uv_conn *conn, const struct kvp_frame *frame, uint8_t *body)
{
	struct kvp_rpc_uv *rpc = conn->stream.rpc;
	struct conn_call *call = calloc(1, sizeof(*call));

	if (call == NULL) {
		conn_drop_body(rpc, body, frame->body_len);
		if (frame->kind == KVP_FRAME_REQUEST) {
			conn_answer(conn, frame->type, frame->id, -ENOMEM, NULL, 0);
		}
		return;
	}
	call->rpc = rpc;
	call->id = frame->id;
	call->body = body;
	call->pub.conn = &conn->pub;
	call->pub.type = frame->type;
	call->pub.one_way = frame->kind == KVP_FRAME_ONE_WAY;
	call->pub.body = body;
	call->pub.len = frame->body_len;
	kvp_list_push_back(&conn->calls, &call->node);
	conn->calls_count++;
	conn->calls_len += frame->body_len;
	conn_throttle(conn);
	conn->service.call(conn->service.arg, &call->pub);
}

static void
conn_frame(struct kvp_rpc_stream *stream, const struct kvp_frame *frame, uint8_t *body)
{
	struct kvp_rpc_uv_conn *conn = conn_of(stream);
	struct kvp_rpc_uv *rpc = stream->rpc;

	if (conn->opened && conn_expects(frame)) {
		kvp_rpc_count(rpc, KVP_ROW_RPC_CALLS);
		if (frame->type != KVP_RPC_PING) {
			conn_serve(conn, frame, body);
			return;
		}
		conn_answer(conn, frame->type, frame->id, 0, NULL, 0);
	} else if (conn->opened) {
		conn_reject_message(conn, frame);
	} else if (!conn->refused) {
		conn_hello(conn, frame, body);
	}
	conn_drop_body(rpc, body, frame->body_len);
}

void
kvp_rpc_conn_reply(struct kvp_rpc_call *pub, int status, const void *body, size_t len)
{
	struct conn_call *call = kvp_container_of(pub, struct conn_call, pub);

	kvp_assert(status <= 0);
	kvp_list_remove(&call->node);
	if (pub->conn != NULL) {
		struct kvp_rpc_uv_conn *conn =
			kvp_container_of(pub->conn, struct kvp_rpc_uv_conn, pub);

		kvp_assert(conn->calls_count > 0 && conn->calls_len >= pub->len);
		conn->calls_count--;
		conn->calls_len -= pub->len;
		if (!pub->one_way && !conn->stream.closing) {
			conn_answer(conn, pub->type, call->id, status, body, len);
		}
		conn_throttle(conn);
	}
	if (call->rpc != NULL) {
		kvp_rpc_stream_unhold(call->rpc, pub->len);
	}
	free(call->body);
	free(call);
}

/* --- life ---------------------------------------------------------------------------------------
 */
static void
conn_failed(struct kvp_rpc_stream *stream, int why)
{
	struct kvp_rpc_uv_conn *conn = conn_of(stream);

	if (why == -KVP_E_CONNDOWN) {
		kvp_debug(stream->rpc->cfg.log, "peer '%s' at %s: disconnected",
			conn->pub.peer.name, conn->pub.peer.addr);
	} else {
		kvp_warn(stream->rpc->cfg.log, "peer '%s' at %s: closed: %s", conn->pub.peer.name,
			conn->pub.peer.addr, kvp_err_str(why));
	}
	kvp_rpc_conn_end(conn, why);
}

static void
conn_sent(struct kvp_rpc_stream *stream)
{
	struct kvp_rpc_uv_conn *conn = conn_of(stream);

	if (conn->refused) {
		if (stream->out_bytes == 0) {
			kvp_rpc_conn_end(conn, -KVP_E_VERSION);
		}
		return;
	}
	conn_throttle(conn);
}

static void
conn_count(struct kvp_rpc_uv *rpc, int change)
{
	rpc->conns_count += (uint32_t)change;
	kvp_metric_set(
		rpc->cfg.metrics, rpc->cfg.metrics_base + KVP_ROW_RPC_CONNS, rpc->conns_count);
}

static void
conn_closed(struct kvp_rpc_stream *stream)
{
	struct kvp_rpc_uv_conn *conn = conn_of(stream);
	struct kvp_rpc_uv *rpc = stream->rpc;
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&conn->calls)) != NULL) {
		kvp_container_of(node, struct conn_call, node)->pub.conn = NULL;
		kvp_list_push_back(&rpc->orphans, node);
	}
	kvp_list_remove(&conn->node);
	conn_count(rpc, -1);
	if (conn->opened) {
		conn->service.closed(conn->service.arg, &conn->pub, conn->why);
	}
	free(conn);
}

static const struct kvp_rpc_stream_events conn_events = {
	.frame = conn_frame, .failed = conn_failed, .sent = conn_sent, .closed = conn_closed};

/* Where the peer is, for logs. */
static void
conn_name_peer(struct kvp_rpc_uv_conn *conn, const struct kvp_addr *local)
{
	char *addr = conn->pub.peer.addr;
	struct sockaddr_storage sa;
	int sa_len = sizeof(sa);

	if (!local->is_unix) {
		if (uv_tcp_getpeername(&conn->stream.uv.tcp, (struct sockaddr *)&sa, &sa_len) ==
			0) {
			kvp_rpc_sockaddr_format((const struct sockaddr *)&sa, addr);
		}
		return;
	}
	struct ucred cred = {.pid = 0};
	socklen_t cred_len = sizeof(cred);
	uv_os_fd_t fd;

	if (uv_fileno(&conn->stream.uv.handle, &fd) == 0) {
		/* Without it the pid is 0: a log line says a little less. */
		(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len);
	}
	(void)snprintf(addr, KVP_ADDR_LEN_MAX, "unix:%.200s pid %d", local->host, (int)cred.pid);
}

void
kvp_rpc_conn_accept(struct kvp_rpc_listener *listener)
{
	struct kvp_rpc_uv *rpc = listener->rpc;
	struct kvp_rpc_uv_conn *conn = calloc(1, sizeof(*conn));
	int err;

	/* libuv stops accepting for good until the waiting connection is taken. */
	kvp_assert(conn != NULL);
	err = kvp_rpc_stream_init(&conn->stream, rpc, listener->addr.is_unix, &conn_events);
	kvp_assert(err == 0); /* makes no socket */
	conn->pub.rpc = &rpc->pub;
	conn->service = listener->service;
	conn->hello.fn = conn_hello_late;
	kvp_list_init(&conn->calls);
	kvp_list_push_back(&rpc->conns, &conn->node);
	conn_count(rpc, 1);

	err = kvp_rpc_uv_err(uv_accept(&listener->uv.stream, &conn->stream.uv.stream));
	if (err < 0) {
		kvp_rpc_conn_end(conn, err);
		return;
	}
	conn_name_peer(conn, &listener->addr);
	if (rpc->conns_count > rpc->cfg.conns_max) {
		kvp_rpc_count(rpc, KVP_ROW_RPC_REJECT_LIMIT);
		kvp_warn(rpc->cfg.log, "peer at %s: refused, %u connections are the limit",
			conn->pub.peer.addr, rpc->cfg.conns_max);
		kvp_rpc_conn_end(conn, -KVP_E_BUSY);
		return;
	}
	kvp_rpc_count(rpc, KVP_ROW_RPC_ACCEPTED);
	kvp_rpc_timer_start(&rpc->pub, &conn->hello, rpc->bounds.hello_ns);
	err = kvp_rpc_stream_start(&conn->stream, KVP_HELLO_LEN_MAX);
	if (err < 0) {
		kvp_rpc_conn_end(conn, err);
	}
}

void
kvp_rpc_conn_close(struct kvp_rpc_conn *pub)
{
	kvp_rpc_conn_end(kvp_container_of(pub, struct kvp_rpc_uv_conn, pub), -KVP_E_CANCELLED);
}

/* At the loop's end: these calls may still be replied to. */
void
kvp_rpc_conn_forget_orphans(struct kvp_rpc_uv *rpc)
{
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&rpc->orphans)) != NULL) {
		kvp_container_of(node, struct conn_call, node)->rpc = NULL;
	}
}
