/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.c - what all operations do: begin with a checked batch, hold regions and calls, end, complete.
 */
#include "client/op.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPER_MEM_KEPT_MAX     (1u << 20) /* bytes a spare one keeps */
#define OPER_ALIGN(len)       (((len) + 15u) & ~(size_t)15u)
#define OPER_REGIONS_SEARCHED 128u /* then it is referenced once more: who registers each block */
#define OPER_DEADLINE_MS_MAX  (24u * 3600u * 1000u)

static const struct kvp_oper_ops *
oper_ops(enum kvp_opcode op)
{
	if ((int)op == KVP_OP_CLEAR) {
		return &kvp_oper_clear;
	}
	switch (op) {
	case KVP_GET:
		return &kvp_oper_get;
	case KVP_PUT:
		return &kvp_oper_put;
	case KVP_MATCH:
		return &kvp_oper_match;
	case KVP_DELETE:
		return &kvp_oper_delete;
	case KVP_LEASE:
	case KVP_VIEW:
		return &kvp_oper_lease;
	case KVP_TOUCH:
		return &kvp_oper_touch;
	}
	return NULL;
}

static bool
oper_batch_is_good(const struct kvp_batch *batch)
{
	bool leases = batch->op == KVP_LEASE || batch->op == KVP_VIEW;
	uint32_t flags = 0;

	if (batch->op == KVP_GET) {
		flags = KVP_BATCH_PREFIX;
	} else if (batch->op == KVP_PUT) {
		flags = KVP_BATCH_LOCAL_COMMIT;
	}
	return oper_ops(batch->op) != NULL && batch->item_count > 0 &&
	       batch->item_count <= KVP_BATCH_KEYS_MAX && batch->items != NULL &&
	       batch->ns != NULL && (batch->flags & ~flags) == 0 &&
	       leases == (batch->lease_ms != 0);
}

/* --- memory
 * ------------------------------------------------------------------------------------------ */

/* Lays out the block for so many items: head and items zeroed. */
static int
oper_mem(struct kvp_oper *oper, uint32_t count)
{
	const struct kvp_oper_ops *ops = oper->ops;
	size_t head_len = OPER_ALIGN(ops->head_len);
	size_t lens_len = OPER_ALIGN(count * sizeof(*oper->lens));
	size_t nexts_len = OPER_ALIGN(count * sizeof(*oper->nexts));
	size_t items_len = count * ops->item_len;
	size_t len = head_len + lens_len + 2 * nexts_len + items_len;
	uint8_t *mem = oper->mem;

	if (len > oper->mem_len) {
		free(oper->mem);
		oper->mem_len = 0;
		oper->mem = mem = malloc(len);
		if (mem == NULL) {
			return -ENOMEM;
		}
		oper->mem_len = len;
	}
	oper->head = mem;
	oper->lens = (uint64_t *)(mem + head_len);
	oper->nexts = (uint32_t *)(mem + head_len + lens_len);
	oper->firsts = (uint32_t *)(mem + head_len + lens_len + nexts_len);
	oper->items = mem + head_len + lens_len + 2 * nexts_len;
	memset(oper->head, 0, head_len);
	memset(oper->items, 0, items_len);
	return 0;
}

void
kvp_oper_free(struct kvp_oper *oper)
{
	free(oper->regions);
	free(oper->mem);
	free(oper);
}

static struct kvp_oper *
oper_alloc(struct kvp_cq *cq)
{
	struct kvp_list *node = kvp_list_pop_front(&cq->spare);
	struct kvp_oper *oper;

	if (node != NULL) {
		return kvp_container_of(node, struct kvp_oper, link);
	}
	oper = calloc(1, sizeof(*oper));
	if (oper != NULL) {
		oper->cq = cq;
		kvp_list_init(&oper->link);
		kvp_list_init(&oper->run_link);
		kvp_list_init(&oper->want_link);
		kvp_list_init(&oper->landed);
		kvp_list_init(&oper->call_list);
	}
	return oper;
}

static void
oper_release(struct kvp_oper *oper)
{
	if (oper->mem_len > OPER_MEM_KEPT_MAX) {
		free(oper->mem);
		oper->mem = NULL;
		oper->mem_len = 0;
	}
	kvp_list_push_front(&oper->cq->spare, &oper->link);
}

/* --- regions
 * ------------------------------------------------------------------------------------------- */

/* The region of a segment among at most max of those the operation holds, or NULL. Segments of one
 * item often lie in as many regions, in the same order in every item, so the search goes forward
 * from the last one found. */
static struct kvp_region *
oper_region(struct kvp_oper *oper, const struct iovec *seg, uint32_t max)
{
	for (uint32_t i = 0; i < oper->region_count && i < max; i++) {
		uint32_t idx = (oper->region_hint + i) % oper->region_count;

		if (kvp_region_covers(oper->regions[idx], seg->iov_base, seg->iov_len)) {
			oper->region_hint = idx;
			return oper->regions[idx];
		}
	}
	return NULL;
}

static int
oper_region_add(struct kvp_oper *oper, const struct iovec *seg)
{
	struct kvp_region *region;

	if (oper->region_count == oper->region_cap) {
		uint32_t cap = oper->region_cap == 0 ? 8 : oper->region_cap * 2;
		struct kvp_region **regions = realloc(oper->regions, cap * sizeof(*regions));

		if (regions == NULL) {
			return -ENOMEM;
		}
		oper->regions = regions;
		oper->region_cap = cap;
	}
	region = kvp_regions_ref(oper->cq->client->regions, seg->iov_base, seg->iov_len);
	if (region == NULL) {
		return -KVP_E_NOT_REGISTERED;
	}
	oper->region_hint = oper->region_count;
	oper->regions[oper->region_count] = region;
	oper->region_count++;
	return 0;
}

uint32_t
kvp_oper_segs(
	struct kvp_oper *oper, uint32_t item, uint32_t xport_idx, struct kvp_seg segs[KVP_SEGS_MAX])
{
	const struct kvp_item *from = &oper->batch.items[item];
	uint32_t count = 0;

	oper->region_hint = oper->firsts[item];
	for (uint32_t i = 0; i < from->seg_count; i++) {
		struct kvp_region *region;

		if (from->segs[i].iov_len == 0) {
			continue;
		}
		region = oper_region(oper, &from->segs[i], UINT32_MAX);
		kvp_assert(region != NULL); /* held since the start */
		segs[count].mr = kvp_region_mr(region, xport_idx);
		segs[count].addr = from->segs[i].iov_base;
		segs[count].len = from->segs[i].iov_len;
		count++;
	}
	return count;
}

/* --- the start
 * -------------------------------------------------------------------------------------------- */

/* Sums up the segments and holds their regions. */
static int
oper_check_segs(struct kvp_oper *oper, uint32_t idx, uint64_t *ret_len)
{
	const struct kvp_item *item = &oper->batch.items[idx];
	uint64_t len = 0;

	if (item->seg_count == 0 || item->seg_count > KVP_SEGS_MAX || item->segs == NULL) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < item->seg_count; i++) {
		const struct iovec *seg = &item->segs[i];
		int err;

		if (seg->iov_len == 0) {
			continue;
		}
		if (seg->iov_len > KVP_BLOCK_LEN_MAX || len + seg->iov_len > KVP_BLOCK_LEN_MAX) {
			return -KVP_E_TOO_LARGE;
		}
		err = oper_region(oper, seg, OPER_REGIONS_SEARCHED) != NULL
			      ? 0
			      : oper_region_add(oper, seg);
		if (err < 0) {
			return err;
		}
		if (len == 0) {
			oper->firsts[idx] = oper->region_hint;
		}
		len += seg->iov_len;
	}
	*ret_len = len;
	return len > 0 ? 0 : -KVP_E_SIZE;
}

static int
oper_check_item(struct kvp_oper *oper, uint32_t idx, uint64_t *ret_len)
{
	const struct kvp_item *item = &oper->batch.items[idx];

	if (item->key == NULL || item->key_len == 0 || item->key_len > KVP_KEY_LEN_MAX) {
		return -KVP_E_KEY_LEN;
	}
	if (item->reserved != 0 || (!oper->ops->moves_data && item->seg_count != 0)) {
		return -EINVAL;
	}
	if (item->parent_len > KVP_KEY_LEN_MAX || (item->parent_len > 0 && item->parent == NULL)) {
		return -KVP_E_KEY_LEN;
	}
	return oper->ops->moves_data ? oper_check_segs(oper, idx, ret_len) : 0;
}

static void
oper_check_items(struct kvp_oper *oper)
{
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		struct kvp_item *item = &oper->batch.items[i];
		int err;

		oper->lens[i] = 0;
		oper->nexts[i] = KVP_FIFO_END;
		oper->firsts[i] = 0;
		item->medium = KVP_MEDIUM_NONE;
		item->local = 0;
		item->reserved_out = 0;
		item->view = NULL;
		err = oper_check_item(oper, i, &oper->lens[i]);
		item->status = err < 0 ? err : KVP_ITEM_OPEN;
	}
}

int
kvp_oper_start(struct kvp_cq *cq, const struct kvp_batch *batch)
{
	struct kvp_oper *oper;
	uint32_t deadline_ms;

	if (!oper_batch_is_good(batch)) {
		return -EINVAL;
	}
	oper = oper_alloc(cq);
	if (oper == NULL) {
		return -ENOMEM;
	}
	oper->ops = oper_ops(batch->op);
	if (oper_mem(oper, batch->item_count) < 0) {
		oper_release(oper);
		return -ENOMEM;
	}
	deadline_ms = batch->deadline_ms != 0 ? batch->deadline_ms : cq->client->set.deadline_ms;
	deadline_ms = deadline_ms < OPER_DEADLINE_MS_MAX ? deadline_ms : OPER_DEADLINE_MS_MAX;
	oper->batch = *batch;
	oper->ns = *batch->ns;
	oper->batch.ns = &oper->ns;
	oper->begin_ns = kvp_now_ns(cq->client->env);
	oper->deadline_ns = oper->begin_ns + deadline_ms * KVP_NS_PER_MS;
	oper->wake_ns = UINT64_MAX;
	oper->end = 0;
	oper->unparked = false;
	oper->silent = false;
	oper->done_flags = 0;
	oper->lease = 0;
	oper->lease_ms = 0;
	kvp_assert(oper->units == 0 && oper->calls == 0 && oper->region_count == 0);
	oper_check_items(oper);
	kvp_list_push_back(&cq->opers, &oper->link);
	cq->out++;
	kvp_cq_due(cq, oper->deadline_ns);
	oper->ops->start(oper);
	kvp_oper_run(oper);
	return 0;
}

/* --- on the way
 * ----------------------------------------------------------------------------------------- */

void
kvp_oper_run(struct kvp_oper *oper)
{
	if (kvp_list_empty(&oper->run_link)) {
		kvp_list_push_back(&oper->cq->runnable, &oper->run_link);
	}
}

void
kvp_oper_wake_at(struct kvp_oper *oper, uint64_t at_ns)
{
	if (at_ns < oper->wake_ns) {
		oper->wake_ns = at_ns;
		kvp_cq_due(oper->cq, at_ns);
	}
}

void
kvp_oper_key(const struct kvp_oper *oper, uint32_t item, struct kvp_key *ret_key)
{
	const struct kvp_item *from = &oper->batch.items[item];
	int err = kvp_key_set(ret_key, from->key, from->key_len);

	kvp_assert(err == 0); /* checked at the start */
}

static void
oper_call_done(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;

	kvp_list_remove(&call->owner_link);
	kvp_assert(oper->calls > 0);
	oper->calls--;
	call->then(call);
	kvp_oper_run(oper);
}

struct kvp_call *
kvp_oper_call(struct kvp_oper *oper, const struct kvp_oper_call *what)
{
	struct kvp_cq *cq = oper->cq;
	struct kvp_call *call = NULL;
	uint8_t *body = NULL;
	size_t len = 0;

	if (what->msg == NULL || kvp_msg_encode(what->msg, &body, &len) == 0) {
		call = kvp_call_new(cq->client, cq->port, what->to, what->type, body, len);
	}
	if (call == NULL) {
		free(what->items);
		return NULL;
	}
	call->owner = oper;
	call->done = oper_call_done;
	call->then = what->done;
	call->orphan = what->orphan;
	call->items = what->items;
	call->item_count = what->item_count;
	call->session_seq = what->session_seq;
	call->avoid = what->avoid;
	call->deadline_ns = oper->deadline_ns + what->linger_ns;
	if (what->to == KVP_TO_NODE || what->to == KVP_TO_SESSION) {
		call->peer = kvp_peers_ref(cq->client->peers, what->number);
		kvp_assert(call->peer != NULL); /* numbers come from the table */
	}
	kvp_list_push_back(&oper->call_list, &call->owner_link);
	oper->calls++;
	kvp_call_post(call);
	return call;
}

/* --- the end
 * ---------------------------------------------------------------------------------------------- */

void
kvp_oper_abandon(struct kvp_oper *oper)
{
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&oper->call_list)) != NULL) {
		kvp_container_of(node, struct kvp_call, owner_link)->owner = NULL;
		oper->calls--;
	}
}

void
kvp_oper_end(struct kvp_oper *oper, int status)
{
	struct kvp_cq *cq = oper->cq;

	if (oper->end != 0) {
		return;
	}
	oper->end = status;
	kvp_oper_abandon(oper);
	for (uint32_t i = 0; i < KVP_UNITS_MAX && oper->units > 0; i++) {
		struct kvp_unit *unit = &cq->units[i];

		if (unit->oper == oper && !unit->landed && unit->epoch == unit->chan->epoch) {
			kvp_chan_break(unit->chan, status);
		}
	}
	kvp_oper_run(oper);
}

static bool
oper_item_counts(const struct kvp_oper *oper, int status)
{
	return status == 0 || (oper->batch.op == KVP_PUT && status == -KVP_E_EXISTS);
}

static void
oper_count(struct kvp_oper *oper, const struct kvp_item *item, uint64_t len)
{
	struct kvp_client *client = oper->cq->client;
	bool put = oper->batch.op == KVP_PUT;

	if (!oper->ops->moves_data) {
		return;
	}
	kvp_client_count(client, put ? KVP_STAT_PUTS : KVP_STAT_GETS, 1);
	if (item->status == 0) {
		enum kvp_stat bytes =
			put ? KVP_STAT_BYTES_WRITTEN_LOCAL : KVP_STAT_BYTES_READ_LOCAL;

		kvp_client_count(client, put ? KVP_STAT_PUT_STORED : KVP_STAT_GET_HITS, 1);
		kvp_client_count(client, item->local ? bytes : bytes + 1, len);
	} else if (put) {
		kvp_client_count(client,
			item->status == -KVP_E_EXISTS ? KVP_STAT_PUT_EXISTS : KVP_STAT_PUT_ERRORS,
			1);
	} else {
		kvp_client_count(client,
			item->status == -KVP_E_NOKEY ? KVP_STAT_GET_MISSES : KVP_STAT_GET_ERRORS,
			1);
	}
}

/* Why no item could be done at all: their common status if it is about more than a key. */
static int
oper_common_status(const struct kvp_oper *oper)
{
	int first = oper->batch.items[0].status;

	for (uint32_t i = 1; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status != first) {
			return 0;
		}
	}
	if (first == 0 || (kvp_err_scope(first) == KVP_SCOPE_OP && first != -KVP_E_TIMEOUT &&
				  first != -KVP_E_CANCELLED)) {
		return 0;
	}
	return first;
}

void
kvp_oper_complete(struct kvp_oper *oper)
{
	struct kvp_cq *cq = oper->cq;
	struct kvp_completion done = {.tag = oper->batch.tag,
		.flags = oper->done_flags,
		.lease = oper->lease,
		.lease_ms = oper->lease_ms};
	bool in_prefix = true;

	kvp_assert(oper->units == 0 && oper->calls == 0);
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		const struct kvp_item *item = &oper->batch.items[i];

		kvp_assert(item->status != KVP_ITEM_OPEN);
		in_prefix = in_prefix && oper_item_counts(oper, item->status);
		done.prefix += in_prefix;
		if (item->status == 0) {
			done.ok_count++;
			done.bytes += oper->lens[i];
		}
		oper_count(oper, item, oper->lens[i]);
	}
	done.status = oper_common_status(oper);
	for (uint32_t i = 0; i < oper->region_count; i++) {
		kvp_region_unref(oper->regions[i]);
	}
	oper->region_count = 0;
	oper->region_hint = 0;
	kvp_list_remove(&oper->link);
	kvp_unit_unwant(oper);
	kvp_list_remove(&oper->run_link);
	if (oper->silent) {
		cq->out--;
	} else {
		kvp_cq_complete(cq, &done);
	}
	oper_release(oper);
}
