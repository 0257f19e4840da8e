/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.c - collects the values of a program's options: default, file, environment, command line.
 *
 * A later source replaces the value of an earlier one; on the command line the last one counts,
 * so that a script can append. Within a file a second value for a key is an error (opt_yaml.c).
 * KVP_CONFIG is --config of the environment. KVP_TEST_* belongs to tests, KVP_META and KVP_NODE to
 * the client library (kvpool.h), which may stand in the same environment: left alone; any other
 * KVP_* variable that no option answers to is an error, because it was meant to do something.
 */
#include "hal/base/opt.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/base/opt_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPT_NAME_LEN_MAX 128
#define OPT_ENV_PREFIX   "KVP_"
#define OPT_ENV_CONFIG   "KVP_CONFIG"

/* One argument that starts with "--". */
struct opt_arg {
	char name[OPT_NAME_LEN_MAX];
	const char *value; /* after '=', or the next argument if the option takes it, else NULL */
	int used;          /* arguments it took: 1 or 2 */
	bool attached;     /* value came with '=' */
};

int
kvp_opts_fail(struct kvp_opts *opts, const char *where, const char *format, ...)
{
	size_t cap = sizeof(opts->error);
	va_list args;
	int len = snprintf(opts->error, cap, "%s: ", where);

	kvp_assert(len >= 0);
	if ((size_t)len < cap) {
		va_start(args, format);
		(void)vsnprintf(opts->error + len, cap - (size_t)len, format, args);
		va_end(args);
	}
	for (char *pos = opts->error; *pos != '\0'; pos++) {
		if ((unsigned char)*pos < 0x20 || *pos == 0x7f) {
			*pos = '?'; /* a file name may hold a newline; the error is one line */
		}
	}
	return -KVP_E_CONFIG;
}

/* The smaller of the edit distance of two short texts and a value too large to matter. */
static unsigned
opt_distance(const char *a, const char *b)
{
	unsigned row[OPT_NAME_LEN_MAX];
	size_t a_len = strlen(a);
	size_t b_len = strlen(b);

	if (a_len >= OPT_NAME_LEN_MAX || b_len >= OPT_NAME_LEN_MAX) {
		return OPT_NAME_LEN_MAX;
	}
	for (size_t j = 0; j <= b_len; j++) {
		row[j] = (unsigned)j;
	}
	for (size_t i = 1; i <= a_len; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			best = best < row[j] + 1 ? best : row[j] + 1;
			row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
		}
	}
	return row[b_len];
}

int
kvp_opts_fail_unknown(struct kvp_opts *opts, const char *where, const char *path)
{
	char quoted[KVP_OPT_QUOTED_LEN];
	unsigned best = OPT_NAME_LEN_MAX;
	const char *nearest = NULL;

	for (size_t i = 0; i < opts->count; i++) {
		unsigned distance = opt_distance(path, opts->desc[i].path);

		if (distance < best) {
			best = distance;
			nearest = opts->desc[i].path;
		}
	}
	kvp_opt_quote(path, quoted);
	if (nearest == NULL || best > strlen(path) / 2) {
		return kvp_opts_fail(opts, where,
			"%s is not an option here; accepted: the options of --help", quoted);
	}
	return kvp_opts_fail(opts, where,
		"%s is not an option here; accepted: the options of --help, the nearest is %s",
		quoted, nearest);
}

int
kvp_opts_find(const struct kvp_opts *opts, const char *path)
{
	for (size_t i = 0; i < opts->count; i++) {
		if (strcmp(opts->desc[i].path, path) == 0) {
			return (int)i;
		}
	}
	return -1;
}

void
kvp_opt_env_name(const char *path, char *buf, size_t cap)
{
	size_t len = sizeof(OPT_ENV_PREFIX) - 1;

	kvp_assert(cap > len);
	memcpy(buf, OPT_ENV_PREFIX, len);
	for (; *path != '\0' && len + 1 < cap; path++, len++) {
		if (*path == '.' || *path == '-') {
			buf[len] = '_';
		} else {
			buf[len] = (char)(*path >= 'a' && *path <= 'z' ? *path & ~0x20 : *path);
		}
	}
	buf[len] = '\0';
}

int
kvp_opts_set(struct kvp_opts *opts, int idx, const char *text, const struct kvp_opt_source *source)
{
	size_t origin_len = strlen(source->origin) + 1;
	struct kvp_opt_value value;
	char error[sizeof(opts->error)];
	size_t text_len;
	char *both;

	if (kvp_opt_parse(&opts->desc[idx], text, &value, error, sizeof(error)) < 0) {
		return kvp_opts_fail(opts, source->where, "%s", error);
	}
	/* The origin lies behind the text, so that both have one owner and one end. */
	text_len = strlen(value.text) + 1;
	both = realloc(value.text, text_len + origin_len);
	if (both == NULL) {
		free(value.text);
		return kvp_opts_fail(
			opts, source->where, "%s: out of memory", opts->desc[idx].path);
	}
	memcpy(both + text_len, source->origin, origin_len);
	value.text = both;
	value.origin = both + text_len;
	free(opts->values[idx].text);
	opts->values[idx] = value;
	return 0;
}

static int
opts_load_defaults(struct kvp_opts *opts)
{
	static const struct kvp_opt_source source = {.where = "default", .origin = "default"};

	for (size_t i = 0; i < opts->count; i++) {
		const char *text = opts->desc[i].dflt != NULL ? opts->desc[i].dflt : "";
		int ret = kvp_opts_set(opts, (int)i, text, &source);

		if (ret < 0) {
			return ret;
		}
	}
	return 0;
}

/* Variables that are not this program's options; "" ends the list. A '=' ends a whole name. */
static const char opt_env_others[][16] = {"KVP_CONFIG=", "KVP_TEST_", "KVP_META=", "KVP_NODE=", ""};

static bool
opt_env_is_others(const char *variable)
{
	for (size_t i = 0; opt_env_others[i][0] != '\0'; i++) {
		if (strncmp(variable, opt_env_others[i], strlen(opt_env_others[i])) == 0) {
			return true;
		}
	}
	return false;
}

/* variable: "KVP_STORE_DRAM=64GiB". */
static int
opts_load_variable(struct kvp_opts *opts, const char *variable)
{
	char where[sizeof("environment ") + OPT_NAME_LEN_MAX];
	char name[OPT_NAME_LEN_MAX];
	size_t len = strcspn(variable, "=");

	if (variable[len] == '\0') {
		return 0; /* not an assignment; no getenv would find it either */
	}
	(void)snprintf(where, sizeof(where), "environment %.*s", (int)len, variable);
	for (size_t i = 0; i < opts->count; i++) {
		kvp_opt_env_name(opts->desc[i].path, name, sizeof(name));
		if (strlen(name) == len && memcmp(name, variable, len) == 0) {
			const struct kvp_opt_source source = {
				.where = where, .origin = "environment"};

			return kvp_opts_set(opts, (int)i, variable + len + 1, &source);
		}
	}
	if (opt_env_is_others(variable)) {
		return 0;
	}
	return kvp_opts_fail(opts, where,
		"no option answers to this variable; accepted: KVP_ and the path of an option of "
		"--help in capitals with '_' for '.' and '-'; it was set to %.40s",
		variable + len + 1);
}

static int
opts_load_environment(struct kvp_opts *opts, char **env)
{
	for (; env != NULL && *env != NULL; env++) {
		int ret = 0;

		if (strncmp(*env, OPT_ENV_PREFIX, sizeof(OPT_ENV_PREFIX) - 1) == 0) {
			ret = opts_load_variable(opts, *env);
		}
		if (ret < 0) {
			return ret;
		}
	}
	return 0;
}

/* --help and its like. False: not one of them. */
static bool
opts_take_flag(struct kvp_opts *opts, const char *name)
{
	if (strcmp(name, "help") == 0) {
		opts->help = true;
	} else if (strcmp(name, "version") == 0) {
		opts->version = true;
	} else if (strcmp(name, "print-config") == 0) {
		opts->print_config = true;
	} else {
		return false;
	}
	return true;
}

/* Reads argv[0], which starts with "--"; argv[1] may be its value. */
static void
opts_read_arg(const struct kvp_opts *opts, char **argv, struct opt_arg *ret_arg)
{
	const char *text = argv[0] + 2;
	size_t len = strcspn(text, "=");
	bool known;
	int idx;

	*ret_arg = (struct opt_arg){.used = 1, .attached = text[len] == '='};
	(void)snprintf(ret_arg->name, sizeof(ret_arg->name), "%.*s", (int)len, text);
	if (ret_arg->attached) {
		ret_arg->value = text + len + 1;
		return;
	}
	idx = kvp_opts_find(opts, ret_arg->name);
	known = (idx >= 0 && opts->desc[idx].type != KVP_OPT_BOOL) ||
		strcmp(ret_arg->name, "config") == 0;
	/* A value that itself starts with "--" needs the form with '='. */
	if (known && argv[1] != NULL && strncmp(argv[1], "--", 2) != 0) {
		ret_arg->value = argv[1];
		ret_arg->used = 2;
	}
}

static int
opts_take_arg(struct kvp_opts *opts, const struct opt_arg *arg)
{
	char where[sizeof("argument --") + OPT_NAME_LEN_MAX];
	const struct kvp_opt_source source = {.where = where, .origin = "command line"};
	int idx = kvp_opts_find(opts, arg->name);
	char accepted[192];

	(void)snprintf(where, sizeof(where), "argument --%s", arg->name);
	if (idx < 0 && !arg->attached && opts_take_flag(opts, arg->name)) {
		return 0;
	}
	if (strcmp(arg->name, "config") == 0) {
		return arg->value != NULL ? 0
					  : kvp_opts_fail(opts, where,
						    "config needs a value; accepted: a YAML file");
	}
	if (idx < 0) {
		return kvp_opts_fail_unknown(opts, where, arg->name);
	}
	if (arg->value == NULL && opts->desc[idx].type == KVP_OPT_BOOL) {
		return kvp_opts_set(opts, idx, "true", &source);
	}
	if (arg->value == NULL) {
		kvp_opt_accepted(&opts->desc[idx], accepted, sizeof(accepted));
		return kvp_opts_fail(
			opts, where, "%s needs a value; accepted: %s", arg->name, accepted);
	}
	return kvp_opts_set(opts, idx, arg->value, &source);
}

static int
opts_load_arguments(struct kvp_opts *opts, int argc, char **argv)
{
	struct opt_arg arg;
	int pos = 1;

	for (; pos < argc && strcmp(argv[pos], "--") != 0;) {
		int ret;

		if (argv[pos][0] != '-' || argv[pos][1] == '\0') {
			opts->args[opts->arg_count++] = argv[pos++];
			continue;
		}
		if (argv[pos][1] != '-') {
			char quoted[KVP_OPT_QUOTED_LEN];

			kvp_opt_quote(argv[pos], quoted);
			return kvp_opts_fail(opts, "command line",
				"%s is not an option here; accepted: options that start with --, "
				"see --help",
				quoted);
		}
		opts_read_arg(opts, argv + pos, &arg);
		ret = opts_take_arg(opts, &arg);
		if (ret < 0) {
			return ret;
		}
		pos += arg.used;
	}
	for (pos++; pos < argc; pos++) {
		opts->args[opts->arg_count++] = argv[pos];
	}
	return 0;
}

/* The first look at the command line: which file to read, and does the user only want help? It
 * takes no values and finds no errors; the second look does. */
static const char *
opts_scan_arguments(struct kvp_opts *opts, int argc, char **argv)
{
	const char *config = NULL;
	struct opt_arg arg;

	for (int pos = 1; pos < argc && strcmp(argv[pos], "--") != 0;) {
		if (strncmp(argv[pos], "--", 2) != 0) {
			pos++;
			continue;
		}
		opts_read_arg(opts, argv + pos, &arg);
		if (strcmp(arg.name, "config") == 0 && arg.value != NULL) {
			config = arg.value;
		}
		if (kvp_opts_find(opts, arg.name) < 0 && !arg.attached) {
			(void)opts_take_flag(opts, arg.name);
		}
		pos += arg.used;
	}
	return config;
}

static int
opts_load_file(struct kvp_opts *opts, const char *config, char **env, const char *config_default)
{
	for (; config == NULL && env != NULL && *env != NULL; env++) {
		if (strncmp(*env, OPT_ENV_CONFIG "=", sizeof(OPT_ENV_CONFIG)) == 0) {
			config = *env + sizeof(OPT_ENV_CONFIG);
		}
	}
	if (config != NULL) {
		return kvp_opts_read_file(opts, config, true);
	}
	return config_default != NULL ? kvp_opts_read_file(opts, config_default, false) : 0;
}

static int
opts_load_all(struct kvp_opts *opts, int argc, char **argv, char **env, const char *config_default)
{
	const char *config = opts_scan_arguments(opts, argc, argv);
	int ret = opts_load_defaults(opts);

	/* Help and version must work with a broken configuration: it is why they are asked. */
	if (ret < 0 || opts->help || opts->version) {
		return ret;
	}
	ret = opts_load_file(opts, config, env, config_default);
	if (ret < 0) {
		return ret;
	}
	ret = opts_load_environment(opts, env);
	return ret < 0 ? ret : opts_load_arguments(opts, argc, argv);
}

int
kvp_opts_load(struct kvp_opts *ret_opts, const struct kvp_opt_desc *desc, size_t count, int argc,
	char **argv, char **env, const char *config_default)
{
	size_t arg_room = argc > 0 ? (size_t)argc : 1;
	int ret;

	*ret_opts = (struct kvp_opts){.desc = desc, .count = count};
	ret_opts->values = calloc(count + 1, sizeof(*ret_opts->values));
	ret_opts->args = calloc(arg_room, sizeof(*ret_opts->args));
	if (ret_opts->values == NULL || ret_opts->args == NULL) {
		ret = kvp_opts_fail(ret_opts, "options", "out of memory");
	} else {
		ret = opts_load_all(ret_opts, argc, argv, env, config_default);
	}
	if (ret < 0) {
		kvp_opts_free(ret_opts);
	}
	return ret;
}

void
kvp_opts_free(struct kvp_opts *opts)
{
	if (opts == NULL) {
		return;
	}
	for (size_t i = 0; opts->values != NULL && i < opts->count; i++) {
		free(opts->values[i].text);
	}
	free(opts->values);
	free(opts->args);
	opts->values = NULL;
	opts->args = NULL;
	opts->arg_count = 0;
}

const struct kvp_opt_value *
kvp_opt(const struct kvp_opts *opts, const char *path)
{
	int idx = kvp_opts_find(opts, path);

	kvp_assert(idx >= 0);
	kvp_assert(opts->values != NULL);
	return &opts->values[idx];
}
