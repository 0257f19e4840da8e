/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_match.c - which of these keys, in order, does the pool hold: ASK, WAIT, ASK ... -> DONE.
 *
 * The metas are asked in slices, one at a time, since a miss ends it. What they found goes into
 * the location cache, so that a get of the same keys is warm. A miss from a meta that does not
 * vouch for every node is asked of another one.
 *
 * match_step() is the only function that changes the state.
 */
#include "client/lookup.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>

enum match_state { MATCH_ASK, MATCH_WAIT, MATCH_DONE };

struct match {
	enum match_state state;
	uint32_t next;  /* the first item not known */
	uint32_t avoid; /* metas that were behind */
	bool answered;
	int status; /* 0: go on; else what the rest gets */
};

static enum kvp_medium
match_medium(enum kvp_tier tier)
{
	switch (tier) {
	case KVP_TIER_HBM:
		return KVP_MEDIUM_HBM;
	case KVP_TIER_DRAM:
		return KVP_MEDIUM_DRAM;
	case KVP_TIER_SSD:
		return KVP_MEDIUM_SSD;
	}
	return KVP_MEDIUM_NONE;
}

/* The location a get would like best goes into the cache. */
static void
match_found(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *locs, uint32_t count)
{
	struct kvp_client *client = oper->cq->client;
	struct kvp_item *item = &oper->batch.items[idx];
	uint32_t best = 0;
	int best_score = -1;
	struct kvp_key key;

	for (uint32_t i = 0; i < count; i++) {
		struct kvp_peer *peer = kvp_peers_ref(client->peers, locs[i].node);
		int score = (locs[i].tier == KVP_TIER_DRAM ? 2 : 0) +
			    (peer != NULL && peer->same_host ? 1 : 0);

		if (score > best_score) {
			best_score = score;
			best = i;
			item->local = peer != NULL && peer->same_host;
		}
		kvp_peer_unref(peer);
	}
	item->status = 0;
	item->medium = (uint8_t)match_medium((enum kvp_tier)locs[best].tier);
	if (locs[best].tier == KVP_TIER_DRAM) {
		kvp_oper_key(oper, idx, &key);
		kvp_loc_cache_put(client->cache, oper->ns.digest, &key, &locs[best]);
	}
}

static void
match_read(struct kvp_oper *oper, struct kvp_call *call, struct kvp_lookup_reader *reader)
{
	struct match *match = oper->head;

	for (uint32_t i = 0; i < call->item_count; i++) {
		struct kvp_loc locs[KVP_REPLICAS_MAX];
		uint32_t count = kvp_lookup_next(reader, locs);

		if (count == 0) {
			if (reader->behind) {
				match->avoid |= 1u << call->meta_idx;
			} else {
				match->status = -KVP_E_NOKEY;
			}
			return;
		}
		match_found(oper, match->next, locs, count);
		match->next++;
	}
}

static void
match_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct match *match = oper->head;
	struct kvp_lookup_reader reader;

	match->answered = true;
	match->status = call->status == -KVP_E_BEHIND ? -KVP_E_NOKEY : call->status;
	if (match->status == 0) {
		match->status = kvp_lookup_begin(call, &reader);
	}
	if (match->status == 0) {
		match_read(oper, call, &reader);
		kvp_lookup_end(&reader);
	}
}

/* Asks about the next slice, up to the first bad key. */
static int
match_ask(struct kvp_oper *oper)
{
	struct match *match = oper->head;
	uint32_t max = oper->batch.item_count - match->next;
	struct kvp_lookup lookup = {
		.prefix = true, .replicas_max = 2, .avoid = match->avoid, .done = match_answered};

	if (oper->batch.items[match->next].status != KVP_ITEM_OPEN) {
		return -KVP_E_NOKEY; /* it has its own status; nothing after it counts */
	}
	max = max < KVP_RPC_KEYS_MAX ? max : KVP_RPC_KEYS_MAX;
	lookup.items = malloc(max * sizeof(*lookup.items));
	if (lookup.items == NULL) {
		return -ENOMEM;
	}
	while (lookup.item_count < max &&
		oper->batch.items[match->next + lookup.item_count].status == KVP_ITEM_OPEN) {
		lookup.items[lookup.item_count] = match->next + lookup.item_count;
		lookup.item_count++;
	}
	match->answered = false;
	return kvp_lookup_post(oper, &lookup);
}

static void
match_finish(struct kvp_oper *oper)
{
	struct match *match = oper->head;

	for (uint32_t i = match->next; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status == KVP_ITEM_OPEN) {
			oper->batch.items[i].status = match->status;
		}
	}
}

static void
match_step(struct kvp_oper *oper)
{
	struct match *match = oper->head;

	for (;;) {
		if (oper->end != 0 && match->state != MATCH_DONE) {
			match->status = oper->end == -KVP_E_TIMEOUT ? -KVP_E_META_DOWN : oper->end;
			match->state = MATCH_DONE;
		}
		switch (match->state) {
		case MATCH_ASK:
			if (match->next == oper->batch.item_count) {
				match->state = MATCH_DONE;
				break;
			}
			match->status = match_ask(oper);
			match->state = match->status == 0 ? MATCH_WAIT : MATCH_DONE;
			break;
		case MATCH_WAIT:
			if (!match->answered) {
				return;
			}
			match->state = match->status == 0 ? MATCH_ASK : MATCH_DONE;
			break;
		case MATCH_DONE:
			match_finish(oper);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
match_start(struct kvp_oper *oper)
{
	struct match *match = oper->head;

	match->state = MATCH_ASK;
}

const struct kvp_oper_ops kvp_oper_match = {
	.head_len = sizeof(struct match),
	.item_len = 0,
	.moves_data = false,
	.start = match_start,
	.step = match_step,
};
