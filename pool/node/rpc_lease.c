// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_lease.c - LEASE: what is here of these keys stays in place for a while; UNLEASE: no longer.
 *
 * The lease is opened with the first slice, so its deadline may lie before what the client counts
 * from the answer on by as much as the slices took; the client counts from before its request.
 */
#include "pool/node/session.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

struct lease {
	struct kvp_work work;
	struct kvp_reader keys; /* the next key; checked before */
	uint64_t lease;         /* 0: none yet */
	uint32_t lease_ms;
	uint32_t held;
	bool missed;
	int32_t *statuses;
	struct kvp_loc *locs; /* as many as are held */
};

static void
lease_free(struct kvp_work *work)
{
	struct lease *lease = kvp_container_of(work, struct lease, work);

	free(lease->statuses);
	free(lease->locs);
	free(lease);
}

static int
lease_one(struct lease *lease, const struct kvp_key *key)
{
	const Kvp__Lease *msg = (const Kvp__Lease *)lease->work.msg;
	struct kvp_store *store = lease->work.node->store;
	uint32_t owner = lease->work.session->owner;
	uint64_t now_ns = lease->work.now_ns;
	struct kvp_loc loc;
	int err;

	if (lease->missed && msg->prefix) {
		return -KVP_E_NOKEY;
	}
	err = kvp_store_lookup(store, msg->ns.data, key, &loc);
	if (err == 0 && lease->lease == 0) {
		err = kvp_store_lease_open(
			store, owner, now_ns + lease->lease_ms * KVP_NS_PER_MS, &lease->lease);
	}
	if (err == 0) {
		err = kvp_store_lease_add(store, now_ns, owner, lease->lease, loc.slot, loc.word);
	}
	if (err == 0) {
		lease->locs[lease->held++] = loc;
	}
	return err;
}

static void
lease_item(struct kvp_work *work, uint32_t idx)
{
	struct lease *lease = kvp_container_of(work, struct lease, work);
	struct kvp_key key;

	kvp_read_key(&lease->keys, &key);
	lease->statuses[idx] = lease_one(lease, &key);
	lease->missed = lease->missed || lease->statuses[idx] < 0;
}

static void
lease_done(struct kvp_work *work)
{
	struct lease *lease = kvp_container_of(work, struct lease, work);
	Kvp__LeaseReply reply = KVP__LEASE_REPLY__INIT;

	if (lease->held == 0) {
		kvp_store_lease_end(
			work->node->store, work->now_ns, work->session->owner, lease->lease);
		lease->lease = 0;
	}
	reply.statuses = kvp_bytes(lease->statuses, work->count * sizeof(*lease->statuses));
	reply.locations = kvp_bytes(lease->locs, lease->held * sizeof(*lease->locs));
	reply.lease = lease->lease;
	reply.lease_ms = lease->lease_ms;
	kvp_work_reply(work, 0, &reply.base);
}

static const struct kvp_work_ops lease_ops = {
	.item = lease_item,
	.done = lease_done,
	.free = lease_free,
};

int
kvp_rpc_lease(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Lease *msg = (const Kvp__Lease *)request->msg;
	int count = kvp_keys_count(msg->keys.data, msg->keys.len, KVP_RPC_KEYS_MAX);
	struct lease *lease;

	if (count <= 0 || msg->ns.len != KVP_NS_LEN || msg->lease_ms == 0) {
		return -KVP_E_PROTO;
	}
	if (node->cfg.lease_ms_max == 0) {
		return -KVP_E_BUSY; /* none are given here */
	}
	lease = calloc(1, sizeof(*lease));
	if (lease == NULL) {
		return -ENOMEM;
	}
	lease->work.ops = &lease_ops;
	lease->work.count = (uint32_t)count;
	lease->lease_ms =
		msg->lease_ms < node->cfg.lease_ms_max ? msg->lease_ms : node->cfg.lease_ms_max;
	lease->keys = kvp_reader_over(msg->keys.data, msg->keys.len);
	lease->statuses = calloc((size_t)count, sizeof(*lease->statuses));
	lease->locs = calloc((size_t)count, sizeof(*lease->locs));
	if (lease->statuses == NULL || lease->locs == NULL) {
		lease_free(&lease->work);
		return -ENOMEM;
	}
	kvp_work_start(node, request, &lease->work);
	return 0;
}

int
kvp_rpc_unlease(struct kvp_node *node, struct kvp_request *request)
{
	const Kvp__Unlease *msg = (const Kvp__Unlease *)request->msg;
	Kvp__UnleaseReply reply = KVP__UNLEASE_REPLY__INIT;
	size_t count = msg->leases.len / sizeof(uint64_t);
	uint64_t now_ns = kvp_node_now(node);

	if (count == 0 || count > KVP_NODE_SLICE_KEYS ||
		kvp_array(&msg->leases, count, sizeof(uint64_t)) == NULL) {
		return -KVP_E_PROTO;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t lease;

		memcpy(&lease, msg->leases.data + i * sizeof(lease), sizeof(lease));
		kvp_store_lease_end(node->store, now_ns, request->peer->session->owner, lease);
	}
	kvp_node_reply(node, request->call, 0, &reply.base);
	return 0;
}
