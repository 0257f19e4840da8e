/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loc_cache.c - sets of up to 8 entries, chosen by a seeded 128-bit digest of (namespace, key);
 * the entry used longest ago makes room. Two keys of one digest would share an entry: the reader
 * then finds another key in the slot and looks its own up.
 *
 * THREADS 64 locks, each over every 64th set.
 */
#include "client/loc_cache.h"
#include "transport/proto/wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define CACHE_WAYS_MAX 8u
#define CACHE_STRIPES  64u

struct cache_entry {
	uint64_t digest[2];
	uint64_t used; /* the stripe's clock at the last get or put; 0: empty */
	struct kvp_loc loc;
};

struct cache_stripe {
	pthread_mutex_t lock;
	uint64_t clock;
} __attribute__((aligned(64)));

struct kvp_loc_cache {
	struct cache_stripe stripes[CACHE_STRIPES];
	uint64_t seed;
	uint32_t set_count;
	uint32_t ways;
	struct cache_entry *entries; /* set_count * ways, owned */
};

/* One key's set, locked. */
struct cache_probe {
	uint64_t digest[2];
	struct cache_stripe *stripe;
	struct cache_entry *set;
};

static struct cache_probe
cache_lock(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	struct cache_probe probe;
	uint32_t set;

	kvp_key_digest(cache->seed, ns, key, probe.digest);
	set = (uint32_t)((probe.digest[0] >> 32) * cache->set_count >> 32);
	probe.stripe = &cache->stripes[set % CACHE_STRIPES];
	probe.set = &cache->entries[(size_t)set * cache->ways];
	pthread_mutex_lock(&probe.stripe->lock);
	return probe;
}

static struct cache_entry *
cache_find(const struct kvp_loc_cache *cache, const struct cache_probe *probe)
{
	for (uint32_t i = 0; i < cache->ways; i++) {
		struct cache_entry *entry = &probe->set[i];

		if (entry->used != 0 && entry->digest[0] == probe->digest[0] &&
			entry->digest[1] == probe->digest[1]) {
			return entry;
		}
	}
	return NULL;
}

/* The entry to overwrite: an empty one, else the one used longest ago. */
static struct cache_entry *
cache_oldest(const struct kvp_loc_cache *cache, const struct cache_probe *probe)
{
	struct cache_entry *oldest = &probe->set[0];

	for (uint32_t i = 1; i < cache->ways; i++) {
		if (probe->set[i].used < oldest->used) {
			oldest = &probe->set[i];
		}
	}
	return oldest;
}

int
kvp_loc_cache_open(uint32_t entries_max, uint64_t seed, struct kvp_loc_cache **ret_cache)
{
	struct kvp_loc_cache *cache;

	if (entries_max == 0) {
		return -EINVAL;
	}
	cache = aligned_alloc(64, sizeof(*cache) + (64 - sizeof(*cache) % 64) % 64);
	if (cache == NULL) {
		return -ENOMEM;
	}
	*cache = (struct kvp_loc_cache){.seed = seed};
	cache->ways = entries_max < CACHE_WAYS_MAX ? entries_max : CACHE_WAYS_MAX;
	cache->set_count = entries_max / cache->ways;
	cache->entries = calloc((size_t)cache->set_count * cache->ways, sizeof(*cache->entries));
	if (cache->entries == NULL) {
		free(cache);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < CACHE_STRIPES; i++) {
		pthread_mutex_init(&cache->stripes[i].lock, NULL);
	}
	*ret_cache = cache;
	return 0;
}

void
kvp_loc_cache_close(struct kvp_loc_cache *cache)
{
	if (cache == NULL) {
		return;
	}
	for (uint32_t i = 0; i < CACHE_STRIPES; i++) {
		pthread_mutex_destroy(&cache->stripes[i].lock);
	}
	free(cache->entries);
	free(cache);
}

bool
kvp_loc_cache_get(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, struct kvp_loc *ret_loc)
{
	struct cache_probe probe = cache_lock(cache, ns, key);
	struct cache_entry *entry = cache_find(cache, &probe);

	if (entry != NULL) {
		entry->used = ++probe.stripe->clock;
		*ret_loc = entry->loc;
	}
	pthread_mutex_unlock(&probe.stripe->lock);
	return entry != NULL;
}

void
kvp_loc_cache_put(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc)
{
	struct cache_probe probe = cache_lock(cache, ns, key);
	struct cache_entry *entry = cache_find(cache, &probe);

	if (entry == NULL) {
		entry = cache_oldest(cache, &probe);
	}
	entry->digest[0] = probe.digest[0];
	entry->digest[1] = probe.digest[1];
	entry->used = ++probe.stripe->clock;
	entry->loc = *loc;
	pthread_mutex_unlock(&probe.stripe->lock);
}

void
kvp_loc_cache_drop(struct kvp_loc_cache *cache, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc)
{
	struct cache_probe probe = cache_lock(cache, ns, key);
	struct cache_entry *entry = cache_find(cache, &probe);

	if (entry != NULL && entry->loc.word == loc->word && entry->loc.node == loc->node) {
		*entry = (struct cache_entry){0};
	}
	pthread_mutex_unlock(&probe.stripe->lock);
}
