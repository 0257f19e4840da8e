/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_target.c - the target's side: listening, its progress thread, sessions and their fence.
 *
 * Software providers move data only while somebody reads their queues, so a thread does, and
 * sleeps when nothing is there. The mutex guards sessions and peers. The thread holds it for
 * connection events and lets go of it while data moves, so a fence never waits for a transfer.
 * Closing the endpoint is the fence: the provider then touches no memory for that peer, whatever
 * is half way through. Closing the registration would not be one.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"
#include "hal/os/thread.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ofi_session {
	struct kvp_list link;
	struct kvp_list peers; /* ofi_peer.link */
	uint32_t peer_count;
	uint8_t token[KVP_TOKEN_LEN];
};

/* The target's end of a connection; the endpoint's context. */
struct ofi_peer {
	struct kvp_list link;
	struct ofi_session *session;
	struct fid_ep *ep;
};

struct ofi_target {
	struct ofi_domain *dom; /* the xport's */
	const struct kvp_log *log;
	uint32_t peers_max;
	pthread_mutex_t lock;
	struct kvp_list sessions;
	uint32_t session_count;
	uint32_t peer_count;
	struct fid_pep *pep; /* NULL until listen() */
	struct ofi_queue queue;
	int wake_fd;
	_Atomic bool stop;
	struct kvp_thread *thread;
};

static struct ofi_target *
target_new(struct ofi_xport *x)
{
	struct ofi_target *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		return NULL;
	}
	t->dom = x->dom;
	t->log = x->log;
	t->peers_max = x->conns_max;
	t->wake_fd = -1;
	(void)pthread_mutex_init(&t->lock, NULL); /* never fails on Linux */
	kvp_list_init(&t->sessions);
	return t;
}

/* Every token is looked at whole, so that time tells nothing about a near miss. */
static struct ofi_session *
session_find(struct ofi_target *t, const uint8_t token[KVP_TOKEN_LEN])
{
	struct ofi_session *found = NULL;

	kvp_list_for_each (node, &t->sessions) {
		struct ofi_session *session = kvp_container_of(node, struct ofi_session, link);

		if (kvp_bytes_equal_secret(session->token, token, KVP_TOKEN_LEN)) {
			found = session; /* the others are looked at all the same */
		}
	}
	return found;
}

/* After it nothing that this peer posted touches memory. */
static void
peer_close(struct ofi_target *t, struct ofi_peer *peer)
{
	kvp_assert(fi_close(&peer->ep->fid) == 0);
	kvp_list_remove(&peer->link);
	peer->session->peer_count--;
	t->peer_count--;
	free(peer);
}

static void
session_close(struct ofi_target *t, struct ofi_session *session)
{
	while (!kvp_list_empty(&session->peers)) {
		peer_close(t, kvp_container_of(session->peers.next, struct ofi_peer, link));
	}
	kvp_list_remove(&session->link);
	t->session_count--;
	free(session);
}

static int
peer_accept(struct ofi_target *t, struct ofi_session *session, struct fi_info *info)
{
	struct ofi_peer *peer = calloc(1, sizeof(*peer));
	int ret;

	if (peer == NULL) {
		return -FI_ENOMEM;
	}
	ret = fi_endpoint(t->dom->domain, info, &peer->ep, peer);
	if (ret != 0) {
		free(peer);
		return ret;
	}
	ret = fi_ep_bind(peer->ep, &t->queue.eq->fid, 0);
	if (ret == 0) {
		ret = fi_ep_bind(peer->ep, &t->queue.cq->fid, FI_TRANSMIT | FI_RECV);
	}
	if (ret == 0) {
		ret = fi_enable(peer->ep);
	}
	if (ret == 0) {
		ret = fi_accept(peer->ep, NULL, 0);
	}
	if (ret != 0) {
		kvp_assert(fi_close(&peer->ep->fid) == 0);
		free(peer);
		return ret;
	}
	peer->session = session;
	kvp_list_push_back(&session->peers, &peer->link);
	session->peer_count++;
	t->peer_count++;
	return 0;
}

/* 0, or why this hello is refused. */
static int
hello_check(struct ofi_target *t, const union ofi_event *event, size_t len,
	struct ofi_session **ret_session)
{
	struct ofi_hello hello;

	if (len < sizeof(event->entry) + sizeof(hello)) {
		return -KVP_E_VERSION;
	}
	memcpy(&hello, event->entry.data, sizeof(hello));
	if (hello.magic != OFI_HELLO_MAGIC || hello.version != OFI_HELLO_VERSION) {
		return -KVP_E_VERSION;
	}
	*ret_session = session_find(t, hello.token);
	if (*ret_session == NULL) {
		return -KVP_E_NO_SESSION;
	}
	if ((*ret_session)->peer_count >= OFI_SESSION_PEERS_MAX || t->peer_count >= t->peers_max) {
		return -KVP_E_BUSY;
	}
	return 0;
}

static void
target_connreq(struct ofi_target *t, const union ofi_event *event, size_t len)
{
	struct ofi_refusal refusal = {.magic = OFI_HELLO_MAGIC};
	struct ofi_session *session = NULL;
	struct fi_info *info = event->entry.info;

	refusal.err = hello_check(t, event, len, &session);
	if (refusal.err == 0 && peer_accept(t, session, info) != 0) {
		refusal.err = -KVP_E_BUSY;
	}
	if (refusal.err != 0) {
		kvp_info(t->log, "ofi connection refused: %s", kvp_err_str(refusal.err));
		(void)fi_reject(t->pep, info->handle, &refusal, sizeof(refusal)); /* gone anyway */
	}
	ofi_lib()->freeinfo(info);
}

/* The mutex is held: no fence can close a peer between its event and our handling of it. */
static bool
target_event_next(struct ofi_target *t)
{
	union ofi_event event;
	uint32_t type;
	ssize_t ret = fi_eq_read(t->queue.eq, &type, &event, sizeof(event), 0);

	if (ret == -FI_EAVAIL) {
		struct fi_eq_err_entry err = {0};

		if (fi_eq_readerr(t->queue.eq, &err, 0) > 0 && err.fid != NULL &&
			err.fid->fclass == FI_CLASS_EP) {
			peer_close(t, err.fid->context);
		}
		return true;
	}
	if (ret < 0) {
		return false;
	}
	if (type == FI_CONNREQ) {
		target_connreq(t, &event, (size_t)ret);
	} else if (type == FI_SHUTDOWN && event.entry.fid->fclass == FI_CLASS_EP) {
		peer_close(t, event.entry.fid->context);
	}
	return true;
}

/* Moves data. Peers post nothing here that completes: entries are leftovers of closed ones. */
static void
target_cq_drain(struct ofi_target *t)
{
	struct fi_cq_entry entries[16];
	ssize_t ret;

	do {
		ret = fi_cq_read(t->queue.cq, entries, 16);
		if (ret == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};

			ret = fi_cq_readerr(t->queue.cq, &err, 0);
		}
	} while (ret > 0);
}

static void
target_sleep(struct ofi_target *t)
{
	struct fid *fids[2] = {&t->queue.cq->fid, &t->queue.eq->fid};
	struct pollfd fds[3] = {
		{.fd = t->queue.cq_fd, .events = POLLIN},
		{.fd = t->queue.eq_fd, .events = POLLIN},
		{.fd = t->wake_fd, .events = POLLIN},
	};

	if (fi_trywait(t->dom->fabric, fids, 2) == 0) {
		(void)poll(fds, 3, -1); /* every signal is blocked here */
	}
}

static void
target_run(void *arg)
{
	struct ofi_target *t = arg;

	while (!atomic_load(&t->stop)) {
		int events = 0;

		pthread_mutex_lock(&t->lock);
		while (events < OFI_EQ_EVENTS_MAX && target_event_next(t)) {
			events++;
		}
		pthread_mutex_unlock(&t->lock);
		target_cq_drain(t);
		target_sleep(t);
	}
}

/* "host:port" of the socket that listens. */
static int
target_name(struct ofi_target *t, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct sockaddr_storage sa = {0};
	size_t len = sizeof(sa);
	struct kvp_addr addr = {0};
	int ret = fi_getname(&t->pep->fid, &sa, &len);

	if (ret != 0) {
		return ofi_error(ret);
	}
	if (sa.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&sa;

		addr.port = ntohs(in->sin_port);
		(void)inet_ntop(AF_INET, &in->sin_addr, addr.host, sizeof(addr.host));
	} else if (sa.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&sa;

		addr.port = ntohs(in6->sin6_port);
		(void)inet_ntop(AF_INET6, &in6->sin6_addr, addr.host, sizeof(addr.host));
	} else {
		return -EAFNOSUPPORT;
	}
	kvp_addr_format(&addr, ret_addr, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
target_open(struct ofi_xport *x, struct ofi_target *t, struct fi_info *info)
{
	int ret = ofi_queue_open(t->dom, 1024, t->log, &t->queue);

	if (ret != 0) {
		return ret;
	}
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake_fd < 0) {
		return -errno;
	}
	ret = fi_passive_ep(x->dom->fabric, info, &t->pep, NULL);
	if (ret != 0) {
		return ofi_error(ret);
	}
	ret = fi_pep_bind(t->pep, &t->queue.eq->fid, 0);
	if (ret == 0) {
		ret = fi_listen(t->pep);
	}
	return ofi_error(ret);
}

int
ofi_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct ofi_xport *x = ofi_of(xport);
	struct fi_info *info = NULL;
	struct ofi_target *t = x->target != NULL ? x->target : target_new(x);
	int ret;

	if (t == NULL) {
		return -ENOMEM;
	}
	x->target = t;
	kvp_assert(t->thread == NULL);
	ret = ofi_info_of(x, addr, FI_SOURCE, &info);
	if (ret != 0) {
		return ret;
	}
	ret = target_open(x, t, info);
	ofi_lib()->freeinfo(info);
	if (ret == 0) {
		ret = target_name(t, ret_addr);
	}
	if (ret == 0) {
		ret = kvp_thread_start("kvp-ofi", target_run, t, &t->thread);
	}
	if (ret != 0) {
		ofi_target_close(t);
		x->target = NULL;
	}
	return ret;
}

int
ofi_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct ofi_xport *x = ofi_of(xport);
	struct ofi_target *t = x->target;
	struct ofi_session *session;
	int ret = 0;

	if (t == NULL) {
		return -ENOTCONN; /* listen() comes first */
	}
	pthread_mutex_lock(&t->lock);
	if (session_find(t, token) != NULL) {
		goto out;
	}
	ret = -KVP_E_BUSY;
	if (t->session_count >= KVP_SESSIONS_MAX) {
		goto out;
	}
	ret = -ENOMEM;
	session = calloc(1, sizeof(*session));
	if (session == NULL) {
		goto out;
	}
	kvp_list_init(&session->peers);
	memcpy(session->token, token, KVP_TOKEN_LEN);
	kvp_list_push_back(&t->sessions, &session->link);
	t->session_count++;
	ret = 0;
out:
	pthread_mutex_unlock(&t->lock);
	return ret;
}

int
ofi_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct ofi_target *t = ofi_of(xport)->target;
	struct ofi_session *session;

	if (t == NULL) {
		return 0;
	}
	pthread_mutex_lock(&t->lock);
	session = session_find(t, token);
	if (session != NULL) {
		session_close(t, session);
	}
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Also of one that listen() left half made. */
void
ofi_target_close(struct ofi_target *t)
{
	uint64_t one = 1;

	if (t == NULL) {
		return;
	}
	if (t->thread != NULL) {
		atomic_store(&t->stop, true);
		kvp_assert(write(t->wake_fd, &one, sizeof(one)) == sizeof(one));
		kvp_thread_join(t->thread);
	}
	while (!kvp_list_empty(&t->sessions)) {
		session_close(t, kvp_container_of(t->sessions.next, struct ofi_session, link));
	}
	if (t->pep != NULL) {
		while (target_event_next(t)) { /* requests that came late are refused */
		}
		kvp_assert(fi_close(&t->pep->fid) == 0);
	}
	ofi_queue_close(&t->queue);
	if (t->wake_fd >= 0) {
		(void)close(t->wake_fd);
	}
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}
