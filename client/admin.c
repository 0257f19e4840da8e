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
#include "transport/proto/wire.h"
#include "transport/rpc/rpc.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct admin_ask {
	struct kvp_rpc_req req;
	int status;
	Kvp__StatusReply *reply; /* owned; NULL unless status is 0 */
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
		ask->reply = (Kvp__StatusReply *)kvp_msg_decode(
			kvp_rpc_reply_desc(KVP_RPC_STATUS), body, len);
		ask->status = ask->reply != NULL ? 0 : -KVP_E_PROTO;
	}
	rpc->ops->stop(rpc);
}

static int
admin_ask_run(struct admin_ask *ask, const char *addr, uint32_t timeout_ms)
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
	ask->req.type = KVP_RPC_STATUS;
	ask->req.deadline_ns = kvp_now_ns(env) + timeout_ms * KVP_NS_PER_MS;
	ask->req.done = admin_done;

	err = kvp_rpc_uv_open(&cfg, &rpc);
	if (err < 0) {
		return err;
	}
	err = rpc->ops->link_open(rpc, &link_cfg, &link);
	if (err == 0) {
		/* A Status message has no fields, so it has no bytes. */
		rpc->ops->call(link, &ask->req, "", 0);
		rpc->ops->run(rpc);
		rpc->ops->link_close(link);
		err = ask->status;
	}
	rpc->ops->close(rpc);
	return err;
}

int
kvp_admin_status(const char *addr, uint32_t timeout_ms,
	void (*fn)(void *arg, const char *name, const char *value), void *arg)
{
	struct admin_ask ask = {.status = -KVP_E_CANCELLED};
	struct pipe_guard guard;
	int err;

	if (addr == NULL || fn == NULL) {
		return -EINVAL;
	}
	pipe_guard_begin(&guard);
	err = admin_ask_run(&ask, addr, timeout_ms);
	pipe_guard_end(&guard);
	if (ask.reply == NULL) {
		return err;
	}
	for (size_t i = 0; i < ask.reply->n_pairs; i++) {
		fn(arg, ask.reply->pairs[i]->name, ask.reply->pairs[i]->value);
	}
	protobuf_c_message_free_unpacked(&ask.reply->base, NULL);
	return err;
}
