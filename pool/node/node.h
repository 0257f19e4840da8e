/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - kvpoold without its main(): sessions, offers, commits, fencing, announcements to metas.
 *
 * Works on an rpc loop (real or simulated), a store and any number of listening transports, all
 * the caller's. Several nodes can live in one process. One thread: the loop's.
 */
#ifndef KVP_POOL_NODE_NODE_H
#define KVP_POOL_NODE_NODE_H

#include "hal/base/metrics.h"
#include "pool/store/store.h"
#include "transport/rpc/rpc.h"
#include "transport/xport.h"

enum kvp_node_metric {
#define KVP_METRIC(name, kind, text, help) KVP_NODE_##name,
#include "pool/node/node_metrics.def"
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
	KVP_NODE_METRIC_COUNT
};
extern const struct kvp_metric_desc kvp_node_metrics[KVP_NODE_METRIC_COUNT];

/* A transport that already listens, with arena and table registered on it. */
struct kvp_node_transport {
	struct kvp_xport *xport;
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rdesc arena_read;
	struct kvp_rdesc arena_write;
	struct kvp_rdesc table_read;
};

struct kvp_ssd_cfg;

/* A quota of one namespace, instead of the default. */
struct kvp_node_quota {
	uint8_t ns[KVP_NS_LEN];
	uint64_t bytes; /* 0: no limit */
};

struct kvp_node_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct kvp_metrics *metrics; /* of kvp_node_metrics */
	struct kvp_rpc *rpc;
	struct kvp_ident self;
	uint8_t host_id[KVP_ID_LEN];

	/* Store geometry; the node opens the store itself, to receive its events. */
	void *arena;
	size_t arena_len;
	struct kvp_slot_entry *table;
	uint32_t slots_max;
	struct kvp_store_note *notes; /* NULL: nothing is noted for a successor */
	uint8_t *tokens; /* with notes: 2 * KVP_SESSIONS_MAX tokens, of each owner number's session
			  */
	bool recover;    /* table, notes and tokens are an earlier process's; else they are zero */
	uint64_t scrub_rate;     /* bytes a second of recovered blocks that are verified; 0: none */
	struct kvp_fault *fault; /* NULL: none */
	const struct kvp_evict_ops *evict;
	uint32_t quarantine_ms;
	uint32_t grant_ms;
	uint32_t low_water_permille;
	uint32_t sessions_max;
	uint32_t lease_ms_max;   /* the longest lease; 0: none are given */
	uint32_t lease_permille; /* of the arena, that leases may hold */
	uint64_t quota;          /* bytes of a namespace without one of its own; 0: no limit */
	bool quota_evict;        /* a full namespace loses its own oldest block */
	const struct kvp_node_quota *quotas; /* copied */
	uint32_t quota_count;
	const char *epochs_path; /* file of the epochs, copied; NULL: they end with the node */
	const struct kvp_ssd_cfg *ssd; /* NULL: no SSD tier; copied */

	const struct kvp_node_transport *transports; /* copied */
	uint32_t transport_count;
	const char *const *metas; /* addresses; copied */
	uint32_t meta_count;
	uint32_t index_wait_ms; /* commit waits for live metas at most so long */
	uint32_t heartbeat_ms;  /* default until a meta says another */
};

struct kvp_node;

int kvp_node_open(const struct kvp_node_cfg *cfg, struct kvp_node **ret_node);
/* Sessions end, transports are fenced as far as they can be; the caller closes those after. */
void kvp_node_close(struct kvp_node *node);

/* To be given to rpc->ops->listen(), as often as there are listeners. */
const struct kvp_rpc_service *kvp_node_service(struct kvp_node *node);

/* Once its listeners are up: what to advertise; then it joins the metas. */
void kvp_node_start(struct kvp_node *node, const char *address, const char *local_address);

#endif /* KVP_POOL_NODE_NODE_H */
