/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_raw.c - the path of a transport alone: reads or writes of a raw server's memory, no keys,
 * no index, no checks. What the pool adds is measured against it. HOT.
 *
 * A unit has an io for each operation of its batch. Those that the queue does not take yet wait
 * their turn in order; the unit counts from when it was posted.
 */
#include "bench/perf_link.h"
#include "bench/perf_server.h"
#include "bench/perf_xport.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAW_POLL_MAX 16

struct raw_op {
	struct kvp_io io;
	struct raw *raw;
	struct kvp_list link; /* in raw.waiting */
	uint32_t unit;
	uint32_t block;
};

struct raw {
	struct kvp_perf_path base;
	struct kvp_perf *perf;
	struct kvp_log log;
	struct kvp_perf_child child; /* pid 0: none */
	struct kvp_perf_link *link;
	struct kvp_perf_shape shape;
	struct kvp_xport *xport;
	struct kvp_mem mem;
	struct kvp_mr *mr;
	struct kvp_rdesc rdesc;
	struct kvp_conn *conns[KVP_PERF_QPS_MAX];
	uint32_t conn_count;
	uint32_t conn_next;
	uint32_t block_next;
	uint64_t ops_posted;         /* since begin */
	struct raw_op *ops;          /* unit * batch + i */
	uint32_t *left;              /* operations of a unit that have not ended */
	struct kvp_perf_done *ended; /* a ring of as many as there are units */
	uint32_t ended_room;
	uint32_t ended_head;
	uint32_t ended_count;
	struct kvp_list waiting;
	uint32_t out; /* ios posted */
	int status;   /* of the first that failed */
};

static struct raw *
raw_of(struct kvp_perf_path *path)
{
	return kvp_container_of(path, struct raw, base);
}

static uint8_t *
raw_buf(const struct raw *raw, uint32_t block)
{
	return raw->perf->buf + block * kvp_perf_stride(raw->shape.size);
}

static void
raw_op_done(struct kvp_io *io)
{
	struct raw_op *op = kvp_container_of(io, struct raw_op, io);
	struct raw *raw = op->raw;

	raw->out--;
	if (io->status < 0) {
		raw->status = raw->status < 0 ? raw->status : io->status;
		return;
	}
	if (raw->perf->cfg->validate && !raw->perf->cfg->write) {
		raw->base.wrong_bytes +=
			kvp_perf_wrong(raw_buf(raw, op->block), raw->shape.size, op->block);
	}
	if (--raw->left[op->unit] == 0) {
		uint32_t at = (raw->ended_head + raw->ended_count++) % raw->ended_room;

		raw->ended[at] = (struct kvp_perf_done){
			.unit = op->unit, .end_ns = kvp_now_ns(kvp_env_real())};
	}
}

static int
raw_op_post(struct raw *raw, struct raw_op *op)
{
	const struct kvp_xport_ops *ops = raw->xport->ops;
	uint32_t count = kvp_perf_segments(raw->perf->cfg, raw->shape.size);
	uint64_t part = raw->shape.size / count;
	uint8_t *at = raw_buf(raw, op->block);
	uint64_t off = op->block * kvp_perf_stride(raw->shape.size);
	struct kvp_conn *conn = raw->conns[raw->conn_next];
	struct kvp_seg segs[KVP_SEGS_MAX];
	int ret;

	for (uint32_t i = 0; i < count; i++) {
		segs[i] = (struct kvp_seg){.mr = raw->mr, .addr = at + i * part, .len = part};
	}
	segs[count - 1].len += raw->shape.size - part * count;
	op->io = (struct kvp_io){.done = raw_op_done};
	ret = raw->perf->cfg->write ? ops->write(conn, segs, count, &raw->rdesc, off, &op->io)
				    : ops->read(conn, segs, count, &raw->rdesc, off, &op->io);
	if (ret == 0) {
		raw->out++;
		raw->conn_next = (raw->conn_next + 1) % raw->conn_count;
	}
	return ret;
}

static int
raw_waiting_post(struct raw *raw)
{
	while (!kvp_list_empty(&raw->waiting)) {
		struct kvp_list *node = raw->waiting.next;
		int ret = raw_op_post(raw, kvp_container_of(node, struct raw_op, link));

		if (ret == -EAGAIN) {
			return 0;
		}
		if (ret < 0) {
			return kvp_perf_fail(raw->perf, ret, "raw %s: posting: %s",
				raw->xport->ops->name, kvp_err_str(ret));
		}
		kvp_list_remove(node);
	}
	return 0;
}

static int
raw_post(struct kvp_perf_path *path, uint32_t unit)
{
	struct raw *raw = raw_of(path);
	bool poison = raw->perf->cfg->validate && !raw->perf->cfg->write;

	kvp_assert(unit < raw->shape.units && raw->left[unit] == 0);
	raw->left[unit] = raw->shape.batch;
	for (uint32_t i = 0; i < raw->shape.batch; i++) {
		struct raw_op *op = &raw->ops[unit * raw->shape.batch + i];

		op->raw = raw;
		op->unit = unit;
		op->block = raw->block_next;
		raw->block_next = (raw->block_next + 1) % raw->shape.blocks;
		if (poison) { /* a read that says 0 without having written is to be seen */
			memset(raw_buf(raw, op->block), 0xa5, raw->shape.size);
		}
		kvp_list_push_back(&raw->waiting, &op->link);
	}
	raw->ops_posted += raw->shape.batch;
	return raw_waiting_post(raw);
}

static int
raw_poll(struct kvp_perf_path *path, struct kvp_perf_done *ret_done, uint32_t max)
{
	struct raw *raw = raw_of(path);
	uint32_t n = 0;
	int ret;

	(void)raw->xport->ops->poll(raw->xport, RAW_POLL_MAX);
	if (raw->status < 0) {
		return kvp_perf_fail(raw->perf, raw->status, "raw %s: %s", raw->xport->ops->name,
			kvp_err_str(raw->status));
	}
	ret = raw_waiting_post(raw);
	if (ret < 0) {
		return ret;
	}
	for (; n < max && raw->ended_count > 0; n++, raw->ended_count--) {
		ret_done[n] = raw->ended[raw->ended_head];
		raw->ended_head = (raw->ended_head + 1) % raw->ended_room;
	}
	return (int)n;
}

static void
raw_wait(struct kvp_perf_path *path)
{
	struct raw *raw = raw_of(path);
	int fd = raw->xport->ops->wait_fd(raw->xport);

	if (fd >= 0) { /* else there is something already */
		(void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, KVP_PERF_WAIT_MS);
	}
}

static void
raw_units_free(struct raw *raw)
{
	free(raw->ops);
	free(raw->left);
	free(raw->ended);
	raw->ops = NULL;
	raw->left = NULL;
	raw->ended = NULL;
}

static int
raw_begin(struct kvp_perf_path *path, const struct kvp_perf_shape *shape)
{
	struct raw *raw = raw_of(path);
	struct kvp_perf_request fill = {
		.op = KVP_PERF_REQ_FILL, .size = shape->size, .blocks = shape->blocks};
	struct kvp_perf_reply reply;

	raw_units_free(raw);
	raw->shape = *shape;
	raw->ended_room = shape->units;
	raw->ops = calloc((size_t)shape->units * shape->batch, sizeof(*raw->ops));
	raw->left = calloc(shape->units, sizeof(*raw->left));
	raw->ended = calloc(shape->units, sizeof(*raw->ended));
	if (raw->ops == NULL || raw->left == NULL || raw->ended == NULL) {
		return kvp_perf_fail(raw->perf, -ENOMEM, "out of memory");
	}
	raw->ended_head = 0;
	raw->block_next = 0;
	raw->ops_posted = 0;
	return raw->perf->cfg->write ? 0 : kvp_perf_link_call(raw->link, &fill, &reply);
}

static int
raw_end(struct kvp_perf_path *path)
{
	struct raw *raw = raw_of(path);
	struct kvp_perf_request check = {.op = KVP_PERF_REQ_CHECK, .size = raw->shape.size};
	struct kvp_perf_reply reply;
	int ret;

	if (!raw->perf->cfg->validate || !raw->perf->cfg->write) {
		return 0;
	}
	check.blocks =
		raw->ops_posted < raw->shape.blocks ? (uint32_t)raw->ops_posted : raw->shape.blocks;
	ret = kvp_perf_link_call(raw->link, &check, &reply);
	if (ret == 0) {
		raw->base.wrong_bytes += reply.wrong_bytes;
	}
	return ret;
}

static void
raw_tick(struct kvp_perf_path *path)
{
	kvp_perf_link_beat(raw_of(path)->link);
}

static int
raw_peer_cpu(struct kvp_perf_path *path, uint64_t *ret_ns)
{
	struct kvp_perf_request stat = {.op = KVP_PERF_REQ_STAT};
	struct kvp_perf_reply reply;
	int ret = kvp_perf_link_call(raw_of(path)->link, &stat, &reply);

	if (ret == 0) {
		*ret_ns = reply.cpu_ns;
	}
	return ret;
}

static void
raw_used(const struct kvp_perf_path *path, char *buf, size_t cap)
{
	const struct raw *raw = kvp_container_of(path, struct raw, base);

	snprintf(buf, cap, "%s", raw->xport->ops->name);
}

static void
raw_close(struct kvp_perf_path *path)
{
	struct raw *raw = raw_of(path);

	for (uint32_t i = 0; i < raw->conn_count; i++) {
		raw->xport->ops->disconnect(raw->conns[i]);
	}
	while (raw->out > 0) { /* they end with their connection */
		(void)raw->xport->ops->poll(raw->xport, RAW_POLL_MAX);
	}
	if (raw->mr != NULL) {
		raw->xport->ops->mr_dereg(raw->mr);
	}
	if (raw->xport != NULL) {
		raw->xport->ops->close(raw->xport);
	}
	kvp_perf_link_close(raw->link);
	if (raw->child.pid > 0) {
		kvp_perf_server_reap(&raw->child);
	}
	raw_units_free(raw);
	free(raw);
}

/* Our own server, or the one of the ticket. */
static int
raw_server_find(struct raw *raw, struct kvp_perf_ticket *ret_ticket)
{
	const struct kvp_perf_cfg *cfg = raw->perf->cfg;
	int ret;

	if (cfg->ticket == NULL) {
		return kvp_perf_server_fork(raw->perf, &raw->child, ret_ticket);
	}
	ret = kvp_perf_ticket_load(cfg->ticket, ret_ticket);
	if (ret < 0) {
		return kvp_perf_fail(raw->perf, ret, "--ticket: not one of this version's: %s",
			kvp_err_str(ret));
	}
	if (strcmp(cfg->transport, "auto") != 0 &&
		strcmp(cfg->transport, ret_ticket->transport) != 0) {
		return kvp_perf_fail(raw->perf, -KVP_E_CONFIG,
			"--transport: the server of this ticket has %s", ret_ticket->transport);
	}
	return 0;
}

static int
raw_connect(struct raw *raw, const struct kvp_perf_ticket *ticket)
{
	const struct kvp_perf_cfg *cfg = raw->perf->cfg;
	uint32_t ops = cfg->depth > cfg->batch ? cfg->depth : cfg->batch;
	struct kvp_perf_xport_want want = {.transport = ticket->transport,
		.depth = (ops + cfg->qps - 1) / cfg->qps,
		.conns = cfg->qps};
	struct kvp_perf_request open = {.op = KVP_PERF_REQ_OPEN,
		.access = cfg->write ? KVP_MR_REMOTE_WRITE : KVP_MR_REMOTE_READ,
		.qps = cfg->qps,
		.len = raw->perf->buf_len};
	struct kvp_perf_reply reply;
	int ret = kvp_perf_link_call(raw->link, &open, &reply);

	if (ret < 0) {
		return ret;
	}
	raw->rdesc = reply.rdesc;
	ret = kvp_perf_xport_open(cfg, &raw->log, &want, &raw->xport);
	if (ret == 0) {
		raw->mem = kvp_mem_wrap(raw->perf->buf, raw->perf->buf_len);
		ret = raw->xport->ops->mr_reg(raw->xport, &raw->mem, KVP_MR_LOCAL, &raw->mr);
	}
	while (ret == 0 && raw->conn_count < cfg->qps) {
		ret = kvp_perf_xport_connect(
			raw->xport, reply.addr, reply.token, &raw->conns[raw->conn_count]);
		raw->conn_count += ret == 0;
	}
	return ret < 0 ? kvp_perf_fail(raw->perf, ret, "raw %s to %s: %s", ticket->transport,
				 reply.addr, kvp_err_str(ret))
		       : 0;
}

static const struct kvp_perf_path_ops raw_ops = {
	.name = "raw",
	.begin = raw_begin,
	.post = raw_post,
	.poll = raw_poll,
	.wait = raw_wait,
	.end = raw_end,
	.tick = raw_tick,
	.peer_cpu = raw_peer_cpu,
	.used = raw_used,
	.close = raw_close,
};

int
kvp_perf_raw_open(struct kvp_perf *perf, struct kvp_perf_path **ret_path)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	struct kvp_perf_ticket ticket;
	int ret;

	if (raw == NULL) {
		return kvp_perf_fail(perf, -ENOMEM, "out of memory");
	}
	raw->base.ops = &raw_ops;
	raw->perf = perf;
	raw->log = kvp_perf_xport_log();
	kvp_list_init(&raw->waiting);
	ret = raw_server_find(raw, &ticket);
	if (ret == 0) {
		ret = kvp_perf_link_open(perf, &ticket, &raw->link);
	}
	if (ret == 0) {
		ret = raw_connect(raw, &ticket);
	}
	if (ret < 0) {
		raw_close(&raw->base);
		return ret;
	}
	*ret_path = &raw->base;
	return 0;
}
