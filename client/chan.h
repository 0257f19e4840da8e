/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chan.h - a queue's data connection to one node.
 *
 * STATES  NONE          nothing; the next who wants it starts it
 *         WAIT_SESSION  the loop opens a session with the node
 *         CONNECTING    a transport connects, the best first
 *         UP            reads and writes may be posted
 *         FAILED        until retry_ns; who wants it before gets the reason
 * A connection is broken by the first error on it, or by who gives up waiting for it
 * (kvp_chan_break): nothing more is posted, what is posted completes with an error, and the
 * next who wants it connects anew. epoch counts connections, so that late errors of an old one do
 * not break its successor.
 *
 * THREADS under the queue's lock.
 */
#ifndef KVP_CLIENT_CHAN_H
#define KVP_CLIENT_CHAN_H

#include "client/cq.h"
#include "client/peers.h"

enum kvp_chan_state { CHAN_NONE, CHAN_WAIT_SESSION, CHAN_CONNECTING, CHAN_UP, CHAN_FAILED };

struct kvp_chan {
	struct kvp_cq *cq;
	struct kvp_peer *peer;       /* a reference */
	struct kvp_list link;        /* cq->chans */
	struct kvp_list broken_link; /* cq->broken, or itself */
	enum kvp_chan_state state;
	int why;           /* FAILED: the reason */
	uint64_t retry_ns; /* FAILED: until then */
	uint64_t end_ns;   /* CONNECTING: gives up then */
	uint32_t fails;    /* in a row */
	uint32_t ups;
	uint32_t epoch;

	struct kvp_call *call; /* WAIT_SESSION */
	uint32_t session_seq;
	struct kvp_session session;
	const struct kvp_session_transport *remote; /* of the session; what conn was made with */
	uint32_t xport_idx;                         /* ours of that name */

	struct kvp_conn *conn; /* to be disconnected by us; NULL: none */
	struct kvp_io connect_io;
	bool connecting;         /* connect_io is posted */
	bool refused;            /* it completed with an error: try the next transport */
	uint32_t users;          /* units taken for it */
	struct kvp_list backlog; /* units that wait for room; kvp_unit.link */
};

/* The connection to a node: 0 when it is up; -EINPROGRESS: it is on its way, the operation is
 * unparked when that changes; else why it cannot be had now: -KVP_E_NO_PROVIDER, -KVP_E_NODEDOWN.
 */
int kvp_chan_want(struct kvp_cq *cq, uint32_t number, struct kvp_chan **ret_chan);
/* Without starting anything: NULL when the queue has none. */
struct kvp_chan *kvp_chan_find(struct kvp_cq *cq, uint32_t number);
void kvp_chan_break(struct kvp_chan *chan, int why);
/* For kvp_cq_work: after polling; when something may be due; what waits for room. */
void kvp_chan_tidy(struct kvp_cq *cq);
void kvp_chan_due(struct kvp_chan *chan, uint64_t now);
void kvp_chan_push(struct kvp_chan *chan);
/* Frees it; nothing may be posted on it. */
void kvp_chan_close(struct kvp_chan *chan);

static inline struct kvp_cq_xport *
kvp_chan_xport(struct kvp_chan *chan)
{
	return &chan->cq->xports[chan->xport_idx];
}

#endif /* KVP_CLIENT_CHAN_H */
