/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_target.c - the target's side: listening, connection events, sessions and their fence.
 *
 * The device serves peers by itself; the thread only handles connection events and sleeps on
 * their channel. The mutex guards sessions and peers; the thread holds it while it reads and
 * handles an event, so a fence meets no event that is half way through. Destroying a peer's
 * windows and then its queue pair is the fence: the device then touches no memory for it.
 *
 * A peer's queue pair is brought up by hand, before the connection is accepted: windows are bound
 * through it, and their keys travel with the acceptance.
 */
#include "transport/verbs/verbs.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"
#include "hal/os/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TARGET_BACKLOG  128
#define TARGET_CQ_LEN   64
#define TARGET_BIND_MS  1000u    /* a window is bound by then or never */
#define IB_MASK_UNKNOWN 0xe00000 /* attributes of Ethernet that some kernels set for InfiniBand */

struct verbs_session {
	struct kvp_list link;
	struct kvp_list peers; /* verbs_peer.link */
	uint32_t peer_count;
	uint8_t token[KVP_TOKEN_LEN];
};

/* The target's end of a connection; its id's context. */
struct verbs_peer {
	struct kvp_list link;
	struct verbs_session *session;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct kvp_list windows; /* verbs_window.peer_link, under dom->lock */
};

struct verbs_target {
	struct verbs_domain *dom; /* the xport's */
	const struct kvp_env *env;
	const struct kvp_log *log;
	uint32_t peers_max;
	pthread_mutex_t lock;
	struct kvp_list sessions;
	uint32_t session_count;
	uint32_t peer_count;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener; /* NULL until listen() */
	struct ibv_cq *cq;           /* of windows being bound */
	uint64_t bind_count;
	int wake_fd;
	_Atomic bool stop;
	struct kvp_thread *thread;
};

static struct verbs_target *
target_new(struct verbs_xport *x)
{
	struct verbs_target *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		return NULL;
	}
	t->dom = x->dom;
	t->env = x->env;
	t->log = x->log;
	t->peers_max = x->conns_max;
	t->wake_fd = -1;
	(void)pthread_mutex_init(&t->lock, NULL); /* never fails on Linux */
	kvp_list_init(&t->sessions);
	return t;
}

/* Every token is looked at whole, so that time tells nothing about a near miss. */
static struct verbs_session *
session_find(struct verbs_target *t, const uint8_t token[KVP_TOKEN_LEN])
{
	struct verbs_session *found = NULL;

	kvp_list_for_each (node, &t->sessions) {
		struct verbs_session *session = kvp_container_of(node, struct verbs_session, link);

		if (kvp_bytes_equal_secret(session->token, token, KVP_TOKEN_LEN)) {
			found = session; /* the others are looked at all the same */
		}
	}
	return found;
}

/* Windows, then the queue pair: a driver may wait long for a queue pair with bound windows. After
 * it nothing that this peer posted touches memory. */
static void
peer_qp_close(struct verbs_target *t, struct verbs_peer *peer)
{
	pthread_mutex_lock(&t->dom->lock);
	while (!kvp_list_empty(&peer->windows)) {
		verbs_window_free(
			kvp_container_of(peer->windows.next, struct verbs_window, peer_link));
	}
	pthread_mutex_unlock(&t->dom->lock);
	if (peer->qp != NULL) {
		kvp_assert(verbs_lib()->destroy_qp(peer->qp) == 0);
		peer->qp = NULL;
	}
}

static void
peer_close(struct verbs_target *t, struct verbs_peer *peer)
{
	peer_qp_close(t, peer);
	(void)verbs_lib()->disconnect(peer->id); /* a courtesy: the peer learns it at once */
	kvp_assert(verbs_lib()->destroy_id(peer->id) == 0);
	kvp_list_remove(&peer->link);
	peer->session->peer_count--;
	t->peer_count--;
	free(peer);
}

static void
session_close(struct verbs_target *t, struct verbs_session *session)
{
	while (!kvp_list_empty(&session->peers)) {
		peer_close(t, kvp_container_of(session->peers.next, struct verbs_peer, link));
	}
	kvp_list_remove(&session->link);
	t->session_count--;
	free(session);
}

/* One step of the queue pair's life, with what the connection manager knows about the path. */
static int
peer_qp_step(struct verbs_target *t, struct verbs_peer *peer, enum ibv_qp_state state,
	const struct rdma_conn_param *param)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0;
	int err;

	if (verbs_lib()->init_qp_attr(peer->id, &attr, &mask) != 0) {
		return -errno;
	}
	if (state == IBV_QPS_INIT) {
		attr.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
		mask |= IBV_QP_ACCESS_FLAGS;
	} else if (state == IBV_QPS_RTR) {
		attr.max_dest_rd_atomic = param->responder_resources;
		if (t->dom->port_attr.link_layer == IBV_LINK_LAYER_INFINIBAND) {
			mask &= ~IB_MASK_UNKNOWN;
		}
	}
	err = verbs_lib()->modify_qp(peer->qp, &attr, mask);
	return err < 0 ? -errno : -err;
}

static int
peer_qp_open(struct verbs_target *t, struct verbs_peer *peer, const struct rdma_conn_param *param)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	int ret;

	peer->qp = verbs_lib()->create_qp(t->dom->pd, &attr);
	if (peer->qp == NULL) {
		return -errno;
	}
	ret = peer_qp_step(t, peer, IBV_QPS_INIT, param);
	if (ret == 0) {
		ret = peer_qp_step(t, peer, IBV_QPS_RTR, param);
	}
	if (ret == 0) {
		ret = peer_qp_step(t, peer, IBV_QPS_RTS, param);
	}
	return ret;
}

/* Waits until the window is bound: its key is good for nothing before. */
static int
window_wait(struct verbs_target *t, uint64_t wr_id)
{
	uint64_t end = kvp_now_ns(t->env) + TARGET_BIND_MS * KVP_NS_PER_MS;
	struct ibv_wc wc;

	while (kvp_now_ns(t->env) < end) {
		int n = ibv_poll_cq(t->cq, 1, &wc);

		if (n < 0) {
			return -EIO;
		}
		if (n > 0 && wc.wr_id == wr_id) { /* others are left over from who is gone */
			return wc.status == IBV_WC_SUCCESS ? 0 : -EIO;
		}
	}
	return -ETIMEDOUT;
}

/* A window over a whole slice, bound to the peer's queue pair. dom->lock is held. */
static int
window_open(struct verbs_target *t, struct verbs_peer *peer, struct verbs_mr *mr,
	struct ibv_mr *slice, uint32_t *ret_key)
{
	struct verbs_window *window = calloc(1, sizeof(*window));
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {.wr_id = ++t->bind_count,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED};
	int err;

	if (window == NULL) {
		return -ENOMEM;
	}
	kvp_list_init(&window->mr_link);
	kvp_list_init(&window->peer_link);
	window->mw = ibv_alloc_mw(t->dom->pd, IBV_MW_TYPE_2);
	if (window->mw == NULL) {
		free(window);
		return errno != 0 ? -errno : -ENOMEM;
	}
	wr.bind_mw.mw = window->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(window->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = slice,
		.addr = (uintptr_t)slice->addr,
		.length = slice->length,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	err = ibv_post_send(peer->qp, &wr, &bad);
	err = err != 0 ? -err : window_wait(t, wr.wr_id);
	if (err != 0) {
		kvp_warn(t->log, "verbs window: %s", strerror(-err));
		verbs_window_free(window);
		return err;
	}
	kvp_list_push_back(&mr->windows, &window->mr_link);
	kvp_list_push_back(&peer->windows, &window->peer_link);
	*ret_key = wr.bind_mw.rkey;
	return 0;
}

/* Decides what a peer may write, and with which keys: the one place to change when extents are to
 * be lent one by one. Today it is all memory registered for writing, through windows of its own
 * where the device has them. For reading everybody gets the registrations' keys. */
static int
peer_lend(struct verbs_target *t, struct verbs_peer *peer, struct verbs_welcome *welcome)
{
	struct verbs_domain *dom = t->dom;
	int ret = 0;

	pthread_mutex_lock(&dom->lock);
	for (uint32_t i = 0; i < VERBS_KEYS_MAX && ret == 0; i++) {
		struct verbs_mr *mr = dom->keys[i];
		struct ibv_mr *slice;

		if (mr == NULL) {
			continue;
		}
		slice = mr->slices[i - mr->key_first];
		welcome->key_count = (uint16_t)(i + 1);
		if ((mr->access & KVP_MR_REMOTE_WRITE) != 0 && dom->has_windows) {
			ret = window_open(t, peer, mr, slice, &welcome->keys[i]);
		} else {
			welcome->keys[i] = slice->rkey;
		}
	}
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static int
peer_start(struct verbs_target *t, struct verbs_peer *peer, const struct rdma_conn_param *request)
{
	const struct ibv_device_attr *attr = &t->dom->attr;
	struct verbs_welcome welcome = {
		.magic = VERBS_MAGIC, .version = VERBS_VERSION, .id = t->dom->id};
	struct rdma_conn_param param = {
		.private_data = &welcome,
		.private_data_len = sizeof(welcome),
		.responder_resources = request->responder_resources,
		.initiator_depth = 1,
		.rnr_retry_count = VERBS_RETRIES,
	};
	int ret;

	if (param.responder_resources > attr->max_qp_rd_atom) {
		param.responder_resources = (uint8_t)attr->max_qp_rd_atom;
	}
	if (request->initiator_depth < param.initiator_depth) {
		param.initiator_depth = request->initiator_depth;
	}
	ret = peer_qp_open(t, peer, &param);
	if (ret == 0) {
		ret = peer_lend(t, peer, &welcome);
	}
	if (ret == 0) {
		param.qp_num = peer->qp->qp_num;
		ret = verbs_lib()->accept(peer->id, &param) != 0 ? -errno : 0;
	}
	return ret;
}

static int
peer_accept(struct verbs_target *t, struct verbs_session *session, struct rdma_cm_id *id,
	const struct rdma_conn_param *request)
{
	struct verbs_peer *peer;
	int ret;

	if (id->verbs != t->dom->ctx) {
		return -ENODEV; /* listening on every address, asked on another device's */
	}
	peer = calloc(1, sizeof(*peer));
	if (peer == NULL) {
		return -ENOMEM;
	}
	peer->id = id;
	kvp_list_init(&peer->windows);
	ret = peer_start(t, peer, request);
	if (ret != 0) {
		peer_qp_close(t, peer);
		free(peer);
		return ret;
	}
	id->context = peer;
	peer->session = session;
	kvp_list_push_back(&session->peers, &peer->link);
	session->peer_count++;
	t->peer_count++;
	return 0;
}

/* 0, or why this hello is refused. */
static int
hello_check(struct verbs_target *t, const struct rdma_conn_param *param,
	struct verbs_session **ret_session)
{
	struct verbs_hello hello;

	if (param->private_data == NULL || param->private_data_len < sizeof(hello)) {
		return -KVP_E_VERSION;
	}
	memcpy(&hello, param->private_data, sizeof(hello));
	if (hello.magic != VERBS_MAGIC || hello.version != VERBS_VERSION) {
		return -KVP_E_VERSION;
	}
	*ret_session = session_find(t, hello.token);
	if (*ret_session == NULL) {
		return -KVP_E_NO_SESSION;
	}
	if ((*ret_session)->peer_count >= VERBS_SESSION_PEERS_MAX ||
		t->peer_count >= t->peers_max) {
		return -KVP_E_BUSY;
	}
	return 0;
}

/* Accepted or refused and destroyed; the event must have been acknowledged. */
static void
target_connreq(struct verbs_target *t, struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
	struct verbs_refusal refusal = {.magic = VERBS_MAGIC};
	struct verbs_session *session = NULL;
	int ret;

	id->context = NULL; /* not yet a peer's */
	refusal.err = hello_check(t, param, &session);
	if (refusal.err == 0) {
		ret = peer_accept(t, session, id, param);
		if (ret == 0) {
			return;
		}
		kvp_warn(t->log, "verbs connection cannot be accepted: %s", strerror(-ret));
		refusal.err = -KVP_E_BUSY;
	}
	kvp_info(t->log, "verbs connection refused: %s", kvp_err_str(refusal.err));
	(void)verbs_lib()->reject(id, &refusal, sizeof(refusal)); /* gone anyway */
	kvp_assert(verbs_lib()->destroy_id(id) == 0);
}

/* The mutex is held: no fence can close a peer between its event and our handling of it. */
static bool
target_event_next(struct verbs_target *t)
{
	uint8_t data[sizeof(struct verbs_hello)];
	struct rdma_cm_event *event;
	struct rdma_conn_param param;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;

	if (verbs_lib()->get_cm_event(t->events, &event) != 0) {
		return false;
	}
	type = event->event;
	id = event->id;
	param = event->param.conn;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && param.private_data != NULL &&
		param.private_data_len >= sizeof(data)) {
		memcpy(data, param.private_data, sizeof(data));
		param.private_data = data;
	} else {
		param.private_data = NULL;
	}
	kvp_assert(verbs_lib()->ack_cm_event(event) == 0); /* what follows may destroy the id */
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		target_connreq(t, id, &param);
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (id->context != NULL) {
			peer_close(t, id->context);
		} else {
			kvp_error(t->log, "verbs listener: %s", verbs_lib()->event_str(type));
		}
		break;
	default:
		break;
	}
	return true;
}

static void
target_run(void *arg)
{
	struct verbs_target *t = arg;
	struct pollfd fds[2] = {
		{.fd = t->events->fd, .events = POLLIN},
		{.fd = t->wake_fd, .events = POLLIN},
	};

	while (!atomic_load(&t->stop)) {
		pthread_mutex_lock(&t->lock);
		for (int i = 0; i < VERBS_EVENTS_MAX && target_event_next(t); i++) {
		}
		pthread_mutex_unlock(&t->lock);
		(void)poll(fds, 2, -1); /* every signal is blocked here */
	}
}

/* "host:port" that is listened on. */
static int
target_name(struct verbs_target *t, char ret_addr[KVP_ADDR_LEN_MAX])
{
	const struct sockaddr *sa = rdma_get_local_addr(t->listener);
	struct kvp_addr addr = {0};

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = &t->listener->route.addr.src_sin;

		addr.port = ntohs(in->sin_port);
		(void)inet_ntop(AF_INET, &in->sin_addr, addr.host, sizeof(addr.host));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = &t->listener->route.addr.src_sin6;

		addr.port = ntohs(in6->sin6_port);
		(void)inet_ntop(AF_INET6, &in6->sin6_addr, addr.host, sizeof(addr.host));
	} else {
		return -EAFNOSUPPORT;
	}
	kvp_addr_format(&addr, ret_addr, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
target_bind(struct verbs_target *t, struct sockaddr_storage *sa, const char *addr)
{
	const char *own = verbs_lib()->get_device_name(t->dom->ctx->device);

	if (verbs_lib()->create_id(t->events, &t->listener, NULL, RDMA_PS_TCP) != 0) {
		t->listener = NULL;
		return -errno;
	}
	if (verbs_lib()->bind_addr(t->listener, (struct sockaddr *)sa) != 0) {
		return -errno;
	}
	if (t->listener->verbs != NULL && t->listener->verbs != t->dom->ctx) {
		kvp_warn(t->log, "verbs address %s belongs to device %s, %s is opened", addr,
			verbs_lib()->get_device_name(t->listener->verbs->device), own);
		return -EADDRNOTAVAIL;
	}
	return verbs_lib()->listen(t->listener, TARGET_BACKLOG) != 0 ? -errno : 0;
}

static int
target_open(struct verbs_target *t, struct sockaddr_storage *sa, const char *addr)
{
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake_fd < 0) {
		return -errno;
	}
	t->events = verbs_events_open();
	if (t->events == NULL) {
		return -errno;
	}
	t->cq = verbs_lib()->create_cq(t->dom->ctx, TARGET_CQ_LEN, NULL, NULL, 0);
	if (t->cq == NULL) {
		return -errno;
	}
	return target_bind(t, sa, addr);
}

int
verbs_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct verbs_xport *x = verbs_of(xport);
	struct sockaddr_storage sa;
	struct verbs_target *t;
	int ret;

	kvp_assert(x->target == NULL);
	ret = verbs_addr_of(x, addr, true, &sa);
	if (ret != 0) {
		return ret;
	}
	t = target_new(x);
	if (t == NULL) {
		return -ENOMEM;
	}
	ret = target_open(t, &sa, addr);
	if (ret == 0) {
		ret = target_name(t, ret_addr);
	}
	if (ret == 0) {
		ret = kvp_thread_start("kvp-verbs", target_run, t, &t->thread);
	}
	if (ret != 0) {
		verbs_target_close(t);
		return ret;
	}
	x->target = t;
	return 0;
}

int
verbs_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct verbs_target *t = verbs_of(xport)->target;
	struct verbs_session *session;
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
verbs_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct verbs_target *t = verbs_of(xport)->target;
	struct verbs_session *session;

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
verbs_target_close(struct verbs_target *t)
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
		session_close(t, kvp_container_of(t->sessions.next, struct verbs_session, link));
	}
	while (t->thread != NULL &&
		target_event_next(t)) { /* requests that came late are refused */
	}
	if (t->listener != NULL) {
		kvp_assert(verbs_lib()->destroy_id(t->listener) == 0);
	}
	if (t->cq != NULL) {
		kvp_assert(verbs_lib()->destroy_cq(t->cq) == 0);
	}
	if (t->events != NULL) {
		verbs_lib()->destroy_event_channel(t->events);
	}
	if (t->wake_fd >= 0) {
		(void)close(t->wake_fd);
	}
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}
