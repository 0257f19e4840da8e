// SPDX-License-Identifier: Apache-2.0
/*
 * scrub.c - see scrub.h. One block at a time; a block that is evicted meanwhile is left, and
 * what had been hashed of it is for nothing.
 */
#include "pool/node/scrub.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define SCRUB_TICK_LEN_MAX (4ull << 20) /* bytes hashed in one tick: under a millisecond */

struct kvp_scrub {
	struct kvp_node *node;
	struct kvp_sum_state *sum;
	struct kvp_slot_entry entry; /* of the block under way */
	uint32_t cursor;             /* its slot, or where to look for the next one */
	bool busy;
	bool done;
	uint64_t off;    /* bytes of it that are hashed */
	uint64_t credit; /* bytes that may be hashed now */
	uint64_t last_ns;
	uint64_t blocks;
	uint64_t bad;
};

int
kvp_scrub_open(struct kvp_node *node, struct kvp_scrub **ret_scrub)
{
	struct kvp_scrub *scrub;

	*ret_scrub = NULL;
	if (node->cfg.scrub_rate == 0) {
		return 0;
	}
	scrub = calloc(1, sizeof(*scrub));
	if (scrub == NULL) {
		return -ENOMEM;
	}
	scrub->sum = kvp_sum_new();
	if (scrub->sum == NULL) {
		free(scrub);
		return -ENOMEM;
	}
	scrub->node = node;
	scrub->last_ns = kvp_node_now(node);
	*ret_scrub = scrub;
	return 0;
}

void
kvp_scrub_close(struct kvp_scrub *scrub)
{
	if (scrub != NULL) {
		kvp_sum_free(scrub->sum);
		free(scrub);
	}
}

/* Makes sure that a block is under way; false when all have been seen. */
static bool
scrub_block(struct kvp_scrub *scrub)
{
	static const uint8_t unhashed[KVP_SUM_LEN];
	struct kvp_slot_entry entry;
	uint32_t slot = scrub->cursor;
	struct kvp_key key;

	while (kvp_store_recovered(scrub->node->store, &slot, &entry)) {
		if (scrub->busy && slot == scrub->cursor && entry.word == scrub->entry.word) {
			return true;
		}
		scrub->busy = false;
		if (memcmp(entry.sum, unhashed, sizeof(unhashed)) != 0) {
			key.len = kvp_entry_klen(&entry);
			memcpy(key.bytes, entry.key, sizeof(key.bytes));
			kvp_sum_begin(scrub->sum, entry.ns, &key, kvp_entry_len(&entry));
			scrub->entry = entry;
			scrub->cursor = slot;
			scrub->off = 0;
			scrub->busy = true;
			return true;
		}
		slot++; /* nothing to verify it with */
		scrub->cursor = slot;
	}
	return false;
}

static void
scrub_verdict(struct kvp_scrub *scrub, uint64_t now_ns)
{
	uint8_t sum[KVP_SUM_LEN];

	kvp_sum_end(scrub->sum, sum);
	scrub->blocks++;
	if (memcmp(sum, scrub->entry.sum, sizeof(sum)) != 0) {
		scrub->bad++;
		kvp_warn(scrub->node->cfg.log,
			"block in slot %u at %" PRIu64 " dropped: its bytes changed over the "
			"restart",
			scrub->cursor, scrub->entry.off);
		kvp_store_corrupt(scrub->node->store, now_ns, scrub->cursor, scrub->entry.word);
	}
	scrub->busy = false;
	scrub->cursor++;
}

void
kvp_scrub_tick(struct kvp_scrub *scrub, uint64_t now_ns)
{
	uint64_t rate;

	if (scrub == NULL || scrub->done) {
		return;
	}
	rate = scrub->node->cfg.scrub_rate;
	scrub->credit += (now_ns - scrub->last_ns) / 1000 * rate / 1000000;
	scrub->last_ns = now_ns;
	if (scrub->credit > SCRUB_TICK_LEN_MAX) {
		scrub->credit = SCRUB_TICK_LEN_MAX;
	}
	while (scrub->credit > 0) {
		uint64_t len;

		if (!scrub_block(scrub)) {
			scrub->done = true;
			kvp_info(scrub->node->cfg.log,
				"%" PRIu64 " recovered blocks verified, %" PRIu64 " dropped",
				scrub->blocks, scrub->bad);
			return;
		}
		len = kvp_entry_len(&scrub->entry) - scrub->off;
		len = len < scrub->credit ? len : scrub->credit;
		kvp_sum_update(scrub->sum,
			(const uint8_t *)scrub->node->cfg.arena + scrub->entry.off + scrub->off,
			len);
		scrub->off += len;
		scrub->credit -= len;
		kvp_metric_add(scrub->node->cfg.metrics, KVP_NODE_SCRUBBED, len);
		if (scrub->off == kvp_entry_len(&scrub->entry)) {
			scrub_verdict(scrub, now_ns);
		}
	}
}
