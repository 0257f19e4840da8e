/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_cm.c - connections of an initiator: resolve, connect, take the keys, failure, disconnect.
 *
 * A connection fails by destroying its queue pair first and completing what was posted second:
 * then nothing is written to the caller's memory after done().
 */
#include "transport/verbs/verbs.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

int
verbs_addr_of(const struct verbs_xport *x, const char *addr, bool passive,
	struct sockaddr_storage *ret_addr)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	struct kvp_addr parsed;
	char port[8];
	int ret = kvp_addr_parse(addr, -1, &parsed);

	if (ret != 0 || parsed.is_unix) {
		return ret != 0 ? ret : -EINVAL;
	}
	hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
	(void)snprintf(port, sizeof(port), "%u", parsed.port);
	ret = getaddrinfo(parsed.host, port, &hints, &list);
	if (ret != 0 || list->ai_addrlen > sizeof(*ret_addr)) {
		kvp_warn(x->log, "verbs address %s: %s", addr, gai_strerror(ret));
		if (list != NULL) {
			freeaddrinfo(list);
		}
		return -EADDRNOTAVAIL;
	}
	memset(ret_addr, 0, sizeof(*ret_addr));
	memcpy(ret_addr, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return 0;
}

/* The timer runs out when the oldest attempt does. */
static void
cm_timer_set(struct verbs_xport *x)
{
	struct itimerspec when = {0};

	if (!kvp_list_empty(&x->connecting)) {
		struct verbs_conn *conn =
			kvp_container_of(x->connecting.next, struct verbs_conn, link);
		uint64_t now = kvp_now_ns(x->env);
		uint64_t left = conn->deadline_ns > now ? conn->deadline_ns - now : 1;

		when.it_value.tv_sec = (time_t)(left / KVP_NS_PER_S);
		when.it_value.tv_nsec = (long)(left % KVP_NS_PER_S);
	}
	(void)timerfd_settime(x->timer_fd, 0, &when, NULL); /* fails for bad arguments only */
}

static struct verbs_conn *
conn_new(struct verbs_xport *x)
{
	struct verbs_conn *conn;
	uint32_t idx = 0;

	while (x->conns[idx] != NULL) {
		idx++;
		kvp_assert(idx < x->conns_max);
	}
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL) {
		return NULL;
	}
	conn->slots = calloc(x->io_depth, sizeof(conn->slots[0]));
	conn->slot_free = calloc(x->io_depth, sizeof(conn->slot_free[0]));
	if (conn->slots == NULL || conn->slot_free == NULL) {
		free(conn->slots);
		free(conn->slot_free);
		free(conn);
		return NULL;
	}
	for (uint32_t i = 0; i < x->io_depth; i++) {
		conn->slot_free[i] = (uint16_t)(x->io_depth - 1 - i);
	}
	conn->slot_count = x->io_depth;
	conn->x = x;
	conn->idx = idx;
	conn->gen = ++x->conn_gen;
	conn->credits = x->dom->wr_max;
	kvp_list_init(&conn->link);
	kvp_list_init(&conn->posted);
	x->conns[idx] = conn;
	x->conn_count++;
	return conn;
}

void
verbs_conn_free(struct verbs_conn *conn)
{
	struct verbs_xport *x = conn->x;

	kvp_assert(conn->id == NULL && conn->io_count == 0 && kvp_list_empty(&conn->link));
	x->conns[conn->idx] = NULL;
	x->conn_count--;
	free(conn->slots);
	free(conn->slot_free);
	free(conn);
}

/* From here on no memory is touched. Every event of the id has been acknowledged. */
static void
conn_id_close(struct verbs_conn *conn)
{
	if (conn->id == NULL) {
		return;
	}
	if (conn->state == VERBS_UP) {
		(void)verbs_lib()->disconnect(
			conn->id); /* a courtesy: the peer learns it at once */
	}
	if (conn->id->qp != NULL) {
		kvp_assert(verbs_lib()->destroy_qp(conn->id->qp) == 0);
		conn->id->qp = NULL;
	}
	kvp_assert(verbs_lib()->destroy_id(conn->id) == 0);
	conn->id = NULL;
}

void
verbs_conn_fail(struct verbs_conn *conn, int status, int prov_err)
{
	struct verbs_xport *x = conn->x;
	struct kvp_list *node;

	if (conn->state == VERBS_DEAD) {
		return;
	}
	conn_id_close(conn);
	if (conn->state == VERBS_CONNECTING) {
		kvp_list_remove(&conn->link);
		cm_timer_set(x);
	}
	conn->state = VERBS_DEAD;
	conn->connect_io = NULL;
	x->cq_stale += x->dom->wr_max - conn->credits;
	conn->credits = x->dom->wr_max;
	while ((node = kvp_list_pop_front(&conn->posted)) != NULL) {
		struct kvp_io *io = kvp_container_of(node, struct kvp_io, link);

		io->status = status;
		io->prov_err = prov_err;
		kvp_list_push_back(&x->ready, &io->link);
	}
}

void
verbs_disconnect(struct kvp_conn *kvp_conn)
{
	struct verbs_conn *conn = (struct verbs_conn *)kvp_conn;

	kvp_assert(!conn->gone);
	verbs_conn_fail(conn, -KVP_E_CONNDOWN, 0);
	/* What has completed but was not delivered is still posted, as the owner sees it. */
	kvp_list_for_each (node, &conn->x->ready) {
		struct kvp_io *io = kvp_container_of(node, struct kvp_io, link);

		if (io->prov[VERBS_IO_CONN] == (uint64_t)(uintptr_t)conn && io->status == 0) {
			io->status = -KVP_E_CONNDOWN;
		}
	}
	conn->gone = true;
	if (conn->io_count == 0) {
		verbs_conn_free(conn);
	}
}

/* First step: an id, and the device and route to the address. */
static int
conn_resolve(struct verbs_conn *conn)
{
	struct verbs_xport *x = conn->x;
	struct sockaddr_storage src;
	struct sockaddr *from = NULL;
	uint8_t timeout = VERBS_ACK_TIMEOUT;

	if (conn->bound && verbs_device_addr(x->dom, conn->dst.ss_family, &src) == 0) {
		from = (struct sockaddr *)&src;
	}
	if (verbs_lib()->create_id(x->events, &conn->id, conn, RDMA_PS_TCP) != 0) {
		conn->id = NULL;
		return -errno;
	}
	/* Old kernels have no such option and use their default. */
	(void)verbs_lib()->set_option(
		conn->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
	if (verbs_lib()->resolve_addr(
		    conn->id, from, (struct sockaddr *)&conn->dst, VERBS_RESOLVE_MS_MAX) != 0) {
		return -errno;
	}
	return 0;
}

int
verbs_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn)
{
	struct verbs_xport *x = verbs_of(xport);
	struct sockaddr_storage dst;
	struct verbs_conn *conn;
	int ret;

	if (x->conn_count >= x->conns_max) {
		return -EAGAIN;
	}
	ret = verbs_addr_of(x, addr, false, &dst);
	if (ret != 0) {
		return ret;
	}
	conn = conn_new(x);
	if (conn == NULL) {
		return -ENOMEM;
	}
	conn->dst = dst;
	conn->bound = x->has_device;
	memcpy(conn->token, token, sizeof(conn->token));
	ret = conn_resolve(conn);
	if (ret != 0) {
		kvp_debug(x->log, "verbs connect to %s: %s", addr, strerror(-ret));
		conn_id_close(conn);
		verbs_conn_free(conn);
		return ret != -EAGAIN ? ret : -ENETUNREACH; /* -EAGAIN has a meaning of its own */
	}
	conn->state = VERBS_CONNECTING;
	conn->deadline_ns = kvp_now_ns(x->env) + VERBS_CONNECT_MS_MAX * KVP_NS_PER_MS;
	conn->connect_io = io;
	conn->io_count = 1;
	io->status = 0;
	io->prov_err = 0;
	io->prov[VERBS_IO_CONN] = (uint64_t)(uintptr_t)conn;
	kvp_list_push_back(&conn->posted, &io->link);
	kvp_list_push_back(&x->connecting, &conn->link);
	cm_timer_set(x);
	*ret_conn = (struct kvp_conn *)conn;
	return 0;
}

/* The route leads through another device than ours: once more from our own address. */
static int
conn_rebind(struct verbs_conn *conn)
{
	const char *other = verbs_lib()->get_device_name(conn->id->verbs->device);

	if (conn->bound) {
		kvp_warn(conn->x->log, "verbs conn %u: its address is reached by device %s only",
			conn->idx, other);
		return -EHOSTUNREACH;
	}
	kvp_assert(verbs_lib()->destroy_id(conn->id) == 0);
	conn->id = NULL;
	conn->bound = true;
	return conn_resolve(conn);
}

static int
conn_addr_resolved(struct verbs_conn *conn)
{
	if (conn->id->verbs != conn->x->dom->ctx) {
		return conn_rebind(conn);
	}
	return verbs_lib()->resolve_route(conn->id, VERBS_RESOLVE_MS_MAX) != 0 ? -errno : 0;
}

static int
conn_route_resolved(struct verbs_conn *conn)
{
	struct verbs_xport *x = conn->x;
	struct verbs_domain *dom = x->dom;
	struct verbs_hello hello = {.magic = VERBS_MAGIC, .version = VERBS_VERSION};
	struct ibv_qp_init_attr attr = {
		.send_cq = x->cq,
		.recv_cq = x->cq,
		.cap = {.max_send_wr = dom->wr_max,
			.max_recv_wr = 1,
			.max_send_sge = dom->sge_max,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	uint32_t depth =
		dom->attr.max_qp_init_rd_atom > 0 ? (uint32_t)dom->attr.max_qp_init_rd_atom : 1;
	struct rdma_conn_param param = {
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 1,
		.initiator_depth =
			(uint8_t)(depth < VERBS_RD_ATOMIC_MAX ? depth : VERBS_RD_ATOMIC_MAX),
		.retry_count = VERBS_RETRIES,
		.rnr_retry_count = VERBS_RETRIES,
	};

	memcpy(hello.token, conn->token, sizeof(hello.token));
	if (verbs_lib()->cm_create_qp(conn->id, dom->pd, &attr) != 0 ||
		verbs_lib()->connect(conn->id, &param) != 0) {
		return -errno;
	}
	return 0;
}

static int
conn_welcome(struct verbs_conn *conn, const struct rdma_conn_param *param)
{
	struct verbs_welcome welcome;

	if (param->private_data == NULL || param->private_data_len < sizeof(welcome)) {
		return -KVP_E_PROTO;
	}
	memcpy(&welcome, param->private_data, sizeof(welcome));
	if (welcome.magic != VERBS_MAGIC || welcome.version != VERBS_VERSION) {
		return -KVP_E_VERSION;
	}
	if (welcome.key_count > VERBS_KEYS_MAX) {
		return -KVP_E_PROTO;
	}
	conn->target_id = welcome.id;
	conn->key_count = welcome.key_count;
	memcpy(conn->keys, welcome.keys, sizeof(conn->keys));
	return 0;
}

/* Why an attempt was refused. */
static int
conn_refusal(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct verbs_refusal refusal;

	if (param->private_data != NULL && param->private_data_len >= sizeof(refusal)) {
		memcpy(&refusal, param->private_data, sizeof(refusal));
		if (refusal.magic == VERBS_MAGIC &&
			(refusal.err == -KVP_E_NO_SESSION || refusal.err == -KVP_E_VERSION ||
				refusal.err == -KVP_E_BUSY)) {
			return refusal.err;
		}
	}
	return -ECONNREFUSED;
}

static void
conn_up(struct verbs_conn *conn)
{
	struct kvp_io *io = conn->connect_io;
	char gid[INET6_ADDRSTRLEN] = "";

	(void)inet_ntop(AF_INET6, conn->id->route.addr.addr.ibaddr.sgid.raw, gid, sizeof(gid));
	kvp_debug(conn->x->log, "verbs conn %u up: gid %s", conn->idx, gid);
	kvp_list_remove(&conn->link);
	cm_timer_set(conn->x);
	conn->state = VERBS_UP;
	conn->connect_io = NULL;
	kvp_list_remove(&io->link);
	kvp_list_push_back(&conn->x->ready, &io->link);
}

/* What an event means for its connection: 0, or the end with this status. May still say 0 and ask
 * for a step, which is taken once the event has been acknowledged: a step may destroy the id. */
static int
event_status(struct verbs_conn *conn, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return 0;
	case RDMA_CM_EVENT_ESTABLISHED:
		return conn_welcome(conn, &event->param.conn);
	case RDMA_CM_EVENT_REJECTED:
		return conn_refusal(event);
	case RDMA_CM_EVENT_UNREACHABLE:
		return event->status == -ETIMEDOUT ? -KVP_E_TIMEOUT : -EHOSTUNREACH;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return event->status < 0 && event->status != -EAGAIN ? event->status
								     : -ECONNREFUSED;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return conn->state == VERBS_CONNECTING ? -ECONNREFUSED : -KVP_E_CONNDOWN;
	default:
		return 0; /* such as the end of a wait in the kernel */
	}
}

static int
conn_step(struct verbs_conn *conn, enum rdma_cm_event_type type)
{
	if (conn->state != VERBS_CONNECTING) {
		return 0;
	}
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return conn_addr_resolved(conn);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return conn_route_resolved(conn);
	case RDMA_CM_EVENT_ESTABLISHED:
		conn_up(conn);
		return 0;
	default:
		return 0;
	}
}

static bool
cm_event_next(struct verbs_xport *x)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct verbs_conn *conn;
	int status;

	if (verbs_lib()->get_cm_event(x->events, &event) != 0) {
		return false;
	}
	conn = event->id->context;
	type = event->event;
	status = event_status(conn, event);
	if (status != 0) {
		kvp_debug(x->log, "verbs conn %u: %s (%d)", conn->idx, verbs_lib()->event_str(type),
			event->status);
	}
	kvp_assert(verbs_lib()->ack_cm_event(event) == 0);
	if (status == 0) {
		status = conn_step(conn, type);
		if (status != 0) {
			kvp_debug(x->log, "verbs conn %u: after %s: %s", conn->idx,
				verbs_lib()->event_str(type), strerror(-status));
		}
	}
	if (status != 0) {
		verbs_conn_fail(conn, status, 0);
	}
	return true;
}

void
verbs_cm_progress(struct verbs_xport *x)
{
	x->cm_check = false;
	for (int i = 0; i < VERBS_EVENTS_MAX && cm_event_next(x); i++) {
	}
	while (!kvp_list_empty(&x->connecting)) {
		struct verbs_conn *conn =
			kvp_container_of(x->connecting.next, struct verbs_conn, link);

		if (kvp_now_ns(x->env) < conn->deadline_ns) {
			break;
		}
		verbs_conn_fail(conn, -KVP_E_TIMEOUT, 0);
	}
}
