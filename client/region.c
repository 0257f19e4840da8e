/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - the registered ranges in an array sorted by address; they never overlap.
 *
 * THREADS one mutex. It is not held while a transport registers or deregisters memory, which may
 * take long: meanwhile the range stands in the array as ADDING or DROPPING, where nobody can use
 * it and who wants the same range waits. A remove that waits for users keeps no pointer: each time
 * it wakes it looks its range up again and knows its own removal by its turn.
 */
#include "client/region.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REGIONS_MAX 65536u /* ranges of one client */

enum region_state {
	REGION_ADDING,   /* being registered: refused */
	REGION_READY,    /* may be used */
	REGION_CLOSING,  /* a remove waits for the users: refused */
	REGION_DROPPING, /* being deregistered: refused */
};

struct kvp_region {
	struct kvp_regions *owner;
	uintptr_t addr;
	size_t len;
	enum region_state state;
	uint32_t count; /* registrations */
	uint32_t users; /* operations in flight */
	uint64_t turn;  /* of the remove that waits; 0: none */
	struct kvp_mr *mrs[KVP_TRANSPORTS_MAX];
};

struct kvp_regions {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a region's state, or its last user went */
	struct kvp_xport *xports[KVP_TRANSPORTS_MAX];
	uint32_t xport_count;
	uint64_t turn_last;
	struct kvp_region **sorted; /* by addr; owned */
	uint32_t count;
	uint32_t cap;
};

/* The idx of the first region that begins after addr. */
static uint32_t
regions_after(const struct kvp_regions *regions, uintptr_t addr)
{
	uint32_t low = 0;
	uint32_t high = regions->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (regions->sorted[mid]->addr <= addr) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

/* The region that is exactly this range, or NULL. */
static struct kvp_region *
regions_find(const struct kvp_regions *regions, uintptr_t addr, size_t len)
{
	uint32_t idx = regions_after(regions, addr);
	struct kvp_region *region = idx > 0 ? regions->sorted[idx - 1] : NULL;

	return region != NULL && region->addr == addr && region->len == len ? region : NULL;
}

static bool
regions_overlap(const struct kvp_regions *regions, uintptr_t addr, size_t len)
{
	uint32_t idx = regions_after(regions, addr);
	const struct kvp_region *before = idx > 0 ? regions->sorted[idx - 1] : NULL;
	const struct kvp_region *after = idx < regions->count ? regions->sorted[idx] : NULL;

	return (before != NULL && addr - before->addr < before->len) ||
	       (after != NULL && after->addr - addr < len);
}

static int
regions_insert(struct kvp_regions *regions, struct kvp_region *region)
{
	uint32_t idx = regions_after(regions, region->addr);

	if (regions->count == regions->cap) {
		uint32_t cap = regions->cap == 0 ? 16 : regions->cap * 2;
		struct kvp_region **sorted;

		if (cap > REGIONS_MAX) {
			return -ENOMEM;
		}
		sorted = realloc(regions->sorted, cap * sizeof(*sorted));
		if (sorted == NULL) {
			return -ENOMEM;
		}
		regions->sorted = sorted;
		regions->cap = cap;
	}
	memmove(&regions->sorted[idx + 1], &regions->sorted[idx],
		(regions->count - idx) * sizeof(struct kvp_region *));
	regions->sorted[idx] = region;
	regions->count++;
	return 0;
}

/* Takes it out of the array and frees it. */
static void
regions_erase(struct kvp_regions *regions, struct kvp_region *region)
{
	uint32_t idx = regions_after(regions, region->addr) - 1;

	kvp_assert(regions->sorted[idx] == region && region->users == 0);
	regions->count--;
	memmove(&regions->sorted[idx], &regions->sorted[idx + 1],
		(regions->count - idx) * sizeof(struct kvp_region *));
	free(region);
}

static void
region_mrs_dereg(struct kvp_region *region, uint32_t count)
{
	for (uint32_t i = count; i > 0; i--) {
		region->owner->xports[i - 1]->ops->mr_dereg(region->mrs[i - 1]);
	}
}

static int
region_mrs_reg(struct kvp_region *region)
{
	struct kvp_mem mem = kvp_mem_wrap((void *)region->addr, region->len);

	for (uint32_t i = 0; i < region->owner->xport_count; i++) {
		struct kvp_xport *xport = region->owner->xports[i];
		int err = xport->ops->mr_reg(xport, &mem, KVP_MR_LOCAL, &region->mrs[i]);

		if (err < 0) {
			region_mrs_dereg(region, i);
			return err;
		}
	}
	return 0;
}

/* Lock held; released for the registration itself. */
static int
regions_add_new(struct kvp_regions *regions, uintptr_t addr, size_t len)
{
	struct kvp_region *region = calloc(1, sizeof(*region));
	int err;

	if (region == NULL) {
		return -ENOMEM;
	}
	*region = (struct kvp_region){
		.owner = regions, .addr = addr, .len = len, .state = REGION_ADDING};
	err = regions_insert(regions, region);
	if (err < 0) {
		free(region);
		return err;
	}
	pthread_mutex_unlock(&regions->lock);
	err = region_mrs_reg(region);
	pthread_mutex_lock(&regions->lock);
	if (err < 0) {
		regions_erase(regions, region);
	} else {
		region->state = REGION_READY;
		region->count = 1;
	}
	pthread_cond_broadcast(&regions->changed);
	return err;
}

/* Lock held. -EAGAIN: the range is in transition, wait and look again. */
static int
regions_add_known(struct kvp_region *region)
{
	switch (region->state) {
	case REGION_READY:
		if (region->count == UINT32_MAX) {
			return -ENOMEM;
		}
		region->count++;
		return 0;
	case REGION_CLOSING:
		/* The remove that waits took its registration back; this is another one. */
		region->state = REGION_READY;
		region->count = 1;
		region->turn = 0;
		pthread_cond_broadcast(&region->owner->changed);
		return 0;
	default:
		return -EAGAIN;
	}
}

static bool
range_is_bad(const void *addr, size_t len)
{
	return addr == NULL || len == 0 || (uintptr_t)addr > UINTPTR_MAX - len;
}

/* On CLOCK_MONOTONIC, which is what the condition variable waits by. */
static struct timespec
time_after_ms(uint32_t timeout_ms)
{
	uint64_t when = kvp_now_ns(kvp_env_real()) + timeout_ms * KVP_NS_PER_MS;

	return (struct timespec){
		.tv_sec = (time_t)(when / KVP_NS_PER_S), .tv_nsec = (long)(when % KVP_NS_PER_S)};
}

/* Lock held. Waits until the region of this removal has no user: then it is the result. NULL and
 * *ret_err: the range was registered again by somebody (0) or is, because time ran out. */
static struct kvp_region *
regions_drain(
	struct kvp_regions *regions, struct kvp_region *region, uint32_t timeout_ms, int *ret_err)
{
	struct timespec until = time_after_ms(timeout_ms);
	uintptr_t addr = region->addr;
	size_t len = region->len;
	uint64_t turn = ++regions->turn_last;
	int timed_out = 0;

	region->turn = turn;
	region->state = REGION_CLOSING;
	while (region->users > 0 && timed_out == 0) {
		timed_out = pthread_cond_timedwait(&regions->changed, &regions->lock, &until);
		region = regions_find(regions, addr, len);
		if (region == NULL || region->turn != turn) {
			*ret_err = 0;
			return NULL;
		}
	}
	region->turn = 0;
	if (region->users > 0) {
		region->state = REGION_READY;
		region->count = 1;
		*ret_err = -KVP_E_TIMEOUT;
		return NULL;
	}
	return region;
}

int
kvp_regions_open(
	struct kvp_xport *const *xports, uint32_t xport_count, struct kvp_regions **ret_regions)
{
	struct kvp_regions *regions;
	pthread_condattr_t attr;

	kvp_assert(xport_count <= KVP_TRANSPORTS_MAX);
	regions = calloc(1, sizeof(*regions));
	if (regions == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < xport_count; i++) {
		regions->xports[i] = xports[i];
	}
	regions->xport_count = xport_count;
	pthread_mutex_init(&regions->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&regions->changed, &attr);
	pthread_condattr_destroy(&attr);
	*ret_regions = regions;
	return 0;
}

void
kvp_regions_close(struct kvp_regions *regions)
{
	if (regions == NULL) {
		return;
	}
	for (uint32_t i = 0; i < regions->count; i++) {
		struct kvp_region *region = regions->sorted[i];

		kvp_assert(region->users == 0 && region->state == REGION_READY);
		region_mrs_dereg(region, regions->xport_count);
		free(region);
	}
	free(regions->sorted);
	pthread_cond_destroy(&regions->changed);
	pthread_mutex_destroy(&regions->lock);
	free(regions);
}

int
kvp_regions_add(struct kvp_regions *regions, void *addr, size_t len)
{
	struct kvp_region *region;
	int err;

	if (range_is_bad(addr, len)) {
		return -EINVAL;
	}
	pthread_mutex_lock(&regions->lock);
	for (;;) {
		region = regions_find(regions, (uintptr_t)addr, len);
		err = region != NULL ? regions_add_known(region) : 0;
		if (err != -EAGAIN) {
			break;
		}
		pthread_cond_wait(&regions->changed, &regions->lock);
	}
	if (region == NULL) {
		err = regions_overlap(regions, (uintptr_t)addr, len)
			      ? -EEXIST
			      : regions_add_new(regions, (uintptr_t)addr, len);
	}
	pthread_mutex_unlock(&regions->lock);
	return err;
}

int
kvp_regions_remove(struct kvp_regions *regions, void *addr, size_t len, uint32_t timeout_ms)
{
	struct kvp_region *region;
	int err = 0;

	pthread_mutex_lock(&regions->lock);
	region = regions_find(regions, (uintptr_t)addr, len);
	if (region == NULL || region->state != REGION_READY) {
		pthread_mutex_unlock(&regions->lock);
		return -KVP_E_NOT_REGISTERED;
	}
	kvp_assert(region->count > 0);
	region->count--;
	if (region->count == 0) {
		region = regions_drain(regions, region, timeout_ms, &err);
		if (region != NULL) {
			region->state = REGION_DROPPING;
			pthread_mutex_unlock(&regions->lock);
			region_mrs_dereg(region, regions->xport_count);
			pthread_mutex_lock(&regions->lock);
			regions_erase(regions, region);
			pthread_cond_broadcast(&regions->changed);
		}
	}
	pthread_mutex_unlock(&regions->lock);
	return err;
}

struct kvp_region *
kvp_regions_ref(struct kvp_regions *regions, const void *addr, size_t len)
{
	struct kvp_region *region = NULL;
	uint32_t idx;

	pthread_mutex_lock(&regions->lock);
	idx = regions_after(regions, (uintptr_t)addr);
	if (idx > 0) {
		region = regions->sorted[idx - 1];
		if (region->state == REGION_READY && kvp_region_covers(region, addr, len)) {
			region->users++;
		} else {
			region = NULL;
		}
	}
	pthread_mutex_unlock(&regions->lock);
	return region;
}

void
kvp_region_ref(struct kvp_region *region)
{
	pthread_mutex_lock(&region->owner->lock);
	kvp_assert(region->users > 0);
	region->users++;
	pthread_mutex_unlock(&region->owner->lock);
}

void
kvp_region_unref(struct kvp_region *region)
{
	struct kvp_regions *regions = region->owner;

	pthread_mutex_lock(&regions->lock);
	kvp_assert(region->users > 0);
	region->users--;
	if (region->users == 0 && region->state == REGION_CLOSING) {
		pthread_cond_broadcast(&regions->changed);
	}
	pthread_mutex_unlock(&regions->lock);
}

bool
kvp_region_covers(const struct kvp_region *region, const void *addr, size_t len)
{
	size_t off = (uintptr_t)addr - region->addr; /* huge when addr lies before it */

	return off <= region->len && len <= region->len - off;
}

struct kvp_mr *
kvp_region_mr(const struct kvp_region *region, uint32_t xport_idx)
{
	kvp_assert(xport_idx < region->owner->xport_count);
	return region->mrs[xport_idx];
}
