/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_impl.h - what making an arena and opening an existing one share. Only for hal/mem.
 */
#ifndef KVP_HAL_MEM_ARENA_IMPL_H
#define KVP_HAL_MEM_ARENA_IMPL_H

#include "hal/mem/arena.h"

#include <stdbool.h>
#include <stddef.h>

size_t kvp_arena_small_len(void); /* of a page of this machine */

/* Before memory is touched: names what cannot be. -EINVAL, -ENODEV with a line. */
int kvp_arena_check(const struct kvp_mem_want *want, struct kvp_mem_why *why);

/* Maps fd for writing at a multiple of align, MADV_DONTFORK. */
int kvp_arena_map(int fd, size_t len, size_t align, void **ret_base);

/* Whether len bytes may be locked, before they are taken: what may be done in place of
 * want->lock, or an error if that is required. Nothing to do for hugetlb. */
int kvp_arena_lock_check(const struct kvp_mem_want *want, size_t len, struct kvp_mem_got *got,
	enum kvp_mem_policy *ret_lock);

/* Takes, maps if populate says so, and locks every page; fills got but for kind and page_len. */
int kvp_arena_fill(const struct kvp_mem *mem, const struct kvp_mem_want *want, bool populate,
	enum kvp_mem_policy lock, struct kvp_mem_got *got);

#endif /* KVP_HAL_MEM_ARENA_IMPL_H */
