// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - the table of kvpoold's metrics. The HTTP thread reads only the values; everything
 * that lies in loop-owned structures is copied into them by the tick.
 */
#include "pool/node/announce.h"
#include "pool/node/ssd.h"

const struct kvp_metric_desc kvp_node_metrics[KVP_NODE_METRIC_COUNT] = {
#define KVP_METRIC(name, kind, text, help) {KVP_METRIC_##kind, text, help},
#include "pool/node/node_metrics.def"
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
};

void
kvp_node_metrics_set(struct kvp_node *node)
{
	struct kvp_metrics *metrics = node->cfg.metrics;
	struct kvp_store_stats stats;

	kvp_store_stats(node->store, &stats);
	if (node->ssd != NULL) {
		kvp_ssd_uncount(node->ssd, &stats);
	}
	kvp_metric_set(metrics, KVP_NODE_BYTES_TOTAL, stats.bytes_total);
	kvp_metric_set(metrics, KVP_NODE_BYTES_USED, stats.bytes_used);
	kvp_metric_set(metrics, KVP_NODE_BYTES_FREE, stats.bytes_free);
	kvp_metric_set(metrics, KVP_NODE_BLOCKS, stats.blocks);
	kvp_metric_set(metrics, KVP_NODE_GRANTED, stats.granted);
	kvp_metric_set(metrics, KVP_NODE_LOST, stats.lost);
	kvp_metric_set(metrics, KVP_NODE_QUARANTINED, stats.quarantined);
	kvp_metric_set(metrics, KVP_NODE_GRANTS_EXPIRED, stats.grants_expired);
	kvp_metric_set(metrics, KVP_NODE_OFFERS_EXISTS, stats.exists);
	kvp_metric_set(metrics, KVP_NODE_OFFERS_IN_PROGRESS, stats.in_progress);
	kvp_metric_set(metrics, KVP_NODE_OFFERS_NO_SPACE, stats.no_space);
	kvp_metric_set(metrics, KVP_NODE_OFFERS_BUSY, stats.busy);
	kvp_metric_set(metrics, KVP_NODE_COMMITS, stats.puts);
	kvp_metric_set(metrics, KVP_NODE_COMMITS_REFUSED, stats.commits_refused);
	kvp_metric_set(metrics, KVP_NODE_EVICTED, stats.evicted);
	kvp_metric_set(metrics, KVP_NODE_DELETED, stats.deleted);
	kvp_metric_set(metrics, KVP_NODE_RECOVERED, stats.recovered);
	kvp_metric_set(metrics, KVP_NODE_CORRUPT, stats.corrupt);
	kvp_metric_set(metrics, KVP_NODE_TOUCHES, stats.touches);
	kvp_metric_set(metrics, KVP_NODE_TOUCHES_STALE, stats.touches_stale);
	kvp_metric_set(metrics, KVP_NODE_LEASES, stats.leases);
	kvp_metric_set(metrics, KVP_NODE_LEASED_BLOCKS, stats.leased_blocks);
	kvp_metric_set(metrics, KVP_NODE_LEASED_BYTES, stats.leased_bytes);
	kvp_metric_set(metrics, KVP_NODE_LEASES_EXPIRED, stats.leases_expired);
	kvp_metric_set(metrics, KVP_NODE_LEASES_REFUSED, stats.leases_refused);
	kvp_metric_set(metrics, KVP_NODE_NAMESPACES, stats.namespaces);
	kvp_metric_set(metrics, KVP_NODE_OVER_QUOTA, stats.over_quota);
	kvp_metric_set(metrics, KVP_NODE_CLEARED, stats.cleared);
	kvp_metric_set(metrics, KVP_NODE_OLD_EPOCH, stats.old_epoch);
	kvp_metric_set(metrics, KVP_NODE_SESSIONS, node->sessions_open);
	kvp_metric_set(metrics, KVP_NODE_FENCES_PENDING, node->sessions_fencing);
	kvp_metric_set(metrics, KVP_NODE_METAS, node->cfg.meta_count);
	kvp_metric_set(metrics, KVP_NODE_METAS_LIVE, kvp_announce_live_count(node->announce));
	kvp_metric_set(metrics, KVP_NODE_SEQUENCE, kvp_announce_sequence(node->announce));
	if (node->ssd != NULL) {
		kvp_ssd_metrics(node->ssd);
	}
}
