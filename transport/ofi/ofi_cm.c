/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_cm.c - connections of an initiator: connect, connection events, failure, disconnect.
 *
 * A connection fails by closing its endpoint first and completing what was posted second: then
 * nothing is written to the caller's memory after done().
 */
#include "transport/ofi/ofi.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

int
ofi_info_of(struct ofi_xport *x, const char *addr, uint64_t flags, struct fi_info **ret_info)
{
	struct kvp_addr parsed;
	struct fi_info *hints;
	struct fi_info *list = NULL;
	char port[8];
	int ret = kvp_addr_parse(addr, -1, &parsed);

	if (ret != 0 || parsed.is_unix) {
		return ret != 0 ? ret : -EINVAL;
	}
	hints = ofi_hints(x->provider, x->device);
	if (hints == NULL) {
		return -ENOMEM;
	}
	(void)snprintf(port, sizeof(port), "%u", parsed.port);
	ret = ofi_lib()->getinfo(OFI_API_VERSION, parsed.host, port, flags, hints, &list);
	ofi_lib()->freeinfo(hints);
	if (ret != 0) {
		kvp_warn(x->log, "ofi address %s: %s", addr, ofi_lib()->strerror(-ret));
		return -EADDRNOTAVAIL;
	}
	*ret_info = ofi_lib()->dupinfo(list);
	ofi_lib()->freeinfo(list);
	return *ret_info != NULL ? 0 : -ENOMEM;
}

/* The timer runs out when the oldest attempt does. */
static void
cm_timer_set(struct ofi_xport *x)
{
	struct itimerspec when = {0};

	if (!kvp_list_empty(&x->connecting)) {
		struct ofi_conn *conn = kvp_container_of(x->connecting.next, struct ofi_conn, link);
		uint64_t now = kvp_now_ns(x->env);
		uint64_t left = conn->deadline_ns > now ? conn->deadline_ns - now : 1;

		when.it_value.tv_sec = (time_t)(left / KVP_NS_PER_S);
		when.it_value.tv_nsec = (long)(left % KVP_NS_PER_S);
	}
	(void)timerfd_settime(x->timer_fd, 0, &when, NULL); /* fails for bad arguments only */
}

static struct ofi_conn *
conn_new(struct ofi_xport *x)
{
	struct ofi_conn *conn;
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
	conn->credits = x->credits_max;
	kvp_list_init(&conn->link);
	kvp_list_init(&conn->open_link);
	kvp_list_init(&conn->posted);
	x->conns[idx] = conn;
	x->conn_count++;
	return conn;
}

void
ofi_conn_free(struct ofi_conn *conn)
{
	struct ofi_xport *x = conn->x;

	kvp_assert(conn->ep == NULL && conn->io_count == 0 && kvp_list_empty(&conn->link));
	x->conns[conn->idx] = NULL;
	x->conn_count--;
	free(conn->slots);
	free(conn->slot_free);
	free(conn);
}

/* From here on no memory is touched. */
static void
conn_ep_close(struct ofi_conn *conn)
{
	kvp_list_remove(&conn->open_link);
	if (conn->ep != NULL) {
		kvp_assert(fi_close(&conn->ep->fid) == 0);
		conn->ep = NULL;
	}
	if (conn->cq != NULL) {
		(void)epoll_ctl(conn->x->epoll_fd, EPOLL_CTL_DEL, conn->cq_fd, NULL); /* is in it */
		kvp_assert(fi_close(&conn->cq->fid) == 0);
		conn->cq = NULL;
	}
}

void
ofi_conn_fail(struct ofi_conn *conn, int status, int prov_err)
{
	struct ofi_xport *x = conn->x;
	struct kvp_list *node;

	if (conn->state == OFI_DEAD) {
		return;
	}
	if (conn->state == OFI_CONNECTING) {
		kvp_list_remove(&conn->link);
		cm_timer_set(x);
	}
	conn->state = OFI_DEAD;
	conn->connect_io = NULL;
	conn_ep_close(conn);
	while ((node = kvp_list_pop_front(&conn->posted)) != NULL) {
		struct kvp_io *io = kvp_container_of(node, struct kvp_io, link);

		io->status = status;
		io->prov_err = prov_err;
		kvp_list_push_back(&x->ready, &io->link);
	}
}

void
ofi_disconnect(struct kvp_conn *kvp_conn)
{
	struct ofi_conn *conn = (struct ofi_conn *)kvp_conn;

	kvp_assert(!conn->gone);
	ofi_conn_fail(conn, -KVP_E_CONNDOWN, 0);
	/* What has completed but was not delivered is still posted, as the owner sees it. */
	kvp_list_for_each (node, &conn->x->ready) {
		struct kvp_io *io = kvp_container_of(node, struct kvp_io, link);

		if (io->prov[OFI_IO_CONN] == (uint64_t)(uintptr_t)conn && io->status == 0) {
			io->status = -KVP_E_CONNDOWN;
		}
	}
	conn->gone = true;
	if (conn->io_count == 0) {
		ofi_conn_free(conn);
	}
}

static int
conn_start(struct ofi_conn *conn, struct fi_info *info, const uint8_t token[KVP_TOKEN_LEN])
{
	struct ofi_xport *x = conn->x;
	struct ofi_hello hello = {.magic = OFI_HELLO_MAGIC, .version = OFI_HELLO_VERSION};
	struct epoll_event event = {.events = EPOLLIN};
	int ret = ofi_cq_open(x->dom, x->credits_max, &conn->cq, &conn->cq_fd);

	memcpy(hello.token, token, sizeof(hello.token));
	if (ret == 0 && epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, conn->cq_fd, &event) != 0) {
		ret = -errno;
	}
	if (ret == 0) {
		ret = fi_endpoint(x->dom->domain, info, &conn->ep, conn);
	}
	if (ret == 0) {
		ret = fi_ep_bind(conn->ep, &x->queue.eq->fid, 0);
	}
	if (ret == 0) {
		ret = fi_ep_bind(conn->ep, &conn->cq->fid, FI_TRANSMIT | FI_RECV);
	}
	if (ret == 0) {
		ret = fi_enable(conn->ep);
	}
	if (ret == 0) {
		ret = fi_connect(conn->ep, info->dest_addr, &hello, sizeof(hello));
	}
	if (ret != 0) {
		conn_ep_close(conn);
		return ret;
	}
	kvp_list_push_back(&x->open, &conn->open_link);
	return 0;
}

int
ofi_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn)
{
	struct ofi_xport *x = ofi_of(xport);
	struct fi_info *info = NULL;
	struct ofi_conn *conn;
	int ret;

	if (x->conn_count >= x->conns_max) {
		return -EAGAIN;
	}
	ret = ofi_info_of(x, addr, 0, &info);
	if (ret != 0) {
		return ret;
	}
	if (x->device == NULL) { /* the kernel's routes choose */
		free(info->src_addr);
		info->src_addr = NULL;
		info->src_addrlen = 0;
	}
	conn = conn_new(x);
	if (conn == NULL) {
		ofi_lib()->freeinfo(info);
		return -ENOMEM;
	}
	ret = conn_start(conn, info, token);
	ofi_lib()->freeinfo(info);
	if (ret != 0) {
		kvp_debug(x->log, "ofi connect to %s: %s", addr, ofi_lib()->strerror(-ret));
		ofi_conn_free(conn);
		return ofi_error(ret);
	}
	conn->state = OFI_CONNECTING;
	conn->deadline_ns = kvp_now_ns(x->env) + OFI_CONNECT_MS_MAX * KVP_NS_PER_MS;
	conn->connect_io = io;
	conn->io_count = 1;
	io->status = 0;
	io->prov_err = 0;
	io->prov[OFI_IO_CONN] = (uint64_t)(uintptr_t)conn;
	kvp_list_push_back(&conn->posted, &io->link);
	kvp_list_push_back(&x->connecting, &conn->link);
	cm_timer_set(x);
	*ret_conn = (struct kvp_conn *)conn;
	return 0;
}

static void
cm_connected(struct ofi_conn *conn)
{
	struct kvp_io *io = conn->connect_io;

	if (conn->state != OFI_CONNECTING) {
		return;
	}
	kvp_list_remove(&conn->link);
	cm_timer_set(conn->x);
	conn->state = OFI_UP;
	conn->connect_io = NULL;
	kvp_list_remove(&io->link);
	kvp_list_push_back(&conn->x->ready, &io->link);
}

/* What a failed attempt or a broken connection means for its owner. */
static int
cm_status(const struct ofi_conn *conn, const struct fi_eq_err_entry *err)
{
	struct ofi_refusal refusal;

	if (conn->state != OFI_CONNECTING) {
		return -KVP_E_CONNDOWN;
	}
	if (err->err_data != NULL && err->err_data_size >= sizeof(refusal)) {
		memcpy(&refusal, err->err_data, sizeof(refusal));
		if (refusal.magic == OFI_HELLO_MAGIC &&
			(refusal.err == -KVP_E_NO_SESSION || refusal.err == -KVP_E_VERSION ||
				refusal.err == -KVP_E_BUSY)) {
			return refusal.err;
		}
	}
	return err->err != 0 ? ofi_error(err->err) : -ECONNREFUSED;
}

static void
cm_failed(struct ofi_xport *x)
{
	uint8_t data[256];
	struct fi_eq_err_entry err = {.err_data = data, .err_data_size = sizeof(data)};
	struct ofi_conn *conn;
	int status;

	if (fi_eq_readerr(x->queue.eq, &err, 0) < 0 || err.fid == NULL) {
		return;
	}
	conn = err.fid->context;
	status = cm_status(conn, &err);
	kvp_debug(x->log, "ofi conn %u: %s", conn->idx, ofi_lib()->strerror(err.err));
	ofi_conn_fail(conn, status, err.err);
}

void
ofi_cm_progress(struct ofi_xport *x)
{
	x->eq_check = false;
	for (int i = 0; i < OFI_EQ_EVENTS_MAX; i++) {
		union ofi_event event;
		uint32_t type;
		ssize_t ret = fi_eq_read(x->queue.eq, &type, &event, sizeof(event), 0);

		if (ret == -FI_EAVAIL) {
			cm_failed(x);
		} else if (ret < 0) {
			break;
		} else if (type == FI_CONNECTED) {
			cm_connected(event.entry.fid->context);
		} else if (type == FI_SHUTDOWN) {
			struct ofi_conn *conn = event.entry.fid->context;

			ofi_conn_fail(conn,
				conn->state == OFI_CONNECTING ? -ECONNREFUSED : -KVP_E_CONNDOWN, 0);
		}
	}
	while (!kvp_list_empty(&x->connecting)) {
		struct ofi_conn *conn = kvp_container_of(x->connecting.next, struct ofi_conn, link);

		if (kvp_now_ns(x->env) < conn->deadline_ns) {
			break;
		}
		ofi_conn_fail(conn, -KVP_E_TIMEOUT, 0);
	}
}
