/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.h - an operation: one batch from kvp_submit() to its completion.
 *
 * Each opcode is one file op_<name>.c with one struct and one step function, the only one that
 * changes the operation's state. A step does what can be done now and returns; the operation is
 * stepped again when it was made runnable: a unit landed, a call was answered, a connection
 * changed, a unit came free, its wake time or its deadline came. "end" is then set by op.c: the
 * step gives up what is open and completes as soon as no unit is out.
 *
 * OWNERSHIP The queue owns opers. An oper owns its memory block, its region references (until the
 *           completion) and its calls (it abandons them when it ends). The batch's arrays are the
 *           caller's, ours to use until the completion.
 */
#ifndef KVP_CLIENT_OP_H
#define KVP_CLIENT_OP_H

#include "client/unit.h"

#define KVP_TRIES_MAX 3u  /* of one item: lookups after a stale read, offers after a lost grant */
#define KVP_CALLS_MAX 2u  /* out at a time for one operation and purpose */
#define KVP_QUANTUM   16u /* units one step takes before others have their turn */

/* A queue of items of a batch, linked by index. An item stands in one queue at most. */
struct kvp_fifo {
	uint32_t head; /* KVP_FIFO_END: empty */
	uint32_t tail;
	uint32_t count;
};
#define KVP_FIFO_END UINT32_MAX

/* One opcode. */
struct kvp_oper_ops {
	size_t head_len;                      /* bytes of the opcode's own struct */
	size_t item_len;                      /* bytes it keeps an item */
	bool moves_data;                      /* items have segments */
	void (*start)(struct kvp_oper *oper); /* state in place, zeroed; nothing posted yet */
	void (*step)(struct kvp_oper *oper);
};
extern const struct kvp_oper_ops kvp_oper_get;
extern const struct kvp_oper_ops kvp_oper_put;
extern const struct kvp_oper_ops kvp_oper_match;
extern const struct kvp_oper_ops kvp_oper_delete;
extern const struct kvp_oper_ops kvp_oper_lease;
extern const struct kvp_oper_ops kvp_oper_touch;
extern const struct kvp_oper_ops kvp_oper_clear;

#define KVP_OP_CLEAR 100 /* beside enum kvp_opcode: kvp_clear() makes it of itself */

struct kvp_oper {
	struct kvp_list link;      /* cq->opers, or cq->spare */
	struct kvp_list run_link;  /* cq->runnable, or itself */
	struct kvp_list want_link; /* cq->wanting, or itself */
	struct kvp_cq *cq;
	const struct kvp_oper_ops *ops;
	struct kvp_batch batch; /* a copy; its items are the caller's */
	struct kvp_namespace ns;
	uint64_t begin_ns;
	uint64_t deadline_ns;
	uint64_t wake_ns;    /* step it then; UINT64_MAX: not */
	int end;             /* 0: running; else give up with this: TIMEOUT, CANCELLED */
	bool unparked;       /* a connection changed since the last step */
	bool silent;         /* no completion: its queue is being closed */
	uint32_t done_flags; /* KVP_DONE_* */
	uint64_t lease;      /* of the completion */
	uint32_t lease_ms;
	uint32_t units;            /* taken and not given back */
	struct kvp_list landed;    /* units that are done; kvp_unit.link */
	uint32_t calls;            /* out */
	struct kvp_list call_list; /* kvp_call.owner_link */

	struct kvp_region **regions; /* references, region_count of them */
	uint32_t region_count;
	uint32_t region_cap;
	uint32_t region_hint; /* where to look first */

	/* One block: head | lens | nexts | firsts | items. */
	void *mem;
	size_t mem_len;
	void *head;     /* the opcode's struct */
	uint64_t *lens; /* payload bytes of each item */
	uint32_t *nexts;
	uint32_t *firsts; /* idx of the region of each item's first segment */
	void *items;      /* the opcode's structs */
};

/* Makes an operation of a batch and starts it. -EINVAL, -ENOMEM. */
int kvp_oper_start(struct kvp_cq *cq, const struct kvp_batch *batch);
void kvp_oper_run(struct kvp_oper *oper);                     /* make it runnable */
void kvp_oper_wake_at(struct kvp_oper *oper, uint64_t at_ns); /* the earlier one stays */
/* From now on it only ends: abandons calls, breaks connections its units are posted on. */
void kvp_oper_end(struct kvp_oper *oper, int status);
void kvp_oper_abandon(struct kvp_oper *oper); /* its calls */
/* From a step, last: counts, frees references, puts the completion into the ring, leaves. */
void kvp_oper_complete(struct kvp_oper *oper);
void kvp_oper_free(struct kvp_oper *oper); /* its memory, for cq.c */

/* Status of an item that is not done yet. Never seen by the caller. */
#define KVP_ITEM_OPEN 1

/* Fills in segs with that xport's registrations; the number of segments. */
uint32_t kvp_oper_segs(struct kvp_oper *oper, uint32_t item, uint32_t xport_idx,
	struct kvp_seg segs[KVP_SEGS_MAX]);
/* The key of an item, which is known to be good. */
void kvp_oper_key(const struct kvp_oper *oper, uint32_t item, struct kvp_key *ret_key);

/* Posts a call of the operation and notes it; done() gets it back under the lock, with the
 * operation runnable after. Takes items over. NULL: no memory (items are freed). */
struct kvp_oper_call {
	enum kvp_call_to to;
	uint16_t type;
	uint32_t number;             /* NODE: which */
	uint32_t session_seq;        /* NODE */
	uint32_t avoid;              /* META */
	uint64_t linger_ns;          /* its answer is taken so long after the deadline: orphan() */
	const ProtobufCMessage *msg; /* NULL: nothing to send */
	uint32_t *items;
	uint32_t item_count;
	void (*done)(struct kvp_call *call);
	void (*orphan)(struct kvp_call *call);
};
struct kvp_call *kvp_oper_call(struct kvp_oper *oper, const struct kvp_oper_call *what);

static inline void
kvp_fifo_init(struct kvp_fifo *fifo)
{
	*fifo = (struct kvp_fifo){.head = KVP_FIFO_END, .tail = KVP_FIFO_END};
}

static inline void
kvp_fifo_push(struct kvp_oper *oper, struct kvp_fifo *fifo, uint32_t item)
{
	oper->nexts[item] = KVP_FIFO_END;
	if (fifo->head == KVP_FIFO_END) {
		fifo->head = item;
	} else {
		oper->nexts[fifo->tail] = item;
	}
	fifo->tail = item;
	fifo->count++;
}

static inline void
kvp_fifo_push_front(struct kvp_oper *oper, struct kvp_fifo *fifo, uint32_t item)
{
	oper->nexts[item] = fifo->head;
	if (fifo->head == KVP_FIFO_END) {
		fifo->tail = item;
	}
	fifo->head = item;
	fifo->count++;
}

/* KVP_FIFO_END when empty. */
static inline uint32_t
kvp_fifo_pop(struct kvp_oper *oper, struct kvp_fifo *fifo)
{
	uint32_t item = fifo->head;

	if (item != KVP_FIFO_END) {
		fifo->head = oper->nexts[item];
		fifo->count--;
		if (fifo->head == KVP_FIFO_END) {
			fifo->tail = KVP_FIFO_END;
		}
	}
	return item;
}

/* All of from to the front of to. */
static inline void
kvp_fifo_splice(struct kvp_oper *oper, struct kvp_fifo *from, struct kvp_fifo *to)
{
	if (from->head == KVP_FIFO_END) {
		return;
	}
	oper->nexts[from->tail] = to->head;
	if (to->head == KVP_FIFO_END) {
		to->tail = from->tail;
	}
	to->head = from->head;
	to->count += from->count;
	kvp_fifo_init(from);
}

#endif /* KVP_CLIENT_OP_H */
