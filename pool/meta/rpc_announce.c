/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_announce.c - ANNOUNCE: the next changes of a node's stream, or a part of its snapshot, or,
 * empty, its heartbeat. A message is applied whole or not at all.
 */
#include "hal/base/err.h"
#include "pool/meta/meta_impl.h"
#include "transport/proto/wire.h"

#include <inttypes.h>

static bool
record_valid(const struct kvp_announce *head)
{
	switch (head->kind) {
	case KVP_ANNOUNCE_STORED:
		return head->klen > 0 && head->tier <= KVP_TIER_SSD &&
		       head->len <= KVP_BLOCK_LEN_MAX &&
		       kvp_word_state(head->word) == KVP_SLOT_VALID;
	case KVP_ANNOUNCE_REMOVED:
		return head->klen == 0;
	default:
		return false;
	}
}

/* As many records as it says, each sound, and nothing after them. */
static bool
records_valid(const Kvp__Announce *req)
{
	struct kvp_reader reader = kvp_reader_over(req->records.data, req->records.len);

	if (req->records_count > KVP_RPC_KEYS_MAX || req->records_count > req->sequence) {
		return false;
	}
	for (uint32_t i = 0; i < req->records_count; i++) {
		struct kvp_announce head;
		struct kvp_key key;

		kvp_read_announce(&reader, &head, &key);
		if (reader.failed || !record_valid(&head)) {
			return false;
		}
	}
	return reader.left == 0;
}

static void
record_store(struct kvp_meta *meta, uint16_t node, const struct kvp_announce *head,
	const struct kvp_key *key)
{
	struct kvp_place place = {.word = head->word,
		.off = head->off,
		.len = (uint32_t)head->len,
		.slot = head->slot,
		.tier = head->tier};
	uint64_t digest[2];
	int err;

	kvp_key_digest(kvp_directory_seed(meta->dir), head->ns, key, digest);
	err = kvp_directory_store(meta->dir, node, digest, &place);
	if (err == -KVP_E_STALE) {
		kvp_metric_add(meta->cfg.metrics, KVP_META_IGNORED_OLDER, 1);
	} else if (err == -KVP_E_NO_SPACE) {
		kvp_metric_add(meta->cfg.metrics, KVP_META_IGNORED_FULL, 1);
		kvp_warn(meta->cfg.log,
			"index is full at %" PRIu64
			" locations: more cannot be found; raise index.blocks",
			meta->cfg.blocks_max);
	} else {
		kvp_metric_add(meta->cfg.metrics, KVP_META_STORED, 1);
	}
}

static void
records_apply(struct kvp_meta *meta, uint16_t node, const Kvp__Announce *req)
{
	struct kvp_reader reader = kvp_reader_over(req->records.data, req->records.len);

	for (uint32_t i = 0; i < req->records_count; i++) {
		struct kvp_announce head;
		struct kvp_key key;

		kvp_read_announce(&reader, &head, &key);
		if (head.kind == KVP_ANNOUNCE_STORED) {
			record_store(meta, node, &head, &key);
		} else if (kvp_directory_remove(meta->dir, node, head.slot, head.word) < 0) {
			/* Its slot was filled again, or its storing found the index full. */
			kvp_metric_add(meta->cfg.metrics, KVP_META_IGNORED_UNKNOWN, 1);
		} else {
			kvp_metric_add(meta->cfg.metrics, KVP_META_REMOVED, 1);
		}
	}
}

/* Does the message continue what we have? Else the node must state everything anew. */
static bool
stream_accept(struct kvp_meta *meta, struct kvp_member *member, const Kvp__Announce *req)
{
	if (req->snapshot_begin) {
		kvp_directory_snapshot_begin(meta->dir, kvp_member_idx(&meta->ms, member));
		member->applied = req->sequence - req->records_count;
		member->snapshot_open = true;
		member->whole = false;
		return true;
	}
	if ((member->whole || member->snapshot_open) &&
		req->sequence - req->records_count == member->applied &&
		(member->snapshot_open || !req->snapshot_end)) {
		return true;
	}
	if (member->whole || member->snapshot_open) {
		kvp_warn(meta->cfg.log,
			"node %s at %s: gap in its stream, %" PRIu64 " follows %" PRIu64,
			member->info.name, member->info.address, req->sequence - req->records_count,
			member->applied);
	}
	member->whole = false;
	member->snapshot_open = false;
	return false;
}

void
meta_rpc_announce(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Announce *req)
{
	Kvp__AnnounceReply reply = KVP__ANNOUNCE_REPLY__INIT;
	struct kvp_member *member = call->conn->ctx;

	if (member == NULL) {
		meta_refuse_close(meta, call, -KVP_E_PROTO, KVP_META_REJECT_NOT_JOINED);
		return;
	}
	if (!records_valid(req)) {
		meta_refuse_close(meta, call, -KVP_E_PROTO, KVP_META_REJECT_RECORDS);
		return;
	}
	kvp_membership_heard(&meta->ms, kvp_now_ns(meta->cfg.env), member);
	kvp_metric_add(meta->cfg.metrics, KVP_META_ANNOUNCES, 1);
	if (stream_accept(meta, member, req)) {
		records_apply(meta, kvp_member_idx(&meta->ms, member), req);
		member->applied = req->sequence;
		if (req->snapshot_end) {
			kvp_directory_snapshot_end(meta->dir, kvp_member_idx(&meta->ms, member));
			member->snapshot_open = false;
			member->whole = true;
			kvp_metric_add(meta->cfg.metrics, KVP_META_SNAPSHOTS, 1);
		}
		meta_dir_changed(meta);
	} else {
		kvp_metric_add(meta->cfg.metrics, KVP_META_RESYNCS, 1);
		reply.resync = true;
	}
	reply.sequence = member->applied;
	meta_reply(meta, call, &reply.base);
}
