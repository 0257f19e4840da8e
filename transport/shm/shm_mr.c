/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_mr.c - registering memory. Our own operations work with any address, so only memory that
 * peers may reach needs anything: descriptors to hand out. Any thread.
 */
#include "transport/shm/shm.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void
mr_close(struct shm_mr *mr)
{
	if (mr->fd_read >= 0) {
		(void)close(mr->fd_read);
	}
	if (mr->fd_write >= 0) {
		(void)close(mr->fd_write);
	}
	free(mr);
}

/* A reader gets a descriptor that cannot be made writable. */
static int
mr_open(struct shm_mr *mr, const struct kvp_mem *mem)
{
	if (mem->fd < 0) {
		return -EINVAL;
	}
	if (mr->access & KVP_MR_REMOTE_WRITE) {
		mr->fd_write = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
		return mr->fd_write < 0 ? -errno : 0;
	}
	return kvp_mem_fd_readonly(mem, &mr->fd_read);
}

int
shm_mr_reg(
	struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct shm_xport *x = shm_of(xport);
	struct shm_mr *mr = calloc(1, sizeof(*mr));
	int ret = 0;

	if (mr == NULL) {
		return -ENOMEM;
	}
	mr->x = x;
	mr->access = access & (KVP_MR_REMOTE_READ | KVP_MR_REMOTE_WRITE);
	mr->len = mem->len;
	mr->fd_read = -1;
	mr->fd_write = -1;
	if (mr->access != 0) {
		x->env->random(x->env, &mr->tag, sizeof(mr->tag));
		ret = mr_open(mr, mem);
		if (ret == 0) {
			ret = shm_target_region_add(x->target, mr);
		}
	}
	if (ret != 0) {
		mr_close(mr);
		return ret;
	}
	atomic_fetch_add(&x->mr_count, 1);
	*ret_mr = (struct kvp_mr *)mr;
	return 0;
}

void
shm_mr_dereg(struct kvp_mr *kvp_mr)
{
	struct shm_mr *mr = (struct shm_mr *)kvp_mr;

	if (mr == NULL) {
		return;
	}
	if (mr->access != 0) {
		shm_target_region_remove(mr->x->target, mr);
	}
	kvp_assert(atomic_fetch_sub(&mr->x->mr_count, 1) > 0);
	mr_close(mr);
}

void
shm_mr_rdesc(const struct kvp_mr *kvp_mr, struct kvp_rdesc *ret_rdesc)
{
	const struct shm_mr *mr = (const struct shm_mr *)kvp_mr;
	struct kvp_writer w = kvp_writer_over(ret_rdesc->bytes, sizeof(ret_rdesc->bytes));

	kvp_assert(mr->access != 0);
	memset(ret_rdesc->bytes, 0, sizeof(ret_rdesc->bytes));
	kvp_write_u64(&w, mr->tag);
	kvp_write_u64(&w, mr->len);
	kvp_write_u32(&w, mr->idx);
	kvp_write_u32(&w, mr->access);
	ret_rdesc->len = SHM_RDESC_LEN;
}
