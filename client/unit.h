/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h - the I/O of one item in flight: a payload read and the read of its slot's entry behind
 * it, or one write. A pool of them in each queue bounds what it has in flight.
 *
 * A unit is taken by an operation, started, and *lands* on the operation's list when all it posted
 * is done, with the first error as its status; then nothing of it is posted any more. The operation
 * gives it back.
 *
 * THREADS under the queue's lock.
 */
#ifndef KVP_CLIENT_UNIT_H
#define KVP_CLIENT_UNIT_H

#include "client/chan.h"

#define KVP_UNITS_MAX        128u        /* of one queue */
#define KVP_UNITS_BYTES_MAX  (64u << 20) /* payload bytes in flight, or one unit */
#define KVP_UNITS_TURN_BYTES (8u << 20)  /* posted in one turn of a queue */

enum kvp_unit_io_kind { KVP_UNIT_PAYLOAD, KVP_UNIT_ENTRY, KVP_UNIT_WRITE };

struct kvp_unit {
	struct kvp_list link;  /* the pool, chan->backlog, or oper->landed; itself while posted */
	struct kvp_oper *oper; /* NULL: free */
	uint32_t item;
	uint64_t bytes;
	struct kvp_chan *chan;
	uint32_t epoch;        /* of the connection it is posted on */
	uint32_t xport_idx;    /* likewise; the connection's successor may have another */
	uint64_t t0_ns;        /* before the first post */
	uint64_t off;          /* payload: in the arena, or in what the grant's descriptor names */
	uint32_t slot;         /* read: whose entry */
	bool rechecked;        /* read: the entry was read again after everything else */
	bool ordered;          /* the transport fetches in the order of posting */
	bool local;            /* the transport stays on this host */
	struct kvp_rdesc desc; /* of the payload */
	bool landed;
	int status;
	uint32_t todo;    /* bits of kvp_unit_io_kind not yet posted */
	uint32_t pending; /* ios posted and not done */
	struct kvp_unit_io {
		struct kvp_io io;
		struct kvp_unit *unit;
	} payload, entry_io;
	struct kvp_slot_entry *entry; /* the queue's; where the entry lands */
	struct kvp_seg entry_seg;
	uint32_t seg_count;
	struct kvp_seg segs[KVP_SEGS_MAX];
};

int kvp_units_open(struct kvp_cq *cq);
void kvp_units_close(struct kvp_cq *cq);

/* A unit for an item, with its segments filled in for that connection's transport. NULL: none is
 * free, or others waited longer: the operation is made runnable when it is its turn. */
struct kvp_unit *kvp_unit_take(struct kvp_oper *oper, uint32_t item, struct kvp_chan *chan);
void kvp_unit_unwant(struct kvp_oper *oper); /* it needs none now */
void kvp_unit_give(struct kvp_unit *unit);
/* Starts it. Reads: loc. */
void kvp_unit_read(struct kvp_unit *unit, const struct kvp_loc *loc);
void kvp_unit_reread(struct kvp_unit *unit); /* the entry once more */
void kvp_unit_write(struct kvp_unit *unit, const struct kvp_rdesc *desc, uint64_t off);
/* For chan.c: posts what is left to post; false: no room yet. */
bool kvp_unit_post(struct kvp_unit *unit);
/* Its connection broke before all was posted. */
void kvp_unit_fail(struct kvp_unit *unit, int status);

#endif /* KVP_CLIENT_UNIT_H */
