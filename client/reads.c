/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads.c - the reads of one session since the last report: entries in the order they came, and
 * an open-addressed index over them, twice as large, so that a probe ends soon.
 */
#include "client/reads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define READS_INDEX (2u * KVP_READS_MAX) /* a power of two */

struct kvp_reads {
	pthread_mutex_t lock;
	uint32_t count;
	uint16_t index[READS_INDEX]; /* position in items + 1; 0: empty */
	struct kvp_touch_item items[KVP_READS_MAX];
};

static uint32_t
reads_hash(const struct kvp_touch_item *item)
{
	uint64_t h = item->word ^ ((uint64_t)item->slot << 32 | item->class);

	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15ull;
	h = (h ^ item->conversation) * 0xc2b2ae3d27d4eb4full;
	return (uint32_t)(h >> 32) & (READS_INDEX - 1);
}

static bool
reads_same(const struct kvp_touch_item *a, const struct kvp_touch_item *b)
{
	return a->word == b->word && a->slot == b->slot && a->conversation == b->conversation &&
	       a->class == b->class;
}

int
kvp_reads_open(struct kvp_reads **ret_reads)
{
	struct kvp_reads *reads = calloc(1, sizeof(*reads));

	if (reads == NULL) {
		return -ENOMEM;
	}
	pthread_mutex_init(&reads->lock, NULL);
	*ret_reads = reads;
	return 0;
}

void
kvp_reads_close(struct kvp_reads *reads)
{
	if (reads == NULL) {
		return;
	}
	pthread_mutex_destroy(&reads->lock);
	free(reads);
}

bool
kvp_reads_add(struct kvp_reads *reads, const struct kvp_loc *loc, uint64_t conversation,
	uint32_t service_class)
{
	struct kvp_touch_item item = {
		.word = loc->word,
		.slot = loc->slot,
		.count = 1,
		.conversation = conversation,
		.class = service_class,
	};
	uint32_t at = reads_hash(&item);
	bool soon;

	pthread_mutex_lock(&reads->lock);
	while (reads->index[at] != 0 && !reads_same(&reads->items[reads->index[at] - 1], &item)) {
		at = (at + 1) & (READS_INDEX - 1);
	}
	if (reads->index[at] != 0) {
		struct kvp_touch_item *known = &reads->items[reads->index[at] - 1];

		known->count += known->count < UINT32_MAX;
	} else if (reads->count < KVP_READS_MAX) {
		reads->items[reads->count] = item;
		reads->count++;
		reads->index[at] = (uint16_t)reads->count;
	}
	soon = reads->count >= KVP_READS_MAX / 2;
	pthread_mutex_unlock(&reads->lock);
	return soon;
}

uint32_t
kvp_reads_take(struct kvp_reads *reads, struct kvp_touch_item ret_items[KVP_READS_MAX])
{
	uint32_t count;

	pthread_mutex_lock(&reads->lock);
	count = reads->count;
	memcpy(ret_items, reads->items, count * sizeof(ret_items[0]));
	memset(reads->index, 0, sizeof(reads->index));
	reads->count = 0;
	pthread_mutex_unlock(&reads->lock);
	return count;
}
