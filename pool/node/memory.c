// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - see memory.h. The lock stands beside what it guards: two processes that could take
 * each other's objects see the same /dev/shm, whatever their data directories are. A dying process
 * lets its lock go before all else of it has gone, so the head's owner is waited for as well.
 */
#include "pool/node/memory.h"

#include "hal/base/err.h"
#include "hal/mem/mlock.h"
#include "hal/os/file.h"
#include "hal/os/host.h"
#include "hal/os/process.h"
#include "transport/proto/slot.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_WAIT_MS 10000u /* for the end of the process that owned it */

static int
memory_lock(struct kvp_memory *memory, const struct kvp_log *log)
{
	pid_t pid = 0;
	int err;

	(void)snprintf(memory->lock_path, sizeof(memory->lock_path), "/dev/shm/kvpool-%s-lock",
		memory->name);
	err = kvp_file_lock(memory->lock_path, &memory->lock_fd, &pid);
	if (err == -KVP_E_IN_USE) {
		kvp_error(log, "name %s is in use on this host by process %d: set another name",
			memory->name, (int)pid);
	} else if (err < 0) {
		kvp_error(log, "lock %s of the name %s cannot be taken: %s", memory->lock_path,
			memory->name, kvp_err_str(err));
	}
	if (err < 0) {
		memory->lock_fd = -1;
	}
	return err;
}

static void
memory_object(const char *name, const char *what, char object[64])
{
	(void)snprintf(object, 64, "kvpool-%s-%s", name, what);
}

static void
memory_log_why(const struct kvp_log *log, enum kvp_log_level level, const struct kvp_mem_got *got)
{
	for (unsigned i = 0; i < got->why.count; i++) {
		KVP_LOG_AT(log, level, "%s", got->why.line[i]);
	}
}

/* --- what an earlier process left ----------------------------------------------------------------
 */

static int
memory_open_object(const char *name, const char *what, size_t len, const struct kvp_mem_want *want,
	const struct kvp_log *log, struct kvp_mem *ret_mem)
{
	struct kvp_mem_got got;
	char object[64];
	int err;

	memory_object(name, what, object);
	err = kvp_mem_open_existing(object, len, want, ret_mem, &got);
	memory_log_why(log, KVP_LOG_WARN, &got);
	return err;
}

/* Its lock has fallen, but its mappings and connections may live on for a moment. */
static int
memory_wait_owner(
	const struct kvp_memory_cfg *cfg, const struct kvp_head_info *info, const uint8_t *boot_id)
{
	struct kvp_process owner = {
		.start = info->owner_start, .ns = info->owner_ns, .pid = info->owner_pid};
	int err;

	if (memcmp(info->boot_id, boot_id, KVP_ID_LEN) != 0) {
		return 0; /* nobody of that time is left */
	}
	err = kvp_process_wait(&owner, MEMORY_WAIT_MS);
	if (err == -EXDEV) {
		kvp_info(cfg->log,
			"name %s: its last owner, process %" PRIu32 ", is of another pid "
			"namespace; its lock is free, so it is taken for gone",
			cfg->name, owner.pid);
		return 0;
	}
	if (err < 0) {
		kvp_error(cfg->log,
			"name %s is still in use by process %" PRIu32 ", which does not end (%s): "
			"end it, or set another name",
			cfg->name, owner.pid, kvp_err_str(err));
		return -KVP_E_IN_USE;
	}
	return 0;
}

/* Why the contents are of no use to this node, or NULL. */
static const char *
memory_misfit(const struct kvp_memory_cfg *cfg, const struct kvp_memory *memory,
	const struct kvp_head_info *info, const uint8_t *boot_id)
{
	if (memcmp(info->boot_id, boot_id, KVP_ID_LEN) != 0) {
		return "this host has booted since";
	}
	if (memcmp(info->node_id, cfg->node_id, KVP_ID_LEN) != 0) {
		return "they are another node's: data_dir is another one, or new";
	}
	if (info->incarnation >= cfg->incarnation) {
		return "they are from a later start than this: data_dir is an old copy";
	}
	if (info->asked_len != cfg->arena_len || info->slots != cfg->slots ||
		memory->head.len < kvp_head_len(cfg->slots)) {
		return "store.dram or store.slots is another one now";
	}
	return NULL;
}

static void
memory_detach(struct kvp_memory *memory)
{
	kvp_mem_detach(&memory->arena);
	kvp_mem_detach(&memory->table);
	kvp_mem_detach(&memory->head);
}

static int
memory_open_contents(const struct kvp_memory_cfg *cfg, const struct kvp_head_info *info,
	struct kvp_memory *memory)
{
	struct kvp_mem_want want = cfg->want;
	struct kvp_mem_want small = {0};
	int err;

	/* All of it is there: a start does not wait for its pages. */
	want.populate = false;
	want.lock = want.lock == KVP_MEM_REQUIRE ? KVP_MEM_REQUIRE : KVP_MEM_OFF;
	small.lock = want.lock;
	err = memory_open_object(
		cfg->name, "arena", (size_t)info->arena_len, &want, cfg->log, &memory->arena);
	if (err < 0 || memory->arena.len != info->arena_len) {
		return err < 0 ? err : -EINVAL;
	}
	return memory_open_object(cfg->name, "table", cfg->slots * sizeof(struct kvp_slot_entry),
		&small, cfg->log, &memory->table);
}

/* 0 with everything mapped. -ENOENT: there is nothing, or nothing of use; that was said. */
static int
memory_take_over(
	const struct kvp_memory_cfg *cfg, const uint8_t *boot_id, struct kvp_memory *memory)
{
	struct kvp_mem_want plain = {0};
	struct kvp_head_info info = {0};
	const char *misfit = NULL;
	char text[96];
	int err = memory_open_object(
		cfg->name, "head", kvp_head_len(0), &plain, cfg->log, &memory->head);

	if (err == -ENOENT) {
		return err;
	}
	err = err < 0 ? err : kvp_head_read(memory->head.base, &info);
	if (err == 0) {
		err = memory_wait_owner(cfg, &info, boot_id);
		if (err < 0) {
			memory_detach(memory);
			return err;
		}
		misfit = memory_misfit(cfg, memory, &info, boot_id);
		err = misfit != NULL ? -EINVAL : memory_open_contents(cfg, &info, memory);
	}
	if (err == -EINTR ||
		(cfg->want.lock == KVP_MEM_REQUIRE && (err == -EPERM || err == -ENOMEM))) {
		memory_detach(memory);
		return err;
	}
	if (err == 0) {
		kvp_info(cfg->log, "memory of the name %s is taken over from incarnation %" PRIu64,
			cfg->name, info.incarnation);
		return 0;
	}
	if (err == -KVP_E_VERSION) {
		(void)snprintf(text, sizeof(text), "their format is %" PRIu32 ", ours is %u",
			info.version, KVP_HEAD_VERSION);
		misfit = text;
	}
	kvp_warn(cfg->log, "contents of the memory of the name %s are dropped: %s", cfg->name,
		misfit != NULL ? misfit : kvp_err_str(err));
	memory_detach(memory);
	return -ENOENT;
}

/* --- new memory ----------------------------------------------------------------------------------
 */

/* The head first: without it the others are nothing. */
static void
memory_unlink(const char *name)
{
	static const char *const objects[] = {"head", "table", "arena"};

	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		char object[64];

		memory_object(name, objects[i], object);
		(void)kvp_mem_unlink(object); /* what stays is replaced, or that says why not */
	}
}

static void
memory_log_got(const struct kvp_log *log, const char *object, const struct kvp_mem_got *got)
{
	static const char *const kinds[] = {
		[KVP_MEM_SMALL] = "small pages",
		[KVP_MEM_THP] = "transparent huge pages",
		[KVP_MEM_HUGETLB] = "reserved huge pages",
	};
	char len[KVP_MEM_TEXT_LEN];

	kvp_info(log, "memory %s has %s of %s, %s, numa node %d", object, kinds[got->kind],
		kvp_mem_len_text(got->page_len, len), got->locked ? "locked" : "not locked",
		got->numa_node);
}

static int
memory_create_object(const struct kvp_memory_cfg *cfg, const char *what, uint64_t len,
	const struct kvp_mem_want *want, struct kvp_mem *ret_mem)
{
	char object[64];
	struct kvp_mem_cfg object_cfg = {.name = object, .len = len, .mode = 0600};
	struct kvp_mem_got got;
	int err;

	memory_object(cfg->name, what, object);
	err = kvp_mem_create_arena(&object_cfg, want, ret_mem, &got);
	memory_log_why(cfg->log, err < 0 ? KVP_LOG_ERROR : KVP_LOG_WARN, &got);
	if (err == 0 && want == &cfg->want) {
		memory_log_got(cfg->log, object, &got);
	} else if (err == -ENOSPC) {
		kvp_error(cfg->log,
			"%s of %" PRIu64 " bytes does not fit into /dev/shm or free memory: lower "
			"store.dram or store.slots, or remount /dev/shm with a larger size",
			what, len);
	} else if (err < 0) {
		kvp_error(cfg->log, "shared memory %s of %" PRIu64 " bytes: %s", object, len,
			kvp_err_str(err));
	}
	return err;
}

static int
memory_create(const struct kvp_memory_cfg *cfg, struct kvp_memory *memory)
{
	uint64_t table_len = (uint64_t)cfg->slots * sizeof(struct kvp_slot_entry);
	struct kvp_mem_want small = {.lock = cfg->want.lock};
	struct kvp_mem_want plain = {0};
	int err;

	memory_unlink(cfg->name);
	err = memory_create_object(cfg, "arena", cfg->arena_len, &cfg->want, &memory->arena);
	err = err < 0 ? err : memory_create_object(cfg, "table", table_len, &small, &memory->table);
	err = err < 0 ? err
		      : memory_create_object(
				cfg, "head", kvp_head_len(cfg->slots), &plain, &memory->head);
	return err;
}

static void
memory_close_mappings(struct kvp_memory *memory)
{
	kvp_mem_close(&memory->head);
	kvp_mem_close(&memory->table);
	kvp_mem_close(&memory->arena);
}

/* From here on the head says that it is ours. */
static int
memory_own(const struct kvp_memory_cfg *cfg, const uint8_t *boot_id, struct kvp_memory *memory)
{
	struct kvp_head_info info = {
		.slots = cfg->slots,
		.asked_len = cfg->arena_len,
		.arena_len = memory->arena.len,
		.incarnation = cfg->incarnation,
	};
	struct kvp_process self;
	int err = kvp_process_self(&self);

	if (err < 0) {
		kvp_error(cfg->log, "/proc cannot be read: %s; mount it", kvp_err_str(err));
		return err;
	}
	memcpy(info.node_id, cfg->node_id, KVP_ID_LEN);
	memcpy(info.boot_id, boot_id, KVP_ID_LEN);
	info.owner_pid = self.pid;
	info.owner_start = self.start;
	info.owner_ns = self.ns;
	kvp_head_write(memory->head.base, &info);
	return 0;
}

/* --- locking behind a start ----------------------------------------------------------------------
 */

static bool
locker_stops(void *arg)
{
	return atomic_load(&((struct kvp_memory *)arg)->locker_stop);
}

static void
locker_run(void *arg)
{
	struct kvp_memory *memory = arg;
	struct kvp_mem_why why = {0};
	int err = kvp_mlock_check(memory->arena.len + memory->table.len, &why);

	err = err < 0 ? err
		      : kvp_mlock(
				memory->table.base, memory->table.len, &why, locker_stops, memory);
	err = err < 0 ? err
		      : kvp_mlock(
				memory->arena.base, memory->arena.len, &why, locker_stops, memory);
	for (unsigned i = 0; i < why.count; i++) {
		kvp_warn(memory->log, "%s", why.line[i]);
	}
	if (err == 0) {
		kvp_info(memory->log, "memory of the name %s is locked", memory->name);
	}
}

int
kvp_memory_open(const struct kvp_memory_cfg *cfg, struct kvp_memory *memory)
{
	uint64_t begin_ns = kvp_now_ns(cfg->env);
	uint8_t boot_id[KVP_ID_LEN] = {0}; /* not known: then none is taken for another */
	int err;

	*memory = (struct kvp_memory){.lock_fd = -1, .log = cfg->log};
	(void)snprintf(memory->name, sizeof(memory->name), "%s", cfg->name);
	(void)snprintf(memory->session_prefix, sizeof(memory->session_prefix),
		"/dev/shm/kvpool-%s-session-", cfg->name);
	(void)kvp_host_id(boot_id);
	err = memory_lock(memory, cfg->log);
	if (err < 0) {
		return err;
	}
	err = memory_take_over(cfg, boot_id, memory);
	memory->recovered = err == 0;
	if (err < 0 && err != -ENOENT) {
		kvp_memory_close(memory, true); /* whatever is there is not ours to judge */
		return err;
	}
	err = memory->recovered ? 0 : memory_create(cfg, memory);
	err = err < 0 ? err : memory_own(cfg, boot_id, memory);
	if (err < 0) {
		kvp_memory_close(memory, memory->recovered);
		return err;
	}
	kvp_info(cfg->log, "memory of %zu bytes and %u slots %s in %" PRIu64 " ms",
		memory->arena.len, cfg->slots, memory->recovered ? "mapped" : "reserved",
		(uint64_t)((kvp_now_ns(cfg->env) - begin_ns) / KVP_NS_PER_MS));
	if (memory->recovered && cfg->want.lock == KVP_MEM_PREFER &&
		kvp_thread_start("kvp-lock", locker_run, memory, &memory->locker) < 0) {
		kvp_warn(cfg->log, "memory of the name %s is not locked: no thread for it",
			cfg->name);
	}
	return 0;
}

/* Without the memory they guard nothing. */
static void
session_locks_remove(const struct kvp_memory *memory)
{
	char pattern[128];
	glob_t found;

	(void)snprintf(pattern, sizeof(pattern), "%s????????????????", memory->session_prefix);
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			(void)unlink(found.gl_pathv[i]); /* gone already is as good */
		}
		globfree(&found);
	}
}

void
kvp_memory_close(struct kvp_memory *memory, bool keep)
{
	atomic_store(&memory->locker_stop, true);
	kvp_thread_join(memory->locker);
	memory->locker = NULL;
	if (keep) {
		memory_detach(memory);
	} else if (memory->lock_fd >= 0) {
		memory_close_mappings(memory);
		session_locks_remove(memory);
	}
	if (memory->lock_fd >= 0) {
		/* While the lock is held: whoever gets it next finds that the file is gone. */
		(void)unlink(memory->lock_path);
		(void)close(memory->lock_fd);
		memory->lock_fd = -1;
	}
}
