/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.h - which node holds which block where: digest of (namespace, key) -> locations.
 *
 * Pure: no clock, no messages, no allocation after new(). One owner thread. Memory is fixed by
 * blocks_max, but pages are touched only as locations come: 56 bytes a location and 4 to 8 of
 * buckets, which are touched from the start.
 *
 * Every location carries the stamp of its node at the time it was said. Ending a snapshot and
 * dropping a node only move the node's floor: what lies below is invisible at once and is
 * collected later, in slices, by turn(). Nodes are indexes below KVP_NODES_MAX, given out by the
 * caller, who reuses one only when it is clean().
 */
#ifndef KVP_POOL_META_DIRECTORY_H
#define KVP_POOL_META_DIRECTORY_H

#include "transport/proto/slot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_DIRECTORY_BLOCKS_MAX (1ull << 31) /* locations are named by 32 bits */
#define KVP_FIND_KEYS_MAX        64u          /* keys of one find() */
#define KVP_REPLICAS_MAX         8u           /* locations of one key that one find() gives */

struct kvp_directory;

/* What a node says of one block of its. */
struct kvp_place {
	uint64_t word;
	uint64_t off;
	uint32_t len;
	uint32_t slot;
	uint8_t tier;
};

/* -ENOMEM; -EINVAL when blocks_max is 0 or over KVP_DIRECTORY_BLOCKS_MAX. seed: secret, random. */
int kvp_directory_new(uint64_t blocks_max, uint64_t seed, struct kvp_directory **ret_dir);
void kvp_directory_free(struct kvp_directory *dir);

/* The place becomes the location of that digest on this node and tier, and the slot's content,
 * whatever either was before. -KVP_E_STALE: the slot is known with a newer word, nothing is
 * changed. -KVP_E_NO_SPACE: blocks_max is reached. */
int kvp_directory_store(struct kvp_directory *dir, uint16_t node, const uint64_t digest[2],
	const struct kvp_place *place);

/* -KVP_E_NOKEY when the slot is not known with this very word. */
int kvp_directory_remove(struct kvp_directory *dir, uint16_t node, uint32_t slot, uint64_t word);

/* Between begin and end the node states all it has; what it has not by the end is gone. A begin
 * without an end before it starts over. */
void kvp_directory_snapshot_begin(struct kvp_directory *dir, uint16_t node);
void kvp_directory_snapshot_end(struct kvp_directory *dir, uint16_t node);

/* Everything the node said so far is gone. */
void kvp_directory_drop(struct kvp_directory *dir, uint16_t node);

/* False: find() passes over the node's locations, which are kept. New nodes are shown. */
void kvp_directory_show(struct kvp_directory *dir, uint16_t node, bool shown);

/* Nothing of before the node's last drop or snapshot's end is left in memory. */
bool kvp_directory_clean(const struct kvp_directory *dir, uint16_t node);

/* Collects what is gone, looking at no more than budget locations. True: there is more to do. */
bool kvp_directory_turn(struct kvp_directory *dir, uint64_t budget);
bool kvp_directory_pending(const struct kvp_directory *dir); /* turn() has something to do */

/*
 * Looks count (<= KVP_FIND_KEYS_MAX) digests up. ret_counts[i]: locations of digest i, at most
 * replicas_max (1..KVP_REPLICAS_MAX), the tiers that read fastest first; ret_locs: they, in order,
 * .node being the directory's index; room for count * replicas_max. Returns the locations written.
 */
size_t kvp_directory_find(const struct kvp_directory *dir, const uint64_t (*digests)[2],
	size_t count, uint32_t replicas_max, uint8_t *ret_counts, struct kvp_loc *ret_locs);

uint64_t kvp_directory_seed(const struct kvp_directory *dir);   /* for kvp_key_digest() */
uint64_t kvp_directory_blocks(const struct kvp_directory *dir); /* visible, over all nodes */
uint64_t kvp_directory_node_blocks(const struct kvp_directory *dir, uint16_t node);
uint64_t kvp_directory_held(const struct kvp_directory *dir);  /* with those not yet collected */
uint64_t kvp_directory_swept(const struct kvp_directory *dir); /* collected ever */
uint64_t kvp_directory_bytes(const struct kvp_directory *dir); /* memory touched so far */

#endif /* KVP_POOL_META_DIRECTORY_H */
