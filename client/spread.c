/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.c - see spread.h. The metas are asked in slices, one at a time. A miss from a meta that
 * does not vouch for every node is asked of another one; what no meta knows may still be in the
 * location cache.
 */
#include "client/spread.h"

#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>

static struct kvp_spread *
spread_of(struct kvp_oper *oper)
{
	return oper->head;
}

static bool
spread_same_host(struct kvp_oper *oper, uint32_t number)
{
	struct kvp_peer *peer = kvp_peers_ref(oper->cq->client->peers, number);
	bool same_host = peer != NULL && peer->same_host;

	kvp_peer_unref(peer);
	return same_host;
}

static int
spread_add(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *loc, bool same_host)
{
	struct kvp_spread *spread = spread_of(oper);

	if (spread->count == spread->cap) {
		uint32_t cap = spread->cap == 0 ? 64 : spread->cap * 2;
		struct kvp_spread_item *found = realloc(spread->found, cap * sizeof(*found));

		if (found == NULL) {
			return -ENOMEM;
		}
		spread->found = found;
		spread->cap = cap;
	}
	spread->found[spread->count++] =
		(struct kvp_spread_item){.item = idx, .loc = *loc, .same_host = same_host};
	return 0;
}

/* False: the cache does not know it either. */
static bool
spread_add_cached(struct kvp_oper *oper, uint32_t idx)
{
	struct kvp_loc loc;
	struct kvp_key key;

	kvp_oper_key(oper, idx, &key);
	if (!kvp_loc_cache_get(oper->cq->client->cache, oper->ns.digest, &key, &loc)) {
		return false;
	}
	return spread_add(oper, idx, &loc, spread_same_host(oper, loc.node)) == 0;
}

static void
spread_miss(struct kvp_oper *oper, uint32_t idx, int status)
{
	struct kvp_spread *spread = spread_of(oper);

	oper->batch.items[idx].status = status;
	if (spread->prefix) {
		spread->status = -KVP_E_NOKEY;
		spread->over = true;
	}
}

/* Of several places one on this host, in memory if there is a choice. */
static int
spread_found(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *locs, uint32_t count)
{
	uint32_t best = 0;
	int best_score = -1;

	for (uint32_t i = 0; i < count; i++) {
		int score = (locs[i].tier == KVP_TIER_DRAM ? 1 : 0) +
			    (spread_same_host(oper, locs[i].node) ? 2 : 0);

		if (score > best_score) {
			best_score = score;
			best = i;
		}
	}
	return spread_add(oper, idx, &locs[best], best_score >= 2);
}

static void
spread_read(struct kvp_oper *oper, struct kvp_call *call, struct kvp_lookup_reader *reader)
{
	struct kvp_spread *spread = spread_of(oper);

	for (uint32_t i = 0; i < call->item_count && !spread->over; i++) {
		struct kvp_loc locs[KVP_REPLICAS_MAX];
		uint32_t idx = call->items[i];
		uint32_t count = kvp_lookup_next(reader, locs);

		if (count > 0) {
			spread->status = spread_found(oper, idx, locs, count);
		} else if (!spread_add_cached(oper, idx)) {
			if (reader->behind) {
				spread->avoid |= 1u << call->meta_idx;
				spread->next = idx;
				return;
			}
			spread_miss(oper, idx, -KVP_E_NOKEY);
		}
		if (spread->status == -ENOMEM) {
			spread->over = true;
		}
		spread->next = idx + 1;
	}
}

static void
spread_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct kvp_spread *spread = spread_of(oper);
	struct kvp_lookup_reader reader;
	int err = call->status;

	spread->asking = false;
	if (err == 0) {
		err = kvp_lookup_begin(call, &reader);
	}
	if (err < 0) {
		spread->status = err == -KVP_E_BEHIND ? -KVP_E_NOKEY : err;
		spread->over = true;
		return;
	}
	spread_read(oper, call, &reader);
	kvp_lookup_end(&reader);
}

/* Asks about the next slice; nothing to ask is the end. */
static int
spread_ask(struct kvp_oper *oper)
{
	struct kvp_spread *spread = spread_of(oper);
	struct kvp_lookup lookup = {.prefix = spread->prefix,
		.replicas_max = 2,
		.avoid = spread->avoid,
		.done = spread_answered,
		.items = malloc(KVP_RPC_KEYS_MAX * sizeof(uint32_t))};
	uint32_t idx = spread->next;

	if (lookup.items == NULL) {
		return -ENOMEM;
	}
	for (; idx < oper->batch.item_count && lookup.item_count < KVP_RPC_KEYS_MAX; idx++) {
		if (oper->batch.items[idx].status != KVP_ITEM_OPEN) {
			if (spread->prefix) {
				break;
			}
		} else if (!spread->cached || !spread_add_cached(oper, idx)) {
			lookup.items[lookup.item_count++] = idx;
		}
	}
	if (lookup.item_count == 0) {
		free(lookup.items);
		spread->over = true;
		spread->status = -KVP_E_NOKEY;
		return 0;
	}
	spread->next = idx; /* an answer may set it back */
	spread->asking = true;
	return kvp_lookup_post(oper, &lookup);
}

static int
found_compare(const void *a, const void *b)
{
	const struct kvp_spread_item *left = a;
	const struct kvp_spread_item *right = b;

	if (left->loc.node != right->loc.node) {
		return left->loc.node < right->loc.node ? -1 : 1;
	}
	return left->item < right->item ? -1 : left->item > right->item;
}

/* Every item that is open after this is among those found. */
static void
spread_finish(struct kvp_oper *oper)
{
	struct kvp_spread *spread = spread_of(oper);
	uint32_t at = 0;

	for (uint32_t i = 0; i < spread->count; i++) {
		oper->nexts[spread->found[i].item] = 0; /* a mark; no queue is in use */
	}
	for (; at < oper->batch.item_count; at++) {
		if (oper->batch.items[at].status == KVP_ITEM_OPEN && oper->nexts[at] != 0) {
			oper->batch.items[at].status =
				spread->status != 0 ? spread->status : -KVP_E_NOKEY;
		}
	}
	if (spread->count > 0) {
		qsort(spread->found, spread->count, sizeof(*spread->found), found_compare);
	}
}

int
kvp_spread_find(struct kvp_oper *oper)
{
	struct kvp_spread *spread = spread_of(oper);

	while (!spread->over && !spread->asking) {
		if (spread->next >= oper->batch.item_count) {
			spread->over = true;
		} else if (spread_ask(oper) < 0) {
			return -ENOMEM;
		}
	}
	if (spread->asking) {
		return -EINPROGRESS;
	}
	spread_finish(oper);
	return 0;
}

uint32_t
kvp_spread_run(const struct kvp_spread *spread, uint32_t max)
{
	uint32_t count = 0;

	while (count < max && spread->sent + count < spread->count &&
		spread->found[spread->sent + count].loc.node ==
			spread->found[spread->sent].loc.node) {
		count++;
	}
	return count;
}

void
kvp_spread_free(struct kvp_spread *spread)
{
	free(spread->found);
	spread->found = NULL;
	spread->count = 0;
}
