/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssd.c - the life of the SSD tier: opened, its tables read, its turns, tables and flushes, what
 * happens when the disk fails. Blocks out are in ssd_write.c, blocks in in ssd_stage.c.
 */
#include "hal/base/assert.h"
#include "hal/os/file.h"
#include "pool/node/announce.h"
#include "pool/node/ssd_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SSD_SLOT_BYTES   65536u /* of a segment an entry, unless cfg.slots says how many */
#define SSD_POLL_MAX     32u    /* completions before others have their turn */
#define SSD_TURNS_MAX    4u
#define SSD_PAUSE_MIN_NS (500 * KVP_NS_PER_MS)
#define SSD_PAUSE_MAX_NS (60 * KVP_NS_PER_S)
#define SSD_CLOSE_POLLS  100 /* of 10 ms each */

/* --- geometry ------------------------------------------------------------------------------------
 */

static uint32_t
cfg_entries(const struct kvp_ssd_cfg *cfg)
{
	uint64_t files = cfg->size / cfg->segment;
	uint64_t slots = cfg->slots != 0 ? cfg->slots : cfg->size / SSD_SLOT_BYTES;
	uint64_t entries = (slots + files - 1) / files;

	entries = (entries + KVP_TIER_PAGE_ENTRIES - 1) / KVP_TIER_PAGE_ENTRIES;
	return (uint32_t)(entries == 0 ? 1 : entries) * KVP_TIER_PAGE_ENTRIES;
}

const char *
kvp_ssd_cfg_problem(const struct kvp_ssd_cfg *cfg)
{
	uint64_t files;

	if (cfg->segment == 0 || cfg->segment % KVP_BLOCK_ALIGN != 0) {
		return "ssd.segment: must be a multiple of 4KiB";
	}
	files = cfg->size / cfg->segment;
	if (files < 2 || files > KVP_TIER_SEGMENTS_MAX) {
		return "ssd.size: must be 2 to 64 times ssd.segment";
	}
	if (kvp_tier_meta_len(cfg_entries(cfg)) > cfg->segment / 2) {
		return "ssd.slots: their table would take more than half of the segments";
	}
	if (cfg->io_max == 0 || cfg->io_max % KVP_BLK_ALIGN != 0) {
		return "ssd.io_max: must be a multiple of 4KiB";
	}
	return NULL;
}

uint32_t
kvp_ssd_slots(const struct kvp_ssd_cfg *cfg)
{
	return (uint32_t)(cfg->size / cfg->segment) * cfg_entries(cfg);
}

/* --- small things --------------------------------------------------------------------------------
 */

void
kvp_ssd_kick(struct kvp_ssd *ssd)
{
	struct kvp_rpc *rpc = ssd->node->cfg.rpc;

	if (!ssd->kicked && !ssd->closing) {
		ssd->kicked = true;
		rpc->ops->timer_start(rpc, &ssd->timer, 0);
	}
}

int
kvp_ssd_post(struct kvp_ssd *ssd, struct kvp_blk_io *io)
{
	int err = kvp_blk_post(ssd->blk, &io, 1);

	kvp_assert(err == 0 || err == -EAGAIN);
	return err;
}

void
kvp_ssd_sum(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	uint64_t off, uint64_t len, uint8_t ret_sum[KVP_SUM_LEN])
{
	kvp_sum_begin(ssd->sum, ns, key, len);
	kvp_sum_update(ssd->sum, (const uint8_t *)ssd->node->cfg.arena + off, len);
	kvp_sum_end(ssd->sum, ret_sum);
}

/* The longer it was well, the shorter the pause. */
static void
ssd_pause(struct kvp_ssd *ssd)
{
	uint64_t now_ns = kvp_node_now(ssd->node);

	if (ssd->pause_ns == 0 || now_ns - ssd->probe_ns > SSD_PAUSE_MAX_NS) {
		ssd->pause_ns = SSD_PAUSE_MIN_NS;
	} else if (ssd->pause_ns < SSD_PAUSE_MAX_NS) {
		ssd->pause_ns *= 2;
	}
	ssd->probe_ns = now_ns + ssd->pause_ns;
}

void
kvp_ssd_degrade(struct kvp_ssd *ssd, int why)
{
	if (!ssd->writing && !ssd->probing) {
		return;
	}
	if (ssd->writing) {
		ssd->counts.degraded++;
		kvp_warn(ssd->node->cfg.log,
			"ssd %s: writing failed: %s; blocks are only read from it until writing "
			"works again, which is tried by itself",
			ssd->path, kvp_err_str(why));
	}
	ssd->writing = false;
	ssd->probing = false;
	ssd_pause(ssd);
	kvp_ssd_write_drop(ssd);
}

/* --- tables and flushes --------------------------------------------------------------------------
 */

static void
flush_done(struct kvp_blk_io *io)
{
	struct kvp_ssd *ssd = kvp_container_of(io, struct kvp_ssd, flush_io);

	ssd->flush_posted = false;
	if (ssd->closing) {
		return;
	}
	if (io->status < 0) {
		/* Nothing since the last good flush is safe: what the tables say is written anew,
		 * and a block that did not come to be shows by its checksum. */
		ssd->counts.write_errors++;
		ssd->unflushed |= ssd->flushing;
		ssd->flushing = 0;
		kvp_tier_lost(ssd->tier, io->file);
		kvp_ssd_degrade(ssd, io->status);
		return;
	}
	ssd->flushing &= ~(1ull << io->file);
	if (ssd->probing) {
		ssd->probing = false;
		ssd->writing = true;
		kvp_info(ssd->node->cfg.log, "ssd %s: writing works again", ssd->path);
	}
}

static void
flush_pump(struct kvp_ssd *ssd)
{
	uint64_t now_ns = kvp_node_now(ssd->node);

	if (ssd->flush_posted || (!ssd->writing && !ssd->probing)) {
		return;
	}
	if (ssd->flushing == 0) {
		if (ssd->unflushed == 0 ||
			(!ssd->probing &&
				now_ns - ssd->flush_ns < ssd->cfg.flush_ms * KVP_NS_PER_MS)) {
			return;
		}
		ssd->flushing = ssd->unflushed;
		ssd->unflushed = 0;
		ssd->flush_ns = now_ns;
	}
	ssd->flush_io = (struct kvp_blk_io){
		.done = flush_done,
		.op = KVP_BLK_FLUSH,
		.file = (uint32_t)__builtin_ctzll(ssd->flushing),
		.buf = KVP_BLK_BUF_NONE,
	};
	ssd->flush_posted = kvp_ssd_post(ssd, &ssd->flush_io) == 0;
}

static void
page_done(struct kvp_blk_io *io)
{
	struct kvp_ssd *ssd = kvp_container_of(io, struct kvp_ssd, page_io);

	ssd->page_posted = false;
	kvp_tier_page_end(ssd->tier, &ssd->page, io->status == 0);
	if (io->status == 0) {
		ssd->unflushed |= 1ull << io->file;
	} else if (!ssd->closing) {
		ssd->counts.write_errors++;
		kvp_ssd_degrade(ssd, io->status);
	}
}

static void
page_pump(struct kvp_ssd *ssd)
{
	if (ssd->page_posted || (!ssd->writing && !ssd->probing) ||
		!kvp_tier_page_next(ssd->tier, ssd->page_buf, &ssd->page)) {
		return;
	}
	ssd->page_io = (struct kvp_blk_io){
		.done = page_done,
		.op = KVP_BLK_WRITE,
		.file = ssd->page.segment,
		.buf = KVP_BLK_BUF_NONE,
		.addr = ssd->page_buf,
		.off = ssd->page.off,
		.len = KVP_TIER_PAGE_LEN,
	};
	ssd->page_posted = kvp_ssd_post(ssd, &ssd->page_io) == 0;
	if (!ssd->page_posted) {
		kvp_tier_page_end(ssd->tier, &ssd->page, false);
	}
}

/* --- loading -------------------------------------------------------------------------------------
 */

static void
load_end(struct kvp_ssd *ssd)
{
	struct kvp_tier_stats stats;

	free(ssd->load_buf);
	ssd->load_buf = NULL;
	kvp_tier_loaded(ssd->tier);
	kvp_tier_stats(ssd->tier, &stats);
	ssd->state = KVP_SSD_SERVING;
	ssd->writing = true;
	ssd->flush_ns = kvp_node_now(ssd->node);
	kvp_info(ssd->node->cfg.log,
		"ssd %s: %u segments of %" PRIu64 " bytes by %s; %" PRIu64
		" blocks recovered, %" PRIu64
		" damaged entries or segments passed over, in %" PRIu64 " ms",
		ssd->path, ssd->segments, ssd->cfg.segment, ssd->engine, stats.blocks,
		stats.damaged,
		(uint64_t)((kvp_node_now(ssd->node) - ssd->load_begin_ns) / KVP_NS_PER_MS));
}

static void load_post(struct kvp_ssd *ssd);

static void
load_done(struct kvp_blk_io *io)
{
	struct kvp_ssd *ssd = kvp_container_of(io, struct kvp_ssd, load_io);
	int err = io->status;

	if (ssd->closing) {
		return;
	}
	if (err < 0) {
		ssd->counts.read_errors++;
	} else {
		err = kvp_tier_load(ssd->tier, io->file, ssd->load_buf);
	}
	if (err < 0 && err != -ENOENT) {
		kvp_warn(ssd->node->cfg.log, "ssd %s: segment %u is emptied: %s", ssd->path,
			io->file,
			err == -KVP_E_IN_USE
				? "it is another node's, or of another geometry or version"
				: kvp_err_str(err));
	}
	ssd->load_segment++;
	load_post(ssd);
}

static void
load_post(struct kvp_ssd *ssd)
{
	if (ssd->load_segment == ssd->segments) {
		load_end(ssd);
		return;
	}
	ssd->load_io = (struct kvp_blk_io){
		.done = load_done,
		.op = KVP_BLK_READ,
		.file = ssd->load_segment,
		.buf = KVP_BLK_BUF_NONE,
		.addr = ssd->load_buf,
		.len = kvp_tier_meta_len(ssd->entries),
	};
	kvp_assert(kvp_ssd_post(ssd, &ssd->load_io) == 0); /* nothing else is posted yet */
}

/* --- opening -------------------------------------------------------------------------------------
 */

static void
ssd_file_path(const struct kvp_ssd *ssd, uint32_t idx, char ret_path[PATH_MAX])
{
	(void)snprintf(ret_path, PATH_MAX, "%.4000s/segment-%04u", ssd->path, idx);
}

/* Makes the folder and locks it, unless that is done. */
static int
ssd_lock(struct kvp_ssd *ssd)
{
	char path[PATH_MAX];
	pid_t pid = 0;
	int err;

	if (ssd->lock_fd >= 0) {
		return 0;
	}
	err = kvp_dir_make(ssd->path, 0750);
	if (err < 0) {
		return err;
	}
	(void)snprintf(path, sizeof(path), "%.4000s/lock", ssd->path);
	err = kvp_file_lock(path, &ssd->lock_fd, &pid);
	if (err < 0) {
		ssd->lock_fd = -1;
	}
	if (err == -KVP_E_IN_USE) {
		kvp_error(ssd->node->cfg.log, "ssd.path %s is in use by process %ld", ssd->path,
			(long)pid);
	}
	return err;
}

/* How many segments the file system has room for, above the floor. */
static int
ssd_room(const struct kvp_ssd *ssd, uint32_t *ret_segments)
{
	struct statvfs fs;
	uint64_t room;
	uint32_t i;

	if (statvfs(ssd->path, &fs) < 0) {
		return -errno;
	}
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	room = room > ssd->cfg.free_floor ? room - ssd->cfg.free_floor : 0;
	for (i = 0; i < ssd->files; i++) {
		char path[PATH_MAX];
		struct stat st;
		uint64_t need = ssd->cfg.segment;

		ssd_file_path(ssd, i, path);
		if (stat(path, &st) == 0) {
			uint64_t have = (uint64_t)st.st_blocks * 512;

			need = have < need ? need - have : 0;
		}
		if (need > room) {
			break;
		}
		room -= need;
	}
	*ret_segments = i;
	return i < 2 ? -ENOSPC : 0;
}

static int
ssd_open_blk(struct kvp_ssd *ssd)
{
	struct kvp_node *node = ssd->node;
	struct kvp_blk_file files[KVP_BLK_FILES_MAX] = {0};
	char why[KVP_BLK_WHY_LEN];
	struct kvp_blk_cfg cfg = {
		.env = node->cfg.env,
		.log = node->cfg.log,
		.engine = ssd->engine,
		.ops = ssd->cfg.ops,
		.ops_arg = ssd->cfg.ops_arg,
		.files = files,
		.file_count = ssd->segments,
		.create = true,
		.io_max = ssd->cfg.io_max,
		.bytes_max = (uint64_t)KVP_SSD_REQUESTS * ssd->cfg.io_max,
		.depth = 2 * KVP_SSD_REQUESTS,
		.queue_max = KVP_SSD_WRITES_MAX + KVP_SSD_FLIGHTS_MAX,
		.why = why,
	};
	char(*paths)[PATH_MAX] = malloc(ssd->segments * sizeof(*paths));
	int err;

	if (paths == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < ssd->segments; i++) {
		ssd_file_path(ssd, i, paths[i]);
		files[i].path = paths[i];
		files[i].bytes = ssd->cfg.segment;
	}
	err = kvp_blk_open(&cfg, &ssd->blk);
	free(paths);
	if (err == 0 && kvp_blk_buf_reg(ssd->blk, node->cfg.arena, node->cfg.arena_len,
				&ssd->arena_buf) < 0) {
		ssd->arena_buf = KVP_BLK_BUF_NONE;
	}
	return err;
}

static int
ssd_open_tier(struct kvp_ssd *ssd)
{
	const struct kvp_node *node = ssd->node;
	struct kvp_tier_cfg cfg = {
		.incarnation = (uint32_t)(node->cfg.self.incarnation & 0xfffffu),
		.segments = ssd->segments,
		.segment_len = ssd->cfg.segment,
		.entries = ssd->entries,
		.slot_base = node->cfg.slots_max,
		.event = kvp_announce_event,
		.arg = ssd->node,
	};

	memcpy(cfg.node, node->cfg.self.id, sizeof(cfg.node));
	node->cfg.env->random(node->cfg.env, &cfg.seed, sizeof(cfg.seed));
	return kvp_tier_open(&cfg, &ssd->tier);
}

static void
ssd_shut(struct kvp_ssd *ssd)
{
	struct kvp_blk_stats stats;

	if (ssd->blk != NULL) {
		kvp_blk_stats(ssd->blk, &stats);
		ssd->counts.read_bytes += stats.read_bytes;
		ssd->counts.write_bytes += stats.write_bytes;
	}
	kvp_blk_close(ssd->blk);
	ssd->blk = NULL;
	kvp_ssd_stage_end(ssd);
	kvp_tier_close(ssd->tier);
	ssd->tier = NULL;
	free(ssd->load_buf);
	ssd->load_buf = NULL;
	ssd->state = KVP_SSD_OFF;
}

/* OFF -> LOADING, or a pause. */
static void
ssd_start(struct kvp_ssd *ssd)
{
	int err = ssd_lock(ssd);

	err = err < 0 ? err : ssd_room(ssd, &ssd->segments);
	err = err < 0 ? err : ssd_open_blk(ssd);
	err = err < 0 ? err : ssd_open_tier(ssd);
	if (err == 0) {
		ssd->load_buf = aligned_alloc(KVP_BLK_ALIGN, kvp_tier_meta_len(ssd->entries));
		err = ssd->load_buf == NULL ? -ENOMEM : 0;
	}
	if (err < 0) {
		ssd_shut(ssd);
		ssd_pause(ssd);
		if (err != ssd->why) {
			kvp_warn(ssd->node->cfg.log,
				"ssd %s cannot be used: %s%s; it is tried again by itself",
				ssd->path, kvp_err_str(err),
				err == -ENOSPC ? " for two segments above ssd.free_floor" : "");
		}
		ssd->why = err;
		return;
	}
	if (ssd->segments < ssd->files) {
		kvp_warn(ssd->node->cfg.log,
			"ssd %s: room for %u segments above ssd.free_floor, not for %u; free space "
			"and start again to use all of ssd.size",
			ssd->path, ssd->segments, ssd->files);
	}
	ssd->why = 0;
	ssd->state = KVP_SSD_LOADING;
	ssd->load_segment = 0;
	ssd->load_begin_ns = kvp_node_now(ssd->node);
	load_post(ssd);
	kvp_ssd_kick(ssd);
}

/* --- turns ---------------------------------------------------------------------------------------
 */

/* Sleeps until the device has something. */
static void
ssd_arm(struct kvp_ssd *ssd)
{
	struct kvp_rpc *rpc = ssd->node->cfg.rpc;
	int fd = kvp_blk_wait_fd(ssd->blk);

	if (fd < 0) {
		kvp_ssd_kick(ssd);
	} else if (!ssd->armed) {
		ssd->armed =
			rpc->ops->watch_start(rpc, &ssd->watch, fd) == 0; /* else the tick comes */
	}
}

static void
ssd_turn(struct kvp_ssd *ssd)
{
	bool more = true;

	for (uint32_t i = 0; more && i < SSD_TURNS_MAX; i++) {
		more = kvp_blk_poll(ssd->blk, SSD_POLL_MAX) > 0;
		if (ssd->state != KVP_SSD_SERVING) {
			continue;
		}
		more = kvp_tier_turn(ssd->tier) || more;
		page_pump(ssd);
		flush_pump(ssd);
		kvp_ssd_stage_pump(ssd);
		kvp_ssd_write_pump(ssd);
	}
	kvp_announce_flush(ssd->node->announce);
	if (more) {
		kvp_ssd_kick(ssd);
	} else {
		ssd_arm(ssd);
	}
}

static void
ssd_timer(struct kvp_rpc_timer *timer)
{
	struct kvp_ssd *ssd = kvp_container_of(timer, struct kvp_ssd, timer);

	ssd->kicked = false;
	if (ssd->blk != NULL) {
		ssd_turn(ssd);
	}
}

static void
ssd_ready(struct kvp_rpc_watch *watch)
{
	struct kvp_ssd *ssd = kvp_container_of(watch, struct kvp_ssd, watch);

	ssd->armed = false;
	ssd_turn(ssd);
}

void
kvp_ssd_tick(struct kvp_ssd *ssd, uint64_t now_ns)
{
	if (ssd->state == KVP_SSD_OFF) {
		if (now_ns >= ssd->probe_ns) {
			ssd_start(ssd);
		}
		return;
	}
	if (ssd->state == KVP_SSD_SERVING && !ssd->writing && !ssd->probing &&
		now_ns >= ssd->probe_ns) {
		ssd->probing = true;
		kvp_tier_probe(ssd->tier);
	}
	ssd_turn(ssd);
}

/* --- life ----------------------------------------------------------------------------------------
 */

int
kvp_ssd_open(struct kvp_node *node, const struct kvp_ssd_cfg *cfg, struct kvp_ssd **ret_ssd)
{
	struct kvp_ssd *ssd = calloc(1, sizeof(*ssd));
	int err;

	if (ssd == NULL) {
		return -ENOMEM;
	}
	ssd->node = node;
	ssd->cfg = *cfg;
	ssd->lock_fd = -1;
	ssd->files = (uint32_t)(cfg->size / cfg->segment);
	ssd->entries = cfg_entries(cfg);
	ssd->watch.fn = ssd_ready;
	ssd->timer.fn = ssd_timer;
	(void)snprintf(ssd->path, sizeof(ssd->path), "%s", cfg->path);
	(void)snprintf(
		ssd->engine, sizeof(ssd->engine), "%s", cfg->engine != NULL ? cfg->engine : "auto");
	ssd->page_buf = aligned_alloc(KVP_BLK_ALIGN, KVP_TIER_PAGE_LEN);
	err = kvp_ssd_write_init(ssd);
	err = err < 0 ? err : kvp_ssd_stage_init(ssd);
	err = err < 0 ? err : ssd->page_buf == NULL ? -ENOMEM : 0;
	if (err == 0 && ssd_lock(ssd) == -KVP_E_IN_USE) {
		err = -KVP_E_IN_USE; /* whatever else it met ssd_start() meets again, and tells */
	}
	if (err < 0) {
		kvp_ssd_close(ssd);
		return err;
	}
	*ret_ssd = ssd;
	node->ssd = ssd;
	ssd_start(ssd);
	return 0;
}

/* What the tables should say goes out, and what is being written ends. */
static void
ssd_drain(struct kvp_ssd *ssd)
{
	for (int i = 0; i < SSD_CLOSE_POLLS && ssd->writing; i++) {
		struct pollfd pfd = {.events = POLLIN};

		page_pump(ssd);
		if (!ssd->page_posted && ssd->write_posted == 0) {
			return;
		}
		pfd.fd = kvp_blk_wait_fd(ssd->blk);
		if (pfd.fd >= 0) {
			(void)poll(&pfd, 1, 10); /* too late or interrupted: the loop goes on */
		}
		(void)kvp_blk_poll(ssd->blk, UINT32_MAX);
	}
}

void
kvp_ssd_close(struct kvp_ssd *ssd)
{
	struct kvp_rpc *rpc;

	if (ssd == NULL) {
		return;
	}
	rpc = ssd->node->cfg.rpc;
	ssd->closing = true;
	if (ssd->blk != NULL) {
		rpc->ops->watch_stop(rpc, &ssd->watch);
	}
	rpc->ops->timer_stop(rpc, &ssd->timer);
	if (ssd->state == KVP_SSD_SERVING) {
		kvp_ssd_write_drop(ssd);
		ssd_drain(ssd);
	}
	if (ssd->flights != NULL) {
		ssd_shut(ssd);
	}
	if (ssd->lock_fd >= 0) {
		(void)close(ssd->lock_fd);
	}
	kvp_sum_free(ssd->sum);
	free(ssd->flights);
	free(ssd->writes);
	free(ssd->page_buf);
	free(ssd);
}

int
kvp_ssd_delete(struct kvp_ssd *ssd, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key)
{
	if (ssd->state != KVP_SSD_SERVING) {
		return -KVP_E_NOKEY;
	}
	kvp_ssd_write_forget(ssd, ns, key);
	kvp_ssd_kick(ssd);
	return kvp_tier_delete(ssd->tier, ns, key);
}

bool
kvp_ssd_next(const struct kvp_ssd *ssd, uint32_t *cursor, struct kvp_store_event *ret_event,
	struct kvp_key *ret_key)
{
	return ssd->tier != NULL && kvp_tier_next(ssd->tier, cursor, ret_event, ret_key);
}

uint64_t
kvp_ssd_blocks(const struct kvp_ssd *ssd)
{
	struct kvp_tier_stats stats = {0};

	if (ssd->tier != NULL) {
		kvp_tier_stats(ssd->tier, &stats);
	}
	return stats.blocks;
}

void
kvp_ssd_uncount(const struct kvp_ssd *ssd, struct kvp_store_stats *stats)
{
	stats->puts -= ssd->counts.staged;
	stats->exists -= ssd->counts.offer_exists;
	stats->in_progress -= ssd->counts.offer_in_progress;
	stats->no_space -= ssd->counts.offer_no_space;
	stats->busy -= ssd->counts.offer_busy;
}

void
kvp_ssd_describe(const struct kvp_ssd *ssd, char *buf, size_t cap)
{
	static const char *const names[] = {"off", "loading", "serving"};
	bool degraded = ssd->state == KVP_SSD_SERVING && !ssd->writing;

	(void)snprintf(buf, cap, "%s%s%s%s, %u segments of %" PRIu64 " in %.200s",
		names[ssd->state], degraded ? ", not writing" : "", ssd->why != 0 ? ": " : "",
		ssd->why != 0 ? kvp_err_str(ssd->why) : "", ssd->segments, ssd->cfg.segment,
		ssd->path);
}

void
kvp_ssd_metrics(const struct kvp_ssd *ssd)
{
	struct kvp_metrics *metrics = ssd->node->cfg.metrics;
	const struct kvp_ssd_counts *counts = &ssd->counts;
	struct kvp_tier_stats tier = {0};
	struct kvp_blk_stats blk = {0};

	if (ssd->tier != NULL) {
		kvp_tier_stats(ssd->tier, &tier);
	}
	if (ssd->blk != NULL) {
		kvp_blk_stats(ssd->blk, &blk);
	}
	kvp_metric_set(metrics, KVP_NODE_SSD_BYTES_TOTAL, ssd->segments * ssd->cfg.segment);
	kvp_metric_set(metrics, KVP_NODE_SSD_BYTES_USED, tier.bytes_used);
	kvp_metric_set(metrics, KVP_NODE_SSD_BLOCKS, tier.blocks);
	kvp_metric_set(metrics, KVP_NODE_SSD_SERVING, ssd->state == KVP_SSD_SERVING);
	kvp_metric_set(metrics, KVP_NODE_SSD_WRITING, ssd->writing);
	kvp_metric_set(metrics, KVP_NODE_SSD_QUEUED, ssd->write_bytes);
	kvp_metric_set(metrics, KVP_NODE_SSD_WRITES, counts->writes);
	kvp_metric_set(metrics, KVP_NODE_SSD_WRITTEN, counts->write_bytes + blk.write_bytes);
	kvp_metric_set(metrics, KVP_NODE_SSD_DROPPED_FULL, counts->dropped_full);
	kvp_metric_set(metrics, KVP_NODE_SSD_DROPPED_OFF, counts->dropped_off);
	kvp_metric_set(metrics, KVP_NODE_SSD_DROPPED_ERROR, counts->dropped_error);
	kvp_metric_set(metrics, KVP_NODE_SSD_DROPPED_UNUSED, counts->dropped_unused);
	kvp_metric_set(metrics, KVP_NODE_SSD_HASHED, counts->hashed);
	kvp_metric_set(metrics, KVP_NODE_SSD_READ, counts->read_bytes + blk.read_bytes);
	kvp_metric_set(metrics, KVP_NODE_SSD_STAGED, counts->staged);
	kvp_metric_set(metrics, KVP_NODE_SSD_STAGE_DRAM, counts->stage_dram);
	kvp_metric_set(metrics, KVP_NODE_SSD_STAGE_MISS, counts->stage_miss);
	kvp_metric_set(metrics, KVP_NODE_SSD_STAGE_BUSY, counts->stage_busy);
	kvp_metric_set(metrics, KVP_NODE_SSD_BAD_SUMS, counts->bad_sums);
	kvp_metric_set(metrics, KVP_NODE_SSD_READ_ERRORS, counts->read_errors);
	kvp_metric_set(metrics, KVP_NODE_SSD_WRITE_ERRORS, counts->write_errors);
	kvp_metric_set(metrics, KVP_NODE_SSD_DEGRADED, counts->degraded);
	kvp_metric_set(metrics, KVP_NODE_SSD_EVICTED, tier.evicted);
	kvp_metric_set(metrics, KVP_NODE_SSD_RECOVERED, tier.recovered);
	kvp_metric_set(metrics, KVP_NODE_SSD_DAMAGED, tier.damaged);
}
