/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_opt.c - options from a file, the environment, the command line, and single values. The first
 * byte chooses which.
 */
#include "hal/base/err.h"
#include "hal/base/opt.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARGS_MAX 16

static const struct kvp_opt_desc table[] = {
	{"store.dram", KVP_OPT_SIZE, "1GiB", "64KiB..16TiB", "memory"},
	{"store.evict", KVP_OPT_CHOICE, "lru", "lru|s3fifo", "policy"},
	{"store.numa", KVP_OPT_BOOL, "true", NULL, "spread"},
	{"ssd.flush_interval", KVP_OPT_TIME, "1s", "10ms..1min", "flush"},
	{"listen", KVP_OPT_STRING, "127.0.0.1:0", NULL, "address"},
	{"threads", KVP_OPT_UINT, "2", "1..64", "threads"},
	{"ratio", KVP_OPT_REAL, "0.5", "0..1", "ratio"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

static void
load(int argc, char **argv, char **env, const char *file)
{
	struct kvp_opts opts;
	int err = kvp_opts_load(&opts, table, TABLE_COUNT, argc, argv, env, file);

	if (err < 0) {
		kvp_assert(err == -KVP_E_CONFIG);
		kvp_assert(opts.error[0] != '\0' && strchr(opts.error, '\n') == NULL);
		return;
	}
	kvp_assert(kvp_opt_num(&opts, "threads") >= 1 && kvp_opt_num(&opts, "threads") <= 64);
	for (size_t i = 0; i < TABLE_COUNT; i++) {
		struct kvp_opt_value again;
		char error[256];

		/* The canonical text of a value is a value. */
		kvp_assert(kvp_opt_parse(&table[i], kvp_opt_str(&opts, table[i].path), &again,
				   error, sizeof(error)) == 0);
		free(again.text);
	}
	kvp_opts_free(&opts);
}

static void
load_file(const uint8_t *data, size_t size)
{
	char *argv[] = {(char *)(uintptr_t) "fuzz", NULL};
	char *env[] = {NULL};
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	kvp_assert(fd >= 0);
	kvp_assert(write(fd, data, size) == (ssize_t)size);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	load(1, argv, env, path);
	kvp_assert(close(fd) == 0);
}

/* Texts with NULs between them, as arguments or as environment. */
static void
load_texts(const uint8_t *data, size_t size, bool as_env)
{
	char *texts[ARGS_MAX + 2] = {(char *)(uintptr_t) "fuzz"};
	char *none[] = {NULL};
	char *copy = malloc(size + 1);
	int count = 1;

	kvp_assert(copy != NULL);
	memcpy(copy, data, size);
	copy[size] = '\0';
	for (size_t off = 0; off < size && count <= ARGS_MAX; off += strlen(copy + off) + 1) {
		if (strstr(copy + off, "config") == NULL) { /* no file of this machine */
			texts[count++] = copy + off;
		}
	}
	if (as_env) {
		load(1, texts, texts + 1, NULL);
	} else {
		load(count, texts, none, NULL);
	}
	free(copy);
}

static void
parse_value(const uint8_t *data, size_t size)
{
	struct kvp_opt_value value;
	char error[256];
	char *text;

	if (size < 1) {
		return;
	}
	text = malloc(size);
	kvp_assert(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (kvp_opt_parse(&table[data[0] % TABLE_COUNT], text, &value, error, sizeof(error)) == 0) {
		free(value.text);
	}
	free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1) {
		return 0;
	}
	switch (data[0] & 3) {
	case 0:
		load_file(data + 1, size - 1);
		break;
	case 1:
		load_texts(data + 1, size - 1, false);
		break;
	case 2:
		load_texts(data + 1, size - 1, true);
		break;
	default:
		parse_value(data + 1, size - 1);
	}
	return 0;
}
