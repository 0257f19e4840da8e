/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - a table of 64-bit counters and gauges, one instance per daemon or client.
 *
 * A module lists its rows in a .def file, KVP_METRIC(NAME, COUNTER|GAUGE, "prometheus_name",
 * "help"), from which it makes an enum and a kvp_metric_desc array. A name may end in labels:
 * kvpool_node_rejects_total{reason="frame"}; rows of one family stand together.
 * THREADS any: values are relaxed atomics; a reader sees each value, not one instant.
 */
#ifndef KVP_HAL_BASE_METRICS_H
#define KVP_HAL_BASE_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum kvp_metric_kind { KVP_METRIC_COUNTER, KVP_METRIC_GAUGE };

struct kvp_metric_desc {
	enum kvp_metric_kind kind;
	const char *name;
	const char *help;
};

struct kvp_metrics {
	const struct kvp_metric_desc *desc;
	size_t count;
	_Atomic uint64_t *values; /* count of them; owned by the holder of this struct */
};

/* Allocates the values. -ENOMEM. */
int kvp_metrics_init(struct kvp_metrics *metrics, const struct kvp_metric_desc *desc, size_t count);
void kvp_metrics_fini(struct kvp_metrics *metrics);

static inline void
kvp_metric_add(struct kvp_metrics *metrics, size_t idx, uint64_t n)
{
	if (metrics != NULL) {
		atomic_fetch_add_explicit(&metrics->values[idx], n, memory_order_relaxed);
	}
}

static inline void
kvp_metric_set(struct kvp_metrics *metrics, size_t idx, uint64_t value)
{
	if (metrics != NULL) {
		atomic_store_explicit(&metrics->values[idx], value, memory_order_relaxed);
	}
}

static inline uint64_t
kvp_metric_get(const struct kvp_metrics *metrics, size_t idx)
{
	return atomic_load_explicit(&metrics->values[idx], memory_order_relaxed);
}

/* Prometheus text format 0.0.4. Returns the length without NUL (as snprintf does: it may be
 * larger than cap, then the text is cut). */
size_t kvp_metrics_render(const struct kvp_metrics *metrics, char *buf, size_t cap);

#endif /* KVP_HAL_BASE_METRICS_H */
