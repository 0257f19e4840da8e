/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_get.c - the whole life of a get: PROBE -> RUN -> DONE, or RUN -> DRAIN -> DONE.
 *
 * Items go through queues. PROBE looks each one up in the location cache: it is READY or MISSED.
 * RUN asks the metas about those missed, posts reads for those ready (payload, then the slot's
 * entry), and judges what landed: right bytes, or the location was stale and the key is looked up
 * again, or the connection failed and it is read again. PARKED items wait for a connection. The get
 * is done when no item is left. At its deadline it gives up what is open and DRAINs what is posted.
 *
 * get_step() is the only function that changes the state. Answers of lookups move items between
 * queues and let it be stepped.
 *
 * COLD items lie on a node's SSD: the node is asked to stage them, and its answer makes them READY
 * with a location in its memory. From there they are read like all others.
 */
#include "client/lookup.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GET_PROBES_MAX 512u /* items of one step */
#define GET_SAMPLE     64u  /* one read in so many is verified */
#define GET_STAGE_KEYS 16u  /* of one stage call, so that the first are read while others come */
#define GET_STAGE_OUT  4u   /* such calls out at a time */

enum get_state { GET_PROBE, GET_RUN, GET_DRAIN, GET_DONE };

struct get {
	enum get_state state;
	uint32_t left;   /* items not done */
	uint32_t probed; /* items looked up in the cache */
	uint32_t stop;   /* KVP_BATCH_PREFIX: items after this one are not wanted */
	uint32_t asked;  /* lookups out */
	uint32_t avoid;  /* metas that were behind */
	struct kvp_fifo missed;
	struct kvp_fifo ready;
	struct kvp_fifo parked;
	struct kvp_fifo cold; /* on an SSD: the node is asked to bring them into memory */
	uint32_t staging;     /* calls out for that */
};

struct get_item {
	struct kvp_loc loc; /* where it is, or was: a lookup that names it again is no news */
	bool located;       /* loc was set */
	bool asking;        /* in a lookup */
	bool staging;       /* in a stage call */
	bool staged;        /* loc came from one */
	uint8_t tries;      /* locations that proved wrong */
	uint8_t posts;      /* connections that failed under it */
	int last;           /* why the last location was no good */
};

static struct get_item *
get_item(struct kvp_oper *oper, uint32_t idx)
{
	return &((struct get_item *)oper->items)[idx];
}

static void
get_finish(struct kvp_oper *oper, uint32_t idx, int status)
{
	struct get *get = oper->head;

	kvp_assert(oper->batch.items[idx].status == KVP_ITEM_OPEN && get->left > 0);
	oper->batch.items[idx].status = status;
	get->left--;
	if (status < 0 && (oper->batch.flags & KVP_BATCH_PREFIX) != 0 && idx < get->stop) {
		get->stop = idx;
		kvp_fifo_splice(oper, &get->parked, &get->ready); /* they may be done with */
	}
}

/* An item beyond the end of the prefix needs no more work. */
static bool
get_is_unwanted(const struct get *get, uint32_t idx)
{
	return idx > get->stop;
}

/* --- locations
 * -------------------------------------------------------------------------------------- */

/* Looks items up in the cache, a slice at a time. True: all are. */
static bool
get_probe(struct kvp_oper *oper)
{
	struct get *get = oper->head;
	struct kvp_client *client = oper->cq->client;
	uint32_t end = oper->batch.item_count;
	uint64_t hits = 0;

	if (end - get->probed > GET_PROBES_MAX) {
		end = get->probed + GET_PROBES_MAX;
	}
	for (; get->probed < end; get->probed++) {
		uint32_t idx = get->probed;
		struct get_item *item = get_item(oper, idx);
		struct kvp_key key;

		if (oper->batch.items[idx].status != KVP_ITEM_OPEN) {
			continue;
		}
		kvp_oper_key(oper, idx, &key);
		item->located = kvp_loc_cache_get(client->cache, oper->ns.digest, &key, &item->loc);
		kvp_fifo_push(oper, item->located ? &get->ready : &get->missed, idx);
		hits += item->located;
	}
	kvp_client_count(client, KVP_STAT_CACHE_HITS, hits);
	return get->probed == oper->batch.item_count;
}

/* How good a place to read from, any memory better than any SSD; negative: not at all. */
static int
get_score(struct kvp_oper *oper, const struct get_item *item, const struct kvp_loc *loc)
{
	struct kvp_chan *chan = kvp_chan_find(oper->cq, loc->node);

	int memory = loc->tier == KVP_TIER_DRAM ? 4 : 0;

	if ((loc->tier != KVP_TIER_DRAM && loc->tier != KVP_TIER_SSD) ||
		(item->located && item->loc.node == loc->node && item->loc.word == loc->word &&
			item->last != -KVP_E_NODEDOWN)) {
		return -2; /* not readable, or known to be stale */
	}
	if (chan == NULL) {
		return memory;
	}
	if (chan->state == CHAN_FAILED ||
		atomic_load_explicit(&chan->peer->gone, memory_order_relaxed)) {
		return -1;
	}
	return memory + (chan->peer->same_host ? 2 : 0) + (chan->state == CHAN_UP ? 1 : 0);
}

/* What a lookup says about one item. */
static void
get_found(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *locs, uint32_t count)
{
	struct get *get = oper->head;
	struct get_item *item = get_item(oper, idx);
	struct kvp_key key;
	bool down = item->last == -KVP_E_NODEDOWN;
	int best_score = -1;
	uint32_t best = 0;

	for (uint32_t i = 0; i < count; i++) {
		int score = get_score(oper, item, &locs[i]);

		down = down || score == -1;
		if (score > best_score) {
			best_score = score;
			best = i;
		}
	}
	if (best_score < 0) {
		get_finish(oper, idx, down ? -KVP_E_NODEDOWN : -KVP_E_NOKEY);
		return;
	}
	item->loc = locs[best];
	item->located = true;
	item->staged = false;
	if (item->loc.tier == KVP_TIER_SSD) {
		kvp_fifo_push(oper, &get->cold, idx);
		return;
	}
	kvp_oper_key(oper, idx, &key);
	kvp_loc_cache_put(oper->cq->client->cache, oper->ns.digest, &key, &item->loc);
	kvp_fifo_push(oper, &get->ready, idx);
}

static void
get_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct get *get = oper->head;
	struct kvp_lookup_reader reader;
	int err = call->status;

	get->asked--;
	if (err == 0) {
		err = kvp_lookup_begin(call, &reader);
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		struct kvp_loc locs[KVP_REPLICAS_MAX];
		uint32_t idx = call->items[i];
		uint32_t count = err == 0 ? kvp_lookup_next(&reader, locs) : 0;

		get_item(oper, idx)->asking = false;
		if (get_is_unwanted(get, idx)) {
			get_finish(oper, idx, -KVP_E_NOKEY);
		} else if (err == -KVP_E_BEHIND) {
			get_finish(oper, idx, -KVP_E_NOKEY); /* no meta knows better */
		} else if (err < 0) {
			get_finish(oper, idx, err);
		} else if (count == 0 && reader.behind) {
			get->avoid |= 1u << call->meta_idx;
			kvp_fifo_push(oper, &get->missed, idx);
		} else {
			get_found(oper, idx, locs, count);
		}
	}
	if (err == 0) {
		kvp_lookup_end(&reader);
	}
}

/* Asks about what is missed, as many keys as a message takes. */
static void
get_ask(struct kvp_oper *oper)
{
	struct get *get = oper->head;

	while (get->missed.count > 0 && get->asked < KVP_CALLS_MAX) {
		uint32_t max =
			get->missed.count < KVP_RPC_KEYS_MAX ? get->missed.count : KVP_RPC_KEYS_MAX;
		struct kvp_lookup lookup = {.items = malloc(max * sizeof(uint32_t)),
			.prefix = (oper->batch.flags & KVP_BATCH_PREFIX) != 0,
			.replicas_max = 2,
			.avoid = get->avoid,
			.done = get_answered};

		if (lookup.items == NULL) {
			kvp_oper_wake_at(oper, kvp_now_ns(oper->cq->client->env) + KVP_NS_PER_MS);
			return;
		}
		while (lookup.item_count < max) {
			uint32_t idx = kvp_fifo_pop(oper, &get->missed);

			if (idx == KVP_FIFO_END) {
				break;
			}
			if (get_is_unwanted(get, idx)) {
				get_finish(oper, idx, -KVP_E_NOKEY);
				continue;
			}
			if (lookup.item_count > 0 && idx < lookup.items[lookup.item_count - 1]) {
				lookup.prefix = false; /* out of order: no prefix of anything */
			}
			if (get_item(oper, idx)->tries > 0) {
				lookup.replicas_max = KVP_REPLICAS_MAX;
			}
			get_item(oper, idx)->asking = true;
			lookup.items[lookup.item_count] = idx;
			lookup.item_count++;
		}
		if (lookup.item_count == 0) {
			free(lookup.items);
			return;
		}
		get->asked++;
		if (kvp_lookup_post(oper, &lookup) < 0) {
			get->asked--;
			kvp_oper_end(oper, -ENOMEM);
			return;
		}
	}
}

/* This location is no good: another one, or the end of it. */
static void
get_try_again(struct kvp_oper *oper, uint32_t idx, int why)
{
	struct get *get = oper->head;
	struct get_item *item = get_item(oper, idx);
	struct kvp_key key;

	kvp_oper_key(oper, idx, &key);
	kvp_loc_cache_drop(oper->cq->client->cache, oper->ns.digest, &key, &item->loc);
	item->last = why;
	item->tries++;
	if (item->tries < KVP_TRIES_MAX) {
		kvp_fifo_push(oper, &get->missed, idx);
	} else {
		get_finish(oper, idx, why == -KVP_E_NODEDOWN ? why : -KVP_E_NOKEY);
	}
}

/* --- staging
 * ------------------------------------------------------------------------------------------------
 */

/* What the node says about one item; loc is there with status 0. */
static void
get_staged(struct kvp_oper *oper, uint32_t idx, int status, const struct kvp_loc *loc)
{
	struct get *get = oper->head;
	struct get_item *item = get_item(oper, idx);
	struct kvp_key key;

	item->staging = false;
	if (get_is_unwanted(get, idx)) {
		get_finish(oper, idx, -KVP_E_NOKEY);
	} else if (status == 0) {
		item->loc = *loc;
		item->staged = true;
		kvp_oper_key(oper, idx, &key);
		kvp_loc_cache_put(oper->cq->client->cache, oper->ns.digest, &key, &item->loc);
		kvp_fifo_push(oper, &get->ready, idx);
	} else if (status == -KVP_E_BUSY || status == -KVP_E_TIMEOUT) {
		get_finish(oper, idx, status);
	} else {
		get_try_again(oper, idx, status == -KVP_E_NOKEY ? -KVP_E_STALE : -KVP_E_NODEDOWN);
	}
}

static void
get_stage_answered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct get *get = oper->head;
	Kvp__StageReply *msg = NULL;
	const uint8_t *statuses = NULL;
	int err = call->status;
	size_t staged = 0;

	get->staging--;
	if (err == 0) {
		msg = (Kvp__StageReply *)kvp_msg_decode(
			kvp_rpc_reply_desc(KVP_RPC_STAGE), call->answer, call->answer_len);
		statuses = msg != NULL
				   ? kvp_array(&msg->statuses, call->item_count, sizeof(int32_t))
				   : NULL;
		err = statuses != NULL ? 0 : -KVP_E_PROTO;
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		struct kvp_loc loc = {0};
		int32_t status = err;

		if (err == 0) {
			memcpy(&status, statuses + i * sizeof(status), sizeof(status));
		}
		if (status == 0 && (staged + 1) * sizeof(loc) > msg->locations.len) {
			status = -KVP_E_PROTO;
		}
		if (status == 0) {
			memcpy(&loc, msg->locations.data + staged++ * sizeof(loc), sizeof(loc));
			loc.node = get_item(oper, call->items[i])->loc.node;
			status = loc.tier == KVP_TIER_DRAM ? 0 : -KVP_E_PROTO;
		}
		get_staged(oper, call->items[i], status, &loc);
	}
	if (msg != NULL) {
		protobuf_c_message_free_unpacked(&msg->base, NULL);
	}
}

/* Sends one node's keys. -ENOMEM. */
static int
get_stage_send(struct kvp_oper *oper, uint32_t number, uint32_t *items, uint32_t count)
{
	uint8_t keys[GET_STAGE_KEYS * (1 + KVP_KEY_LEN_MAX)];
	struct kvp_writer writer = kvp_writer_over(keys, sizeof(keys));
	uint64_t now_ns = kvp_now_ns(oper->cq->client->env);
	Kvp__Stage msg = KVP__STAGE__INIT;
	struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_STAGE,
		.number = number,
		.msg = &msg.base,
		.items = items,
		.item_count = count,
		.done = get_stage_answered};

	for (uint32_t i = 0; i < count; i++) {
		struct kvp_key key;

		kvp_oper_key(oper, items[i], &key);
		kvp_write_key(&writer, &key);
		get_item(oper, items[i])->staging = true;
	}
	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.keys = kvp_bytes(keys, sizeof(keys) - writer.left);
	if (oper->deadline_ns > now_ns) {
		uint64_t wait_ms = (oper->deadline_ns - now_ns) / KVP_NS_PER_MS;

		msg.wait_ms = wait_ms < UINT32_MAX ? (uint32_t)wait_ms : UINT32_MAX;
	}
	return kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;
}

/* Asks for what is cold, the keys of one node a call. */
static void
get_stage(struct kvp_oper *oper)
{
	struct get *get = oper->head;

	while (get->cold.count > 0 && get->staging < GET_STAGE_OUT) {
		uint32_t *items = malloc(GET_STAGE_KEYS * sizeof(*items));
		uint32_t left = get->cold.count;
		uint32_t number = UINT32_MAX;
		uint32_t count = 0;

		if (items == NULL) {
			kvp_oper_end(oper, -ENOMEM);
			return;
		}
		for (; left > 0 && count < GET_STAGE_KEYS; left--) {
			uint32_t idx = kvp_fifo_pop(oper, &get->cold);
			uint32_t node = get_item(oper, idx)->loc.node;

			if (get_is_unwanted(get, idx)) {
				get_finish(oper, idx, -KVP_E_NOKEY);
			} else if (count > 0 && node != number) {
				kvp_fifo_push(oper, &get->cold, idx); /* the next call's */
			} else {
				number = node;
				items[count++] = idx;
			}
		}
		if (count == 0) {
			free(items);
			continue;
		}
		get->staging++;
		if (get_stage_send(oper, number, items, count) < 0) {
			get->staging--;
			kvp_oper_end(oper, -ENOMEM);
			return;
		}
	}
}

/* --- reads
 * ------------------------------------------------------------------------------------------------
 */

static bool
get_payload_is_good(struct kvp_oper *oper, const struct kvp_unit *unit, const struct kvp_key *key)
{
	static const uint8_t unhashed[KVP_SUM_LEN];
	const struct kvp_item *item = &oper->batch.items[unit->item];
	struct kvp_sum_state *state = oper->cq->sum;
	uint8_t sum[KVP_SUM_LEN];

	if (memcmp(unit->entry->sum, unhashed, KVP_SUM_LEN) == 0) {
		return true;
	}
	kvp_sum_begin(state, oper->ns.digest, key, unit->bytes);
	for (uint32_t i = 0; i < item->seg_count; i++) {
		kvp_sum_update(state, item->segs[i].iov_base, item->segs[i].iov_len);
	}
	kvp_sum_end(state, sum);
	return memcmp(unit->entry->sum, sum, KVP_SUM_LEN) == 0;
}

static bool
get_is_to_be_verified(struct kvp_oper *oper)
{
	struct kvp_cq *cq = oper->cq;

	switch (cq->client->set.verify) {
	case KVP_VERIFY_ALWAYS:
		return true;
	case KVP_VERIFY_OFF:
		return false;
	default:
		return cq->verify_tick++ % GET_SAMPLE == 0;
	}
}

/*
 * The rule that makes one-sided reads right (docs/protocol.md, Get): the entry must say that the
 * slot still held this generation, and it must have been read late enough: after the payload by the
 * transport's order, or all of it within half the node's quarantine, during which evicted bytes
 * stay alone. Else the entry is read once more, now that the payload is here: -EINPROGRESS.
 */
static int
get_check(struct kvp_oper *oper, struct kvp_unit *unit)
{
	struct kvp_client *client = oper->cq->client;
	struct kvp_chan *chan = unit->chan;
	const struct kvp_loc *loc = &get_item(oper, unit->item)->loc;
	uint64_t quarantine_ns = chan->session.quarantine_ms * KVP_NS_PER_MS;
	struct kvp_key key;

	kvp_oper_key(oper, unit->item, &key);
	if (!kvp_slot_matches(unit->entry, oper->ns.digest, &key, loc)) {
		kvp_client_count(client, KVP_STAT_STALE, 1);
		return -KVP_E_STALE;
	}
	if (!unit->rechecked && !unit->ordered &&
		kvp_now_ns(client->env) - unit->t0_ns > quarantine_ns / 2) {
		kvp_unit_reread(unit);
		return -EINPROGRESS;
	}
	if (get_is_to_be_verified(oper) && !get_payload_is_good(oper, unit, &key)) {
		kvp_client_count(client, KVP_STAT_BAD_CHECKSUMS, 1);
		kvp_warn(client->log, "block in slot %u of node %u: payload checksum is wrong",
			loc->slot, loc->node);
		return -KVP_E_BADSUM;
	}
	return 0;
}

static void
get_hit(struct kvp_oper *oper, struct kvp_unit *unit)
{
	struct kvp_client *client = oper->cq->client;
	struct kvp_item *item = &oper->batch.items[unit->item];
	const struct kvp_loc *loc = &get_item(oper, unit->item)->loc;

	item->medium = get_item(oper, unit->item)->staged ? KVP_MEDIUM_SSD : KVP_MEDIUM_DRAM;
	item->local = unit->local;
	(void)kvp_reads_add(unit->chan->peer->reads, loc, oper->batch.context.conversation,
		oper->batch.context.service_class);
	if (!atomic_exchange_explicit(&client->control->touch_mailed, true, memory_order_relaxed)) {
		kvp_control_mail(client->control, &client->control->touch_mail);
	}
	get_finish(oper, unit->item, 0);
}

/* Its connection failed: that says nothing about the location. */
static void
get_read_failed(struct kvp_oper *oper, uint32_t idx)
{
	struct get *get = oper->head;
	struct get_item *item = get_item(oper, idx);

	item->posts++;
	if (item->posts < KVP_TRIES_MAX) {
		kvp_fifo_push(oper, &get->ready, idx);
	} else {
		item->posts = 0;
		get_try_again(oper, idx, -KVP_E_NODEDOWN);
	}
}

/* Takes what landed. */
static void
get_land(struct kvp_oper *oper)
{
	struct kvp_list landed;
	struct kvp_list *node;

	kvp_list_init(&landed);
	while ((node = kvp_list_pop_front(&oper->landed)) != NULL) {
		kvp_list_push_back(&landed, node);
	}
	while ((node = kvp_list_pop_front(&landed)) != NULL) {
		struct kvp_unit *unit = kvp_container_of(node, struct kvp_unit, link);
		uint32_t idx = unit->item;
		int status = unit->status;

		if (oper->end != 0) {
			kvp_unit_give(unit);
			get_finish(oper, idx, oper->end);
			continue;
		}
		if (status < 0) {
			kvp_unit_give(unit);
			get_read_failed(oper, idx);
			continue;
		}
		status = get_check(oper, unit);
		if (status == -EINPROGRESS) {
			continue;
		}
		if (status == 0) {
			get_hit(oper, unit);
		}
		kvp_unit_give(unit);
		if (status < 0) {
			get_try_again(oper, idx, status);
		}
	}
}

/* Posts one item, or says why not: -EAGAIN no unit is free, -EINPROGRESS the connection is on its
 * way; else the item was dealt with. */
static int
get_post_one(struct kvp_oper *oper, uint32_t idx)
{
	struct get *get = oper->head;
	struct get_item *item = get_item(oper, idx);
	struct kvp_chan *chan;
	struct kvp_unit *unit;
	int err;

	if (get_is_unwanted(get, idx)) {
		get_finish(oper, idx, -KVP_E_NOKEY);
		return 0;
	}
	if (item->loc.len != oper->lens[idx]) {
		get_finish(oper, idx, -KVP_E_SIZE);
		return 0;
	}
	err = kvp_chan_want(oper->cq, item->loc.node, &chan);
	if (err == -EINPROGRESS) {
		return err;
	}
	if (err == -KVP_E_NO_PROVIDER) {
		get_finish(oper, idx, err);
		return 0;
	}
	if (err < 0) {
		get_try_again(oper, idx, -KVP_E_NODEDOWN);
		return 0;
	}
	unit = kvp_unit_take(oper, idx, chan);
	if (unit == NULL) {
		return -EAGAIN;
	}
	kvp_unit_read(unit, &item->loc);
	return 0;
}

static void
get_post(struct kvp_oper *oper)
{
	struct get *get = oper->head;
	uint32_t quantum = KVP_QUANTUM;

	if (oper->unparked) {
		oper->unparked = false;
		kvp_fifo_splice(oper, &get->parked, &get->ready);
	}
	while (get->ready.count > 0) {
		uint32_t idx = kvp_fifo_pop(oper, &get->ready);
		int err = get_post_one(oper, idx);

		if (err == -EAGAIN) {
			kvp_fifo_push_front(oper, &get->ready, idx);
			return;
		}
		if (err == -EINPROGRESS) {
			kvp_fifo_push(oper, &get->parked, idx);
		}
		quantum--;
		if (quantum == 0) {
			kvp_oper_run(oper); /* behind the others */
			return;
		}
	}
	kvp_unit_unwant(oper);
}

/* --- the end
 * ------------------------------------------------------------------------------------------------
 */

static void
get_give_up_fifo(struct kvp_oper *oper, struct kvp_fifo *fifo, int status)
{
	uint32_t idx;

	while ((idx = kvp_fifo_pop(oper, fifo)) != KVP_FIFO_END) {
		get_finish(oper, idx, status);
	}
}

/* The deadline came, or it is cancelled: everything that is not in a unit ends now. */
static void
get_give_up(struct kvp_oper *oper)
{
	struct get *get = oper->head;
	int asking = oper->end == -KVP_E_TIMEOUT ? -KVP_E_META_DOWN : oper->end;

	for (uint32_t i = 0; i < oper->batch.item_count && get->asked > 0; i++) {
		if (get_item(oper, i)->asking) {
			get_item(oper, i)->asking = false;
			get_finish(oper, i, asking);
		}
	}
	get->asked = 0;
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (get_item(oper, i)->staging) {
			get_item(oper, i)->staging = false;
			get_finish(oper, i, oper->end);
		}
	}
	get->staging = 0;
	get_give_up_fifo(oper, &get->cold, oper->end);
	get_give_up_fifo(oper, &get->missed, asking);
	get_give_up_fifo(oper, &get->parked, oper->end);
	get_give_up_fifo(oper, &get->ready, oper->end);
	for (; get->probed < oper->batch.item_count; get->probed++) {
		if (oper->batch.items[get->probed].status == KVP_ITEM_OPEN) {
			get_finish(oper, get->probed, oper->end);
		}
	}
}

/* Nothing after the first miss counts as read. */
static void
get_cut_prefix(struct kvp_oper *oper)
{
	const struct get *get = oper->head;

	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (get_is_unwanted(get, i) && oper->batch.items[i].status == 0) {
			oper->batch.items[i].status = -KVP_E_NOKEY;
		}
	}
}

static void
get_step(struct kvp_oper *oper)
{
	struct get *get = oper->head;

	for (;;) {
		if (oper->end != 0 && get->state < GET_DRAIN) {
			get_give_up(oper);
			get->state = GET_DRAIN;
		}
		switch (get->state) {
		case GET_PROBE:
			if (!get_probe(oper)) {
				kvp_oper_run(oper);
				return;
			}
			get->state = GET_RUN;
			break;
		case GET_RUN:
			get_land(oper);
			get_post(oper);
			get_ask(oper);
			get_stage(oper);
			if (get->left > 0 && oper->end == 0) {
				return;
			}
			get->state = get->left > 0 ? GET_RUN : GET_DONE;
			break;
		case GET_DRAIN:
			get_land(oper);
			if (oper->units > 0) {
				return;
			}
			get->state = GET_DONE;
			break;
		case GET_DONE:
			kvp_assert(get->left == 0);
			get_cut_prefix(oper);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
get_start(struct kvp_oper *oper)
{
	struct get *get = oper->head;
	bool prefix = (oper->batch.flags & KVP_BATCH_PREFIX) != 0;

	get->stop = UINT32_MAX;
	kvp_fifo_init(&get->missed);
	kvp_fifo_init(&get->ready);
	kvp_fifo_init(&get->parked);
	kvp_fifo_init(&get->cold);
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status == KVP_ITEM_OPEN) {
			get->left++;
		} else if (prefix && i < get->stop) {
			get->stop = i;
		}
	}
	get->state = GET_PROBE;
}

const struct kvp_oper_ops kvp_oper_get = {
	.head_len = sizeof(struct get),
	.item_len = sizeof(struct get_item),
	.moves_data = true,
	.start = get_start,
	.step = get_step,
};
