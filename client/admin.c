/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.c - asks one daemon about itself over a connection of its own.
 *
 * THREADS the loop is made, run and freed within the call, on the caller's thread. A write to a
 * connection that the daemon has closed would raise SIGPIPE there, so it is blocked meanwhile and
 * one that came is taken away before the mask is restored.
 */
#include "client/include/kvpool/admin.h"
#include "hal/base/err.h"
#include "hal/base/list.h"
#include "hal/os/env.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/slot.h"
#include "transport/proto/wire.h"
#include "transport/rpc/rpc.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct admin_ask {
	struct kvp_rpc_req req;
	int status;
	ProtobufCMessage *reply; /* owned; NULL unless status is 0 */
};

/* SIGPIPE of this thread, kept away for a while. */
struct pipe_guard {
	sigset_t pipe;
	sigset_t before;
	bool was_pending;
};

static void
pipe_guard_begin(struct pipe_guard *guard)
{
	sigset_t pending;

	sigemptyset(&guard->pipe);
	sigaddset(&guard->pipe, SIGPIPE);
	sigpending(&pending);
	guard->was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &guard->pipe, &guard->before);
}

static void
pipe_guard_end(struct pipe_guard *guard)
{
	const struct timespec now = {0};
	sigset_t pending;

	sigpending(&pending);
	if (!guard->was_pending && sigismember(&pending, SIGPIPE) == 1) {
		(void)sigtimedwait(&guard->pipe, NULL, &now); /* none left is fine */
	}
	pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

static void
admin_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct admin_ask *ask = kvp_container_of(req, struct admin_ask, req);
	struct kvp_rpc *rpc = req->link->rpc;

	ask->status = status;
	if (status == 0) {
		ask->reply = kvp_msg_decode(kvp_rpc_reply_desc(ask->req.type), body, len);
		ask->status = ask->reply != NULL ? 0 : -KVP_E_PROTO;
	}
	rpc->ops->stop(rpc);
}

static int
admin_ask_run(struct admin_ask *ask, const char *addr, uint32_t timeout_ms, const uint8_t *body,
	size_t len)
{
	const struct kvp_env *env = kvp_env_real();
	struct kvp_rpc_cfg cfg = {.env = env, .self = {.kind = KVP_PEER_TOOL}};
	struct kvp_rpc_link_cfg link_cfg = {.addr = addr};
	struct kvp_rpc_link *link;
	struct kvp_rpc *rpc;
	int err;

	env->random(env, cfg.self.id, sizeof(cfg.self.id));
	cfg.self.incarnation = 1; /* of an id that is new each time */
	snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", program_invocation_short_name);
	ask->req.deadline_ns = kvp_now_ns(env) + timeout_ms * KVP_NS_PER_MS;
	ask->req.done = admin_done;

	err = kvp_rpc_uv_open(&cfg, &rpc);
	if (err < 0) {
		return err;
	}
	err = rpc->ops->link_open(rpc, &link_cfg, &link);
	if (err == 0) {
		rpc->ops->call(link, &ask->req, body, len);
		rpc->ops->run(rpc);
		rpc->ops->link_close(link);
		err = ask->status;
	}
	rpc->ops->close(rpc);
	return err;
}

/* The daemon's answer, to be freed by the caller. */
static int
admin_ask(const char *addr, uint32_t timeout_ms, uint16_t type, const ProtobufCMessage *msg,
	ProtobufCMessage **ret_reply)
{
	struct admin_ask ask = {.status = -KVP_E_CANCELLED, .req.type = type};
	struct pipe_guard guard;
	uint8_t *body;
	size_t len;
	int err;

	if (addr == NULL) {
		return -EINVAL;
	}
	err = kvp_msg_encode(msg, &body, &len);
	if (err < 0) {
		return err;
	}
	pipe_guard_begin(&guard);
	err = admin_ask_run(&ask, addr, timeout_ms, body, len);
	pipe_guard_end(&guard);
	free(body);
	if (ask.reply == NULL) {
		return err < 0 ? err : -KVP_E_PROTO;
	}
	*ret_reply = ask.reply;
	return 0;
}

int
kvp_admin_status(const char *addr, uint32_t timeout_ms,
	void (*fn)(void *arg, const char *name, const char *value), void *arg)
{
	const Kvp__Status msg = KVP__STATUS__INIT;
	ProtobufCMessage *reply;
	const Kvp__StatusReply *status;
	int err;

	if (fn == NULL) {
		return -EINVAL;
	}
	err = admin_ask(addr, timeout_ms, KVP_RPC_STATUS, &msg.base, &reply);
	if (err < 0) {
		return err;
	}
	status = (const Kvp__StatusReply *)reply;
	for (size_t i = 0; i < status->n_pairs; i++) {
		fn(arg, status->pairs[i]->name, status->pairs[i]->value);
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

static enum kvp_medium
admin_medium(uint32_t tier)
{
	switch (tier) {
	case KVP_TIER_DRAM:
		return KVP_MEDIUM_DRAM;
	case KVP_TIER_SSD:
		return KVP_MEDIUM_SSD;
	case KVP_TIER_HBM:
		return KVP_MEDIUM_HBM;
	default:
		return KVP_MEDIUM_NONE;
	}
}

static void
usage_tier(const Kvp__TierUsage *from, struct kvp_admin_tier *ret_tier)
{
	*ret_tier = (struct kvp_admin_tier){
		.medium = admin_medium(from->tier),
		.bytes_total = from->bytes_total,
		.bytes_used = from->bytes_used,
		.bytes_free = from->bytes_free,
		.blocks = from->blocks,
		.leased_blocks = from->leased_blocks,
		.leased_bytes = from->leased_bytes,
	};
}

static void
usage_ns(const Kvp__NamespaceUsage *from, struct kvp_admin_namespace *ret_ns)
{
	*ret_ns = (struct kvp_admin_namespace){
		.epoch = from->epoch,
		.blocks = from->blocks,
		.bytes = from->bytes,
		.taken = from->taken,
		.quota = from->quota,
		.old = from->old,
	};
	memcpy(ret_ns->digest, from->ns.data, sizeof(ret_ns->digest));
	memcpy(ret_ns->family, from->family.data, sizeof(ret_ns->family));
}

int
kvp_admin_usage(const char *addr, uint32_t timeout_ms,
	void (*fn_tier)(void *arg, const struct kvp_admin_tier *tier),
	void (*fn_ns)(void *arg, const struct kvp_admin_namespace *ns), void *arg)
{
	const Kvp__Usage msg = KVP__USAGE__INIT;
	ProtobufCMessage *reply;
	const Kvp__UsageReply *usage;
	int err = admin_ask(addr, timeout_ms, KVP_RPC_USAGE, &msg.base, &reply);

	if (err < 0) {
		return err;
	}
	usage = (const Kvp__UsageReply *)reply;
	for (size_t i = 0; fn_tier != NULL && i < usage->n_tiers; i++) {
		struct kvp_admin_tier tier;

		usage_tier(usage->tiers[i], &tier);
		fn_tier(arg, &tier);
	}
	for (size_t i = 0; fn_ns != NULL && i < usage->n_namespaces; i++) {
		const Kvp__NamespaceUsage *from = usage->namespaces[i];
		struct kvp_admin_namespace ns;

		if (from->ns.len != sizeof(ns.digest) || from->family.len != sizeof(ns.family)) {
			err = -KVP_E_PROTO;
			break;
		}
		usage_ns(from, &ns);
		fn_ns(arg, &ns);
	}
	protobuf_c_message_free_unpacked(reply, NULL);
	return err;
}

int
kvp_admin_leases(const char *addr, uint32_t timeout_ms, int purge,
	void (*fn)(void *arg, const struct kvp_admin_lease *lease), void *arg)
{
	Kvp__Leases msg = KVP__LEASES__INIT;
	ProtobufCMessage *reply;
	const Kvp__LeasesReply *leases;
	int purged;
	int err;

	msg.purge = purge != 0;
	err = admin_ask(addr, timeout_ms, KVP_RPC_LEASES, &msg.base, &reply);
	if (err < 0) {
		return err;
	}
	leases = (const Kvp__LeasesReply *)reply;
	for (size_t i = 0; fn != NULL && i < leases->n_leases; i++) {
		const Kvp__LeaseInfo *from = leases->leases[i];
		const struct kvp_admin_lease lease = {
			.lease = from->lease,
			.session = from->owner,
			.blocks = from->blocks,
			.left_ms = from->left_ms,
			.client = from->client,
		};

		fn(arg, &lease);
	}
	purged = leases->purged <= INT32_MAX ? (int)leases->purged : INT32_MAX;
	protobuf_c_message_free_unpacked(reply, NULL);
	return purged;
}
