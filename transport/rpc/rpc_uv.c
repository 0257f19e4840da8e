/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv.c - the event loop of rpc.h on libuv: making it, running it, posts from other threads,
 * signals, and the table of operations.
 *
 * libuv writes without MSG_NOSIGNAL. SIGPIPE is therefore blocked in the thread that runs the
 * loop while it does, and nothing is written at any other time (rpc_uv_stream.c).
 */
#include "transport/rpc/rpc_uv.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct kvp_rpc_post {
	struct kvp_rpc_post *next;
	void (*fn)(void *arg);
	void *arg;
};

int
kvp_rpc_uv_err(int uv_err)
{
	switch (uv_err) {
	case UV_EOF:
		return -KVP_E_CONNDOWN;
	case UV_EAI_MEMORY:
		return -ENOMEM;
	case UV_EAI_CANCELED:
		return -ECANCELED;
	case UV_UNKNOWN:
		return -EIO;
	default:
		/* The resolver's errors; who asked has logged the text. */
		return uv_err <= -3000 && uv_err > -3100 ? -EHOSTUNREACH : uv_err;
	}
}

void
kvp_rpc_sockaddr_format(const struct sockaddr *sa, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct kvp_addr addr = {.is_unix = false};
	int err = -EAFNOSUPPORT;

	ret_addr[0] = '\0';
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *sin = (const struct sockaddr_in *)sa;

		err = uv_ip4_name(sin, addr.host, sizeof(addr.host));
		addr.port = ntohs(sin->sin_port);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)sa;

		err = uv_ip6_name(sin6, addr.host, sizeof(addr.host));
		addr.port = ntohs(sin6->sin6_port);
	}
	if (err == 0) {
		kvp_addr_format(&addr, ret_addr, KVP_ADDR_LEN_MAX);
	}
}

bool
kvp_rpc_sockaddr_literal(const struct kvp_addr *addr, struct sockaddr_storage *ret_sa)
{
	memset(ret_sa, 0, sizeof(*ret_sa));
	return uv_ip4_addr(addr->host, addr->port, (struct sockaddr_in *)ret_sa) == 0 ||
	       uv_ip6_addr(addr->host, addr->port, (struct sockaddr_in6 *)ret_sa) == 0;
}

/* --- posts --------------------------------------------------------------------------------------
 */
static void
rpc_post(struct kvp_rpc *pub, void (*fn)(void *arg), void *arg)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct kvp_rpc_post *post = malloc(sizeof(*post));
	int err;

	kvp_assert(post != NULL); /* a lost message would leave its sender waiting for ever */
	*post = (struct kvp_rpc_post){.fn = fn, .arg = arg};
	pthread_mutex_lock(&rpc->lock);
	if (rpc->post_tail != NULL) {
		rpc->post_tail->next = post;
	} else {
		rpc->post_head = post;
	}
	rpc->post_tail = post;
	/* Under the lock: the poster may be the last one before its target is closed. */
	err = uv_async_send(&rpc->wake);
	pthread_mutex_unlock(&rpc->lock);
	kvp_assert(err == 0);
}

static struct kvp_rpc_post *
rpc_take_posts(struct kvp_rpc_uv *rpc)
{
	struct kvp_rpc_post *post;

	pthread_mutex_lock(&rpc->lock);
	post = rpc->post_head;
	rpc->post_head = NULL;
	rpc->post_tail = NULL;
	pthread_mutex_unlock(&rpc->lock);
	return post;
}

static void
rpc_woken(uv_async_t *wake)
{
	struct kvp_rpc_uv *rpc = wake->data;
	struct kvp_rpc_post *post = rpc_take_posts(rpc);

	while (post != NULL) {
		struct kvp_rpc_post *next = post->next;

		post->fn(post->arg);
		free(post);
		post = next;
	}
	kvp_rpc_timer_fire(rpc);
}

/* --- run ----------------------------------------------------------------------------------------
 */
static void
rpc_run(struct kvp_rpc *pub)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	const struct timespec at_once = {0};
	sigset_t pipe_set;
	sigset_t before;

	kvp_assert(!rpc->running && !rpc->closing);
	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_set, &before); /* fails on a bad "how" only */

	rpc->running = true;
	(void)uv_run(&rpc->loop, UV_RUN_DEFAULT); /* says whether something is left; it is */
	rpc->running = false;

	if (!sigismember(&before, SIGPIPE)) {
		/* What a write of ours raised must not reach the host when it is let in again. */
		while (sigtimedwait(&pipe_set, NULL, &at_once) > 0 || errno == EINTR) {
		}
		(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
}

static void
rpc_stop(struct kvp_rpc *pub)
{
	uv_stop(&kvp_rpc_uv_of(pub)->loop);
}

/* --- signals ------------------------------------------------------------------------------------
 */
struct rpc_signal {
	uv_signal_t handle;
	struct kvp_list node; /* in rpc->signals */
	void (*fn)(void *arg);
	void *arg;
};

static void
signal_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void
signal_came(uv_signal_t *handle, int signo)
{
	struct rpc_signal *sig = handle->data;

	(void)signo;
	sig->fn(sig->arg);
}

int
kvp_rpc_uv_signal(struct kvp_rpc *pub, int signo, void (*fn)(void *arg), void *arg)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct rpc_signal *sig = calloc(1, sizeof(*sig));
	int err;

	if (sig == NULL) {
		return -ENOMEM;
	}
	err = uv_signal_init(&rpc->loop, &sig->handle);
	if (err < 0) {
		free(sig);
		return kvp_rpc_uv_err(err);
	}
	sig->handle.data = sig;
	sig->fn = fn;
	sig->arg = arg;
	kvp_list_push_back(&rpc->signals, &sig->node);
	return kvp_rpc_uv_err(uv_signal_start(&sig->handle, signal_came, signo));
}

static void
signal_close_all(struct kvp_rpc_uv *rpc)
{
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&rpc->signals)) != NULL) {
		struct rpc_signal *sig = kvp_container_of(node, struct rpc_signal, node);

		uv_close((uv_handle_t *)&sig->handle, signal_closed);
	}
}

/* --- close --------------------------------------------------------------------------------------
 */
/* Everything that has a handle begins to close; their callbacks come from rpc_drain(). */
static void
rpc_close_handles(struct kvp_rpc_uv *rpc)
{
	kvp_list_for_each_safe (pos, &rpc->listeners) {
		kvp_rpc_unlisten(kvp_container_of(pos, struct kvp_rpc_listener, node));
	}
	kvp_list_for_each_safe (pos, &rpc->links) {
		struct kvp_rpc_uv_link *link = kvp_container_of(pos, struct kvp_rpc_uv_link, node);

		if (link->state != KVP_RPC_LINK_CLOSED) {
			kvp_rpc_link_close(&link->pub);
		}
	}
	kvp_list_for_each_safe (pos, &rpc->conns) {
		kvp_rpc_conn_end(
			kvp_container_of(pos, struct kvp_rpc_uv_conn, node), -KVP_E_CANCELLED);
	}
	signal_close_all(rpc);
	kvp_rpc_watch_close_all(rpc);
	uv_close((uv_handle_t *)&rpc->clock, NULL);
	uv_close((uv_handle_t *)&rpc->wake, NULL);
}

/* Runs the loop until nothing is left in it. False: a resolver of the system hangs, and libuv
 * will still touch the loop when it comes back. */
static bool
rpc_drain(struct kvp_rpc_uv *rpc)
{
	uint64_t until = kvp_now_ns(rpc->cfg.env) + KVP_RPC_RESOLVER_MS * KVP_NS_PER_MS;
	struct pollfd backend = {.fd = uv_backend_fd(&rpc->loop), .events = POLLIN};

	while (uv_run(&rpc->loop, UV_RUN_NOWAIT) != 0) {
		if (kvp_now_ns(rpc->cfg.env) > until) {
			return false;
		}
		/* -1: only a resolver's thread is left to wait for. */
		(void)poll(&backend, 1, uv_backend_timeout(&rpc->loop) == 0 ? 0 : 10);
	}
	return true;
}

static void
rpc_close(struct kvp_rpc *pub)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct kvp_rpc_post *post;
	bool drained;
	int err;

	kvp_assert(!rpc->running && !rpc->closing);
	rpc->closing = true;
	rpc_close_handles(rpc);
	drained = rpc_drain(rpc);
	kvp_rpc_link_free_all(rpc);
	kvp_rpc_conn_forget_orphans(rpc);
	post = rpc_take_posts(rpc);
	while (post != NULL) {
		struct kvp_rpc_post *next = post->next;

		free(post);
		post = next;
	}
	free(rpc->heap);
	rpc->heap = NULL;
	if (!drained) {
		kvp_warn(rpc->cfg.log,
			"event loop abandoned: the system's resolver does not return");
		return;
	}
	err = uv_loop_close(&rpc->loop);
	kvp_assert(err == 0);
	pthread_mutex_destroy(&rpc->lock);
	free(rpc);
}

/* --- open ---------------------------------------------------------------------------------------
 */
static const struct kvp_rpc_ops rpc_uv_ops = {
	.listen = kvp_rpc_listen,
	.unlisten = kvp_rpc_unlisten,
	.reply = kvp_rpc_conn_reply,
	.conn_close = kvp_rpc_conn_close,
	.link_open = kvp_rpc_link_open,
	.link_close = kvp_rpc_link_close,
	.call = kvp_rpc_link_call,
	.notify = kvp_rpc_link_notify,
	.timer_start = kvp_rpc_timer_start,
	.timer_stop = kvp_rpc_timer_stop,
	.watch_start = kvp_rpc_watch_start,
	.watch_stop = kvp_rpc_watch_stop,
	.post = rpc_post,
	.run = rpc_run,
	.stop = rpc_stop,
	.close = rpc_close,
};

static int
rpc_init_loop(struct kvp_rpc_uv *rpc)
{
	int err = uv_loop_init(&rpc->loop);

	if (err < 0) {
		return kvp_rpc_uv_err(err);
	}
	err = uv_async_init(&rpc->loop, &rpc->wake, rpc_woken);
	if (err < 0) {
		(void)uv_loop_close(&rpc->loop); /* nothing is in it */
		return kvp_rpc_uv_err(err);
	}
	rpc->wake.data = rpc;
	(void)uv_timer_init(&rpc->loop, &rpc->clock); /* never fails */
	rpc->clock.data = rpc;
	return 0;
}

int
kvp_rpc_uv_open(const struct kvp_rpc_cfg *cfg, struct kvp_rpc **ret_rpc)
{
	struct kvp_rpc_uv *rpc = calloc(1, sizeof(*rpc));
	int err;

	if (rpc == NULL) {
		return -ENOMEM;
	}
	kvp_assert(cfg->env != NULL && cfg->self.kind != 0);
	rpc->pub.ops = &rpc_uv_ops;
	rpc->pub.env = cfg->env;
	rpc->cfg = *cfg;
	if (rpc->cfg.conns_max == 0) {
		rpc->cfg.conns_max = KVP_RPC_CONNS_DEFAULT;
	}
	rpc->bounds = (struct kvp_rpc_bounds){.hello_ns = KVP_RPC_HELLO_NS,
		.connect_ns = KVP_RPC_CONNECT_NS,
		.frame_ns = KVP_RPC_FRAME_NS,
		.stall_ns = KVP_RPC_STALL_NS,
		.out_max = KVP_RPC_OUT_MAX};
	rpc->versions.min = KVP_PROTO_VERSION_MIN;
	rpc->versions.max = KVP_PROTO_VERSION;
	kvp_list_init(&rpc->listeners);
	kvp_list_init(&rpc->conns);
	kvp_list_init(&rpc->links);
	kvp_list_init(&rpc->signals);
	kvp_list_init(&rpc->watches);
	kvp_list_init(&rpc->orphans);
	err = -pthread_mutex_init(&rpc->lock, NULL);
	if (err < 0) {
		goto err_free;
	}
	err = rpc_init_loop(rpc);
	if (err < 0) {
		goto err_lock;
	}
	*ret_rpc = &rpc->pub;
	return 0;

err_lock:
	pthread_mutex_destroy(&rpc->lock);
err_free:
	free(rpc);
	return err;
}
