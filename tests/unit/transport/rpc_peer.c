/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_peer.c - see rpc_peer.h. Callbacks run on the peer's thread and never use cmocka.
 */
#include "tests/unit/transport/rpc_peer.h"
#include "hal/base/err.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#define LIMIT_S 20

static const struct kvp_metric_desc rows[] = {
	{KVP_METRIC_COUNTER, "of_somebody_else_total", ""},
#define KVP_METRIC(name, kind, metric, help) {KVP_METRIC_##kind, metric, help},
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
};

static void
peer_bump(struct peer *peer, unsigned *field)
{
	pthread_mutex_lock(&peer->lock);
	(*field)++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

static void
peer_log(void *arg, enum kvp_log_level level, const char *line)
{
	struct peer *peer = arg;
	size_t used;

	(void)level;
	pthread_mutex_lock(&peer->lock);
	used = strlen(peer->text);
	(void)snprintf(peer->text + used, sizeof(peer->text) - used, "%s\n", line);
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

/* --- service ------------------------------------------------------------------------------------
 */
static void
peer_opened(void *arg, struct kvp_rpc_conn *conn)
{
	struct peer *peer = arg;

	conn->ctx = peer;
	pthread_mutex_lock(&peer->lock);
	peer->ident = conn->peer;
	peer->opened++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

static void
peer_closed(void *arg, struct kvp_rpc_conn *conn, int why)
{
	struct peer *peer = arg;

	pthread_mutex_lock(&peer->lock);
	if (conn->ctx == peer) {
		peer->why = why;
		peer->closed++;
	}
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

static void
peer_release(struct peer *peer)
{
	while (peer->held_count > 0) {
		struct kvp_rpc_call *call = peer->held[peer->held_count - 1];

		pthread_mutex_lock(&peer->lock);
		peer->held_count--;
		pthread_mutex_unlock(&peer->lock);
		peer->rpc->ops->reply(call, 0, call->body, call->len);
	}
}

static void
peer_serve(void *arg, struct kvp_rpc_call *call)
{
	struct peer *peer = arg;
	const struct kvp_rpc_ops *ops = peer->rpc->ops;

	peer_bump(peer, &peer->calls);
	switch (call->type) {
	case KVP_RPC_STATUS:
		ops->reply(call, 0, call->body, call->len);
		break;
	case KVP_RPC_DELETE:
		ops->reply(call, -KVP_E_NOKEY, "why", 3);
		break;
	case KVP_RPC_COMMIT:
		peer_release(peer);
		ops->reply(call, 0, NULL, 0);
		break;
	case KVP_RPC_SESSION_OPEN:
		ops->reply(call, 0, peer->big, KVP_FRAME_LEN_MAX);
		break;
	case KVP_RPC_RELEASE:
		ops->conn_close(call->conn);
		ops->reply(call, 0, NULL, 0);
		break;
	case KVP_RPC_TOUCH:
		ops->reply(call, 0, NULL, 0);
		peer_bump(peer, &peer->touches);
		break;
	default:
		peer->held[peer->held_count] = call;
		peer_bump(peer, &peer->held_count);
	}
}

/* --- life ---------------------------------------------------------------------------------------
 */
static void
peer_main(void *arg)
{
	struct peer *peer = arg;

	peer->rpc->ops->run(peer->rpc);
}

void
peer_open(struct peer *peer, const struct peer_cfg *cfg)
{
	struct kvp_rpc_cfg rpc_cfg = {.env = kvp_env_real(),
		.log = &peer->log,
		.self = {.kind = KVP_PEER_NODE, .incarnation = 7},
		.conns_max = cfg->conns_max,
		.metrics = &peer->metrics,
		.metrics_base = 1};
	struct kvp_rpc_bounds *bounds;

	memset(peer, 0, sizeof(*peer));
	peer->log = (struct kvp_log){.level = KVP_LOG_DEBUG, .sink = peer_log, .arg = peer};
	assert_int_equal(pthread_mutex_init(&peer->lock, NULL), 0);
	assert_int_equal(pthread_cond_init(&peer->changed, NULL), 0);
	assert_int_equal(kvp_metrics_init(&peer->metrics, rows, sizeof(rows) / sizeof(rows[0])), 0);
	peer->big = calloc(1, KVP_FRAME_LEN_MAX);
	assert_non_null(peer->big);
	(void)snprintf(rpc_cfg.self.name, sizeof(rpc_cfg.self.name), "%s", cfg->name);
	assert_int_equal(kvp_rpc_uv_open(&rpc_cfg, &peer->rpc), 0);
	peer->uv = kvp_rpc_uv_of(peer->rpc);
	if (cfg->versions.max != 0) {
		peer->uv->versions = cfg->versions;
	}
	bounds = &peer->uv->bounds;
	bounds->hello_ns = cfg->bounds.hello_ns != 0 ? cfg->bounds.hello_ns : bounds->hello_ns;
	bounds->frame_ns = cfg->bounds.frame_ns != 0 ? cfg->bounds.frame_ns : bounds->frame_ns;
	bounds->stall_ns = cfg->bounds.stall_ns != 0 ? cfg->bounds.stall_ns : bounds->stall_ns;
	bounds->out_max = cfg->bounds.out_max != 0 ? cfg->bounds.out_max : bounds->out_max;
	peer->service = (struct kvp_rpc_service){
		.arg = peer, .opened = peer_opened, .closed = peer_closed, .call = peer_serve};
	if (cfg->listen != NULL) {
		assert_int_equal(peer->rpc->ops->listen(peer->rpc, cfg->listen, &peer->service,
					 peer->addr, &peer->listener),
			0);
	}
	assert_int_equal(kvp_thread_start("peer", peer_main, peer, &peer->thread), 0);
}

static void
peer_stop(void *arg)
{
	struct peer *peer = arg;

	peer->rpc->ops->stop(peer->rpc);
}

void
peer_close(struct peer *peer)
{
	const struct kvp_rpc_ops *ops = peer->rpc->ops;

	ops->post(peer->rpc, peer_stop, peer);
	kvp_thread_join(peer->thread);
	ops->close(peer->rpc);
	while (peer->held_count > 0) { /* replies into the void */
		struct kvp_rpc_call *call = peer->held[--peer->held_count];

		assert_null(call->conn);
		ops->reply(call, 0, call->body, call->len);
	}
	free(peer->big);
	kvp_metrics_fini(&peer->metrics);
	pthread_cond_destroy(&peer->changed);
	pthread_mutex_destroy(&peer->lock);
}

struct peer_doing {
	struct peer *peer;
	void (*fn)(void *arg);
	void *arg;
	unsigned done;
};

static void
peer_doing(void *arg)
{
	struct peer_doing *doing = arg;

	doing->fn(doing->arg);
	peer_bump(doing->peer, &doing->done);
}

void
peer_do(struct peer *peer, void (*fn)(void *arg), void *arg)
{
	struct peer_doing doing = {.peer = peer, .fn = fn, .arg = arg};

	peer->rpc->ops->post(peer->rpc, peer_doing, &doing);
	peer_wait(peer, &doing.done, 1);
}

void
peer_wait(struct peer *peer, const unsigned *field, unsigned want)
{
	struct timespec until;
	unsigned have;

	assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
	until.tv_sec += LIMIT_S;
	pthread_mutex_lock(&peer->lock);
	while (*field < want) {
		if (pthread_cond_timedwait(&peer->changed, &peer->lock, &until) != 0) {
			break;
		}
	}
	have = *field;
	pthread_mutex_unlock(&peer->lock);
	if (have < want) {
		print_error("waited for %u, have %u; log:\n%s", want, have, peer->text);
	}
	assert_true(have >= want);
}

unsigned
peer_now(struct peer *peer, const unsigned *field)
{
	unsigned have;

	pthread_mutex_lock(&peer->lock);
	have = *field;
	pthread_mutex_unlock(&peer->lock);
	return have;
}

bool
peer_said(struct peer *peer, const char *text)
{
	bool found;

	pthread_mutex_lock(&peer->lock);
	found = strstr(peer->text, text) != NULL;
	if (!found) {
		print_error("not said: %s; log:\n%s", text, peer->text);
	}
	pthread_mutex_unlock(&peer->lock);
	return found;
}

uint64_t
peer_metric(const struct peer *peer, enum kvp_rpc_row row)
{
	return kvp_metric_get(&peer->metrics, 1 + row);
}

/* --- links and calls ----------------------------------------------------------------------------
 */
static void
peer_up(void *arg, struct kvp_rpc_link *link)
{
	struct peer *peer = arg;

	pthread_mutex_lock(&peer->lock);
	peer->ident = link->peer;
	peer->ups++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

static void
peer_down(void *arg, struct kvp_rpc_link *link, int why)
{
	struct peer *peer = arg;

	(void)link;
	pthread_mutex_lock(&peer->lock);
	peer->why = why;
	peer->downs++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->lock);
}

struct peer_linking {
	struct peer *peer;
	const char *addr;
	struct kvp_rpc_link *link;
	int err;
};

static void
peer_do_link(void *arg)
{
	struct peer_linking *linking = arg;
	struct kvp_rpc_link_cfg cfg = {
		.addr = linking->addr, .arg = linking->peer, .up = peer_up, .down = peer_down};

	linking->err = linking->peer->rpc->ops->link_open(linking->peer->rpc, &cfg, &linking->link);
}

struct kvp_rpc_link *
peer_link(struct peer *peer, const char *addr)
{
	struct peer_linking linking = {.peer = peer, .addr = addr};

	peer_do(peer, peer_do_link, &linking);
	assert_int_equal(linking.err, 0);
	return linking.link;
}

static void
peer_do_unlink(void *arg)
{
	struct kvp_rpc_link *link = arg;

	link->rpc->ops->link_close(link);
}

void
peer_unlink(struct peer *peer, struct kvp_rpc_link *link)
{
	peer_do(peer, peer_do_unlink, link);
}

static void
peer_call_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	static _Atomic uint64_t order;
	struct peer_call *call = kvp_container_of(req, struct peer_call, req);

	call->status = status;
	call->order = atomic_fetch_add(&order, 1);
	if (len > 0) {
		call->reply = malloc(len);
		memcpy(call->reply, body, len);
	}
	call->reply_len = len;
	peer_bump(call->peer, &call->done);
}

static void
peer_do_call(void *arg)
{
	struct peer_call *call = arg;

	call->link->rpc->ops->call(call->link, &call->req, call->body, call->len);
}

void
peer_call_start(struct peer *peer, struct peer_call *call, struct kvp_rpc_link *link, uint16_t type,
	const void *body, size_t len, unsigned timeout_ms)
{
	memset(call, 0, sizeof(*call));
	call->peer = peer;
	call->link = link;
	call->body = body;
	call->len = len;
	call->req.type = type;
	call->req.deadline_ns = kvp_now_ns(kvp_env_real()) + timeout_ms * KVP_NS_PER_MS;
	call->req.done = peer_call_done;
	peer->rpc->ops->post(peer->rpc, peer_do_call, call);
}

int
peer_call_wait(struct peer_call *call)
{
	peer_wait(call->peer, &call->done, 1);
	assert_int_equal(call->done, 1);
	return call->status;
}

void
peer_call_free(struct peer_call *call)
{
	free(call->reply);
	call->reply = NULL;
}

int
peer_call_status(struct peer *peer, struct kvp_rpc_link *link, uint16_t type, unsigned timeout_ms)
{
	struct peer_call call;
	int status;

	peer_call_start(peer, &call, link, type, NULL, 0, timeout_ms);
	status = peer_call_wait(&call);
	peer_call_free(&call);
	return status;
}

/* --- raw sockets --------------------------------------------------------------------------------
 */
static void
raw_limit(int fd)
{
	struct timeval limit = {.tv_sec = LIMIT_S};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
}

int
raw_connect(const char *text)
{
	struct kvp_addr addr;
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd;

	assert_int_equal(kvp_addr_parse(text, -1, &addr), 0);
	fd = socket(addr.is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	raw_limit(fd);
	if (addr.is_unix) {
		(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%.100s", addr.host);
		assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	} else {
		sin.sin_port = htons(addr.port);
		assert_int_equal(inet_pton(AF_INET, addr.host, &sin.sin_addr), 1);
		assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	}
	return fd;
}

int
raw_listen(char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	raw_limit(fd);
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	(void)snprintf(ret_addr, KVP_ADDR_LEN_MAX, "127.0.0.1:%u", ntohs(sin.sin_port));
	return fd;
}

void
raw_send(int fd, const void *buf, size_t len)
{
	const uint8_t *pos = buf;

	while (len > 0) {
		ssize_t part = send(fd, pos, len, MSG_NOSIGNAL);

		assert_true(part > 0);
		pos += part;
		len -= (size_t)part;
	}
}

void
raw_send_frame(int fd, const struct kvp_frame *frame, const void *body)
{
	uint8_t header[KVP_FRAME_HEADER_LEN];

	kvp_frame_encode(frame, header);
	raw_send(fd, header, sizeof(header));
	raw_send(fd, body, frame->body_len);
}

size_t
raw_recv(int fd, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t part = recv(fd, (uint8_t *)buf + got, len - got, 0);

		if (part < 0) {
			assert_int_equal(
				errno, ECONNRESET); /* it closed with bytes of ours unread */
		}
		if (part <= 0) {
			break;
		}
		got += (size_t)part;
	}
	return got;
}

bool
raw_recv_frame(int fd, struct kvp_frame *ret_frame, uint8_t **ret_body)
{
	uint8_t header[KVP_FRAME_HEADER_LEN];

	if (raw_recv(fd, header, sizeof(header)) < sizeof(header)) {
		return false;
	}
	assert_int_equal(kvp_frame_decode(header, KVP_FRAME_LEN_MAX, ret_frame), 0);
	*ret_body = malloc((size_t)ret_frame->body_len + 1);
	assert_non_null(*ret_body);
	assert_int_equal(raw_recv(fd, *ret_body, ret_frame->body_len), ret_frame->body_len);
	return true;
}

int
raw_hello(const char *addr)
{
	const struct kvp_hello_range range = {KVP_PROTO_VERSION_MIN, KVP_PROTO_VERSION};
	struct kvp_ident self = {.kind = KVP_PEER_TOOL, .name = "raw"};
	struct kvp_frame frame = {.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REQUEST, .id = 99};
	uint8_t *body;
	size_t len;
	int fd = raw_connect(addr);

	assert_int_equal(kvp_hello_request(&self, &range, &body, &len), 0);
	frame.body_len = (uint32_t)len;
	raw_send_frame(fd, &frame, body);
	free(body);
	assert_true(raw_recv_frame(fd, &frame, &body));
	free(body);
	assert_int_equal(frame.kind, KVP_FRAME_REPLY);
	assert_int_equal(frame.type, KVP_RPC_HELLO);
	assert_int_equal(frame.id, 99);
	assert_int_equal(frame.status, 0);
	return fd;
}

void
raw_expect_end(int fd)
{
	uint8_t byte;

	assert_int_equal(raw_recv(fd, &byte, 1), 0);
	assert_int_equal(close(fd), 0);
}

unsigned
count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	assert_int_equal(closedir(dir), 0);
	return count;
}
