/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_cm.c - connections of an initiator: connect, take the descriptors, map, disconnect.
 *
 * The session lock is a promise to the target: while its description exists, our mappings may.
 * So disconnect unmaps first and closes the lock second, and a process that dies loses its memory
 * before its descriptors. MADV_DONTFORK keeps the mappings out of children, which do inherit the
 * lock and hold the fence up until they exec or end.
 */
#include "transport/shm/shm.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#define CM_FDS_MAX                                                                                 \
	(2 + SHM_REGIONS_MAX) /* one more than is sent; even, as control data is padded */

static void
cm_timer_set(struct shm_xport *x)
{
	struct itimerspec when = {0};

	if (!kvp_list_empty(&x->connecting)) {
		struct shm_conn *conn = kvp_container_of(x->connecting.next, struct shm_conn, link);
		uint64_t now = kvp_now_ns(x->env);
		uint64_t left = conn->deadline_ns > now ? conn->deadline_ns - now : 1;

		when.it_value.tv_sec = (time_t)(left / KVP_NS_PER_S);
		when.it_value.tv_nsec = (long)(left % KVP_NS_PER_S);
	}
	(void)timerfd_settime(x->timer_fd, 0, &when, NULL); /* fails for bad arguments only */
}

/* Unmaps, then gives up the lock. */
static void
conn_drop(struct shm_conn *conn)
{
	for (uint32_t i = 0; i < SHM_REGIONS_MAX; i++) {
		kvp_mem_close(&conn->regions[i].mem);
	}
	if (conn->lock_fd >= 0) {
		(void)close(conn->lock_fd);
		conn->lock_fd = -1;
	}
	if (conn->sock >= 0) {
		(void)close(conn->sock); /* leaves the epoll set with it */
		conn->sock = -1;
	}
}

void
shm_conn_free(struct shm_conn *conn)
{
	kvp_assert(conn->sock < 0 && conn->lock_fd < 0 && conn->io_count == 0);
	kvp_assert(kvp_list_empty(&conn->link));
	conn->x->conn_count--;
	free(conn);
}

static void
conn_fail(struct shm_conn *conn, int status, int prov_err)
{
	struct shm_xport *x = conn->x;

	if (conn->state == SHM_CONNECTING) {
		struct kvp_io *io = conn->connect_io;

		kvp_list_remove(&conn->link);
		cm_timer_set(x);
		io->status = status;
		io->prov_err = prov_err;
		kvp_list_push_back(&x->ready, &io->link);
	}
	conn->state = SHM_DEAD;
	conn_drop(conn);
}

void
shm_disconnect(struct kvp_conn *kvp_conn)
{
	struct shm_conn *conn = (struct shm_conn *)kvp_conn;

	kvp_assert(!conn->gone);
	conn_fail(conn, -KVP_E_CONNDOWN, 0);
	if (conn->connect_io != NULL && conn->connect_io->status == 0) {
		conn->connect_io->status = -KVP_E_CONNDOWN; /* up, but its owner was not told yet */
	}
	conn->gone = true;
	if (conn->io_count == 0) {
		shm_conn_free(conn);
	}
}

/* Connects the socket and says hello. A UNIX socket does both at once or not at all. */
static int
conn_start(struct shm_conn *conn, const char *path, const uint8_t token[KVP_TOKEN_LEN])
{
	struct shm_hello hello = {.magic = SHM_MAGIC, .version = SHM_VERSION};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct epoll_event event = {.events = EPOLLIN};

	if (strlen(path) >= sizeof(sa.sun_path)) {
		return -ENAMETOOLONG;
	}
	memcpy(sa.sun_path, path, strlen(path));
	memcpy(hello.token, token, sizeof(hello.token));
	conn->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (conn->sock < 0) {
		return -errno;
	}
	if (connect(conn->sock, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
		return -errno; /* -EAGAIN: too many wait there, try again */
	}
	if (send(conn->sock, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello)) {
		return -ECONNREFUSED;
	}
	if (epoll_ctl(conn->x->epoll_fd, EPOLL_CTL_ADD, conn->sock, &event) != 0) {
		return -errno;
	}
	return 0;
}

int
shm_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn)
{
	struct shm_xport *x = shm_of(xport);
	struct kvp_addr parsed;
	struct shm_conn *conn;
	int ret = kvp_addr_parse(addr, 0, &parsed);

	if (ret != 0 || !parsed.is_unix) {
		return ret != 0 ? ret : -EINVAL;
	}
	if (x->conn_count >= x->conns_max) {
		return -EAGAIN;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL) {
		return -ENOMEM;
	}
	conn->x = x;
	conn->sock = -1;
	conn->lock_fd = -1;
	kvp_list_init(&conn->link);
	ret = conn_start(conn, parsed.host, token);
	if (ret != 0) {
		conn_drop(conn);
		free(conn);
		return ret;
	}
	x->conn_count++;
	conn->state = SHM_CONNECTING;
	conn->deadline_ns = kvp_now_ns(x->env) + SHM_CONNECT_MS_MAX * KVP_NS_PER_MS;
	conn->connect_io = io;
	conn->io_count = 1;
	io->status = 0;
	io->prov_err = 0;
	io->prov[SHM_IO_CONN] = (uint64_t)(uintptr_t)conn;
	kvp_list_push_back(&x->connecting, &conn->link);
	cm_timer_set(x);
	*ret_conn = (struct kvp_conn *)conn;
	return 0;
}

/* One message with its descriptors, all CLOEXEC. Returns its length or -errno. */
static ssize_t
welcome_recv(
	int sock, struct shm_welcome *ret_welcome, int ret_fds[CM_FDS_MAX], uint32_t *ret_fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(CM_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = ret_welcome, .iov_len = sizeof(*ret_welcome)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t len = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*ret_fd_count = 0;
	if (len < 0) {
		return -errno;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t bytes = c->cmsg_len - CMSG_LEN(0);

			kvp_assert(*ret_fd_count * sizeof(int) + bytes <= CM_FDS_MAX * sizeof(int));
			memcpy(&ret_fds[*ret_fd_count], CMSG_DATA(c), bytes);
			*ret_fd_count += (uint32_t)(bytes / sizeof(int));
		}
	}
	return (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ? -EMSGSIZE : len;
}

/* Maps the regions; takes over what it uses of fds by setting it to -1. */
static int
conn_map(struct shm_conn *conn, const struct shm_welcome *welcome, int *fds)
{
	for (uint32_t i = 0; i < welcome->region_count; i++) {
		const struct shm_welcome_region *desc = &welcome->regions[i];
		struct shm_region *region;
		int ret;

		if (desc->idx >= SHM_REGIONS_MAX || desc->len == 0 ||
			conn->regions[desc->idx].mem.base != NULL) {
			return -KVP_E_PROTO;
		}
		region = &conn->regions[desc->idx];
		ret = kvp_mem_map(fds[1 + i], desc->len, (desc->access & KVP_MR_REMOTE_WRITE) != 0,
			&region->mem);
		if (ret != 0) {
			return ret;
		}
		fds[1 + i] = -1;
		region->tag = desc->tag;
		region->access = desc->access;
	}
	return 0;
}

static int
welcome_check(const struct shm_welcome *welcome, ssize_t len, uint32_t fd_count)
{
	if (len < (ssize_t)offsetof(struct shm_welcome, regions)) {
		return len == 0 ? -ECONNREFUSED : -KVP_E_PROTO;
	}
	if (welcome->magic != SHM_MAGIC || welcome->version != SHM_VERSION) {
		return -KVP_E_VERSION;
	}
	if (welcome->err != 0) {
		return welcome->err < 0 && welcome->err > -10000 ? welcome->err : -KVP_E_PROTO;
	}
	if (len != sizeof(*welcome) || welcome->region_count > SHM_REGIONS_MAX ||
		fd_count != 1u + welcome->region_count) {
		return -KVP_E_PROTO;
	}
	return 0;
}

/* -EAGAIN: nothing there yet. */
static int
conn_welcome(struct shm_conn *conn)
{
	struct shm_welcome welcome;
	int fds[CM_FDS_MAX];
	uint32_t fd_count;
	ssize_t len = welcome_recv(conn->sock, &welcome, fds, &fd_count);
	int ret = len < 0 ? (int)len : welcome_check(&welcome, len, fd_count);

	if (ret == -EWOULDBLOCK || ret == -EINTR) {
		return -EAGAIN;
	}
	if (ret == 0) {
		conn->lock_fd = fds[0];
		fds[0] = -1;
		ret = conn_map(conn, &welcome, fds);
	}
	for (uint32_t i = 0; i < fd_count; i++) {
		if (fds[i] >= 0) {
			(void)close(fds[i]);
		}
	}
	return ret;
}

void
shm_cm_progress(struct shm_xport *x)
{
	kvp_list_for_each_safe (node, &x->connecting) {
		struct shm_conn *conn = kvp_container_of(node, struct shm_conn, link);
		int ret = conn_welcome(conn);

		if (ret == 0) {
			kvp_list_remove(&conn->link);
			cm_timer_set(x);
			(void)epoll_ctl(
				x->epoll_fd, EPOLL_CTL_DEL, conn->sock, NULL); /* is in it */
			conn->state = SHM_UP;
			kvp_list_push_back(&x->ready, &conn->connect_io->link);
		} else if (ret != -EAGAIN) {
			conn_fail(conn, ret, 0);
		} else if (kvp_now_ns(x->env) >= conn->deadline_ns) {
			conn_fail(conn, -KVP_E_TIMEOUT, 0);
		}
	}
}
