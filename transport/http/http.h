/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - the one HTTP endpoint of a daemon: /metrics (Prometheus text), /healthz (the process
 * lives), /readyz (it serves). On libmicrohttpd's own thread; reads only atomics.
 */
#ifndef KVP_TRANSPORT_HTTP_H
#define KVP_TRANSPORT_HTTP_H

#include "hal/base/limits.h"
#include "hal/base/log.h"
#include "hal/base/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>

struct kvp_http;

struct kvp_http_cfg {
	const char *addr; /* host:port, port 0: any; literal addresses only */
	const struct kvp_log *log;
	const struct kvp_metrics *metrics;
	const _Atomic bool *ready;
	/* Called on the HTTP thread before rendering, to set gauges; may be NULL. */
	void (*refresh)(void *arg);
	void *arg;
};

/* ret_addr: where it really listens. -EADDRINUSE and so on: the caller names address and purpose.
 */
int kvp_http_open(const struct kvp_http_cfg *cfg, char ret_addr[KVP_ADDR_LEN_MAX],
	struct kvp_http **ret_http);
void kvp_http_close(struct kvp_http *http); /* joins its thread; NULL is fine */

#endif /* KVP_TRANSPORT_HTTP_H */
