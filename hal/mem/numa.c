/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numa.c - the two system calls of NUMA that we need, without a library for them.
 */
#include "hal/mem/numa.h"
#include "hal/base/assert.h"
#include "hal/mem/mounts.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMA_PATH_LEN  (KVP_MOUNT_PATH_LEN + 64)
#define NUMA_WORD_BITS (8 * sizeof(unsigned long))

bool
kvp_numa_exists(const char *root, int node)
{
	char path[NUMA_PATH_LEN];

	if (node < 0 || node > KVP_NUMA_NODE_MAX) {
		return false;
	}
	(void)snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d", root, node);
	return access(path, F_OK) == 0;
}

void
kvp_numa_online(const char *root, char *buf, size_t cap)
{
	char path[NUMA_PATH_LEN];
	FILE *stream;

	(void)snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", root);
	stream = fopen(path, "re");
	if (stream == NULL || fgets(buf, (int)cap, stream) == NULL) {
		(void)snprintf(buf, cap, "none");
	}
	buf[strcspn(buf, "\n")] = '\0';
	if (stream != NULL) {
		(void)fclose(stream); /* read only */
	}
}

uint64_t
kvp_numa_available(const char *root, int node)
{
	static const char *const keys[] = {"MemFree:", "Active(file):", "Inactive(file):"};
	char path[NUMA_PATH_LEN];
	char key[64];
	uint64_t sum = 0;
	uint64_t len;
	bool found = false;

	(void)snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/meminfo", root, node);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		(void)snprintf(key, sizeof(key), "Node %d %s", node, keys[i]);
		if (kvp_proc_field(path, key, &len) == 0) {
			sum += len;
			found = true;
		}
	}
	return found ? sum : UINT64_MAX;
}

int
kvp_numa_bind(void *base, size_t len, int node)
{
	unsigned long mask[(KVP_NUMA_NODE_MAX + 1) / NUMA_WORD_BITS] = {0};

	kvp_assert(node >= 0 && node <= KVP_NUMA_NODE_MAX);
	mask[(size_t)node / NUMA_WORD_BITS] = 1ul << ((size_t)node % NUMA_WORD_BITS);
	/* The kernel takes one bit less than it is told. */
	if (syscall(SYS_mbind, base, len, MPOL_BIND, mask, (unsigned long)KVP_NUMA_NODE_MAX + 2,
		    0) < 0) {
		return -errno;
	}
	return 0;
}

int
kvp_numa_of(void *addr)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, addr, MPOL_F_NODE | MPOL_F_ADDR) < 0) {
		return -1;
	}
	return node;
}
