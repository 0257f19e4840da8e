/* SPDX-License-Identifier: Apache-2.0 */
/*
 * announce.h - the node's stream to its metas: every block stored or removed, numbered, in order.
 *
 * A bounded ring keeps the last records; each meta reads it at its own pace over its own link. A
 * meta that knows nothing, that saw a gap or that fell behind the ring gets a snapshot within the
 * same stream: each of its messages holds first the changes so far, then a part of the store as it
 * is at that moment, so that whatever is applied last is true.
 *
 * NUMBERS   Every record counts one, those of a snapshot too, and its last one carries the number
 * of the node's last change: it begins as many lower as it will restate blocks. So it restates just
 * those there were when it began: later ones come as changes, and for one that is gone stands a
 * record that removes nothing.
 *
 * META      DOWN -> JOINING -> [SNAPSHOT ->] STREAMING -> DOWN, and SNAPSHOT again from STREAMING.
 *           Live is a meta that streams and has applied its last snapshot. One that stopped being
 *           live counts for one more heartbeat time: so long it may still answer lookups.
 */
#ifndef KVP_POOL_NODE_ANNOUNCE_H
#define KVP_POOL_NODE_ANNOUNCE_H

#include "pool/node/node_impl.h"

/* -ENOMEM. The node's store need not be open yet. */
int kvp_announce_open(struct kvp_node *node, struct kvp_announcer **ret_announce);
void kvp_announce_close(struct kvp_announcer *announce); /* NULL is fine */

/* Connects to the metas; the node knows its addresses. */
void kvp_announce_start(struct kvp_announcer *announce);

/* The store's event callback; arg is the node. Only notes the change. */
void kvp_announce_event(void *arg, const struct kvp_store_event *event);
/* After changes: sends what the metas have room for. */
void kvp_announce_flush(struct kvp_announcer *announce);
/* From the node's tick: heartbeats, joins again. */
void kvp_announce_tick(struct kvp_announcer *announce, uint64_t now_ns);

/* The number of the last change. */
uint64_t kvp_announce_sequence(const struct kvp_announcer *announce);

enum kvp_indexed {
	KVP_INDEXED_ALL,  /* every meta that counts knows it, and there is one */
	KVP_INDEXED_WAIT, /* one that counts does not know it yet */
	KVP_INDEXED_NONE, /* no meta counts */
};
enum kvp_indexed kvp_announce_indexed(
	const struct kvp_announcer *announce, uint64_t sequence, uint64_t now_ns);

uint32_t kvp_announce_live_count(const struct kvp_announcer *announce);

/* For STATUS: address and state of meta idx; false when there is none. */
bool kvp_announce_describe(const struct kvp_announcer *announce, uint32_t idx,
	const char **ret_addr, char *buf, size_t cap);

#endif /* KVP_POOL_NODE_ANNOUNCE_H */
