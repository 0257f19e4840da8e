/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - the limits of memory, and sizes given as a share of them.
 */
#include "hal/mem/limit.h"
#include "hal/base/opt.h"
#include "hal/mem/cgroup.h"
#include "hal/mem/huge.h"
#include "hal/mem/mounts.h"
#include "hal/mem/numa.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_SHARE_STEP KVP_HUGE_LEN_2M

int
kvp_mem_limit(const char *root, enum kvp_mem_policy hugepages, size_t page_len,
	struct kvp_mem_limit *ret_limit)
{
	struct kvp_mem_limit limit = {.pool = kvp_huge_total(root, page_len)};
	struct kvp_cgroup cgroup;
	char path[KVP_MOUNT_PATH_LEN + 32];
	uint64_t pools = 0;
	int ret;

	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	ret = kvp_proc_field(path, "MemTotal:", &limit.machine);
	if (ret < 0) {
		return ret;
	}
	if (kvp_proc_field(path, "Hugetlb:", &pools) < 0) {
		pools = kvp_huge_total(root, 0); /* before Linux 4.20 */
	}
	limit.machine -= pools < limit.machine ? pools : limit.machine;
	kvp_cgroup_memory(root, &cgroup);
	limit.cgroup = cgroup.limit;
	limit.bytes = limit.machine < limit.cgroup ? limit.machine : limit.cgroup;
	if (limit.machine <= limit.cgroup) {
		(void)snprintf(limit.what, sizeof(limit.what), "memory of the machine");
	} else {
		(void)snprintf(limit.what, sizeof(limit.what), "%s", cgroup.limit_file);
	}
	if (hugepages == KVP_MEM_REQUIRE ||
		(hugepages == KVP_MEM_PREFER && limit.pool > limit.bytes)) {
		limit.bytes = limit.pool;
		(void)snprintf(limit.what, sizeof(limit.what), "pool of huge pages");
	}
	*ret_limit = limit;
	return 0;
}

int
kvp_mem_size_parse(const char *text, uint64_t limit, uint64_t *ret_len)
{
	bool share = strchr(text, '.') != NULL;
	const struct kvp_opt_desc desc = {
		.path = "size", .type = share ? KVP_OPT_REAL : KVP_OPT_SIZE};
	struct kvp_opt_value value;
	char error[256];
	uint64_t len;

	if (kvp_opt_parse(&desc, text, &value, error, sizeof(error)) < 0) {
		return -EINVAL;
	}
	free(value.text);
	if (!share) {
		*ret_len = value.number;
		return 0;
	}
	if (!(value.real > 0) || value.real > 1) {
		return -ERANGE;
	}
	/* 53 bits of a double hold every multiple of a page up to 2^65. */
	len = value.real < 1 ? (uint64_t)((double)limit * value.real) : limit;
	len -= len % LIMIT_SHARE_STEP;
	if (len == 0) {
		return -ERANGE;
	}
	*ret_len = len;
	return 0;
}

static int
room_machine(const char *root, bool swap, uint64_t len, struct kvp_mem_why *why)
{
	char path[KVP_MOUNT_PATH_LEN + 32];
	uint64_t have;
	uint64_t more;

	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (kvp_proc_field(path, "MemAvailable:", &have) < 0) {
		return 0; /* nobody tells */
	}
	if (swap && kvp_proc_field(path, "SwapFree:", &more) == 0) {
		have += more;
	}
	if (have >= len) {
		return 0;
	}
	kvp_mem_why_add(why,
		"free memory: limit MemAvailable%s, have %" PRIu64 " bytes, need %" PRIu64
		", remedy: lower the size or free memory of this machine",
		swap ? " and SwapFree" : "", have, len);
	return -ENOSPC;
}

int
kvp_mem_room(const char *root, int node, bool swap, uint64_t len, struct kvp_mem_why *why)
{
	struct kvp_cgroup cgroup;
	uint64_t have;
	int ret = room_machine(root, swap, len, why);

	if (ret < 0) {
		return ret;
	}
	kvp_cgroup_memory(root, &cgroup);
	if (cgroup.room < len) {
		kvp_mem_why_add(why,
			"memory of the cgroup: limit %.128s, have %" PRIu64 " bytes, need %" PRIu64
			", remedy: lower the size or raise the limit of the cgroup",
			cgroup.room_dir, cgroup.room, len);
		return -ENOSPC;
	}
	have = node >= 0 ? kvp_numa_available(root, node) : UINT64_MAX;
	if (have < len) {
		kvp_mem_why_add(why,
			"memory of numa node %d: limit its free pages, have %" PRIu64
			" bytes, need %" PRIu64
			", remedy: lower the size, or another node, or no node",
			node, have, len);
		return -ENOSPC;
	}
	return 0;
}
