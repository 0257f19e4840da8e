/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.c - HOT: cuts ios into requests, bounds and reaps them. Owner thread only.
 *
 * An io is on the queue until all of it is cut (or it failed), then on no list while requests are
 * in flight, then on the list done. A request is in the pool, at the engine, or on the list again.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/blk/blk_impl.h"

#include <errno.h>
#include <inttypes.h>

#define REQ_TRIES_MAX 8u /* without a byte moved */

static const char *
io_op_name(const struct kvp_blk_io *io)
{
	static const char *const names[] = {"read", "write", "flush"};

	return names[io->op];
}

static const char *
io_buf_problem(const struct kvp_blk *blk, const struct kvp_blk_io *io)
{
	const struct kvp_blk_region *region;
	uint64_t into;

	if (io->buf == KVP_BLK_BUF_NONE) {
		return NULL;
	}
	if (io->buf >= KVP_BLK_BUFS_MAX || blk->regions[io->buf].base == NULL) {
		return "no such buffer";
	}
	region = &blk->regions[io->buf];
	into = (uintptr_t)io->addr - (uintptr_t)region->base;
	if (into > region->len || io->len > region->len - into) {
		return "address is outside of its buffer";
	}
	return NULL;
}

/* What is wrong with it, NULL: nothing. */
static const char *
io_problem(const struct kvp_blk *blk, const struct kvp_blk_io *io)
{
	if (io->file >= blk->file_count) {
		return "no such file";
	}
	if (io->op == KVP_BLK_FLUSH) {
		return io->len == 0 ? NULL : "a flush has no length";
	}
	if (io->op != KVP_BLK_READ && io->op != KVP_BLK_WRITE) {
		return "no such operation";
	}
	if (io->len == 0 || io->len % KVP_BLK_ALIGN != 0) {
		return "length is not a multiple of 4096";
	}
	if (io->off % KVP_BLK_ALIGN != 0) {
		return "offset is not a multiple of 4096";
	}
	if (io->addr == NULL || (uintptr_t)io->addr % KVP_BLK_ALIGN != 0) {
		return "address is not a multiple of 4096";
	}
	if (io->len > blk->bytes[io->file] || io->off > blk->bytes[io->file] - io->len) {
		return "range is outside of the file";
	}
	return io_buf_problem(blk, io);
}

/* No more of it is cut; it ends once its requests have. */
static void
io_stop(struct kvp_blk_io *io, int status)
{
	if (io->status < 0) {
		return;
	}
	io->status = status;
	io->cut = io->len;
	kvp_list_remove(&io->link); /* of the queue, if it is still there */
}

static void
io_end_if_over(struct kvp_blk *blk, struct kvp_blk_io *io)
{
	/* A flush that waits for a request has nothing to cut, but is still on the queue. */
	if (io->pending == 0 && io->cut == io->len && kvp_list_empty(&io->link)) {
		kvp_list_push_back(&blk->done, &io->link);
	}
}

/* How much of io the next request takes: never across two slices. */
static uint32_t
io_piece_len(const struct kvp_blk *blk, const struct kvp_blk_io *io, int32_t *ret_slice)
{
	uint64_t left = io->len - io->cut;
	const struct kvp_blk_region *region;
	uint64_t into;

	*ret_slice = -1;
	left = left < blk->io_max ? left : blk->io_max;
	if (io->buf == KVP_BLK_BUF_NONE || io->op == KVP_BLK_FLUSH) {
		return (uint32_t)left;
	}
	region = &blk->regions[io->buf];
	into = (uint64_t)((char *)io->addr - region->base) + io->cut;
	*ret_slice = (int32_t)(region->slice + into / KVP_BLK_SLICE_LEN);
	if (!blk->slice_fixed[*ret_slice]) {
		*ret_slice = -1;
		return (uint32_t)left;
	}
	into %= KVP_BLK_SLICE_LEN;
	return (uint32_t)(left < KVP_BLK_SLICE_LEN - into ? left : KVP_BLK_SLICE_LEN - into);
}

/* The next request of the first io in the queue; NULL: none, or no room for it. */
static struct kvp_blk_req *
io_cut(struct kvp_blk *blk)
{
	struct kvp_blk_stats *stats = &blk->stats;
	struct kvp_blk_io *io;
	struct kvp_blk_req *req;
	int32_t slice;
	uint32_t len;

	if (kvp_list_empty(&blk->queue) || kvp_list_empty(&blk->free)) {
		return NULL;
	}
	io = kvp_container_of(blk->queue.next, struct kvp_blk_io, link);
	len = io_piece_len(blk, io, &slice);
	if (stats->flight_bytes + len > blk->bytes_max) {
		return NULL;
	}
	req = kvp_container_of(kvp_list_pop_front(&blk->free), struct kvp_blk_req, link);
	*req = (struct kvp_blk_req){
		.op = io->op,
		.file = io->file,
		.slice = slice,
		.len = len,
		.off = io->off + io->cut,
		.addr = (char *)io->addr + io->cut,
		.io = io,
	};
	io->cut += len;
	io->pending++;
	if (io->cut == io->len) {
		kvp_list_remove(&io->link);
	}
	stats->flight_bytes += len;
	if (stats->flight_bytes > stats->flight_bytes_max) {
		stats->flight_bytes_max = stats->flight_bytes;
	}
	return req;
}

/* Hands the engine all that there is room for, at once. */
static void
io_issue(struct kvp_blk *blk)
{
	struct kvp_list batch;
	struct kvp_list *link;
	struct kvp_blk_req *req;

	kvp_list_init(&batch);
	while ((link = kvp_list_pop_front(&blk->again)) != NULL) {
		kvp_list_push_back(&batch, link);
	}
	while ((req = io_cut(blk)) != NULL) {
		kvp_list_push_back(&batch, &req->link);
	}
	if (!kvp_list_empty(&batch)) {
		blk->ops->post(blk->engine, &batch);
		kvp_assert(kvp_list_empty(&batch));
	}
}

/* len bytes of the request are through. */
static void
req_advance(struct kvp_blk *blk, struct kvp_blk_req *req, uint32_t len)
{
	kvp_assert(len <= req->len);
	if (req->op == KVP_BLK_READ) {
		blk->stats.read_bytes += len;
	} else {
		blk->stats.write_bytes += len;
	}
	req->addr = (char *)req->addr + len;
	req->off += len;
	req->len -= len;
	blk->stats.flight_bytes -= len;
}

/* 0: it ended well; 1: it has to be sent again; else its error. */
static int
req_judge(struct kvp_blk *blk, struct kvp_blk_req *req)
{
	uint32_t moved = req->res > 0 ? (uint32_t)req->res : 0;
	bool again = req->res == -EINTR || req->res == -EAGAIN;

	if (req->res < 0) {
		req->io->prov_err = req->res;
	}
	if (req->res < 0 && !again) {
		return req->res;
	}
	if (!again && moved == req->len) {
		req_advance(blk, req, moved);
		return 0;
	}
	if (!again && moved == 0) {
		return -EIO; /* the file ends here, or the device is no use */
	}
	/* Direct i/o starts at whole sectors only. */
	moved -= moved % KVP_BLK_ALIGN;
	req->tries = moved > 0 ? 0 : req->tries + 1;
	req_advance(blk, req, moved);
	if (req->io->status < 0 || blk->closing) {
		return -ECANCELED;
	}
	return req->tries > REQ_TRIES_MAX ? -EIO : 1;
}

static void
req_ended(struct kvp_blk *blk, struct kvp_blk_req *req)
{
	struct kvp_blk_io *io = req->io;
	int ret = req_judge(blk, req);

	if (ret == 1) {
		blk->stats.retries++;
		kvp_list_push_back(&blk->again, &req->link);
		return;
	}
	if (ret < 0 && ret != -ECANCELED && io->status == 0) {
		kvp_warn(blk->log, "blk file %u %s at %" PRIu64 " failed: %s (%d)", io->file,
			io_op_name(io), req->off, kvp_err_str(ret), req->res);
	}
	if (ret < 0) {
		io_stop(io, ret);
	}
	blk->stats.flight_bytes -= req->len;
	kvp_list_push_back(&blk->free, &req->link);
	kvp_assert(io->pending > 0);
	io->pending--;
	io_end_if_over(blk, io);
}

static void
io_count(struct kvp_blk_stats *stats, const struct kvp_blk_io *io)
{
	uint64_t *const by_op[] = {&stats->reads, &stats->writes, &stats->flushes};

	if (io->status == 0) {
		(*by_op[io->op])++;
	} else if (io->status == -ECANCELED) {
		stats->cancels++;
	} else {
		stats->errors++;
	}
}

static void
io_done(struct kvp_blk *blk, struct kvp_blk_io *io)
{
	kvp_assert(io->posted && io->pending == 0);
	io->posted = false;
	if (io->op != KVP_BLK_FLUSH && io->buf != KVP_BLK_BUF_NONE) {
		blk->regions[io->buf].posted--;
	}
	blk->stats.posted--;
	io_count(&blk->stats, io);
	io->done(io); /* it may be gone now */
}

int
kvp_blk_post(struct kvp_blk *blk, struct kvp_blk_io *const *ios, uint32_t count)
{
	if (blk->closing) {
		return -ECANCELED;
	}
	if (count > blk->queue_max) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < count; i++) {
		const char *problem = io_problem(blk, ios[i]);

		if (problem != NULL) {
			kvp_warn(blk->log,
				"blk file %u offset %" PRIu64 " length %" PRIu64 " refused: %s",
				ios[i]->file, ios[i]->off, ios[i]->len, problem);
			return -EINVAL;
		}
	}
	if (count > blk->queue_max - blk->stats.posted) {
		return -EAGAIN;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct kvp_blk_io *io = ios[i];

		kvp_assert(!io->posted && io->done != NULL);
		io->status = 0;
		io->prov_err = 0;
		io->cut = 0;
		io->pending = 0;
		io->posted = true;
		if (io->op != KVP_BLK_FLUSH && io->buf != KVP_BLK_BUF_NONE) {
			blk->regions[io->buf].posted++;
		}
		kvp_list_push_back(&blk->queue, &io->link);
	}
	blk->stats.posted += count;
	if (!blk->in_done) {
		io_issue(blk);
	}
	return 0;
}

uint32_t
kvp_blk_poll(struct kvp_blk *blk, uint32_t max)
{
	struct kvp_list reaped;
	struct kvp_list *link;
	uint32_t count = 0;

	kvp_assert(!blk->in_done);
	kvp_list_init(&reaped);
	blk->ops->poll(blk->engine, &reaped);
	while ((link = kvp_list_pop_front(&reaped)) != NULL) {
		req_ended(blk, kvp_container_of(link, struct kvp_blk_req, link));
	}
	io_issue(blk);
	blk->in_done = true;
	while (count < max && (link = kvp_list_pop_front(&blk->done)) != NULL) {
		io_done(blk, kvp_container_of(link, struct kvp_blk_io, link));
		count++;
	}
	blk->in_done = false;
	if (count > 0) {
		io_issue(blk); /* what done() posted */
	}
	return count;
}

int
kvp_blk_wait_fd(struct kvp_blk *blk)
{
	if (!kvp_list_empty(&blk->done)) {
		return -EAGAIN;
	}
	return blk->ops->wait_fd(blk->engine);
}

void
kvp_blk_cancel(struct kvp_blk *blk)
{
	kvp_list_for_each_safe (link, &blk->queue) {
		struct kvp_blk_io *io = kvp_container_of(link, struct kvp_blk_io, link);

		io_stop(io, -ECANCELED);
		io_end_if_over(blk, io);
	}
}
