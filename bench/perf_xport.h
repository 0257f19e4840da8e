/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_xport.h - the little of a transport that both sides of a raw test need: opening one by
 * name, connecting, and moving something and waiting for it. Errors are told by the caller.
 */
#ifndef KVP_BENCH_PERF_XPORT_H
#define KVP_BENCH_PERF_XPORT_H

#include "bench/perf.h"
#include "transport/xport.h"

struct kvp_perf_xport_want {
	const char *transport; /* "auto": the best that opens */
	bool remote;           /* auto: not one that reaches this host only */
	uint32_t depth;
	uint32_t conns;
};

/* The log goes to stderr, from warnings on. -KVP_E_NO_PROVIDER. */
int kvp_perf_xport_open(const struct kvp_perf_cfg *cfg, const struct kvp_log *log,
	const struct kvp_perf_xport_want *want, struct kvp_xport **ret_xport);
struct kvp_log kvp_perf_xport_log(void);

/* Connects and waits. */
int kvp_perf_xport_connect(struct kvp_xport *xport, const char *addr,
	const uint8_t token[KVP_TOKEN_LEN], struct kvp_conn **ret_conn);

/* Moves one segment and waits. On an error the connection is gone: use it no more. */
struct kvp_perf_move {
	bool write;
	struct kvp_seg seg;
	const struct kvp_rdesc *rdesc;
	uint64_t off;
};
int kvp_perf_xport_move(
	struct kvp_xport *xport, struct kvp_conn *conn, const struct kvp_perf_move *move);

#endif /* KVP_BENCH_PERF_XPORT_H */
