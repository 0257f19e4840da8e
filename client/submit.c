/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submit.c - a batch comes in. HOT
 */
#include "client/op.h"
#include "hal/base/err.h"

#include <errno.h>

int
kvp_submit(struct kvp_cq *cq, const struct kvp_batch *batch)
{
	int err;

	if (kvp_client_forked(cq->client)) {
		return -EPERM;
	}
	pthread_mutex_lock(&cq->lock);
	if (cq->closing || atomic_load_explicit(&cq->client->closing, memory_order_relaxed)) {
		err = -KVP_E_CANCELLED;
	} else if (cq->out >= cq->depth) {
		err = -EAGAIN;
	} else {
		err = kvp_oper_start(cq, batch);
	}
	if (err == 0) {
		kvp_cq_kick(cq);
		if (cq->sleepers > 0 || atomic_load_explicit(&cq->fd_asked, memory_order_relaxed)) {
			kvp_port_signal(cq->port); /* who sleeps does not watch for this yet */
		}
	}
	pthread_mutex_unlock(&cq->lock);
	return err;
}
