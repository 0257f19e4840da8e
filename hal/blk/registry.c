/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - the block engines that are built in, best first. Adding one is a row here.
 */
#include "hal/base/assert.h"
#include "hal/blk/blk.h"

#include <string.h>

extern const struct kvp_blk_ops kvp_blk_uring;
extern const struct kvp_blk_ops kvp_blk_threads;

static const struct kvp_blk_ops *const registry[] = {
	&kvp_blk_uring,
	&kvp_blk_threads,
};

#define REGISTRY_COUNT (sizeof(registry) / sizeof(registry[0]))

/* A table that promises what it cannot do is our own bug. */
static void
registry_check(const struct kvp_blk_ops *ops)
{
	kvp_assert(ops->name != NULL && strcmp(ops->name, "auto") != 0);
	kvp_assert(ops->open != NULL && ops->close != NULL);
	kvp_assert((ops->buf_reg == NULL) == (ops->buf_dereg == NULL));
	kvp_assert(ops->post != NULL && ops->poll != NULL && ops->wait_fd != NULL);
}

const struct kvp_blk_ops *const *
kvp_blk_all(size_t *ret_count)
{
	for (size_t i = 0; i < REGISTRY_COUNT; i++) {
		registry_check(registry[i]);
	}
	*ret_count = REGISTRY_COUNT;
	return registry;
}

const struct kvp_blk_ops *
kvp_blk_find(const char *name)
{
	size_t count;
	const struct kvp_blk_ops *const *all = kvp_blk_all(&count);

	for (size_t i = 0; i < count; i++) {
		if (strcmp(all[i]->name, name) == 0) {
			return all[i];
		}
	}
	return NULL;
}
