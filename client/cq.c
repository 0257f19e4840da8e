/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cq.c - completion queues: the turn that moves operations on, and how a thread sleeps. See cq.h.
 */
#include "client/op.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define CQ_DEPTH_MAX     4096u
#define CQ_DEPTH_DEFAULT 256u
#define CQ_TURNS_MAX     4u    /* of one call */
#define CQ_STEPS_MAX     256u  /* of operations in one turn */
#define CQ_POLL_MAX      32u   /* completions of a transport in one turn */
#define CQ_DRAIN_MS      1000u /* to end what is posted */

/* --- the turn
 * ------------------------------------------------------------------------------------- */

static void
cq_take_answers(struct kvp_cq *cq)
{
	struct kvp_list answers;
	struct kvp_list *node;

	kvp_list_init(&answers);
	kvp_port_take(cq->port, &answers);
	while ((node = kvp_list_pop_front(&answers)) != NULL) {
		struct kvp_call *call = kvp_container_of(node, struct kvp_call, link);

		if (call->owner != NULL) {
			call->done(call);
		} else if (call->orphan != NULL && call->status == 0) {
			call->orphan(call);
		}
		kvp_call_free(call);
		cq->moved = true;
	}
}

static void
cq_poll_xports(struct kvp_cq *cq)
{
	for (uint32_t i = 0; i < cq->xport_count; i++) {
		struct kvp_xport *xport = cq->xports[i].xport;

		if (cq->xports[i].posted > 0) {
			(void)xport->ops->poll(xport, CQ_POLL_MAX); /* counted where it lands */
		}
	}
}

/* Looks at everything that may be due, and finds out when the next thing is. */
static void
cq_scan(struct kvp_cq *cq, uint64_t now)
{
	cq->due_ns = UINT64_MAX;
	kvp_list_for_each (pos, &cq->opers) {
		struct kvp_oper *oper = kvp_container_of(pos, struct kvp_oper, link);

		if (oper->end == 0 && now >= oper->deadline_ns) {
			kvp_oper_end(oper, -KVP_E_TIMEOUT);
		} else if (oper->end == 0) {
			kvp_cq_due(cq, oper->deadline_ns);
		}
		if (now >= oper->wake_ns) {
			oper->wake_ns = UINT64_MAX;
			kvp_oper_run(oper);
		}
		kvp_cq_due(cq, oper->wake_ns);
	}
	kvp_list_for_each_safe (pos, &cq->chans) {
		kvp_chan_due(kvp_container_of(pos, struct kvp_chan, link), now);
	}
}

static void
cq_step(struct kvp_cq *cq)
{
	struct kvp_list *node = NULL;

	for (uint32_t i = 0; i < CQ_STEPS_MAX; i++) {
		struct kvp_oper *oper;

		node = kvp_list_pop_front(&cq->runnable);
		if (node == NULL) {
			return;
		}
		cq->moved = true;
		oper = kvp_container_of(node, struct kvp_oper, run_link);
		oper->ops->step(oper);
	}
}

static void
cq_turn(struct kvp_cq *cq)
{
	uint64_t now;

	cq->moved = false;
	cq->turn_bytes = 0;
	if (cq->cut && !kvp_list_empty(&cq->wanting)) {
		kvp_oper_run(kvp_container_of(cq->wanting.next, struct kvp_oper, want_link));
	}
	cq->cut = false;
	cq_take_answers(cq);
	cq_poll_xports(cq);
	kvp_chan_tidy(cq);
	now = kvp_now_ns(cq->client->env);
	if (now >= cq->due_ns) {
		cq_scan(cq, now);
	}
	kvp_list_for_each (pos, &cq->chans) {
		kvp_chan_push(kvp_container_of(pos, struct kvp_chan, link));
	}
	cq_step(cq);
	kvp_chan_tidy(cq);
}

void
kvp_cq_kick(struct kvp_cq *cq)
{
	cq->moved = false;
	cq->turn_bytes = 0;
	cq_step(cq);
	kvp_chan_tidy(cq);
}

void
kvp_cq_work(struct kvp_cq *cq)
{
	for (uint32_t i = 0; i < CQ_TURNS_MAX; i++) {
		cq_turn(cq);
		if (!cq->moved) {
			return;
		}
	}
}

void
kvp_cq_due(struct kvp_cq *cq, uint64_t at_ns)
{
	if (at_ns < cq->due_ns) {
		cq->due_ns = at_ns;
	}
}

void
kvp_cq_unpark(struct kvp_cq *cq)
{
	kvp_list_for_each (pos, &cq->opers) {
		struct kvp_oper *oper = kvp_container_of(pos, struct kvp_oper, link);

		oper->unparked = true;
		kvp_oper_run(oper);
	}
}

void
kvp_cq_complete(struct kvp_cq *cq, const struct kvp_completion *done)
{
	kvp_assert(cq->done_count < cq->depth);
	cq->done[(cq->done_head + cq->done_count) % cq->depth] = *done;
	cq->done_count++;
}

static uint32_t
cq_reap(struct kvp_cq *cq, struct kvp_completion *ret_done, uint32_t max)
{
	uint32_t count = 0;

	while (count < max && cq->done_count > 0) {
		ret_done[count] = cq->done[cq->done_head];
		count++;
		cq->done_head = (cq->done_head + 1) % cq->depth;
		cq->done_count--;
		cq->out--;
	}
	return count;
}

/* --- sleeping
 * ----------------------------------------------------------------------------------------- */

/* What a sleeper must watch. False: there is something to do already. */
static bool
cq_sleep_fds(struct kvp_cq *cq, int fds[KVP_TRANSPORTS_MAX])
{
	for (uint32_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		fds[i] = -1;
	}
	if (cq->moved || !kvp_list_empty(&cq->runnable)) {
		return false; /* the last call stopped for its bound */
	}
	for (uint32_t i = 0; i < cq->xport_count; i++) {
		struct kvp_xport *xport = cq->xports[i].xport;
		int fd = cq->xports[i].posted > 0 ? xport->ops->wait_fd(xport) : -ENOSYS;

		if (fd == -EAGAIN) {
			return false;
		}
		fds[i] = fd; /* < 0: nothing to watch */
	}
	return true;
}

/* The user may sleep on the eventfd now: have the loop make it readable in time. */
static void
cq_arm(struct kvp_cq *cq)
{
	int fds[KVP_TRANSPORTS_MAX];

	if (cq_sleep_fds(cq, fds)) {
		kvp_port_arm(cq->port, fds, cq->due_ns);
	} else {
		kvp_port_signal(cq->port);
	}
}

/* Sleeps until something may be there, at most until end_ns. Lets the lock go meanwhile. */
static void
cq_sleep(struct kvp_cq *cq, uint64_t end_ns)
{
	struct pollfd polls[KVP_TRANSPORTS_MAX + 1];
	int fds[KVP_TRANSPORTS_MAX];
	uint64_t until = end_ns < cq->due_ns ? end_ns : cq->due_ns;
	uint64_t now = kvp_now_ns(cq->client->env);
	struct timespec left;
	nfds_t count = 0;

	if (until <= now || !cq_sleep_fds(cq, fds)) {
		return;
	}
	left.tv_sec = (time_t)((until - now) / KVP_NS_PER_S);
	left.tv_nsec = (long)((until - now) % KVP_NS_PER_S);
	polls[count++] = (struct pollfd){.fd = kvp_port_fd(cq->port), .events = POLLIN};
	for (uint32_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		if (fds[i] >= 0) {
			polls[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
		}
	}
	cq->sleepers++;
	pthread_mutex_unlock(&cq->lock);
	(void)ppoll(polls, count, &left, NULL); /* whatever it says, we look */
	pthread_mutex_lock(&cq->lock);
	cq->sleepers--;
}

/* --- making and ending
 * ------------------------------------------------------------------------------- */

static bool
cq_is_drained(const struct kvp_cq *cq)
{
	uint32_t posted = 0;

	for (uint32_t i = 0; i < cq->xport_count; i++) {
		posted += cq->xports[i].posted;
	}
	return posted == 0 && kvp_list_empty(&cq->opers);
}

void
kvp_cq_nap(struct kvp_cq *cq, const struct timespec *nap)
{
	struct pollfd polls[KVP_TRANSPORTS_MAX];
	int fds[KVP_TRANSPORTS_MAX];
	nfds_t count = 0;

	if (!cq_sleep_fds(cq, fds)) {
		return;
	}
	for (uint32_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		if (fds[i] >= 0) {
			polls[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
		}
	}
	(void)ppoll(polls, count, nap, NULL);
}

void
kvp_cq_cancel(struct kvp_cq *cq, int status, bool with_completions)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	uint64_t end;

	cq->closing = true;
	kvp_list_for_each (pos, &cq->opers) {
		struct kvp_oper *oper = kvp_container_of(pos, struct kvp_oper, link);

		oper->silent = !with_completions;
		kvp_oper_end(oper, status);
	}
	kvp_list_for_each (pos, &cq->chans) {
		kvp_chan_break(kvp_container_of(pos, struct kvp_chan, link), status);
	}
	end = kvp_now_ns(cq->client->env) + CQ_DRAIN_MS * KVP_NS_PER_MS;
	kvp_cq_work(cq);
	/* Virtual time may stand still here, so rounds are counted too. */
	for (uint32_t i = 0; i < CQ_DRAIN_MS && !cq_is_drained(cq); i++) {
		kvp_cq_nap(cq, &nap);
		kvp_cq_work(cq);
		if (kvp_now_ns(cq->client->env) >= end) {
			break;
		}
	}
}

static void
cq_free_opers(struct kvp_list *list)
{
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(list)) != NULL) {
		kvp_oper_free(kvp_container_of(node, struct kvp_oper, link));
	}
}

bool
kvp_cq_free(struct kvp_cq *cq)
{
	if (!cq_is_drained(cq)) {
		/* Its memory may still be written: nothing of it can be given back. */
		kvp_error(cq->client->log, "queue does not end: its transports are left open");
		return false;
	}
	kvp_list_for_each_safe (pos, &cq->chans) {
		kvp_chan_close(kvp_container_of(pos, struct kvp_chan, link));
	}
	kvp_port_close(cq->port);
	cq_free_opers(&cq->opers);
	cq_free_opers(&cq->spare);
	for (uint32_t i = 0; i < cq->xport_count; i++) {
		struct kvp_xport *xport = cq->xports[i].xport;

		if (xport != NULL) {
			(void)xport->ops->poll(xport, CQ_POLL_MAX); /* lets it free connections */
			xport->ops->close(xport);
		}
	}
	kvp_units_close(cq);
	kvp_sum_free(cq->sum);
	free(cq->done);
	pthread_mutex_destroy(&cq->lock);
	free(cq);
	return true;
}

static int
cq_open_xports(struct kvp_cq *cq)
{
	struct kvp_client *client = cq->client;

	for (uint32_t i = 0; i < client->parent_count; i++) {
		struct kvp_xport *parent = client->parents[i];
		const struct kvp_xport_cfg cfg = {
			.env = client->env, .log = client->log, .share = parent};
		int err = parent->ops->open(&cfg, &cq->xports[i].xport);

		if (err < 0) {
			kvp_warn(client->log, "transport %s for a queue: %s", parent->ops->name,
				kvp_err_str(err));
			return err;
		}
		cq->xport_count++;
	}
	return 0;
}

static void
cq_init(struct kvp_cq *cq, struct kvp_client *client, uint32_t depth)
{
	cq->client = client;
	cq->depth = depth;
	cq->due_ns = UINT64_MAX;
	kvp_list_init(&cq->link);
	kvp_list_init(&cq->opers);
	kvp_list_init(&cq->runnable);
	kvp_list_init(&cq->wanting);
	kvp_list_init(&cq->spare);
	kvp_list_init(&cq->units_free);
	kvp_list_init(&cq->chans);
	kvp_list_init(&cq->broken);
	pthread_mutex_init(&cq->lock, NULL);
	client->env->random(client->env, &cq->verify_tick, sizeof(cq->verify_tick));
}

int
kvp_cq_open(struct kvp_client *client, uint32_t depth, struct kvp_cq **ret_cq)
{
	struct kvp_cq *cq;
	int err;

	if (kvp_client_forked(client)) {
		return -EPERM;
	}
	depth = depth == 0 ? CQ_DEPTH_DEFAULT : depth;
	if (depth > CQ_DEPTH_MAX) {
		return -EINVAL;
	}
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL) {
		return -ENOMEM;
	}
	cq_init(cq, client, depth);
	cq->done = calloc(depth, sizeof(*cq->done));
	cq->sum = kvp_sum_new();
	err = cq->done == NULL || cq->sum == NULL ? -ENOMEM : kvp_port_open(client, &cq->port);
	if (err == 0) {
		err = cq_open_xports(cq);
	}
	if (err == 0) {
		err = kvp_units_open(cq);
	}
	if (err < 0) {
		(void)kvp_cq_free(cq); /* nothing is posted on it */
		return err;
	}
	pthread_mutex_lock(&client->lock);
	kvp_list_push_back(&client->cqs, &cq->link);
	pthread_mutex_unlock(&client->lock);
	*ret_cq = cq;
	return 0;
}

void
kvp_cq_close(struct kvp_cq *cq)
{
	struct kvp_client *client;

	if (cq == NULL || kvp_client_forked(cq->client)) {
		return;
	}
	client = cq->client;
	pthread_mutex_lock(&client->lock);
	kvp_list_remove(&cq->link);
	pthread_mutex_unlock(&client->lock);
	pthread_mutex_lock(&cq->lock);
	kvp_cq_cancel(cq, -KVP_E_CANCELLED, false);
	pthread_mutex_unlock(&cq->lock);
	(void)kvp_cq_free(cq); /* it logs if it cannot */
}

int
kvp_cq_fd(const struct kvp_cq *cq)
{
	struct kvp_cq *self = (struct kvp_cq *)(uintptr_t)cq; /* "asked" is no part of its value */

	if (!atomic_exchange(&self->fd_asked, true)) {
		kvp_port_signal(cq->port); /* what was polled before did not arm it */
	}
	return kvp_port_fd(cq->port);
}

int
kvp_cq_poll(struct kvp_cq *cq, struct kvp_completion *ret_done, uint32_t max)
{
	uint32_t count;

	if (kvp_client_forked(cq->client)) {
		return -EPERM;
	}
	pthread_mutex_lock(&cq->lock);
	if (max == 0 || cq->done_count < max) {
		kvp_cq_work(cq);
	}
	count = cq_reap(cq, ret_done, max);
	if (count == 0 && atomic_load_explicit(&cq->fd_asked, memory_order_relaxed)) {
		cq_arm(cq);
	}
	pthread_mutex_unlock(&cq->lock);
	return (int)count;
}

int
kvp_cq_wait(struct kvp_cq *cq, struct kvp_completion *ret_done, uint32_t max, uint32_t timeout_ms)
{
	const struct kvp_env *env = cq->client->env;
	uint64_t now;
	uint64_t begin;
	uint64_t end;
	uint64_t spin_end;
	uint32_t count;

	if (kvp_client_forked(cq->client)) {
		return -EPERM;
	}
	begin = kvp_now_ns(env);
	end = begin + timeout_ms * KVP_NS_PER_MS;
	spin_end = begin + cq->client->set.spin_us * 1000ull;
	pthread_mutex_lock(&cq->lock);
	for (;;) {
		kvp_cq_work(cq);
		count = cq_reap(cq, ret_done, max);
		now = kvp_now_ns(env);
		if (count > 0 || now >= end) {
			break;
		}
		if (now >= spin_end) {
			cq_sleep(cq, end);
		}
	}
	pthread_mutex_unlock(&cq->lock);
	return (int)count;
}
