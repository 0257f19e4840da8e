/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/cluster.h"

#include "hal/os/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct kvp_log cluster_log = {.level = KVP_LOG_ERROR, .sink = kvp_log_stderr};

/* --- loops
 * ---------------------------------------------------------------------------------------- */

static void
loop_open(struct cluster_loop *loop, const struct kvp_ident *self,
	const struct kvp_metric_desc *desc, size_t count)
{
	struct kvp_rpc_cfg cfg = {.env = kvp_env_real(),
		.log = &cluster_log,
		.self = *self,
		.metrics = &loop->metrics};

	assert_int_equal(kvp_metrics_init(&loop->metrics, desc, count), 0);
	assert_int_equal(kvp_rpc_uv_open(&cfg, &loop->rpc), 0);
}

static void
loop_run(void *arg)
{
	struct kvp_rpc *rpc = arg;

	rpc->ops->run(rpc);
}

static void
loop_start(struct cluster_loop *loop, const char *name)
{
	assert_int_equal(kvp_thread_start(name, loop_run, loop->rpc, &loop->thread), 0);
}

static void
loop_do_stop(void *arg)
{
	struct kvp_rpc *rpc = arg;

	rpc->ops->stop(rpc);
}

static void
loop_stop(struct cluster_loop *loop)
{
	loop->rpc->ops->post(loop->rpc, loop_do_stop, loop->rpc);
	kvp_thread_join(loop->thread);
	loop->rpc->ops->unlisten(loop->listener);
}

static void
loop_close(struct cluster_loop *loop)
{
	loop->rpc->ops->close(loop->rpc);
	kvp_metrics_fini(&loop->metrics);
	memset(loop, 0, sizeof(*loop));
}

static pthread_mutex_t freeze_lock = PTHREAD_MUTEX_INITIALIZER;

static void
loop_freeze(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&freeze_lock);
	pthread_mutex_unlock(&freeze_lock);
}

void
cluster_freeze(struct cluster_loop *loop)
{
	pthread_mutex_lock(&freeze_lock);
	loop->rpc->ops->post(loop->rpc, loop_freeze, NULL);
}

void
cluster_thaw(void)
{
	pthread_mutex_unlock(&freeze_lock);
}

static struct kvp_ident
ident_make(uint32_t kind, const char *name)
{
	struct kvp_ident ident = {.kind = kind, .incarnation = 1, .version = KVP_PROTO_VERSION};

	kvp_env_real()->random(kvp_env_real(), ident.id, sizeof(ident.id));
	snprintf(ident.name, sizeof(ident.name), "%s", name);
	return ident;
}

/* --- the meta
 * --------------------------------------------------------------------------------------- */

static void
meta_start(struct cluster_meta *meta)
{
	struct kvp_ident self = ident_make(KVP_PEER_META, "meta");
	struct kvp_meta_cfg cfg = {.env = kvp_env_real(),
		.log = &cluster_log,
		.metrics = &meta->loop.metrics,
		.self = self,
		.blocks_max = 1 << 20,
		.heartbeat_ms = 100,
		.suspect_ms = 2000,
		.forget_ms = 10000};

	loop_open(&meta->loop, &self, kvp_meta_metrics, KVP_META_METRIC_COUNT);
	cfg.rpc = meta->loop.rpc;
	assert_int_equal(kvp_meta_open(&cfg, &meta->meta), 0);
	assert_int_equal(cfg.rpc->ops->listen(cfg.rpc, "127.0.0.1:0", kvp_meta_service(meta->meta),
				 meta->loop.addr, &meta->loop.listener),
		0);
	loop_start(&meta->loop, "meta");
}

void
cluster_stop_meta(struct cluster *cluster)
{
	struct cluster_meta *meta = &cluster->meta;

	if (meta->loop.rpc != NULL) {
		loop_stop(&meta->loop);
		kvp_meta_close(meta->meta);
		loop_close(&meta->loop);
	}
}

/* --- nodes
 * -------------------------------------------------------------------------------------------- */

static void
node_open_transport(
	struct cluster *cluster, struct cluster_node *node, const struct kvp_xport_ops *ops)
{
	struct kvp_node_transport *transport = &node->transports[node->transport_count];
	struct kvp_mr **mrs = node->mrs[node->transport_count];
	const struct kvp_xport_cfg cfg = {.env = kvp_env_real(), .log = &cluster_log};
	char addr[KVP_ADDR_LEN_MAX] = "127.0.0.1:0";

	if ((ops->caps & KVP_XPORT_LOCAL) != 0) {
		snprintf(addr, sizeof(addr), "%s/data-%p.sock", cluster->dir, (void *)node);
	}
	if (ops->open(&cfg, &transport->xport) < 0) {
		return; /* it needs what this host lacks; a test that names it fails then */
	}
	assert_int_equal(
		ops->mr_reg(transport->xport, &node->arena, KVP_MR_REMOTE_READ, &mrs[0]), 0);
	assert_int_equal(
		ops->mr_reg(transport->xport, &node->arena, KVP_MR_REMOTE_WRITE, &mrs[1]), 0);
	assert_int_equal(
		ops->mr_reg(transport->xport, &node->table, KVP_MR_REMOTE_READ, &mrs[2]), 0);
	ops->mr_rdesc(mrs[0], &transport->arena_read);
	ops->mr_rdesc(mrs[1], &transport->arena_write);
	ops->mr_rdesc(mrs[2], &transport->table_read);
	assert_int_equal(ops->listen(transport->xport, addr, transport->addr), 0);
	node->transport_count++;
}

static void
node_open_memory(struct cluster *cluster, struct cluster_node *node)
{
	const struct kvp_mem_cfg arena = {.len = cluster->cfg.arena_len, .mode = 0600};
	const struct kvp_mem_cfg table = {
		.len = cluster->cfg.slots * sizeof(struct kvp_slot_entry), .mode = 0600};

	assert_int_equal(kvp_mem_create(&arena, &node->arena), 0);
	assert_int_equal(kvp_mem_create(&table, &node->table), 0);
}

static void
node_start(struct cluster *cluster, struct cluster_node *node, const char *addr)
{
	const char *metas[] = {cluster->meta.loop.addr};
	struct kvp_node_cfg cfg = {.env = kvp_env_real(),
		.log = &cluster_log,
		.metrics = &node->loop.metrics,
		.self = node->self,
		.arena_len = cluster->cfg.arena_len,
		.slots_max = cluster->cfg.slots,
		.evict = kvp_evict_find("lru"),
		.quarantine_ms = cluster->cfg.quarantine_ms,
		.grant_ms = 5000,
		.low_water_permille = 0,
		.lease_ms_max = 60000,
		.lease_permille = 500,
		.sessions_max = 64,
		.transports = node->transports,
		.metas = metas,
		.meta_count = 1,
		.index_wait_ms = 500,
		.heartbeat_ms = 100};
	const struct kvp_xport_ops *const *all;
	size_t count;

	node_open_memory(cluster, node);
	all = kvp_xport_all(&count);
	for (size_t i = 0; i < count; i++) {
		node_open_transport(cluster, node, all[i]);
	}
	loop_open(&node->loop, &node->self, kvp_node_metrics, KVP_NODE_METRIC_COUNT);
	cfg.rpc = node->loop.rpc;
	cfg.arena = node->arena.base;
	cfg.table = node->table.base;
	cfg.transport_count = node->transport_count;
	memcpy(cfg.host_id, cluster->host_id, KVP_ID_LEN);
	assert_int_equal(kvp_node_open(&cfg, &node->node), 0);
	assert_int_equal(cfg.rpc->ops->listen(cfg.rpc, addr, kvp_node_service(node->node),
				 node->loop.addr, &node->loop.listener),
		0);
	kvp_node_start(node->node, node->loop.addr, "");
	loop_start(&node->loop, "node");
}

void
cluster_stop_node(struct cluster *cluster, uint32_t idx)
{
	struct cluster_node *node = &cluster->nodes[idx];

	if (node->loop.rpc == NULL) {
		return;
	}
	loop_stop(&node->loop);
	kvp_node_close(node->node);
	for (uint32_t i = 0; i < node->transport_count; i++) {
		struct kvp_xport *xport = node->transports[i].xport;

		for (uint32_t j = 0; j < 3; j++) {
			xport->ops->mr_dereg(node->mrs[i][j]);
		}
		xport->ops->close(xport);
	}
	loop_close(&node->loop);
	kvp_mem_close(&node->arena);
	kvp_mem_close(&node->table);
	memset(node, 0, sizeof(*node));
}

void
cluster_restart_node(struct cluster *cluster, uint32_t idx)
{
	struct cluster_node *node = &cluster->nodes[idx];
	struct kvp_ident self = node->self;
	char addr[KVP_ADDR_LEN_MAX];

	snprintf(addr, sizeof(addr), "%s", node->loop.addr);
	cluster_stop_node(cluster, idx);
	node->self = self;
	node->self.incarnation++;
	node_start(cluster, node, addr);
}

/* --- all of it
 * ------------------------------------------------------------------------------------------ */

void
cluster_start(struct cluster *cluster, const struct cluster_cfg *cfg)
{
	memset(cluster, 0, sizeof(*cluster));
	cluster->cfg = *cfg;
	cluster->cfg.arena_len = cfg->arena_len != 0 ? cfg->arena_len : 64u << 20;
	cluster->cfg.slots = cfg->slots != 0 ? cfg->slots : 4096;
	cluster->cfg.quarantine_ms = cfg->quarantine_ms != 0 ? cfg->quarantine_ms : 20;
	cluster->cfg.nodes = cfg->nodes != 0 ? cfg->nodes : 1;
	assert_int_equal(kvp_host_id(cluster->host_id), 0);
	snprintf(cluster->dir, sizeof(cluster->dir), "/tmp/kvp-cluster-XXXXXX");
	assert_non_null(mkdtemp(cluster->dir));
	meta_start(&cluster->meta);
	for (uint32_t i = 0; i < cluster->cfg.nodes; i++) {
		cluster->nodes[i].self = ident_make(KVP_PEER_NODE, "node");
		node_start(cluster, &cluster->nodes[i], "127.0.0.1:0");
	}
}

void
cluster_stop(struct cluster *cluster)
{
	for (uint32_t i = 0; i < CLUSTER_NODES_MAX; i++) {
		cluster_stop_node(cluster, i);
	}
	cluster_stop_meta(cluster);
	assert_int_equal(rmdir(cluster->dir), 0);
}
