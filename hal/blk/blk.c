/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk.c - life of a kvp_blk: its files, its engine, its registered buffers.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/blk/blk_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BLK_IO_MAX    (1u << 20)
#define BLK_BYTES_MAX (4u << 20)
#define BLK_DEPTH     64u
#define BLK_QUEUE_MAX 1024u
#define BLK_THREADS   8u

#define BLK_THREADS_MAX 64u

static bool
blk_aligned(uint64_t value)
{
	return value % KVP_BLK_ALIGN == 0;
}

/* cfg with its defaults filled in, or what is wrong with it. */
static const char *
blk_cfg_problem(struct kvp_blk_cfg *cfg)
{
	cfg->io_max = cfg->io_max != 0 ? cfg->io_max : BLK_IO_MAX;
	cfg->bytes_max = cfg->bytes_max != 0 ? cfg->bytes_max : BLK_BYTES_MAX;
	cfg->depth = cfg->depth != 0 ? cfg->depth : BLK_DEPTH;
	cfg->queue_max = cfg->queue_max != 0 ? cfg->queue_max : BLK_QUEUE_MAX;
	cfg->threads = cfg->threads != 0 ? cfg->threads : BLK_THREADS;
	if (cfg->file_count == 0 || cfg->file_count > KVP_BLK_FILES_MAX) {
		return "number of files is not within 1 to 64";
	}
	for (uint32_t i = 0; i < cfg->file_count; i++) {
		if (cfg->files[i].bytes == 0 || !blk_aligned(cfg->files[i].bytes) ||
			cfg->files[i].bytes > INT64_MAX) {
			return "length of a file is not a multiple of 4096";
		}
	}
	if (!blk_aligned(cfg->io_max) || cfg->io_max > KVP_BLK_SLICE_LEN) {
		return "io_max is not a multiple of 4096 of at most 1 GiB";
	}
	if (cfg->bytes_max < cfg->io_max) {
		return "bytes_max is less than io_max";
	}
	if (cfg->depth > KVP_BLK_DEPTH_MAX) {
		return "depth is over 4096";
	}
	return cfg->threads > BLK_THREADS_MAX ? "threads is over 64" : NULL;
}

static void
blk_files_close(struct kvp_blk *blk)
{
	for (uint32_t i = 0; i < blk->file_count; i++) {
		(void)close(blk->fds[i]); /* what had to last was flushed */
	}
	blk->file_count = 0;
}

static int
blk_files_open(struct kvp_blk *blk, const struct kvp_blk_cfg *cfg, char why[KVP_BLK_WHY_LEN])
{
	blk->stats.direct = true;
	for (uint32_t i = 0; i < cfg->file_count; i++) {
		bool direct = false;
		int ret = kvp_blk_segment_open(
			&cfg->files[i], cfg->create, &blk->fds[i], &direct, why);

		if (ret < 0) {
			kvp_warn(cfg->log, "blk file %s", why);
			blk_files_close(blk);
			return ret;
		}
		if (!direct && blk->stats.direct) {
			kvp_warn(cfg->log, "blk file %s: no direct i/o here, using the page cache",
				cfg->files[i].path);
			blk->stats.direct = false;
		}
		blk->bytes[i] = cfg->files[i].bytes;
		blk->file_count++;
	}
	return 0;
}

static int
blk_engine_try(struct kvp_blk *blk, const struct kvp_blk_cfg *cfg, const struct kvp_blk_ops *ops,
	char why[KVP_BLK_WHY_LEN])
{
	struct kvp_blk_engine_cfg engine_cfg = {
		.env = cfg->env,
		.log = cfg->log,
		.fds = blk->fds,
		.bytes = blk->bytes,
		.file_count = blk->file_count,
		.depth = cfg->depth,
		.io_max = cfg->io_max,
		.threads = cfg->threads,
		.arg = cfg->ops_arg,
		.why = why,
	};
	int ret = ops->open(&engine_cfg, &blk->engine);

	if (ret == 0) {
		kvp_assert(blk->engine != NULL && blk->engine->ops == ops);
		blk->ops = ops;
		blk->stats.engine = ops->name;
	} else if (why[0] == '\0') {
		(void)snprintf(why, KVP_BLK_WHY_LEN, "%s: %s", ops->name, kvp_err_str(ret));
	}
	return ret;
}

/* The engine named, or the first that works; then why says what was wrong with the one before. */
static int
blk_engine_open(struct kvp_blk *blk, const struct kvp_blk_cfg *cfg, char why[KVP_BLK_WHY_LEN])
{
	bool any = cfg->ops == NULL && (cfg->engine == NULL || strcmp(cfg->engine, "auto") == 0);
	const struct kvp_blk_ops *const *all;
	int ret = -KVP_E_NO_PROVIDER;
	size_t count;

	if (!any) {
		const struct kvp_blk_ops *ops = cfg->ops;

		ops = ops != NULL ? ops : kvp_blk_find(cfg->engine);
		if (ops == NULL) {
			(void)snprintf(why, KVP_BLK_WHY_LEN, "no engine %s", cfg->engine);
			return -EINVAL;
		}
		return blk_engine_try(blk, cfg, ops, why);
	}
	all = kvp_blk_all(&count);
	for (size_t i = 0; i < count && ret == -KVP_E_NO_PROVIDER; i++) {
		char reason[KVP_BLK_WHY_LEN] = "";

		ret = blk_engine_try(blk, cfg, all[i], reason);
		if (ret < 0) {
			memcpy(why, reason, sizeof(reason));
		}
	}
	if (ret == 0 && blk->ops != all[0]) {
		kvp_warn(cfg->log, "blk engine %s instead of %s: %s", blk->ops->name, all[0]->name,
			why);
	}
	return ret;
}

static struct kvp_blk *
blk_new(const struct kvp_blk_cfg *cfg)
{
	struct kvp_blk *blk = calloc(1, sizeof(*blk));

	if (blk == NULL) {
		return NULL;
	}
	blk->reqs = calloc(cfg->depth, sizeof(*blk->reqs));
	if (blk->reqs == NULL) {
		free(blk);
		return NULL;
	}
	blk->log = cfg->log;
	blk->io_max = cfg->io_max;
	blk->bytes_max = cfg->bytes_max;
	blk->depth = cfg->depth;
	blk->queue_max = cfg->queue_max;
	kvp_list_init(&blk->free);
	kvp_list_init(&blk->again);
	kvp_list_init(&blk->queue);
	kvp_list_init(&blk->done);
	for (uint32_t i = 0; i < cfg->depth; i++) {
		kvp_list_push_back(&blk->free, &blk->reqs[i].link);
	}
	return blk;
}

static void
blk_free(struct kvp_blk *blk)
{
	free(blk->reqs);
	free(blk);
}

int
kvp_blk_open(const struct kvp_blk_cfg *cfg, struct kvp_blk **ret_blk)
{
	char local[KVP_BLK_WHY_LEN];
	struct kvp_blk_cfg full = *cfg;
	const char *problem = blk_cfg_problem(&full);
	char *why = cfg->why != NULL ? cfg->why : local;
	struct kvp_blk *blk;
	int ret;

	why[0] = '\0';
	if (problem != NULL) {
		(void)snprintf(why, KVP_BLK_WHY_LEN, "%s", problem);
		kvp_warn(cfg->log, "blk configuration: %s", why);
		return -EINVAL;
	}
	blk = blk_new(&full);
	if (blk == NULL) {
		return -ENOMEM;
	}
	ret = blk_files_open(blk, &full, why);
	if (ret < 0) {
		goto err_free;
	}
	ret = blk_engine_open(blk, &full, why);
	if (ret < 0) {
		kvp_warn(cfg->log, "blk engine: %s", why);
		goto err_close_files;
	}
	*ret_blk = blk;
	return 0;
err_close_files:
	blk_files_close(blk);
err_free:
	blk_free(blk);
	return ret;
}

/* Sleeps until the engine has something. */
static void
blk_wait(struct kvp_blk *blk)
{
	struct pollfd pfd = {.fd = kvp_blk_wait_fd(blk), .events = POLLIN};

	if (pfd.fd >= 0) {
		(void)poll(&pfd, 1, -1); /* EINTR: the caller's loop comes again */
	}
}

void
kvp_blk_close(struct kvp_blk *blk)
{
	if (blk == NULL) {
		return;
	}
	kvp_assert(!blk->in_done);
	blk->closing = true;
	kvp_blk_cancel(blk);
	while (blk->stats.posted > 0) {
		if (kvp_blk_poll(blk, UINT32_MAX) == 0) {
			blk_wait(blk);
		}
	}
	kvp_assert(blk->stats.flight_bytes == 0);
	blk->ops->close(blk->engine);
	blk_files_close(blk);
	blk_free(blk);
}

/* The first of count free slices in a row, or -ENOSPC. */
static int
blk_slices_find(const struct kvp_blk *blk, uint32_t count, uint32_t *ret_slice)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < KVP_BLK_SLICES_MAX; i++) {
		run = blk->slice_used[i] ? 0 : run + 1;
		if (run == count) {
			*ret_slice = i + 1 - count;
			return 0;
		}
	}
	return -ENOSPC;
}

static void
blk_slices_reg(struct kvp_blk *blk, const struct kvp_blk_region *region)
{
	struct rlimit limit = {0};

	for (uint32_t i = 0; i < region->slice_count; i++) {
		uint64_t off = i * KVP_BLK_SLICE_LEN;
		uint64_t left = region->len - off;
		size_t len = left < KVP_BLK_SLICE_LEN ? left : KVP_BLK_SLICE_LEN;
		int ret = -ENOSYS;

		blk->slice_used[region->slice + i] = true;
		if (blk->ops->buf_reg != NULL) {
			ret = blk->ops->buf_reg(
				blk->engine, region->slice + i, region->base + off, len);
		}
		blk->slice_fixed[region->slice + i] = ret == 0;
		if (ret == 0 || blk->ops->buf_reg == NULL || blk->unfixed_said) {
			continue;
		}
		blk->unfixed_said = true;
		(void)getrlimit(RLIMIT_MEMLOCK, &limit); /* only told */
		kvp_warn(blk->log,
			"blk buffer of %llu bytes not registered: %s (memlock limit %llu)",
			(unsigned long long)region->len, kvp_err_str(ret),
			(unsigned long long)limit.rlim_cur);
	}
}

int
kvp_blk_buf_reg(struct kvp_blk *blk, void *base, size_t len, uint32_t *ret_buf)
{
	struct kvp_blk_region region = {.base = base, .len = len};
	uint64_t slices = (len + KVP_BLK_SLICE_LEN - 1) / KVP_BLK_SLICE_LEN;
	uint32_t buf = 0;

	if (base == NULL || len == 0 || !blk_aligned((uintptr_t)base) || !blk_aligned(len)) {
		kvp_warn(blk->log, "blk buffer %p of %zu bytes is not aligned to 4096", base, len);
		return -EINVAL;
	}
	while (buf < KVP_BLK_BUFS_MAX && blk->regions[buf].base != NULL) {
		buf++;
	}
	if (buf == KVP_BLK_BUFS_MAX || slices > KVP_BLK_SLICES_MAX) {
		return -ENOSPC;
	}
	region.slice_count = (uint32_t)slices;
	if (blk_slices_find(blk, region.slice_count, &region.slice) < 0) {
		return -ENOSPC;
	}
	blk_slices_reg(blk, &region);
	blk->regions[buf] = region;
	*ret_buf = buf;
	return 0;
}

int
kvp_blk_buf_dereg(struct kvp_blk *blk, uint32_t buf)
{
	struct kvp_blk_region *region = &blk->regions[buf];

	kvp_assert(buf < KVP_BLK_BUFS_MAX && region->base != NULL);
	if (region->posted > 0) {
		return -EBUSY;
	}
	for (uint32_t i = region->slice; i < region->slice + region->slice_count; i++) {
		if (blk->slice_fixed[i]) {
			blk->ops->buf_dereg(blk->engine, i);
		}
		blk->slice_fixed[i] = false;
		blk->slice_used[i] = false;
	}
	*region = (struct kvp_blk_region){0};
	return 0;
}

void
kvp_blk_stats(const struct kvp_blk *blk, struct kvp_blk_stats *ret_stats)
{
	*ret_stats = blk->stats;
}
