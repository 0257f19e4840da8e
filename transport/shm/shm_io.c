/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_io.c - queueing reads and writes, and copying them. HOT.
 *
 * Posting copies the segment list, so the caller's may be gone; the bytes move in poll(), oldest
 * first. A full fence ends each: what is fetched later was posted later, and what was written is
 * visible when done() says so.
 */
#include "transport/shm/shm.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"

#include <errno.h>

/* The region that rdesc names, if [off, off+len) lies within; all of that may be wrong. */
int
shm_io_region(const struct shm_conn *conn, const struct kvp_rdesc *rdesc, uint64_t off,
	uint64_t len, const struct kvp_mem **ret_mem)
{
	struct kvp_reader r = kvp_reader_over(rdesc->bytes, sizeof(rdesc->bytes));
	uint64_t tag = kvp_read_u64(&r);
	uint64_t max = kvp_read_u64(&r);
	uint32_t idx = kvp_read_u32(&r);
	const struct shm_region *region;

	if (rdesc->len != SHM_RDESC_LEN || idx >= SHM_REGIONS_MAX) {
		return -EINVAL;
	}
	region = &conn->regions[idx];
	if (region->mem.base == NULL || region->tag != tag || max > region->mem.len || off > max ||
		len == 0 || len > max - off) {
		return -EINVAL;
	}
	*ret_mem = &region->mem;
	return 0;
}

/* The remote bytes as we map them; everything in rdesc and off may be wrong. */
static int
io_resolve(const struct shm_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, uint32_t access, char **ret_addr)
{
	struct kvp_reader r = kvp_reader_over(rdesc->bytes, sizeof(rdesc->bytes));
	uint64_t tag = kvp_read_u64(&r);
	uint64_t len = kvp_read_u64(&r);
	uint32_t idx = kvp_read_u32(&r);
	const struct shm_region *region;

	kvp_assert(count >= 1 && count <= KVP_SEGS_MAX);
	if (rdesc->len != SHM_RDESC_LEN || idx >= SHM_REGIONS_MAX) {
		return -EINVAL;
	}
	region = &conn->regions[idx];
	if (region->mem.base == NULL || region->tag != tag || !(region->access & access)) {
		return -EINVAL;
	}
	if (len > region->mem.len || off > len) {
		return -EINVAL;
	}
	*ret_addr = (char *)region->mem.base + off;
	len -= off;
	for (uint32_t i = 0; i < count; i++) {
		kvp_assert(segs[i].len > 0);
		if (segs[i].len > len) {
			return -EINVAL;
		}
		len -= segs[i].len;
	}
	return 0;
}

static int
io_post(struct shm_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, struct kvp_io *io, bool write)
{
	struct shm_xport *x = conn->x;
	char *addr;
	int ret;

	if (conn->state != SHM_UP) {
		return -KVP_E_CONNDOWN;
	}
	ret = io_resolve(conn, segs, count, rdesc, off,
		write ? KVP_MR_REMOTE_WRITE : KVP_MR_REMOTE_READ, &addr);
	if (ret != 0) {
		return ret;
	}
	if (conn->io_count >= x->io_depth || x->seg_head - x->seg_tail + count > SHM_SEG_RING) {
		return -EAGAIN;
	}
	for (uint32_t i = 0; i < count; i++) {
		x->segs[x->seg_head++ % SHM_SEG_RING] = segs[i];
	}
	io->status = 0;
	io->prov_err = 0;
	io->prov[SHM_IO_CONN] = (uint64_t)(uintptr_t)conn;
	io->prov[SHM_IO_ADDR] = (uint64_t)(uintptr_t)addr;
	io->prov[SHM_IO_COUNT] = count;
	io->prov[SHM_IO_WRITE] = write;
	conn->io_count++;
	kvp_list_push_back(&x->queue, &io->link);
	return 0;
}

int
shm_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io)
{
	return io_post((struct shm_conn *)conn, dst, count, src, off, io, false);
}

int
shm_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io)
{
	return io_post((struct shm_conn *)conn, src, count, dst, off, io, true);
}

void
shm_io_run(struct shm_xport *x, struct kvp_io *io)
{
	const struct shm_conn *conn = (const struct shm_conn *)(uintptr_t)io->prov[SHM_IO_CONN];
	uint32_t count = (uint32_t)io->prov[SHM_IO_COUNT];
	char *remote = (char *)(uintptr_t)io->prov[SHM_IO_ADDR];

	kvp_assert(x->seg_head - x->seg_tail >= count);
	if (conn->state != SHM_UP) { /* its mappings are gone */
		io->status = -KVP_E_CONNDOWN;
		x->seg_tail += count;
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_seg *seg = &x->segs[x->seg_tail++ % SHM_SEG_RING];

		if (io->prov[SHM_IO_WRITE]) {
			kvp_mem_copy(remote, seg->addr, seg->len);
		} else {
			kvp_mem_copy(seg->addr, remote, seg->len);
		}
		remote += seg->len;
	}
	__sync_synchronize();
}
