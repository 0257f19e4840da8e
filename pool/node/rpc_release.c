// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_release.c - RELEASE: grants that the client gives back; it promises to write there no more.
 */
#include "pool/node/session.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

struct release {
	struct kvp_work work;
	uint32_t released;
};

static void
release_free(struct kvp_work *work)
{
	free(kvp_container_of(work, struct release, work));
}

/* A grant that is none (any more) is nothing to tell: it is not held, which was the wish. */
static void
release_item(struct kvp_work *work, uint32_t idx)
{
	struct release *release = kvp_container_of(work, struct release, work);
	const Kvp__Release *msg = (const Kvp__Release *)work->msg;
	struct kvp_grant grant;

	memcpy(&grant, msg->grants.data + idx * sizeof(grant), sizeof(grant));
	if (kvp_store_release(work->node->store, work->now_ns, work->session->owner, &grant) == 0) {
		release->released++;
	}
}

static void
release_done(struct kvp_work *work)
{
	Kvp__ReleaseReply reply = KVP__RELEASE_REPLY__INIT;

	kvp_metric_add(work->node->cfg.metrics, KVP_NODE_RELEASED,
		kvp_container_of(work, struct release, work)->released);
	kvp_work_reply(work, 0, &reply.base);
}

static const struct kvp_work_ops release_ops = {
	.item = release_item,
	.done = release_done,
	.free = release_free,
};

int
kvp_rpc_release(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Release *msg = (const Kvp__Release *)request->msg;
	size_t count = msg->grants.len / sizeof(struct kvp_grant);
	struct release *release;

	if (count == 0 || count > KVP_RPC_KEYS_MAX ||
		kvp_array(&msg->grants, count, sizeof(struct kvp_grant)) == NULL) {
		return -KVP_E_PROTO;
	}
	release = calloc(1, sizeof(*release));
	if (release == NULL) {
		return -ENOMEM;
	}
	release->work.ops = &release_ops;
	release->work.count = (uint32_t)count;
	kvp_work_start(node, request, &release->work);
	return 0;
}
