/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_registry.c - the one table of eviction policies. A new one:
 * docs/howto/add-eviction-policy.md.
 */
#include "pool/store/evict.h"

#include <string.h>

extern const struct kvp_evict_ops kvp_evict_lru;

static const struct kvp_evict_ops *const policies[] = {
	&kvp_evict_lru,
};

const struct kvp_evict_ops *
kvp_evict_find(const char *name)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (strcmp(policies[i]->name, name) == 0) {
			return policies[i];
		}
	}
	return NULL;
}

const struct kvp_evict_ops *const *
kvp_evict_all(size_t *ret_count)
{
	*ret_count = sizeof(policies) / sizeof(policies[0]);
	return policies;
}
