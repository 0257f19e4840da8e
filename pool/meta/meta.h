/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - kvpool-meta without its main(): the directory, node membership, lookups.
 *
 * Soft state: everything it knows came from the nodes' streams and comes again after a restart.
 * Works on an rpc loop, real or simulated. One thread: the loop's.
 */
#ifndef KVP_POOL_META_META_H
#define KVP_POOL_META_META_H

#include "hal/base/metrics.h"
#include "transport/rpc/rpc.h"

enum kvp_meta_metric {
#define KVP_METRIC(name, kind, text, help) KVP_META_##name,
#include "pool/meta/meta_metrics.def"
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
	KVP_META_METRIC_COUNT
};
extern const struct kvp_metric_desc kvp_meta_metrics[KVP_META_METRIC_COUNT];

struct kvp_meta_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct kvp_metrics *metrics; /* of kvp_meta_metrics */
	struct kvp_rpc *rpc;
	struct kvp_ident self;
	uint64_t blocks_max;   /* locations kept, over all nodes; more are refused and counted */
	uint32_t heartbeat_ms; /* asked of nodes */
	uint32_t suspect_ms;   /* silence after which a node gets no lookups */
	uint32_t forget_ms;    /* silence after which its blocks are dropped */
};

struct kvp_meta;

int kvp_meta_open(const struct kvp_meta_cfg *cfg, struct kvp_meta **ret_meta);
void kvp_meta_close(struct kvp_meta *meta);
const struct kvp_rpc_service *kvp_meta_service(struct kvp_meta *meta);

#endif /* KVP_POOL_META_META_H */
