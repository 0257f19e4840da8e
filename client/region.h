/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - which memory of the caller's may be touched: ranges, counted, with the operations in
 * flight on each.
 *
 * THREADS any: one lock, taken once a batch item. A region lives until its count and its users are
 * both zero.
 */
#ifndef KVP_CLIENT_REGION_H
#define KVP_CLIENT_REGION_H

#include "hal/os/env.h"
#include "transport/xport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct kvp_region; /* one registered range */
struct kvp_regions;

/* xports: the client's parent transports, count of them; mr_reg is called on each. */
int kvp_regions_open(
	struct kvp_xport *const *xports, uint32_t xport_count, struct kvp_regions **ret_regions);
void kvp_regions_close(struct kvp_regions *regions); /* deregisters all; nothing may be in flight */

int kvp_regions_add(struct kvp_regions *regions, void *addr, size_t len);
/* -KVP_E_NOT_REGISTERED; -KVP_E_TIMEOUT: still in use, registered again. */
int kvp_regions_remove(struct kvp_regions *regions, void *addr, size_t len, uint32_t timeout_ms);

/* The region that covers [addr, addr+len), with one user more; NULL: none, or being removed. */
struct kvp_region *kvp_regions_ref(struct kvp_regions *regions, const void *addr, size_t len);
void kvp_region_ref(struct kvp_region *region);   /* one user more of one already held */
void kvp_region_unref(struct kvp_region *region); /* wakes a waiting remove */
bool kvp_region_covers(const struct kvp_region *region, const void *addr, size_t len);
struct kvp_mr *kvp_region_mr(const struct kvp_region *region, uint32_t xport_idx);

#endif /* KVP_CLIENT_REGION_H */
