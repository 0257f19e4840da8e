/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.c - opens and closes the meta, its two timers, and the way of a message to its handler.
 */
#include "pool/meta/meta.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/base/list.h"
#include "pool/meta/meta_impl.h"
#include "transport/proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A slice takes under a millisecond: that is what a message waits for it at most. */
#define SWEEP_BUDGET   16384u
#define SWEEP_PAUSE_NS KVP_NS_PER_MS

const struct kvp_metric_desc kvp_meta_metrics[KVP_META_METRIC_COUNT] = {
#define KVP_METRIC(name, kind, text, help) {KVP_METRIC_##kind, text, help},
#include "pool/meta/meta_metrics.def"
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
};

/* --- answers --------------------------------------------------------------------------------- */

void
meta_reply(struct kvp_meta *meta, struct kvp_rpc_call *call, const ProtobufCMessage *msg)
{
	uint8_t *body;
	size_t len;
	int err = kvp_msg_encode(msg, &body, &len);

	if (err < 0) {
		meta_refuse(meta, call, err, KVP_META_REJECT_MEMORY);
		return;
	}
	meta->cfg.rpc->ops->reply(call, 0, body, len);
	free(body);
}

void
meta_refuse(
	struct kvp_meta *meta, struct kvp_rpc_call *call, int status, enum kvp_meta_metric reason)
{
	kvp_assert(status < 0);
	kvp_metric_add(meta->cfg.metrics, reason, 1);
	kvp_warn(meta->cfg.log, "%s from %s at %s refused: %s (%s)", kvp_rpc_name(call->type),
		call->conn->peer.name, call->conn->peer.addr, kvp_err_str(status),
		kvp_meta_metrics[reason].name);
	meta->cfg.rpc->ops->reply(call, status, NULL, 0);
}

void
meta_refuse_close(
	struct kvp_meta *meta, struct kvp_rpc_call *call, int status, enum kvp_meta_metric reason)
{
	struct kvp_rpc_conn *conn = call->conn;

	meta_refuse(meta, call, status, reason);
	meta->cfg.rpc->ops->conn_close(conn);
}

/* --- messages -------------------------------------------------------------------------------- */

static void
rpc_ping(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Ping *req)
{
	Kvp__PingReply reply = KVP__PING_REPLY__INIT;

	(void)req;
	meta_reply(meta, call, &reply.base);
}

/* One function a row, which knows the type of its message. */
#define HANDLER(name, handler, Type)                                                               \
	static void handle_##name(                                                                 \
		struct kvp_meta *meta, struct kvp_rpc_call *call, const ProtobufCMessage *msg)     \
	{                                                                                          \
		handler(meta, call, (const Type *)(const void *)msg);                              \
	}
HANDLER(PING, rpc_ping, Kvp__Ping)
HANDLER(STATUS, meta_rpc_status, Kvp__Status)
HANDLER(LOOKUP, meta_rpc_lookup, Kvp__Lookup)
HANDLER(JOIN, meta_rpc_join, Kvp__Join)
HANDLER(ANNOUNCE, meta_rpc_announce, Kvp__Announce)
#undef HANDLER

static const struct {
	uint16_t type;
	void (*fn)(struct kvp_meta *meta, struct kvp_rpc_call *call, const ProtobufCMessage *msg);
} handlers[] = {
	{KVP_RPC_LOOKUP, handle_LOOKUP},
	{KVP_RPC_ANNOUNCE, handle_ANNOUNCE},
	{KVP_RPC_JOIN, handle_JOIN},
	{KVP_RPC_PING, handle_PING},
	{KVP_RPC_STATUS, handle_STATUS},
};

static void
service_call(void *arg, struct kvp_rpc_call *call)
{
	struct kvp_meta *meta = arg;
	ProtobufCMessage *msg;
	size_t i = 0;

	if (meta->closed) {
		call->conn->rpc->ops->reply(call, -KVP_E_CANCELLED, NULL, 0);
		return;
	}

	/* Here and not only by the timer: after a stop the loop serves what is queued first. */
	kvp_membership_awake(&meta->ms, kvp_now_ns(meta->cfg.env));
	while (i < sizeof(handlers) / sizeof(handlers[0]) && handlers[i].type != call->type) {
		i++;
	}
	if (i == sizeof(handlers) / sizeof(handlers[0])) {
		meta_refuse(meta, call, -KVP_E_PROTO, KVP_META_REJECT_TYPE);
		return;
	}
	msg = kvp_msg_decode(kvp_rpc_request_desc(call->type), call->body, call->len);
	if (msg == NULL) {
		meta_refuse_close(meta, call, -KVP_E_PROTO, KVP_META_REJECT_MESSAGE);
		return;
	}
	handlers[i].fn(meta, call, msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static void
service_opened(void *arg, struct kvp_rpc_conn *conn)
{
	struct kvp_meta *meta = arg;

	meta->conns_count++;
	conn->ctx = NULL; /* a member once it joins */
}

static void
service_closed(void *arg, struct kvp_rpc_conn *conn, int why)
{
	struct kvp_meta *meta = arg;

	(void)why; /* logged by the connection */
	kvp_assert(meta->conns_count > 0);
	meta->conns_count--;
	if (!meta->closed) {
		kvp_membership_closed(&meta->ms, conn);
	} else if (meta->conns_count == 0) {
		free(meta);
	}
}

/* --- timers ---------------------------------------------------------------------------------- */

static void
gauges_set(struct kvp_meta *meta)
{
	struct kvp_metrics *metrics = meta->cfg.metrics;
	uint64_t swept = kvp_directory_swept(meta->dir);

	kvp_metric_set(metrics, KVP_META_BLOCKS, kvp_directory_blocks(meta->dir));
	kvp_metric_set(metrics, KVP_META_BLOCKS_HELD, kvp_directory_held(meta->dir));
	kvp_metric_set(metrics, KVP_META_INDEX_BYTES, kvp_directory_bytes(meta->dir));
	kvp_metric_add(metrics, KVP_META_SWEPT, swept - meta->swept_counted);
	meta->swept_counted = swept;
}

void
meta_dir_changed(struct kvp_meta *meta)
{
	gauges_set(meta);
	if (!meta->sweeping && kvp_directory_pending(meta->dir)) {
		meta->sweeping = true;
		meta->cfg.rpc->ops->timer_start(meta->cfg.rpc, &meta->sweep, SWEEP_PAUSE_NS);
	}
}

static void
sweep_fire(struct kvp_rpc_timer *timer)
{
	struct kvp_meta *meta = kvp_container_of(timer, struct kvp_meta, sweep);

	meta->sweeping = false;
	(void)kvp_directory_turn(meta->dir, SWEEP_BUDGET);
	meta_dir_changed(meta);
}

static void
tick_fire(struct kvp_rpc_timer *timer)
{
	struct kvp_meta *meta = kvp_container_of(timer, struct kvp_meta, tick);

	kvp_membership_tick(&meta->ms, kvp_now_ns(meta->cfg.env));
	meta_dir_changed(meta);
	meta->cfg.rpc->ops->timer_start(meta->cfg.rpc, timer, kvp_membership_period_ns(&meta->ms));
}

/* --- open and close -------------------------------------------------------------------------- */

int
kvp_meta_open(const struct kvp_meta_cfg *cfg, struct kvp_meta **ret_meta)
{
	struct kvp_meta *meta;
	uint64_t seed;
	int err;

	kvp_assert(cfg->env != NULL && cfg->rpc != NULL && cfg->metrics != NULL);
	if (cfg->heartbeat_ms == 0 || cfg->suspect_ms < 2 * (uint64_t)cfg->heartbeat_ms ||
		cfg->forget_ms < cfg->suspect_ms) {
		return -KVP_E_CONFIG;
	}
	meta = calloc(1, sizeof(*meta));
	if (meta == NULL) {
		return -ENOMEM;
	}
	meta->cfg = *cfg;
	cfg->env->random(cfg->env, &seed, sizeof(seed));
	err = kvp_directory_new(cfg->blocks_max, seed, &meta->dir);
	if (err < 0) {
		free(meta);
		return err;
	}
	meta->service = (struct kvp_rpc_service){.arg = meta,
		.opened = service_opened,
		.closed = service_closed,
		.call = service_call};
	meta->opened_ns = kvp_now_ns(cfg->env);
	meta->ms.rpc = cfg->rpc;
	meta->ms.dir = meta->dir;
	meta->ms.log = cfg->log;
	meta->ms.metrics = cfg->metrics;
	meta->ms.heartbeat_ns = cfg->heartbeat_ms * KVP_NS_PER_MS;
	meta->ms.suspect_ns = cfg->suspect_ms * KVP_NS_PER_MS;
	meta->ms.forget_ns = cfg->forget_ms * KVP_NS_PER_MS;
	kvp_membership_init(&meta->ms, meta->opened_ns);
	kvp_metric_set(cfg->metrics, KVP_META_BLOCKS_MAX, cfg->blocks_max);
	gauges_set(meta);
	meta->tick.fn = tick_fire;
	meta->sweep.fn = sweep_fire;
	cfg->rpc->ops->timer_start(cfg->rpc, &meta->tick, kvp_membership_period_ns(&meta->ms));
	*ret_meta = meta;
	return 0;
}

void
kvp_meta_close(struct kvp_meta *meta)
{
	if (meta == NULL) {
		return;
	}
	meta->cfg.rpc->ops->timer_stop(meta->cfg.rpc, &meta->tick);
	meta->cfg.rpc->ops->timer_stop(meta->cfg.rpc, &meta->sweep);
	kvp_directory_free(meta->dir);
	meta->closed = true;
	/* Connections end when the loop says so, perhaps only as it is closed itself: until then
	 * they hold the service, and the last one frees it. */
	if (meta->conns_count == 0) {
		free(meta);
	}
}

const struct kvp_rpc_service *
kvp_meta_service(struct kvp_meta *meta)
{
	return &meta->service;
}
