/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - (namespace, key) to slot. Holds slot numbers only: keys are compared whole against the
 * slot table, which nobody but the store's thread can write.
 *
 * A key must be in its table entry before insert and stay there until remove. Nothing allocates
 * after open; there is room for every slot. The hash is seeded, so that keys cannot be chosen to
 * collide; should they collide all the same, it gets slow, not wrong.
 */
#ifndef KVP_POOL_STORE_INDEX_H
#define KVP_POOL_STORE_INDEX_H

#include "transport/proto/slot.h"

#include <stdint.h>

#define KVP_INDEX_NONE      UINT32_MAX
#define KVP_INDEX_SLOTS_MAX (1u << 30)

struct kvp_index;

/* The table is the caller's and lives longer. slots_max: 1..KVP_INDEX_SLOTS_MAX. -EINVAL, -ENOMEM.
 */
int kvp_index_open(const struct kvp_slot_entry *table, uint32_t slots_max, uint64_t seed,
	struct kvp_index **ret_index);
void kvp_index_close(struct kvp_index *index); /* NULL is fine */

/* Of a key, or of the key in a table entry: what the functions below take. */
uint64_t kvp_index_hash(
	const struct kvp_index *index, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key);
uint64_t kvp_index_hash_slot(const struct kvp_index *index, uint32_t slot);

/* The slot, or KVP_INDEX_NONE. */
uint32_t kvp_index_find(const struct kvp_index *index, uint64_t hash, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key);
/* The same for many keys of one namespace, their cache misses overlapped. */
void kvp_index_find_batch(const struct kvp_index *index, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *keys, uint32_t key_count, uint32_t *ret_slots);

void kvp_index_insert(struct kvp_index *index, uint64_t hash, uint32_t slot); /* not yet there */
void kvp_index_remove(struct kvp_index *index, uint64_t hash, uint32_t slot); /* is there */

#endif /* KVP_POOL_STORE_INDEX_H */
