/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd.h - the SSD tier at work: carries blocks between the arena and the segment files, and is the
 * only place that does block I/O. What lies where is decided by pool/store/tier.h.
 *
 * WRITE  The store asks at each commit and eviction whether the block is wanted (write_policy). If
 *        so its slot is pinned, queued, written, unpinned. What does not fit the bytes in flight
 *        is dropped and counted: nobody waits for a disk.
 * READ   A block is staged: read into an ordinary slot that this module grants itself, verified,
 *        committed. One flight a key, however many ask.
 * STATE  OFF (no room, no folder: tried again by itself) -> LOADING -> SERVING. While serving, a
 *        failed write stops writing until a probe, after a pause that grows, has gone well; reads
 *        go on.
 * DISK   Tables are written as soon as blocks are; files are flushed every flush_ms.
 */
#ifndef KVP_POOL_NODE_SSD_H
#define KVP_POOL_NODE_SSD_H

#include "hal/base/list.h"
#include "hal/base/log.h"
#include "hal/blk/blk.h"
#include "pool/store/store.h"

#include <stdbool.h>
#include <stdint.h>

enum kvp_ssd_policy { KVP_SSD_ON_EVICT, KVP_SSD_THROUGH, KVP_SSD_SECOND_USE };

struct kvp_ssd_cfg {
	const char *path;     /* the folder of the segment files */
	uint64_t size;        /* bytes of all of them together */
	uint64_t segment;     /* of one; size / segment is 2..KVP_BLK_FILES_MAX */
	uint32_t slots;       /* the most blocks; 0: one for each 64 KiB */
	uint32_t io_max;      /* bytes of one request */
	uint64_t inflight;    /* bytes queued for writing, or being written */
	uint64_t read_budget; /* bytes being staged; one block may go beyond it */
	uint64_t free_floor;  /* bytes that stay free on the file system */
	uint32_t flush_ms;
	enum kvp_ssd_policy policy;
	const char *engine;            /* as kvp_blk_cfg.engine */
	const struct kvp_blk_ops *ops; /* tests: as kvp_blk_cfg.ops */
	void *ops_arg;
};

struct kvp_node;
struct kvp_ssd;

/* What is wrong with the geometry, or NULL. */
const char *kvp_ssd_cfg_problem(const struct kvp_ssd_cfg *cfg);
/* Slots that a tier of this geometry has at most. */
uint32_t kvp_ssd_slots(const struct kvp_ssd_cfg *cfg);

/* Makes the folder and locks it. -KVP_E_IN_USE: another process has it; -ENOMEM. Whatever else is
 * wrong is logged, and tried again later. The paths are copied. */
int kvp_ssd_open(struct kvp_node *node, const struct kvp_ssd_cfg *cfg, struct kvp_ssd **ret_ssd);
/* Writes what tables are dirty, for a second at most. Before the store is closed. NULL is fine. */
void kvp_ssd_close(struct kvp_ssd *ssd);

/* kvp_store_cfg.spill; arg is the node. */
bool kvp_ssd_spill(void *arg, uint32_t slot, enum kvp_spill why, bool used);

void kvp_ssd_tick(struct kvp_ssd *ssd, uint64_t now_ns);
void kvp_ssd_metrics(const struct kvp_ssd *ssd); /* copies its numbers into the node's table */
/* Takes out of the store's numbers what was not a client's but a stage's doing. */
void kvp_ssd_uncount(const struct kvp_ssd *ssd, struct kvp_store_stats *stats);
/* For STATUS. */
void kvp_ssd_describe(const struct kvp_ssd *ssd, char *buf, size_t cap);

/* -KVP_E_NOKEY. */
int kvp_ssd_delete(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key);

/* Walk and number of blocks, for snapshots; as kvp_store_next(). */
bool kvp_ssd_next(const struct kvp_ssd *ssd, uint32_t *cursor, struct kvp_store_event *ret_event,
	struct kvp_key *ret_key);
uint64_t kvp_ssd_blocks(const struct kvp_ssd *ssd);

/* One who waits for a block. Embedded in its owner; on no list when it is not waiting. */
struct kvp_ssd_waiter {
	struct kvp_list link;
	/* status 0 with its place in DRAM; -KVP_E_NOKEY; -KVP_E_BUSY... */
	void (*done)(struct kvp_ssd_waiter *waiter, int status, const struct kvp_loc *loc);
};

/* Brings a block into DRAM. done() may come from within. Who waits no longer takes itself off its
 * list. */
void kvp_ssd_stage(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	struct kvp_ssd_waiter *waiter);

#endif /* KVP_POOL_NODE_SSD_H */
