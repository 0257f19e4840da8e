/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_mr.c - registering memory. Any thread: libfabric locks its own domain.
 *
 * A key is a secret as far as the provider lets us choose it: 64 random bits. Closing a
 * registration stops no transfer that is under way; only closing the endpoint does.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"

#include <stdlib.h>

/* A random key that is taken already: never seen, but cheap to try again. */
#define MR_KEY_TRIES 4

static uint64_t
mr_access(const struct ofi_xport *x, uint32_t access)
{
	uint64_t ret = 0;

	if (access & KVP_MR_REMOTE_READ) {
		ret |= FI_REMOTE_READ;
	}
	if (access & KVP_MR_REMOTE_WRITE) {
		ret |= FI_REMOTE_WRITE;
	}
	if ((access & KVP_MR_LOCAL) && (x->dom->info->domain_attr->mr_mode & FI_MR_LOCAL)) {
		ret |= FI_READ | FI_WRITE;
	}
	return ret;
}

static int
mr_open(struct ofi_xport *x, const struct kvp_mem *mem, uint64_t access, struct ofi_mr *mr)
{
	bool own_key = !(x->dom->info->domain_attr->mr_mode & FI_MR_PROV_KEY);
	size_t key_size = x->dom->info->domain_attr->mr_key_size;
	uint64_t key = 0;
	int ret = 0;

	for (int i = 0; i < MR_KEY_TRIES; i++) {
		if (own_key) {
			x->env->random(x->env, &key, sizeof(key));
			if (key_size > 0 && key_size < sizeof(key)) {
				key &= (1ull << (8 * key_size)) - 1;
			}
		}
		ret = fi_mr_reg(
			x->dom->domain, mem->base, mem->len, access, 0, key, 0, &mr->mr, NULL);
		if (ret != -FI_ENOKEY || !own_key) {
			break;
		}
	}
	if (ret != 0) {
		kvp_warn(x->log, "ofi registration of %zu bytes: %s", mem->len,
			ofi_lib()->strerror(-ret));
		return ofi_error(ret);
	}
	mr->desc = fi_mr_desc(mr->mr);
	mr->key = fi_mr_key(mr->mr);
	return 0;
}

int
ofi_mr_reg(
	struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct ofi_xport *x = ofi_of(xport);
	uint64_t fi_access = mr_access(x, access);
	struct ofi_mr *mr = calloc(1, sizeof(*mr));

	if (mr == NULL) {
		return -ENOMEM;
	}
	mr->dom = x->dom;
	mr->len = mem->len;
	if (fi_access != 0) {
		int ret = mr_open(x, mem, fi_access, mr);

		if (ret != 0) {
			free(mr);
			return ret;
		}
		if (x->dom->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) {
			mr->base = (uint64_t)(uintptr_t)mem->base;
		}
	}
	atomic_fetch_add(&x->dom->mr_count, 1);
	*ret_mr = (struct kvp_mr *)mr;
	return 0;
}

void
ofi_mr_dereg(struct kvp_mr *kvp_mr)
{
	struct ofi_mr *mr = (struct ofi_mr *)kvp_mr;

	if (mr == NULL) {
		return;
	}
	if (mr->mr != NULL) {
		kvp_assert(fi_close(&mr->mr->fid) == 0);
	}
	kvp_assert(atomic_fetch_sub(&mr->dom->mr_count, 1) > 0);
	free(mr);
}

void
ofi_mr_rdesc(const struct kvp_mr *kvp_mr, struct kvp_rdesc *ret_rdesc)
{
	const struct ofi_mr *mr = (const struct ofi_mr *)kvp_mr;
	struct kvp_writer w = kvp_writer_over(ret_rdesc->bytes, sizeof(ret_rdesc->bytes));

	kvp_assert(mr->mr != NULL);
	memset(ret_rdesc->bytes, 0, sizeof(ret_rdesc->bytes));
	kvp_write_u64(&w, mr->key);
	kvp_write_u64(&w, mr->base);
	kvp_write_u64(&w, mr->len);
	ret_rdesc->len = OFI_RDESC_LEN;
}
