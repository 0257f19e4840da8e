/* SPDX-License-Identifier: Apache-2.0 */
/* perf_xport.c - see perf_xport.h. Waiting polls, and after a while sleeps a millisecond a turn. */
#include "bench/perf_xport.h"

#include "hal/base/err.h"

#include <poll.h>
#include <string.h>

#define WAIT_NS   (10 * KVP_NS_PER_S) /* for one connection or operation */
#define WAIT_SPIN 2000u               /* turns before it sleeps */

struct waiter {
	struct kvp_io io;
	bool done;
};

static void
waiter_done(struct kvp_io *io)
{
	kvp_container_of(io, struct waiter, io)->done = true;
}

/* Returns its status, or -KVP_E_TIMEOUT with the io still out. */
static int
waiter_wait(struct kvp_xport *xport, struct waiter *w)
{
	uint64_t end = kvp_now_ns(kvp_env_real()) + WAIT_NS;
	uint32_t turns = 0;

	while (!w->done) {
		if (xport->ops->poll(xport, 16) > 0) {
			continue;
		}
		if (kvp_now_ns(kvp_env_real()) > end) {
			return -KVP_E_TIMEOUT;
		}
		if (++turns > WAIT_SPIN) {
			(void)poll(NULL, 0, 1);
		}
	}
	return w->io.status;
}

/* Ends a connection whose last io may still be out; the io lives here, so it must come back. */
static void
waiter_abandon(struct kvp_xport *xport, struct kvp_conn *conn, struct waiter *w)
{
	xport->ops->disconnect(conn);
	while (!w->done) {
		(void)xport->ops->poll(xport, 16);
	}
}

int
kvp_perf_xport_connect(struct kvp_xport *xport, const char *addr,
	const uint8_t token[KVP_TOKEN_LEN], struct kvp_conn **ret_conn)
{
	struct waiter w = {.io = {.done = waiter_done}};
	struct kvp_conn *conn = NULL;
	int ret = xport->ops->connect(xport, addr, token, &w.io, &conn);

	if (ret < 0) {
		return ret;
	}
	ret = waiter_wait(xport, &w);
	if (ret < 0) {
		waiter_abandon(xport, conn, &w);
		return ret;
	}
	*ret_conn = conn;
	return 0;
}

int
kvp_perf_xport_move(
	struct kvp_xport *xport, struct kvp_conn *conn, const struct kvp_perf_move *move)
{
	struct waiter w = {.io = {.done = waiter_done}};
	int ret = move->write
			  ? xport->ops->write(conn, &move->seg, 1, move->rdesc, move->off, &w.io)
			  : xport->ops->read(conn, &move->seg, 1, move->rdesc, move->off, &w.io);

	if (ret < 0) {
		xport->ops->disconnect(conn);
		return ret;
	}
	ret = waiter_wait(xport, &w);
	if (ret < 0) {
		waiter_abandon(xport, conn, &w);
	}
	return ret;
}

struct kvp_log
kvp_perf_xport_log(void)
{
	return (struct kvp_log){.level = KVP_LOG_WARN, .sink = kvp_log_stderr};
}

int
kvp_perf_xport_open(const struct kvp_perf_cfg *cfg, const struct kvp_log *log,
	const struct kvp_perf_xport_want *want, struct kvp_xport **ret_xport)
{
	bool choose = strcmp(want->transport, "auto") == 0;
	struct kvp_xport_cfg xcfg = {
		.env = kvp_env_real(),
		.log = choose ? NULL : log, /* what is not chosen is no reason to warn */
		.device = cfg->device,
		.provider = cfg->provider,
		.io_depth = want->depth,
		.conns_max = want->conns,
	};
	const struct kvp_xport_ops *const *all;
	size_t count;
	int ret = -KVP_E_NO_PROVIDER;

	if (!choose) {
		const struct kvp_xport_ops *ops = kvp_xport_find(want->transport);

		return ops == NULL ? ret : ops->open(&xcfg, ret_xport);
	}
	all = kvp_xport_all(&count);
	for (size_t i = 0; i < count && ret < 0; i++) {
		if (!want->remote || (all[i]->caps & KVP_XPORT_LOCAL) == 0) {
			ret = all[i]->open(&xcfg, ret_xport);
		}
	}
	return ret;
}
