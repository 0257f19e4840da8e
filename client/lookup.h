/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - asking the metas where keys are, for get, match and delete.
 */
#ifndef KVP_CLIENT_LOOKUP_H
#define KVP_CLIENT_LOOKUP_H

#include "client/op.h"

#define KVP_REPLICAS_MAX 8u

struct kvp_lookup {
	uint32_t *items; /* malloc'd, taken over: of the batch, item_count of them */
	uint32_t item_count;
	bool prefix; /* stop at the first miss */
	uint32_t replicas_max;
	uint32_t avoid; /* metas not to ask */
	void (*done)(struct kvp_call *call);
};

/* -ENOMEM. */
int kvp_lookup_post(struct kvp_oper *oper, const struct kvp_lookup *lookup);

/* The answer: begin, then for each of call->items in order kvp_lookup_next, then end. */
struct kvp_lookup_reader {
	struct kvp_client *client;
	void *msg;
	uint32_t count; /* keys it says something about */
	uint32_t next;
	const uint8_t *counts;
	const uint8_t *locs;
	bool behind; /* it does not vouch for all nodes: a miss may be none */
	uint32_t node_count;
	uint16_t *numbers; /* of its nodes, in our table; UINT16_MAX: no place */
};

/* -KVP_E_PROTO, -ENOMEM: then there is nothing to end. */
int kvp_lookup_begin(const struct kvp_call *call, struct kvp_lookup_reader *ret_reader);
/* The next key's locations that make sense, with our node numbers, at most KVP_REPLICAS_MAX; the
 * number. */
uint32_t kvp_lookup_next(struct kvp_lookup_reader *reader, struct kvp_loc locs[KVP_REPLICAS_MAX]);
void kvp_lookup_end(struct kvp_lookup_reader *reader);

#endif /* KVP_CLIENT_LOOKUP_H */
