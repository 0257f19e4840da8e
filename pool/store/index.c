/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - open addressing with linear probing, at most half full. Owned by the store's thread.
 *
 * A cell is a slot and 32 bits of the hash: enough to find the cell's home again (so removal shifts
 * back instead of leaving tombstones) and to look at a table entry almost only when it matches.
 */
#include "pool/store/index.h"

#include "hal/base/assert.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BATCH_GROUP 32u /* keys in flight: more than a core's outstanding misses */

struct cell {
	uint32_t slot; /* KVP_INDEX_NONE: empty */
	uint32_t tag;  /* low bits of the hash */
};

struct kvp_index {
	const struct kvp_slot_entry *table;
	struct cell *cells;
	uint32_t mask; /* cells - 1 */
	uint32_t slots_max;
	uint32_t used;
	uint64_t seed;
};

static uint64_t
hash_bytes(uint64_t seed, const uint8_t ns[KVP_NS_LEN], uint8_t key_len, const uint8_t *key_bytes)
{
	uint8_t buf[KVP_NS_LEN + 1 + KVP_KEY_LEN_MAX];

	kvp_assert(key_len <= KVP_KEY_LEN_MAX);
	memcpy(buf, ns, KVP_NS_LEN);
	buf[KVP_NS_LEN] = key_len;
	memcpy(buf + KVP_NS_LEN + 1, key_bytes, key_len);
	return XXH3_64bits_withSeed(buf, KVP_NS_LEN + 1 + (size_t)key_len, seed);
}

static bool
entry_is(
	const struct kvp_slot_entry *entry, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	return kvp_entry_klen(entry) == key->len && memcmp(entry->ns, ns, KVP_NS_LEN) == 0 &&
	       memcmp(entry->key, key->bytes, key->len) == 0;
}

/* The first cell from at on that is empty or has this tag. */
static uint32_t
probe(const struct kvp_index *index, uint32_t at, uint32_t tag)
{
	at &= index->mask;
	while (index->cells[at].slot != KVP_INDEX_NONE && index->cells[at].tag != tag) {
		at = (at + 1) & index->mask;
	}
	return at;
}

/* Goes on from a cell that probe() found. */
static uint32_t
find_from(const struct kvp_index *index, uint32_t at, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key)
{
	uint32_t tag = index->cells[at].tag;

	while (index->cells[at].slot != KVP_INDEX_NONE) {
		if (entry_is(&index->table[index->cells[at].slot], ns, key)) {
			return index->cells[at].slot;
		}
		at = probe(index, at + 1, tag);
	}
	return KVP_INDEX_NONE;
}

static void
find_group(const struct kvp_index *index, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *keys,
	uint32_t count, uint32_t *ret_slots)
{
	uint32_t at[BATCH_GROUP];

	for (uint32_t i = 0; i < count; i++) {
		at[i] = (uint32_t)kvp_index_hash(index, ns, &keys[i]);
		__builtin_prefetch(&index->cells[at[i] & index->mask]);
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot;

		at[i] = probe(index, at[i], at[i]);
		slot = index->cells[at[i]].slot;
		if (slot != KVP_INDEX_NONE) {
			const char *entry = (const char *)&index->table[slot];

			__builtin_prefetch(entry);
			__builtin_prefetch(entry + 64);
		}
	}
	for (uint32_t i = 0; i < count; i++) {
		ret_slots[i] = find_from(index, at[i], ns, &keys[i]);
	}
}

int
kvp_index_open(const struct kvp_slot_entry *table, uint32_t slots_max, uint64_t seed,
	struct kvp_index **ret_index)
{
	struct kvp_index *index;
	uint64_t cells = 2;

	if (slots_max == 0 || slots_max > KVP_INDEX_SLOTS_MAX) {
		return -EINVAL;
	}
	while (cells < 2 * (uint64_t)slots_max) {
		cells *= 2;
	}
	index = calloc(1, sizeof(*index));
	if (index == NULL) {
		return -ENOMEM;
	}
	index->cells = malloc(cells * sizeof(index->cells[0]));
	if (index->cells == NULL) {
		free(index);
		return -ENOMEM;
	}
	memset(index->cells, 0xff, cells * sizeof(index->cells[0]));
	index->table = table;
	index->mask = (uint32_t)(cells - 1);
	index->slots_max = slots_max;
	index->seed = seed;
	*ret_index = index;
	return 0;
}

void
kvp_index_close(struct kvp_index *index)
{
	if (index == NULL) {
		return;
	}
	free(index->cells);
	free(index);
}

uint64_t
kvp_index_hash(
	const struct kvp_index *index, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	return hash_bytes(index->seed, ns, key->len, key->bytes);
}

uint64_t
kvp_index_hash_slot(const struct kvp_index *index, uint32_t slot)
{
	const struct kvp_slot_entry *entry = &index->table[slot];

	return hash_bytes(index->seed, entry->ns, kvp_entry_klen(entry), entry->key);
}

uint32_t
kvp_index_find(const struct kvp_index *index, uint64_t hash, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key)
{
	return find_from(index, probe(index, (uint32_t)hash, (uint32_t)hash), ns, key);
}

void
kvp_index_find_batch(const struct kvp_index *index, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *keys, uint32_t key_count, uint32_t *ret_slots)
{
	for (uint32_t i = 0; i < key_count; i += BATCH_GROUP) {
		uint32_t count = key_count - i < BATCH_GROUP ? key_count - i : BATCH_GROUP;

		find_group(index, ns, keys + i, count, ret_slots + i);
	}
}

void
kvp_index_insert(struct kvp_index *index, uint64_t hash, uint32_t slot)
{
	uint32_t at = (uint32_t)hash & index->mask;

	kvp_assert(slot < index->slots_max && index->used < index->slots_max);
	while (index->cells[at].slot != KVP_INDEX_NONE) {
		kvp_assert(index->cells[at].slot != slot);
		at = (at + 1) & index->mask;
	}
	index->cells[at] = (struct cell){.slot = slot, .tag = (uint32_t)hash};
	index->used++;
}

void
kvp_index_remove(struct kvp_index *index, uint64_t hash, uint32_t slot)
{
	uint32_t hole = (uint32_t)hash & index->mask;
	uint32_t at;

	while (index->cells[hole].slot != slot) {
		kvp_assert(index->cells[hole].slot != KVP_INDEX_NONE);
		hole = (hole + 1) & index->mask;
	}
	/* Whatever lies behind the hole and may lie in it moves into it. */
	for (at = (hole + 1) & index->mask; index->cells[at].slot != KVP_INDEX_NONE;
		at = (at + 1) & index->mask) {
		uint32_t from_home = (at - index->cells[at].tag) & index->mask;

		if (from_home >= ((at - hole) & index->mask)) {
			index->cells[hole] = index->cells[at];
			hole = at;
		}
	}
	index->cells[hole].slot = KVP_INDEX_NONE;
	index->used--;
}
