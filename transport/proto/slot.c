/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.c - writing and judging entries of the slot table.
 *
 * An entry lies in memory that other processes map or read by RDMA while we write, so nothing
 * here may rely on a reader's order of loads. One writer, the store's thread.
 */
#include "transport/proto/slot.h"

#include "hal/base/assert.h"

#include <string.h>
#include <xxhash.h>

#define ENTRY_WORDS (sizeof(struct kvp_slot_entry) / sizeof(uint64_t))
#define WORD_IDX    (offsetof(struct kvp_slot_entry, word) / sizeof(uint64_t))

_Static_assert(offsetof(struct kvp_slot_entry, check) == 120, "the check covers what is before it");

uint64_t
kvp_entry_word_load(const struct kvp_slot_entry *entry)
{
	return __atomic_load_n(&entry->word, __ATOMIC_ACQUIRE);
}

void
kvp_entry_word_store(struct kvp_slot_entry *entry, uint64_t word)
{
	__atomic_store_n(&entry->word, word, __ATOMIC_RELEASE);
}

uint64_t
kvp_slot_check(const struct kvp_slot_entry *entry)
{
	return XXH3_64bits(entry, offsetof(struct kvp_slot_entry, check));
}

/*
 * Why any reader sees a mismatch or the whole new entry. All stores are aligned 64-bit words, so a
 * copy is a mixture of whole words, old and new.
 *
 * 1. A reader that copies in order (memcpy, one process): before any field changes, the word
 *    leaves VALID (a seqlock's odd count), and release stores keep the fields behind it; the new
 *    word goes in last. So a copy whose word is the new one was made of new fields, and
 *    one whose word is the old VALID one was made of old fields, unless it was overtaken midway.
 * 2. A reader that was overtaken, or whose loads come in any order (RDMA), may hold any mixture.
 *    It differs from the old and the new entry in at least one of the 15 words under the check,
 *    or else in the check alone; in both cases the check does not fit, up to its 64 bits.
 *
 * The check alone would do for correctness up to 2^-64; step 1 makes the common reader's case
 * exact. It matters most when the generation stays (a checksum added to a valid entry): then the
 * word of the old entry is the word the reader asks for. EVICTED is the state in between because
 * whoever is killed here leaves a slot that recovery simply frees: no writer has it, and a torn
 * entry could not be believed anyway.
 */
void
kvp_slot_publish_fault(
	struct kvp_slot_entry *entry, const struct kvp_slot_entry *from, struct kvp_fault *fault)
{
	uint64_t words[ENTRY_WORDS];
	uint64_t *shared = (uint64_t *)entry;
	uint64_t old = __atomic_load_n(&entry->word, __ATOMIC_RELAXED);
	struct kvp_slot_entry sealed = *from;

	kvp_assert(((uintptr_t)entry & (sizeof(uint64_t) - 1)) == 0);
	sealed.check = kvp_slot_check(&sealed);
	memcpy(words, &sealed, sizeof(words));

	if (kvp_word_state(old) == KVP_SLOT_VALID) {
		kvp_entry_word_store(entry, kvp_word_with(old, KVP_SLOT_EVICTED));
	}
	for (size_t i = 0; i < ENTRY_WORDS; i++) {
		if (i == ENTRY_WORDS - 2) {
			kvp_fault_point(fault, "publish"); /* with half a checksum */
		}
		if (i != WORD_IDX) {
			/* Release: not before the word above. */
			__atomic_store_n(&shared[i], words[i], __ATOMIC_RELEASE);
		}
	}
	kvp_entry_word_store(entry, sealed.word);
}

void
kvp_slot_publish(struct kvp_slot_entry *entry, const struct kvp_slot_entry *from)
{
	kvp_slot_publish_fault(entry, from, NULL);
}

bool
kvp_slot_matches(const struct kvp_slot_entry *copy, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, const struct kvp_loc *loc)
{
	if (kvp_word_state(copy->word) != KVP_SLOT_VALID || copy->word != loc->word) {
		return false;
	}
	if (kvp_entry_len(copy) != loc->len || copy->off != loc->off) {
		return false;
	}
	if (key->len == 0 || key->len > KVP_KEY_LEN_MAX || kvp_entry_klen(copy) != key->len) {
		return false;
	}
	/* Whole arrays: both are zero behind the key. */
	if (memcmp(copy->key, key->bytes, KVP_KEY_LEN_MAX) != 0 ||
		memcmp(copy->ns, ns, KVP_NS_LEN) != 0) {
		return false;
	}
	return copy->check == kvp_slot_check(copy);
}
