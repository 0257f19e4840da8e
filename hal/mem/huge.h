/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge.h - which huge pages this machine has: pools, mounts of hugetlbfs, and whether shared
 * memory may use transparent ones. root as in mounts.h.
 */
#ifndef KVP_HAL_MEM_HUGE_H
#define KVP_HAL_MEM_HUGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_HUGE_LEN_2M ((size_t)2 << 20)
#define KVP_HUGE_LEN_1G ((size_t)1 << 30)

#define KVP_HUGE_DIR_LEN     128
#define KVP_HUGE_MOUNT_COUNT 8

struct kvp_huge_pool {
	size_t page_len;
	uint64_t total; /* pages */
	uint64_t room;  /* pages that a new object can have: free, not promised, or still to come */
	char file[128]; /* write the wished total here; not prefixed */
};

/* The pool of one size. node: -1 for the whole machine. -ENOENT when there are no such pages. */
int kvp_huge_pool(const char *root, size_t page_len, int node, struct kvp_huge_pool *ret_pool);

/* Bytes in the pools of one size; 0: of the size that has most. */
uint64_t kvp_huge_total(const char *root, size_t page_len);

/* The size of a page where none was named: 1 GiB when it divides len and enough are free, else
 * 2 MiB, or what the machine has instead. */
size_t kvp_huge_choose(const char *root, size_t len, int node);

struct kvp_huge_mounts {
	unsigned count;
	size_t page_len[KVP_HUGE_MOUNT_COUNT];
	char dir[KVP_HUGE_MOUNT_COUNT][KVP_HUGE_DIR_LEN]; /* not prefixed */
};

/* The hugetlbfs mounts that we may write to; page_len 0: of every size. */
void kvp_huge_mounts(const char *root, size_t page_len, struct kvp_huge_mounts *ret_mounts);

struct kvp_huge_thp {
	bool allowed; /* a huge page may come where MADV_HUGEPAGE asks for one */
	size_t page_len;
	char said[192]; /* which setting decided, and what it says */
	char remedy[96];
};

/* named: for files of /dev/shm, where the mount decides; else for memfd. */
void kvp_huge_thp(const char *root, bool named, struct kvp_huge_thp *ret_thp);

/* Bytes of [base, base + len) of this process that huge pages map. */
uint64_t kvp_huge_thp_mapped(const void *base, size_t len);

#endif /* KVP_HAL_MEM_HUGE_H */
