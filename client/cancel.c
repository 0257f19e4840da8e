/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cancel.c - taking batches back, and waiting until memory is left alone.
 */
#include "client/op.h"
#include "hal/base/err.h"

#include <errno.h>
#include <time.h>

#define DRAIN_NAP_NS 500000

int
kvp_cancel(struct kvp_cq *cq, uint64_t tag)
{
	int count = 0;

	if (kvp_client_forked(cq->client)) {
		return -EPERM;
	}
	pthread_mutex_lock(&cq->lock);
	kvp_list_for_each (pos, &cq->opers) {
		struct kvp_oper *oper = kvp_container_of(pos, struct kvp_oper, link);

		/* What is posted cannot be recalled but by ending its connection, and that would
		 * cost others theirs. */
		if (oper->batch.tag == tag && oper->end == 0 && oper->units == 0) {
			kvp_oper_end(oper, -KVP_E_CANCELLED);
			count++;
		}
	}
	if (count > 0) {
		kvp_cq_kick(cq);
		kvp_port_signal(cq->port); /* who sleeps finds the completions */
	}
	pthread_mutex_unlock(&cq->lock);
	return count;
}

static bool
oper_uses(const struct kvp_oper *oper, uintptr_t addr, size_t len)
{
	for (uint32_t i = 0; oper->ops->moves_data && i < oper->batch.item_count; i++) {
		const struct kvp_item *item = &oper->batch.items[i];

		if (item->status != KVP_ITEM_OPEN) {
			continue;
		}
		for (uint32_t k = 0; k < item->seg_count; k++) {
			uintptr_t seg = (uintptr_t)item->segs[k].iov_base;

			if (seg < addr + len && addr < seg + item->segs[k].iov_len) {
				return true;
			}
		}
	}
	return false;
}

/* Under the lock. */
static bool
cq_uses(const struct kvp_cq *cq, uintptr_t addr, size_t len)
{
	kvp_list_for_each (pos, &cq->opers) {
		if (oper_uses(kvp_container_of(pos, struct kvp_oper, link), addr, len)) {
			return true;
		}
	}
	return false;
}

int
kvp_drain(struct kvp_cq *cq, const void *addr, size_t len, uint32_t timeout_ms)
{
	const struct timespec nap = {.tv_nsec = DRAIN_NAP_NS};
	const struct kvp_env *env = cq->client->env;
	uint64_t end;

	if (kvp_client_forked(cq->client)) {
		return -EPERM;
	}
	if (len == 0 || (uintptr_t)addr + len < (uintptr_t)addr) {
		return -EINVAL;
	}
	end = kvp_now_ns(env) + timeout_ms * KVP_NS_PER_MS;
	for (;;) {
		bool busy;

		pthread_mutex_lock(&cq->lock);
		kvp_cq_work(cq);
		busy = cq_uses(cq, (uintptr_t)addr, len);
		if (busy) {
			kvp_cq_nap(cq, &nap);
		}
		pthread_mutex_unlock(&cq->lock);
		if (!busy) {
			return 0;
		}
		if (kvp_now_ns(env) >= end) {
			return -KVP_E_TIMEOUT;
		}
	}
}
