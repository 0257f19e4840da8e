// SPDX-License-Identifier: Apache-2.0
/*
 * node.c - makes a node of its parts, hands each call to the handler of its message, and lets time
 * pass for the store, the sessions and the stream.
 *
 * GATE What listeners and connections hold is the gate, not the node: connections are closed by
 * the loop some time after the node is gone, and the last one frees the gate.
 */
#include "hal/base/assert.h"
#include "pool/node/announce.h"
#include "pool/node/scrub.h"
#include "pool/node/session.h"
#include "pool/node/ssd.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NODE_READS_NS       (30 * KVP_NS_PER_S) /* that a disk takes to answer at most */
#define NODE_LEASES_MAX     16384u
#define NODE_NAMESPACES_MAX 4096u /* and as many families */

struct kvp_node_gate {
	struct kvp_rpc_service service; /* its arg is this gate */
	struct kvp_node *node;          /* NULL once closed */
	uint32_t conns;
};

struct node_handler {
	uint16_t type;
	bool needs_session;
	kvp_request_fn *fn;
};

static const struct node_handler handlers[] = {
	{KVP_RPC_PING, false, kvp_rpc_ping},
	{KVP_RPC_STATUS, false, kvp_rpc_status},
	{KVP_RPC_SESSION_OPEN, false, kvp_rpc_session_open},
	{KVP_RPC_OFFER, true, kvp_rpc_offer},
	{KVP_RPC_COMMIT, true, kvp_rpc_commit},
	{KVP_RPC_RELEASE, true, kvp_rpc_release},
	{KVP_RPC_DELETE, true, kvp_rpc_delete},
	{KVP_RPC_STAGE, true, kvp_rpc_stage},
	{KVP_RPC_TOUCH, true, kvp_rpc_touch},
	{KVP_RPC_LEASE, true, kvp_rpc_lease},
	{KVP_RPC_UNLEASE, true, kvp_rpc_unlease},
	{KVP_RPC_CLEAR, true, kvp_rpc_clear},
	{KVP_RPC_USAGE, false, kvp_rpc_usage},
	{KVP_RPC_LEASES, false, kvp_rpc_leases},
};

/* --- calls ---------------------------------------------------------------------------------------
 */

void
kvp_node_reply(
	struct kvp_node *node, struct kvp_rpc_call *call, int status, const ProtobufCMessage *msg)
{
	const struct kvp_rpc_ops *ops = node->cfg.rpc->ops;
	uint8_t *body;
	size_t len;
	int err;

	if (msg == NULL) {
		ops->reply(call, status, NULL, 0);
		return;
	}
	err = kvp_msg_encode(msg, &body, &len);
	if (err < 0) {
		ops->reply(call, err, NULL, 0);
		return;
	}
	ops->reply(call, status, body, len);
	free(body);
}

static const struct node_handler *
node_handler_find(uint16_t type)
{
	for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
		if (handlers[i].type == type) {
			return &handlers[i];
		}
	}
	return NULL;
}

/* Refuses, or hands on. Negative: nobody has replied. */
static int
node_dispatch(struct kvp_node *node, struct kvp_request *request)
{
	const struct node_handler *handler = node_handler_find(request->call->type);
	const struct kvp_session *session = request->peer->session;
	const struct kvp_rpc_call *call = request->call;

	if (handler == NULL) {
		return -ENOSYS;
	}
	if (handler->needs_session && session == NULL) {
		return -KVP_E_NO_SESSION;
	}
	if (session != NULL &&
		(session->works_count >= KVP_SESSION_WORKS_MAX ||
			session->works_len + call->len > KVP_SESSION_WORKS_LEN_MAX)) {
		return -KVP_E_BUSY;
	}
	request->msg = kvp_msg_decode(kvp_rpc_request_desc(call->type), call->body, call->len);
	if (request->msg == NULL) {
		return -KVP_E_PROTO;
	}
	return handler->fn(node, request);
}

static enum kvp_node_metric
node_reject_metric(int err)
{
	switch (err) {
	case -KVP_E_PROTO:
		return KVP_NODE_REJECT_MALFORMED;
	case -ENOSYS:
		return KVP_NODE_REJECT_TYPE;
	case -KVP_E_NO_SESSION:
		return KVP_NODE_REJECT_SESSION;
	case -KVP_E_NO_PROVIDER:
		return KVP_NODE_REJECT_TRANSPORT;
	case -KVP_E_BUSY:
		return KVP_NODE_REJECT_BUSY;
	default:
		return KVP_NODE_REJECT_OTHER;
	}
}

static void
node_call(void *arg, struct kvp_rpc_call *call)
{
	struct kvp_node_gate *gate = arg;
	struct kvp_node *node = gate->node;
	struct kvp_request request = {.call = call};
	int err;

	if (node == NULL || call->conn == NULL || call->conn->ctx == NULL) {
		if (call->conn != NULL) {
			call->conn->rpc->ops->reply(call, -KVP_E_CANCELLED, NULL, 0);
		} else if (node != NULL) {
			node->cfg.rpc->ops->reply(call, -KVP_E_CANCELLED, NULL, 0);
		}
		return;
	}
	request.peer = call->conn->ctx;
	err = node_dispatch(node, &request);
	if (request.msg != NULL) {
		protobuf_c_message_free_unpacked(request.msg, NULL);
	}
	if (err < 0) {
		kvp_metric_add(node->cfg.metrics, node_reject_metric(err), 1);
		kvp_debug(node->cfg.log, "%s of %s at %s refused: %s", kvp_rpc_name(call->type),
			request.peer->conn->peer.name, request.peer->conn->peer.addr,
			kvp_err_str(err));
		node->cfg.rpc->ops->reply(call, err, NULL, 0);
	}
}

static void
node_conn_opened(void *arg, struct kvp_rpc_conn *conn)
{
	struct kvp_node_gate *gate = arg;
	struct kvp_node_peer *peer;

	gate->conns++;
	conn->ctx = NULL;
	peer = gate->node != NULL ? calloc(1, sizeof(*peer)) : NULL;
	if (peer == NULL) {
		conn->rpc->ops->conn_close(conn);
		return;
	}
	peer->conn = conn;
	kvp_list_push_back(&gate->node->peers, &peer->link);
	conn->ctx = peer;
}

/* Parts peer and connection; the session ends with it. */
static void
node_peer_free(struct kvp_node *node, struct kvp_node_peer *peer)
{
	if (peer->session != NULL) {
		kvp_session_end(node, peer->session);
	}
	kvp_list_remove(&peer->link);
	peer->conn->ctx = NULL;
	free(peer);
}

static void
node_conn_closed(void *arg, struct kvp_rpc_conn *conn, int why)
{
	struct kvp_node_gate *gate = arg;

	(void)why; /* logged by rpc */
	if (conn->ctx != NULL) {
		node_peer_free(gate->node, conn->ctx);
	}
	kvp_assert(gate->conns > 0);
	gate->conns--;
	if (gate->conns == 0 && gate->node == NULL) {
		free(gate);
	}
}

/* --- life ----------------------------------------------------------------------------------------
 */

/* The kernel may go on with what a dead process was reading from the SSD, so those slots were kept
 * until now. */
static void
node_reads_over(struct kvp_node *node, uint64_t now_ns)
{
	if (node->ssd_left == 0 || now_ns - node->opened_ns < NODE_READS_NS) {
		return;
	}
	for (uint32_t i = 0; i < 2; i++) {
		if ((node->ssd_left & 1u << i) != 0) {
			kvp_store_owner_fenced(node->store, now_ns, KVP_SSD_OWNERS + i);
		}
	}
	node->ssd_left = 0;
}

static void
node_tick(struct kvp_rpc_timer *timer)
{
	struct kvp_node *node = kvp_container_of(timer, struct kvp_node, tick);
	uint64_t now_ns = kvp_node_now(node);
	bool more = kvp_store_turn(node->store, now_ns, kvp_session_expired, node);

	kvp_scrub_tick(node->scrub, now_ns);
	kvp_node_worked(node, now_ns);
	kvp_session_poll(node);
	if (node->ssd != NULL) {
		kvp_ssd_tick(node->ssd, now_ns);
	}
	kvp_stage_poll(node, now_ns);
	node_reads_over(node, now_ns);
	kvp_announce_tick(node->announce, now_ns);
	kvp_commit_poll(node, now_ns);
	kvp_epochs_tick(node, now_ns);
	kvp_node_metrics_set(node);
	node->cfg.rpc->ops->timer_start(node->cfg.rpc, &node->tick, more ? 0 : KVP_NODE_TICK_NS);
}

static int
node_recover(struct kvp_node *node)
{
	uint64_t begin_ns = kvp_node_now(node);
	struct kvp_store_recovery r;
	uint64_t now_ns;
	int err = kvp_store_recover(node->store, begin_ns, &r);

	if (err < 0) {
		return err;
	}
	now_ns = kvp_node_now(node);
	kvp_info(node->cfg.log,
		"%u blocks recovered in %u ms; evicted %u, may still be written to %u, dropped: "
		"half written %u, torn %u, misplaced %u, double %u",
		r.kept, (unsigned)((now_ns - begin_ns) / KVP_NS_PER_MS), r.quarantined, r.lost,
		r.half, r.torn, r.misplaced, r.doubles);
	kvp_sessions_recover(node);
	for (uint32_t i = 0; i < 2; i++) {
		node->ssd_left |=
			(uint32_t)(kvp_store_owner_slots(node->store, KVP_SSD_OWNERS + i) > 0) << i;
	}
	return kvp_scrub_open(node, &node->scrub);
}

static int
node_store_open(struct kvp_node *node)
{
	const struct kvp_node_cfg *cfg = &node->cfg;
	struct kvp_store_cfg store = {
		.arena = cfg->arena,
		.arena_len = cfg->arena_len,
		.table = cfg->table,
		.notes = cfg->notes,
		.slots_max = cfg->slots_max,
		.incarnation = (uint32_t)(cfg->self.incarnation & 0xfffffu),
		.evict = cfg->evict,
		.quarantine_ns = cfg->quarantine_ms * KVP_NS_PER_MS,
		.grant_ns = cfg->grant_ms * KVP_NS_PER_MS,
		.owners_max = KVP_SSD_OWNERS + 2,
		.low_water_permille = cfg->low_water_permille,
		.event = kvp_announce_event,
		.spill = node->ssd_slots > 0 ? kvp_ssd_spill : NULL,
		.arg = node,
		.fault = cfg->fault,
		.leases_max = cfg->lease_ms_max > 0 ? NODE_LEASES_MAX : 0,
		.lease_blocks_max = cfg->slots_max,
		.lease_permille = cfg->lease_permille,
		.namespaces_max = NODE_NAMESPACES_MAX,
		.families_max = NODE_NAMESPACES_MAX,
		.quota = cfg->quota,
		.quota_evict = cfg->quota_evict,
	};
	int err;

	cfg->env->random(cfg->env, &store.seed, sizeof(store.seed));
	err = kvp_store_open(&store, &node->store);
	for (uint32_t i = 0; err == 0 && i < cfg->quota_count; i++) {
		err = kvp_store_quota_set(node->store, cfg->quotas[i].ns, cfg->quotas[i].bytes);
	}
	if (err == 0 && cfg->recover) {
		err = node_recover(node);
	}
	return err < 0 ? err : kvp_epochs_open(node);
}

static int
node_gate_open(struct kvp_node *node)
{
	struct kvp_node_gate *gate = calloc(1, sizeof(*gate));

	if (gate == NULL) {
		return -ENOMEM;
	}
	gate->node = node;
	gate->service = (struct kvp_rpc_service){
		.arg = gate,
		.opened = node_conn_opened,
		.closed = node_conn_closed,
		.call = node_call,
	};
	node->gate = gate;
	return 0;
}

int
kvp_node_open(const struct kvp_node_cfg *cfg, struct kvp_node **ret_node)
{
	struct kvp_node *node;
	int err;

	if (cfg->transport_count == 0 || cfg->transport_count > KVP_TRANSPORTS_MAX ||
		cfg->sessions_max == 0 || cfg->sessions_max > KVP_SESSIONS_MAX ||
		cfg->heartbeat_ms == 0 || cfg->grant_ms == 0 ||
		(cfg->notes == NULL) != (cfg->tokens == NULL)) {
		return -EINVAL;
	}
	node = calloc(1, sizeof(*node));
	if (node == NULL) {
		return -ENOMEM;
	}
	node->cfg = *cfg;
	node->ssd_slots = cfg->ssd != NULL ? kvp_ssd_slots(cfg->ssd) : 0;
	node->opened_ns = kvp_node_now(node);
	memcpy(node->transports, cfg->transports, cfg->transport_count * sizeof(*cfg->transports));
	kvp_list_init(&node->peers);
	kvp_list_init(&node->works);
	kvp_list_init(&node->waits);
	kvp_list_init(&node->stages);
	node->slice.fn = kvp_work_turn;
	node->tick.fn = node_tick;
	err = kvp_sessions_init(node);
	err = err < 0 ? err : kvp_announce_open(node, &node->announce);
	node->cfg.transports = node->transports;
	node->cfg.metas = NULL; /* copied by now, and the caller's may go */
	node->cfg.ssd = NULL;   /* likewise, below */
	err = err < 0 ? err : node_store_open(node);
	node->cfg.quotas = NULL; /* likewise */
	node->cfg.epochs_path = NULL;
	if (err == 0 && cfg->ssd != NULL) {
		err = kvp_ssd_open(node, cfg->ssd, &node->ssd);
	}
	err = err < 0 ? err : node_gate_open(node);
	if (err < 0) {
		kvp_node_close(node);
		return err;
	}
	kvp_node_metrics_set(node);
	node->cfg.rpc->ops->timer_start(node->cfg.rpc, &node->tick, KVP_NODE_TICK_NS);
	*ret_node = node;
	return 0;
}

void
kvp_node_close(struct kvp_node *node)
{
	if (node == NULL) {
		return;
	}
	if (node->gate != NULL) {
		node->cfg.rpc->ops->timer_stop(node->cfg.rpc, &node->tick);
		node->cfg.rpc->ops->timer_stop(node->cfg.rpc, &node->slice);
		kvp_list_for_each_safe (pos, &node->peers) {
			struct kvp_node_peer *peer =
				kvp_container_of(pos, struct kvp_node_peer, link);
			struct kvp_rpc_conn *conn = peer->conn;

			node_peer_free(node, peer);
			node->cfg.rpc->ops->conn_close(conn);
		}
		node->gate->node = NULL;
		if (node->gate->conns == 0) {
			free(node->gate);
		}
	}
	kvp_sessions_fini(node);
	kvp_ssd_close(node->ssd);
	kvp_scrub_close(node->scrub);
	kvp_announce_close(node->announce);
	kvp_epochs_close(node);
	kvp_store_close(node->store);
	free(node);
}

const struct kvp_rpc_service *
kvp_node_service(struct kvp_node *node)
{
	return &node->gate->service;
}

void
kvp_node_start(struct kvp_node *node, const char *address, const char *local_address)
{
	(void)snprintf(node->address, sizeof(node->address), "%s", address);
	(void)snprintf(node->local_address, sizeof(node->local_address), "%s", local_address);
	kvp_announce_start(node->announce);
}
