/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_impl.h - what the files of opt.h share: opt.c (sources and their order), opt_value.c (the
 * grammar of one value), opt_yaml.c (the file), opt_print.c. Nobody else includes it.
 */
#ifndef KVP_HAL_BASE_OPT_IMPL_H
#define KVP_HAL_BASE_OPT_IMPL_H

#include "hal/base/opt.h"

/* Where a value was written. */
struct kvp_opt_source {
	const char *where;  /* opens an error: "x.yaml:3", "environment KVP_A", "argument --a" */
	const char *origin; /* for --print-config: "file x.yaml:3", "environment" */
};

/* The idx of the row of a path, or -1. */
int kvp_opts_find(const struct kvp_opts *opts, const char *path);

/* Sets opts->error to "WHERE: text" and returns -KVP_E_CONFIG. */
int kvp_opts_fail(struct kvp_opts *opts, const char *where, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int kvp_opts_fail_unknown(struct kvp_opts *opts, const char *where, const char *path);

/* Parses text for the row idx and keeps it with its origin. */
int kvp_opts_set(
	struct kvp_opts *opts, int idx, const char *text, const struct kvp_opt_source *source);

/* Reads a YAML file. A missing one is an error if must_exist. */
int kvp_opts_read_file(struct kvp_opts *opts, const char *file, bool must_exist);

/* "KVP_STORE_DRAM" of "store.dram"; '.' and '-' become '_'. */
void kvp_opt_env_name(const char *path, char *buf, size_t cap);

/* What a row takes, in words: "bytes, as 4096 or 64KiB, within 64KiB..16TiB". */
void kvp_opt_accepted(const struct kvp_opt_desc *desc, char *buf, size_t cap);

/* A value between quotes for an error line: cut when long, without control characters. */
#define KVP_OPT_QUOTED_LEN 72
void kvp_opt_quote(const char *text, char buf[KVP_OPT_QUOTED_LEN]);

/* The bytes before the first one that is not UTF-8; len when all are. */
size_t kvp_utf8_valid_len(const char *text, size_t len);

#endif /* KVP_HAL_BASE_OPT_IMPL_H */
