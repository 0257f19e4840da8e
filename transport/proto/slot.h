/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h - what the store writes and every reader checks: the slot table's entry, the state word
 * that names one filling of one slot for ever, locations, grants and payload checksums.
 *
 * The one header of transport that the store includes. Everything here is wire and shared-memory
 * format: fixed width, little endian, sizes asserted. The rules are in docs/protocol.md.
 * THREADS An entry has one writer (the store's thread) and any number of readers in any process;
 * the state word is the only part accessed atomically.
 */
#ifndef KVP_TRANSPORT_PROTO_SLOT_H
#define KVP_TRANSPORT_PROTO_SLOT_H

#include "hal/base/fault.h"
#include "hal/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key in memory. Bytes after len are zero, so keys compare by value. */
struct kvp_key {
	uint8_t len; /* 1..KVP_KEY_LEN_MAX */
	uint8_t bytes[KVP_KEY_LEN_MAX];
};

enum kvp_slot_state {
	KVP_SLOT_FREE = 0,
	KVP_SLOT_WRITING = 1, /* granted, payload not yet committed */
	KVP_SLOT_VALID = 2,
	KVP_SLOT_EVICTED = 3, /* bytes stay alone for the quarantine */
};

enum kvp_tier { KVP_TIER_HBM = 0, KVP_TIER_DRAM = 1, KVP_TIER_SSD = 2 };

/*
 * State word: incarnation (20 bits) | node-wide counter (40 bits) | state (4 bits).
 * The first 60 bits are the generation. The counter grows with every grant of any slot of the
 * node, so no generation is used twice; store-release, and the first to change on eviction.
 */
static inline uint64_t
kvp_word_make(uint32_t incarnation, uint64_t counter, enum kvp_slot_state state)
{
	return (uint64_t)(incarnation & 0xfffffu) << 44 | (counter & 0xffffffffffull) << 4 |
	       (uint64_t)state;
}

static inline enum kvp_slot_state
kvp_word_state(uint64_t word)
{
	return (enum kvp_slot_state)(word & 0xf);
}

/* The same generation in another state. */
static inline uint64_t
kvp_word_with(uint64_t word, enum kvp_slot_state state)
{
	return (word & ~0xfull) | (uint64_t)state;
}

/* One entry of the slot table, 128 bytes. */
struct kvp_slot_entry {
	uint8_t ns[KVP_NS_LEN];
	uint8_t key[KVP_KEY_LEN_MAX]; /* zero padded */
	uint64_t len_klen;            /* payload bytes (low 56 bits) | key bytes (high 8) */
	uint64_t off;                 /* bytes from the arena's start */
	uint64_t word;                /* state word */
	uint8_t sum[KVP_SUM_LEN];     /* payload checksum; all zero: unhashed */
	uint64_t check;               /* of the 120 bytes before it; kvp_slot_check */
};
_Static_assert(sizeof(struct kvp_slot_entry) == 128, "kvp_slot_entry is wire format");
_Static_assert(offsetof(struct kvp_slot_entry, word) == 96, "kvp_slot_entry is wire format");

/* A location: what a reader needs and can check. 32 bytes on the wire, as it stands here. */
struct kvp_loc {
	uint64_t word; /* with state KVP_SLOT_VALID */
	uint64_t off;  /* bytes from the arena's start */
	uint64_t len;  /* payload bytes */
	uint32_t slot; /* index into the slot table */
	uint16_t node; /* index into the node table that came with it */
	uint8_t tier;  /* enum kvp_tier */
	uint8_t flags; /* 0 */
};
_Static_assert(sizeof(struct kvp_loc) == 32, "kvp_loc is wire format");

/* A grant: the right to fill one slot. 32 bytes on the wire. */
struct kvp_grant {
	uint64_t word; /* with state KVP_SLOT_WRITING */
	uint64_t off;  /* bytes from the start of what the write descriptor names */
	uint64_t len;  /* payload bytes that may be written */
	uint32_t slot;
	uint32_t wdesc; /* index into the answer's write descriptors */
};
_Static_assert(sizeof(struct kvp_grant) == 32, "kvp_grant is wire format");

static inline uint64_t
kvp_entry_len(const struct kvp_slot_entry *entry)
{
	return entry->len_klen & 0xffffffffffffffull;
}

static inline uint8_t
kvp_entry_klen(const struct kvp_slot_entry *entry)
{
	return (uint8_t)(entry->len_klen >> 56);
}

/* Atomic access to an entry that other processes read or write. */
uint64_t kvp_entry_word_load(const struct kvp_slot_entry *entry);       /* acquire */
void kvp_entry_word_store(struct kvp_slot_entry *entry, uint64_t word); /* release */

/* The check of an entry as it stands (over its first 120 bytes). */
uint64_t kvp_slot_check(const struct kvp_slot_entry *entry);

/* Publishes: writes every field of *from into the shared *entry with its check, the state word
 * last (store-release). Any reader sees either a mismatch or the whole new entry. */
void kvp_slot_publish(struct kvp_slot_entry *entry, const struct kvp_slot_entry *from);
/* The same, with the point "publish" halfway through the fields; fault may be NULL. */
void kvp_slot_publish_fault(
	struct kvp_slot_entry *entry, const struct kvp_slot_entry *from, struct kvp_fault *fault);

/* True when a private copy of an entry is whole and says exactly: this key of this namespace, of
 * this length, at this place, in this generation, valid. The reader's whole check. */
bool kvp_slot_matches(const struct kvp_slot_entry *copy, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc);

/* Payload checksum: XXH3-128 seeded by namespace, key and length, over segments in order, so it
 * survives a move of the block and differs between keys. Never all zero ("unhashed"). */
struct kvp_sum_state; /* from kvp_sum_new; reuse it, one thread at a time */
struct kvp_sum_state *kvp_sum_new(void);
void kvp_sum_free(struct kvp_sum_state *state);
void kvp_sum_begin(struct kvp_sum_state *state, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, uint64_t len);
void kvp_sum_update(struct kvp_sum_state *state, const void *buf, size_t len);
void kvp_sum_end(struct kvp_sum_state *state, uint8_t ret_sum[KVP_SUM_LEN]);

#endif /* KVP_TRANSPORT_PROTO_SLOT_H */
