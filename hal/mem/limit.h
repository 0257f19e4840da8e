/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - how large an arena may be: what the machine, the control group and the pools of huge
 * pages allow. root as in mounts.h: "" for the machine. THREADS any.
 */
#ifndef KVP_HAL_MEM_LIMIT_H
#define KVP_HAL_MEM_LIMIT_H

#include "hal/mem/mem.h"
#include "hal/mem/why.h"

#include <stdbool.h>
#include <stdint.h>

struct kvp_mem_limit {
	uint64_t bytes;   /* of which a share is a share */
	uint64_t machine; /* MemTotal without the pages of hugetlb pools, which nothing else gets */
	uint64_t cgroup;  /* the lowest limit up to the top; UINT64_MAX: none */
	uint64_t pool;    /* hugetlb pages of the wished size, or of the size that has most */
	char what[560];   /* what bytes is, for a log line */
};

/* The smaller of machine and cgroup. With huge pages required, the pool, which no memory cgroup
 * counts; with huge pages preferred, the pool if it is larger than the rest. -errno when /proc is
 * not readable. page_len 0: any. */
int kvp_mem_limit(const char *root, enum kvp_mem_policy hugepages, size_t page_len,
	struct kvp_mem_limit *ret_limit);

/* "64GiB" as in options, or a share with a point, as "0.8", of limit. A share is rounded down to
 * 2 MiB and is more than 0 and at most 1. -EINVAL for other texts, -ERANGE. */
int kvp_mem_size_parse(const char *text, uint64_t limit, uint64_t *ret_len);

/* Whether len bytes of small pages can be had now: 0, or -ENOSPC with a line in why. node: -1 any.
 * swap: whether pages may go to swap later. */
int kvp_mem_room(const char *root, int node, bool swap, uint64_t len, struct kvp_mem_why *why);

#endif /* KVP_HAL_MEM_LIMIT_H */
