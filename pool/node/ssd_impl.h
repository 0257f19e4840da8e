/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_impl.h - what ssd.c (life, tables), ssd_write.c and ssd_stage.c share. Nobody else includes
 * it. Everything belongs to the rpc loop's thread.
 */
#ifndef KVP_POOL_NODE_SSD_IMPL_H
#define KVP_POOL_NODE_SSD_IMPL_H

#include "pool/node/node_impl.h"
#include "pool/node/ssd.h"
#include "pool/store/tier.h"

#include <limits.h>

#define KVP_SSD_WRITES_MAX  1024u /* blocks queued for writing, or being written */
#define KVP_SSD_FLIGHTS_MAX 1024u /* blocks being staged, or waiting for it */
#define KVP_SSD_BUCKETS     256u
#define KVP_SSD_REQUESTS    16u /* of io_max each, are at the device at a time */

enum kvp_ssd_state { KVP_SSD_OFF, KVP_SSD_LOADING, KVP_SSD_SERVING };

/* A block on its way to the disk. Its DRAM slot is pinned. */
struct kvp_ssd_write {
	struct kvp_list link; /* spare, queue, or none while posted */
	struct kvp_blk_io io;
	struct kvp_ssd *ssd;
	uint32_t slot;  /* in the store */
	uint32_t place; /* in the tier; KVP_TIER_NONE: it has none yet */
	uint64_t len;   /* bytes on the disk */
};

/* A block on its way into DRAM. */
struct kvp_ssd_flight {
	struct kvp_list link;   /* spare, queue, or none while posted */
	struct kvp_list bucket; /* by place */
	struct kvp_list waiters;
	struct kvp_blk_io io;
	struct kvp_ssd *ssd;
	uint32_t slot; /* in the tier */
	uint64_t word;
	struct kvp_tier_place place;
	struct kvp_key key;
	uint8_t ns[KVP_NS_LEN];
	struct kvp_grant grant;
};

struct kvp_ssd_counts {
	uint64_t writes; /* blocks */
	uint64_t dropped_full;
	uint64_t dropped_off;
	uint64_t dropped_error;
	uint64_t dropped_unused;
	uint64_t hashed;
	uint64_t staged;
	uint64_t stage_dram; /* asked for, but in DRAM already */
	uint64_t stage_miss;
	uint64_t stage_busy;
	uint64_t bad_sums;
	uint64_t read_errors;
	uint64_t write_errors;
	uint64_t degraded;
	uint64_t offer_exists; /* answers to our own offers */
	uint64_t offer_in_progress;
	uint64_t offer_no_space;
	uint64_t offer_busy;
	uint64_t read_bytes; /* at the device, of kvp_blks that are closed */
	uint64_t write_bytes;
};

struct kvp_ssd {
	struct kvp_node *node;
	struct kvp_ssd_cfg cfg;
	char path[PATH_MAX];
	char engine[32];
	uint32_t files; /* configured */
	uint32_t entries;
	int lock_fd;

	enum kvp_ssd_state state;
	bool writing; /* false: degraded, until a probe goes well */
	bool probing; /* a page, and then a flush, decide */
	bool armed;   /* the watch runs */
	bool kicked;  /* the timer runs */
	bool closing;
	int why;           /* of OFF, logged when it changes */
	uint64_t probe_ns; /* OFF and not writing: when to try again */
	uint64_t pause_ns;
	uint32_t segments; /* of blk and tier */
	struct kvp_blk *blk;
	struct kvp_tier_log *tier;
	uint32_t arena_buf;
	struct kvp_rpc_watch watch;
	struct kvp_rpc_timer timer;

	/* Loading. */
	uint8_t *load_buf;
	uint32_t load_segment;
	struct kvp_blk_io load_io;
	uint64_t load_begin_ns;

	/* Tables and flushes. */
	uint8_t *page_buf;
	struct kvp_blk_io page_io;
	struct kvp_tier_page page;
	bool page_posted;
	struct kvp_blk_io flush_io;
	bool flush_posted;
	uint64_t unflushed; /* bits: files written to since their last flush */
	uint64_t flushing;  /* those to be flushed in this round */
	uint64_t flush_ns;  /* when the last round began */

	struct kvp_ssd_write *writes;
	struct kvp_list write_spare;
	struct kvp_list write_queue;
	uint64_t write_bytes; /* queued or posted */
	uint64_t write_posted;

	struct kvp_ssd_flight *flights;
	struct kvp_list flight_spare;
	struct kvp_list flight_queue;
	struct kvp_list flight_buckets[KVP_SSD_BUCKETS];
	uint32_t flight_count;
	uint64_t read_bytes; /* posted */
	struct kvp_sum_state *sum;

	struct kvp_ssd_counts counts;
};

/* ssd.c */
void kvp_ssd_kick(struct kvp_ssd *ssd); /* a turn, soon */
void kvp_ssd_degrade(struct kvp_ssd *ssd, int why);
/* Posts one io on a segment; -EAGAIN: later. */
int kvp_ssd_post(struct kvp_ssd *ssd, struct kvp_blk_io *io);
/* The checksum of a block in the arena. */
void kvp_ssd_sum(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	uint64_t off, uint64_t len, uint8_t ret_sum[KVP_SUM_LEN]);

/* ssd_write.c */
int kvp_ssd_write_init(struct kvp_ssd *ssd);
void kvp_ssd_write_pump(struct kvp_ssd *ssd);
void kvp_ssd_write_drop(struct kvp_ssd *ssd); /* all that is queued */
void kvp_ssd_write_forget(
	struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key);

/* ssd_stage.c */
int kvp_ssd_stage_init(struct kvp_ssd *ssd);
void kvp_ssd_stage_pump(struct kvp_ssd *ssd);
void kvp_ssd_stage_end(struct kvp_ssd *ssd); /* all that is queued is missed */
/* Of the slots being staged into; one of KVP_SSD_OWNERS. */
uint32_t kvp_ssd_owner(const struct kvp_node *node);

static inline uint64_t
kvp_ssd_rounded(uint64_t len)
{
	return (len + KVP_BLOCK_ALIGN - 1) & ~(uint64_t)(KVP_BLOCK_ALIGN - 1);
}

#endif /* KVP_POOL_NODE_SSD_IMPL_H */
