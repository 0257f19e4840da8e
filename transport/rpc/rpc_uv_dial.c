/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_dial.c - one attempt of a link to connect: resolve the name, connect to one of its
 * addresses, say hello. Loop thread only.
 *
 * Two seconds until connected, five more for hello; rpc_uv_link.c keeps the time. Each attempt
 * begins with the next address of the name, so one that swallows packets does not hide the rest.
 * Ties and lookups that were given up live on, without a link, until libuv lets go of them.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kvp_rpc_tie *
tie_of(struct kvp_rpc_stream *stream)
{
	return kvp_container_of(stream, struct kvp_rpc_tie, stream);
}

void
kvp_rpc_dial_stop(struct kvp_rpc_uv_link *link)
{
	if (link->tie != NULL) {
		link->tie->link = NULL;
		kvp_rpc_stream_close(&link->tie->stream);
		link->tie = NULL;
	}
	if (link->lookup != NULL) {
		link->lookup->link = NULL;
		/* One that runs already cannot be cancelled; it ends by itself. */
		(void)uv_cancel((uv_req_t *)&link->lookup->req);
		link->lookup = NULL;
	}
}

/* --- hello --------------------------------------------------------------------------------------
 */
static int
dial_send_hello(struct kvp_rpc_uv_link *link)
{
	struct kvp_rpc_uv *rpc = link->rpc;
	struct kvp_frame frame = {.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REQUEST};
	struct kvp_rpc_out *out;
	uint8_t *body;
	size_t len;
	int err = kvp_hello_request(&rpc->cfg.self, &rpc->versions, &body, &len);

	if (err < 0) {
		return err;
	}
	frame.body_len = (uint32_t)len;
	out = kvp_rpc_out_new(&frame, body);
	free(body);
	return out != NULL ? kvp_rpc_stream_send(&link->tie->stream, out) : -ENOMEM;
}

static void
dial_hello(struct kvp_rpc_uv_link *link, const struct kvp_frame *frame, const uint8_t *body)
{
	struct kvp_rpc_uv *rpc = link->rpc;
	struct kvp_hello peer;
	int err = -KVP_E_PROTO;

	memset(&peer, 0, sizeof(peer));
	if (frame->kind == KVP_FRAME_REPLY && frame->type == KVP_RPC_HELLO && frame->id == 0) {
		err = kvp_hello_finish(&rpc->versions, frame->status, body, frame->body_len, &peer);
	}
	if (err == 0) {
		kvp_rpc_link_dialed(link, &peer);
		return;
	}
	if (err == -KVP_E_VERSION && link->logged_err != err) {
		kvp_warn(rpc->cfg.log,
			"peer '%s' at %s speaks protocol versions %u..%u, this one %u..%u: refused",
			peer.ident.name, link->text, peer.range.min, peer.range.max,
			rpc->versions.min, rpc->versions.max);
	}
	kvp_rpc_link_failed(link, err);
}

/* --- connection
 * ----------------------------------------------------------------------------------- */
static void
tie_frame(struct kvp_rpc_stream *stream, const struct kvp_frame *frame, uint8_t *body)
{
	struct kvp_rpc_uv *rpc = stream->rpc;
	struct kvp_rpc_uv_link *link = tie_of(stream)->link;
	size_t len = frame->body_len; /* frame lies in the stream */

	if (link != NULL && link->state == KVP_RPC_LINK_HELLO) {
		dial_hello(link, frame, body);
	} else if (link != NULL) {
		kvp_rpc_link_frame(link, frame, body);
	}
	free(body);
	kvp_rpc_stream_unhold(rpc, len);
}

static void
tie_failed(struct kvp_rpc_stream *stream, int why)
{
	struct kvp_rpc_uv_link *link = tie_of(stream)->link;

	if (link == NULL) {
		return;
	}
	if (link->state == KVP_RPC_LINK_UP) {
		kvp_rpc_link_lost(link, why);
	} else {
		kvp_rpc_link_failed(link, why);
	}
}

static void
tie_sent(struct kvp_rpc_stream *stream)
{
	(void)stream;
}

static void
tie_closed(struct kvp_rpc_stream *stream)
{
	free(tie_of(stream));
}

static const struct kvp_rpc_stream_events tie_events = {
	.frame = tie_frame, .failed = tie_failed, .sent = tie_sent, .closed = tie_closed};

static void dial_next(struct kvp_rpc_uv_link *link);

/* TCP on one host can connect to itself when nobody listens on a port of the ephemeral range. */
static bool
tie_is_to_itself(struct kvp_rpc_tie *tie)
{
	struct sockaddr_storage here;
	struct sockaddr_storage there;
	char here_text[KVP_ADDR_LEN_MAX];
	char there_text[KVP_ADDR_LEN_MAX];
	int here_len = sizeof(here);
	int there_len = sizeof(there);
	uv_tcp_t *tcp = &tie->stream.uv.tcp;

	if (tie->stream.is_unix ||
		uv_tcp_getsockname(tcp, (struct sockaddr *)&here, &here_len) < 0 ||
		uv_tcp_getpeername(tcp, (struct sockaddr *)&there, &there_len) < 0) {
		return false;
	}
	kvp_rpc_sockaddr_format((const struct sockaddr *)&here, here_text);
	kvp_rpc_sockaddr_format((const struct sockaddr *)&there, there_text);
	return strcmp(here_text, there_text) == 0;
}

static void
tie_connected(uv_connect_t *req, int status)
{
	struct kvp_rpc_tie *tie = kvp_container_of(req, struct kvp_rpc_tie, connect);
	struct kvp_rpc_uv_link *link = tie->link;
	int err = kvp_rpc_uv_err(status);

	if (link == NULL) {
		return; /* given up; closed() follows */
	}
	if (err == 0 && tie_is_to_itself(tie)) {
		err = -ECONNREFUSED;
	}
	if (err < 0) {
		/* EAGAIN: a UNIX listener whose queue is full. */
		link->attempt_err = err == -EAGAIN ? -KVP_E_BUSY : err;
		kvp_rpc_dial_stop(link);
		dial_next(link);
		return;
	}
	kvp_rpc_link_enter(link, KVP_RPC_LINK_HELLO);
	err = kvp_rpc_stream_start(&tie->stream, KVP_HELLO_LEN_MAX);
	if (err == 0) {
		err = dial_send_hello(link);
	}
	if (err < 0) {
		kvp_rpc_link_failed(link, err);
	}
}

static int
tie_open(struct kvp_rpc_uv_link *link, const struct sockaddr *sa)
{
	struct kvp_rpc_tie *tie = calloc(1, sizeof(*tie));
	int err;

	if (tie == NULL) {
		return -ENOMEM;
	}
	err = kvp_rpc_stream_init(&tie->stream, link->rpc, link->addr.is_unix, &tie_events);
	kvp_assert(err == 0); /* makes no socket */
	if (link->addr.is_unix) {
		uv_pipe_connect(
			&tie->connect, &tie->stream.uv.pipe, link->addr.host, tie_connected);
	} else {
		err = uv_tcp_connect(&tie->connect, &tie->stream.uv.tcp, sa, tie_connected);
		if (err < 0) {
			kvp_rpc_stream_close(&tie->stream);
			return kvp_rpc_uv_err(err);
		}
	}
	tie->link = link;
	link->tie = tie;
	return 0;
}

/* Connects to the next address of this attempt, or ends it. */
static void
dial_next(struct kvp_rpc_uv_link *link)
{
	while (link->addr_left > 0) {
		const struct sockaddr_storage *sa =
			&link->addrs[link->addr_next % link->addr_count];
		int err;

		link->addr_next = (link->addr_next + 1) % link->addr_count;
		link->addr_left--;
		err = tie_open(link, (const struct sockaddr *)sa);
		if (err == 0) {
			return;
		}
		link->attempt_err = err;
	}
	kvp_rpc_link_failed(link, link->attempt_err);
}

static void
dial_connect(struct kvp_rpc_uv_link *link)
{
	kvp_assert(link->addr_count > 0 && link->addr_count <= KVP_RPC_LINK_ADDRS_MAX);
	link->addr_left = link->addr_count;
	link->addr_next %= link->addr_count;
	kvp_rpc_link_enter(link, KVP_RPC_LINK_CONNECT);
	dial_next(link);
}

/* --- names --------------------------------------------------------------------------------------
 */
static void
dial_take_addrs(struct kvp_rpc_uv_link *link, const struct addrinfo *first)
{
	link->addr_count = 0;
	for (const struct addrinfo *ai = first; ai != NULL; ai = ai->ai_next) {
		struct sockaddr_storage *sa = &link->addrs[link->addr_count];

		if (link->addr_count == KVP_RPC_LINK_ADDRS_MAX || ai->ai_addrlen > sizeof(*sa)) {
			break;
		}
		memset(sa, 0, sizeof(*sa));
		memcpy(sa, ai->ai_addr, ai->ai_addrlen);
		link->addr_count++;
	}
}

static void
dial_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
	struct kvp_rpc_lookup *lookup = kvp_container_of(req, struct kvp_rpc_lookup, req);
	struct kvp_rpc_uv_link *link = lookup->link;
	int err = kvp_rpc_uv_err(status);

	if (link != NULL) {
		link->lookup = NULL;
		if (err == 0) {
			dial_take_addrs(link, found);
			err = link->addr_count > 0 ? 0 : -EHOSTUNREACH;
		}
		if (status < 0 && link->logged_err != err) {
			kvp_warn(link->rpc->cfg.log, "host %s: no address: %s", link->addr.host,
				uv_strerror(status));
		}
	}
	uv_freeaddrinfo(found); /* NULL is fine */
	free(lookup);
	if (link == NULL) {
		return;
	}
	if (err < 0) {
		kvp_rpc_link_failed(link, err);
		return;
	}
	dial_connect(link);
}

static int
dial_resolve(struct kvp_rpc_uv_link *link)
{
	/* All families: an address that cannot be reached fails at once, and the next is tried. */
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct kvp_rpc_lookup *lookup = calloc(1, sizeof(*lookup));
	char port[8];
	int err;

	if (lookup == NULL) {
		return -ENOMEM;
	}
	(void)snprintf(port, sizeof(port), "%u", link->addr.port); /* five digits at most */
	err = uv_getaddrinfo(
		&link->rpc->loop, &lookup->req, dial_resolved, link->addr.host, port, &hints);
	if (err < 0) {
		free(lookup);
		return kvp_rpc_uv_err(err);
	}
	lookup->link = link;
	link->lookup = lookup;
	return 0;
}

void
kvp_rpc_dial_start(struct kvp_rpc_uv_link *link)
{
	int err;

	kvp_assert(link->tie == NULL && link->lookup == NULL);
	link->attempt_err = -EHOSTUNREACH;
	if (link->addr.is_unix || kvp_rpc_sockaddr_literal(&link->addr, &link->addrs[0])) {
		link->addr_count = 1;
		dial_connect(link);
		return;
	}
	kvp_rpc_link_enter(link, KVP_RPC_LINK_RESOLVE);
	err = dial_resolve(link);
	if (err < 0) {
		kvp_rpc_link_failed(link, err);
	}
}
