// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_delete.c - DELETE: evicts blocks by name, those that are here now.
 */
#include "pool/node/session.h"
#include "pool/node/ssd.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

struct delete
{
	struct kvp_work work;
	struct kvp_reader keys; /* the next key; checked before */
	int32_t *statuses;
};

static void
delete_free(struct kvp_work *work)
{
	struct delete *delete = kvp_container_of(work, struct delete, work);

	free(delete->statuses);
	free(delete);
}

static void
delete_item(struct kvp_work *work, uint32_t idx)
{
	struct delete *delete = kvp_container_of(work, struct delete, work);
	const Kvp__Delete *msg = (const Kvp__Delete *)work->msg;
	struct kvp_key key;

	kvp_read_key(&delete->keys, &key);
	delete->statuses[idx] =
		kvp_store_delete(work->node->store, work->now_ns, msg->ns.data, &key);
	if (delete->statuses[idx] == -KVP_E_BUSY) {
		return; /* leased: it stays wherever it is */
	}
	if (work->node->ssd != NULL && kvp_ssd_delete(work->node->ssd, msg->ns.data, &key) == 0) {
		delete->statuses[idx] = 0;
	}
}

static void
delete_done(struct kvp_work *work)
{
	struct delete *delete = kvp_container_of(work, struct delete, work);
	Kvp__DeleteReply reply = KVP__DELETE_REPLY__INIT;

	reply.statuses = kvp_bytes(delete->statuses, work->count * sizeof(*delete->statuses));
	kvp_work_reply(work, 0, &reply.base);
}

static const struct kvp_work_ops delete_ops = {
	.item = delete_item,
	.done = delete_done,
	.free = delete_free,
};

int
kvp_rpc_delete(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Delete *msg = (const Kvp__Delete *)request->msg;
	int count = kvp_keys_count(msg->keys.data, msg->keys.len, KVP_RPC_KEYS_MAX);
	struct delete *delete;

	if (count <= 0 || msg->ns.len != KVP_NS_LEN) {
		return -KVP_E_PROTO;
	}
	delete = calloc(1, sizeof(*delete));
	if (delete == NULL) {
		return -ENOMEM;
	}
	delete->work.ops = &delete_ops;
	delete->work.count = (uint32_t)count;
	delete->keys = kvp_reader_over(msg->keys.data, msg->keys.len);
	delete->statuses = calloc((size_t)count, sizeof(*delete->statuses));
	if (delete->statuses == NULL) {
		delete_free(&delete->work);
		return -ENOMEM;
	}
	kvp_work_start(node, request, &delete->work);
	return 0;
}
