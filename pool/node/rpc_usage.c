// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_usage.c - USAGE: what this node holds, for which namespaces; LEASES: who holds what in place,
 * and ending that by hand. For operators: bounded, and answered at once.
 */
#include "pool/node/announce.h"
#include "pool/node/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define USAGE_ROWS_MAX    4096u
#define LEASES_ROWS_MAX   4096u
#define LEASES_CLIENT_LEN (KVP_NAME_LEN_MAX + KVP_ADDR_LEN_MAX + 8)

/* --- USAGE ---------------------------------------------------------------------------------------
 */

static void
usage_tier(const struct kvp_node *node, Kvp__TierUsage *tier)
{
	struct kvp_store_stats stats;

	kvp_store_stats(node->store, &stats);
	kvp__tier_usage__init(tier);
	tier->tier = KVP_TIER_DRAM;
	tier->bytes_total = stats.bytes_total;
	tier->bytes_used = stats.bytes_used;
	tier->bytes_free = stats.bytes_free;
	tier->blocks = stats.blocks;
	tier->leased_blocks = stats.leased_blocks;
	tier->leased_bytes = stats.leased_bytes;
}

static void
usage_row(struct kvp_store_usage *from, Kvp__NamespaceUsage *to)
{
	kvp__namespace_usage__init(to);
	to->ns = kvp_bytes(from->ns, KVP_NS_LEN);
	to->family = kvp_bytes(from->family, KVP_NS_LEN);
	to->epoch = from->epoch;
	to->blocks = from->blocks;
	to->bytes = from->bytes;
	to->taken = from->taken;
	to->quota = from->quota;
	to->old = from->old;
}

int
kvp_rpc_usage(struct kvp_node *node, struct kvp_request *request)
{
	struct usage_space {
		struct kvp_store_usage usages[USAGE_ROWS_MAX];
		Kvp__NamespaceUsage rows[USAGE_ROWS_MAX];
		Kvp__NamespaceUsage *list[USAGE_ROWS_MAX];
	} *space = malloc(sizeof(*space));
	Kvp__UsageReply reply = KVP__USAGE_REPLY__INIT;
	struct kvp_store_usage more;
	Kvp__TierUsage tier;
	Kvp__TierUsage *tiers = &tier;
	uint32_t cursor = 0;

	if (space == NULL) {
		return -ENOMEM;
	}
	while (reply.n_namespaces < USAGE_ROWS_MAX &&
		kvp_store_usage_next(node->store, &cursor, &space->usages[reply.n_namespaces])) {
		usage_row(&space->usages[reply.n_namespaces], &space->rows[reply.n_namespaces]);
		space->list[reply.n_namespaces] = &space->rows[reply.n_namespaces];
		reply.n_namespaces++;
	}
	usage_tier(node, &tier);
	reply.namespaces = space->list;
	reply.tiers = &tiers;
	reply.n_tiers = 1;
	reply.cut = reply.n_namespaces == USAGE_ROWS_MAX &&
		    kvp_store_usage_next(node->store, &cursor, &more);
	kvp_node_reply(node, request->call, 0, &reply.base);
	free(space);
	return 0;
}

/* --- LEASES --------------------------------------------------------------------------------------
 */

struct lease_row {
	Kvp__LeaseInfo info;
	char client[LEASES_CLIENT_LEN];
};

static void
lease_row_fill(struct kvp_node *node, const struct kvp_store_lease_info *from, uint64_t now_ns,
	struct lease_row *row)
{
	const struct kvp_session *session = &node->sessions[from->owner];

	kvp__lease_info__init(&row->info);
	row->client[0] = '\0';
	if (session->peer != NULL) {
		(void)snprintf(row->client, sizeof(row->client), "%s at %s",
			session->peer->conn->peer.name, session->peer->conn->peer.addr);
	}
	row->info.lease = from->lease;
	row->info.owner = from->owner;
	row->info.client = row->client;
	row->info.blocks = from->blocks;
	row->info.left_ms = from->until_ns > now_ns ? (from->until_ns - now_ns) / KVP_NS_PER_MS : 0;
}

int
kvp_rpc_leases(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Leases *msg = (const Kvp__Leases *)request->msg;
	struct lease_row *rows = calloc(LEASES_ROWS_MAX, sizeof(*rows));
	Kvp__LeaseInfo **list = calloc(LEASES_ROWS_MAX, sizeof(Kvp__LeaseInfo *));
	Kvp__LeasesReply reply = KVP__LEASES_REPLY__INIT;
	struct kvp_store_lease_info info;
	uint64_t now_ns = kvp_node_now(node);
	uint32_t owner = msg->of_owner ? msg->owner : KVP_STORE_OWNER_ANY;
	uint32_t cursor = 0;
	int err = 0;

	if (rows == NULL || list == NULL) {
		err = -ENOMEM;
		goto out_free;
	}
	if (msg->of_owner && msg->owner >= node->owners_max) {
		err = -EINVAL;
		goto out_free;
	}
	while (kvp_store_lease_next(node->store, &cursor, &info)) {
		if (msg->of_owner && info.owner != owner) {
			continue;
		}
		if (reply.n_leases == LEASES_ROWS_MAX) {
			reply.cut = true;
			break;
		}
		lease_row_fill(node, &info, now_ns, &rows[reply.n_leases]);
		list[reply.n_leases] = &rows[reply.n_leases].info;
		reply.n_leases++;
	}
	if (msg->purge) {
		reply.purged = kvp_store_leases_purge(node->store, now_ns, owner);
		kvp_announce_flush(node->announce); /* what waited for it may be gone now */
		kvp_warn(node->cfg.log, "%s at %s ended %u leases", request->peer->conn->peer.name,
			request->peer->conn->peer.addr, reply.purged);
	}
	reply.leases = list;
	kvp_node_reply(node, request->call, 0, &reply.base);

out_free:
	free(rows);
	free(list);
	return err;
}
