/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uring.c - the engine on io_uring: registered files and buffers, one system call a batch.
 *
 * The ring starts disabled, so that the thread that posts first, not the one that opens, becomes
 * its single issuer. The eventfd is never switched off: between our looking at the queue and the
 * kernel's looking at a switch there would be no barrier, and a wakeup could be lost. No SQPOLL
 * (it takes a core) and no IOPOLL (file systems refuse it).
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/blk/blk.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

extern const struct kvp_blk_ops kvp_blk_uring;

#define URING_REAP 32u /* completions looked at together */

struct uring {
	struct kvp_blk_engine engine;
	const struct kvp_log *log;
	struct io_uring ring;
	int event_fd;
	const int *fds;
	uint32_t flight;
	bool enabled;
	bool files_fixed;
	bool bufs_fixed;
};

static struct uring *
uring_of(struct kvp_blk_engine *engine)
{
	return kvp_container_of(engine, struct uring, engine);
}

/* With what saves interrupts where the kernel knows it (6.0), else without. */
static int
uring_setup(struct uring *u, uint32_t depth)
{
	static const unsigned flags[] = {
		IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_R_DISABLED,
	};
	int ret = -EINVAL;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]) && ret == -EINVAL; i++) {
		ret = io_uring_queue_init(depth, &u->ring, flags[i]);
	}
	return ret;
}

static int
uring_open_fail(const struct kvp_blk_engine_cfg *cfg, const char *what, int err)
{
	const char *hint = "";

	if (err == -EPERM || err == -EACCES) {
		hint = " (forbidden by seccomp or kernel.io_uring_disabled)";
	} else if (err == -EINVAL || err == -ENOSYS) {
		hint = " (kernel too old, or without it)";
	} else if (err == -ENOMEM) {
		hint = " (memlock limit too low)";
	}
	(void)snprintf(
		cfg->why, KVP_BLK_WHY_LEN, "io_uring %s: %s%s", what, kvp_err_str(err), hint);
	/* No more descriptors is a trouble of the process, not of io_uring. */
	return err == -EMFILE || err == -ENFILE ? err : -KVP_E_NO_PROVIDER;
}

static int
uring_open(const struct kvp_blk_engine_cfg *cfg, struct kvp_blk_engine **ret_engine)
{
	struct uring *u = calloc(1, sizeof(*u));
	int ret;

	if (u == NULL) {
		return -ENOMEM;
	}
	*u = (struct uring){.engine.ops = &kvp_blk_uring, .log = cfg->log, .fds = cfg->fds};
	ret = uring_setup(u, cfg->depth);
	if (ret < 0) {
		ret = uring_open_fail(cfg, "setup", ret);
		goto err_free;
	}
	u->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (u->event_fd < 0) {
		ret = -errno;
		goto err_exit;
	}
	ret = io_uring_register_eventfd(&u->ring, u->event_fd);
	if (ret < 0) {
		ret = uring_open_fail(cfg, "register", ret);
		goto err_close;
	}
	/* Both save work only: everything goes without them too. */
	u->files_fixed = io_uring_register_files(&u->ring, cfg->fds, cfg->file_count) == 0;
	u->bufs_fixed = io_uring_register_buffers_sparse(&u->ring, KVP_BLK_SLICES_MAX) == 0;
	*ret_engine = &u->engine;
	return 0;
err_close:
	(void)close(u->event_fd); /* a counter */
err_exit:
	io_uring_queue_exit(&u->ring);
err_free:
	free(u);
	return ret;
}

static void
uring_close(struct kvp_blk_engine *engine)
{
	struct uring *u = uring_of(engine);

	kvp_assert(u->flight == 0);
	/* The kernel takes a ring apart behind our back. These let go of files and pages before
	 * we return; from another thread than the owner's they are refused, and it takes longer. */
	(void)io_uring_unregister_files(&u->ring);
	(void)io_uring_unregister_buffers(&u->ring);
	io_uring_queue_exit(&u->ring);
	(void)close(u->event_fd); /* a counter */
	free(u);
}

static int
uring_buf_set(struct uring *u, uint32_t slice, struct iovec iov)
{
	const __u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(&u->ring, slice, &iov, &tag, 1);

	kvp_assert(ret != -EEXIST); /* the owner thread is another one */
	return ret == 1 ? 0 : ret == 0 ? -EINVAL : ret;
}

static int
uring_buf_reg(struct kvp_blk_engine *engine, uint32_t slice, void *base, size_t len)
{
	struct uring *u = uring_of(engine);

	if (!u->bufs_fixed) {
		return -ENOSYS;
	}
	return uring_buf_set(u, slice, (struct iovec){.iov_base = base, .iov_len = len});
}

static void
uring_buf_dereg(struct kvp_blk_engine *engine, uint32_t slice)
{
	int ret = uring_buf_set(uring_of(engine), slice, (struct iovec){0});

	if (ret < 0) { /* the pages stay pinned until close */
		kvp_warn(uring_of(engine)->log, "blk slice %u not unregistered: %s", slice,
			kvp_err_str(ret));
	}
}

static void
uring_prep(struct uring *u, const struct kvp_blk_req *req, struct io_uring_sqe *sqe)
{
	int file = u->files_fixed ? (int)req->file : u->fds[req->file];

	if (req->op == KVP_BLK_FLUSH) {
		io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
	} else if (req->op == KVP_BLK_READ && req->slice >= 0) {
		io_uring_prep_read_fixed(sqe, file, req->addr, req->len, req->off, req->slice);
	} else if (req->op == KVP_BLK_READ) {
		io_uring_prep_read(sqe, file, req->addr, req->len, req->off);
	} else if (req->slice >= 0) {
		io_uring_prep_write_fixed(sqe, file, req->addr, req->len, req->off, req->slice);
	} else {
		io_uring_prep_write(sqe, file, req->addr, req->len, req->off);
	}
	if (u->files_fixed) {
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	}
}

/* What the kernel does not take now (memory short) stays in the queue for the next poll(). */
static void
uring_submit(struct uring *u)
{
	int ret = io_uring_submit(&u->ring);

	kvp_assert(ret != -EEXIST); /* the owner thread is another one */
	if (ret < 0 && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY) {
		kvp_error(u->log, "io_uring submit: %s", kvp_err_str(ret));
	}
}

static void
uring_post(struct kvp_blk_engine *engine, struct kvp_list *reqs)
{
	struct uring *u = uring_of(engine);
	struct kvp_list *link;

	if (!u->enabled) {
		/* liburing 2.3 declares io_uring_enable_rings() and does not export it. */
		kvp_assert(io_uring_register(
				   u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) >= 0);
		u->enabled = true;
	}
	while ((link = kvp_list_pop_front(reqs)) != NULL) {
		struct kvp_blk_req *req = kvp_container_of(link, struct kvp_blk_req, link);
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

		kvp_assert(sqe != NULL); /* at most depth in flight, as many as entries */
		uring_prep(u, req, sqe);
		io_uring_sqe_set_data(sqe, req);
		u->flight++;
	}
	uring_submit(u);
}

static void
uring_poll(struct kvp_blk_engine *engine, struct kvp_list *ret_reqs)
{
	struct uring *u = uring_of(engine);
	struct io_uring_cqe *cqes[URING_REAP];
	unsigned count;

	if (io_uring_sq_ready(&u->ring) > 0) {
		uring_submit(u);
	}
	do {
		count = u->flight > 0 ? io_uring_peek_batch_cqe(&u->ring, cqes, URING_REAP) : 0;
		for (unsigned i = 0; i < count; i++) {
			struct kvp_blk_req *req = io_uring_cqe_get_data(cqes[i]);

			req->res = cqes[i]->res;
			kvp_list_push_back(ret_reqs, &req->link);
		}
		io_uring_cq_advance(&u->ring, count);
		u->flight -= count;
	} while (count == URING_REAP);
}

static int
uring_wait_fd(struct kvp_blk_engine *engine)
{
	struct uring *u = uring_of(engine);
	struct io_uring_cqe *cqe;
	uint64_t count;

	/* First take back old wakeups, then look: what ends after the look wakes. */
	if (read(u->event_fd, &count, sizeof(count)) < 0) {
		kvp_assert(errno == EAGAIN || errno == EINTR);
	}
	if (io_uring_sq_ready(&u->ring) > 0 ||
		(u->flight > 0 && io_uring_peek_cqe(&u->ring, &cqe) == 0)) {
		return -EAGAIN;
	}
	return u->event_fd;
}

const struct kvp_blk_ops kvp_blk_uring = {
	.name = "uring",
	.open = uring_open,
	.close = uring_close,
	.buf_reg = uring_buf_reg,
	.buf_dereg = uring_buf_dereg,
	.post = uring_post,
	.poll = uring_poll,
	.wait_fd = uring_wait_fd,
};
