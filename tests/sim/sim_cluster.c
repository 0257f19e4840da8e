/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cluster.c - see sim_cluster.h. */
#include "tests/sim/sim_cluster.h"

#include "bench/fill.h"
#include "client/internal.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/meta/meta.h"
#include "pool/node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES       2u
#define CLIENTS     2u
#define DEPTH       6u  /* batches out a client */
#define BATCH       4u  /* blocks a batch */
#define KEYS        48u /* more than fit */
#define BLOCK_LEN   12000u
#define ARENA_LEN   (24u * 12288u)
#define SLOTS       64u
#define DEADLINE_MS 400u
#define LEASE_MS    600u
#define LEASE_GRACE 50u /* ms before its end in which a get may already be late */
#define EPOCHS      64u
#define EPOCH_NS    (60 * KVP_NS_PER_MS) /* about so long one lasts */
#define META_ADDR   "10.0.0.1:7480"

struct sim_node {
	struct kvp_metrics metrics;
	struct kvp_rpc *rpc;
	struct kvp_xport *xport;
	struct kvp_mr *mrs[3];
	struct kvp_node *node;
	struct kvp_rpc_listener *listener;
	void *arena;
	struct kvp_slot_entry *table;
	char addr[KVP_ADDR_LEN_MAX];
};

struct op {
	struct kvp_item items[BATCH];
	struct iovec segs[BATCH][2];
	uint8_t *buf; /* BATCH blocks */
	uint32_t keys[BATCH];
	uint32_t count;
	enum kvp_opcode opcode;
	uint64_t started_ns;
	bool out;
	bool must_hit;
	uint32_t epoch;  /* of the namespace it was submitted with */
	uint64_t leased; /* a get: of the client's lease with this number; 0: of none */
};

/* What a client holds: only of blocks that the lease's completion said are held. */
struct sim_lease {
	uint64_t lease; /* 0: none */
	uint64_t until_ns;
	uint32_t epoch;
	uint32_t keys[BATCH];
	uint32_t count;
};

struct sim_client {
	struct kvp_rpc *rpc;
	struct kvp_client *client;
	struct kvp_cq *cq;
	uint8_t *buf;
	struct op ops[DEPTH];
	struct sim_lease lease;
	uint32_t out;
	uint64_t puts;
	uint32_t number;
};

struct cluster {
	struct sim sim;
	struct kvp_metrics meta_metrics;
	struct kvp_rpc *meta_rpc;
	struct kvp_meta *meta;
	struct kvp_rpc_listener *meta_listener;
	struct sim_node nodes[NODES];
	struct sim_client clients[CLIENTS];
	struct kvp_namespace ns[EPOCHS]; /* of epoch 1 and up */
	uint32_t epoch;                  /* the newest, an index of that */
	bool faults;
	uint8_t keys[2 * KEYS][KVP_CHAIN_KEY_LEN];
	struct kvp_log log;
	const struct kvp_log *log_to; /* NULL: quiet */
	struct sim_outcome *out;
};

static void
digest_add(struct cluster *c, uint64_t value)
{
	uint64_t x = (c->out->digest ^ value) * 0xff51afd7ed558ccdull;

	c->out->digest = x ^ (x >> 32);
}

static struct kvp_rpc_cfg
rpc_cfg(struct cluster *c, enum kvp_peer_kind kind, const char *name)
{
	struct kvp_rpc_cfg cfg = {
		.env = &c->sim.env,
		.log = c->log_to,
		.self = {.incarnation = 1, .kind = kind, .version = KVP_PROTO_VERSION},
	};

	c->sim.env.random(&c->sim.env, cfg.self.id, sizeof(cfg.self.id));
	snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", name);
	return cfg;
}

static void
meta_start(struct cluster *c)
{
	struct kvp_rpc_cfg rcfg = rpc_cfg(c, KVP_PEER_META, "meta");
	struct kvp_meta_cfg cfg = {
		.env = &c->sim.env,
		.log = c->log_to,
		.metrics = &c->meta_metrics,
		.self = rcfg.self,
		.blocks_max = 4096,
		.heartbeat_ms = 100,
		.suspect_ms = 400,
		.forget_ms = 5000,
	};
	char addr[KVP_ADDR_LEN_MAX];

	kvp_metrics_init(&c->meta_metrics, kvp_meta_metrics, KVP_META_METRIC_COUNT);
	sim_rpc_open(&c->sim, &rcfg, &c->meta_rpc);
	cfg.rpc = c->meta_rpc;
	kvp_assert(kvp_meta_open(&cfg, &c->meta) == 0);
	kvp_assert(c->meta_rpc->ops->listen(c->meta_rpc, META_ADDR, kvp_meta_service(c->meta), addr,
			   &c->meta_listener) == 0);
}

static void
node_transport_open(struct cluster *c, struct sim_node *n, uint32_t number,
	struct kvp_node_transport *ret_transport)
{
	static const uint32_t access[3] = {
		KVP_MR_REMOTE_READ, KVP_MR_REMOTE_WRITE, KVP_MR_REMOTE_READ};
	struct kvp_xport_cfg xcfg = {.env = &c->sim.env, .log = c->log_to};
	struct kvp_mem arena = kvp_mem_wrap(n->arena, ARENA_LEN);
	struct kvp_mem table = kvp_mem_wrap(n->table, SLOTS * sizeof(struct kvp_slot_entry));
	struct kvp_rdesc *rdescs[3] = {&ret_transport->arena_read, &ret_transport->arena_write,
		&ret_transport->table_read};
	char addr[32];

	kvp_assert(sim_xport_ops.open(&xcfg, &n->xport) == 0);
	for (int i = 0; i < 3; i++) {
		n->xport->ops->mr_reg(n->xport, i == 2 ? &table : &arena, access[i], &n->mrs[i]);
		n->xport->ops->mr_rdesc(n->mrs[i], rdescs[i]);
	}
	snprintf(addr, sizeof(addr), "10.0.0.%u:7491", 11 + number);
	ret_transport->xport = n->xport;
	kvp_assert(n->xport->ops->listen(n->xport, addr, ret_transport->addr) == 0);
}

static void
node_start(struct cluster *c, uint32_t number)
{
	static const char *const metas[] = {META_ADDR};
	struct sim_node *n = &c->nodes[number];
	struct kvp_rpc_cfg rcfg = rpc_cfg(c, KVP_PEER_NODE, number == 0 ? "node0" : "node1");
	struct kvp_node_transport transport = {0};
	char addr[32];
	struct kvp_node_cfg cfg = {
		.env = &c->sim.env,
		.log = c->log_to,
		.metrics = &n->metrics,
		.self = rcfg.self,
		.arena_len = ARENA_LEN,
		.slots_max = SLOTS,
		.evict = kvp_evict_find("lru"),
		.quarantine_ms = 10,
		.grant_ms = 1000,
		.low_water_permille = 50,
		.lease_ms_max = 60000,
		.lease_permille = 500,
		.sessions_max = 16,
		.transports = &transport,
		.transport_count = 1,
		.metas = metas,
		.meta_count = 1,
		.index_wait_ms = 100,
		.heartbeat_ms = 100,
	};

	kvp_metrics_init(&n->metrics, kvp_node_metrics, KVP_NODE_METRIC_COUNT);
	n->arena = aligned_alloc(4096, ARENA_LEN);
	memset(n->arena, 0, ARENA_LEN);
	n->table = aligned_alloc(4096, SLOTS * sizeof(*n->table));
	memset(n->table, 0, SLOTS * sizeof(*n->table));
	sim_rpc_open(&c->sim, &rcfg, &n->rpc);
	node_transport_open(c, n, number, &transport);
	cfg.rpc = n->rpc;
	cfg.arena = n->arena;
	cfg.table = n->table;
	kvp_assert(kvp_node_open(&cfg, &n->node) == 0);
	snprintf(addr, sizeof(addr), "10.0.0.%u:7490", 11 + number);
	kvp_assert(n->rpc->ops->listen(
			   n->rpc, addr, kvp_node_service(n->node), n->addr, &n->listener) == 0);
	kvp_node_start(n->node, n->addr, "");
}

static void
client_start(struct cluster *c, uint32_t number)
{
	static const struct kvp_xport_ops *const xports[] = {&sim_xport_ops};
	struct sim_client *cl = &c->clients[number];
	struct kvp_rpc_cfg rcfg = rpc_cfg(c, KVP_PEER_CLIENT, number == 0 ? "c0" : "c1");
	struct kvp_client_options options = {
		.struct_size = sizeof(options),
		.meta = META_ADDR,
		.node = c->nodes[number % NODES].addr,
		.deadline_ms = DEADLINE_MS,
		.verify = KVP_VERIFY_OFF, /* the entry's check alone must do it */
		.cache_locations = 64,
	};
	struct kvp_client_parts parts = {
		.env = &c->sim.env, .log = c->log_to, .xports = xports, .xport_count = 1};

	cl->number = number;
	sim_rpc_open(&c->sim, &rcfg, &cl->rpc);
	parts.rpc = cl->rpc;
	kvp_assert(kvp_client_open_with(&options, &parts, &cl->client) == 0);
	kvp_assert(kvp_cq_open(cl->client, DEPTH, &cl->cq) == 0);
	cl->buf = malloc(DEPTH * BATCH * BLOCK_LEN);
	kvp_assert(kvp_memory_register(cl->client, cl->buf, DEPTH * BATCH * BLOCK_LEN) == 0);
	for (uint32_t i = 0; i < DEPTH; i++) {
		cl->ops[i].buf = cl->buf + i * BATCH * BLOCK_LEN;
	}
}

static uint64_t
key_number(const struct cluster *c, uint32_t key)
{
	uint64_t number;

	memcpy(&number, c->keys[key], sizeof(number));
	return number;
}

static void
op_fill(struct cluster *c, struct sim_client *cl, struct op *op)
{
	for (uint32_t i = 0; i < op->count; i++) {
		uint8_t *buf = op->buf + i * BLOCK_LEN;

		op->segs[i][0] = (struct iovec){buf, 5001};
		op->segs[i][1] = (struct iovec){buf + 5001, BLOCK_LEN - 5001};
		op->items[i] = (struct kvp_item){
			.key = c->keys[op->keys[i]],
			.key_len = KVP_CHAIN_KEY_LEN,
			.segs = op->segs[i],
			.seg_count = op->opcode == KVP_GET || op->opcode == KVP_PUT ? 2 : 0,
			.position = 16 * i,
		};
		if (op->opcode == KVP_PUT) {
			kvp_fill_write(buf, BLOCK_LEN,
				&(struct kvp_fill){
					key_number(c, op->keys[i]), cl->number, ++cl->puts});
		} else {
			memset(buf, 0xa5, BLOCK_LEN);
		}
	}
}

static void
op_submit(struct cluster *c, struct sim_client *cl, struct op *op)
{
	struct kvp_batch batch = {
		.op = op->opcode,
		.items = op->items,
		.item_count = op->count,
		.ns = &c->ns[op->epoch],
		.tag = (uint64_t)(op - cl->ops),
		.lease_ms = op->opcode == KVP_LEASE ? LEASE_MS : 0,
	};

	op_fill(c, cl, op);
	op->started_ns = c->sim.now_ns;
	op->out = true;
	cl->out++;
	kvp_assert(kvp_submit(cl->cq, &batch) == 0);
}

/* A get posted now must find what it holds, whatever else goes on. */
static bool
lease_is_on(const struct cluster *c, const struct sim_lease *lease)
{
	return lease->lease != 0 &&
	       c->sim.now_ns + (DEADLINE_MS / 4 + LEASE_GRACE) * KVP_NS_PER_MS < lease->until_ns;
}

/* The completion of a lease: the client keeps one at a time. */
static void
lease_done(struct cluster *c, struct sim_client *cl, const struct op *op,
	const struct kvp_completion *done)
{
	struct sim_lease *lease = &cl->lease;

	if (done->lease == 0) {
		return;
	}
	c->out->leases++;
	if (lease->lease != 0) {
		kvp_release(cl->client, lease->lease);
	}
	*lease = (struct sim_lease){
		.lease = done->lease,
		.until_ns = c->sim.now_ns + done->lease_ms * KVP_NS_PER_MS,
		.epoch = op->epoch,
	};
	for (uint32_t i = 0; i < op->count; i++) {
		if (op->items[i].status == 0) {
			lease->keys[lease->count++] = op->keys[i];
		}
	}
}

/* A get of what was leased for all of the time that it took, without a fault, must not miss. */
static void
lease_check(struct cluster *c, const struct sim_client *cl, const struct op *op)
{
	for (uint32_t i = 0; i < op->count; i++) {
		bool held = cl->lease.lease == op->leased && c->sim.now_ns < cl->lease.until_ns;

		c->out->leased_hits += op->items[i].status == 0;
		c->out->leased_lost += held && !c->faults && op->items[i].status == -KVP_E_NOKEY;
	}
}

static void
op_random(struct cluster *c, struct sim_client *cl, struct op *op)
{
	uint64_t dice = sim_below(&c->sim, 100);

	op->opcode = dice < 45   ? KVP_GET
		     : dice < 82 ? KVP_PUT
		     : dice < 88 ? KVP_MATCH
		     : dice < 92 ? KVP_DELETE
		     : dice < 94 ? KVP_TOUCH
				 : KVP_LEASE;
	op->count = 1 + (uint32_t)sim_below(&c->sim, BATCH);
	op->must_hit = false;
	op->leased = 0;
	/* Now and then a writer that does not know yet that its epoch is over. */
	op->epoch = c->epoch - (c->epoch > 0 && sim_below(&c->sim, 20) == 0);
	for (uint32_t i = 0; i < op->count; i++) {
		op->keys[i] = (uint32_t)sim_below(&c->sim, KEYS);
	}
	if (op->opcode == KVP_GET && lease_is_on(c, &cl->lease) && sim_below(&c->sim, 2) == 0) {
		op->epoch = cl->lease.epoch;
		op->count = cl->lease.count;
		op->leased = cl->lease.lease;
		memcpy(op->keys, cl->lease.keys, sizeof(op->keys));
	}
	if (sim_below(&c->sim, 40) == 0 && cl->lease.lease != 0) {
		kvp_release(cl->client, cl->lease.lease);
		cl->lease.lease = 0;
	}
	op_submit(c, cl, op);
}

/* Every node learns of the next epoch by the first put of it. */
static void
epoch_raise(struct cluster *c)
{
	if (c->epoch + 1 < EPOCHS) {
		c->epoch++;
		c->out->epochs++;
	}
}

static void
item_check(struct cluster *c, const struct op *op, uint32_t i)
{
	int status = op->items[i].status;
	struct kvp_fill seen;

	digest_add(c, (uint64_t)(int64_t)status);
	if (status == 0 && op->opcode == KVP_GET) {
		c->out->hits++;
		c->out->wrong_bytes += kvp_fill_check(
			op->buf + i * BLOCK_LEN, BLOCK_LEN, key_number(c, op->keys[i]), &seen);
		digest_add(c, seen.number);
	} else if (status == -KVP_E_NOKEY) {
		c->out->misses++;
		c->out->lost += op->must_hit;
	} else if (status == 0 && op->opcode == KVP_PUT) {
		c->out->puts++;
	} else if (status == -KVP_E_EPOCH && op->epoch < c->epoch) {
		c->out->late_writers++;
	} else if (status == -KVP_E_BUSY && (op->opcode == KVP_DELETE || op->opcode == KVP_LEASE)) {
		c->out->held++;
	} else if (status < 0 && status != -KVP_E_EXISTS) {
		c->out->errors++;
		c->out->lost += op->must_hit;
	}
}

/* Takes what is done; the deadline's grace is 10 % or 100 ms. */
static void
client_poll(struct cluster *c, struct sim_client *cl)
{
	struct kvp_completion done[DEPTH];
	int count;

	while ((count = kvp_cq_poll(cl->cq, done, DEPTH)) > 0) {
		for (int i = 0; i < count; i++) {
			struct op *op = &cl->ops[done[i].tag];
			uint64_t took_ns = c->sim.now_ns - op->started_ns;

			kvp_assert(op->out);
			op->out = false;
			cl->out--;
			c->out->ops++;
			c->out->late += took_ns > (DEADLINE_MS + 100) * KVP_NS_PER_MS;
			digest_add(c, done[i].tag ^ took_ns);
			if (done[i].status < 0 && done[i].status != -KVP_E_BUSY) {
				c->out->errors += op->count;
				continue;
			}
			for (uint32_t k = 0; k < op->count; k++) {
				item_check(c, op, k);
			}
			if (op->opcode == KVP_LEASE) {
				lease_done(c, cl, op, &done[i]);
			} else if (op->leased != 0) {
				lease_check(c, cl, op);
			}
		}
	}
}

static uint32_t
out_count(const struct cluster *c)
{
	return c->clients[0].out + c->clients[1].out;
}

/* One event, and then everybody looks whether there is something for him. */
static bool
cluster_step(struct cluster *c)
{
	if (!sim_step(&c->sim)) {
		c->out->stuck = out_count(c) > 0;
		return false;
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		client_poll(c, &c->clients[i]);
	}
	return true;
}

static void
cluster_wait(struct cluster *c, uint64_t ns)
{
	uint64_t until = c->sim.now_ns + ns;

	while (c->sim.now_ns < until && cluster_step(c)) {
	}
}

static void
workload(struct cluster *c, const struct sim_run_cfg *cfg)
{
	uint64_t fault_at = c->sim.now_ns + sim_below(&c->sim, 200 * KVP_NS_PER_MS);
	uint64_t epoch_at = c->sim.now_ns + EPOCH_NS;
	uint32_t started = 0;

	while (started < cfg->ops || out_count(c) > 0) {
		for (uint32_t i = 0; i < CLIENTS * DEPTH && started < cfg->ops; i++) {
			struct sim_client *cl = &c->clients[i % CLIENTS];
			struct op *op = &cl->ops[i / CLIENTS];

			if (!op->out && sim_below(&c->sim, 4) == 0) {
				op_random(c, cl, op);
				started++;
			}
		}
		if (!cluster_step(c)) {
			return;
		}
		if (c->sim.now_ns >= epoch_at) {
			epoch_raise(c);
			epoch_at = c->sim.now_ns + EPOCH_NS / 2 + sim_below(&c->sim, EPOCH_NS);
		}
		if (cfg->faults && c->sim.now_ns >= fault_at) {
			sim_rpc_break_any(&c->sim);
			fault_at = c->sim.now_ns + sim_below(&c->sim, 400 * KVP_NS_PER_MS);
		}
	}
}

/* Faults are over: what one client puts now, the other one must find. */
static void
aftermath(struct cluster *c)
{
	cluster_wait(c, 8 * KVP_NS_PER_S);
	for (uint32_t round = 0; round < 6; round++) {
		struct sim_client *writer = &c->clients[round % CLIENTS];
		struct sim_client *reader = &c->clients[(round + 1) % CLIENTS];
		struct sim_client *turns[2] = {writer, reader};

		for (int turn = 0; turn < 2; turn++) {
			struct op *op = &turns[turn]->ops[0];

			op->opcode = turn == 0 ? KVP_PUT : KVP_GET;
			op->count = BATCH;
			op->must_hit = true;
			op->epoch = c->epoch;
			op->leased = 0;
			for (uint32_t i = 0; i < BATCH; i++) {
				op->keys[i] = KEYS + (round * BATCH + i) % KEYS;
			}
			op_submit(c, turns[turn], op);
			while (op->out && cluster_step(c)) {
			}
		}
	}
}

static void
cluster_end(struct cluster *c)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct kvp_client_stats stats = {.struct_size = sizeof(stats)};

		kvp_client_stats_get(c->clients[i].client, &stats);
		c->out->stale += stats.stale;
		kvp_client_close_with(c->clients[i].client);
		c->clients[i].rpc->ops->close(c->clients[i].rpc);
		free(c->clients[i].buf);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		struct sim_node *n = &c->nodes[i];

		c->out->evicted += kvp_metric_get(&n->metrics, KVP_NODE_EVICTED);
		kvp_node_close(n->node);
		n->rpc->ops->close(n->rpc);
		for (int k = 0; k < 3; k++) {
			n->xport->ops->mr_dereg(n->mrs[k]);
		}
		n->xport->ops->close(n->xport);
		kvp_metrics_fini(&n->metrics);
	}
	kvp_meta_close(c->meta);
	c->meta_rpc->ops->close(c->meta_rpc);
	kvp_metrics_fini(&c->meta_metrics);
	while (sim_step(&c->sim)) {
	}
	for (uint32_t i = 0; i < NODES; i++) {
		free(c->nodes[i].arena);
		free(c->nodes[i].table);
	}
	c->out->broken = c->sim.counts_broken;
	c->out->fenced = c->sim.counts_fenced;
	sim_fini(&c->sim);
}

static void
log_print(void *arg, enum kvp_log_level level, const char *line)
{
	const struct cluster *c = arg;

	fprintf(stderr, "%12.6f %d %s\n", (double)c->sim.now_ns / 1e9, (int)level, line);
}

void
sim_cluster_run(const struct sim_run_cfg *cfg, struct sim_outcome *ret_outcome)
{
	struct kvp_namespace_desc desc = {
		.struct_size = sizeof(desc), .model = "sim", .block_tokens = 16};
	struct cluster *c = calloc(1, sizeof(*c));

	*ret_outcome = (struct sim_outcome){0};
	c->out = ret_outcome;
	c->log = (struct kvp_log){.level = KVP_LOG_DEBUG, .sink = log_print, .arg = c};
	c->log_to = getenv("KVP_TEST_VERBOSE") != NULL ? &c->log : NULL;
	sim_init(&c->sim, cfg->seed);
	c->sim.slow = cfg->faults;
	c->faults = cfg->faults;
	for (uint32_t i = 0; i < EPOCHS; i++) {
		desc.epoch = i + 1;
		kvp_assert(kvp_namespace_make(&desc, &c->ns[i]) == 0);
	}
	for (uint32_t i = 0; i < 2 * KEYS; i++) {
		kvp_chain_keys(&c->ns[0], NULL, &i, 1, 1, &c->keys[i]);
	}
	meta_start(c);
	for (uint32_t i = 0; i < NODES; i++) {
		node_start(c, i);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		client_start(c, i);
	}
	workload(c, cfg);
	if (!c->out->stuck) {
		aftermath(c);
	}
	cluster_end(c);
	free(c);
}
