/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_impl.h - what the files of pool/node share: the node, and one request on its way to its
 * handler. Nobody else includes it. Everything here belongs to the rpc loop's thread.
 */
#ifndef KVP_POOL_NODE_NODE_IMPL_H
#define KVP_POOL_NODE_NODE_IMPL_H

#include "hal/base/err.h"
#include "hal/base/list.h"
#include "hal/base/log.h"
#include "pool/node/node.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/wire.h"

#define KVP_NODE_TICK_NS           (10 * KVP_NS_PER_MS)
#define KVP_NODE_SLICE_KEYS        512u        /* keys handled before others get their turn */
#define KVP_SESSION_WORKS_MAX      1024u       /* calls of one session that are not answered yet */
#define KVP_SESSION_WORKS_LEN_MAX  (64u << 20) /* and the bytes of their requests */
#define KVP_NODE_STAGE_WAIT_MS_MAX 60000u      /* the most that a stage may ask to wait */
#define KVP_NODE_INDEX_WAIT_MS_MAX 10000u      /* the most a commit may ask to wait for metas */

/* Slots being staged into belong to one of two owners behind all that sessions may ever have, by
 * turns from start to start, so that what a dead process was reading keeps nobody waiting. */
#define KVP_SSD_OWNERS (2u * KVP_SESSIONS_MAX)

struct kvp_announcer;
struct kvp_ssd;
struct kvp_session;
struct kvp_node_gate;
struct kvp_scrub;

struct kvp_node {
	struct kvp_node_cfg cfg; /* transports points to the copy below; metas is NULL */
	struct kvp_node_transport transports[KVP_TRANSPORTS_MAX];
	struct kvp_store *store;
	struct kvp_announcer *announce;
	struct kvp_ssd *ssd;     /* NULL: no such tier */
	uint32_t ssd_slots;      /* that it has at most; they come after the store's */
	uint32_t ssd_left;       /* bits: of KVP_SSD_OWNERS, a dead process's slots are theirs */
	struct kvp_scrub *scrub; /* NULL: nothing to verify */
	struct kvp_node_gate *gate;
	struct kvp_list peers; /* struct kvp_node_peer */

	struct kvp_session *sessions; /* one an owner number of the store */
	uint32_t owners_max;
	uint32_t sessions_open;
	uint32_t sessions_fencing;
	bool sessions_expired;  /* some session is marked, see session.h */
	char *epochs_path;      /* NULL: none; epochs.c */
	bool epochs_dirty;      /* to be written by a tick */
	uint64_t epochs_due_ns; /* but not before */

	struct kvp_list works;  /* calls that wait for their next slice */
	struct kvp_list waits;  /* commits that wait for metas, oldest first */
	struct kvp_list stages; /* stage calls that wait for blocks */
	struct kvp_rpc_timer slice;
	struct kvp_rpc_timer tick;

	char address[KVP_ADDR_LEN_MAX];
	char local_address[KVP_ADDR_LEN_MAX];
	uint64_t opened_ns;
};

/* One control connection. */
struct kvp_node_peer {
	struct kvp_list link;
	struct kvp_rpc_conn *conn;
	struct kvp_session *session; /* NULL before SESSION_OPEN and after the session's end */
};

struct kvp_request {
	struct kvp_rpc_call *call;
	struct kvp_node_peer *peer;
	ProtobufCMessage *msg; /* decoded; a handler that keeps it sets NULL */
};

/*
 * Handlers, one a message, rpc_*.c. 0: the call has been or will be replied to. Negative: nothing
 * was done, the dispatcher replies with it and counts it. They need no session unless the table
 * in node.c says so.
 */
typedef int kvp_request_fn(struct kvp_node *node, struct kvp_request *request);
kvp_request_fn kvp_rpc_session_open, kvp_rpc_offer, kvp_rpc_commit, kvp_rpc_release, kvp_rpc_delete,
	kvp_rpc_stage, kvp_rpc_touch, kvp_rpc_status, kvp_rpc_ping, kvp_rpc_lease, kvp_rpc_unlease,
	kvp_rpc_clear, kvp_rpc_usage, kvp_rpc_leases;

/* Replies; msg may be NULL. A reply that cannot be encoded becomes that error. */
void kvp_node_reply(
	struct kvp_node *node, struct kvp_rpc_call *call, int status, const ProtobufCMessage *msg);

/* Looks at every commit that waits: replies to those that are covered or out of time. */
void kvp_commit_poll(struct kvp_node *node, uint64_t now_ns);

/* Replies to stage calls that are out of time. */
void kvp_stage_poll(struct kvp_node *node, uint64_t now_ns);

/* epochs.c: tells the store the epochs on disk. A bad file costs the epochs in it, no more. */
int kvp_epochs_open(struct kvp_node *node);
void kvp_epochs_close(struct kvp_node *node);
/* The family has at least this epoch; news is on disk within 100 ms. -KVP_E_EPOCH: older. */
int kvp_epochs_raise(struct kvp_node *node, const uint8_t family[KVP_NS_LEN], uint64_t epoch);
/* Writes what is news; 0 or the disk's error, logged. */
int kvp_epochs_flush(struct kvp_node *node);
void kvp_epochs_tick(struct kvp_node *node, uint64_t now_ns); /* the same when it is time */

/* metrics.c: copies the gauges and the store's counters into the table. */
void kvp_node_metrics_set(struct kvp_node *node);

static inline uint64_t
kvp_node_now(const struct kvp_node *node)
{
	return kvp_now_ns(node->cfg.env);
}

/*
 * After work on the store whose time was read as began_ns. A reader trusts evicted bytes for half a
 * quarantine; if this process stood still between reading the clock and evicting, their quarantine
 * began that much too early: then it begins anew. A quarter leaves the reader its half.
 */
static inline void
kvp_node_worked(struct kvp_node *node, uint64_t began_ns)
{
	uint64_t now_ns = kvp_node_now(node);

	if (now_ns - began_ns > node->cfg.quarantine_ms * KVP_NS_PER_MS / 4) {
		kvp_store_held_up(node->store, now_ns);
	}
}

#endif /* KVP_POOL_NODE_NODE_IMPL_H */
