/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h - where the items of a batch are, node by node: the first half of operations that then
 * tell each node something about its items (lease, touch).
 */
#ifndef KVP_CLIENT_SPREAD_H
#define KVP_CLIENT_SPREAD_H

#include "client/lookup.h"

struct kvp_spread_item {
	uint32_t item;
	struct kvp_loc loc; /* node: our number */
	bool same_host;
};

/* Must come first in the operation's own struct. Zeroed, then prefix and cached are set. */
struct kvp_spread {
	bool prefix; /* nothing after the first miss is wanted */
	bool cached; /* a cached location will do */
	bool asking;
	bool over;  /* all is known that will be */
	int status; /* what items that were not asked about get then */
	uint32_t next;
	uint32_t avoid;                /* metas that were behind */
	struct kvp_spread_item *found; /* owned; by node and item once over */
	uint32_t count;
	uint32_t cap;
	uint32_t sent; /* how many the operation has dealt with */
};

/* From the step: moves the search on. 0: it is over; -EINPROGRESS; else nothing can be done. Items
 * that are not found get their status. */
int kvp_spread_find(struct kvp_oper *oper);
/* How many of those from sent on are of one node, at most max. */
uint32_t kvp_spread_run(const struct kvp_spread *spread, uint32_t max);
void kvp_spread_free(struct kvp_spread *spread);

#endif /* KVP_CLIENT_SPREAD_H */
