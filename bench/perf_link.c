/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_link.c - requests by one-sided writes, replies by reading until the number changes. The
 * connection is one of its own, so that nothing of it stands in the way of what is measured.
 */
#include "bench/perf_link.h"

#include "bench/perf_xport.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LINK_CALL_NS (60 * KVP_NS_PER_S) /* a server may have gigabytes to fill */
#define LINK_BEAT_NS KVP_NS_PER_S

/* Local places, in one page. */
enum { AT_REQUEST = 0, AT_ASKED = 1024, AT_REPLY = 2048, AT_ANSWERED = 3072, AT_BEAT = 3136 };

struct kvp_perf_link {
	struct kvp_perf *perf;
	struct kvp_log log;
	struct kvp_perf_ticket ticket;
	struct kvp_xport *xport;
	struct kvp_conn *conn; /* NULL: down */
	struct kvp_mem mem;
	struct kvp_mr *mr;
	uint8_t *page;
	uint64_t asked;
	uint64_t beats;
	uint64_t beat_ns;
	struct kvp_io beat_io;
	bool beating; /* beat_io is out */
};

static int
link_move(struct kvp_perf_link *link, bool write, uint32_t local, uint32_t remote, uint32_t len)
{
	struct kvp_perf_move move = {
		.write = write,
		.seg = {.mr = link->mr, .addr = link->page + local, .len = len},
		.rdesc = write ? &link->ticket.write_desc : &link->ticket.read_desc,
		.off = remote,
	};
	int ret;

	if (link->conn == NULL) {
		return -KVP_E_CONNDOWN;
	}
	ret = kvp_perf_xport_move(link->xport, link->conn, &move);
	if (ret < 0) {
		link->conn = NULL;
	}
	return ret;
}

static int
link_send(struct kvp_perf_link *link, struct kvp_perf_request *request)
{
	int ret;

	request->version = KVP_PERF_PAGE_VERSION;
	kvp_perf_request_write(request, link->page + AT_REQUEST);
	link->asked++;
	memcpy(link->page + AT_ASKED, &link->asked, sizeof(link->asked));
	ret = link_move(link, true, AT_REQUEST, KVP_PERF_AT_REQUEST, KVP_PERF_REQUEST_LEN);
	/* The number second, once the request is there. */
	return ret < 0 ? ret : link_move(link, true, AT_ASKED, KVP_PERF_AT_ASKED, 8);
}

static int
link_receive(struct kvp_perf_link *link, struct kvp_perf_reply *ret_reply)
{
	uint64_t end = kvp_now_ns(kvp_env_real()) + LINK_CALL_NS;
	uint64_t answered = 0;

	for (;;) {
		int ret = link_move(link, false, AT_ANSWERED, KVP_PERF_AT_ANSWERED, 8);

		if (ret < 0) {
			return ret;
		}
		memcpy(&answered, link->page + AT_ANSWERED, sizeof(answered));
		if (answered == link->asked) {
			break;
		}
		if (kvp_now_ns(kvp_env_real()) > end) {
			return -KVP_E_TIMEOUT;
		}
		(void)poll(NULL, 0, 1);
	}
	if (link_move(link, false, AT_REPLY, KVP_PERF_AT_REPLY, KVP_PERF_REPLY_LEN) < 0) {
		return -KVP_E_CONNDOWN;
	}
	return kvp_perf_reply_read(link->page + AT_REPLY, ret_reply);
}

int
kvp_perf_link_call(struct kvp_perf_link *link, struct kvp_perf_request *request,
	struct kvp_perf_reply *ret_reply)
{
	int ret = link_send(link, request);

	if (ret == 0) {
		ret = link_receive(link, ret_reply);
	}
	if (ret < 0) {
		return kvp_perf_fail(
			link->perf, ret, "server %s: %s", link->ticket.addr, kvp_err_str(ret));
	}
	if (ret_reply->refused[0] != '\0') {
		return kvp_perf_fail(link->perf, -KVP_E_CONFIG,
			"server %s cannot comply with --%s: %s", link->ticket.addr,
			ret_reply->refused, ret_reply->why);
	}
	if (ret_reply->status < 0) {
		return kvp_perf_fail(link->perf, ret_reply->status, "server %s: %s: %s",
			link->ticket.addr, ret_reply->why, kvp_err_str(ret_reply->status));
	}
	return 0;
}

static void
beat_done(struct kvp_io *io)
{
	kvp_container_of(io, struct kvp_perf_link, beat_io)->beating = false;
}

void
kvp_perf_link_beat(struct kvp_perf_link *link)
{
	uint64_t now = kvp_now_ns(kvp_env_real());
	struct kvp_seg seg = {.mr = link->mr, .addr = link->page + AT_BEAT, .len = 8};

	(void)link->xport->ops->poll(link->xport, 4);
	if (link->conn == NULL || link->beating || now - link->beat_ns < LINK_BEAT_NS) {
		return;
	}
	link->beat_ns = now;
	link->beats++;
	memcpy(link->page + AT_BEAT, &link->beats, sizeof(link->beats));
	link->beat_io = (struct kvp_io){.done = beat_done};
	link->beating = link->xport->ops->write(link->conn, &seg, 1, &link->ticket.write_desc,
				KVP_PERF_AT_ASKED + 8, &link->beat_io) == 0;
	/* A failure shows in the next call. */
}

int
kvp_perf_link_open(struct kvp_perf *perf, const struct kvp_perf_ticket *ticket,
	struct kvp_perf_link **ret_link)
{
	struct kvp_perf_xport_want want = {.transport = ticket->transport, .depth = 4, .conns = 1};
	struct kvp_perf_link *link = calloc(1, sizeof(*link));
	int ret;

	if (link == NULL ||
		posix_memalign((void **)&link->page, KVP_PERF_PAGE_LEN, KVP_PERF_PAGE_LEN) != 0) {
		free(link);
		return kvp_perf_fail(perf, -ENOMEM, "out of memory");
	}
	memset(link->page, 0, KVP_PERF_PAGE_LEN);
	link->perf = perf;
	link->log = kvp_perf_xport_log();
	link->ticket = *ticket;
	link->mem = kvp_mem_wrap(link->page, KVP_PERF_PAGE_LEN);
	ret = kvp_perf_xport_open(perf->cfg, &link->log, &want, &link->xport);
	if (ret == 0) {
		ret = link->xport->ops->mr_reg(link->xport, &link->mem, KVP_MR_LOCAL, &link->mr);
	}
	if (ret == 0) {
		ret = kvp_perf_xport_connect(link->xport, ticket->addr, ticket->token, &link->conn);
	}
	if (ret < 0) {
		kvp_perf_link_close(link);
		return kvp_perf_fail(perf, ret, "%s server %s: %s", ticket->transport, ticket->addr,
			kvp_err_str(ret));
	}
	*ret_link = link;
	return 0;
}

void
kvp_perf_link_close(struct kvp_perf_link *link)
{
	struct kvp_perf_request bye = {.op = KVP_PERF_REQ_BYE};

	if (link == NULL) {
		return;
	}
	if (link->conn != NULL) {
		(void)link_send(link, &bye); /* a server that is gone does not need it */
	}
	if (link->conn != NULL) {
		link->xport->ops->disconnect(link->conn);
	}
	while (link->beating) {
		(void)link->xport->ops->poll(link->xport, 4);
	}
	if (link->mr != NULL) {
		link->xport->ops->mr_dereg(link->mr);
	}
	if (link->xport != NULL) {
		link->xport->ops->close(link->xport);
	}
	free(link->page);
	free(link);
}
