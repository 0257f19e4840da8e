/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_stream.c - one connected socket: bytes to frames, frames to bytes, and the limits that
 * hold against any peer. Loop thread only.
 *
 * Reading: a large body is read in place, everything else through the loop's scratch buffer, out
 * of which as many frames are taken as lie there. A pause therefore takes effect after the frames
 * already read, 64 KiB at most.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

/* A rest of a body smaller than this comes through scratch, together with what follows it. */
#define DIRECT_LEN_MIN 16384u

#define KEEPALIVE_S 15

struct kvp_rpc_out *
kvp_rpc_out_new(const struct kvp_frame *frame, const void *body)
{
	struct kvp_rpc_out *out =
		malloc(sizeof(*out) + KVP_FRAME_HEADER_LEN + (size_t)frame->body_len);

	if (out == NULL) {
		return NULL;
	}
	out->stream = NULL;
	out->len = KVP_FRAME_HEADER_LEN + (size_t)frame->body_len;
	kvp_frame_encode(frame, out->bytes);
	if (frame->body_len > 0) {
		memcpy(out->bytes + KVP_FRAME_HEADER_LEN, body, frame->body_len);
	}
	return out;
}

void
kvp_rpc_stream_unhold(struct kvp_rpc_uv *rpc, size_t len)
{
	kvp_assert(rpc->held >= len);
	rpc->held -= len;
}

static void
stream_fail(struct kvp_rpc_stream *stream, int why)
{
	if (!stream->failed && !stream->closing) {
		stream->failed = true;
		kvp_rpc_stream_pause(stream, true);
		stream->events->failed(stream, why);
	}
}

static bool
stream_mid_frame(const struct kvp_rpc_stream *stream)
{
	return stream->header_got > 0;
}

/* --- in -----------------------------------------------------------------------------------------
 */
static int
stream_begin_body(struct kvp_rpc_stream *stream)
{
	struct kvp_rpc_uv *rpc = stream->rpc;

	if (kvp_frame_decode(stream->header, stream->len_max, &stream->frame) < 0) {
		kvp_rpc_count(rpc, KVP_ROW_RPC_REJECT_FRAME);
		return -KVP_E_PROTO;
	}
	stream->body_got = 0;
	if (stream->frame.body_len == 0) {
		return 0;
	}
	if (stream->frame.body_len > KVP_RPC_HELD_MAX - rpc->held) {
		kvp_rpc_count(rpc, KVP_ROW_RPC_REJECT_LIMIT);
		return -KVP_E_BUSY;
	}
	stream->body = malloc(stream->frame.body_len);
	if (stream->body == NULL) {
		return -ENOMEM;
	}
	rpc->held += stream->frame.body_len;
	return 0;
}

/* Hands a whole frame over. The stream may be closed after it. */
static void
stream_end_frame(struct kvp_rpc_stream *stream)
{
	uint8_t *body = stream->body;

	stream->body = NULL;
	stream->header_got = 0;
	kvp_rpc_timer_stop(&stream->rpc->pub, &stream->slow);
	stream->events->frame(stream, &stream->frame, body);
}

/* Takes what a frame needs out of buf; returns how much, or a negative error. */
static ssize_t
stream_take(struct kvp_rpc_stream *stream, const uint8_t *buf, size_t len)
{
	size_t used = 0;
	size_t part;

	if (stream->header_got < KVP_FRAME_HEADER_LEN) {
		part = KVP_FRAME_HEADER_LEN - stream->header_got;
		part = part < len ? part : len;
		memcpy(stream->header + stream->header_got, buf, part);
		stream->header_got += part;
		used += part;
		if (stream->header_got < KVP_FRAME_HEADER_LEN) {
			return (ssize_t)used;
		}
		int err = stream_begin_body(stream);

		if (err < 0) {
			return err;
		}
	}
	part = stream->frame.body_len - stream->body_got;
	part = part < len - used ? part : len - used;
	if (part > 0) {
		memcpy(stream->body + stream->body_got, buf + used, part);
		stream->body_got += part;
	}
	return (ssize_t)(used + part);
}

static bool
stream_frame_is_whole(const struct kvp_rpc_stream *stream)
{
	return stream->header_got == KVP_FRAME_HEADER_LEN &&
	       stream->body_got == stream->frame.body_len;
}

static void
stream_feed(struct kvp_rpc_stream *stream, const uint8_t *buf, size_t len)
{
	while (len > 0 && !stream->closing && !stream->failed) {
		ssize_t used = stream_take(stream, buf, len);

		if (used < 0) {
			stream_fail(stream, (int)used);
			return;
		}
		buf += used;
		len -= (size_t)used;
		if (stream_frame_is_whole(stream)) {
			stream_end_frame(stream);
		}
	}
}

static void
stream_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *ret_buf)
{
	struct kvp_rpc_stream *stream = handle->data;

	(void)hint;
	if (stream->header_got == KVP_FRAME_HEADER_LEN) {
		size_t left = stream->frame.body_len - stream->body_got;

		if (left >= DIRECT_LEN_MIN) {
			ret_buf->base = (char *)stream->body + stream->body_got;
			ret_buf->len = left;
			return;
		}
	}
	ret_buf->base = (char *)stream->rpc->scratch;
	ret_buf->len = sizeof(stream->rpc->scratch);
}

static void
stream_read(uv_stream_t *handle, ssize_t len, const uv_buf_t *buf)
{
	struct kvp_rpc_stream *stream = handle->data;

	if (len < 0) {
		stream_fail(stream, kvp_rpc_uv_err((int)len));
		return;
	}
	if (len == 0) {
		return;
	}
	if (buf->base == (char *)stream->rpc->scratch) {
		stream_feed(stream, (const uint8_t *)buf->base, (size_t)len);
	} else {
		stream->body_got += (size_t)len;
		if (stream_frame_is_whole(stream)) {
			stream_end_frame(stream);
		}
	}
	if (stream->reading && stream_mid_frame(stream) && !kvp_rpc_timer_running(&stream->slow)) {
		kvp_rpc_timer_start(&stream->rpc->pub, &stream->slow, stream->rpc->bounds.frame_ns);
	}
}

static void
stream_slow(struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_stream *stream = kvp_container_of(timer, struct kvp_rpc_stream, slow);

	kvp_rpc_count(stream->rpc, KVP_ROW_RPC_REJECT_SLOW);
	stream_fail(stream, -KVP_E_TIMEOUT);
}

/* --- out ----------------------------------------------------------------------------------------
 */
static void
stream_stall(struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_stream *stream = kvp_container_of(timer, struct kvp_rpc_stream, stall);
	size_t queued = uv_stream_get_write_queue_size(&stream->uv.stream);

	if (queued < stream->stall_bytes) {
		stream->stall_bytes = queued; /* slow, but it reads */
		kvp_rpc_timer_start(
			&stream->rpc->pub, &stream->stall, stream->rpc->bounds.stall_ns);
		return;
	}
	kvp_rpc_count(stream->rpc, KVP_ROW_RPC_REJECT_SLOW);
	stream_fail(stream, -KVP_E_TIMEOUT);
}

static void
stream_watch_stall(struct kvp_rpc_stream *stream)
{
	if (stream->out_bytes == 0) {
		kvp_rpc_timer_stop(&stream->rpc->pub, &stream->stall);
		return;
	}
	stream->stall_bytes = uv_stream_get_write_queue_size(&stream->uv.stream);
	kvp_rpc_timer_start(&stream->rpc->pub, &stream->stall, stream->rpc->bounds.stall_ns);
}

static void
stream_written(uv_write_t *req, int status)
{
	struct kvp_rpc_out *out = kvp_container_of(req, struct kvp_rpc_out, req);
	struct kvp_rpc_stream *stream = out->stream;

	kvp_assert(stream->out_bytes >= out->len);
	stream->out_bytes -= out->len;
	free(out);
	if (stream->closing) {
		return; /* its closed() comes after the last of these */
	}
	if (status < 0) {
		stream_fail(stream, kvp_rpc_uv_err(status));
		return;
	}
	stream_watch_stall(stream);
	stream->events->sent(stream);
}

int
kvp_rpc_stream_send(struct kvp_rpc_stream *stream, struct kvp_rpc_out *out)
{
	uv_buf_t buf = {.base = (char *)out->bytes, .len = out->len};
	bool idle = stream->out_bytes == 0;
	int err;

	/* Outside run() a write could raise SIGPIPE in a thread that is not ours. */
	if (stream->closing || stream->failed || !stream->rpc->running) {
		free(out);
		return -KVP_E_CONNDOWN;
	}
	out->stream = stream;
	err = uv_write(&out->req, &stream->uv.stream, &buf, 1, stream_written);
	if (err < 0) {
		free(out);
		return kvp_rpc_uv_err(err);
	}
	stream->out_bytes += out->len;
	if (idle && uv_stream_get_write_queue_size(&stream->uv.stream) > 0) {
		stream_watch_stall(stream);
	}
	return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */
int
kvp_rpc_stream_init(struct kvp_rpc_stream *stream, struct kvp_rpc_uv *rpc, bool is_unix,
	const struct kvp_rpc_stream_events *events)
{
	int err;

	memset(stream, 0, sizeof(*stream));
	stream->rpc = rpc;
	stream->events = events;
	stream->is_unix = is_unix;
	stream->slow.fn = stream_slow;
	stream->stall.fn = stream_stall;
	if (is_unix) {
		err = uv_pipe_init(&rpc->loop, &stream->uv.pipe, 0);
	} else {
		err = uv_tcp_init(&rpc->loop, &stream->uv.tcp);
	}
	stream->uv.handle.data = stream;
	return kvp_rpc_uv_err(err);
}

/* A peer whose machine is gone is noticed within about half a minute, idle or not. Refused options
 * leave a slower connection, not a wrong one, so their errors do not matter. */
static void
stream_tune(struct kvp_rpc_stream *stream)
{
	int interval_s = 5;
	int probes = 3;
	unsigned int user_ms = 30000;
	uv_os_fd_t fd;

	if (stream->is_unix) {
		return;
	}
	(void)uv_tcp_nodelay(&stream->uv.tcp, 1);
	(void)uv_tcp_keepalive(&stream->uv.tcp, 1, KEEPALIVE_S);
	if (uv_fileno(&stream->uv.handle, &fd) == 0) {
		(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
		(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
		(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
	}
}

int
kvp_rpc_stream_start(struct kvp_rpc_stream *stream, uint32_t len_max)
{
	int err;

	stream_tune(stream);
	stream->len_max = len_max;
	err = uv_read_start(&stream->uv.stream, stream_alloc, stream_read);
	if (err < 0) {
		return kvp_rpc_uv_err(err);
	}
	stream->reading = true;
	return 0;
}

void
kvp_rpc_stream_pause(struct kvp_rpc_stream *stream, bool pause)
{
	if (stream->closing || stream->paused == pause || (stream->failed && !pause)) {
		return;
	}
	stream->paused = pause;
	if (pause) {
		(void)uv_read_stop(&stream->uv.stream); /* never fails */
		stream->reading = false;
		/* It is us who do not read now. */
		kvp_rpc_timer_stop(&stream->rpc->pub, &stream->slow);
		return;
	}
	int err = uv_read_start(&stream->uv.stream, stream_alloc, stream_read);

	/* It was started before, on the same socket, and nothing has closed it. */
	kvp_assert(err == 0);
	stream->reading = true;
	if (stream_mid_frame(stream)) {
		kvp_rpc_timer_start(&stream->rpc->pub, &stream->slow, stream->rpc->bounds.frame_ns);
	}
}

static void
stream_closed(uv_handle_t *handle)
{
	struct kvp_rpc_stream *stream = handle->data;

	kvp_assert(stream->out_bytes == 0);
	stream->events->closed(stream);
}

void
kvp_rpc_stream_close(struct kvp_rpc_stream *stream)
{
	if (stream->closing) {
		return;
	}
	stream->closing = true;
	stream->reading = false;
	kvp_rpc_timer_stop(&stream->rpc->pub, &stream->slow);
	kvp_rpc_timer_stop(&stream->rpc->pub, &stream->stall);
	if (stream->body != NULL) {
		free(stream->body);
		stream->body = NULL;
		kvp_rpc_stream_unhold(stream->rpc, stream->frame.body_len);
	}
	uv_close(&stream->uv.handle, stream_closed);
}
