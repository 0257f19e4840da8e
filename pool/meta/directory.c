/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.c - one pool of records, two bucket tables over it: by digest and by (node, slot).
 *
 * Records are named by 32-bit numbers from 1; 0 ends a chain, so zeroed memory is empty. A chain
 * by digest is bounded: a node has one record a digest and tier, and the digest's seed is secret.
 * A chain by slot holds a (node, slot) once. HOT: find().
 */
#include "pool/meta/directory.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODE_NONE        0xffffu /* of a free record */
#define STAMPS_MAX       0xff00u /* stamps of one node that may be in memory at a time */
#define RELEASE_COST     8u      /* of collecting a record, in records looked at */
#define FULL_TURN_BUDGET 1024u   /* looked at for a store that found no room */

_Static_assert(KVP_NODES_MAX < NODE_NONE, "node indexes are 16 bits");

struct record {
	uint64_t digest[2];
	uint64_t word;
	uint64_t off;
	uint32_t len;
	uint32_t slot;
	uint32_t key_next; /* by digest; of a free record: the next free one */
	uint32_t slot_next;
	uint16_t node;
	uint16_t stamp;
	uint8_t tier;
	uint8_t zero[3];
};
_Static_assert(sizeof(struct record) == 56, "the memory of the index is planned by this");

struct dnode {
	uint16_t stamp;  /* given to what the node says now */
	uint16_t floor;  /* records with stamps from floor to stamp are there for readers */
	uint16_t oldest; /* no record has a stamp before this */
	bool hidden;
	uint64_t clean_round; /* when dir->round gets here nothing below floor is left */
	uint64_t blocks;      /* records visible */
	uint64_t restated;    /* of them, with stamp */
};

struct kvp_directory {
	uint64_t seed;
	uint64_t mask; /* buckets - 1 */
	uint32_t *by_key;
	uint32_t *by_slot;
	struct record *records; /* [0] is not used */
	uint32_t records_max;
	uint32_t high; /* the highest number ever used */
	uint32_t free; /* chain of released ones */
	uint32_t cursor;
	uint64_t held;
	uint64_t blocks;
	uint64_t swept;
	uint64_t round; /* laps of cursor finished */
	uint64_t round_wanted;
	struct dnode nodes[KVP_NODES_MAX];
};

/* --- stamps ---------------------------------------------------------------------------------- */

static bool
stamp_visible(const struct dnode *node, uint16_t stamp)
{
	return (uint16_t)(stamp - node->floor) <= (uint16_t)(node->stamp - node->floor);
}

static void
account_in(struct kvp_directory *dir, struct record *rec)
{
	struct dnode *node = &dir->nodes[rec->node];

	rec->stamp = node->stamp;
	node->blocks++;
	node->restated++;
	dir->blocks++;
}

static void
account_out(struct kvp_directory *dir, const struct record *rec)
{
	struct dnode *node = &dir->nodes[rec->node];

	if (!stamp_visible(node, rec->stamp)) {
		return;
	}
	kvp_assert(node->blocks > 0 && dir->blocks > 0);
	node->blocks--;
	dir->blocks--;
	if (rec->stamp == node->stamp) {
		node->restated--;
	}
}

/* Below stamp nothing of the node is visible any more. */
static void
floor_raise(struct kvp_directory *dir, struct dnode *node)
{
	dir->blocks -= node->blocks - node->restated;
	node->blocks = node->restated;
	node->floor = node->stamp;
	/* A record may lie just behind the cursor, so the lap that runs now does not count. */
	node->clean_round = dir->round + 2;
	dir->round_wanted = node->clean_round;
}

static bool
node_clean(const struct kvp_directory *dir, const struct dnode *node)
{
	return dir->round >= node->clean_round;
}

/* A new stamp, which no record in memory has. */
static void
stamp_advance(struct kvp_directory *dir, struct dnode *node)
{
	if (node_clean(dir, node)) {
		node->oldest = node->floor;
	}
	node->stamp++;
	node->restated = 0;
	if ((uint16_t)(node->stamp - node->oldest) < STAMPS_MAX) {
		return;
	}
	/* Tens of thousands of snapshots with no lap between: whoever does that is about to state
	 * everything again, so what was before can go, and may cost a whole lap. */
	floor_raise(dir, node);
	while (kvp_directory_turn(dir, UINT64_MAX)) {
	}
	node->oldest = node->floor;
}

/* --- chains ---------------------------------------------------------------------------------- */

static uint32_t *
key_bucket(const struct kvp_directory *dir, const uint64_t digest[2])
{
	return &dir->by_key[digest[0] & dir->mask];
}

static uint32_t *
slot_bucket(const struct kvp_directory *dir, uint16_t node, uint32_t slot)
{
	uint64_t mixed = ((uint64_t)node << 32 | slot) ^ dir->seed;

	/* Two rounds of multiply and fold, seeded: nodes choose their slots, so they must not be
	 * able to choose the bucket. */
	mixed = (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15ull;
	mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
	return &dir->by_slot[(mixed ^ mixed >> 32) & dir->mask];
}

static bool
digest_equal(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

static uint32_t
slot_find(const struct kvp_directory *dir, uint16_t node, uint32_t slot)
{
	uint32_t idx = *slot_bucket(dir, node, slot);

	while (idx != 0 && (dir->records[idx].slot != slot || dir->records[idx].node != node)) {
		idx = dir->records[idx].slot_next;
	}
	return idx;
}

static void
key_unlink(struct kvp_directory *dir, uint32_t idx)
{
	uint32_t *link = key_bucket(dir, dir->records[idx].digest);

	while (*link != idx) {
		kvp_assert(*link != 0);
		link = &dir->records[*link].key_next;
	}
	*link = dir->records[idx].key_next;
}

static void
key_link(struct kvp_directory *dir, uint32_t idx)
{
	uint32_t *bucket = key_bucket(dir, dir->records[idx].digest);

	dir->records[idx].key_next = *bucket;
	*bucket = idx;
}

static void
slot_unlink(struct kvp_directory *dir, uint32_t idx)
{
	uint32_t *link = slot_bucket(dir, dir->records[idx].node, dir->records[idx].slot);

	while (*link != idx) {
		kvp_assert(*link != 0);
		link = &dir->records[*link].slot_next;
	}
	*link = dir->records[idx].slot_next;
}

/* --- records --------------------------------------------------------------------------------- */

/* 0 when there is no room. */
static uint32_t
record_take(struct kvp_directory *dir)
{
	uint32_t idx = dir->free;

	if (idx != 0) {
		dir->free = dir->records[idx].key_next;
	} else if (dir->high < dir->records_max) {
		idx = ++dir->high;
	} else {
		return 0;
	}
	dir->held++;
	return idx;
}

static uint32_t
record_alloc(struct kvp_directory *dir)
{
	uint32_t idx = record_take(dir);

	if (idx == 0 && kvp_directory_pending(dir)) {
		/* Much of what fills the pool may be gone already. */
		(void)kvp_directory_turn(dir, FULL_TURN_BUDGET);
		idx = record_take(dir);
	}
	return idx;
}

static void
record_release(struct kvp_directory *dir, uint32_t idx)
{
	struct record *rec = &dir->records[idx];

	kvp_assert(rec->node < KVP_NODES_MAX);
	account_out(dir, rec);
	key_unlink(dir, idx);
	slot_unlink(dir, idx);
	rec->node = NODE_NONE;
	rec->key_next = dir->free;
	dir->free = idx;
	dir->held--;
}

/* A node has one location of a key in a tier: the one it named last. */
static void
key_supersede(struct kvp_directory *dir, uint32_t idx)
{
	const struct record *rec = &dir->records[idx];
	uint32_t other = *key_bucket(dir, rec->digest);

	while (other != 0) {
		const struct record *old = &dir->records[other];
		uint32_t next = old->key_next;

		if (other != idx && old->node == rec->node && old->tier == rec->tier &&
			digest_equal(old->digest, rec->digest)) {
			record_release(dir, other);
		}
		other = next;
	}
}

/* --- find ------------------------------------------------------------------------------------ */

/* How soon a reader gets at a tier; an engine's own memory is of use to few. */
static unsigned int
tier_rank(uint8_t tier)
{
	switch (tier) {
	case KVP_TIER_DRAM:
		return 0;
	case KVP_TIER_SSD:
		return 1;
	default:
		return 2;
	}
}

static struct kvp_loc
record_loc(const struct record *rec)
{
	return (struct kvp_loc){.word = rec->word,
		.off = rec->off,
		.len = rec->len,
		.slot = rec->slot,
		.node = rec->node,
		.tier = rec->tier};
}

/* Puts loc among count sorted ones, of which replicas_max are kept. The new count. */
static uint32_t
loc_insert(struct kvp_loc *locs, uint32_t count, uint32_t replicas_max, const struct kvp_loc *loc)
{
	unsigned int rank = tier_rank(loc->tier);
	uint32_t at = count;

	while (at > 0 && tier_rank(locs[at - 1].tier) > rank) {
		at--;
	}
	if (at == replicas_max) {
		return count;
	}
	if (count == replicas_max) {
		count--;
	}
	memmove(&locs[at + 1], &locs[at], (count - at) * sizeof(*locs));
	locs[at] = *loc;
	return count + 1;
}

static uint32_t
chain_find(const struct kvp_directory *dir, uint32_t idx, const uint64_t digest[2],
	uint32_t replicas_max, struct kvp_loc *ret_locs)
{
	uint32_t count = 0;

	while (idx != 0) {
		const struct record *rec = &dir->records[idx];

		idx = rec->key_next;
		if (!digest_equal(rec->digest, digest)) {
			continue;
		}
		const struct dnode *node = &dir->nodes[rec->node];

		if (!node->hidden && stamp_visible(node, rec->stamp)) {
			struct kvp_loc loc = record_loc(rec);

			count = loc_insert(ret_locs, count, replicas_max, &loc);
			if (count == replicas_max && tier_rank(ret_locs[count - 1].tier) == 0) {
				break; /* nothing better can follow */
			}
		}
	}
	return count;
}

/* --- exported -------------------------------------------------------------------------------- */

size_t
kvp_directory_find(const struct kvp_directory *dir, const uint64_t (*digests)[2], size_t count,
	uint32_t replicas_max, uint8_t *ret_counts, struct kvp_loc *ret_locs)
{
	uint32_t heads[KVP_FIND_KEYS_MAX];
	size_t written = 0;

	kvp_assert(count <= KVP_FIND_KEYS_MAX);
	kvp_assert(replicas_max >= 1 && replicas_max <= KVP_REPLICAS_MAX);
	/* Each step misses the cache once a key; the misses of a batch overlap. */
	for (size_t i = 0; i < count; i++) {
		__builtin_prefetch(key_bucket(dir, digests[i]));
	}
	for (size_t i = 0; i < count; i++) {
		const char *rec;

		heads[i] = *key_bucket(dir, digests[i]);
		rec = (const char *)&dir->records[heads[i]];
		__builtin_prefetch(rec);
		__builtin_prefetch(rec + sizeof(struct record) - 1); /* may be on the next line */
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t found =
			chain_find(dir, heads[i], digests[i], replicas_max, ret_locs + written);

		ret_counts[i] = (uint8_t)found;
		written += found;
	}
	return written;
}

int
kvp_directory_store(struct kvp_directory *dir, uint16_t node, const uint64_t digest[2],
	const struct kvp_place *place)
{
	uint32_t idx;
	struct record *rec;

	kvp_assert(node < KVP_NODES_MAX);
	idx = slot_find(dir, node, place->slot);
	rec = &dir->records[idx];
	if (idx == 0) {
		idx = record_alloc(dir);
		if (idx == 0) {
			return -KVP_E_NO_SPACE;
		}
		rec = &dir->records[idx];
		uint32_t *bucket = slot_bucket(dir, node, place->slot);

		rec->slot_next = *bucket;
		*bucket = idx;
	} else {
		/* Counters wrap with their incarnation on top of them: newer is a matter of
		 * distance. What is gone already cannot be newer than anything. */
		if (stamp_visible(&dir->nodes[node], rec->stamp) &&
			(int64_t)(place->word - rec->word) < 0) {
			return -KVP_E_STALE;
		}
		account_out(dir, rec);
		key_unlink(dir, idx);
	}
	memcpy(rec->digest, digest, sizeof(rec->digest));
	rec->word = place->word;
	rec->off = place->off;
	rec->len = place->len;
	rec->slot = place->slot;
	rec->node = node;
	rec->tier = place->tier;
	account_in(dir, rec);
	key_link(dir, idx);
	key_supersede(dir, idx);
	return 0;
}

int
kvp_directory_remove(struct kvp_directory *dir, uint16_t node, uint32_t slot, uint64_t word)
{
	uint32_t idx;

	kvp_assert(node < KVP_NODES_MAX);
	idx = slot_find(dir, node, slot);
	if (idx == 0 || dir->records[idx].word != word ||
		!stamp_visible(&dir->nodes[node], dir->records[idx].stamp)) {
		return -KVP_E_NOKEY;
	}
	record_release(dir, idx);
	return 0;
}

void
kvp_directory_snapshot_begin(struct kvp_directory *dir, uint16_t node)
{
	kvp_assert(node < KVP_NODES_MAX);
	stamp_advance(dir, &dir->nodes[node]);
}

void
kvp_directory_snapshot_end(struct kvp_directory *dir, uint16_t node)
{
	kvp_assert(node < KVP_NODES_MAX);
	floor_raise(dir, &dir->nodes[node]);
}

void
kvp_directory_drop(struct kvp_directory *dir, uint16_t node)
{
	kvp_assert(node < KVP_NODES_MAX);
	stamp_advance(dir, &dir->nodes[node]);
	floor_raise(dir, &dir->nodes[node]);
	kvp_assert(dir->nodes[node].blocks == 0);
}

void
kvp_directory_show(struct kvp_directory *dir, uint16_t node, bool shown)
{
	kvp_assert(node < KVP_NODES_MAX);
	dir->nodes[node].hidden = !shown;
}

bool
kvp_directory_clean(const struct kvp_directory *dir, uint16_t node)
{
	kvp_assert(node < KVP_NODES_MAX);
	return node_clean(dir, &dir->nodes[node]);
}

bool
kvp_directory_turn(struct kvp_directory *dir, uint64_t budget)
{
	while (budget > 0 && dir->round < dir->round_wanted) {
		budget--;
		if (dir->cursor >= dir->high) {
			dir->cursor = 0;
			dir->round++;
			continue;
		}
		const struct record *rec = &dir->records[++dir->cursor];

		if (rec->node != NODE_NONE && !stamp_visible(&dir->nodes[rec->node], rec->stamp)) {
			record_release(dir, dir->cursor);
			dir->swept++;
			budget -= budget < RELEASE_COST ? budget : RELEASE_COST;
		}
	}
	return kvp_directory_pending(dir);
}

bool
kvp_directory_pending(const struct kvp_directory *dir)
{
	return dir->round < dir->round_wanted;
}

int
kvp_directory_new(uint64_t blocks_max, uint64_t seed, struct kvp_directory **ret_dir)
{
	struct kvp_directory *dir;
	uint64_t buckets = 1;

	if (blocks_max == 0 || blocks_max > KVP_DIRECTORY_BLOCKS_MAX) {
		return -EINVAL;
	}
	while (buckets <= blocks_max / 2) {
		buckets *= 2;
	}
	dir = calloc(1, sizeof(*dir));
	if (dir == NULL) {
		return -ENOMEM;
	}
	dir->seed = seed;
	dir->mask = buckets - 1;
	dir->records_max = (uint32_t)blocks_max;
	dir->by_key = calloc(buckets, sizeof(*dir->by_key));
	dir->by_slot = calloc(buckets, sizeof(*dir->by_slot));
	/* Zeroed by the kernel page by page as it is touched: large pools cost nothing at first. */
	dir->records = calloc(blocks_max + 1, sizeof(*dir->records));
	if (dir->by_key == NULL || dir->by_slot == NULL || dir->records == NULL) {
		kvp_directory_free(dir);
		return -ENOMEM;
	}
	dir->records[0].node = NODE_NONE;
	*ret_dir = dir;
	return 0;
}

void
kvp_directory_free(struct kvp_directory *dir)
{
	if (dir == NULL) {
		return;
	}
	free(dir->by_key);
	free(dir->by_slot);
	free(dir->records);
	free(dir);
}

uint64_t
kvp_directory_seed(const struct kvp_directory *dir)
{
	return dir->seed;
}

uint64_t
kvp_directory_blocks(const struct kvp_directory *dir)
{
	return dir->blocks;
}

uint64_t
kvp_directory_node_blocks(const struct kvp_directory *dir, uint16_t node)
{
	kvp_assert(node < KVP_NODES_MAX);
	return dir->nodes[node].blocks;
}

uint64_t
kvp_directory_held(const struct kvp_directory *dir)
{
	return dir->held;
}

uint64_t
kvp_directory_swept(const struct kvp_directory *dir)
{
	return dir->swept;
}

uint64_t
kvp_directory_bytes(const struct kvp_directory *dir)
{
	return sizeof(*dir) + 2 * (dir->mask + 1) * sizeof(*dir->by_key) +
	       ((uint64_t)dir->high + 1) * sizeof(*dir->records);
}
