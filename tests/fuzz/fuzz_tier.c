/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tier.c - header and table of a segment file, as they are found at the start. The first byte
 * says what is made good: bit 0 the header's check, bit 1 those of the entries; the rest is what
 * stands in the file, from a good header on.
 */
#include "pool/store/tier.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>

#define ENTRIES     32u
#define META_LEN    (2u * KVP_TIER_PAGE_LEN)
#define SEGMENT_LEN (1024u * 1024)
#define ENTRY_LEN   sizeof(struct kvp_slot_entry)

/* Writes the check of what is at bytes, mixed with epoch. */
static void
check_set(uint8_t *bytes, uint64_t epoch)
{
	struct kvp_slot_entry entry;

	memcpy(&entry, bytes, sizeof(entry));
	entry.check = kvp_slot_check(&entry) ^ epoch;
	memcpy(bytes, &entry, sizeof(entry));
}

/* A header as the tier itself writes it. */
static void
head_make(struct kvp_tier_log *tier, uint8_t *ret_meta)
{
	static const uint8_t sum[KVP_SUM_LEN] = {1};
	struct kvp_key key = {.len = 1, .bytes = "k"};
	struct kvp_tier_page page;
	uint32_t slot;

	kvp_assert(kvp_tier_write_begin(tier, sum, &key, 5000, sum, &slot) == 0);
	kvp_tier_write_end(tier, slot, true);
	while (kvp_tier_page_next(tier, ret_meta + KVP_TIER_PAGE_LEN, &page)) {
		if (page.off == 0) {
			memcpy(ret_meta, ret_meta + KVP_TIER_PAGE_LEN, KVP_TIER_PAGE_LEN);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t meta[META_LEN];
	struct kvp_tier_cfg cfg = {
		.incarnation = 1, .segments = 2, .segment_len = SEGMENT_LEN, .entries = ENTRIES};
	struct kvp_tier_log *tier;
	struct kvp_store_event event;
	struct kvp_tier_place place;
	struct kvp_tier_stats stats;
	struct kvp_key key;
	uint32_t cursor = 0;
	uint32_t seen = 0;
	uint64_t epoch;

	memset(meta, 0, sizeof(meta));
	kvp_assert(kvp_tier_open(&cfg, &tier) == 0);
	head_make(tier, meta);
	kvp_tier_close(tier);
	for (size_t i = 1; i < size; i++) {
		/* The header's first 64 bytes are changed by exclusive or, the table is replaced.
		 */
		if (i <= 64) {
			meta[i - 1] ^= data[i];
		} else if (KVP_TIER_PAGE_LEN + i - 65 < META_LEN) {
			meta[KVP_TIER_PAGE_LEN + i - 65] = data[i];
		}
	}
	memcpy(&epoch, meta + 32, sizeof(epoch));
	if (size > 0 && (data[0] & 1) != 0) {
		check_set(meta, 0);
	}
	for (uint32_t i = 0; size > 0 && (data[0] & 2) != 0 && i < ENTRIES; i++) {
		check_set(meta + KVP_TIER_PAGE_LEN + i * ENTRY_LEN, epoch);
	}
	kvp_assert(kvp_tier_open(&cfg, &tier) == 0);
	(void)kvp_tier_load(tier, 0, meta); /* whatever it says of it */
	kvp_tier_loaded(tier);
	while (kvp_tier_next(tier, &cursor, &event, &key)) {
		uint32_t slot = kvp_tier_find(tier, event.ns, &key);

		seen++;
		kvp_assert(slot == event.loc.slot && kvp_tier_place(tier, slot, &place));
		kvp_assert(place.len > 0 && place.off >= META_LEN && place.off <= SEGMENT_LEN &&
			   place.len <= SEGMENT_LEN - place.off);
	}
	kvp_tier_stats(tier, &stats);
	kvp_assert(stats.blocks == seen);
	kvp_tier_close(tier);
	return 0;
}
