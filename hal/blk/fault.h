/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - an engine around another one: fails requests when told to, delays them, and loses
 * unsynced writes as a power cut does. For tests; not in the registry, only code that names it
 * gets it: kvp_blk_cfg.ops = &kvp_blk_fault, .ops_arg = a plan that outlives the kvp_blk.
 *
 * It stands below the cutting and the retrying, so what it injects is what a device would answer.
 * Its flushes wait for the writes before them and hold back the writes after them.
 */
#ifndef KVP_HAL_BLK_FAULT_H
#define KVP_HAL_BLK_FAULT_H

#include "hal/blk/blk.h"

struct kvp_blk_fault {
	const struct kvp_blk_ops *inner; /* NULL: threads */

	/* The owner's thread may change these at any time. */
	uint32_t ops;       /* which requests count: bits 1 << KVP_BLK_READ...; 0: all */
	uint64_t nth;       /* the n-th of them from now fails; 0: never */
	uint64_t again;     /* and so many after it */
	int err;            /* what the device says; 0: short */
	uint32_t short_len; /* bytes that a short one moves */
	uint64_t delay_ns;  /* by how much answers are late, by the clock of cfg.env */

	uint64_t failed; /* out: how many were made to fail */
	uint32_t flight; /* out: requests at the inner engine */

	struct kvp_blk_engine *engine; /* open() sets it */
};

extern const struct kvp_blk_ops kvp_blk_fault;

/* The power goes: requests in flight end with -EIO, and so do all later ones. Each 4 KiB written
 * since the last good flush of its file is afterwards, as the seed has it, new, old, or torn: of
 * its 512-byte sectors some new and some old. Writes that a failed flush should have saved
 * stay in danger until they are written and flushed again. The files can then be opened anew,
 * after close(). -errno: could not put old bytes back. Blocks until the inner engine is idle. */
int kvp_blk_fault_power_cut(struct kvp_blk_fault *plan, uint64_t seed);

#endif /* KVP_HAL_BLK_FAULT_H */
