/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_impl.h - between blk.c (life and buffers), io.c (ios and requests) and segment.c (files).
 */
#ifndef KVP_HAL_BLK_BLK_IMPL_H
#define KVP_HAL_BLK_BLK_IMPL_H

#include "hal/blk/blk.h"

struct kvp_blk_region {
	char *base; /* the caller's memory; NULL: this entry is free */
	uint64_t len;
	uint32_t slice; /* its first */
	uint32_t slice_count;
	uint64_t posted; /* ios that name it */
};

struct kvp_blk {
	const struct kvp_blk_ops *ops;
	struct kvp_blk_engine *engine;
	const struct kvp_log *log;

	uint32_t file_count;
	int fds[KVP_BLK_FILES_MAX];
	uint64_t bytes[KVP_BLK_FILES_MAX];

	uint32_t io_max;
	uint64_t bytes_max;
	uint32_t depth;
	uint32_t queue_max;

	struct kvp_blk_region regions[KVP_BLK_BUFS_MAX];
	bool slice_used[KVP_BLK_SLICES_MAX];
	bool slice_fixed[KVP_BLK_SLICES_MAX]; /* the engine has it */
	bool unfixed_said;

	struct kvp_blk_req *reqs; /* depth of them */
	struct kvp_list free;     /* of reqs */
	struct kvp_list again;    /* reqs to be sent again; empty outside poll() */
	struct kvp_list queue;    /* ios of which something is not cut yet */
	struct kvp_list done;     /* ios that ended */
	bool in_done;             /* posts wait for the end of poll() */
	bool closing;
	struct kvp_blk_stats stats;
};

/* One segment file; blk.h says what open() does with it. why gets the reason on failure. */
int kvp_blk_segment_open(struct kvp_blk_file *file, bool create, int *ret_fd, bool *ret_direct,
	char why[KVP_BLK_WHY_LEN]);

#endif /* KVP_HAL_BLK_BLK_IMPL_H */
