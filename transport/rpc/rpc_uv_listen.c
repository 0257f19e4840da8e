/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_listen.c - listening sockets, TCP and UNIX. Loop thread, or whoever makes the loop
 * before it runs. A host name to listen on is resolved on the spot and may block.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void
listen_path(const struct kvp_addr *addr, struct sockaddr_un *ret_sun)
{
	/* The parser refused what does not fit. */
	size_t len = strlen(addr->host);

	memset(ret_sun, 0, sizeof(*ret_sun));
	kvp_assert(len < sizeof(ret_sun->sun_path));
	ret_sun->sun_family = AF_UNIX;
	memcpy(ret_sun->sun_path, addr->host, len);
}

/* True when path is a socket file whose process is gone. */
static bool
listen_is_stale(const struct sockaddr_un *sun)
{
	struct stat st;
	bool stale;
	int fd;

	if (lstat(sun->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		return false;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return false;
	}
	/* EAGAIN: somebody listens and is busy. */
	stale = connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) < 0 &&
		errno == ECONNREFUSED;
	(void)close(fd); /* nothing was sent on it */
	return stale;
}

/* Binds by hand: libuv reports a missing directory as EACCES and removes the file at its close
 * whoever made it. Mode is set before listen(), so nobody connects under a wider one. */
static int
listen_bind_unix(const struct kvp_addr *addr, int *ret_fd)
{
	struct sockaddr_un sun;
	int err = 0;
	int fd;

	listen_path(addr, &sun);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return -errno;
	}
	if (bind(fd, (const struct sockaddr *)&sun, sizeof(sun)) < 0) {
		err = -errno;
		if (err == -EADDRINUSE && listen_is_stale(&sun) && unlink(sun.sun_path) == 0) {
			err = bind(fd, (const struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : 0;
		}
	}
	if (err == 0 && chmod(sun.sun_path, 0660) < 0) {
		err = -errno;
		(void)unlink(sun.sun_path); /* the first error is the one to tell */
	}
	if (err < 0) {
		(void)close(fd); /* likewise */
		return err;
	}
	*ret_fd = fd;
	return 0;
}

static int
listen_resolve(struct kvp_rpc_uv *rpc, const struct kvp_addr *addr, struct sockaddr_storage *ret_sa)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	uv_getaddrinfo_t req;
	char port[8];
	int err;

	if (kvp_rpc_sockaddr_literal(addr, ret_sa)) {
		return 0;
	}
	(void)snprintf(port, sizeof(port), "%u", addr->port); /* five digits at most */
	err = uv_getaddrinfo(&rpc->loop, &req, NULL, addr->host, port, &hints);
	if (err < 0) {
		kvp_warn(rpc->cfg.log, "host %s: no address: %s", addr->host, uv_strerror(err));
		return kvp_rpc_uv_err(err);
	}
	kvp_assert(req.addrinfo != NULL);
	memcpy(ret_sa, req.addrinfo->ai_addr, req.addrinfo->ai_addrlen);
	uv_freeaddrinfo(req.addrinfo);
	return 0;
}

static void
listener_came(uv_stream_t *handle, int status)
{
	struct kvp_rpc_listener *listener = handle->data;

	if (status < 0) {
		char text[KVP_ADDR_LEN_MAX];

		kvp_addr_format(&listener->addr, text, sizeof(text));
		kvp_warn(listener->rpc->cfg.log, "listener %s: connection not accepted: %s", text,
			kvp_err_str(kvp_rpc_uv_err(status)));
		return;
	}
	kvp_rpc_conn_accept(listener);
}

static void
listener_closed(uv_handle_t *handle)
{
	struct kvp_rpc_listener *listener = handle->data;

	kvp_list_remove(&listener->node);
	free(listener);
}

static int
listener_open_unix(struct kvp_rpc_listener *listener)
{
	struct stat st;
	int fd = -1;
	int err = listen_bind_unix(&listener->addr, &fd);

	if (err < 0) {
		return err;
	}
	if (lstat(listener->addr.host, &st) == 0) {
		listener->file_dev = st.st_dev;
		listener->file_ino = st.st_ino;
	}
	err = uv_pipe_open(&listener->uv.pipe, fd);
	if (err < 0) {
		(void)close(fd); /* never used */
		return kvp_rpc_uv_err(err);
	}
	return 0;
}

static int
listener_open_tcp(struct kvp_rpc_listener *listener)
{
	struct sockaddr_storage sa;
	int err = listen_resolve(listener->rpc, &listener->addr, &sa);

	if (err < 0) {
		return err;
	}
	return kvp_rpc_uv_err(uv_tcp_bind(&listener->uv.tcp, (const struct sockaddr *)&sa, 0));
}

static int
listener_name(struct kvp_rpc_listener *listener, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct sockaddr_storage sa;
	int sa_len = sizeof(sa);
	int err;

	if (listener->addr.is_unix) {
		kvp_addr_format(&listener->addr, ret_addr, KVP_ADDR_LEN_MAX);
		return 0;
	}
	err = uv_tcp_getsockname(&listener->uv.tcp, (struct sockaddr *)&sa, &sa_len);
	if (err < 0) {
		return kvp_rpc_uv_err(err);
	}
	kvp_rpc_sockaddr_format((const struct sockaddr *)&sa, ret_addr);
	return 0;
}

/* Our own file only: another instance may have taken the path over. */
static void
listener_remove_file(const struct kvp_rpc_listener *listener)
{
	struct stat st;

	if (listener->file_ino != 0 && lstat(listener->addr.host, &st) == 0 &&
		st.st_dev == listener->file_dev && st.st_ino == listener->file_ino) {
		(void)unlink(listener->addr.host); /* a stale file is replaced next time */
	}
}

int
kvp_rpc_listen(struct kvp_rpc *pub, const char *addr, const struct kvp_rpc_service *service,
	char ret_addr[KVP_ADDR_LEN_MAX], struct kvp_rpc_listener **ret_listener)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct kvp_rpc_listener *listener = calloc(1, sizeof(*listener));
	int err;

	if (listener == NULL) {
		return -ENOMEM;
	}
	kvp_assert(service->opened != NULL && service->closed != NULL && service->call != NULL);
	err = kvp_addr_parse(addr, -1, &listener->addr);
	if (err < 0) {
		free(listener);
		return err;
	}
	listener->rpc = rpc;
	listener->service = *service;
	if (listener->addr.is_unix) {
		err = uv_pipe_init(&rpc->loop, &listener->uv.pipe, 0);
	} else {
		err = uv_tcp_init(&rpc->loop, &listener->uv.tcp);
	}
	kvp_assert(err == 0); /* neither makes a socket yet */
	listener->uv.handle.data = listener;
	kvp_list_push_back(&rpc->listeners, &listener->node);

	err = listener->addr.is_unix ? listener_open_unix(listener) : listener_open_tcp(listener);
	if (err == 0) {
		err = kvp_rpc_uv_err(
			uv_listen(&listener->uv.stream, KVP_RPC_BACKLOG, listener_came));
	}
	if (err == 0) {
		err = listener_name(listener, ret_addr);
	}
	if (err < 0) {
		kvp_rpc_unlisten(listener);
		return err;
	}
	*ret_listener = listener;
	return 0;
}

void
kvp_rpc_unlisten(struct kvp_rpc_listener *listener)
{
	if (listener == NULL || listener->closing) {
		return;
	}
	listener->closing = true;
	listener_remove_file(listener);
	uv_close(&listener->uv.handle, listener_closed);
}
