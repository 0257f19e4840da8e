/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numa.h - memory of one node of the machine. root as in mounts.h.
 */
#ifndef KVP_HAL_MEM_NUMA_H
#define KVP_HAL_MEM_NUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_NUMA_NODE_MAX 1023

bool kvp_numa_exists(const char *root, int node);

/* "0-1,3" as the kernel prints it, or "none". */
void kvp_numa_online(const char *root, char *buf, size_t cap);

/* Bytes that the node could give out now: free pages and file pages that can be dropped.
 * UINT64_MAX when the kernel does not tell. */
uint64_t kvp_numa_available(const char *root, int node);

/* Pages of the mapping come from this node and no other. Before the first is touched; of a shared
 * object it holds for whoever touches them first. -errno: -EPERM where a container forbids it,
 * -ENOSYS on a kernel without NUMA. */
int kvp_numa_bind(void *base, size_t len, int node);

/* The node that holds the page at addr; -1 when unknown. The page must be there. */
int kvp_numa_of(void *addr);

#endif /* KVP_HAL_MEM_NUMA_H */
