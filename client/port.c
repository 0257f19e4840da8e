/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port.c - the loop's handle on a queue: answers in, the eventfd, what to watch while it sleeps.
 *
 * THREADS The lock guards what both sides use. The watches and the timer are the loop's. The
 *         loop watches duplicates of the transports' descriptors, so a queue may close those
 *         while the loop has not heard of it yet.
 */
#include "client/control.h"
#include "hal/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct port_watch {
	struct kvp_port *port;
	/* Under the lock. */
	int src;    /* the queue's descriptor that dup stands for; -1: none yet */
	int dup_fd; /* a new duplicate for the loop to take over; -1: none */
	bool armed; /* is, or is going to be, watched */
	/* The loop's. */
	int fd; /* -1: none */
	bool on;
	struct kvp_rpc_watch watch;
};

struct kvp_port {
	struct kvp_client *client;
	_Atomic uint32_t refs;
	int efd;
	pthread_mutex_t lock;
	/* Under the lock. */
	struct kvp_list inbox;
	bool signalled; /* the eventfd is readable */
	bool closed;
	bool mailed;
	uint64_t due_ns; /* the timer is, or is going to be, set for this; UINT64_MAX: not */
	struct port_watch watches[KVP_TRANSPORTS_MAX];
	/* The loop's. */
	struct kvp_mail mail;
	struct kvp_rpc_timer timer;
};

static void
port_signal_locked(struct kvp_port *port)
{
	const uint64_t one = 1;

	if (!port->signalled) {
		port->signalled = true;
		(void)!write(port->efd, &one, sizeof(one)); /* cannot fail: the counter is 0 */
	}
}

static void
port_watch_fired(struct kvp_rpc_watch *watch)
{
	struct port_watch *w = kvp_container_of(watch, struct port_watch, watch);
	struct kvp_port *port = w->port;

	w->on = false;
	pthread_mutex_lock(&port->lock);
	w->armed = false;
	port_signal_locked(port);
	pthread_mutex_unlock(&port->lock);
}

static void
port_timer_fired(struct kvp_rpc_timer *timer)
{
	struct kvp_port *port = kvp_container_of(timer, struct kvp_port, timer);

	pthread_mutex_lock(&port->lock);
	port->due_ns = UINT64_MAX;
	port_signal_locked(port);
	pthread_mutex_unlock(&port->lock);
}

/* The loop lets go of everything. */
static void
port_disarm(struct kvp_port *port)
{
	struct kvp_rpc *rpc = port->client->rpc;

	rpc->ops->timer_stop(rpc, &port->timer);
	for (size_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		struct port_watch *w = &port->watches[i];

		if (w->on) {
			rpc->ops->watch_stop(rpc, &w->watch);
			w->on = false;
		}
		if (w->fd >= 0) {
			close(w->fd);
			w->fd = -1;
		}
	}
}

/* Brings the loop's watches and timer to what the queue asked for. */
static void
port_apply(struct kvp_mail *mail)
{
	struct kvp_port *port = kvp_container_of(mail, struct kvp_port, mail);
	struct kvp_rpc *rpc = port->client->rpc;
	uint64_t now = kvp_now_ns(port->client->env);
	bool start[KVP_TRANSPORTS_MAX];
	int fresh[KVP_TRANSPORTS_MAX];
	uint64_t due_ns;
	bool closed;

	pthread_mutex_lock(&port->lock);
	port->mailed = false;
	closed = port->closed;
	due_ns = port->due_ns;
	for (size_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		start[i] = port->watches[i].armed;
		fresh[i] = port->watches[i].dup_fd;
		port->watches[i].dup_fd = -1;
	}
	pthread_mutex_unlock(&port->lock);

	for (size_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		struct port_watch *w = &port->watches[i];

		if (fresh[i] >= 0) {
			if (w->on) {
				rpc->ops->watch_stop(rpc, &w->watch);
				w->on = false;
			}
			if (w->fd >= 0) {
				close(w->fd);
			}
			w->fd = fresh[i];
		}
		if (!closed && start[i] && !w->on && w->fd >= 0) {
			w->on = rpc->ops->watch_start(rpc, &w->watch, w->fd) == 0;
		}
	}
	if (closed) {
		port_disarm(port);
		kvp_port_unref(port);
	} else if (due_ns != UINT64_MAX) {
		rpc->ops->timer_start(rpc, &port->timer, due_ns > now ? due_ns - now : 0);
	}
}

int
kvp_port_open(struct kvp_client *client, struct kvp_port **ret_port)
{
	struct kvp_port *port = calloc(1, sizeof(*port));

	if (port == NULL) {
		return -ENOMEM;
	}
	port->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (port->efd < 0) {
		int err = -errno;

		free(port);
		return err;
	}
	port->client = client;
	port->due_ns = UINT64_MAX;
	port->mail.fn = port_apply;
	port->timer.fn = port_timer_fired;
	atomic_init(&port->refs, 2); /* the queue's and the loop's */
	kvp_list_init(&port->inbox);
	pthread_mutex_init(&port->lock, NULL);
	for (size_t i = 0; i < KVP_TRANSPORTS_MAX; i++) {
		port->watches[i].port = port;
		port->watches[i].src = -1;
		port->watches[i].dup_fd = -1;
		port->watches[i].fd = -1;
		port->watches[i].watch.fn = port_watch_fired;
	}
	*ret_port = port;
	return 0;
}

struct kvp_port *
kvp_port_again(struct kvp_port *port)
{
	atomic_fetch_add(&port->refs, 1);
	return port;
}

void
kvp_port_unref(struct kvp_port *port)
{
	if (port == NULL || atomic_fetch_sub(&port->refs, 1) != 1) {
		return;
	}
	close(port->efd);
	pthread_mutex_destroy(&port->lock);
	free(port);
}

void
kvp_port_close(struct kvp_port *port)
{
	struct kvp_list rest;
	bool mail;

	if (port == NULL) {
		return;
	}
	kvp_list_init(&rest);
	kvp_port_take(port, &rest);
	pthread_mutex_lock(&port->lock);
	port->closed = true;
	while (!kvp_list_empty(&port->inbox)) {
		kvp_list_push_back(&rest, kvp_list_pop_front(&port->inbox));
	}
	mail = !port->mailed;
	port->mailed = true;
	pthread_mutex_unlock(&port->lock);
	if (mail) {
		kvp_control_mail(port->client->control, &port->mail);
	}
	kvp_list_for_each_safe (pos, &rest) {
		kvp_call_free(kvp_container_of(pos, struct kvp_call, link));
	}
	kvp_port_unref(port);
}

int
kvp_port_fd(const struct kvp_port *port)
{
	return port->efd;
}

void
kvp_port_signal(struct kvp_port *port)
{
	pthread_mutex_lock(&port->lock);
	port_signal_locked(port);
	pthread_mutex_unlock(&port->lock);
}

bool
kvp_port_put(struct kvp_port *port, struct kvp_list *answer)
{
	bool open;

	pthread_mutex_lock(&port->lock);
	open = !port->closed;
	if (open) {
		kvp_list_push_back(&port->inbox, answer);
		port_signal_locked(port);
	}
	pthread_mutex_unlock(&port->lock);
	return open;
}

void
kvp_port_take(struct kvp_port *port, struct kvp_list *answers)
{
	uint64_t count;

	pthread_mutex_lock(&port->lock);
	if (port->signalled) {
		(void)!read(port->efd, &count, sizeof(count)); /* it is readable */
		port->signalled = false;
	}
	while (!kvp_list_empty(&port->inbox)) {
		kvp_list_push_back(answers, kvp_list_pop_front(&port->inbox));
	}
	pthread_mutex_unlock(&port->lock);
}

/* One descriptor to be watched. Returns true when the loop must hear of it. */
static bool
port_arm_one(struct kvp_port *port, struct port_watch *w, int fd)
{
	if (fd < 0 || (w->armed && w->src == fd)) {
		return false;
	}
	if (w->src != fd) {
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

		if (copy < 0) { /* out of descriptors: the user has to look himself */
			port_signal_locked(port);
			return false;
		}
		if (w->dup_fd >= 0) {
			close(w->dup_fd);
		}
		w->dup_fd = copy;
		w->src = fd;
	}
	w->armed = true;
	return true;
}

void
kvp_port_arm(struct kvp_port *port, const int fds[KVP_TRANSPORTS_MAX], uint64_t due_ns)
{
	bool changed = false;
	bool mail;

	pthread_mutex_lock(&port->lock);
	for (size_t i = 0; !port->signalled && i < KVP_TRANSPORTS_MAX; i++) {
		if (port_arm_one(port, &port->watches[i], fds[i])) {
			changed = true;
		}
	}
	if (!port->signalled && due_ns < port->due_ns) {
		port->due_ns = due_ns;
		changed = true;
	}
	mail = changed && !port->mailed;
	port->mailed = port->mailed || mail;
	pthread_mutex_unlock(&port->lock);
	if (mail) {
		kvp_control_mail(port->client->control, &port->mail);
	}
}
