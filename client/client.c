/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - the small calls on a client: memory, statistics.
 */
#include "client/client.h"

#include <errno.h>
#include <string.h>

int
kvp_memory_register(struct kvp_client *client, void *addr, size_t len)
{
	if (kvp_client_forked(client)) {
		return -EPERM;
	}
	if (addr == NULL || len == 0 || (uintptr_t)addr + len < (uintptr_t)addr) {
		return -EINVAL;
	}
	return kvp_regions_add(client->regions, addr, len);
}

int
kvp_memory_unregister(struct kvp_client *client, void *addr, size_t len, uint32_t timeout_ms)
{
	if (kvp_client_forked(client)) {
		return -EPERM;
	}
	return kvp_regions_remove(client->regions, addr, len, timeout_ms);
}

_Static_assert(
	sizeof(struct kvp_client_stats) == sizeof(size_t) + KVP_STAT_COUNT * sizeof(uint64_t),
	"enum kvp_stat is kvp_client_stats without its size");

void
kvp_client_stats_get(struct kvp_client *client, struct kvp_client_stats *ret_stats)
{
	uint64_t values[KVP_STAT_COUNT];
	size_t room = ret_stats->struct_size;

	if (room < sizeof(size_t)) {
		return;
	}
	room -= sizeof(size_t);
	for (size_t i = 0; i < KVP_STAT_COUNT; i++) {
		values[i] = atomic_load_explicit(&client->stats[i], memory_order_relaxed);
	}
	memcpy((uint8_t *)ret_stats + sizeof(size_t), values,
		room < sizeof(values) ? room : sizeof(values));
}
