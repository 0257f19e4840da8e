/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_impl.h - what the files of pool/meta share: the meta itself and one handler a message.
 */
#ifndef KVP_POOL_META_META_IMPL_H
#define KVP_POOL_META_META_IMPL_H

#include "pool/meta/membership.h"
#include "pool/meta/meta.h"
#include "transport/proto/kvpool.pb-c.h"

#define META_FENCES_MAX KVP_NODES_MAX
#define META_BEHIND_MAX (KVP_NODES_MAX + META_FENCES_MAX + KVP_MEMBERS_MISSED_MAX + 1)

/* Where a lookup puts its answer together; one at a time. */
struct meta_lookup_scratch {
	uint64_t digests[KVP_FIND_KEYS_MAX][2];
	uint8_t counts[KVP_RPC_KEYS_MAX];
	struct kvp_loc locs[KVP_RPC_KEYS_MAX * KVP_REPLICAS_MAX];
	uint16_t node_of[KVP_NODES_MAX]; /* directory index -> 1 + index in the answer; 0: none */
	Kvp__NodeInfo infos[KVP_NODES_MAX];
	Kvp__NodeInfo *nodes[KVP_NODES_MAX];
	bool is_behind[KVP_NODES_MAX];
	ProtobufCBinaryData behind[META_BEHIND_MAX];
};

struct kvp_meta {
	struct kvp_meta_cfg cfg;
	struct kvp_rpc_service service;
	struct kvp_directory *dir;
	struct kvp_rpc_timer tick;
	struct kvp_rpc_timer sweep;
	bool sweeping; /* the sweep's timer runs */
	uint64_t swept_counted;
	uint64_t opened_ns;
	uint32_t conns_count;
	bool closed; /* only open connections keep it in memory */
	struct kvp_membership ms;
	struct meta_lookup_scratch lookup;
};

/* Each replies. body was decoded and is freed by the caller. */
void meta_rpc_status(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Status *req);
void meta_rpc_lookup(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Lookup *req);
void meta_rpc_join(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Join *req);
void meta_rpc_announce(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Announce *req);

/* Encodes and sends an answer of status 0. */
void meta_reply(struct kvp_meta *meta, struct kvp_rpc_call *call, const ProtobufCMessage *msg);

/* Answers with status, counts the reason. */
void meta_refuse(
	struct kvp_meta *meta, struct kvp_rpc_call *call, int status, enum kvp_meta_metric reason);

/* And closes the connection of who cannot be a peer of ours. */
void meta_refuse_close(
	struct kvp_meta *meta, struct kvp_rpc_call *call, int status, enum kvp_meta_metric reason);

/* Locations may be gone: has them collected, and the gauges follow. */
void meta_dir_changed(struct kvp_meta *meta);

#endif /* KVP_POOL_META_META_IMPL_H */
