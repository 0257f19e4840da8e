/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_rpc.c - the rpc contract (transport/rpc/rpc.h) on virtual time. A pipe is one connection: in
 * order within itself, delayed at random, so connections overtake each other. Hello is taken as
 * done: both sides are ours.
 */
#include "hal/base/err.h"
#include "tests/sim/sim.h"
#include "transport/proto/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_rpc {
	struct kvp_rpc rpc;
	struct sim *sim;
	struct kvp_rpc_cfg cfg;
	struct kvp_list links;     /* struct sim_link */
	struct kvp_list conns;     /* struct sim_conn */
	struct kvp_list listeners; /* struct sim_listener.of_rpc */
	bool closed;
	uint32_t refs; /* events under way that name it */
};

struct sim_listener {
	struct kvp_list link;
	struct kvp_list of_rpc;
	struct sim_rpc *rpc;
	const struct kvp_rpc_service *service;
	char addr[KVP_ADDR_LEN_MAX];
};

struct sim_conn {
	struct kvp_rpc_conn pub;
	struct kvp_list link;
	struct sim_rpc *rpc;
	const struct kvp_rpc_service *service;
	struct sim_pipe *pipe; /* NULL once broken */
	struct kvp_list calls; /* struct sim_call */
};

struct sim_link {
	struct kvp_rpc_link pub;
	struct kvp_list link;
	struct sim_rpc *rpc;
	struct kvp_rpc_link_cfg cfg;
	char addr[KVP_ADDR_LEN_MAX];
	struct sim_pipe *pipe;   /* NULL while down */
	struct sim_event *retry; /* or the attempt under way */
	bool backing_off;
	struct kvp_list reqs; /* struct sim_req: waiting or sent */
};

/* One connection. Freed when both ends are off and no message is under way. */
struct sim_pipe {
	struct kvp_list link;
	struct sim *sim;
	struct sim_link *client;
	struct sim_conn *server;
	uint64_t to_server_ns; /* nothing may arrive before what was sent earlier */
	uint64_t to_client_ns;
	uint32_t refs;
	bool broken;
};

struct sim_req {
	struct kvp_list link;
	struct kvp_rpc_req *req; /* NULL: answered or timed out; the peer may still answer */
	struct sim_link *owner;
	struct sim_event *deadline;
	uint8_t *body;
	size_t len;
	bool sent;
	uint32_t refs;
};

struct sim_call {
	struct kvp_rpc_call pub;
	struct kvp_list link;
	struct sim *sim;
	struct sim_pipe *pipe;
	struct sim_req *req; /* NULL: one way */
	uint8_t *body;
};

struct sim_message {
	struct sim_pipe *pipe;
	struct sim_req *req;
	uint16_t type;
	int status;
	uint8_t *body;
	size_t len;
};

static const struct kvp_rpc_ops sim_rpc_ops;

static struct sim_rpc *
sim_rpc_of(struct kvp_rpc *rpc)
{
	return kvp_container_of(rpc, struct sim_rpc, rpc);
}

static uint8_t *
copy_of(const void *body, size_t len)
{
	uint8_t *copy = malloc(len + 1);

	if (len > 0) {
		memcpy(copy, body, len);
	}
	return copy;
}

/* Not inlined: the compiler cannot count references and sees uses after free. */
static __attribute__((noinline)) void
pipe_unref(struct sim_pipe *pipe)
{
	if (--pipe->refs == 0) {
		kvp_list_remove(&pipe->link);
		free(pipe);
	}
}

static __attribute__((noinline)) void
req_unref(struct sim_req *req)
{
	if (--req->refs == 0) {
		free(req->body);
		free(req);
	}
}

/* Ends a request towards its owner, once. */
static void
req_finish(struct sim_req *req, int status, const uint8_t *body, size_t len)
{
	struct kvp_rpc_req *pub = req->req;

	if (pub == NULL) {
		return;
	}
	req->req = NULL;
	if (req->deadline != NULL) {
		sim_cancel(req->deadline);
		req_unref(req); /* the event's; the list's is still there */
	}
	kvp_list_remove(&req->link);
	pub->done(pub, status, body, len);
	req_unref(req);
}

static uint64_t
arrival(struct sim *sim, uint64_t *last_ns)
{
	uint64_t at = sim->now_ns + sim->delay_ns_max / 16 + sim_below(sim, sim->delay_ns_max);

	*last_ns = at > *last_ns ? at : *last_ns + 1;
	return *last_ns - sim->now_ns;
}

static void
message_free(struct sim_message *message)
{
	pipe_unref(message->pipe);
	if (message->req != NULL) {
		req_unref(message->req);
	}
	free(message->body);
	free(message);
}

static struct sim_message *
message_new(struct sim_pipe *pipe, struct sim_req *req, const void *body, size_t len)
{
	struct sim_message *message = calloc(1, sizeof(*message));

	pipe->refs++;
	if (req != NULL) {
		req->refs++;
	}
	*message = (struct sim_message){
		.pipe = pipe, .req = req, .body = copy_of(body, len), .len = len};
	return message;
}

/* --- the end of a connection ---------------------------------------------------------------- */

static void link_attempt_soon(struct sim_link *link, uint64_t delay_ns);

static void
conn_end(struct sim_conn *conn, int why)
{
	kvp_list_for_each_safe (pos, &conn->calls) {
		struct sim_call *call = kvp_container_of(pos, struct sim_call, link);

		call->pub.conn = NULL;
		kvp_list_remove(pos);
	}
	conn->service->closed(conn->service->arg, &conn->pub, why);
	kvp_list_remove(&conn->link);
	pipe_unref(conn->pipe);
	free(conn);
}

static void
link_end(struct sim_link *link, int why)
{
	struct sim_pipe *pipe = link->pipe;

	link->pipe = NULL;
	link->pub.up = false;
	link->pub.why = why;
	kvp_list_for_each_safe (pos, &link->reqs) {
		req_finish(kvp_container_of(pos, struct sim_req, link), why, NULL, 0);
	}
	link_attempt_soon(link, 50 * KVP_NS_PER_MS + sim_below(link->rpc->sim, 50000000));
	if (link->cfg.down != NULL) {
		link->cfg.down(link->cfg.arg, &link->pub, why);
	}
	pipe_unref(pipe);
}

static void
pipe_client_gone(void *arg)
{
	struct sim_pipe *pipe = arg;

	if (pipe->client != NULL) {
		struct sim_link *link = pipe->client;

		pipe->client = NULL;
		link_end(link, -KVP_E_CONNDOWN);
	}
	pipe_unref(pipe);
}

static void
pipe_server_gone(void *arg)
{
	struct sim_pipe *pipe = arg;

	if (pipe->server != NULL) {
		struct sim_conn *conn = pipe->server;

		pipe->server = NULL;
		conn_end(conn, -KVP_E_CONNDOWN);
	}
	pipe_unref(pipe);
}

/* Both ends learn of it, each in its own time; what is under way is lost. */
static void
pipe_break(struct sim_pipe *pipe)
{
	if (pipe->broken) {
		return;
	}
	pipe->broken = true;
	pipe->refs += 2;
	sim_after(pipe->sim, sim_below(pipe->sim, 1000000), pipe_client_gone, pipe);
	sim_after(pipe->sim, sim_below(pipe->sim, 1000000), pipe_server_gone, pipe);
}

bool
sim_rpc_break_any(struct sim *sim)
{
	uint32_t count = 0;
	uint64_t pick;

	kvp_list_for_each (pos, &sim->pipes) {
		count += !kvp_container_of(pos, struct sim_pipe, link)->broken;
	}
	pick = sim_below(sim, count);
	kvp_list_for_each (pos, &sim->pipes) {
		struct sim_pipe *pipe = kvp_container_of(pos, struct sim_pipe, link);

		if (!pipe->broken && pick-- == 0) {
			pipe_break(pipe);
			sim->counts_broken++;
			return true;
		}
	}
	return false;
}

/* --- requests --------------------------------------------------------------------------------- */

static void
request_arrive(void *arg)
{
	struct sim_message *message = arg;
	struct sim_pipe *pipe = message->pipe;
	struct sim_conn *conn = pipe->server;

	if (!pipe->broken && conn != NULL) {
		struct sim_call *call = calloc(1, sizeof(*call));

		*call = (struct sim_call){
			.pub = {.conn = &conn->pub,
				.type = message->type,
				.one_way = message->req == NULL,
				.body = message->body,
				.len = message->len},
			.sim = pipe->sim,
			.pipe = pipe,
			.req = message->req,
			.body = message->body,
		};
		pipe->refs++;
		if (message->req != NULL) {
			message->req->refs++;
		}
		message->body = NULL;
		kvp_list_push_back(&conn->calls, &call->link);
		conn->service->call(conn->service->arg, &call->pub);
	}
	message_free(message);
}

static void
reply_arrive(void *arg)
{
	struct sim_message *message = arg;

	if (!message->pipe->broken) {
		req_finish(message->req, message->status, message->body, message->len);
	}
	message_free(message);
}

static void
sim_reply(struct kvp_rpc_call *pub, int status, const void *body, size_t len)
{
	struct sim_call *call = kvp_container_of(pub, struct sim_call, pub);
	struct sim_pipe *pipe = call->pipe;

	if (call->req != NULL && !pipe->broken) {
		struct sim_message *message = message_new(pipe, call->req, body, len);

		message->status = status;
		sim_after(
			call->sim, arrival(call->sim, &pipe->to_client_ns), reply_arrive, message);
	}
	if (pub->conn != NULL) {
		kvp_list_remove(&call->link);
	}
	if (call->req != NULL) {
		req_unref(call->req);
	}
	pipe_unref(pipe);
	free(call->body);
	free(call);
}

static void
req_send(struct sim_link *link, struct sim_req *req)
{
	struct sim_message *message = message_new(link->pipe, req, req->body, req->len);

	req->sent = true;
	message->type = req->req->type;
	sim_after(link->rpc->sim, arrival(link->rpc->sim, &link->pipe->to_server_ns),
		request_arrive, message);
}

static void
req_expired(void *arg)
{
	struct sim_req *req = arg;

	req->deadline = NULL;
	req_finish(req, -KVP_E_TIMEOUT, NULL, 0);
	req_unref(req);
}

static void
req_failed(void *arg)
{
	struct sim_req *req = arg;

	req_finish(req, req->owner->pub.why, NULL, 0);
	req_unref(req);
}

static void
sim_call_start(struct kvp_rpc_link *pub, struct kvp_rpc_req *preq, const void *body, size_t len)
{
	struct sim_link *link = kvp_container_of(pub, struct sim_link, pub);
	struct sim *sim = link->rpc->sim;
	struct sim_req *req = calloc(1, sizeof(*req));
	uint64_t left = preq->deadline_ns > sim->now_ns ? preq->deadline_ns - sim->now_ns : 0;

	*req = (struct sim_req){
		.req = preq, .owner = link, .body = copy_of(body, len), .len = len, .refs = 1};
	preq->link = pub;
	kvp_list_push_back(&link->reqs, &req->link);
	if (link->pipe == NULL && link->backing_off) {
		req->refs++;
		sim_after(sim, 0, req_failed, req);
		return;
	}
	req->refs++;
	req->deadline = sim_after(sim, left, req_expired, req);
	if (link->pipe != NULL) {
		req_send(link, req);
	}
}

static void
sim_notify(struct kvp_rpc_link *pub, uint16_t type, const void *body, size_t len)
{
	struct sim_link *link = kvp_container_of(pub, struct sim_link, pub);
	struct sim_message *message;

	if (link->pipe == NULL) {
		return;
	}
	message = message_new(link->pipe, NULL, body, len);
	message->type = type;
	sim_after(link->rpc->sim, arrival(link->rpc->sim, &link->pipe->to_server_ns),
		request_arrive, message);
}

/* --- making connections ------------------------------------------------------------------------
 */

static struct sim_listener *
listener_find(struct sim *sim, const char *addr)
{
	kvp_list_for_each (pos, &sim->listeners) {
		struct sim_listener *listener = kvp_container_of(pos, struct sim_listener, link);

		if (strcmp(listener->addr, addr) == 0) {
			return listener;
		}
	}
	return NULL;
}

static struct sim_conn *
conn_make(struct sim_listener *listener, struct sim_pipe *pipe, const struct sim_rpc *client)
{
	struct sim_conn *conn = calloc(1, sizeof(*conn));

	*conn = (struct sim_conn){
		.pub = {.rpc = &listener->rpc->rpc, .peer = client->cfg.self},
		.rpc = listener->rpc,
		.service = listener->service,
		.pipe = pipe,
	};
	snprintf(conn->pub.peer.addr, sizeof(conn->pub.peer.addr), "sim");
	conn->pub.peer.version = KVP_PROTO_VERSION;
	kvp_list_init(&conn->calls);
	kvp_list_push_back(&listener->rpc->conns, &conn->link);
	return conn;
}

static void
link_attempt(void *arg)
{
	struct sim_link *link = arg;
	struct sim *sim = link->rpc->sim;
	struct sim_listener *listener = listener_find(sim, link->addr);
	struct sim_pipe *pipe;

	link->retry = NULL;
	if (listener == NULL) {
		link->backing_off = true;
		link->pub.why = -ECONNREFUSED;
		kvp_list_for_each_safe (pos, &link->reqs) {
			req_finish(kvp_container_of(pos, struct sim_req, link), -ECONNREFUSED, NULL,
				0);
		}
		link_attempt_soon(link, 50 * KVP_NS_PER_MS + sim_below(sim, 50000000));
		return;
	}
	link->backing_off = false;
	pipe = calloc(1, sizeof(*pipe));
	*pipe = (struct sim_pipe){.sim = sim, .client = link, .refs = 2};
	kvp_list_push_back(&sim->pipes, &pipe->link);
	pipe->server = conn_make(listener, pipe, link->rpc);
	link->pipe = pipe;
	link->pub.up = true;
	link->pub.peer = listener->rpc->cfg.self;
	link->pub.peer.version = KVP_PROTO_VERSION;
	pipe->server->service->opened(pipe->server->service->arg, &pipe->server->pub);
	if (link->cfg.up != NULL) {
		link->cfg.up(link->cfg.arg, &link->pub);
	}
	kvp_list_for_each_safe (pos, &link->reqs) {
		struct sim_req *req = kvp_container_of(pos, struct sim_req, link);

		if (!req->sent && link->pipe != NULL) {
			req_send(link, req);
		}
	}
}

static void
link_attempt_soon(struct sim_link *link, uint64_t delay_ns)
{
	link->retry = sim_after(link->rpc->sim, delay_ns, link_attempt, link);
}

static int
sim_link_open(
	struct kvp_rpc *rpc, const struct kvp_rpc_link_cfg *cfg, struct kvp_rpc_link **ret_link)
{
	struct sim_link *link = calloc(1, sizeof(*link));

	link->pub.rpc = rpc;
	link->pub.why = -KVP_E_CONNDOWN;
	link->rpc = sim_rpc_of(rpc);
	link->cfg = *cfg;
	snprintf(link->addr, sizeof(link->addr), "%s", cfg->addr);
	kvp_list_init(&link->reqs);
	kvp_list_push_back(&link->rpc->links, &link->link);
	link_attempt_soon(link, sim_below(link->rpc->sim, link->rpc->sim->delay_ns_max));
	*ret_link = &link->pub;
	return 0;
}

static void
sim_link_close(struct kvp_rpc_link *pub)
{
	struct sim_link *link = kvp_container_of(pub, struct sim_link, pub);

	kvp_list_for_each_safe (pos, &link->reqs) {
		req_finish(kvp_container_of(pos, struct sim_req, link), -KVP_E_CANCELLED, NULL, 0);
	}
	if (link->retry != NULL) {
		sim_cancel(link->retry);
	}
	if (link->pipe != NULL) {
		link->pipe->client = NULL;
		pipe_break(link->pipe);
		pipe_unref(link->pipe);
	}
	kvp_list_remove(&link->link);
	free(link);
}

static int
sim_listen(struct kvp_rpc *rpc, const char *addr, const struct kvp_rpc_service *service,
	char ret_addr[KVP_ADDR_LEN_MAX], struct kvp_rpc_listener **ret_listener)
{
	struct sim_rpc *srpc = sim_rpc_of(rpc);
	struct sim_listener *listener;

	if (listener_find(srpc->sim, addr) != NULL) {
		return -EADDRINUSE;
	}
	listener = calloc(1, sizeof(*listener));
	listener->rpc = srpc;
	listener->service = service;
	snprintf(listener->addr, sizeof(listener->addr), "%s", addr);
	snprintf(ret_addr, KVP_ADDR_LEN_MAX, "%s", addr);
	kvp_list_push_back(&srpc->sim->listeners, &listener->link);
	kvp_list_push_back(&srpc->listeners, &listener->of_rpc);
	*ret_listener = (struct kvp_rpc_listener *)listener;
	return 0;
}

static void
sim_unlisten(struct kvp_rpc_listener *pub)
{
	struct sim_listener *listener = (struct sim_listener *)pub;

	kvp_list_remove(&listener->link);
	kvp_list_remove(&listener->of_rpc);
	free(listener);
}

static void
sim_conn_close(struct kvp_rpc_conn *pub)
{
	pipe_break(kvp_container_of(pub, struct sim_conn, pub)->pipe);
}

/* --- timers and the rest ---------------------------------------------------------------------- */

static void
timer_fire(void *arg)
{
	struct kvp_rpc_timer *timer = arg;

	timer->impl[0] = NULL;
	timer->fn(timer);
}

static void
sim_timer_stop(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer)
{
	(void)rpc; /* one queue of events serves all */
	if (timer->impl[0] != NULL) {
		sim_cancel(timer->impl[0]);
		timer->impl[0] = NULL;
	}
}

static void
sim_timer_start(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer, uint64_t delay_ns)
{
	sim_timer_stop(rpc, timer);
	timer->impl[0] = sim_after(sim_rpc_of(rpc)->sim, delay_ns, timer_fire, timer);
}

static int
sim_watch_start(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch, int fd)
{
	(void)rpc; /* there are no descriptors here: whoever polls is polled after each event */
	(void)watch;
	(void)fd;
	return 0;
}

static void
sim_watch_stop(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch)
{
	(void)rpc;
	(void)watch;
}

static void
sim_post(struct kvp_rpc *rpc, void (*fn)(void *arg), void *arg)
{
	sim_after(sim_rpc_of(rpc)->sim, 0, fn, arg);
}

static void
sim_run(struct kvp_rpc *rpc)
{
	(void)rpc;
	abort(); /* sim_step() runs everybody */
}

static void
sim_stop(struct kvp_rpc *rpc)
{
	(void)rpc;
}

static void
sim_close(struct kvp_rpc *rpc)
{
	struct sim_rpc *srpc = sim_rpc_of(rpc);

	kvp_list_for_each_safe (pos, &srpc->links) {
		sim_link_close(&kvp_container_of(pos, struct sim_link, link)->pub);
	}
	kvp_list_for_each_safe (pos, &srpc->listeners) {
		sim_unlisten((struct kvp_rpc_listener *)kvp_container_of(
			pos, struct sim_listener, of_rpc));
	}
	kvp_list_for_each_safe (pos, &srpc->conns) {
		struct sim_conn *conn = kvp_container_of(pos, struct sim_conn, link);

		conn->pipe->server = NULL;
		pipe_break(conn->pipe);
		conn_end(conn, -KVP_E_CANCELLED);
	}
	free(srpc);
}

static const struct kvp_rpc_ops sim_rpc_ops = {
	.listen = sim_listen,
	.unlisten = sim_unlisten,
	.reply = sim_reply,
	.conn_close = sim_conn_close,
	.link_open = sim_link_open,
	.link_close = sim_link_close,
	.call = sim_call_start,
	.notify = sim_notify,
	.timer_start = sim_timer_start,
	.timer_stop = sim_timer_stop,
	.watch_start = sim_watch_start,
	.watch_stop = sim_watch_stop,
	.post = sim_post,
	.run = sim_run,
	.stop = sim_stop,
	.close = sim_close,
};

int
sim_rpc_open(struct sim *sim, const struct kvp_rpc_cfg *cfg, struct kvp_rpc **ret_rpc)
{
	struct sim_rpc *srpc = calloc(1, sizeof(*srpc));

	*srpc = (struct sim_rpc){
		.rpc = {.ops = &sim_rpc_ops, .env = &sim->env}, .sim = sim, .cfg = *cfg};
	kvp_list_init(&srpc->links);
	kvp_list_init(&srpc->conns);
	kvp_list_init(&srpc->listeners);
	*ret_rpc = &srpc->rpc;
	return 0;
}
