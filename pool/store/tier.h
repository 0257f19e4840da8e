/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - the SSD tier: which block lies where in the segment files, and what of that the files'
 * own tables must say. Pure logic: it is told what was read and written, and does no I/O itself.
 *
 * SEGMENT   A file of fixed length: a header page, table pages, then blocks, one behind the other.
 *           Segments are filled in turn; when none is empty the one filled longest ago is emptied
 *           whole (a log). FREE -> ACTIVE -> SEALED -> DRAINING -> ACTIVE...
 * ENTRY     128 bytes in the table, in the form of a slot entry: namespace, key, generation,
 *           length, offset, payload checksum, own check. The check is mixed with a number that the
 *           segment's header has for one filling only, so what an earlier filling left, or another
 *           node, is no entry.
 * SLOT      Entry number over all segments; others know it as slot_base + that.
 * ORDER     Nothing need reach the disk in any order: an entry whose bytes did not come to be
 *           shows by the payload checksum, which every read compares.
 * LIFE      write_begin (found from then on, and announced) -> write_end; read_begin -> read_end.
 *           A segment with reads or writes under way is not filled anew.
 * OWNERSHIP One kvp_tier_log belongs to one thread.
 */
#ifndef KVP_POOL_STORE_TIER_H
#define KVP_POOL_STORE_TIER_H

#include "pool/store/store.h"

#define KVP_TIER_NONE         UINT32_MAX
#define KVP_TIER_SEGMENTS_MAX 64u
#define KVP_TIER_PAGE_LEN     4096u
#define KVP_TIER_PAGE_ENTRIES 32u

struct kvp_tier_log;

struct kvp_tier_cfg {
	uint8_t node[KVP_ID_LEN];
	uint32_t incarnation;
	uint32_t segments;    /* 2..KVP_TIER_SEGMENTS_MAX */
	uint64_t segment_len; /* a multiple of KVP_BLOCK_ALIGN */
	uint32_t entries;     /* of one segment, a multiple of KVP_TIER_PAGE_ENTRIES */
	uint32_t slot_base;
	uint64_t seed; /* random, another one at each start */
	/* As kvp_store_cfg.event; tier SSD, loc.slot from slot_base on. */
	void (*event)(void *arg, const struct kvp_store_event *event);
	void *arg;
};

/* Where a block lies. */
struct kvp_tier_place {
	uint32_t segment;
	uint64_t off; /* in the file */
	uint64_t len; /* payload bytes; the disk has them rounded up to KVP_BLOCK_ALIGN */
	uint64_t word;
	uint8_t sum[KVP_SUM_LEN];
	bool written; /* its bytes can be read */
};

struct kvp_tier_stats {
	uint64_t bytes_total; /* of blocks that the segments hold at most */
	uint64_t bytes_used;  /* payload bytes */
	uint64_t blocks;
	uint64_t evicted;   /* with the segment they were in */
	uint64_t recovered; /* entries taken over at the start */
	uint64_t damaged;   /* entries and segments that were not */
};

/* -EINVAL, -ENOMEM. */
int kvp_tier_open(const struct kvp_tier_cfg *cfg, struct kvp_tier_log **ret_tier);
void kvp_tier_close(struct kvp_tier_log *tier); /* NULL is fine */

/* Bytes of header and table, at the start of each file. */
size_t kvp_tier_meta_len(uint32_t entries);

/* Before anything else, each segment that could be read, in any order: its first
 * kvp_tier_meta_len() bytes. What is whole is found and announced. 0, -ENOENT: never used,
 * -KVP_E_IN_USE: another node's, or of another geometry or version, -EIO: damaged; then it is
 * empty. Single bad entries are passed over and counted. */
int kvp_tier_load(struct kvp_tier_log *tier, uint32_t segment, const void *meta);
void kvp_tier_loaded(struct kvp_tier_log *tier); /* that was all: goes on behind the newest */

/* The slot (from 0) of a key, or KVP_TIER_NONE. */
uint32_t kvp_tier_find(
	const struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key);
/* False: there is no block there any more. */
bool kvp_tier_place(
	const struct kvp_tier_log *tier, uint32_t slot, struct kvp_tier_place *ret_place);

/* Reserves a place. sum may be all zero until kvp_tier_sum(). -EAGAIN: no room yet, see turn();
 * -KVP_E_EXISTS; -KVP_E_TOO_LARGE: never. A block of that key with another length goes. */
int kvp_tier_write_begin(struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, uint64_t len, const uint8_t sum[KVP_SUM_LEN],
	uint32_t *ret_slot);
void kvp_tier_sum(struct kvp_tier_log *tier, uint32_t slot, const uint8_t sum[KVP_SUM_LEN]);
void kvp_tier_write_end(struct kvp_tier_log *tier, uint32_t slot, bool written);

void kvp_tier_read_begin(struct kvp_tier_log *tier, uint32_t slot);
/* bad: it could not be read, or was not what it should be: the block goes. */
void kvp_tier_read_end(struct kvp_tier_log *tier, uint32_t slot, bool bad);

/* -KVP_E_NOKEY. */
int kvp_tier_delete(
	struct kvp_tier_log *tier, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key);

/* Empties a segment that is to be filled next, some blocks at a time; true: more to do now. */
bool kvp_tier_turn(struct kvp_tier_log *tier);

/* The next page of header or table that the disk does not have, as it must be there. False: none.
 * The caller writes it, one at a time, and says how that went; then it may be dirty again. */
struct kvp_tier_page {
	uint32_t segment;
	uint64_t off;
	uint32_t number; /* the tier's */
};
bool kvp_tier_page_next(struct kvp_tier_log *tier, void *ret_bytes, struct kvp_tier_page *ret_page);
void kvp_tier_page_end(struct kvp_tier_log *tier, const struct kvp_tier_page *page, bool written);
bool kvp_tier_page_waits(const struct kvp_tier_log *tier);
/* What the disk may have lost of a segment: all its pages are dirty. */
void kvp_tier_lost(struct kvp_tier_log *tier, uint32_t segment);
/* Makes one page dirty, for who wants to know whether writing works. */
void kvp_tier_probe(struct kvp_tier_log *tier);

/* As kvp_store_next(). */
bool kvp_tier_next(const struct kvp_tier_log *tier, uint32_t *cursor,
	struct kvp_store_event *ret_event, struct kvp_key *ret_key);

void kvp_tier_stats(const struct kvp_tier_log *tier, struct kvp_tier_stats *ret_stats);

#endif /* KVP_POOL_STORE_TIER_H */
