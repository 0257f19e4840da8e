/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.h - verifies the bytes of blocks that were there when the node started, a little at each
 * tick; those that do not fit their checksum are evicted and counted. Readers need not wait for it:
 * an entry that passed recovery is one that was committed, so this finds what the entry cannot
 * tell, such as bytes that somebody else changed. The loop's thread.
 */
#ifndef KVP_POOL_NODE_SCRUB_H
#define KVP_POOL_NODE_SCRUB_H

#include "pool/node/node_impl.h"

/* After recovery. *ret_scrub is NULL when the rate is 0. -ENOMEM. */
int kvp_scrub_open(struct kvp_node *node, struct kvp_scrub **ret_scrub);
void kvp_scrub_close(struct kvp_scrub *scrub); /* NULL is fine */
/* NULL is fine. */
void kvp_scrub_tick(struct kvp_scrub *scrub, uint64_t now_ns);

#endif /* KVP_POOL_NODE_SCRUB_H */
