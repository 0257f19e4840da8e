/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loc_cache.h - where blocks were last seen: (namespace, key) -> location. Bounded; forgets the
 * oldest of a small set. Only a hint: every read checks the slot's entry.
 *
 * THREADS any: striped locks, held for one probe.
 */
#ifndef KVP_CLIENT_LOC_CACHE_H
#define KVP_CLIENT_LOC_CACHE_H

#include "transport/proto/slot.h"

#include <stdbool.h>
#include <stdint.h>

struct kvp_loc_cache;

int kvp_loc_cache_open(uint32_t entries_max, uint64_t seed, struct kvp_loc_cache **ret_cache);
void kvp_loc_cache_close(struct kvp_loc_cache *cache);

bool kvp_loc_cache_get(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, struct kvp_loc *ret_loc);
/* loc->node is the client's own node number (peers.h). Replaces what is there. */
void kvp_loc_cache_put(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc);
/* Forgets the key if it still points to that generation. */
void kvp_loc_cache_drop(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc);

#endif /* KVP_CLIENT_LOC_CACHE_H */
