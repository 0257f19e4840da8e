/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.h - options of a program from one table: YAML file, environment, command line.
 *
 * An option is its dotted path: store.dram in the file (nested or dotted), --store.dram=64GiB,
 * KVP_STORE_DRAM. Later wins: default, file, environment, command line. Unknown keys, duplicate
 * keys, bad numbers, out-of-range values and encodings are errors that name the source (file and
 * line, variable, argument), the key, the value, and what would be accepted.
 * Every program also has --config FILE, --print-config, --version, --help.
 */
#ifndef KVP_HAL_BASE_OPT_H
#define KVP_HAL_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvp_opt_type {
	KVP_OPT_STRING, /* char * */
	KVP_OPT_BOOL,   /* true | false */
	KVP_OPT_UINT,   /* 64-bit */
	KVP_OPT_SIZE,   /* bytes: 4096, 64KiB, 64MiB, 64GiB, 1TiB */
	KVP_OPT_TIME,   /* stored in ms: 100ms, 5s, 2min */
	KVP_OPT_CHOICE, /* one of a|b|c, kept as string */
	KVP_OPT_REAL,   /* double */
};

struct kvp_opt_desc {
	const char *path; /* "store.dram" */
	enum kvp_opt_type type;
	const char *dflt;  /* default, in the same grammar as the user's */
	const char *range; /* "1..65535", "64KiB..16TiB", "lru|s3fifo", NULL: any */
	const char *help;
};

struct kvp_opt_value {
	char *text;      /* canonical text, owned; never NULL after load */
	uint64_t number; /* UINT, SIZE, TIME (ms), BOOL */
	double real;
	/* "default", "file /etc/kvpool/x.yaml:3", "environment", "command line"; lives as text does
	 */
	const char *origin;
};

struct kvp_opts {
	const struct kvp_opt_desc *desc;
	size_t count;
	struct kvp_opt_value *values;
	char **args; /* positional arguments, point into argv */
	int arg_count;
	bool print_config;
	bool version;
	bool help;
	char error[512]; /* why load failed; one line without newline */
};

/* env: an environ-like array. 0, or -KVP_E_CONFIG with ret_opts->error set. argv[0] is skipped.
 * config_default is read when no --config is given and it exists; may be NULL. */
int kvp_opts_load(struct kvp_opts *ret_opts, const struct kvp_opt_desc *desc, size_t count,
	int argc, char **argv, char **env, const char *config_default);
void kvp_opts_free(struct kvp_opts *opts);

/* The value of a path that is in the table (asserted). */
const struct kvp_opt_value *kvp_opt(const struct kvp_opts *opts, const char *path);
static inline const char *
kvp_opt_str(const struct kvp_opts *opts, const char *path)
{
	return kvp_opt(opts, path)->text;
}
static inline uint64_t
kvp_opt_num(const struct kvp_opts *opts, const char *path)
{
	return kvp_opt(opts, path)->number;
}

/* YAML, one "path: value # origin" a line, that --config accepts again. Also the --help text. */
void kvp_opts_print(const struct kvp_opts *opts);
void kvp_opts_help(const struct kvp_opt_desc *desc, size_t count, const char *usage);

/* One value against one row, for library options that come from code (same grammar). */
int kvp_opt_parse(const struct kvp_opt_desc *desc, const char *text,
	struct kvp_opt_value *ret_value, char *error, size_t error_cap);

#endif /* KVP_HAL_BASE_OPT_H */
