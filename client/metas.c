/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metas.c - calls to whichever metadata server answers.
 *
 * The last one that answered is asked first. One that fails, or is silent for its share of the
 * time left, is passed over for the next; when all failed, all are tried again a little later,
 * until the call's deadline.
 *
 * THREADS the loop's.
 */
#include "client/control.h"
#include "client/tie.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define METAS_PAUSE_NS (25 * KVP_NS_PER_MS) /* between rounds */

struct kvp_metas {
	struct kvp_client *client;
	struct kvp_list calls; /* that wait for the next round */
	uint32_t count;
	uint32_t current;
	bool closing;
	struct kvp_tie ties[KVP_METAS_MAX];
};

static void metas_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len);

/* The next meta this call should ask: one whose link is up if there is one. -1: none is left. */
static int
metas_pick(const struct kvp_metas *metas, uint32_t tried)
{
	int pick = -1;

	for (uint32_t i = 0; i < metas->count; i++) {
		uint32_t idx = (metas->current + i) % metas->count;
		const struct kvp_rpc_link *link = metas->ties[idx].link;

		if ((tried & 1u << idx) != 0 || link == NULL) {
			continue;
		}
		if (link->up) {
			return (int)idx;
		}
		if (pick < 0) {
			pick = (int)idx;
		}
	}
	return pick;
}

/* Asks the next one, or ends the call. */
static void
metas_try(struct kvp_metas *metas, struct kvp_call *call)
{
	struct kvp_rpc *rpc = metas->client->rpc;
	uint64_t now = kvp_now_ns(metas->client->env);
	int idx = metas_pick(metas, call->tried);
	uint64_t left = call->deadline_ns > now ? call->deadline_ns - now : 0;
	uint32_t untried = 0;

	if (metas->closing) {
		kvp_call_answer(call, -KVP_E_CANCELLED, NULL, 0);
		return;
	}
	if (idx < 0 && call->avoid != 0) {
		kvp_call_answer(call, -KVP_E_BEHIND, NULL, 0); /* there is no better one */
		return;
	}
	if (left == 0 || (idx < 0 && left <= METAS_PAUSE_NS)) {
		kvp_call_answer(call, -KVP_E_META_DOWN, NULL, 0);
		return;
	}
	if (idx < 0) {
		kvp_list_push_back(&metas->calls, &call->link);
		rpc->ops->timer_start(rpc, &call->timer, METAS_PAUSE_NS);
		return;
	}
	for (uint32_t i = 0; i < metas->count; i++) {
		untried += (call->tried & 1u << i) == 0;
	}
	call->meta_idx = (uint32_t)idx;
	kvp_call_send(call, metas->ties[idx].link, now + left / untried, metas_done);
}

static void
metas_again(struct kvp_rpc_timer *timer)
{
	struct kvp_call *call = kvp_container_of(timer, struct kvp_call, timer);

	kvp_list_remove(&call->link);
	call->tried = call->avoid;
	metas_try(call->client->control->metas, call);
}

/* Would another meta say the same? */
static bool
metas_is_final(int status)
{
	return status == 0 || status == -EINVAL || status == -KVP_E_TOO_LARGE ||
	       status == -KVP_E_KEY_LEN;
}

static void
metas_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct kvp_call *call = kvp_container_of(req, struct kvp_call, req);
	struct kvp_metas *metas = call->client->control->metas;
	uint32_t idx = call->meta_idx;

	call->out = false;
	if (metas_is_final(status)) {
		metas->current = call->avoid == 0 ? idx : metas->current;
		kvp_call_answer(call, status, body, len);
		return;
	}
	kvp_debug(metas->client->log, "meta %s: %s", metas->ties[idx].addr, kvp_err_str(status));
	if (metas->current == idx) {
		metas->current = (idx + 1) % metas->count;
	}
	call->tried |= 1u << idx;
	metas_try(metas, call);
}

int
kvp_metas_open(struct kvp_client *client, struct kvp_metas **ret_metas)
{
	struct kvp_metas *metas = calloc(1, sizeof(*metas));
	int err = 0;

	if (metas == NULL) {
		return -ENOMEM;
	}
	metas->client = client;
	kvp_list_init(&metas->calls);
	for (uint32_t i = 0; i < client->set.meta_count && err == 0; i++) {
		struct kvp_tie *tie = &metas->ties[i];

		tie->client = client;
		snprintf(tie->addr, sizeof(tie->addr), "%s", client->set.metas[i]);
		err = kvp_tie_open(tie);
		metas->count += err == 0;
	}
	if (err < 0) {
		kvp_metas_close(metas);
		return err;
	}
	*ret_metas = metas;
	return 0;
}

void
kvp_metas_close(struct kvp_metas *metas)
{
	struct kvp_rpc *rpc;

	if (metas == NULL) {
		return;
	}
	rpc = metas->client->rpc;
	metas->closing = true;
	for (uint32_t i = 0; i < metas->count; i++) {
		kvp_tie_close(&metas->ties[i]);
	}
	kvp_list_for_each_safe (pos, &metas->calls) {
		struct kvp_call *call = kvp_container_of(pos, struct kvp_call, link);

		rpc->ops->timer_stop(rpc, &call->timer);
		kvp_list_remove(&call->link);
		kvp_call_answer(call, -KVP_E_CANCELLED, NULL, 0);
	}
	free(metas);
}

void
kvp_metas_call(struct kvp_metas *metas, struct kvp_call *call)
{
	call->tried = call->avoid;
	call->timer.fn = metas_again;
	metas_try(metas, call);
}
