/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_io.c - posting reads and writes, and counting their completions. HOT.
 *
 * One kvp_io is a chain of work requests (limits of the device, slices of memory), posted at once;
 * a reliable queue completes in order, so the last one alone is signalled. A write's last one is a
 * read of what was written last: it is answered after the bytes are in memory. Every work request
 * holds a place in the completion queue until its io is over, because all of them leave an entry
 * when the connection breaks. wr_id is a number, not a pointer, so that what a destroyed queue
 * pair leaves behind is recognised and dropped.
 */
#include "transport/verbs/verbs.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"

#include <errno.h>

/* The remote range of an operation. */
struct io_remote {
	uint64_t base;
	uint64_t off;
	uint64_t len;
	uint32_t shift;
	uint32_t key_first;
};

/* Where the next work request starts, on both sides. */
struct io_cursor {
	const struct kvp_seg *segs;
	uint32_t count;
	uint32_t idx;
	size_t off;       /* within segs[idx] */
	uint32_t wr_used; /* of xport.wrs */
	uint32_t sge_used;
};

static uint64_t
io_context(const struct verbs_conn *conn, uint32_t slot)
{
	return (uint64_t)conn->gen << 32 | (uint64_t)conn->idx << 16 | slot;
}

/* All segments must lie in the remote range at off, and its keys must be ours. */
static int
io_check(const struct verbs_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint8_t access, struct io_remote *remote)
{
	struct kvp_reader r = kvp_reader_over(rdesc->bytes, sizeof(rdesc->bytes));
	uint64_t id = kvp_read_u64(&r);
	uint64_t len;
	uint8_t flags;

	remote->base = kvp_read_u64(&r);
	len = kvp_read_u64(&r);
	remote->key_first = kvp_read_u16(&r);
	remote->shift = kvp_read_u8(&r);
	flags = kvp_read_u8(&r);
	remote->len = 0;
	kvp_assert(count >= 1 && count <= KVP_SEGS_MAX);
	if (rdesc->len != VERBS_RDESC_LEN || id != conn->target_id || (flags & access) == 0 ||
		(flags & ~(KVP_MR_REMOTE_READ | KVP_MR_REMOTE_WRITE)) != 0) {
		return -EINVAL;
	}
	if (remote->shift < 12 || remote->shift > 63 || len == 0 || remote->off > len ||
		remote->base + len < remote->base ||
		remote->key_first + ((len - 1) >> remote->shift) >= conn->key_count) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < count; i++) {
		kvp_assert(segs[i].len > 0);
		if (segs[i].len > len - remote->off - remote->len) {
			return -EINVAL;
		}
		remote->len += segs[i].len;
	}
	return 0;
}

/* Fills the scatter list of wr with at most max bytes. Returns how many. */
static uint64_t
cursor_fill(struct io_cursor *c, const struct verbs_xport *x, uint64_t max, struct ibv_send_wr *wr)
{
	uint64_t total = 0;

	wr->sg_list = &x->sges[c->sge_used];
	wr->num_sge = 0;
	while (wr->num_sge < (int)x->dom->sge_max && c->idx < c->count && total < max) {
		const struct kvp_seg *seg = &c->segs[c->idx];
		const struct verbs_mr *mr = (const struct verbs_mr *)seg->mr;
		uint64_t addr = (uint64_t)(uintptr_t)seg->addr + c->off;
		uint64_t slice = (addr - mr->base) >> mr->shift;
		uint64_t slice_end = mr->base + ((slice + 1) << mr->shift);
		uint64_t len = seg->len - c->off;

		len = len < max - total ? len : max - total;
		len = len < slice_end - addr ? len : slice_end - addr;
		kvp_assert(addr >= mr->base && addr + len <= mr->base + mr->len);
		kvp_assert(c->sge_used < x->sge_count);
		x->sges[c->sge_used++] = (struct ibv_sge){
			.addr = addr, .length = (uint32_t)len, .lkey = mr->slices[slice]->lkey};
		wr->num_sge++;
		total += len;
		c->off += len;
		if (c->off == seg->len) {
			c->idx++;
			c->off = 0;
		}
	}
	return total;
}

static void
io_wr_init(struct ibv_send_wr *wr, const struct verbs_conn *conn, const struct io_remote *remote,
	uint64_t off)
{
	wr->next = wr + 1;
	wr->send_flags = 0;
	wr->wr.rdma.remote_addr = remote->base + off;
	wr->wr.rdma.rkey = conn->keys[remote->key_first + (off >> remote->shift)];
}

/* Builds the chain in xport.wrs. -EMSGSIZE: longer than the queue. */
static int
io_build(const struct verbs_conn *conn, struct io_cursor *c, const struct io_remote *remote,
	bool write)
{
	const struct verbs_xport *x = conn->x;
	const struct verbs_domain *dom = x->dom;
	uint64_t off = remote->off;
	uint64_t end = off + remote->len;

	while (off < end) {
		struct ibv_send_wr *wr = &x->wrs[c->wr_used];
		uint64_t left = (((off >> remote->shift) + 1) << remote->shift) - off;

		if (c->wr_used + write >= dom->wr_max) {
			return -EMSGSIZE;
		}
		left = left < dom->msg_len_max ? left : dom->msg_len_max;
		io_wr_init(wr, conn, remote, off);
		wr->opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		off += cursor_fill(c, x, left, wr);
		c->wr_used++;
	}
	if (write) {
		struct ibv_send_wr *last = &x->wrs[c->wr_used - 1];
		struct ibv_send_wr *wr = last + 1;
		uint64_t last_off = last->wr.rdma.remote_addr - remote->base;
		uint64_t len = end - last_off < VERBS_FLUSH_LEN ? end - last_off : VERBS_FLUSH_LEN;

		kvp_assert(c->sge_used < x->sge_count);
		io_wr_init(wr, conn, remote, end - len);
		wr->opcode = IBV_WR_RDMA_READ;
		wr->sg_list = &x->sges[c->sge_used++];
		wr->num_sge = 1;
		wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)x->flush_buf,
			.length = (uint32_t)len,
			.lkey = x->flush_mr->lkey};
		c->wr_used++;
	}
	return 0;
}

static void
io_release(struct verbs_conn *conn, struct kvp_io *io)
{
	uint32_t slot = (uint32_t)io->prov[VERBS_IO_SLOT];
	uint32_t ops = (uint32_t)io->prov[VERBS_IO_OPS];

	kvp_assert(conn->slots[slot] == io);
	conn->slots[slot] = NULL;
	conn->slot_free[conn->slot_count++] = (uint16_t)slot;
	conn->credits += ops;
	conn->x->cq_used -= ops;
	kvp_list_remove(&io->link);
}

static __attribute__((noinline)) int
io_post_failed(struct verbs_conn *conn, struct kvp_io *io, int err, bool posted_some)
{
	if (!posted_some && err == ENOMEM) {
		io_release(conn, io);
		conn->io_count--;
		return -EAGAIN;
	}
	kvp_warn(conn->x->log, "verbs conn %u: post failed: %s", conn->idx, strerror(err));
	/* Parts of it may be under way: the queue pair goes, so that nothing is posted any more.
	 * The credits of this io go with it, but it must not complete: its caller gets the error.
	 */
	conn->slots[io->prov[VERBS_IO_SLOT]] = NULL;
	kvp_list_remove(&io->link);
	conn->io_count--;
	verbs_conn_fail(conn, -KVP_E_CONNDOWN, err);
	return -KVP_E_CONNDOWN;
}

/* Numbers the chain and closes it: the last one alone makes a completion. */
static void
io_seal(const struct verbs_conn *conn, uint32_t ops, uint64_t context)
{
	struct ibv_send_wr *wrs = conn->x->wrs;

	for (uint32_t i = 0; i < ops; i++) {
		wrs[i].wr_id = context;
	}
	wrs[ops - 1].next = NULL;
	wrs[ops - 1].send_flags = IBV_SEND_SIGNALED;
}

static int
io_post(struct verbs_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, struct kvp_io *io, bool write)
{
	struct verbs_xport *x = conn->x;
	struct io_cursor c = {.segs = segs, .count = count};
	struct io_remote remote = {.off = off};
	struct ibv_send_wr *bad = NULL;
	uint32_t slot;
	int err;
	int ret = conn->state == VERBS_UP ? 0 : -KVP_E_CONNDOWN;

	if (ret == 0) {
		ret = io_check(conn, segs, count, rdesc,
			write ? KVP_MR_REMOTE_WRITE : KVP_MR_REMOTE_READ, &remote);
	}
	if (ret == 0 && conn->slot_count == 0) {
		ret = -EAGAIN;
	}
	if (ret == 0) {
		ret = io_build(conn, &c, &remote, write);
	}
	if (ret == 0 && (c.wr_used > conn->credits || c.wr_used > x->cq_len - x->cq_used)) {
		ret = -EAGAIN;
	}
	if (ret != 0) {
		return ret;
	}
	slot = conn->slot_free[--conn->slot_count];
	conn->slots[slot] = io;
	conn->credits -= c.wr_used;
	x->cq_used += c.wr_used;
	conn->io_count++;
	io->status = 0;
	io->prov_err = 0;
	io->prov[VERBS_IO_CONN] = (uint64_t)(uintptr_t)conn;
	io->prov[VERBS_IO_OPS] = c.wr_used;
	io->prov[VERBS_IO_SLOT] = slot;
	kvp_list_push_back(&conn->posted, &io->link);
	io_seal(conn, c.wr_used, io_context(conn, slot));
	err = ibv_post_send(conn->id->qp, x->wrs, &bad);
	if (err != 0) {
		return io_post_failed(conn, io, err, bad != x->wrs);
	}
	return 0;
}

int
verbs_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io)
{
	return io_post((struct verbs_conn *)conn, dst, count, src, off, io, false);
}

int
verbs_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io)
{
	return io_post((struct verbs_conn *)conn, src, count, dst, off, io, true);
}

void
verbs_io_complete(struct verbs_xport *x, const struct ibv_wc *wc)
{
	uint32_t idx = (uint32_t)(wc->wr_id >> 16 & 0xffff);
	uint32_t slot = (uint32_t)(wc->wr_id & 0xffff);
	struct verbs_conn *conn = idx < x->conns_max ? x->conns[idx] : NULL;
	struct kvp_io *io;

	if (conn == NULL || conn->gen != wc->wr_id >> 32 || conn->state != VERBS_UP ||
		slot >= x->io_depth || conn->slots[slot] == NULL) {
		return; /* left over from a queue pair that was destroyed */
	}
	if (wc->status != IBV_WC_SUCCESS) {
		kvp_debug(x->log, "verbs conn %u: operation failed: %s (vendor %u)", idx,
			verbs_lib()->wc_status_str(wc->status), wc->vendor_err);
		verbs_conn_fail(conn, -KVP_E_CONNDOWN, (int)wc->status);
		return;
	}
	io = conn->slots[slot];
	io_release(conn, io);
	kvp_list_push_back(&x->ready, &io->link);
}
