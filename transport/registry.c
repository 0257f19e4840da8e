/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - the transports that are built in, best first. Adding one is a row here.
 */
#include "hal/base/assert.h"
#include "transport/xport.h"

#include <stdbool.h>
#include <string.h>

extern const struct kvp_xport_ops kvp_xport_shm;
extern const struct kvp_xport_ops kvp_xport_verbs;
extern const struct kvp_xport_ops kvp_xport_ofi;

static const struct kvp_xport_ops *const registry[] = {
	&kvp_xport_shm,
	&kvp_xport_verbs,
	&kvp_xport_ofi,
};

#define REGISTRY_COUNT (sizeof(registry) / sizeof(registry[0]))

/* A table that promises what it cannot do is our own bug. */
static void
registry_check(const struct kvp_xport_ops *ops)
{
	kvp_assert(ops->name != NULL && strlen(ops->name) < KVP_NAME_LEN_MAX);
	kvp_assert(((ops->caps & KVP_XPORT_READ) != 0) == (ops->read != NULL));
	kvp_assert(((ops->caps & KVP_XPORT_WRITE) != 0) == (ops->write != NULL));
	kvp_assert(ops->open != NULL && ops->close != NULL);
	kvp_assert(ops->mr_reg != NULL && ops->mr_dereg != NULL && ops->mr_rdesc != NULL);
	kvp_assert(ops->listen != NULL && ops->admit != NULL && ops->fence != NULL);
	kvp_assert(ops->connect != NULL && ops->disconnect != NULL);
	kvp_assert(ops->poll != NULL && ops->wait_fd != NULL);
}

const struct kvp_xport_ops *const *
kvp_xport_all(size_t *ret_count)
{
	_Static_assert(
		REGISTRY_COUNT <= KVP_TRANSPORTS_MAX, "a node has so many transports at most");
	for (size_t i = 0; i < REGISTRY_COUNT; i++) {
		registry_check(registry[i]);
	}
	*ret_count = REGISTRY_COUNT;
	return registry;
}

const struct kvp_xport_ops *
kvp_xport_find(const char *name)
{
	size_t count;
	const struct kvp_xport_ops *const *all = kvp_xport_all(&count);

	for (size_t i = 0; i < count; i++) {
		if (strcmp(all[i]->name, name) == 0) {
			return all[i];
		}
	}
	return NULL;
}
