/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - kvpoold's options of the store, as far as they are more than a number.
 */
#ifndef KVP_POOL_NODE_SETTINGS_H
#define KVP_POOL_NODE_SETTINGS_H

#include "hal/base/log.h"
#include "hal/base/opt.h"
#include "hal/mem/arena.h"
#include "pool/store/evict.h"

#include <stdint.h>

/* Rows of the table of options. */
#define KVP_SETTINGS_OPTS                                                                          \
	{"store.dram", KVP_OPT_STRING, "1GiB", NULL,                                               \
		"memory for blocks, reserved at start: a SIZE of 1MiB to 16TiB, or a share such "  \
		"as 0.8 of the smaller of this machine's memory and the cgroup's limit"},          \
		{"store.slots", KVP_OPT_UINT, "0", "0..1073741824",                                \
			"the most blocks; 0: one for each 64KiB of store.dram, at least 1024"},    \
		{"store.hugepages", KVP_OPT_CHOICE, "prefer", "off|prefer|require",                \
			"reserved huge pages for store.dram; prefer: else transparent ones, else " \
			"small ones"},                                                             \
		{"store.hugepage_size", KVP_OPT_STRING, "auto", NULL,                              \
			"SIZE of those pages: 2MiB or 1GiB; auto: 1GiB where it fits"},            \
		{"store.lock", KVP_OPT_CHOICE, "prefer", "off|prefer|require",                     \
			"keep store.dram out of swap"},                                            \
		{"store.numa", KVP_OPT_STRING, "any", NULL,                                        \
			"NUMA node that store.dram must lie on, a number; any: wherever"},         \
		{"store.keep", KVP_OPT_BOOL, "true", NULL,                                         \
			"leave the blocks in shared memory when the daemon ends, for the next "    \
			"start; false: remove them. Those of a daemon that was killed stay"},      \
	{                                                                                          \
		"store.scrub", KVP_OPT_SIZE, "64MiB", "0..1TiB",                                   \
			"bytes a second of blocks from before a restart that are verified; 0: "    \
			"none"                                                                     \
	}

struct kvp_settings {
	uint64_t arena_len;
	uint32_t slots;
	struct kvp_mem_want want;
};

/* Logs what is wrong, and of what store.dram is a share. -KVP_E_CONFIG, -errno. */
int kvp_settings_load(
	const struct kvp_opts *opts, const struct kvp_log *log, struct kvp_settings *ret_settings);

#endif /* KVP_POOL_NODE_SETTINGS_H */
