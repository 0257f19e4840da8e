/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_view.c - a part of a target's memory mapped once more, read-only, for as long as the caller
 * wants: the connection may end meanwhile, the mapping stays. It cannot be written through, so no
 * fence waits for it; what it shows later is the caller's to check.
 */
#include "transport/shm/shm.h"

#include "hal/base/bytes.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

int
shm_map(struct kvp_conn *kvp_conn, const struct kvp_rdesc *src, uint64_t off, uint64_t len,
	struct kvp_xport_view *ret_view)
{
	const struct shm_conn *conn = (const struct shm_conn *)kvp_conn;
	const struct kvp_mem *mem;
	struct stat st;
	char *addr;
	void *base;
	uint64_t skip;
	int ret;

	if (conn->state != SHM_UP) {
		return -ENOTCONN;
	}
	ret = shm_io_region(conn, src, off, len, &mem);
	if (ret < 0) {
		return ret;
	}
	/* A file on hugetlbfs can be mapped in its own pages only; they are its block size. */
	if (fstat(mem->fd, &st) != 0 || st.st_blksize <= 0) {
		return -EINVAL;
	}
	skip = off % (uint64_t)(st.st_blksize < 4096 ? 4096 : st.st_blksize);
	base = mmap(NULL, len + skip, PROT_READ, MAP_SHARED, mem->fd, (off_t)(off - skip));
	if (base == MAP_FAILED) {
		return -errno;
	}
	addr = base;
	*ret_view = (struct kvp_xport_view){.addr = addr + skip, .base = base, .len = len + skip};
	return 0;
}

void
shm_unmap(struct kvp_xport_view *view)
{
	if (view->base != NULL) {
		(void)munmap(view->base, view->len); /* fails for bad arguments only */
		view->base = NULL;
	}
}
