/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_mr.c - registering memory, in slices. Any thread: the domain's lock guards what is shared.
 *
 * A descriptor names a region and where its keys stand in the welcome; the keys themselves come
 * with the connection, because a key for writing is one connection's own (verbs_target.c).
 */
#include "transport/verbs/verbs.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"

#include <errno.h>
#include <stdlib.h>

#define MR_REMOTE (KVP_MR_REMOTE_READ | KVP_MR_REMOTE_WRITE)

struct ibv_mr *
verbs_reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	if (verbs_lib()->reg_mr_iova2 != NULL) {
		return verbs_lib()->reg_mr_iova2(pd, addr, len, (uintptr_t)addr,
			(unsigned)access | IBV_ACCESS_RELAXED_ORDERING);
	}
	return verbs_lib()->reg_mr(pd, addr, len, access);
}

static int
mr_access(const struct verbs_domain *dom, uint32_t access)
{
	int ret = 0;

	if (access & KVP_MR_LOCAL) {
		ret |= IBV_ACCESS_LOCAL_WRITE;
	}
	if (access & KVP_MR_REMOTE_READ) {
		ret |= IBV_ACCESS_REMOTE_READ;
	}
	if (access & KVP_MR_REMOTE_WRITE) { /* read too: a write is followed by a read of it */
		ret |= IBV_ACCESS_LOCAL_WRITE;
		ret |= dom->has_windows ? IBV_ACCESS_MW_BIND
					: IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	}
	return ret;
}

/* As small as the number of slices allows, but no slice larger than the device takes. */
static int
mr_slice(struct verbs_mr *mr)
{
	uint64_t max = mr->dom->attr.max_mr_size;

	mr->shift = VERBS_SLICE_SHIFT;
	while (mr->shift > 12 && max != 0 && 1ull << mr->shift > max) {
		mr->shift--;
	}
	while ((mr->len - 1) >> mr->shift >= VERBS_SLICES_MAX) {
		mr->shift++;
		if (max != 0 && 1ull << mr->shift > max) {
			return -EFBIG;
		}
	}
	mr->slice_count = (uint32_t)((mr->len - 1) >> mr->shift) + 1;
	return 0;
}

/* Finds room for slice_count keys in a row. */
static int
mr_keys_take(struct verbs_mr *mr)
{
	struct verbs_domain *dom = mr->dom;
	uint32_t run = 0;
	int ret = -ENOSPC;

	pthread_mutex_lock(&dom->lock);
	for (uint32_t i = 0; i < VERBS_KEYS_MAX; i++) {
		run = dom->keys[i] == NULL ? run + 1 : 0;
		if (run == mr->slice_count) {
			mr->key_first = i + 1 - run;
			ret = 0;
			break;
		}
	}
	for (uint32_t i = 0; ret == 0 && i < mr->slice_count; i++) {
		dom->keys[mr->key_first + i] = mr;
	}
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

void
verbs_window_free(struct verbs_window *window)
{
	kvp_list_remove(&window->mr_link);
	kvp_list_remove(&window->peer_link);
	kvp_assert(ibv_dealloc_mw(window->mw) == 0);
	free(window);
}

/* Also of one that is half made. */
static void
mr_free(struct verbs_mr *mr)
{
	struct verbs_domain *dom = mr->dom;

	pthread_mutex_lock(&dom->lock);
	for (uint32_t i = 0; i < VERBS_KEYS_MAX; i++) {
		if (dom->keys[i] == mr) {
			dom->keys[i] = NULL;
		}
	}
	while (!kvp_list_empty(&mr->windows)) {
		verbs_window_free(kvp_container_of(mr->windows.next, struct verbs_window, mr_link));
	}
	pthread_mutex_unlock(&dom->lock);
	for (uint32_t i = 0; i < mr->slice_count; i++) {
		if (mr->slices[i] != NULL) {
			kvp_assert(verbs_lib()->dereg_mr(mr->slices[i]) == 0);
		}
	}
	kvp_assert(atomic_fetch_sub(&dom->mr_count, 1) > 0);
	free(mr);
}

int
verbs_mr_reg(
	struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct verbs_xport *x = verbs_of(xport);
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int ret;

	if (mr == NULL) {
		return -ENOMEM;
	}
	mr->dom = x->dom;
	mr->base = (uint64_t)(uintptr_t)mem->base;
	mr->len = mem->len;
	mr->access = access;
	kvp_list_init(&mr->windows);
	atomic_fetch_add(&x->dom->mr_count, 1);
	ret = mr->len > 0 ? mr_slice(mr) : -EINVAL;
	for (uint32_t i = 0; ret == 0 && i < mr->slice_count; i++) {
		uint64_t off = (uint64_t)i << mr->shift;
		uint64_t left = mr->len - off;
		uint64_t len = left < 1ull << mr->shift ? left : 1ull << mr->shift;

		mr->slices[i] = verbs_reg(x->dom->pd, (char *)mem->base + off, (size_t)len,
			mr_access(x->dom, access));
		if (mr->slices[i] == NULL) {
			ret = errno != 0 ? -errno : -ENOMEM;
		}
	}
	if (ret == 0 && (access & MR_REMOTE) != 0) {
		ret = mr_keys_take(mr);
	}
	if (ret != 0) {
		kvp_warn(x->log, "verbs registration of %zu bytes: %s%s", mem->len, strerror(-ret),
			ret == -ENOMEM ? " (is the limit on locked memory large enough?)" : "");
		mr_free(mr);
		return ret;
	}
	*ret_mr = (struct kvp_mr *)mr;
	return 0;
}

void
verbs_mr_dereg(struct kvp_mr *mr)
{
	if (mr != NULL) {
		mr_free((struct verbs_mr *)mr);
	}
}

void
verbs_mr_rdesc(const struct kvp_mr *kvp_mr, struct kvp_rdesc *ret_rdesc)
{
	const struct verbs_mr *mr = (const struct verbs_mr *)kvp_mr;
	struct kvp_writer w = kvp_writer_over(ret_rdesc->bytes, sizeof(ret_rdesc->bytes));

	kvp_assert((mr->access & MR_REMOTE) != 0);
	memset(ret_rdesc->bytes, 0, sizeof(ret_rdesc->bytes));
	kvp_write_u64(&w, mr->dom->id);
	kvp_write_u64(&w, mr->base);
	kvp_write_u64(&w, mr->len);
	kvp_write_u16(&w, (uint16_t)mr->key_first);
	kvp_write_u8(&w, (uint8_t)mr->shift);
	kvp_write_u8(&w, (uint8_t)(mr->access & MR_REMOTE));
	ret_rdesc->len = VERBS_RDESC_LEN;
}
