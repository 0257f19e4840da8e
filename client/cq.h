/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cq.h - a completion queue from inside: where operations live and are moved on.
 *
 * It owns its operations, its own transports (which share the client's registrations), one
 * connection a node (chan.h), a pool of units (unit.h) and the ring of completions. All of it is
 * used under the queue's lock, by the thread that is inside kvp_submit, kvp_cq_poll or kvp_cq_wait.
 *
 * One turn: take the answers of calls, poll the transports, break what failed, see to what is due,
 * post what waits for room, step the operations that have something to do. Callbacks of transports
 * and answers only note what happened and mark operations runnable; steps run from the turn only,
 * so nothing calls anything back.
 */
#ifndef KVP_CLIENT_CQ_H
#define KVP_CLIENT_CQ_H

#include "client/client.h"
#include "client/control.h"

#include <time.h>

struct kvp_chan;
struct kvp_oper;
struct kvp_unit;

/* The queue's own instance of the client's parent transport of the same index. */
struct kvp_cq_xport {
	struct kvp_xport *xport;
	struct kvp_mr *entry_mr; /* the units' entry buffers; made on the parent */
	uint32_t posted;         /* reads, writes and connects not yet done */
};

struct kvp_cq {
	struct kvp_client *client;
	struct kvp_list link; /* client->cqs */
	pthread_mutex_t lock;
	struct kvp_port *port;
	bool closing;
	_Atomic bool fd_asked; /* the user knows the eventfd and may sleep on it */
	uint32_t sleepers;     /* in kvp_cq_wait, without the lock */

	/* Batches out: running, or in the ring and not taken yet. */
	uint32_t depth;
	uint32_t out;
	uint32_t done_head;
	uint32_t done_count;
	struct kvp_completion *done; /* a ring of depth */

	struct kvp_cq_xport xports[KVP_TRANSPORTS_MAX];
	uint32_t xport_count;

	struct kvp_list opers;    /* all that run; kvp_oper.link */
	struct kvp_list runnable; /* kvp_oper.run_link */
	struct kvp_list wanting;  /* a unit, first come first served; kvp_oper.want_link */
	struct kvp_list spare;    /* finished ones, kept with their memory; kvp_oper.link */

	struct kvp_unit *units;
	struct kvp_slot_entry *entries; /* one a unit, registered */
	struct kvp_list units_free;
	uint64_t bytes_out; /* payload bytes of the units in use */

	struct kvp_list chans;  /* kvp_chan.link */
	struct kvp_list broken; /* to be disconnected after this poll; kvp_chan.broken_link */
	struct kvp_chan *chan_of[KVP_NODES_MAX]; /* by node number */

	uint64_t due_ns;     /* nothing is due before; UINT64_MAX: nothing at all */
	uint64_t turn_bytes; /* payload bytes posted in this turn */
	bool cut;            /* this turn stopped for the bound on that */
	bool moved;          /* this turn did something */
	struct kvp_sum_state *sum;
	uint32_t verify_tick;
};

/* Moves everything on; returns when nothing moves any more or after a bounded amount of work. */
void kvp_cq_work(struct kvp_cq *cq);
/* Ends all operations with status; then waits, 1 s at most, until no transport touches their
 * memory. with_completions: they go into the ring. The caller holds the lock. */
void kvp_cq_cancel(struct kvp_cq *cq, int status, bool with_completions);
/* Frees it; the lock must not be held. After kvp_cq_cancel. False: it did not end in time, and is
 * left as it is, with all that its transports may still touch. */
bool kvp_cq_free(struct kvp_cq *cq);
/* Sleeps for so long at most, lock and all; what the transports do ends it. */
void kvp_cq_nap(struct kvp_cq *cq, const struct timespec *nap);
/* Steps what is runnable, once. */
void kvp_cq_kick(struct kvp_cq *cq);

/* For operations, units and connections. */
void kvp_cq_due(struct kvp_cq *cq, uint64_t at_ns); /* look at everything by then */
void kvp_cq_unpark(struct kvp_cq *cq);              /* a connection changed */
void kvp_cq_complete(struct kvp_cq *cq, const struct kvp_completion *done);

#endif /* KVP_CLIENT_CQ_H */
