/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c - see tier.h. The entries of all segments are one array in memory, over which an index
 * finds keys; the page of the table that an entry is in becomes dirty whenever what the disk should
 * say of it changes. Owned by the store's thread.
 */
#include "pool/store/tier.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/store/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIER_MAGIC    0x6765732d70766bull /* "kvp-seg" */
#define TIER_VERSION  1u
#define TIER_STEP_MAX 512u         /* blocks removed in one turn */
#define TIER_COUNTER  (1ull << 39) /* words start here, so that none is a DRAM slot's */

/* The first bytes of a segment file; the rest of the page is 0. As long as an entry, so that it is
 * checked in the same way. */
struct tier_head {
	uint64_t magic;
	uint32_t version;
	uint32_t segment;
	uint8_t node[KVP_ID_LEN];
	uint64_t epoch;    /* of this filling; mixed into the entries' checks */
	uint64_t sequence; /* of this filling: they are numbered over all segments */
	uint64_t segment_len;
	uint32_t entries;
	uint8_t zero[60];
	uint64_t check;
};
_Static_assert(sizeof(struct tier_head) == sizeof(struct kvp_slot_entry), "tier_head is a format");

enum tier_state { TIER_FREE, TIER_ACTIVE, TIER_SEALED, TIER_DRAINING };

struct tier_segment {
	enum tier_state state;
	uint64_t epoch;
	uint64_t sequence;
	uint64_t next_off; /* where the next block goes */
	uint32_t used;     /* entries taken, also of blocks that are gone */
	uint32_t flight;   /* reads and writes under way */
	uint32_t drained;  /* DRAINING: entries looked at */
};

struct kvp_tier_log {
	struct kvp_tier_cfg cfg;
	struct kvp_slot_entry *table; /* check is not kept up; state WRITING, VALID, EVICTED */
	struct kvp_index *index;
	struct tier_segment segments[KVP_TIER_SEGMENTS_MAX];
	uint32_t active; /* the segment being filled or emptied for it; KVP_TIER_NONE */
	uint64_t sequence;
	uint64_t counter;
	uint8_t *dirty; /* a page: of each segment the header, then its table's */
	uint32_t pages; /* of one segment */
	uint32_t dirty_count;
	uint32_t dirty_at;
	struct kvp_tier_stats stats;
};

size_t
kvp_tier_meta_len(uint32_t entries)
{
	return KVP_TIER_PAGE_LEN * (1 + (size_t)entries / KVP_TIER_PAGE_ENTRIES);
}

static uint64_t
tier_rounded(uint64_t len)
{
	return (len + KVP_BLOCK_ALIGN - 1) & ~(uint64_t)(KVP_BLOCK_ALIGN - 1);
}

static uint32_t
tier_segment_of(const struct kvp_tier_log *tier, uint32_t slot)
{
	return slot / tier->cfg.entries;
}

static bool
entry_is_live(const struct kvp_slot_entry *entry)
{
	enum kvp_slot_state state = kvp_word_state(entry->word);

	return state == KVP_SLOT_VALID || state == KVP_SLOT_WRITING;
}

static struct kvp_key
entry_key(const struct kvp_slot_entry *entry)
{
	struct kvp_key key = {.len = kvp_entry_klen(entry)};

	memcpy(key.bytes, entry->key, sizeof(key.bytes));
	return key;
}

static struct kvp_loc
tier_loc(const struct kvp_tier_log *tier, uint32_t slot)
{
	const struct kvp_slot_entry *entry = &tier->table[slot];

	return (struct kvp_loc){
		.word = kvp_word_with(entry->word, KVP_SLOT_VALID),
		.off = entry->off,
		.len = kvp_entry_len(entry),
		.slot = tier->cfg.slot_base + slot,
		.tier = KVP_TIER_SSD,
	};
}

static void
tier_event(const struct kvp_tier_log *tier, enum kvp_store_event_kind kind, uint32_t slot)
{
	struct kvp_key key = entry_key(&tier->table[slot]);
	struct kvp_store_event event = {
		.kind = kind, .ns = tier->table[slot].ns, .key = &key, .loc = tier_loc(tier, slot)};

	if (tier->cfg.event != NULL) {
		tier->cfg.event(tier->cfg.arg, &event);
	}
}

/* --- pages ---------------------------------------------------------------------------------------
 */

static void
page_dirty(struct kvp_tier_log *tier, uint32_t number)
{
	tier->dirty_count += !tier->dirty[number];
	tier->dirty[number] = 1;
}

static void
page_clean(struct kvp_tier_log *tier, uint32_t number)
{
	tier->dirty_count -= tier->dirty[number];
	tier->dirty[number] = 0;
}

static void
entry_dirty(struct kvp_tier_log *tier, uint32_t slot)
{
	uint32_t segment = tier_segment_of(tier, slot);
	uint32_t entry = slot % tier->cfg.entries;

	page_dirty(tier, segment * tier->pages + 1 + entry / KVP_TIER_PAGE_ENTRIES);
}

static void
page_head(const struct kvp_tier_log *tier, uint32_t segment, uint8_t *ret_bytes)
{
	struct tier_head head = {
		.magic = TIER_MAGIC,
		.version = TIER_VERSION,
		.segment = segment,
		.epoch = tier->segments[segment].epoch,
		.sequence = tier->segments[segment].sequence,
		.segment_len = tier->cfg.segment_len,
		.entries = tier->cfg.entries,
	};
	struct kvp_slot_entry form;

	memcpy(head.node, tier->cfg.node, sizeof(head.node));
	memcpy(&form, &head, sizeof(form));
	head.check = kvp_slot_check(&form);
	memcpy(ret_bytes, &head, sizeof(head));
}

static void
page_table(const struct kvp_tier_log *tier, uint32_t segment, uint32_t page, uint8_t *ret_bytes)
{
	uint32_t first = segment * tier->cfg.entries + page * KVP_TIER_PAGE_ENTRIES;

	for (uint32_t i = 0; i < KVP_TIER_PAGE_ENTRIES; i++) {
		struct kvp_slot_entry entry = tier->table[first + i];

		if (kvp_word_state(entry.word) == KVP_SLOT_VALID) {
			entry.check = kvp_slot_check(&entry) ^ tier->segments[segment].epoch;
			memcpy(ret_bytes + i * sizeof(entry), &entry, sizeof(entry));
		}
	}
}

bool
kvp_tier_page_waits(const struct kvp_tier_log *tier)
{
	return tier->dirty_count > 0;
}

bool
kvp_tier_page_next(struct kvp_tier_log *tier, void *ret_bytes, struct kvp_tier_page *ret_page)
{
	uint32_t count = tier->cfg.segments * tier->pages;
	uint32_t number = tier->dirty_at;

	if (tier->dirty_count == 0) {
		return false;
	}
	while (!tier->dirty[number]) {
		number = number + 1 == count ? 0 : number + 1;
	}
	tier->dirty_at = number;
	page_clean(tier, number);
	*ret_page = (struct kvp_tier_page){
		.segment = number / tier->pages,
		.off = (uint64_t)(number % tier->pages) * KVP_TIER_PAGE_LEN,
		.number = number,
	};
	memset(ret_bytes, 0, KVP_TIER_PAGE_LEN);
	if (number % tier->pages == 0) {
		page_head(tier, ret_page->segment, ret_bytes);
	} else {
		page_table(tier, ret_page->segment, number % tier->pages - 1, ret_bytes);
	}
	return true;
}

void
kvp_tier_page_end(struct kvp_tier_log *tier, const struct kvp_tier_page *page, bool written)
{
	if (!written) {
		page_dirty(tier, page->number);
	}
}

void
kvp_tier_lost(struct kvp_tier_log *tier, uint32_t segment)
{
	uint32_t used = tier->segments[segment].used;

	if (tier->segments[segment].state == TIER_FREE) {
		return;
	}
	page_dirty(tier, segment * tier->pages);
	for (uint32_t entry = 0; entry < used; entry += KVP_TIER_PAGE_ENTRIES) {
		entry_dirty(tier, segment * tier->cfg.entries + entry);
	}
}

void
kvp_tier_probe(struct kvp_tier_log *tier)
{
	for (uint32_t i = 0; i < tier->cfg.segments && tier->dirty_count == 0; i++) {
		if (tier->segments[i].state != TIER_FREE) {
			page_dirty(tier, i * tier->pages);
		}
	}
}

/* --- blocks --------------------------------------------------------------------------------------
 */

/* A live block goes. Its place stays taken until the segment is filled anew. */
static void
block_drop(struct kvp_tier_log *tier, uint32_t slot)
{
	struct kvp_slot_entry *entry = &tier->table[slot];

	kvp_assert(entry_is_live(entry));
	tier_event(tier, KVP_STORE_REMOVED, slot);
	kvp_index_remove(tier->index, kvp_index_hash_slot(tier->index, slot), slot);
	tier->stats.blocks--;
	tier->stats.bytes_used -= kvp_entry_len(entry);
	if (kvp_word_state(entry->word) == KVP_SLOT_VALID) {
		entry_dirty(tier, slot);
	}
	entry->word = kvp_word_with(entry->word, KVP_SLOT_EVICTED);
}

/* Its entry is in the table: it is found and announced from now on. */
static void
block_add(struct kvp_tier_log *tier, uint32_t slot)
{
	kvp_index_insert(tier->index, kvp_index_hash_slot(tier->index, slot), slot);
	tier->stats.blocks++;
	tier->stats.bytes_used += kvp_entry_len(&tier->table[slot]);
	tier_event(tier, KVP_STORE_STORED, slot);
}

static void
segment_begin(struct kvp_tier_log *tier, uint32_t segment)
{
	struct tier_segment *seg = &tier->segments[segment];
	uint64_t mixed = tier->cfg.seed + 0x9e3779b97f4a7c15ull * ++tier->sequence;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
	for (uint32_t i = 0; i < tier->pages; i++) {
		page_clean(tier, segment * tier->pages + i);
	}
	memset(&tier->table[segment * tier->cfg.entries], 0,
		seg->used * sizeof(struct kvp_slot_entry));
	*seg = (struct tier_segment){
		.state = TIER_ACTIVE,
		.epoch = mixed ^ mixed >> 31,
		.sequence = tier->sequence,
		.next_off = kvp_tier_meta_len(tier->cfg.entries),
	};
	page_dirty(tier, segment * tier->pages);
}

/* The segment to fill next: an empty one, else the one filled longest ago. */
static uint32_t
segment_choose(const struct kvp_tier_log *tier)
{
	uint32_t best = KVP_TIER_NONE;

	for (uint32_t i = 0; i < tier->cfg.segments; i++) {
		const struct tier_segment *seg = &tier->segments[i];

		if (seg->state == TIER_FREE) {
			return i;
		}
		if (best == KVP_TIER_NONE || seg->sequence < tier->segments[best].sequence) {
			best = i;
		}
	}
	return best;
}

bool
kvp_tier_turn(struct kvp_tier_log *tier)
{
	struct tier_segment *seg;
	uint32_t budget = TIER_STEP_MAX;

	if (tier->active == KVP_TIER_NONE || tier->segments[tier->active].state != TIER_DRAINING) {
		return false;
	}
	seg = &tier->segments[tier->active];
	for (; seg->drained < seg->used; seg->drained++) {
		uint32_t slot = tier->active * tier->cfg.entries + seg->drained;

		if (!entry_is_live(&tier->table[slot])) {
			continue;
		}
		if (budget-- == 0) {
			return true;
		}
		block_drop(tier, slot);
		tier->stats.evicted++;
	}
	if (seg->flight > 0) {
		return false; /* the end of what is under way brings the next turn */
	}
	segment_begin(tier, tier->active);
	return false;
}

/* 0: the active segment has room for one block of len. -EAGAIN. */
static int
segment_room(struct kvp_tier_log *tier, uint64_t len)
{
	for (int i = 0; i < 2; i++) {
		struct tier_segment *seg;

		if (tier->active == KVP_TIER_NONE) {
			tier->active = segment_choose(tier);
			tier->segments[tier->active].state = TIER_DRAINING;
			tier->segments[tier->active].drained = 0;
		}
		(void)kvp_tier_turn(tier);
		seg = &tier->segments[tier->active];
		if (seg->state == TIER_DRAINING) {
			return -EAGAIN;
		}
		if (seg->used < tier->cfg.entries && len <= tier->cfg.segment_len - seg->next_off) {
			return 0;
		}
		seg->state = TIER_SEALED;
		tier->active = KVP_TIER_NONE;
	}
	return -EAGAIN;
}

uint32_t
kvp_tier_find(
	const struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	uint32_t slot;

	if (key->len == 0 || key->len > KVP_KEY_LEN_MAX) {
		return KVP_TIER_NONE;
	}
	slot = kvp_index_find(tier->index, kvp_index_hash(tier->index, ns, key), ns, key);
	return slot == KVP_INDEX_NONE ? KVP_TIER_NONE : slot;
}

bool
kvp_tier_place(const struct kvp_tier_log *tier, uint32_t slot, struct kvp_tier_place *ret_place)
{
	const struct kvp_slot_entry *entry = &tier->table[slot];

	if (!entry_is_live(entry)) {
		return false;
	}
	*ret_place = (struct kvp_tier_place){
		.segment = tier_segment_of(tier, slot),
		.off = entry->off,
		.len = kvp_entry_len(entry),
		.word = kvp_word_with(entry->word, KVP_SLOT_VALID),
		.written = kvp_word_state(entry->word) == KVP_SLOT_VALID,
	};
	memcpy(ret_place->sum, entry->sum, sizeof(ret_place->sum));
	return true;
}

int
kvp_tier_write_begin(struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, uint64_t len, const uint8_t sum[KVP_SUM_LEN], uint32_t *ret_slot)
{
	uint64_t rounded = tier_rounded(len);
	uint32_t slot = kvp_tier_find(tier, ns, key);
	struct kvp_slot_entry *entry;
	struct tier_segment *seg;
	int err;

	if (slot != KVP_TIER_NONE && kvp_entry_len(&tier->table[slot]) == len) {
		return -KVP_E_EXISTS;
	}
	if (rounded > tier->cfg.segment_len - kvp_tier_meta_len(tier->cfg.entries)) {
		return -KVP_E_TOO_LARGE;
	}
	if (slot != KVP_TIER_NONE) {
		block_drop(tier, slot);
	}
	err = segment_room(tier, rounded);
	if (err < 0) {
		return err;
	}
	seg = &tier->segments[tier->active];
	slot = tier->active * tier->cfg.entries + seg->used++;
	entry = &tier->table[slot];
	*entry = (struct kvp_slot_entry){
		.len_klen = len | (uint64_t)key->len << 56,
		.off = seg->next_off,
		.word = kvp_word_make(tier->cfg.incarnation, ++tier->counter, KVP_SLOT_WRITING),
	};
	memcpy(entry->ns, ns, sizeof(entry->ns));
	memcpy(entry->key, key->bytes, key->len);
	memcpy(entry->sum, sum, sizeof(entry->sum));
	seg->next_off += rounded;
	seg->flight++;
	block_add(tier, slot);
	*ret_slot = slot;
	return 0;
}

void
kvp_tier_sum(struct kvp_tier_log *tier, uint32_t slot, const uint8_t sum[KVP_SUM_LEN])
{
	memcpy(tier->table[slot].sum, sum, KVP_SUM_LEN);
}

void
kvp_tier_write_end(struct kvp_tier_log *tier, uint32_t slot, bool written)
{
	struct kvp_slot_entry *entry = &tier->table[slot];
	struct tier_segment *seg = &tier->segments[tier_segment_of(tier, slot)];

	kvp_assert(seg->flight > 0);
	seg->flight--;
	if (kvp_word_state(entry->word) != KVP_SLOT_WRITING) {
		return; /* deleted meanwhile */
	}
	if (!written) {
		block_drop(tier, slot);
		return;
	}
	entry->word = kvp_word_with(entry->word, KVP_SLOT_VALID);
	entry_dirty(tier, slot);
}

void
kvp_tier_read_begin(struct kvp_tier_log *tier, uint32_t slot)
{
	tier->segments[tier_segment_of(tier, slot)].flight++;
}

void
kvp_tier_read_end(struct kvp_tier_log *tier, uint32_t slot, bool bad)
{
	struct tier_segment *seg = &tier->segments[tier_segment_of(tier, slot)];

	kvp_assert(seg->flight > 0);
	seg->flight--;
	if (bad && entry_is_live(&tier->table[slot])) {
		block_drop(tier, slot);
	}
}

int
kvp_tier_delete(struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	uint32_t slot = kvp_tier_find(tier, ns, key);

	if (slot == KVP_TIER_NONE) {
		return -KVP_E_NOKEY;
	}
	block_drop(tier, slot);
	return 0;
}

bool
kvp_tier_next(const struct kvp_tier_log *tier, uint32_t *cursor, struct kvp_store_event *ret_event,
	struct kvp_key *ret_key)
{
	uint32_t count = tier->cfg.segments * tier->cfg.entries;
	uint32_t slot = *cursor;

	while (slot < count && !entry_is_live(&tier->table[slot])) {
		uint32_t segment = tier_segment_of(tier, slot);

		/* Entries beyond those used are none: on with the next segment. */
		slot = slot % tier->cfg.entries < tier->segments[segment].used
			       ? slot + 1
			       : (segment + 1) * tier->cfg.entries;
	}
	if (slot >= count) {
		*cursor = count;
		return false;
	}
	*ret_key = entry_key(&tier->table[slot]);
	ret_event->kind = KVP_STORE_STORED;
	ret_event->ns = tier->table[slot].ns;
	ret_event->key = ret_key;
	ret_event->loc = tier_loc(tier, slot);
	*cursor = slot + 1;
	return true;
}

void
kvp_tier_stats(const struct kvp_tier_log *tier, struct kvp_tier_stats *ret_stats)
{
	*ret_stats = tier->stats;
}

/* --- the start -----------------------------------------------------------------------------------
 */

/* The header's word on the segment: see kvp_tier_load(). */
static int
load_head(const struct kvp_tier_log *tier, uint32_t segment, const void *meta,
	struct tier_head *ret_head)
{
	struct kvp_slot_entry form;

	memcpy(ret_head, meta, sizeof(*ret_head));
	memcpy(&form, meta, sizeof(form));
	if (ret_head->magic == 0 && ret_head->check == 0) {
		return -ENOENT;
	}
	if (ret_head->magic != TIER_MAGIC || ret_head->check != kvp_slot_check(&form)) {
		return -EIO;
	}
	if (ret_head->version != TIER_VERSION || ret_head->segment != segment ||
		memcmp(ret_head->node, tier->cfg.node, sizeof(ret_head->node)) != 0 ||
		ret_head->segment_len != tier->cfg.segment_len ||
		ret_head->entries != tier->cfg.entries) {
		return -KVP_E_IN_USE;
	}
	return 0;
}

static bool
load_entry_is_good(
	const struct kvp_tier_log *tier, uint64_t epoch, const struct kvp_slot_entry *entry)
{
	static const uint8_t unhashed[KVP_SUM_LEN];
	uint64_t len = kvp_entry_len(entry);
	uint8_t klen = kvp_entry_klen(entry);

	return entry->check == (kvp_slot_check(entry) ^ epoch) && klen > 0 &&
	       klen <= KVP_KEY_LEN_MAX && len > 0 && len <= KVP_BLOCK_LEN_MAX &&
	       entry->off % KVP_BLOCK_ALIGN == 0 &&
	       entry->off >= kvp_tier_meta_len(tier->cfg.entries) &&
	       entry->off <= tier->cfg.segment_len &&
	       tier_rounded(len) <= tier->cfg.segment_len - entry->off &&
	       kvp_word_state(entry->word) == KVP_SLOT_VALID &&
	       memcmp(entry->sum, unhashed, sizeof(unhashed)) != 0;
}

/* Of two blocks of one key the newer one stays. */
static void
load_entry(struct kvp_tier_log *tier, uint32_t slot, const struct kvp_slot_entry *entry)
{
	struct kvp_key key = entry_key(entry);
	uint32_t other = kvp_tier_find(tier, entry->ns, &key);

	tier->table[slot] = *entry;
	if (other != KVP_TIER_NONE && (int64_t)(entry->word - tier->table[other].word) < 0) {
		tier->table[slot].word = kvp_word_with(entry->word, KVP_SLOT_EVICTED);
		entry_dirty(tier, slot);
		return;
	}
	if (other != KVP_TIER_NONE) {
		block_drop(tier, other);
	}
	block_add(tier, slot);
	tier->stats.recovered++;
}

int
kvp_tier_load(struct kvp_tier_log *tier, uint32_t segment, const void *meta)
{
	static const struct kvp_slot_entry nothing;
	struct tier_segment *seg = &tier->segments[segment];
	const uint8_t *bytes = (const uint8_t *)meta + KVP_TIER_PAGE_LEN;
	struct tier_head head;
	uint32_t bad = 0;
	int err = load_head(tier, segment, meta, &head);

	if (err < 0) {
		tier->stats.damaged += err != -ENOENT;
		return err;
	}
	seg->state = TIER_SEALED;
	seg->epoch = head.epoch;
	seg->sequence = head.sequence;
	seg->next_off = kvp_tier_meta_len(tier->cfg.entries);
	for (uint32_t i = 0; i < tier->cfg.entries; i++) {
		struct kvp_slot_entry entry;
		uint64_t end;

		memcpy(&entry, bytes + i * sizeof(entry), sizeof(entry));
		if (!load_entry_is_good(tier, head.epoch, &entry)) {
			bad += memcmp(&entry, &nothing, sizeof(entry)) != 0;
			continue;
		}
		/* Those behind the last good one are an earlier filling's. */
		tier->stats.damaged += bad;
		bad = 0;
		seg->used = i + 1;
		end = entry.off + tier_rounded(kvp_entry_len(&entry));
		seg->next_off = end > seg->next_off ? end : seg->next_off;
		load_entry(tier, segment * tier->cfg.entries + i, &entry);
	}
	return 0;
}

void
kvp_tier_loaded(struct kvp_tier_log *tier)
{
	uint32_t newest = KVP_TIER_NONE;

	for (uint32_t i = 0; i < tier->cfg.segments; i++) {
		if (tier->segments[i].state == TIER_SEALED &&
			(newest == KVP_TIER_NONE ||
				tier->segments[i].sequence > tier->segments[newest].sequence)) {
			newest = i;
		}
	}
	if (newest != KVP_TIER_NONE) {
		tier->sequence = tier->segments[newest].sequence;
		tier->segments[newest].state = TIER_ACTIVE;
		tier->active = newest;
	}
}

int
kvp_tier_open(const struct kvp_tier_cfg *cfg, struct kvp_tier_log **ret_tier)
{
	size_t slots = (size_t)cfg->segments * cfg->entries;
	struct kvp_tier_log *tier;

	if (cfg->segments < 2 || cfg->segments > KVP_TIER_SEGMENTS_MAX || cfg->entries == 0 ||
		cfg->entries % KVP_TIER_PAGE_ENTRIES != 0 || slots > KVP_INDEX_SLOTS_MAX ||
		cfg->segment_len % KVP_BLOCK_ALIGN != 0 ||
		cfg->segment_len <= kvp_tier_meta_len(cfg->entries)) {
		return -EINVAL;
	}
	tier = calloc(1, sizeof(*tier));
	if (tier == NULL) {
		return -ENOMEM;
	}
	tier->cfg = *cfg;
	tier->active = KVP_TIER_NONE;
	tier->counter = TIER_COUNTER;
	tier->pages = 1 + cfg->entries / KVP_TIER_PAGE_ENTRIES;
	tier->stats.bytes_total =
		cfg->segments * (cfg->segment_len - kvp_tier_meta_len(cfg->entries));
	tier->table = calloc(slots, sizeof(*tier->table));
	tier->dirty = calloc(cfg->segments, tier->pages);
	if (tier->table == NULL || tier->dirty == NULL ||
		kvp_index_open(tier->table, (uint32_t)slots, cfg->seed, &tier->index) < 0) {
		kvp_tier_close(tier);
		return -ENOMEM;
	}
	*ret_tier = tier;
	return 0;
}

void
kvp_tier_close(struct kvp_tier_log *tier)
{
	if (tier == NULL) {
		return;
	}
	kvp_index_close(tier->index);
	free(tier->table);
	free(tier->dirty);
	free(tier);
}
