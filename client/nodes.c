/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nodes.c - the control links to nodes: one a node, each with the session it opened; calls that go
 * over them or wait for them; the reports of reads.
 *
 * The home node is known by address first and gets its entry of the table when its handshake
 * tells who it is; if a lookup had taught us the same node before, that link is given up for the
 * home one. Whoever answers under another identity than its entry's makes that entry gone.
 *
 * THREADS the loop's. Ties are closed from timers only, never from a callback of their link.
 */
#include "client/control.h"
#include "client/peers.h"
#include "client/tie.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_IDLE_NS  (30 * KVP_NS_PER_S)   /* down for so long: the link is given up */
#define NODES_TOUCH_NS (100 * KVP_NS_PER_MS) /* between reports of reads */

struct kvp_node_tie {
	struct kvp_tie tie;
	struct kvp_nodes *nodes;
	struct kvp_list link;  /* nodes->ties */
	struct kvp_peer *peer; /* a reference; NULL: home before its handshake, or doomed */
	bool home;
	bool opening; /* a SESSION_OPEN is out */
	struct kvp_rpc_req open_req;
	struct kvp_rpc_timer doom;
	struct kvp_list waiters; /* calls that wait for the session */
};

struct kvp_nodes {
	struct kvp_client *client;
	struct kvp_list ties;
	struct kvp_node_tie *home; /* NULL: no home node */
	bool closing;
	struct kvp_rpc_timer touch;
	uint64_t touched_ns;
	struct kvp_touch_item touches[KVP_READS_MAX];
};

static struct kvp_peers *
nodes_peers(const struct kvp_nodes *nodes)
{
	return nodes->client->peers;
}

static bool
node_tie_ready(const struct kvp_node_tie *nt)
{
	return nt->peer != NULL && kvp_peer_session_seq(nt->peer) != 0;
}

/* --- calls over a link
 * ---------------------------------------------------------------------------- */

static void
node_called(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct kvp_call *call = kvp_container_of(req, struct kvp_call, req);
	bool closing = call->client->control->nodes->closing;

	call->out = false;
	if (status == -KVP_E_CANCELLED && !closing) {
		status = -KVP_E_CONNDOWN; /* its link was given up */
	}
	kvp_call_answer(call, status, body, len);
}

/* The session is open: send it, or tell. */
static void
node_serve(struct kvp_node_tie *nt, struct kvp_call *call)
{
	if (call->to != KVP_TO_NODE) {
		call->number = nt->peer->number;
		kvp_call_answer(call, 0, NULL, 0);
	} else if (call->session_seq != 0 && call->session_seq != nt->peer->session_seq) {
		kvp_call_answer(call, -KVP_E_NO_SESSION, NULL, 0);
	} else if (nt->tie.link == NULL) {
		kvp_call_answer(call, -KVP_E_CONNDOWN, NULL, 0);
	} else {
		kvp_call_send(call, nt->tie.link, call->deadline_ns, node_called);
	}
}

static void
waiter_remove(struct kvp_call *call)
{
	struct kvp_rpc *rpc = call->client->rpc;

	rpc->ops->timer_stop(rpc, &call->timer);
	kvp_list_remove(&call->link);
}

static void
waiter_expired(struct kvp_rpc_timer *timer)
{
	struct kvp_call *call = kvp_container_of(timer, struct kvp_call, timer);

	waiter_remove(call);
	kvp_call_answer(call, call->to == KVP_TO_HOME ? -KVP_E_NODEDOWN : -KVP_E_TIMEOUT, NULL, 0);
}

static void
waiter_add(struct kvp_node_tie *nt, struct kvp_call *call)
{
	struct kvp_rpc *rpc = call->client->rpc;
	uint64_t now = kvp_now_ns(call->client->env);

	call->timer.fn = waiter_expired;
	kvp_list_push_back(&nt->waiters, &call->link);
	rpc->ops->timer_start(
		rpc, &call->timer, call->deadline_ns > now ? call->deadline_ns - now : 0);
}

/* Answers those that wait: with the session, or with an error. Who waits for home goes on waiting
 * unless all is to end. */
static void
waiters_serve(struct kvp_node_tie *nt, int err, bool all)
{
	kvp_list_for_each_safe (pos, &nt->waiters) {
		struct kvp_call *call = kvp_container_of(pos, struct kvp_call, link);

		if (err < 0 && call->to == KVP_TO_HOME && !all) {
			continue;
		}
		waiter_remove(call);
		if (err < 0) {
			kvp_call_answer(call, err, NULL, 0);
		} else {
			node_serve(nt, call);
		}
	}
}

/* --- ties: their ends
 * ------------------------------------------------------------------------------- */

static void
node_tie_free(struct kvp_node_tie *nt)
{
	struct kvp_rpc *rpc = nt->nodes->client->rpc;

	kvp_list_remove(&nt->link);
	rpc->ops->timer_stop(rpc, &nt->doom);
	kvp_tie_close(&nt->tie);
	waiters_serve(nt, nt->nodes->closing ? -KVP_E_CANCELLED : -KVP_E_NODEDOWN, true);
	if (nt->peer != NULL) {
		nt->peer->tie = NULL;
		kvp_peers_publish(nodes_peers(nt->nodes), nt->peer, NULL);
		kvp_peer_unref(nt->peer);
	}
	free(nt);
}

static void
node_tie_doomed(struct kvp_rpc_timer *timer)
{
	node_tie_free(kvp_container_of(timer, struct kvp_node_tie, doom));
}

/* Parts a tie from its node. */
static void
node_tie_part(struct kvp_node_tie *nt)
{
	if (nt->peer != NULL) {
		kvp_peers_publish(nodes_peers(nt->nodes), nt->peer, NULL);
		if (nt->peer->tie == nt) {
			nt->peer->tie = NULL;
		}
		kvp_peer_unref(nt->peer);
		nt->peer = NULL;
	}
}

/* Gives a tie up as soon as no callback of its link is running. */
static void
node_tie_doom(struct kvp_node_tie *nt)
{
	struct kvp_rpc *rpc = nt->nodes->client->rpc;

	kvp_assert(!nt->home);
	node_tie_part(nt);
	waiters_serve(nt, -KVP_E_NODEDOWN, true);
	nt->doom.fn = node_tie_doomed;
	rpc->ops->timer_start(rpc, &nt->doom, 0);
}

/* --- ties: sessions
 * ------------------------------------------------------------------------------------ */

/* Binds the home tie to the entry of who answered there. */
static bool
home_bind(struct kvp_node_tie *nt, const struct kvp_ident *ident)
{
	struct kvp_peers *peers = nodes_peers(nt->nodes);
	const struct kvp_peer_info info = {.id = ident->id,
		.incarnation = ident->incarnation,
		.addr = "",
		.same_host = strncmp(nt->tie.addr, "unix:", 5) == 0};
	struct kvp_peer *peer = kvp_peers_learn(peers, &info);
	struct kvp_peer *old = nt->peer;

	if (peer == NULL) {
		return false;
	}
	if (peer == old) {
		kvp_peer_unref(peer);
		return true;
	}
	if (old != NULL && memcmp(old->id, peer->id, KVP_ID_LEN) == 0) {
		kvp_peers_set_gone(peers, old);
	}
	node_tie_part(nt);
	if (peer->tie != NULL) {
		struct kvp_node_tie *other = peer->tie;

		while (!kvp_list_empty(&other->waiters)) {
			kvp_list_push_back(&nt->waiters, kvp_list_pop_front(&other->waiters));
		}
		node_tie_doom(other);
	}
	nt->peer = peer;
	peer->tie = nt;
	return true;
}

/* Who is at the other end must be who the tie is for. */
static bool
node_tie_identify(struct kvp_node_tie *nt)
{
	const struct kvp_rpc_link *link = nt->tie.link;

	if (link == NULL || !link->up) {
		return false;
	}
	if (link->peer.kind != KVP_PEER_NODE) {
		kvp_warn(nt->nodes->client->log, "%s is no pool node", nt->tie.addr);
		return false;
	}
	if (nt->home) {
		return home_bind(nt, &link->peer);
	}
	if (nt->peer == NULL) {
		return false;
	}
	if (nt->peer->incarnation != link->peer.incarnation ||
		memcmp(nt->peer->id, link->peer.id, KVP_ID_LEN) != 0) {
		kvp_info(nt->nodes->client->log,
			"node at %s restarted: its old blocks are forgotten", nt->tie.addr);
		kvp_peers_set_gone(nodes_peers(nt->nodes), nt->peer);
		node_tie_doom(nt);
		return false;
	}
	return true;
}

static bool
rdesc_set(struct kvp_rdesc *desc, const ProtobufCBinaryData *bytes)
{
	if (bytes->len > KVP_RDESC_LEN_MAX) {
		return false;
	}
	desc->len = (uint8_t)bytes->len;
	memcpy(desc->bytes, bytes->data, bytes->len);
	return true;
}

static bool
transport_set(const struct kvp_client *client, const Kvp__Transport *from,
	struct kvp_session_transport *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (strlen(from->name) >= sizeof(ret->name) || strlen(from->address) >= sizeof(ret->addr) ||
		!rdesc_set(&ret->arena_read, &from->arena_read) ||
		!rdesc_set(&ret->table_read, &from->table_read)) {
		return false;
	}
	snprintf(ret->name, sizeof(ret->name), "%s", from->name);
	snprintf(ret->addr, sizeof(ret->addr), "%s", from->address);
	ret->usable = from->host_id.len == 0 ||
		      (from->host_id.len == KVP_ID_LEN &&
			      memcmp(from->host_id.data, client->host_id, KVP_ID_LEN) == 0);
	return true;
}

/* -KVP_E_PROTO: the answer makes no sense. */
static int
session_decode(
	const struct kvp_client *client, const uint8_t *body, size_t len, struct kvp_session *ret)
{
	Kvp__SessionOpenReply *msg = (Kvp__SessionOpenReply *)kvp_msg_decode(
		kvp_rpc_reply_desc(KVP_RPC_SESSION_OPEN), body, len);
	int err = -KVP_E_PROTO;

	if (msg == NULL) {
		return err;
	}
	memset(ret, 0, sizeof(*ret));
	if (msg->token.len != KVP_TOKEN_LEN || msg->keys_max == 0) {
		goto out_free;
	}
	memcpy(ret->token, msg->token.data, KVP_TOKEN_LEN);
	ret->quarantine_ms = msg->quarantine_ms;
	ret->grant_ms = msg->grant_ms;
	ret->keys_max = msg->keys_max < KVP_RPC_KEYS_MAX ? msg->keys_max : KVP_RPC_KEYS_MAX;
	ret->block_len_max = msg->block_len_max;
	for (size_t i = 0; i < msg->n_transports && ret->transport_count < KVP_TRANSPORTS_MAX;
		i++) {
		if (!transport_set(
			    client, msg->transports[i], &ret->transports[ret->transport_count])) {
			goto out_free;
		}
		ret->transport_count++;
	}
	err = 0;

out_free:
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return err;
}

static void node_tie_open_session(struct kvp_node_tie *nt);

static void
node_session_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct kvp_node_tie *nt = kvp_container_of(req, struct kvp_node_tie, open_req);
	struct kvp_session session;

	nt->opening = false;
	if (nt->nodes->closing) {
		return; /* the waiters are answered by who closes */
	}
	if (status == 0) {
		status = session_decode(nt->nodes->client, body, len, &session);
	}
	if (status == 0 && !node_tie_identify(nt)) {
		status = -KVP_E_NODEDOWN;
	}
	if (status < 0) {
		kvp_debug(nt->nodes->client->log, "session with %s: %s", nt->tie.addr,
			kvp_err_str(status));
		if (nt->tie.link != NULL && nt->tie.link->up) {
			kvp_tie_reopen(&nt->tie); /* a session is asked for once a connection */
		}
		waiters_serve(nt, -KVP_E_NODEDOWN, false);
		return; /* a beat or the next link tries again */
	}
	kvp_peers_publish(nodes_peers(nt->nodes), nt->peer, &session);
	waiters_serve(nt, 0, false);
}

/* Asks for a session unless there is one. While the link comes up the request waits for it; in
 * its back-off it fails at once, which is what who waits wants to know. */
static void
node_tie_open_session(struct kvp_node_tie *nt)
{
	struct kvp_client *client = nt->nodes->client;
	Kvp__SessionOpen msg = KVP__SESSION_OPEN__INIT;
	uint8_t *body;
	size_t len;

	if (nt->opening || node_tie_ready(nt)) {
		return;
	}
	msg.host_id = kvp_bytes(client->host_id, KVP_ID_LEN);
	if (nt->tie.link == NULL || kvp_msg_encode(&msg.base, &body, &len) < 0) {
		waiters_serve(nt, -KVP_E_NODEDOWN, false);
		return;
	}
	memset(&nt->open_req, 0, sizeof(nt->open_req));
	nt->open_req.type = KVP_RPC_SESSION_OPEN;
	nt->open_req.deadline_ns = kvp_now_ns(client->env) + KVP_TIE_SILENCE_NS;
	nt->open_req.done = node_session_done;
	nt->opening = true;
	nt->tie.link->rpc->ops->call(nt->tie.link, &nt->open_req, body, len);
	free(body);
}

static void
node_up(struct kvp_tie *tie)
{
	struct kvp_node_tie *nt = kvp_container_of(tie, struct kvp_node_tie, tie);

	if (node_tie_identify(nt)) {
		node_tie_open_session(nt);
	}
}

static void
node_down(struct kvp_tie *tie)
{
	struct kvp_node_tie *nt = kvp_container_of(tie, struct kvp_node_tie, tie);

	if (nt->peer != NULL) {
		kvp_peers_publish(nodes_peers(nt->nodes), nt->peer, NULL);
	}
}

static void
node_tick(struct kvp_tie *tie)
{
	struct kvp_node_tie *nt = kvp_container_of(tie, struct kvp_node_tie, tie);
	uint64_t now = kvp_now_ns(nt->nodes->client->env);

	if (tie->link != NULL && tie->link->up) {
		if (node_tie_identify(nt)) {
			node_tie_open_session(nt);
		}
	} else if (!nt->home && now - tie->down_since_ns > NODES_IDLE_NS) {
		node_tie_doom(nt); /* who needs it opens another */
	}
}

static int
node_tie_open(struct kvp_nodes *nodes, const char *addr, struct kvp_node_tie **ret_tie)
{
	struct kvp_node_tie *nt = calloc(1, sizeof(*nt));
	int err;

	if (nt == NULL) {
		return -ENOMEM;
	}
	nt->nodes = nodes;
	nt->tie.client = nodes->client;
	nt->tie.up = node_up;
	nt->tie.down = node_down;
	nt->tie.tick = node_tick;
	snprintf(nt->tie.addr, sizeof(nt->tie.addr), "%s", addr);
	kvp_list_init(&nt->waiters);
	err = kvp_tie_open(&nt->tie);
	if (err < 0) {
		free(nt);
		return err;
	}
	kvp_list_push_back(&nodes->ties, &nt->link);
	*ret_tie = nt;
	return 0;
}

/* --- for control.c
 * -------------------------------------------------------------------------------------- */

static void nodes_report(struct kvp_rpc_timer *timer);

int
kvp_nodes_open(struct kvp_client *client, struct kvp_nodes **ret_nodes)
{
	struct kvp_nodes *nodes = calloc(1, sizeof(*nodes));

	if (nodes == NULL) {
		return -ENOMEM;
	}
	nodes->client = client;
	nodes->touch.fn = nodes_report;
	kvp_list_init(&nodes->ties);
	if (client->set.node[0] != '\0') {
		int err = node_tie_open(nodes, client->set.node, &nodes->home);

		if (err < 0) {
			free(nodes);
			return err;
		}
		nodes->home->home = true;
	}
	*ret_nodes = nodes;
	return 0;
}

void
kvp_nodes_close(struct kvp_nodes *nodes)
{
	struct kvp_rpc *rpc;

	if (nodes == NULL) {
		return;
	}
	rpc = nodes->client->rpc;
	nodes->closing = true;
	rpc->ops->timer_stop(rpc, &nodes->touch);
	kvp_list_for_each_safe (pos, &nodes->ties) {
		node_tie_free(kvp_container_of(pos, struct kvp_node_tie, link));
	}
	free(nodes);
}

static void
nodes_call_home(struct kvp_nodes *nodes, struct kvp_call *call)
{
	if (nodes->home == NULL) {
		kvp_call_answer(call, -KVP_E_NODEDOWN, NULL, 0);
	} else if (node_tie_ready(nodes->home)) {
		node_serve(nodes->home, call);
	} else {
		waiter_add(nodes->home, call);
		node_tie_open_session(nodes->home);
	}
}

/* A write of this session failed half way: until the node has fenced the session, nobody gets the
 * slot or, as the grant is open, the key. The end of the control connection makes it do so. */
static void
nodes_renew(struct kvp_call *call)
{
	struct kvp_peer *peer = call->peer;

	if (peer->tie != NULL && kvp_peer_session_seq(peer) == call->session_seq) {
		kvp_tie_renew(&peer->tie->tie);
	}
	kvp_call_answer(call, 0, NULL, 0);
}

void
kvp_nodes_call(struct kvp_nodes *nodes, struct kvp_call *call)
{
	struct kvp_peer *peer = call->peer;

	if (call->to == KVP_TO_HOME) {
		nodes_call_home(nodes, call);
		return;
	}
	if (call->to == KVP_TO_RENEW) {
		nodes_renew(call);
		return;
	}
	if (peer->gone || (peer->tie == NULL && peer->addr[0] == '\0')) {
		kvp_call_answer(call, -KVP_E_NODEDOWN, NULL, 0);
		return;
	}
	if (peer->tie == NULL) {
		if (node_tie_open(nodes, peer->addr, &peer->tie) < 0) {
			kvp_call_answer(call, -KVP_E_NODEDOWN, NULL, 0);
			return;
		}
		peer->tie->peer = kvp_peer_again(peer);
	}
	if (node_tie_ready(peer->tie)) {
		node_serve(peer->tie, call);
	} else {
		waiter_add(peer->tie, call);
		node_tie_open_session(peer->tie);
	}
}

/* --- reports of reads
 * -------------------------------------------------------------------------------------- */

static void
nodes_report_one(struct kvp_nodes *nodes, struct kvp_peer *peer)
{
	uint32_t count = kvp_reads_take(peer->reads, nodes->touches);
	struct kvp_rpc_link *link = peer->tie != NULL ? peer->tie->tie.link : NULL;
	Kvp__Touch msg = KVP__TOUCH__INIT;
	uint8_t *body;
	size_t len;

	if (count == 0 || link == NULL || !node_tie_ready(peer->tie)) {
		return; /* lossy by design */
	}
	msg.touches = kvp_bytes(nodes->touches, count * sizeof(nodes->touches[0]));
	if (kvp_msg_encode(&msg.base, &body, &len) == 0) {
		link->rpc->ops->notify(link, KVP_RPC_TOUCH, body, len);
		free(body);
	}
}

static void
nodes_report(struct kvp_rpc_timer *timer)
{
	struct kvp_nodes *nodes = kvp_container_of(timer, struct kvp_nodes, touch);
	struct kvp_control *control = nodes->client->control;
	struct kvp_peer *peer;
	uint32_t cursor = 0;

	nodes->touched_ns = kvp_now_ns(nodes->client->env);
	atomic_store(&control->touch_mailed, false); /* reads from here on ask again */
	while ((peer = kvp_peers_next(nodes_peers(nodes), &cursor)) != NULL) {
		nodes_report_one(nodes, peer);
		kvp_peer_unref(peer);
	}
}

void
kvp_nodes_touch(struct kvp_control *control)
{
	struct kvp_nodes *nodes = control->nodes;
	uint64_t now = kvp_now_ns(control->client->env);

	if (nodes != NULL) {
		uint64_t next = nodes->touched_ns + NODES_TOUCH_NS;
		struct kvp_rpc *rpc = control->client->rpc;

		rpc->ops->timer_start(rpc, &nodes->touch, next > now ? next - now : 0);
	}
}
