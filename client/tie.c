/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tie.c - a control link with a heartbeat. See tie.h.
 */
#include "client/tie.h"
#include "hal/base/err.h"

#include <string.h>

static void
tie_beat_in(struct kvp_tie *tie, uint64_t delay_ns)
{
	struct kvp_rpc *rpc = tie->client->rpc;

	rpc->ops->timer_start(rpc, &tie->beat, delay_ns);
}

static void
tie_up(void *arg, struct kvp_rpc_link *link)
{
	struct kvp_tie *tie = arg;

	(void)link; /* tie->link, unless it is not told yet */
	tie->down_since_ns = 0;
	tie->ups++;
	if (tie->ups > 1) {
		kvp_client_count(tie->client, KVP_STAT_RECONNECTS, 1);
	}
	if (tie->up != NULL) {
		tie->up(tie);
	}
}

static void
tie_down(void *arg, struct kvp_rpc_link *link, int why)
{
	struct kvp_tie *tie = arg;

	(void)link;
	if (tie->down_since_ns == 0) {
		tie->down_since_ns = kvp_now_ns(tie->client->env);
		kvp_info(tie->client->log, "link to %s is down: %s", tie->addr, kvp_err_str(why));
	}
	if (tie->down != NULL) {
		tie->down(tie);
	}
}

static int
tie_link_open(struct kvp_tie *tie)
{
	const struct kvp_rpc_link_cfg cfg = {
		.addr = tie->addr, .arg = tie, .up = tie_up, .down = tie_down};
	struct kvp_rpc *rpc = tie->client->rpc;

	tie->down_since_ns = kvp_now_ns(tie->client->env);
	return rpc->ops->link_open(rpc, &cfg, &tie->link);
}

static void
tie_link_close(struct kvp_tie *tie)
{
	struct kvp_rpc_link *link = tie->link;

	if (link != NULL) {
		tie->link = NULL; /* who is answered now must not use it again */
		link->rpc->ops->link_close(link);
	}
}

static void
tie_pinged(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct kvp_tie *tie = kvp_container_of(req, struct kvp_tie, ping);

	(void)body;
	(void)len;
	tie->pinging = false;
	if (status == -KVP_E_TIMEOUT) {
		kvp_warn(tie->client->log, "link to %s is silent: opened anew", tie->addr);
		tie->reopen = true; /* not here: this is a callback of the link */
		tie_beat_in(tie, 0);
	}
}

static void
tie_ping(struct kvp_tie *tie)
{
	memset(&tie->ping, 0, sizeof(tie->ping));
	tie->ping.type = KVP_RPC_PING;
	tie->ping.deadline_ns = kvp_now_ns(tie->client->env) + KVP_TIE_SILENCE_NS;
	tie->ping.done = tie_pinged;
	tie->pinging = true;
	tie->link->rpc->ops->call(tie->link, &tie->ping, "", 0);
}

static void
tie_beat(struct kvp_rpc_timer *timer)
{
	struct kvp_tie *tie = kvp_container_of(timer, struct kvp_tie, beat);

	if (tie->reopen || tie->link == NULL) {
		bool was_up = tie->link != NULL && tie->link->up;

		tie->reopen = false;
		tie_link_close(tie);
		if (was_up && tie->down != NULL) {
			tie->down(tie);
		}
		if (tie_link_open(tie) < 0) {
			tie->link = NULL; /* the next beat tries again */
		}
	} else if (tie->link->up && !tie->pinging) {
		tie_ping(tie);
	}
	tie_beat_in(tie, KVP_TIE_BEAT_NS);
	if (tie->tick != NULL) {
		tie->tick(tie); /* may close the tie: last */
	}
}

int
kvp_tie_open(struct kvp_tie *tie)
{
	int err;

	tie->beat.fn = tie_beat;
	err = tie_link_open(tie);
	if (err == 0) {
		tie_beat_in(tie, KVP_TIE_BEAT_NS);
	}
	return err;
}

void
kvp_tie_reopen(struct kvp_tie *tie)
{
	tie->reopen = true;
}

void
kvp_tie_renew(struct kvp_tie *tie)
{
	tie->reopen = true;
	tie_beat_in(tie, 0);
}

void
kvp_tie_close(struct kvp_tie *tie)
{
	struct kvp_rpc *rpc = tie->client->rpc;

	rpc->ops->timer_stop(rpc, &tie->beat);
	tie_link_close(tie);
}
