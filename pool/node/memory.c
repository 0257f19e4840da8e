// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - see memory.h. The lock stands beside what it guards: two processes that could take
 * each other's objects see the same /dev/shm, whatever their data directories are.
 */
#include "pool/node/memory.h"

#include "hal/base/err.h"
#include "hal/os/file.h"
#include "transport/proto/slot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static int
memory_lock(struct kvp_memory *memory, const char *name, const struct kvp_log *log)
{
	pid_t pid = 0;
	int err;

	(void)snprintf(
		memory->lock_path, sizeof(memory->lock_path), "/dev/shm/kvpool-%s-lock", name);
	err = kvp_file_lock(memory->lock_path, &memory->lock_fd, &pid);
	if (err == -KVP_E_IN_USE) {
		kvp_error(log, "name %s is in use on this host by process %d: set another name",
			name, (int)pid);
	} else if (err < 0) {
		kvp_error(log, "lock %s of the name %s cannot be taken: %s", memory->lock_path,
			name, kvp_err_str(err));
	}
	if (err < 0) {
		memory->lock_fd = -1;
	}
	return err;
}

static int
memory_create(const char *name, const char *what, uint64_t len, const struct kvp_log *log,
	struct kvp_mem *ret_mem)
{
	char object[64];
	struct kvp_mem_cfg cfg = {.name = object, .len = len, .mode = 0600};
	int err;

	(void)snprintf(object, sizeof(object), "kvpool-%s-%s", name, what);
	err = kvp_mem_create(&cfg, ret_mem);
	if (err == -ENOSPC) {
		kvp_error(log,
			"%s of %" PRIu64 " bytes does not fit into /dev/shm or free memory: lower "
			"store.dram or store.slots, or remount /dev/shm with a larger size",
			what, len);
	} else if (err < 0) {
		kvp_error(log, "shared memory /dev/shm/%s of %" PRIu64 " bytes: %s", object, len,
			kvp_err_str(err));
	}
	return err;
}

int
kvp_memory_open(const char *name, uint64_t arena_len, uint32_t slots, const struct kvp_env *env,
	const struct kvp_log *log, struct kvp_memory *ret_memory)
{
	uint64_t table_len = (uint64_t)slots * sizeof(struct kvp_slot_entry);
	uint64_t begin_ns = kvp_now_ns(env);
	struct kvp_memory memory = {.lock_fd = -1};
	int err = memory_lock(&memory, name, log);

	if (err < 0) {
		return err;
	}
	err = memory_create(name, "arena", arena_len, log, &memory.arena);
	if (err == 0) {
		err = memory_create(name, "table", table_len, log, &memory.table);
	}
	if (err < 0) {
		kvp_memory_close(&memory);
		return err;
	}
	kvp_info(log, "memory of %" PRIu64 " bytes and %u slots reserved in %" PRIu64 " ms",
		arena_len, slots, (uint64_t)((kvp_now_ns(env) - begin_ns) / KVP_NS_PER_MS));
	*ret_memory = memory;
	return 0;
}

void
kvp_memory_close(struct kvp_memory *memory)
{
	kvp_mem_close(&memory->table);
	kvp_mem_close(&memory->arena);
	if (memory->lock_fd >= 0) {
		/* While the lock is held: whoever gets it next finds that the file is gone. */
		(void)unlink(memory->lock_path);
		(void)close(memory->lock_fd);
		memory->lock_fd = -1;
	}
}
