/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_io.c - posting reads and writes, and counting their completions. HOT.
 *
 * One kvp_io may be several libfabric operations (the scatter list and message limits). They are
 * posted all or none: credits are counted first. A context is a number, not a pointer, so that
 * what a closed endpoint leaves in the completion queue is recognised and dropped.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"

/* Where the next libfabric operation starts in the caller's list. */
struct io_cursor {
	const struct kvp_seg *segs;
	uint32_t count;
	uint32_t idx;
	size_t off; /* within segs[idx] */
};

static uint64_t
io_context(const struct ofi_conn *conn, uint32_t slot)
{
	return (uint64_t)conn->gen << 32 | (uint64_t)conn->idx << 16 | slot;
}

/* Fills the next scatter list; returns its bytes, 0 at the end. */
static uint64_t
cursor_next(struct io_cursor *c, const struct ofi_xport *x, struct iovec *iov, void **desc,
	size_t *ret_count)
{
	uint64_t total = 0;
	size_t n = 0;

	while (n < x->iov_max && c->idx < c->count && total < x->msg_len_max) {
		const struct kvp_seg *seg = &c->segs[c->idx];
		size_t len = seg->len - c->off;

		if (len > x->msg_len_max - total) {
			len = (size_t)(x->msg_len_max - total);
		}
		iov[n] = (struct iovec){.iov_base = (char *)seg->addr + c->off, .iov_len = len};
		desc[n] = ((struct ofi_mr *)seg->mr)->desc;
		n++;
		total += len;
		c->off += len;
		if (c->off == seg->len) {
			c->idx++;
			c->off = 0;
		}
	}
	*ret_count = n;
	return total;
}

static uint32_t
io_ops_count(const struct ofi_xport *x, const struct kvp_seg *segs, uint32_t count, uint64_t total)
{
	struct io_cursor c = {.segs = segs, .count = count};
	struct iovec iov[OFI_IOV_MAX];
	void *desc[OFI_IOV_MAX];
	uint32_t ops = 0;
	size_t n;

	if (total <= x->msg_len_max) {
		return (count + x->iov_max - 1) / x->iov_max;
	}
	while (cursor_next(&c, x, iov, desc, &n) > 0) {
		ops++;
	}
	return ops;
}

/* Sum of the segments, all of which must lie in the remote range at off. */
static int
io_check(const struct kvp_seg *segs, uint32_t count, const struct kvp_rdesc *rdesc, uint64_t off,
	struct fi_rma_iov *ret_remote)
{
	struct kvp_reader r = kvp_reader_over(rdesc->bytes, sizeof(rdesc->bytes));
	uint64_t key = kvp_read_u64(&r);
	uint64_t base = kvp_read_u64(&r);
	uint64_t len = kvp_read_u64(&r);
	uint64_t total = 0;

	kvp_assert(count >= 1 && count <= KVP_SEGS_MAX);
	if (rdesc->len != OFI_RDESC_LEN || off > len || base + len < base) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < count; i++) {
		kvp_assert(segs[i].len > 0);
		if (segs[i].len > len - off - total) {
			return -EINVAL;
		}
		total += segs[i].len;
	}
	*ret_remote = (struct fi_rma_iov){.addr = base + off, .len = total, .key = key};
	return 0;
}

static ssize_t
io_post_one(struct ofi_conn *conn, const struct fi_msg_rma *msg, bool write)
{
	if (write) {
		return fi_writemsg(conn->ep, msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	}
	return fi_readmsg(conn->ep, msg, FI_COMPLETION);
}

/* Posts all parts. Returns 0, or libfabric's error and how many were posted before it. */
static ssize_t
io_post_parts(struct ofi_conn *conn, struct io_cursor *c, struct fi_rma_iov remote, bool write,
	uint64_t context, uint32_t *ret_posted)
{
	struct iovec iov[OFI_IOV_MAX];
	void *desc[OFI_IOV_MAX];
	size_t n;
	uint64_t len;

	*ret_posted = 0;
	while ((len = cursor_next(c, conn->x, iov, desc, &n)) > 0) {
		struct fi_rma_iov part = {.addr = remote.addr, .len = len, .key = remote.key};
		struct fi_msg_rma msg = {
			.msg_iov = iov,
			.desc = desc,
			.iov_count = n,
			.rma_iov = &part,
			.rma_iov_count = 1,
			.context = (void *)(uintptr_t)context,
		};
		ssize_t ret = io_post_one(conn, &msg, write);

		if (ret != 0) {
			return ret;
		}
		(*ret_posted)++;
		remote.addr += len;
	}
	return 0;
}

static void
io_release(struct ofi_conn *conn, struct kvp_io *io)
{
	uint32_t slot = (uint32_t)io->prov[OFI_IO_SLOT];

	kvp_assert(conn->slots[slot] == io);
	conn->slots[slot] = NULL;
	conn->slot_free[conn->slot_count++] = (uint16_t)slot;
	kvp_list_remove(&io->link);
}

static __attribute__((noinline)) int
io_post_failed(
	struct ofi_conn *conn, struct kvp_io *io, ssize_t fi_err, uint32_t ops, uint32_t posted)
{
	io_release(conn, io);
	conn->io_count--;
	conn->credits += ops;
	if (posted == 0 && fi_err == -FI_EAGAIN) {
		return -EAGAIN;
	}
	kvp_warn(conn->x->log, "ofi conn %u: post failed: %s", conn->idx,
		ofi_lib()->strerror((int)-fi_err));
	/* Parts of it may be under way: the endpoint goes, so that nothing is posted any more. */
	ofi_conn_fail(conn, -KVP_E_CONNDOWN, (int)-fi_err);
	return -KVP_E_CONNDOWN;
}

static int
io_post(struct ofi_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, struct kvp_io *io, bool write)
{
	struct io_cursor c = {.segs = segs, .count = count};
	struct fi_rma_iov remote;
	uint32_t ops;
	uint32_t posted;
	uint32_t slot;
	ssize_t fi_err;
	int ret = io_check(segs, count, rdesc, off, &remote);

	if (ret != 0) {
		return ret;
	}
	if (conn->state != OFI_UP) {
		return -KVP_E_CONNDOWN;
	}
	ops = io_ops_count(conn->x, segs, count, remote.len);
	if (ops > conn->x->credits_max) {
		return -EMSGSIZE;
	}
	if (ops > conn->credits || conn->slot_count == 0) {
		return -EAGAIN;
	}
	slot = conn->slot_free[--conn->slot_count];
	conn->slots[slot] = io;
	conn->credits -= ops;
	conn->io_count++;
	io->status = 0;
	io->prov_err = 0;
	io->prov[OFI_IO_CONN] = (uint64_t)(uintptr_t)conn;
	io->prov[OFI_IO_PENDING] = ops;
	io->prov[OFI_IO_SLOT] = slot;
	kvp_list_push_back(&conn->posted, &io->link);
	fi_err = io_post_parts(conn, &c, remote, write, io_context(conn, slot), &posted);
	if (fi_err != 0) {
		return io_post_failed(conn, io, fi_err, ops, posted);
	}
	kvp_assert(posted == ops);
	return 0;
}

int
ofi_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io)
{
	return io_post((struct ofi_conn *)conn, dst, count, src, off, io, false);
}

int
ofi_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io)
{
	return io_post((struct ofi_conn *)conn, src, count, dst, off, io, true);
}

void
ofi_io_complete(struct ofi_xport *x, uint64_t context, int err, int prov_err)
{
	uint32_t idx = (uint32_t)(context >> 16 & 0xffff);
	uint32_t slot = (uint32_t)(context & 0xffff);
	struct ofi_conn *conn = idx < x->conns_max ? x->conns[idx] : NULL;
	struct kvp_io *io;

	if (conn == NULL || conn->gen != context >> 32 || conn->state != OFI_UP ||
		slot >= x->io_depth || conn->slots[slot] == NULL) {
		return; /* left over from an endpoint that was closed */
	}
	if (err != 0) {
		kvp_debug(x->log, "ofi conn %u: operation failed: %s (%d)", idx,
			ofi_lib()->strerror(err), prov_err);
		ofi_conn_fail(conn, -KVP_E_CONNDOWN, err);
		return;
	}
	io = conn->slots[slot];
	kvp_assert(io->prov[OFI_IO_PENDING] > 0);
	conn->credits++;
	if (--io->prov[OFI_IO_PENDING] == 0) {
		io_release(conn, io);
		kvp_list_push_back(&x->ready, &io->link);
	}
}
