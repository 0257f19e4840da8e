/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership.h - the nodes of the pool as one meta sees them: who streams to it, from which
 * connection, how far it has heard them, and who has fallen silent.
 *
 * Takes the time as an argument. One owner thread. A member's place in the array is its node index
 * in the directory, and is given to another only when the directory is clean of it.
 *
 * LIVE -- silent for suspect_ms --> SUSPECT -- silent for forget_ms --> FORGOTTEN --> FREE
 *   ^------- heard ------------------'
 */
#ifndef KVP_POOL_META_MEMBERSHIP_H
#define KVP_POOL_META_MEMBERSHIP_H

#include "hal/base/limits.h"
#include "hal/base/log.h"
#include "hal/base/metrics.h"
#include "pool/meta/directory.h"
#include "transport/rpc/rpc.h"

enum kvp_member_state {
	KVP_MEMBER_FREE,
	KVP_MEMBER_LIVE,
	KVP_MEMBER_SUSPECT,   /* gives no locations */
	KVP_MEMBER_FORGOTTEN, /* dropped; its locations are being collected */
};

/* What a node says of itself when it joins. */
struct kvp_member_info {
	uint8_t id[KVP_ID_LEN];
	uint64_t incarnation;
	char name[KVP_NAME_LEN_MAX];
	char address[KVP_ADDR_LEN_MAX];
	char local_address[KVP_ADDR_LEN_MAX]; /* empty: none */
	uint8_t host_id[KVP_ID_LEN];
};

struct kvp_member {
	enum kvp_member_state state;
	struct kvp_member_info info;
	struct kvp_rpc_conn *conn; /* its stream; conn->ctx points back; NULL while it is down */
	uint64_t heard_ns;         /* last sign of life, or our own waking */
	uint64_t applied;          /* the sequence up to which its stream is in the directory */
	bool whole;                /* no gap, and no snapshot under way */
	bool snapshot_open;
	bool vouched;        /* heard since it joined and since this meta last slept */
	uint16_t chain_next; /* by id, 1-based; 0 ends */
};

/* Nodes that were forgotten and have not come back: other metas may still hear them. */
#define KVP_MEMBERS_MISSED_MAX 64u

struct kvp_membership {
	struct kvp_rpc *rpc; /* to close connections of who is not believed any more */
	struct kvp_directory *dir;
	const struct kvp_log *log;
	struct kvp_metrics *metrics; /* of kvp_meta_metrics */
	uint64_t heartbeat_ns;
	uint64_t suspect_ns;
	uint64_t forget_ns;
	uint64_t tick_ns;  /* the last tick */
	uint64_t woke_ns;  /* the last waking; 0: never slept */
	uint64_t young_ns; /* until then nodes may still be on their way to this meta */
	uint16_t high;     /* members ever used */
	uint16_t missed_count;
	uint8_t missed[KVP_MEMBERS_MISSED_MAX][KVP_ID_LEN]; /* the oldest goes when it is full */
	uint16_t buckets[KVP_NODES_MAX];
	struct kvp_member members[KVP_NODES_MAX];
};

/* The caller has set rpc to heartbeat_ns. */
void kvp_membership_init(struct kvp_membership *ms, uint64_t now_ns);

/* NULL when unknown or forgotten. */
struct kvp_member *kvp_membership_find(struct kvp_membership *ms, const uint8_t id[KVP_ID_LEN]);

/*
 * A node's stream begins or goes on from conn, after sequence. *ret_snapshot: it must begin with a
 * snapshot. -KVP_E_IN_USE: this (id, incarnation) is live from another connection, or a newer
 * incarnation is known. -KVP_E_BUSY: all indexes are taken, perhaps by entries still collected.
 */
int kvp_membership_join(struct kvp_membership *ms, uint64_t now_ns,
	const struct kvp_member_info *info, struct kvp_rpc_conn *conn, uint64_t sequence,
	struct kvp_member **ret_member, bool *ret_snapshot);

/* A message of its stream came. */
void kvp_membership_heard(struct kvp_membership *ms, uint64_t now_ns, struct kvp_member *member);

void kvp_membership_closed(struct kvp_membership *ms, struct kvp_rpc_conn *conn);

/* Before any message is served: notices that this process stood still. Then silence proves
 * nothing, and nobody is vouched for until heard again. */
void kvp_membership_awake(struct kvp_membership *ms, uint64_t now_ns);

/* Judges silence; to be called every kvp_membership_period_ns(). */
void kvp_membership_tick(struct kvp_membership *ms, uint64_t now_ns);
uint64_t kvp_membership_period_ns(const struct kvp_membership *ms);

/* What is said of the member's blocks is all that its node has told anybody by now. */
bool kvp_member_in_step(
	const struct kvp_membership *ms, const struct kvp_member *member, uint64_t now_ns);

/* True for so long after the start that every node that lives has had time to join. */
bool kvp_membership_is_young(const struct kvp_membership *ms, uint64_t now_ns);

static inline uint16_t
kvp_member_idx(const struct kvp_membership *ms, const struct kvp_member *member)
{
	return (uint16_t)(member - ms->members);
}

const char *kvp_member_state_name(enum kvp_member_state state);

#endif /* KVP_POOL_META_MEMBERSHIP_H */
