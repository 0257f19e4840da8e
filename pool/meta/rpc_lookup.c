/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_lookup.c - LOOKUP: where the blocks of these keys are. HOT: nothing is allocated a key.
 */
#include "hal/base/err.h"
#include "pool/meta/meta_impl.h"
#include "transport/proto/wire.h"

#include <string.h>

struct lookup {
	struct kvp_meta *meta;
	struct meta_lookup_scratch *scratch;
	uint64_t now_ns;
	size_t key_count;
	uint32_t replicas_max;
	size_t found;  /* keys with a location */
	size_t prefix; /* keys before the first without */
	bool missed;   /* there was one without */
	size_t loc_count;
	size_t node_count;
	size_t behind_count;
};

/* Looks the next count keys up. */
static void
lookup_batch(
	struct lookup *lookup, struct kvp_reader *keys, const uint8_t *ns, size_t at, size_t count)
{
	struct meta_lookup_scratch *scratch = lookup->scratch;
	uint64_t seed = kvp_directory_seed(lookup->meta->dir);

	for (size_t i = 0; i < count; i++) {
		struct kvp_key key;

		kvp_read_key(keys, &key);
		kvp_key_digest(seed, ns, &key, scratch->digests[i]);
	}
	lookup->loc_count += kvp_directory_find(lookup->meta->dir,
		(const uint64_t(*)[2])scratch->digests, count, lookup->replicas_max,
		&scratch->counts[at], &scratch->locs[lookup->loc_count]);
	for (size_t i = at; i < at + count; i++) {
		lookup->missed = lookup->missed || scratch->counts[i] == 0;
		lookup->found += scratch->counts[i] > 0;
		lookup->prefix += !lookup->missed;
	}
}

static void
lookup_keys(struct lookup *lookup, const Kvp__Lookup *req)
{
	struct kvp_reader keys = kvp_reader_over(req->keys.data, req->keys.len);
	size_t at = 0;

	memset(lookup->scratch->counts, 0, lookup->key_count);
	while (at < lookup->key_count && !(req->prefix && lookup->missed)) {
		size_t count = lookup->key_count - at;

		if (count > KVP_FIND_KEYS_MAX) {
			count = KVP_FIND_KEYS_MAX;
		}
		lookup_batch(lookup, &keys, req->ns.data, at, count);
		at += count;
	}
	if (req->prefix && lookup->missed) {
		/* The last batch went beyond the miss. */
		lookup->loc_count = 0;
		for (size_t i = 0; i < lookup->prefix; i++) {
			lookup->loc_count += lookup->scratch->counts[i];
		}
		memset(&lookup->scratch->counts[lookup->prefix], 0,
			lookup->key_count - lookup->prefix);
		lookup->found = lookup->prefix;
	}
}

static void
node_describe(const struct kvp_member *member, Kvp__NodeInfo *ret_info)
{
	const struct kvp_member_info *info = &member->info;

	kvp__node_info__init(ret_info);
	ret_info->id = kvp_bytes(info->id, sizeof(info->id));
	ret_info->incarnation = info->incarnation;
	ret_info->name = (char *)info->name; /* only read by the encoder */
	ret_info->address = (char *)info->address;
	ret_info->local_address = (char *)info->local_address;
	ret_info->host_id = kvp_bytes(info->host_id, sizeof(info->host_id));
}

/* Turns the directory's node indexes into those of a table of only the nodes that occur. */
static void
lookup_nodes(struct lookup *lookup)
{
	struct meta_lookup_scratch *scratch = lookup->scratch;

	memset(scratch->node_of, 0, sizeof(scratch->node_of));
	for (size_t i = 0; i < lookup->loc_count; i++) {
		uint16_t idx = scratch->locs[i].node;

		if (scratch->node_of[idx] == 0) {
			node_describe(&lookup->meta->ms.members[idx],
				&scratch->infos[lookup->node_count]);
			scratch->nodes[lookup->node_count] = &scratch->infos[lookup->node_count];
			scratch->node_of[idx] = (uint16_t)++lookup->node_count;
		}
		scratch->locs[i].node = (uint16_t)(scratch->node_of[idx] - 1);
	}
}

/* Who only wants to know the nodes asks without keys. */
static void
lookup_all_nodes(struct lookup *lookup)
{
	const struct kvp_membership *ms = &lookup->meta->ms;
	struct meta_lookup_scratch *scratch = lookup->scratch;

	for (uint16_t i = 0; i < ms->high; i++) {
		const struct kvp_member *member = &ms->members[i];

		if ((member->state == KVP_MEMBER_LIVE || member->state == KVP_MEMBER_SUSPECT) &&
			scratch->node_of[i] == 0) {
			node_describe(member, &scratch->infos[lookup->node_count]);
			scratch->nodes[lookup->node_count] = &scratch->infos[lookup->node_count];
			scratch->node_of[i] = (uint16_t)++lookup->node_count;
		}
	}
}

static void
behind_add(struct lookup *lookup, const uint8_t *id)
{
	lookup->scratch->behind[lookup->behind_count++] = kvp_bytes(id, KVP_ID_LEN);
}

/* A newer incarnation than the fence's knows nothing of what the fence is about: that is gone. */
static bool
fence_passed(const struct kvp_member *member, const Kvp__Fence *fence)
{
	return member->info.incarnation > fence->incarnation ||
	       (member->info.incarnation == fence->incarnation &&
		       member->applied >= fence->sequence);
}

/* Nodes for which this meta cannot say "no": those it is not in step with, those it lost, and after
 * its start those that may not have joined yet, for which an id of zeros stands. */
static void
lookup_behind(struct lookup *lookup, const Kvp__Lookup *req)
{
	static const uint8_t nobody[KVP_ID_LEN];
	struct kvp_membership *ms = &lookup->meta->ms;
	bool *is_behind = lookup->scratch->is_behind;

	for (uint16_t i = 0; i < ms->high; i++) {
		const struct kvp_member *member = &ms->members[i];

		is_behind[i] =
			(member->state == KVP_MEMBER_LIVE || member->state == KVP_MEMBER_SUSPECT) &&
			!kvp_member_in_step(ms, member, lookup->now_ns);
		if (is_behind[i]) {
			behind_add(lookup, member->info.id);
		}
	}
	for (uint16_t i = 0; i < ms->missed_count; i++) {
		behind_add(lookup, ms->missed[i]);
	}
	if (kvp_membership_is_young(ms, lookup->now_ns)) {
		behind_add(lookup, nobody);
	}
	for (size_t i = 0; i < req->n_fences; i++) {
		const Kvp__Fence *fence = req->fences[i];
		const struct kvp_member *member = kvp_membership_find(ms, fence->node.data);

		if (member == NULL) {
			behind_add(lookup, fence->node.data);
		} else if (!fence_passed(member, fence) && !is_behind[kvp_member_idx(ms, member)]) {
			is_behind[kvp_member_idx(ms, member)] = true;
			behind_add(lookup, member->info.id);
		}
	}
}

/* 0, or the reason's metric in *ret_reason. */
static int
lookup_check(const Kvp__Lookup *req, size_t *ret_key_count, enum kvp_meta_metric *ret_reason)
{
	int count;

	*ret_reason = KVP_META_REJECT_MESSAGE;
	if (req->ns.len != KVP_NS_LEN || req->n_fences > META_FENCES_MAX) {
		return -KVP_E_PROTO;
	}
	for (size_t i = 0; i < req->n_fences; i++) {
		if (req->fences[i]->node.len != KVP_ID_LEN) {
			return -KVP_E_PROTO;
		}
	}
	*ret_reason = KVP_META_REJECT_KEYS;
	count = kvp_keys_count(req->keys.data, req->keys.len, KVP_RPC_KEYS_MAX);
	if (count < 0) {
		return count;
	}
	*ret_key_count = (size_t)count;
	return 0;
}

static void
lookup_count(const struct lookup *lookup)
{
	struct kvp_metrics *metrics = lookup->meta->cfg.metrics;

	kvp_metric_add(metrics, KVP_META_LOOKUPS, 1);
	kvp_metric_add(metrics, KVP_META_LOOKUP_KEYS, lookup->key_count);
	kvp_metric_add(metrics, KVP_META_LOOKUP_FOUND, lookup->found);
	kvp_metric_add(metrics, KVP_META_LOOKUP_BEHIND, lookup->behind_count > 0);
}

void
meta_rpc_lookup(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Lookup *req)
{
	Kvp__LookupReply reply = KVP__LOOKUP_REPLY__INIT;
	struct lookup lookup = {.meta = meta, .scratch = &meta->lookup};
	enum kvp_meta_metric reason;
	int err = lookup_check(req, &lookup.key_count, &reason);

	if (err < 0) {
		meta_refuse(meta, call, err, reason);
		return;
	}
	lookup.now_ns = kvp_now_ns(meta->cfg.env);
	lookup.replicas_max = req->replicas_max == 0 ? 1 : req->replicas_max;
	if (lookup.replicas_max > KVP_REPLICAS_MAX) {
		lookup.replicas_max = KVP_REPLICAS_MAX;
	}
	lookup_keys(&lookup, req);
	lookup_nodes(&lookup);
	if (req->all_nodes) {
		lookup_all_nodes(&lookup);
	}
	lookup_behind(&lookup, req);
	lookup_count(&lookup);
	reply.prefix = (uint32_t)lookup.prefix;
	reply.counts = kvp_bytes(lookup.scratch->counts, lookup.key_count);
	reply.locations =
		kvp_bytes(lookup.scratch->locs, lookup.loc_count * sizeof(*lookup.scratch->locs));
	reply.n_nodes = lookup.node_count;
	reply.nodes = lookup.scratch->nodes;
	reply.n_behind = lookup.behind_count;
	reply.behind = lookup.scratch->behind;
	meta_reply(meta, call, &reply.base);
}
