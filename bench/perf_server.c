/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_server.c - looks at its control page a hundred times a second; the transport does the
 * rest. The page's transport and that of the data are two, because memory must be registered
 * before a transport listens, and how much there has to be is in the first request.
 */
#include "bench/perf_server.h"

#include "bench/perf_xport.h"
#include "hal/base/addr.h"
#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER_LOOK_MS    10
#define SERVER_SILENCE_NS (60 * KVP_NS_PER_S)
#define SERVER_REAP_MS    5000

/* A transport with one region. */
struct side {
	struct kvp_xport *xport;
	struct kvp_mem mem;
	struct kvp_mr *read_mr;
	struct kvp_mr *write_mr;
	char addr[KVP_ADDR_LEN_MAX];
	uint8_t token[KVP_TOKEN_LEN];
};

struct server {
	struct kvp_perf *perf;
	struct kvp_log log;
	struct side page;
	struct side data;
	char dir[64]; /* of our sockets; empty: none */
	uint64_t answered;
	uint64_t beats;
	uint64_t heard_ns; /* 0: no client yet */
	bool done;
};

static void
side_close(struct side *side)
{
	if (side->read_mr != NULL) {
		side->xport->ops->mr_dereg(side->read_mr);
	}
	if (side->write_mr != NULL) {
		side->xport->ops->mr_dereg(side->write_mr);
	}
	if (side->xport != NULL) {
		side->xport->ops->close(side->xport);
	}
	kvp_mem_close(&side->mem);
}

/* The transport is open. On an error the caller closes the side. */
static int
side_listen(struct side *side, const char *addr, uint64_t len, uint32_t access)
{
	const struct kvp_xport_ops *ops = side->xport->ops;
	const struct kvp_mem_cfg cfg = {.len = len, .mode = 0600};
	int ret = kvp_mem_create(&cfg, &side->mem);

	if (ret == 0 && (access & KVP_MR_REMOTE_READ) != 0) {
		ret = ops->mr_reg(side->xport, &side->mem, KVP_MR_REMOTE_READ, &side->read_mr);
	}
	if (ret == 0 && (access & KVP_MR_REMOTE_WRITE) != 0) {
		ret = ops->mr_reg(side->xport, &side->mem, KVP_MR_REMOTE_WRITE, &side->write_mr);
	}
	if (ret == 0) {
		ret = ops->listen(side->xport, addr, side->addr);
	}
	if (ret == 0) {
		kvp_env_real()->random(kvp_env_real(), side->token, sizeof(side->token));
		ret = ops->admit(side->xport, side->token);
	}
	return ret;
}

static bool
server_is_local(const struct server *s)
{
	return (s->page.xport->ops->caps & KVP_XPORT_LOCAL) != 0;
}

/* Where the page (0) or the data (1) listens. */
static int
server_addr(struct server *s, uint32_t which, char addr[KVP_ADDR_LEN_MAX])
{
	const struct kvp_perf_cfg *cfg = s->perf->cfg;
	struct kvp_addr parsed;

	if (server_is_local(s)) {
		if (cfg->listen != NULL) {
			snprintf(addr, KVP_ADDR_LEN_MAX, "%s%s", cfg->listen, which ? ".data" : "");
			return 0;
		}
		if (s->dir[0] == '\0') {
			strcpy(s->dir, "/tmp/kvpool-perf-XXXXXX");
			if (mkdtemp(s->dir) == NULL) {
				s->dir[0] = '\0';
				return -errno;
			}
		}
		snprintf(addr, KVP_ADDR_LEN_MAX, "%s/%s", s->dir, which ? "data" : "page");
		return 0;
	}
	if (kvp_addr_parse(cfg->listen != NULL ? cfg->listen : "127.0.0.1", cfg->port, &parsed) <
		0) {
		return kvp_perf_fail(
			s->perf, -KVP_E_CONFIG, "--listen: '%s' is not HOST", cfg->listen);
	}
	if (kvp_addr_is_wildcard(&parsed)) {
		return kvp_perf_fail(s->perf, -KVP_E_CONFIG,
			"--listen: '%s' is not an address that a client can go to", cfg->listen);
	}
	parsed.port = (uint16_t)(parsed.port == 0 ? 0 : parsed.port + which);
	kvp_addr_format(&parsed, addr, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
server_open(struct server *s)
{
	const struct kvp_perf_cfg *cfg = s->perf->cfg;
	struct kvp_perf_xport_want want = {
		.transport = cfg->transport, .remote = cfg->server, .conns = 4};
	char addr[KVP_ADDR_LEN_MAX];
	int ret = kvp_perf_xport_open(cfg, &s->log, &want, &s->page.xport);

	if (ret < 0) {
		return kvp_perf_fail(
			s->perf, ret, "transport %s: %s", cfg->transport, kvp_err_str(ret));
	}
	ret = server_addr(s, 0, addr);
	if (ret < 0) {
		return ret;
	}
	ret = side_listen(
		&s->page, addr, KVP_PERF_PAGE_LEN, KVP_MR_REMOTE_READ | KVP_MR_REMOTE_WRITE);
	if (ret < 0) {
		return kvp_perf_fail(s->perf, ret, "%s listening on %s: %s",
			s->page.xport->ops->name, addr, kvp_err_str(ret));
	}
	return 0;
}

static void
server_close(struct server *s)
{
	side_close(&s->data);
	side_close(&s->page);
	if (s->dir[0] != '\0') {
		(void)rmdir(s->dir); /* transports have removed their sockets */
	}
}

static void
refuse(struct kvp_perf_reply *reply, const char *option, const char *why)
{
	snprintf(reply->refused, sizeof(reply->refused), "%s", option);
	snprintf(reply->why, sizeof(reply->why), "%s", why);
}

static void
data_open(struct server *s, const struct kvp_perf_request *request, struct kvp_perf_reply *reply)
{
	struct kvp_perf_xport_want want = {
		.transport = s->page.xport->ops->name, .conns = KVP_PERF_QPS_MAX};
	char addr[KVP_ADDR_LEN_MAX];
	int ret;

	if (request->qps > KVP_PERF_QPS_MAX) {
		refuse(reply, "qp", "at most 64 connections");
		return;
	}
	if (s->data.xport != NULL) {
		reply->status = -KVP_E_PROTO;
		return;
	}
	ret = kvp_perf_xport_open(s->perf->cfg, &s->log, &want, &s->data.xport);
	if (ret == 0) {
		ret = server_addr(s, 1, addr);
	}
	if (ret == 0) {
		ret = side_listen(&s->data, addr, request->len, request->access);
	}
	if (ret < 0) {
		side_close(&s->data);
		memset(&s->data, 0, sizeof(s->data));
	}
	if (ret == -ENOSPC || ret == -ENOMEM || ret == -EINVAL) {
		refuse(reply, "region", kvp_err_str(ret));
		return;
	}
	reply->status = ret;
	if (ret < 0) {
		snprintf(
			reply->why, sizeof(reply->why), "data on port %u", s->perf->cfg->port + 1u);
		return;
	}
	memcpy(reply->addr, s->data.addr, sizeof(reply->addr));
	memcpy(reply->token, s->data.token, sizeof(reply->token));
	s->data.xport->ops->mr_rdesc(
		s->data.read_mr != NULL ? s->data.read_mr : s->data.write_mr, &reply->rdesc);
}

static void
data_each(struct server *s, const struct kvp_perf_request *request, struct kvp_perf_reply *reply)
{
	uint64_t stride = kvp_perf_stride(request->size);
	uint8_t *base = s->data.mem.base;

	if (base == NULL || request->size == 0 || request->size > KVP_BLOCK_LEN_MAX ||
		request->blocks > s->data.mem.len / stride) {
		reply->status = -KVP_E_PROTO;
		return;
	}
	for (uint32_t k = 0; k < request->blocks; k++) {
		if (request->op == KVP_PERF_REQ_FILL) {
			kvp_perf_fill(base + k * stride, request->size, k);
		} else {
			reply->wrong_bytes += kvp_perf_wrong(base + k * stride, request->size, k);
		}
	}
}

static uint64_t
cpu_now(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage); /* cannot fail */
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * KVP_NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static void
server_answer(struct server *s, uint64_t asked)
{
	uint8_t *page = s->page.mem.base;
	struct kvp_perf_request request;
	struct kvp_perf_reply reply = {0};
	uint8_t bytes[KVP_PERF_REQUEST_LEN];

	memcpy(bytes, page + KVP_PERF_AT_REQUEST, sizeof(bytes)); /* the client may change it */
	reply.status = kvp_perf_request_read(bytes, &request);
	if (reply.status < 0) {
		snprintf(reply.why, sizeof(reply.why), "request");
	} else if (request.op == KVP_PERF_REQ_OPEN) {
		data_open(s, &request, &reply);
	} else if (request.op == KVP_PERF_REQ_FILL || request.op == KVP_PERF_REQ_CHECK) {
		data_each(s, &request, &reply);
	} else if (request.op == KVP_PERF_REQ_BYE) {
		s->done = true;
	} else if (request.op != KVP_PERF_REQ_STAT) {
		reply.status = -KVP_E_PROTO;
	}
	reply.cpu_ns = cpu_now();
	kvp_perf_reply_write(&reply, page + KVP_PERF_AT_REPLY);
	__atomic_store_n((uint64_t *)(page + KVP_PERF_AT_ANSWERED), asked, __ATOMIC_SEQ_CST);
	s->answered = asked;
}

static int
server_loop(struct server *s)
{
	const uint64_t *asked_at = (uint64_t *)((uint8_t *)s->page.mem.base + KVP_PERF_AT_ASKED);
	struct pollfd stop = {.fd = s->perf->stop_fd, .events = POLLIN};

	while (!s->done) {
		uint64_t asked = __atomic_load_n(asked_at, __ATOMIC_ACQUIRE);
		uint64_t beats = __atomic_load_n(asked_at + 1, __ATOMIC_ACQUIRE);
		uint64_t now = kvp_now_ns(kvp_env_real());

		if (asked != s->answered || beats != s->beats) {
			s->beats = beats;
			s->heard_ns = now;
		}
		if (asked != s->answered) {
			server_answer(s, asked);
			continue;
		}
		if (s->heard_ns != 0 && now - s->heard_ns > SERVER_SILENCE_NS) {
			return kvp_perf_fail(
				s->perf, -KVP_E_TIMEOUT, "nothing heard of the client for 60 s");
		}
		/* A signal; or, in a child, that its parent let go of the pipe. */
		if (poll(&stop, 1, SERVER_LOOK_MS) > 0) {
			return 0;
		}
	}
	return 0;
}

static void
server_ticket(const struct server *s, char text[KVP_PERF_TICKET_LEN])
{
	const struct kvp_xport_ops *ops = s->page.xport->ops;
	struct kvp_perf_ticket ticket;

	memset(&ticket, 0, sizeof(ticket));
	snprintf(ticket.transport, sizeof(ticket.transport), "%s", ops->name);
	memcpy(ticket.addr, s->page.addr, sizeof(ticket.addr));
	memcpy(ticket.token, s->page.token, sizeof(ticket.token));
	ops->mr_rdesc(s->page.read_mr, &ticket.read_desc);
	ops->mr_rdesc(s->page.write_mr, &ticket.write_desc);
	kvp_perf_ticket_format(&ticket, text);
}

static int
ticket_tell(const struct server *s)
{
	const char *path = s->perf->cfg->ticket_file;
	char text[KVP_PERF_TICKET_LEN + 1];
	int ret = 0;

	server_ticket(s, text);
	strcat(text, "\n");
	printf("\n************************************\n"
	       "* Waiting for client to connect... *\n"
	       "************************************\n%s",
		text);
	(void)fflush(stdout);
	if (path != NULL) {
		ret = kvp_file_replace(path, text, strlen(text), 0600);
	}
	return ret < 0 ? kvp_perf_fail(s->perf, ret, "ticket %s: %s", path, kvp_err_str(ret)) : 0;
}

int
kvp_perf_server_run(struct kvp_perf *perf)
{
	struct server s = {.perf = perf, .log = kvp_perf_xport_log()};
	int ret = server_open(&s);

	if (ret == 0) {
		ret = ticket_tell(&s);
	}
	if (ret == 0) {
		ret = server_loop(&s);
	}
	server_close(&s);
	return ret;
}

/* --- in a child ----------------------------------------------------------------------------------
 */

/* The pipe tells the ticket to our parent, and its end to us. */
static int
child_main(const struct kvp_perf *parent, int out)
{
	struct kvp_perf_cfg cfg = *parent->cfg;
	struct kvp_perf perf = {.cfg = &cfg, .stop_fd = out};
	struct server s = {.perf = &perf, .log = kvp_perf_xport_log()};
	char text[KVP_PERF_TICKET_LEN] = "";
	int ret;

	cfg.port = 0;
	ret = server_open(&s);
	if (ret == 0) {
		server_ticket(&s, text);
		ret = write(out, text, sizeof(text)) == sizeof(text) ? 0 : -EPIPE;
	}
	if (ret == 0) {
		ret = server_loop(&s);
	}
	server_close(&s);
	return ret < 0 ? KVP_CMD_TRANSPORT : KVP_CMD_OK;
}

int
kvp_perf_server_fork(
	struct kvp_perf *perf, struct kvp_perf_child *ret_child, struct kvp_perf_ticket *ret_ticket)
{
	struct kvp_perf_child child;
	char text[KVP_PERF_TICKET_LEN];
	int ends[2];
	ssize_t got;

	if (pipe2(ends, O_CLOEXEC) != 0) {
		return kvp_perf_fail(perf, -errno, "pipe: %s", kvp_err_str(-errno));
	}
	child.pid = fork();
	child.fd = ends[0];
	if (child.pid == 0) {
		(void)close(ends[0]);
		_exit(child_main(perf, ends[1]));
	}
	(void)close(ends[1]);
	got = child.pid < 0 ? -1 : read(child.fd, text, sizeof(text)); /* it comes in one piece */
	if (got != (ssize_t)sizeof(text) || kvp_perf_ticket_parse(text, ret_ticket) < 0) {
		kvp_perf_server_reap(&child);
		return kvp_perf_fail(perf, -KVP_E_NODEDOWN, "our own server did not start");
	}
	*ret_child = child;
	return 0;
}

void
kvp_perf_server_reap(struct kvp_perf_child *child)
{
	uint32_t waited_ms = 0;

	(void)close(child->fd); /* it sees that */
	while (child->pid > 0 && waitpid(child->pid, NULL, WNOHANG) == 0) {
		if (waited_ms >= SERVER_REAP_MS) {
			(void)kill(child->pid, SIGKILL);
			(void)waitpid(child->pid, NULL, 0);
			return;
		}
		(void)poll(NULL, 0, 5);
		waited_ms += 5;
	}
}
