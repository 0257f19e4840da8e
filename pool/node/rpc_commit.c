// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_commit.c - COMMIT: filled slots become visible here, then at the metas.
 *
 * The answer waits until every meta that counts has applied the last of these changes, for a
 * bounded time; who waits for it knows then that any client finds the blocks. An answer without
 * that says unindexed. local_only asks for no such promise and gets no verdict.
 */
#include "pool/node/announce.h"
#include "pool/node/session.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

struct commit {
	struct kvp_work work;
	const Kvp__Commit *msg; /* work.msg */
	int32_t *statuses;
	struct kvp_loc *locs;
	uint32_t stored; /* and as many locs */
	uint64_t sequence;
	uint64_t deadline_ns; /* of the wait for metas */
};

static void
commit_free(struct kvp_work *work)
{
	struct commit *commit = kvp_container_of(work, struct commit, work);

	free(commit->statuses);
	free(commit->locs);
	free(commit);
}

static void
commit_item(struct kvp_work *work, uint32_t idx)
{
	static const uint8_t unhashed[KVP_SUM_LEN];
	struct commit *commit = kvp_container_of(work, struct commit, work);
	struct kvp_node *node = work->node;
	const uint8_t *sum = unhashed;
	struct kvp_grant grant;

	memcpy(&grant, commit->msg->grants.data + idx * sizeof(grant), sizeof(grant));
	if (commit->msg->sums.len != 0) {
		sum = commit->msg->sums.data + idx * KVP_SUM_LEN;
	}
	commit->statuses[idx] = kvp_store_commit(node->store, work->now_ns, work->session->owner,
		&grant, sum, &commit->locs[commit->stored]);
	if (commit->statuses[idx] == 0) {
		commit->stored++;
		commit->sequence = kvp_announce_sequence(node->announce);
	}
}

static void
commit_reply(struct commit *commit, bool unindexed)
{
	struct kvp_node *node = commit->work.node;
	Kvp__CommitReply reply = KVP__COMMIT_REPLY__INIT;

	reply.statuses = kvp_bytes(commit->statuses, commit->work.count * sizeof(int32_t));
	reply.locations = kvp_bytes(commit->locs, commit->stored * sizeof(struct kvp_loc));
	reply.unindexed = unindexed;
	reply.sequence = commit->sequence;
	if (unindexed) {
		kvp_metric_add(node->cfg.metrics, KVP_NODE_UNINDEXED, commit->stored);
	}
	kvp_work_reply(&commit->work, 0, &reply.base);
}

/* Replies if the wait is over, in whatever way. */
static void
commit_check(struct commit *commit, uint64_t now_ns)
{
	switch (kvp_announce_indexed(commit->work.node->announce, commit->sequence, now_ns)) {
	case KVP_INDEXED_ALL:
		commit_reply(commit, false);
		break;
	case KVP_INDEXED_NONE:
		commit_reply(commit, true);
		break;
	case KVP_INDEXED_WAIT:
		if (now_ns >= commit->deadline_ns) {
			commit_reply(commit, true);
		}
		break;
	}
}

static void
commit_done(struct kvp_work *work)
{
	struct commit *commit = kvp_container_of(work, struct commit, work);
	struct kvp_node *node = work->node;
	uint32_t wait_ms = commit->msg->index_wait_ms;

	if (commit->stored == 0 || commit->msg->local_only) {
		commit_reply(commit, false);
		return;
	}
	wait_ms = wait_ms == 0 ? node->cfg.index_wait_ms : wait_ms;
	if (wait_ms > KVP_NODE_INDEX_WAIT_MS_MAX) {
		wait_ms = KVP_NODE_INDEX_WAIT_MS_MAX;
	}
	commit->deadline_ns = work->now_ns + wait_ms * KVP_NS_PER_MS;
	kvp_list_push_back(&node->waits, &work->link);
	commit_check(commit, work->now_ns);
}

void
kvp_commit_poll(struct kvp_node *node, uint64_t now_ns)
{
	kvp_list_for_each_safe (pos, &node->waits) {
		struct kvp_work *work = kvp_container_of(pos, struct kvp_work, link);

		commit_check(kvp_container_of(work, struct commit, work), now_ns);
	}
}

static const struct kvp_work_ops commit_ops = {
	.item = commit_item,
	.done = commit_done,
	.free = commit_free,
};

int
kvp_rpc_commit(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Commit *msg = (const Kvp__Commit *)request->msg;
	size_t count = msg->grants.len / sizeof(struct kvp_grant);
	struct commit *commit;

	if (count == 0 || count > KVP_RPC_KEYS_MAX ||
		kvp_array(&msg->grants, count, sizeof(struct kvp_grant)) == NULL ||
		(msg->sums.len != 0 && kvp_array(&msg->sums, count, KVP_SUM_LEN) == NULL)) {
		return -KVP_E_PROTO;
	}
	commit = calloc(1, sizeof(*commit));
	if (commit == NULL) {
		return -ENOMEM;
	}
	commit->work.ops = &commit_ops;
	commit->work.count = (uint32_t)count;
	commit->msg = msg;
	commit->statuses = calloc(count, sizeof(*commit->statuses));
	commit->locs = calloc(count, sizeof(*commit->locs));
	if (commit->statuses == NULL || commit->locs == NULL) {
		commit_free(&commit->work);
		return -ENOMEM;
	}
	kvp_work_start(node, request, &commit->work);
	return 0;
}
