/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c - the daemon's HTTP endpoint on libmicrohttpd's own polling thread.
 *
 * The socket is made here, so that errors are the system's own; the thread starts with every
 * signal blocked, so none of the daemon's is handled there and no peer can raise SIGPIPE.
 */
#include "transport/http/http.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX       64u /* at once; a scraper needs one */
#define IDLE_S          10u /* until a silent or slow connection is cut */
#define CLOSE_LOOKS     50  /* at the connections left, when it ends */
#define CLOSE_LOOK_MS   10
#define CONN_MEMORY_LEN 16384u /* request line and headers of one connection */
#define RENDER_SLACK    4096u  /* numbers grow between measuring and rendering */
#define TEXT_TYPE       "text/plain; charset=utf-8"
#define METRICS_TYPE    "text/plain; version=0.0.4; charset=utf-8"

struct kvp_http {
	struct kvp_http_cfg cfg;
	struct MHD_Daemon *daemon;
};

/* --- answers (libmicrohttpd's thread)
 * --------------------------------------------------------------- */
/* Takes response, NULL included. MHD_NO closes the connection. */
static enum MHD_Result
http_send(struct MHD_Connection *conn, unsigned int status, const char *type,
	struct MHD_Response *response)
{
	enum MHD_Result result;

	if (response == NULL) {
		return MHD_NO;
	}
	result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (result == MHD_YES && status == MHD_HTTP_METHOD_NOT_ALLOWED) {
		result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET");
	}
	if (result == MHD_YES) {
		result = MHD_queue_response(conn, status, response);
	}
	MHD_destroy_response(response); /* drops our reference */
	return result;
}

static enum MHD_Result
http_send_text(struct MHD_Connection *conn, unsigned int status, const char *text)
{
	/* A literal of ours; the library does not write to it. */
	return http_send(conn, status, TEXT_TYPE,
		MHD_create_response_from_buffer(
			strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result
http_send_metrics(struct kvp_http *http, struct MHD_Connection *conn)
{
	struct MHD_Response *response;
	size_t cap;
	size_t len;
	char *text;

	if (http->cfg.refresh != NULL) {
		http->cfg.refresh(http->cfg.arg);
	}
	cap = kvp_metrics_render(http->cfg.metrics, NULL, 0) + RENDER_SLACK;
	text = malloc(cap);
	if (text == NULL) {
		return http_send_text(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
	}
	len = kvp_metrics_render(http->cfg.metrics, text, cap);
	kvp_assert(len < cap);
	response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		free(text);
	}
	return http_send(conn, MHD_HTTP_OK, METRICS_TYPE, response);
}

static enum MHD_Result
http_request(void *arg, struct MHD_Connection *conn, const char *url, const char *method,
	const char *version, const char *upload, size_t *upload_len, void **conn_ctx)
{
	struct kvp_http *http = arg;

	(void)version;
	(void)upload;
	(void)upload_len;
	(void)conn_ctx;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0) {
		return http_send_text(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
	}
	if (strcmp(url, "/metrics") == 0) {
		return http_send_metrics(http, conn);
	}
	if (strcmp(url, "/healthz") == 0) {
		return http_send_text(conn, MHD_HTTP_OK, "ok\n");
	}
	if (strcmp(url, "/readyz") == 0) {
		if (atomic_load_explicit(http->cfg.ready, memory_order_acquire)) {
			return http_send_text(conn, MHD_HTTP_OK, "ready\n");
		}
		return http_send_text(conn, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready\n");
	}
	return http_send_text(conn, MHD_HTTP_NOT_FOUND, "/metrics /healthz /readyz\n");
}

/* The library's complaints are about peers: of no use but for debugging. */
__attribute__((format(printf, 2, 0))) static void
http_complain(void *arg, const char *format, va_list args)
{
	struct kvp_http *http = arg;
	char line[256];
	int len = vsnprintf(line, sizeof(line), format, args);

	if (len > 0) {
		line[strcspn(line, "\r\n")] = '\0';
		kvp_debug(http->cfg.log, "http: %s", line);
	}
}

/* --- socket -------------------------------------------------------------------------------------
 */
static int
http_parse(const char *text, struct sockaddr_storage *ret_sa, socklen_t *ret_len)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ret_sa;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ret_sa;
	struct kvp_addr addr;
	int err = kvp_addr_parse(text, -1, &addr);

	if (err < 0) {
		return err;
	}
	memset(ret_sa, 0, sizeof(*ret_sa));
	if (!addr.is_unix && inet_pton(AF_INET, addr.host, &sin->sin_addr) == 1) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(addr.port);
		*ret_len = sizeof(*sin);
		return 0;
	}
	if (!addr.is_unix && inet_pton(AF_INET6, addr.host, &sin6->sin6_addr) == 1) {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons(addr.port);
		*ret_len = sizeof(*sin6);
		return 0;
	}
	return -EINVAL;
}

static int
http_name(int fd, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct kvp_addr addr = {.is_unix = false};
	struct sockaddr_storage sa;
	socklen_t sa_len = sizeof(sa);
	const void *raw;

	if (getsockname(fd, (struct sockaddr *)&sa, &sa_len) < 0) {
		return -errno;
	}
	if (sa.ss_family == AF_INET) {
		const struct sockaddr_in *sin = (const struct sockaddr_in *)&sa;

		raw = &sin->sin_addr;
		addr.port = ntohs(sin->sin_port);
	} else {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&sa;

		raw = &sin6->sin6_addr;
		addr.port = ntohs(sin6->sin6_port);
	}
	if (inet_ntop(sa.ss_family, raw, addr.host, sizeof(addr.host)) == NULL) {
		return -errno;
	}
	kvp_addr_format(&addr, ret_addr, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
http_listen(const char *text, int *ret_fd)
{
	struct sockaddr_storage sa;
	socklen_t sa_len;
	int on = 1;
	int err = http_parse(text, &sa, &sa_len);
	int fd;

	if (err < 0) {
		return err;
	}
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return -errno;
	}
	/* A restart must not wait for connections of the time before. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
		bind(fd, (const struct sockaddr *)&sa, sa_len) < 0 || listen(fd, CONNS_MAX) < 0) {
		err = -errno;
		(void)close(fd); /* the first error is the one to tell */
		return err;
	}
	*ret_fd = fd;
	return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */
static struct MHD_Daemon *
http_start(struct kvp_http *http, int fd)
{
	struct MHD_Daemon *daemon;
	sigset_t all;
	sigset_t before;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails on a bad "how" only */
	daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0,
		NULL, NULL, http_request, http, MHD_OPTION_EXTERNAL_LOGGER, http_complain, http,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONN_MEMORY_LEN, MHD_OPTION_END);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return daemon;
}

int
kvp_http_open(
	const struct kvp_http_cfg *cfg, char ret_addr[KVP_ADDR_LEN_MAX], struct kvp_http **ret_http)
{
	struct kvp_http *http;
	char addr[KVP_ADDR_LEN_MAX];
	int fd = -1;
	int err;

	kvp_assert(cfg->metrics != NULL && cfg->ready != NULL);
	http = calloc(1, sizeof(*http));
	if (http == NULL) {
		return -ENOMEM;
	}
	http->cfg = *cfg;
	err = http_listen(cfg->addr, &fd);
	if (err < 0) {
		goto err_free;
	}
	err = http_name(fd, addr);
	if (err < 0) {
		goto err_close;
	}
	http->daemon = http_start(http, fd);
	if (http->daemon == NULL) {
		err = -EAGAIN; /* a thread or its pipe could not be made */
		goto err_close;
	}
	memcpy(ret_addr, addr, sizeof(addr));
	*ret_http = http;
	return 0;

err_close:
	(void)close(fd); /* the first error is the one to tell */
err_free:
	free(http);
	return err;
}

static bool
http_has_conns(struct kvp_http *http)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

	return info != NULL && info->num_connections > 0;
}

/* libmicrohttpd 0.9.75 sometimes crashes when it is stopped with connections that their peers have
 * reset. So no more come in, and those there are have a moment to end. */
void
kvp_http_close(struct kvp_http *http)
{
	MHD_socket fd;

	if (http == NULL) {
		return;
	}
	fd = MHD_quiesce_daemon(http->daemon);
	for (int i = 0; i < CLOSE_LOOKS && http_has_conns(http); i++) {
		(void)poll(NULL, 0, CLOSE_LOOK_MS);
	}
	MHD_stop_daemon(http->daemon);
	if (fd != MHD_INVALID_SOCKET) {
		(void)close(fd); /* nothing was written through it */
	}
	free(http);
}
