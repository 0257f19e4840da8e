/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_put.h - what op_put.c (the life of a put) and put_wire.c (its messages) share.
 */
#ifndef KVP_CLIENT_OP_PUT_H
#define KVP_CLIENT_OP_PUT_H

#include "client/op.h"

enum put_state { PUT_RUN, PUT_DRAIN, PUT_DONE };

struct put {
	enum put_state state;
	uint32_t left; /* items not done */
	struct kvp_fifo offer;
	struct kvp_fifo write;
	struct kvp_fifo commit;
	struct kvp_fifo later;
	uint64_t later_ns;   /* when those in "later" are offered again */
	bool offering;       /* an OFFER is out */
	uint32_t committing; /* COMMITs out */

	bool asking; /* for the home node's number */
	bool home_known;
	bool homeless;
	uint32_t home;
	uint32_t epoch;       /* the connection that grants in "write" are for */
	uint32_t session_seq; /* and the session */
	uint32_t grant_ms;
	uint64_t granted;       /* bytes granted and not committed */
	uint64_t grants_end_ns; /* no grant being written ends before */

	struct kvp_rdesc *descs; /* write descriptors, owned */
	uint32_t desc_count;
	uint32_t desc_base; /* where those of the last answer begin */
};

enum put_phase {
	PUT_ITEM_OPEN,
	PUT_ITEM_OFFERED,
	PUT_ITEM_GRANTED,
	PUT_ITEM_WRITING, /* in a unit */
	PUT_ITEM_WRITTEN,
	PUT_ITEM_COMMITTING,
	PUT_ITEM_DONE,
};

struct put_item {
	struct kvp_grant grant;
	uint64_t end_ns; /* of the grant */
	uint8_t sum[KVP_SUM_LEN];
	uint32_t desc;  /* idx into put->descs */
	uint8_t phase;  /* enum put_phase */
	uint8_t tries;  /* grants lost */
	uint8_t offers; /* while another writer was storing it */
	int last;       /* why it is offered again */
};

static inline struct put_item *
put_item(struct kvp_oper *oper, uint32_t idx)
{
	return &((struct put_item *)oper->items)[idx];
}

/* op_put.c */
void kvp_put_finish(struct kvp_oper *oper, uint32_t idx, int status);
void kvp_put_later(struct kvp_oper *oper, uint32_t idx, int why, uint64_t pause_ns);

/* put_wire.c: OFFER of items from the front of put->offer. */
struct kvp_offer {
	uint32_t keys_max;
	uint64_t bytes_max;
	const char *transport;
	void (*done)(struct kvp_call *call);
};
int kvp_offer_post(struct kvp_oper *oper, const struct kvp_offer *offer); /* -ENOMEM */

/* Its answer: begin, next for each of call->items, end. */
struct kvp_offer_reader {
	void *msg;
	const uint8_t *statuses;
	const uint8_t *grants;
	const uint8_t *locs;
	uint32_t desc_count;
	uint64_t retry_ns;
};
int kvp_offer_begin(const struct kvp_call *call, struct kvp_offer_reader *ret_reader);
/* The next key's status. 0: *ret_grant; -KVP_E_EXISTS: *ret_loc, its word 0 if it makes no sense.
 */
int kvp_offer_next(struct kvp_offer_reader *reader, uint64_t len, struct kvp_grant *ret_grant,
	struct kvp_loc *ret_loc);
void kvp_offer_end(struct kvp_offer_reader *reader);
/* Takes its write descriptors over into put->descs. */
int kvp_put_add_descs(struct kvp_oper *oper, const struct kvp_offer_reader *reader);

/* COMMIT of items from the front of put->commit, and its answer. */
int kvp_commit_post(struct kvp_oper *oper, void (*done)(struct kvp_call *call)); /* -ENOMEM */
struct kvp_commit_reader {
	void *msg;
	const uint8_t *statuses;
	const uint8_t *locs;
	bool unindexed;
};
int kvp_commit_begin(const struct kvp_call *call, struct kvp_commit_reader *ret_reader);
int kvp_commit_next(struct kvp_commit_reader *reader, struct kvp_loc *ret_loc);
void kvp_commit_end(struct kvp_commit_reader *reader);

/* Gives grants back, without waiting for an answer. */
void kvp_put_release(struct kvp_client *client, uint32_t number, uint32_t session_seq,
	const struct kvp_grant *grants, uint32_t count);
/* Has the node fence this session, for writes of it that failed half way; once a session. */
void kvp_put_renew(struct kvp_client *client, uint32_t number, uint32_t session_seq);
/* Notes where an item of the home node lies, in the cache and in its medium. */
void kvp_put_cache(struct kvp_oper *oper, uint32_t idx, const struct kvp_loc *loc);

#endif /* KVP_CLIENT_OP_PUT_H */
