/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.c - the I/O of one item in flight. See unit.h. HOT
 */
#include "client/op.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BIT(kind) (1u << (kind))

int
kvp_units_open(struct kvp_cq *cq)
{
	const size_t entries_len = KVP_UNITS_MAX * sizeof(struct kvp_slot_entry);
	struct kvp_mem mem;

	cq->units = calloc(KVP_UNITS_MAX, sizeof(*cq->units));
	cq->entries = aligned_alloc(4096, entries_len);
	if (cq->units == NULL || cq->entries == NULL) {
		return -ENOMEM;
	}
	memset(cq->entries, 0, entries_len);
	mem = kvp_mem_wrap(cq->entries, entries_len);
	for (uint32_t i = 0; i < cq->xport_count; i++) {
		struct kvp_xport *parent = cq->client->parents[i];
		int err = parent->ops->mr_reg(parent, &mem, KVP_MR_LOCAL, &cq->xports[i].entry_mr);

		if (err < 0) {
			return err;
		}
	}
	for (uint32_t i = 0; i < KVP_UNITS_MAX; i++) {
		cq->units[i].entry = &cq->entries[i];
		kvp_list_push_back(&cq->units_free, &cq->units[i].link);
	}
	return 0;
}

void
kvp_units_close(struct kvp_cq *cq)
{
	for (uint32_t i = 0; i < cq->xport_count; i++) {
		if (cq->xports[i].entry_mr != NULL) {
			cq->client->parents[i]->ops->mr_dereg(cq->xports[i].entry_mr);
		}
	}
	free(cq->entries);
	free(cq->units);
}

/* All it posted is done and nothing is left to post: hand it to its operation. */
static void
unit_settle(struct kvp_unit *unit)
{
	if (unit->pending == 0 && unit->todo == 0 && !unit->landed) {
		unit->landed = true;
		kvp_list_push_back(&unit->oper->landed, &unit->link);
		kvp_oper_run(unit->oper);
	}
}

void
kvp_unit_fail(struct kvp_unit *unit, int status)
{
	if (unit->landed) {
		return;
	}
	kvp_list_remove(&unit->link); /* from the backlog, if it is there */
	unit->todo = 0;
	if (unit->status == 0) {
		unit->status = status;
	}
	unit_settle(unit);
}

static void
unit_io_done(struct kvp_io *io)
{
	struct kvp_unit *unit = kvp_container_of(io, struct kvp_unit_io, io)->unit;
	struct kvp_chan *chan = unit->chan;

	kvp_assert(unit->pending > 0);
	chan->cq->xports[unit->xport_idx].posted--;
	unit->pending--;
	chan->cq->moved = true;
	if (io->status == 0) {
		chan->fails = 0;
	} else {
		if (unit->status == 0) {
			unit->status = io->status;
		}
		if (chan->epoch == unit->epoch) {
			kvp_chan_break(chan, io->status);
		}
		kvp_unit_fail(unit, io->status);
	}
	unit_settle(unit);
}

static int
unit_post_one(struct kvp_unit *unit, enum kvp_unit_io_kind kind)
{
	struct kvp_chan *chan = unit->chan;
	const struct kvp_xport_ops *ops = kvp_chan_xport(chan)->xport->ops;

	switch (kind) {
	case KVP_UNIT_PAYLOAD:
		return ops->read(chan->conn, unit->segs, unit->seg_count, &unit->desc, unit->off,
			&unit->payload.io);
	case KVP_UNIT_ENTRY:
		return ops->read(chan->conn, &unit->entry_seg, 1, &chan->remote->table_read,
			(uint64_t)unit->slot * sizeof(struct kvp_slot_entry), &unit->entry_io.io);
	case KVP_UNIT_WRITE:
		return ops->write(chan->conn, unit->segs, unit->seg_count, &unit->desc, unit->off,
			&unit->payload.io);
	}
	kvp_assert(false);
	return -EINVAL;
}

bool
kvp_unit_post(struct kvp_unit *unit)
{
	struct kvp_chan *chan = unit->chan;

	while (unit->todo != 0) {
		enum kvp_unit_io_kind kind = (enum kvp_unit_io_kind)__builtin_ctz(unit->todo);
		int err;

		if (unit->pending == 0 && !unit->rechecked) {
			unit->t0_ns = kvp_now_ns(chan->cq->client->env);
		}
		err = unit_post_one(unit, kind);
		if (err == -EAGAIN) {
			return false;
		}
		if (err < 0) {
			kvp_chan_break(chan, err);
			kvp_unit_fail(unit, err);
			return true;
		}
		unit->todo &= ~UNIT_BIT(kind);
		unit->pending++;
		kvp_chan_xport(chan)->posted++;
	}
	return true;
}

/* Posts it now, or behind those that wait already. */
static void
unit_start(struct kvp_unit *unit, uint32_t todo)
{
	struct kvp_chan *chan = unit->chan;

	unit->todo = todo;
	unit->status = 0;
	if (chan->state != CHAN_UP || chan->epoch != unit->epoch) {
		kvp_unit_fail(unit, -KVP_E_CONNDOWN);
	} else if (!kvp_list_empty(&chan->backlog) || !kvp_unit_post(unit)) {
		kvp_list_push_back(&chan->backlog, &unit->link);
	}
}

/* Who waits first may take one: others then see theirs at once. */
static void
units_run_first(struct kvp_cq *cq)
{
	if (!kvp_list_empty(&cq->wanting)) {
		kvp_oper_run(kvp_container_of(cq->wanting.next, struct kvp_oper, want_link));
	}
}

void
kvp_unit_unwant(struct kvp_oper *oper)
{
	if (!kvp_list_empty(&oper->want_link)) {
		kvp_list_remove(&oper->want_link);
		units_run_first(oper->cq);
	}
}

/* A free one, if it is this operation's turn and the bounds allow so many bytes more. */
static struct kvp_list *
units_pop(struct kvp_oper *oper, uint64_t len)
{
	struct kvp_cq *cq = oper->cq;

	if (!kvp_list_empty(&cq->wanting) && cq->wanting.next != &oper->want_link) {
		return NULL;
	}
	if (cq->turn_bytes > 0 && cq->turn_bytes + len > KVP_UNITS_TURN_BYTES) {
		cq->cut = true;
		return NULL;
	}
	if (cq->bytes_out > 0 && cq->bytes_out + len > KVP_UNITS_BYTES_MAX) {
		return NULL;
	}
	return kvp_list_pop_front(&cq->units_free);
}

struct kvp_unit *
kvp_unit_take(struct kvp_oper *oper, uint32_t item, struct kvp_chan *chan)
{
	struct kvp_cq *cq = oper->cq;
	uint64_t len = oper->lens[item];
	struct kvp_list *node = units_pop(oper, len);
	struct kvp_unit *unit;
	uint32_t caps;

	if (node == NULL) {
		if (kvp_list_empty(&oper->want_link)) {
			kvp_list_push_back(&cq->wanting, &oper->want_link);
		}
		return NULL;
	}
	kvp_unit_unwant(oper);
	unit = kvp_container_of(node, struct kvp_unit, link);
	unit->oper = oper;
	unit->item = item;
	unit->bytes = len;
	unit->chan = chan;
	unit->epoch = chan->epoch;
	unit->xport_idx = chan->xport_idx;
	unit->rechecked = false;
	caps = kvp_chan_xport(chan)->xport->ops->caps;
	unit->ordered = (caps & KVP_XPORT_ORDERED) != 0;
	unit->local = (caps & KVP_XPORT_LOCAL) != 0;
	unit->landed = false;
	unit->payload.unit = unit;
	unit->payload.io.done = unit_io_done;
	unit->entry_io.unit = unit;
	unit->entry_io.io.done = unit_io_done;
	unit->seg_count = kvp_oper_segs(oper, item, chan->xport_idx, unit->segs);
	unit->entry_seg = (struct kvp_seg){.mr = kvp_chan_xport(chan)->entry_mr,
		.addr = unit->entry,
		.len = sizeof(*unit->entry)};
	cq->bytes_out += len;
	cq->turn_bytes += len;
	chan->users++;
	oper->units++;
	return unit;
}

void
kvp_unit_give(struct kvp_unit *unit)
{
	struct kvp_cq *cq = unit->oper->cq;

	kvp_assert(unit->pending == 0);
	kvp_list_remove(&unit->link);
	cq->bytes_out -= unit->bytes;
	unit->chan->users--;
	unit->oper->units--;
	unit->oper = NULL;
	unit->chan = NULL;
	kvp_list_push_front(&cq->units_free, &unit->link);
	units_run_first(cq);
}

void
kvp_unit_read(struct kvp_unit *unit, const struct kvp_loc *loc)
{
	unit->desc = unit->chan->remote->arena_read;
	unit->off = loc->off;
	unit->slot = loc->slot;
	unit_start(unit, UNIT_BIT(KVP_UNIT_PAYLOAD) | UNIT_BIT(KVP_UNIT_ENTRY));
}

void
kvp_unit_reread(struct kvp_unit *unit)
{
	kvp_list_remove(&unit->link); /* it had landed */
	unit->landed = false;
	unit->rechecked = true;
	unit_start(unit, UNIT_BIT(KVP_UNIT_ENTRY));
}

void
kvp_unit_write(struct kvp_unit *unit, const struct kvp_rdesc *desc, uint64_t off)
{
	unit->desc = *desc;
	unit->off = off;
	unit_start(unit, UNIT_BIT(KVP_UNIT_WRITE));
}
