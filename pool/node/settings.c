// SPDX-License-Identifier: Apache-2.0
/*
 * settings.c - see settings.h.
 */
#include "pool/node/settings.h"

#include "hal/base/err.h"
#include "hal/base/limits.h"
#include "hal/mem/limit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_DRAM_MIN   (1ull << 20)
#define SETTINGS_DRAM_MAX   (16ull << 40)
#define SETTINGS_SLOT_BYTES 65536u /* of arena a slot, unless store.slots says how many */
#define SETTINGS_SLOTS_MIN  1024u
#define SETTINGS_THREADS    4u /* that clear new pages; more gain little */

static enum kvp_mem_policy
settings_policy(const char *text)
{
	return strcmp(text, "require") == 0  ? KVP_MEM_REQUIRE
	       : strcmp(text, "prefer") == 0 ? KVP_MEM_PREFER
					     : KVP_MEM_OFF;
}

static int
settings_page_len(const char *text, const struct kvp_log *log, size_t *ret_len)
{
	uint64_t len = 0;

	if (strcmp(text, "auto") != 0 &&
		(strchr(text, '.') != NULL || kvp_mem_size_parse(text, 0, &len) < 0 || len == 0 ||
			(len & (len - 1)) != 0)) {
		kvp_error(
			log, "option store.hugepage_size: \"%s\" is not auto, 2MiB or 1GiB", text);
		return -KVP_E_CONFIG;
	}
	*ret_len = (size_t)len;
	return 0;
}

static int
settings_numa(const char *text, const struct kvp_log *log, struct kvp_mem_want *want)
{
	char *end;
	unsigned long node;

	if (strcmp(text, "any") == 0) {
		return 0;
	}
	node = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || node > 1023) {
		kvp_error(log, "option store.numa: \"%s\" is neither any nor the number of a node",
			text);
		return -KVP_E_CONFIG;
	}
	want->numa_bind = true;
	want->numa_node = (int)node;
	return 0;
}

static int
settings_dram(const char *text, const struct kvp_log *log, struct kvp_settings *settings)
{
	bool share = strspn(text, "0123456789.") == strlen(text) && strchr(text, '.') != NULL;
	struct kvp_mem_limit limit = {0};
	uint64_t len = 0;
	int err = 0;

	if (share) {
		err = kvp_mem_limit("", settings->want.hugepages, settings->want.page_len, &limit);
	}
	if (err < 0) {
		kvp_error(log, "memory of this machine cannot be told: %s; give store.dram a size",
			kvp_err_str(err));
		return err;
	}
	err = kvp_mem_size_parse(text, limit.bytes, &len);
	len &= ~(uint64_t)(KVP_BLOCK_ALIGN - 1);
	if (err < 0 || len < SETTINGS_DRAM_MIN || len > SETTINGS_DRAM_MAX) {
		kvp_error(log,
			"option store.dram: \"%s\" is not a SIZE of 1MiB to 16TiB, nor a share "
			"such as 0.8",
			text);
		return -KVP_E_CONFIG;
	}
	if (share) {
		kvp_info(log, "store.dram %s of %s is %llu bytes", text, limit.what,
			(unsigned long long)len);
	}
	settings->arena_len = len;
	return 0;
}

int
kvp_settings_load(
	const struct kvp_opts *opts, const struct kvp_log *log, struct kvp_settings *ret_settings)
{
	struct kvp_settings settings = {
		.want =
			{
				.hugepages = settings_policy(kvp_opt_str(opts, "store.hugepages")),
				.lock = settings_policy(kvp_opt_str(opts, "store.lock")),
				.threads = SETTINGS_THREADS,
			},
	};
	uint64_t slots = kvp_opt_num(opts, "store.slots");
	int err = settings_page_len(
		kvp_opt_str(opts, "store.hugepage_size"), log, &settings.want.page_len);

	err = err < 0 ? err : settings_numa(kvp_opt_str(opts, "store.numa"), log, &settings.want);
	err = err < 0 ? err : settings_dram(kvp_opt_str(opts, "store.dram"), log, &settings);
	if (err < 0) {
		return err;
	}
	if (slots == 0) {
		slots = settings.arena_len / SETTINGS_SLOT_BYTES;
		slots = slots < SETTINGS_SLOTS_MIN ? SETTINGS_SLOTS_MIN : slots;
	}
	settings.slots = (uint32_t)slots;
	*ret_settings = settings;
	return 0;
}
