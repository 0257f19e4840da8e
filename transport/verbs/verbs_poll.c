/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_poll.c - moving an initiator on, and what to sleep on. HOT.
 *
 * Completions go through xport.ready, from where at most max are delivered. Before a sleep the
 * completion queue is armed and then looked at once more: an entry that came before the arming
 * says nothing to the channel.
 */
#include "transport/verbs/verbs.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"

#define POLL_ENTRIES_MAX 16  /* taken from the completion queue at once */
#define POLL_CM_EVERY    64u /* polls between two looks at connection events, if nothing is known */

/* The queue tells nothing any more: what is posted would never complete. */
static __attribute__((noinline)) void
poll_broken(struct verbs_xport *x)
{
	kvp_error(x->log, "verbs completion queue failed, %u connections end", x->conn_count);
	for (uint32_t i = 0; i < x->conns_max; i++) {
		if (x->conns[i] != NULL) {
			verbs_conn_fail(x->conns[i], -KVP_E_CONNDOWN, 0);
		}
	}
}

/* Returns how many entries there were, negative when the queue is broken. */
static int
poll_cq(struct verbs_xport *x)
{
	struct ibv_wc entries[POLL_ENTRIES_MAX];
	int n = ibv_poll_cq(x->cq, POLL_ENTRIES_MAX, entries);

	if (n < 0) {
		poll_broken(x);
		return n;
	}
	if (n == 0) { /* what destroyed queue pairs left is gone too */
		kvp_assert(x->cq_used >= x->cq_stale);
		x->cq_used -= x->cq_stale;
		x->cq_stale = 0;
	}
	for (int i = 0; i < n; i++) {
		verbs_io_complete(x, &entries[i]);
	}
	return n;
}

/* After a sleep: takes what the channel says, so that it is quiet until armed again. */
static __attribute__((noinline)) void
poll_disarm(struct verbs_xport *x)
{
	struct ibv_cq *cq;
	void *context;

	while (verbs_lib()->get_cq_event(x->channel, &cq, &context) == 0) {
		verbs_lib()->ack_cq_events(cq, 1);
		x->cq_armed = false;
	}
}

static void
poll_deliver(struct kvp_io *io)
{
	struct verbs_conn *conn = (struct verbs_conn *)(uintptr_t)io->prov[VERBS_IO_CONN];

	kvp_assert(conn->io_count > 0);
	conn->io_count--;
	if (conn->gone && conn->io_count == 0) {
		verbs_conn_free(conn);
	}
	io->done(io); /* may post, connect or disconnect */
}

int
verbs_poll(struct kvp_xport *xport, uint32_t max)
{
	struct verbs_xport *x = verbs_of(xport);
	uint32_t done = 0;

	x->poll_count++;
	if (x->cq_armed) {
		poll_disarm(x);
	}
	if (x->cm_check || !kvp_list_empty(&x->connecting) || x->poll_count % POLL_CM_EVERY == 0) {
		verbs_cm_progress(x);
	}
	if (kvp_list_empty(&x->ready)) {
		(void)poll_cq(x);
	}
	while (done < max) {
		struct kvp_list *node = kvp_list_pop_front(&x->ready);

		if (node == NULL) {
			break;
		}
		done++;
		poll_deliver(kvp_container_of(node, struct kvp_io, link));
	}
	return (int)done;
}

int
verbs_wait_fd(struct kvp_xport *xport)
{
	struct verbs_xport *x = verbs_of(xport);

	x->cm_check = true; /* whatever wakes the caller may be a connection event */
	if (!kvp_list_empty(&x->ready)) {
		return -EAGAIN;
	}
	if (!x->cq_armed) {
		if (ibv_req_notify_cq(x->cq, 0) != 0) {
			return -EAGAIN; /* then the caller spins */
		}
		x->cq_armed = true;
	}
	return poll_cq(x) != 0 ? -EAGAIN : x->epoll_fd;
}
