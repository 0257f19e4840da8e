/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_entry.c - a slot's entry read from a peer: nothing but the whole entry that was asked for
 * matches. The input is the entry and, behind it, changes to make to a good one: place, mask.
 */
#include "tests/fuzz/fuzz.h"
#include "transport/proto/wire.h"

#include <stdbool.h>

static const uint8_t ns[KVP_NS_LEN] = "namespace digest";

/* Asks for exactly what a hostile entry says it is. */
static void
ask_for_it(const struct kvp_slot_entry *entry)
{
	struct kvp_loc loc = {.word = entry->word, .off = entry->off, .len = kvp_entry_len(entry)};
	struct kvp_key key = {.len = kvp_entry_klen(entry)};

	memcpy(key.bytes, entry->key, sizeof(key.bytes));
	if (kvp_slot_matches(entry, entry->ns, &key, &loc)) {
		kvp_assert(kvp_word_state(entry->word) == KVP_SLOT_VALID);
		kvp_assert(key.len >= 1 && key.len <= KVP_KEY_LEN_MAX);
		kvp_assert(entry->check == kvp_slot_check(entry));
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvp_slot_entry hostile = {.off = 0};
	struct kvp_slot_entry good = {.off = 0};
	struct kvp_slot_entry changed;
	struct kvp_loc loc = {.word = kvp_word_make(1, 2, KVP_SLOT_VALID), .off = 4096, .len = 77};
	struct kvp_key key;
	bool same;

	memcpy(&hostile, data, size < sizeof(hostile) ? size : sizeof(hostile));
	ask_for_it(&hostile);

	kvp_assert(kvp_key_set(&key, "a key", 5) == 0);
	changed = (struct kvp_slot_entry){
		.len_klen = 5ull << 56 | 77, .off = loc.off, .word = loc.word};
	memcpy(changed.ns, ns, sizeof(ns));
	memcpy(changed.key, key.bytes, sizeof(key.bytes));
	kvp_slot_publish(&good, &changed);
	changed = good;
	for (size_t i = sizeof(hostile); i + 1 < size; i += 2) {
		((uint8_t *)&changed)[data[i] % sizeof(changed)] ^= data[i + 1];
	}
	same = memcmp(&changed, &good, sizeof(good)) == 0;
	kvp_assert(kvp_slot_matches(&changed, ns, &key, &loc) == same);
	return 0;
}
