/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd_write.c - blocks on their way to the SSD: asked for by the store, queued with their slot
 * pinned, written, let go. What cannot be queued is dropped and counted.
 */
#include "hal/base/assert.h"
#include "pool/node/ssd_impl.h"

#include <errno.h>
#include <stdlib.h>

static const uint8_t unhashed[KVP_SUM_LEN];

static struct kvp_key
slot_key(const struct kvp_slot_entry *entry)
{
	struct kvp_key key = {.len = kvp_entry_klen(entry)};

	memcpy(key.bytes, entry->key, sizeof(key.bytes));
	return key;
}

/* The block is no longer on its way: written says whether it is there. */
static void
write_end(struct kvp_ssd_write *write, bool written)
{
	struct kvp_ssd *ssd = write->ssd;

	if (write->place != KVP_TIER_NONE) {
		kvp_tier_write_end(ssd->tier, write->place, written);
	}
	ssd->write_bytes -= write->len;
	kvp_list_remove(&write->link);
	kvp_list_push_back(&ssd->write_spare, &write->link);
	kvp_store_unpin(ssd->node->store, write->slot);
}

static void
write_done(struct kvp_blk_io *io)
{
	struct kvp_ssd_write *write = kvp_container_of(io, struct kvp_ssd_write, io);
	struct kvp_ssd *ssd = write->ssd;

	ssd->write_posted -= write->len;
	if (io->status == 0) {
		ssd->counts.writes++;
		ssd->unflushed |= 1ull << io->file;
	} else if (!ssd->closing) {
		ssd->counts.write_errors++;
		ssd->counts.dropped_error++;
	}
	write_end(write, io->status == 0);
	if (io->status < 0 && !ssd->closing) {
		kvp_ssd_degrade(ssd, io->status);
	}
}

/* Gives the block a place if it has none. 0; -EAGAIN: none yet; else it need not be written. */
static int
write_place(struct kvp_ssd_write *write)
{
	struct kvp_ssd *ssd = write->ssd;
	const struct kvp_slot_entry *entry = &ssd->node->cfg.table[write->slot];
	struct kvp_key key = slot_key(entry);

	if (write->place != KVP_TIER_NONE) {
		return 0;
	}
	return kvp_tier_write_begin(
		ssd->tier, entry->ns, &key, kvp_entry_len(entry), entry->sum, &write->place);
}

/* Posts a block that has a place. -EAGAIN; -ENOENT: it was deleted meanwhile. */
static int
write_post(struct kvp_ssd_write *write)
{
	struct kvp_ssd *ssd = write->ssd;
	const struct kvp_slot_entry *entry = &ssd->node->cfg.table[write->slot];
	struct kvp_tier_place place;

	if (!kvp_tier_place(ssd->tier, write->place, &place)) {
		return -ENOENT;
	}
	if (memcmp(place.sum, unhashed, sizeof(unhashed)) == 0) {
		struct kvp_key key = slot_key(entry);

		kvp_ssd_sum(ssd, entry->ns, &key, entry->off, place.len, place.sum);
		kvp_tier_sum(ssd->tier, write->place, place.sum);
		ssd->counts.hashed++;
	}
	write->io = (struct kvp_blk_io){
		.done = write_done,
		.op = KVP_BLK_WRITE,
		.file = place.segment,
		.buf = ssd->arena_buf,
		.addr = (uint8_t *)ssd->node->cfg.arena + entry->off,
		.off = place.off,
		.len = write->len,
	};
	return kvp_ssd_post(ssd, &write->io);
}

void
kvp_ssd_write_pump(struct kvp_ssd *ssd)
{
	uint64_t window = (uint64_t)KVP_SSD_REQUESTS / 2 * ssd->cfg.io_max;

	while (ssd->writing && !kvp_list_empty(&ssd->write_queue) && ssd->write_posted < window) {
		struct kvp_ssd_write *write =
			kvp_container_of(ssd->write_queue.next, struct kvp_ssd_write, link);
		int err = write_place(write);

		err = err < 0 ? err : write_post(write);
		if (err == -EAGAIN) {
			return;
		}
		if (err < 0) {
			ssd->counts.dropped_full += err != -KVP_E_EXISTS && err != -ENOENT;
			write_end(write, false);
			continue;
		}
		kvp_list_remove(&write->link);
		ssd->write_posted += write->len;
	}
}

void
kvp_ssd_write_drop(struct kvp_ssd *ssd)
{
	while (!kvp_list_empty(&ssd->write_queue)) {
		ssd->counts.dropped_off++;
		write_end(
			kvp_container_of(ssd->write_queue.next, struct kvp_ssd_write, link), false);
	}
}

void
kvp_ssd_write_forget(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	kvp_list_for_each_safe (pos, &ssd->write_queue) {
		struct kvp_ssd_write *write = kvp_container_of(pos, struct kvp_ssd_write, link);
		const struct kvp_slot_entry *entry = &ssd->node->cfg.table[write->slot];
		struct kvp_key have = slot_key(entry);

		if (write->place == KVP_TIER_NONE && memcmp(entry->ns, ns, KVP_NS_LEN) == 0 &&
			kvp_key_equal(&have, key)) {
			write_end(write, false);
		}
	}
}

/* Is it to be written at all, now? Counts why not. */
static bool
spill_wanted(struct kvp_ssd *ssd, enum kvp_spill why, bool used)
{
	if (why == KVP_SPILL_COMMIT && ssd->cfg.policy != KVP_SSD_THROUGH) {
		return false;
	}
	if (ssd->cfg.policy == KVP_SSD_SECOND_USE && !used) {
		ssd->counts.dropped_unused++;
		return false;
	}
	if (ssd->state != KVP_SSD_SERVING || !ssd->writing) {
		ssd->counts.dropped_off++;
		return false;
	}
	return true;
}

bool
kvp_ssd_spill(void *arg, uint32_t slot, enum kvp_spill why, bool used)
{
	struct kvp_node *node = arg;
	struct kvp_ssd *ssd = node->ssd;
	const struct kvp_slot_entry *entry = &node->cfg.table[slot];
	struct kvp_key key = slot_key(entry);
	uint64_t len = kvp_ssd_rounded(kvp_entry_len(entry));
	struct kvp_ssd_write *write;
	struct kvp_tier_place place;
	uint32_t at;
	int err;

	if (ssd == NULL) {
		return false;
	}
	at = ssd->state == KVP_SSD_SERVING ? kvp_tier_find(ssd->tier, entry->ns, &key)
					   : KVP_TIER_NONE;
	if (at != KVP_TIER_NONE && kvp_tier_place(ssd->tier, at, &place) &&
		place.len == kvp_entry_len(entry)) {
		return false; /* it is there already */
	}
	if (!spill_wanted(ssd, why, used)) {
		return false;
	}
	if (kvp_list_empty(&ssd->write_spare) || ssd->write_bytes + len > ssd->cfg.inflight) {
		ssd->counts.dropped_full++;
		return false;
	}
	write = kvp_container_of(kvp_list_pop_front(&ssd->write_spare), struct kvp_ssd_write, link);
	write->slot = slot;
	write->place = KVP_TIER_NONE;
	write->len = len;
	err = write_place(write); /* now, so that the metas never miss it */
	if (err < 0 && err != -EAGAIN) {
		ssd->counts.dropped_full++;
		kvp_list_push_back(&ssd->write_spare, &write->link);
		return false;
	}
	ssd->write_bytes += len;
	kvp_list_push_back(&ssd->write_queue, &write->link);
	kvp_ssd_kick(ssd);
	return true;
}

int
kvp_ssd_write_init(struct kvp_ssd *ssd)
{
	kvp_list_init(&ssd->write_spare);
	kvp_list_init(&ssd->write_queue);
	ssd->writes = calloc(KVP_SSD_WRITES_MAX, sizeof(*ssd->writes));
	if (ssd->writes == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < KVP_SSD_WRITES_MAX; i++) {
		ssd->writes[i].ssd = ssd;
		kvp_list_push_back(&ssd->write_spare, &ssd->writes[i].link);
	}
	return 0;
}
