/* SPDX-License-Identifier: Apache-2.0 */
/* perf_link.h - the client's end of a raw server's control page. One thread. */
#ifndef KVP_BENCH_PERF_LINK_H
#define KVP_BENCH_PERF_LINK_H

#include "bench/perf.h"
#include "bench/perf_page.h"

struct kvp_perf_link;

/* Connects to the server of a ticket. Errors are told. */
int kvp_perf_link_open(struct kvp_perf *perf, const struct kvp_perf_ticket *ticket,
	struct kvp_perf_link **ret_link);

/* Asks and waits. Errors, also those of the reply, are told. After one the link is only good for
 * being closed, but for a refusal. */
int kvp_perf_link_call(struct kvp_perf_link *link, struct kvp_perf_request *request,
	struct kvp_perf_reply *ret_reply);

/* Says that we live, if the last time was a while ago. Does not wait. */
void kvp_perf_link_beat(struct kvp_perf_link *link);

/* Says goodbye, so that the server ends, and closes. NULL is fine. */
void kvp_perf_link_close(struct kvp_perf_link *link);

#endif /* KVP_BENCH_PERF_LINK_H */
