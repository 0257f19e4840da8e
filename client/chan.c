/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chan.c - a queue's data connection to one node. See chan.h.
 *
 * Connections are given back (disconnect) outside callbacks of the transport only: a break inside
 * one puts the connection on cq->broken, which the turn tidies after polling.
 */
#include "client/chan.h"
#include "client/unit.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHAN_CONNECT_NS        KVP_NS_PER_S         /* a connection must be up by then */
#define CHAN_SESSION_NS        (3 * KVP_NS_PER_S)   /* a session must be open by then */
#define CHAN_BACKOFF_NS        (50 * KVP_NS_PER_MS) /* doubled with each failure in a row, to 2 s */
#define CHAN_BACKOFF_SHIFT_MAX 5u

static uint64_t
chan_now(const struct kvp_chan *chan)
{
	return kvp_now_ns(chan->cq->client->env);
}

static void
chan_will_disconnect(struct kvp_chan *chan)
{
	if (kvp_list_empty(&chan->broken_link)) {
		kvp_list_push_back(&chan->cq->broken, &chan->broken_link);
	}
}

static void
chan_disconnect(struct kvp_chan *chan)
{
	if (chan->conn != NULL) {
		kvp_chan_xport(chan)->xport->ops->disconnect(chan->conn);
		chan->conn = NULL;
	}
}

/* One failure more. The first is forgiven: the session may have changed under us. */
static void
chan_failed(struct kvp_chan *chan, int why, bool at_once)
{
	uint32_t shift =
		chan->fails < CHAN_BACKOFF_SHIFT_MAX ? chan->fails : CHAN_BACKOFF_SHIFT_MAX;
	uint64_t pause = CHAN_BACKOFF_NS << shift;

	chan->fails++;
	chan->why = why == -KVP_E_NO_PROVIDER ? why : -KVP_E_NODEDOWN;
	if (at_once || chan->fails > 1) {
		chan->state = CHAN_FAILED;
		chan->retry_ns =
			chan_now(chan) + pause / 2 + kvp_random_below(chan->cq->client->env, pause);
	} else {
		chan->state = CHAN_NONE;
	}
	kvp_cq_unpark(chan->cq);
}

void
kvp_chan_break(struct kvp_chan *chan, int why)
{
	struct kvp_list *node;

	if (chan->state == CHAN_NONE || chan->state == CHAN_FAILED) {
		return;
	}
	kvp_debug(chan->cq->client->log, "connection to node %u ends: %s", chan->peer->number,
		kvp_err_str(why));
	if (chan->call != NULL) {
		chan->call->owner = NULL;
		chan->call = NULL;
	}
	if (chan->conn != NULL) {
		chan_will_disconnect(chan);
	}
	chan->epoch++;
	chan_failed(chan, why, false);
	while ((node = kvp_list_pop_front(&chan->backlog)) != NULL) {
		kvp_unit_fail(kvp_container_of(node, struct kvp_unit, link), -KVP_E_CONNDOWN);
	}
}

static const struct kvp_session_transport *
session_find(const struct kvp_session *session, const char *name)
{
	for (uint32_t i = 0; i < session->transport_count; i++) {
		if (session->transports[i].usable &&
			strcmp(session->transports[i].name, name) == 0) {
			return &session->transports[i];
		}
	}
	return NULL;
}

static void
chan_connected(struct kvp_io *io)
{
	struct kvp_chan *chan = kvp_container_of(io, struct kvp_chan, connect_io);

	kvp_chan_xport(chan)->posted--;
	chan->cq->moved = true;
	chan->connecting = false;
	if (chan->state != CHAN_CONNECTING) {
		kvp_cq_unpark(
			chan->cq); /* given up before; who waited for its end may start anew */
	} else if (io->status < 0) {
		kvp_debug(chan->cq->client->log, "connect to %s: %s (provider %d)",
			chan->remote->addr, kvp_err_str(io->status), io->prov_err);
		chan->why = io->status;
		chan->refused = true;
		chan_will_disconnect(chan);
	} else {
		chan->state = CHAN_UP;
		chan->ups++;
		if (chan->ups > 1) {
			kvp_client_count(chan->cq->client, KVP_STAT_RECONNECTS, 1);
		}
		kvp_cq_unpark(chan->cq);
	}
}

/* Connects by the first of our transports from idx "from" on that both sides have. */
static void
chan_connect(struct kvp_chan *chan, uint32_t from)
{
	struct kvp_cq *cq = chan->cq;

	for (uint32_t i = from; i < cq->xport_count; i++) {
		struct kvp_xport *xport = cq->xports[i].xport;
		const struct kvp_session_transport *remote =
			xport != NULL ? session_find(&chan->session, xport->ops->name) : NULL;
		int err;

		if (remote == NULL) {
			continue;
		}
		chan->xport_idx = i;
		chan->remote = remote;
		memset(&chan->connect_io, 0, sizeof(chan->connect_io));
		chan->connect_io.done = chan_connected;
		err = xport->ops->connect(
			xport, remote->addr, chan->session.token, &chan->connect_io, &chan->conn);
		if (err == 0) {
			chan->state = CHAN_CONNECTING;
			chan->connecting = true;
			cq->xports[i].posted++;
			chan->end_ns = chan_now(chan) + CHAN_CONNECT_NS;
			kvp_cq_due(cq, chan->end_ns);
			return;
		}
		kvp_debug(cq->client->log, "connect to %s: %s", remote->addr, kvp_err_str(err));
		chan->why = err;
		chan->conn = NULL;
	}
	chan_failed(chan, chan->why, false);
}

static void
chan_session_done(struct kvp_call *call)
{
	struct kvp_chan *chan = call->owner;
	int err = call->status;

	chan->call = NULL;
	if (err == 0) {
		err = kvp_peers_session(
			chan->cq->client->peers, chan->peer, &chan->session, &chan->session_seq);
	}
	if (err < 0) {
		chan_failed(chan, err, true);
	} else {
		chan->why = -KVP_E_NO_PROVIDER; /* until a transport was tried */
		chan_connect(chan, 0);
	}
}

static void
chan_ask_session(struct kvp_chan *chan)
{
	struct kvp_cq *cq = chan->cq;
	struct kvp_call *call = kvp_call_new(cq->client, cq->port, KVP_TO_SESSION, 0, NULL, 0);

	if (call == NULL) {
		chan_failed(chan, -ENOMEM, true);
		return;
	}
	call->owner = chan;
	call->done = chan_session_done;
	call->peer = kvp_peer_again(chan->peer);
	call->deadline_ns = chan_now(chan) + CHAN_SESSION_NS;
	chan->call = call;
	chan->state = CHAN_WAIT_SESSION;
	kvp_call_post(call);
}

static void
chan_start(struct kvp_chan *chan)
{
	struct kvp_peers *peers = chan->cq->client->peers;
	int err;

	kvp_list_remove(&chan->broken_link);
	chan_disconnect(chan);
	if (chan->connecting || chan->cq->closing) {
		return; /* the old attempt's io is not done: its end unparks */
	}
	err = kvp_peers_session(peers, chan->peer, &chan->session, &chan->session_seq);
	if (err == -KVP_E_NO_SESSION) {
		chan_ask_session(chan);
	} else if (err < 0) {
		chan_failed(chan, err, true);
	} else {
		chan->why = -KVP_E_NO_PROVIDER;
		chan_connect(chan, 0);
	}
}

static struct kvp_chan *
chan_open(struct kvp_cq *cq, uint32_t number)
{
	struct kvp_peer *peer = kvp_peers_ref(cq->client->peers, number);
	struct kvp_chan *chan;

	if (peer == NULL) {
		return NULL;
	}
	chan = calloc(1, sizeof(*chan));
	if (chan == NULL) {
		kvp_peer_unref(peer);
		return NULL;
	}
	chan->cq = cq;
	chan->peer = peer;
	chan->state = CHAN_NONE;
	kvp_list_init(&chan->broken_link);
	kvp_list_init(&chan->backlog);
	kvp_list_push_back(&cq->chans, &chan->link);
	cq->chan_of[number] = chan;
	return chan;
}

int
kvp_chan_want(struct kvp_cq *cq, uint32_t number, struct kvp_chan **ret_chan)
{
	struct kvp_chan *chan = kvp_chan_find(cq, number);
	uint32_t seq;

	if (chan == NULL) {
		chan = number < KVP_NODES_MAX ? chan_open(cq, number) : NULL;
		if (chan == NULL) {
			return -KVP_E_NODEDOWN;
		}
	}
	if (atomic_load_explicit(&chan->peer->gone, memory_order_relaxed)) {
		kvp_chan_break(chan, -KVP_E_NODEDOWN);
		return -KVP_E_NODEDOWN;
	}
	seq = kvp_peer_session_seq(chan->peer);
	if (chan->state == CHAN_UP && seq != 0 && seq != chan->session_seq) {
		/* The node ends the old session's connections, and waits for us to let go of them.
		 */
		kvp_chan_break(chan, -KVP_E_NO_SESSION);
	}
	if (chan->state == CHAN_NONE ||
		(chan->state == CHAN_FAILED && chan_now(chan) >= chan->retry_ns)) {
		chan->state = CHAN_NONE;
		chan_start(chan);
	}
	switch (chan->state) {
	case CHAN_UP:
		*ret_chan = chan;
		return 0;
	case CHAN_FAILED:
		return chan->why;
	default:
		return -EINPROGRESS;
	}
}

struct kvp_chan *
kvp_chan_find(struct kvp_cq *cq, uint32_t number)
{
	return number < KVP_NODES_MAX ? cq->chan_of[number] : NULL;
}

void
kvp_chan_tidy(struct kvp_cq *cq)
{
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&cq->broken)) != NULL) {
		struct kvp_chan *chan = kvp_container_of(node, struct kvp_chan, broken_link);

		chan_disconnect(chan);
		if (chan->refused) {
			chan->refused = false;
			if (chan->state == CHAN_CONNECTING) {
				chan_connect(chan, chan->xport_idx + 1);
			}
		}
	}
}

void
kvp_chan_due(struct kvp_chan *chan, uint64_t now)
{
	bool gone = atomic_load_explicit(&chan->peer->gone, memory_order_relaxed);

	if (chan->state == CHAN_CONNECTING && now >= chan->end_ns) {
		chan->fails++; /* it took long enough: no second try at once */
		kvp_chan_break(chan, -KVP_E_TIMEOUT);
	} else if (chan->state == CHAN_CONNECTING) {
		kvp_cq_due(chan->cq, chan->end_ns);
	}
	if (gone && chan->users == 0 && !chan->connecting && chan->call == NULL) {
		kvp_chan_close(chan);
	}
}

void
kvp_chan_push(struct kvp_chan *chan)
{
	while (chan->state == CHAN_UP && !kvp_list_empty(&chan->backlog)) {
		struct kvp_list *node = kvp_list_pop_front(&chan->backlog);
		struct kvp_unit *unit = kvp_container_of(node, struct kvp_unit, link);

		if (!kvp_unit_post(unit)) {
			kvp_list_push_front(&chan->backlog, &unit->link);
			return;
		}
		chan->cq->moved = true;
	}
}

void
kvp_chan_close(struct kvp_chan *chan)
{
	if (chan->call != NULL) {
		chan->call->owner = NULL;
	}
	kvp_assert(kvp_list_empty(&chan->backlog) && !chan->connecting);
	chan_disconnect(chan);
	kvp_list_remove(&chan->broken_link);
	kvp_list_remove(&chan->link);
	chan->cq->chan_of[chan->peer->number] = NULL;
	kvp_peer_unref(chan->peer);
	free(chan);
}
