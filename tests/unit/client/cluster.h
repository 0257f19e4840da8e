/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.h - a whole pool in the test's process: a metadata server and nodes, each with its loop
 * on a thread of its own, on addresses that are free.
 */
#ifndef KVP_TESTS_UNIT_CLIENT_CLUSTER_H
#define KVP_TESTS_UNIT_CLIENT_CLUSTER_H

#include "hal/mem/mem.h"
#include "hal/os/thread.h"
#include "pool/meta/meta.h"
#include "pool/node/node.h"

#define CLUSTER_NODES_MAX 2

/* A loop and the thread that runs it. */
struct cluster_loop {
	struct kvp_rpc *rpc;
	struct kvp_rpc_listener *listener;
	struct kvp_metrics metrics;
	struct kvp_thread *thread;
	char addr[KVP_ADDR_LEN_MAX];
};

struct cluster_meta {
	struct cluster_loop loop;
	struct kvp_meta *meta;
};

struct cluster_node {
	struct cluster_loop loop;
	struct kvp_ident self;
	struct kvp_node *node;
	struct kvp_mem arena;
	struct kvp_mem table;
	struct kvp_node_transport transports[KVP_TRANSPORTS_MAX];
	struct kvp_mr *mrs[KVP_TRANSPORTS_MAX][3];
	uint32_t transport_count;
};

struct cluster_cfg {
	size_t arena_len;       /* 0: 64 MiB */
	uint32_t slots;         /* 0: 4096 */
	uint32_t quarantine_ms; /* 0: 20 */
	uint32_t nodes;         /* 0: 1 */
};

struct cluster {
	struct cluster_cfg cfg;
	char dir[64];
	uint8_t host_id[KVP_ID_LEN];
	struct cluster_meta meta;
	struct cluster_node nodes[CLUSTER_NODES_MAX];
};

/* Asserts that all went well. */
void cluster_start(struct cluster *cluster, const struct cluster_cfg *cfg);
void cluster_stop(struct cluster *cluster);
void cluster_stop_meta(struct cluster *cluster);
void cluster_stop_node(struct cluster *cluster, uint32_t idx);
/* The same node again, at the same address, under the next incarnation and with nothing in it. */
void cluster_restart_node(struct cluster *cluster, uint32_t idx);
/* Keeps a loop from running until cluster_thaw: its process seems frozen. */
void cluster_freeze(struct cluster_loop *loop);
void cluster_thaw(void);

#endif /* KVP_TESTS_UNIT_CLIENT_CLUSTER_H */
