/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_server.h - the other side of a raw test: memory, and a control page (perf_page.h). It
 * serves one client, which tells all settings, and ends with it.
 */
#ifndef KVP_BENCH_PERF_SERVER_H
#define KVP_BENCH_PERF_SERVER_H

#include "bench/perf.h"
#include "bench/perf_page.h"

#include <sys/types.h>

/* --server: until the client says goodbye, falls silent, or a signal comes. */
int kvp_perf_server_run(struct kvp_perf *perf);

/* The same in a child on this host; it ends with us. Call it before anything makes threads. */
struct kvp_perf_child {
	pid_t pid;
	int fd; /* open as long as it shall live */
};
int kvp_perf_server_fork(struct kvp_perf *perf, struct kvp_perf_child *ret_child,
	struct kvp_perf_ticket *ret_ticket);
/* Waits for its end. */
void kvp_perf_server_reap(struct kvp_perf_child *child);

#endif /* KVP_BENCH_PERF_SERVER_H */
