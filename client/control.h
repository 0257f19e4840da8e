/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.h - how queues and the loop talk: mail one way, answers the other, and calls, which
 * are both.
 *
 * A *mail* is a function to run on the loop. A *port* is the loop's handle on a queue: an inbox for
 * answers, the queue's eventfd, and what to watch while its user sleeps on that. A *call* is one
 * control request of an operation: the queue's side makes it, posts it, and gets it back in the
 * port's inbox with an answer, by its deadline, whatever the peers do.
 *
 * OWNERSHIP A call belongs to who holds it: the maker until kvp_call_post(), then the loop, then
 * the port's inbox, then the queue's side again, which frees it. A maker that cannot wait any more
 * abandons its call (owner = NULL): the answer is then only cleaned up. A port lives until its
 * queue, its calls and the loop have let go of it.
 */
#ifndef KVP_CLIENT_CONTROL_H
#define KVP_CLIENT_CONTROL_H

#include "client/client.h"
#include "client/peers.h"
#include "transport/proto/wire.h"

/* --- mail: any thread to the loop ----------------------------------------------------------------
 */

struct kvp_mail {
	struct kvp_list link;
	void (*fn)(struct kvp_mail *mail); /* on the loop; the mail may be reused from then on */
};

/* Starts the loop's side: links to the metas and the home node. Before, or on, the loop. */
int kvp_control_open(struct kvp_client *client, struct kvp_control **ret_control);
void kvp_control_mail(struct kvp_control *control, struct kvp_mail *mail);
/* Runs the mail there is. On the loop, or when that does not run. */
void kvp_control_drain(struct kvp_control *control);
/* Closes all links, answers all calls with -KVP_E_CANCELLED. On the loop, or when it does not run.
 */
void kvp_control_end(struct kvp_control *control);
/* After end; NULL is fine. loop_closed: the loop is gone, and what was posted to it will not run.
 */
void kvp_control_close(struct kvp_control *control, bool loop_closed);

/* --- ports: the loop to a queue
 * -------------------------------------------------------------------- */

struct kvp_port;

int kvp_port_open(struct kvp_client *client, struct kvp_port **ret_port);
/* The queue lets go: later answers are dropped, nothing is watched any more. NULL is fine. */
void kvp_port_close(struct kvp_port *port);
int kvp_port_fd(const struct kvp_port *port);
void kvp_port_signal(struct kvp_port *port);            /* makes the eventfd readable; any thread */
struct kvp_port *kvp_port_again(struct kvp_port *port); /* one reference more */
void kvp_port_unref(struct kvp_port *port);             /* NULL is fine */
/* Puts an answer in; false: the queue is gone, the caller keeps it. */
bool kvp_port_put(struct kvp_port *port, struct kvp_list *answer);
/* Makes the eventfd unreadable and moves all answers to the end of *answers. */
void kvp_port_take(struct kvp_port *port, struct kvp_list *answers);
/* Asks the loop to signal the port when one of the descriptors becomes readable, or at due_ns
 * (UINT64_MAX: never). Once only; does nothing when that is already so. fds[i] < 0: not used. */
void kvp_port_arm(struct kvp_port *port, const int fds[KVP_TRANSPORTS_MAX], uint64_t due_ns);

/* --- calls
 * ------------------------------------------------------------------------------------------- */

enum kvp_call_to {
	KVP_TO_META,    /* any meta, the next one when one fails */
	KVP_TO_NODE,    /* one node, once its session is open */
	KVP_TO_SESSION, /* nothing is sent: tells when the node's session is open, or cannot be now
			 */
	KVP_TO_RENEW, /* nothing is sent: ends the node's session of session_seq, for another one */
	KVP_TO_HOME,  /* like that for the home node, but waits for it until the deadline */
};

struct kvp_call {
	struct kvp_list link;       /* inbox, mailbox or the loop's list */
	struct kvp_list owner_link; /* the maker's: its calls that are out */
	struct kvp_client *client;

	/* Of the maker; the loop does not look at them. */
	void *owner;                           /* NULL: abandoned */
	void (*done)(struct kvp_call *call);   /* owner still there; the call is freed after it */
	void (*then)(struct kvp_call *call);   /* op.c: the operation's own part of done */
	void (*orphan)(struct kvp_call *call); /* abandoned, may be NULL */
	uint32_t *items; /* which of the batch it asks for; freed with the call */
	uint32_t item_count;
	uint64_t sent_ns; /* before it was posted */

	/* The request. */
	enum kvp_call_to to;
	uint16_t type;
	struct kvp_port *port; /* where the answer goes, a reference; NULL: nowhere */
	struct kvp_peer *peer; /* NODE, SESSION: a reference */
	uint32_t
		session_seq; /* NODE: refuse with -KVP_E_NO_SESSION under another session; 0: any */
	uint32_t avoid;      /* META: bits of metas not to ask */
	uint64_t deadline_ns;
	uint8_t *body; /* malloc'd, freed with the call */
	size_t len;

	/* The answer. */
	int status;
	uint8_t *answer; /* malloc'd copy, freed with the call */
	size_t answer_len;
	uint32_t meta_idx; /* META: who answered */
	uint32_t number;   /* HOME: the home node's number */

	/* The loop's. */
	struct kvp_mail mail;
	struct kvp_rpc_req req;
	struct kvp_rpc_timer timer;
	uint32_t tried;
	bool out; /* req is with the rpc */
};

/* NULL: no memory. Takes body over, also then. port may be NULL. */
struct kvp_call *kvp_call_new(struct kvp_client *client, struct kvp_port *port, enum kvp_call_to to,
	uint16_t type, uint8_t *body, size_t len);
void kvp_call_free(struct kvp_call *call); /* not while the loop has it; NULL is fine */
void kvp_call_post(struct kvp_call *call);

/* The loop's side of it: hands the call back with its answer. */
void kvp_call_answer(struct kvp_call *call, int status, const uint8_t *body, size_t len);
/* Sends the call over a link; done() gets call->req. */
void kvp_call_send(struct kvp_call *call, struct kvp_rpc_link *link, uint64_t deadline_ns,
	void (*done)(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len));

/* --- what control.c puts together
 * -------------------------------------------------------------------- */

struct kvp_metas; /* metas.c */
int kvp_metas_open(struct kvp_client *client, struct kvp_metas **ret_metas);
void kvp_metas_close(struct kvp_metas *metas);
void kvp_metas_call(struct kvp_metas *metas, struct kvp_call *call);

struct kvp_nodes; /* nodes.c */
int kvp_nodes_open(struct kvp_client *client, struct kvp_nodes **ret_nodes);
void kvp_nodes_close(struct kvp_nodes *nodes);
void kvp_nodes_call(struct kvp_nodes *nodes, struct kvp_call *call);
/* Any thread: reads wait to be reported; the loop does it within 100 ms. */
void kvp_nodes_touch(struct kvp_control *control);

struct kvp_control {
	struct kvp_client *client;
	struct kvp_metas *metas;
	struct kvp_nodes *nodes;
	pthread_mutex_t lock; /* box, posted, ended */
	struct kvp_list box;
	bool posted; /* the rpc has our function queued */
	bool ended;  /* free it when that runs */

	/* Reports of reads. */
	_Atomic bool touch_mailed;
	struct kvp_mail touch_mail;
};

#endif /* KVP_CLIENT_CONTROL_H */
