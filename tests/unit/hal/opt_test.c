/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_test.c - options: the grammar of each type, the order of the sources, what errors say.
 */
#include "hal/base/err.h"
#include "hal/base/opt.h"
#include "tests/unit/hal/hal_test.h"

static const struct kvp_opt_desc opt_rows[] = {
	{"node.name", KVP_OPT_STRING, "local", "1..63", "name"},
	{"node.note", KVP_OPT_STRING, "", NULL, "note"},
	{"node.fast", KVP_OPT_BOOL, "false", NULL, "fast"},
	{"node.port", KVP_OPT_UINT, "7490", "0..65535", "port"},
	{"store.dram", KVP_OPT_SIZE, "64MiB", "64KiB..16TiB", "memory"},
	{"store.evict", KVP_OPT_CHOICE, "s3fifo", "lru|s3fifo", "policy"},
	{"store.lease", KVP_OPT_TIME, "5s", "1ms..10min", "lease"},
	{"store.share", KVP_OPT_REAL, "0.5", "0..1", "share"},
	{"ready-file", KVP_OPT_STRING, "", NULL, "file"},
	{"count", KVP_OPT_UINT, "0", NULL, "any"},
};
#define OPT_ROWS (sizeof(opt_rows) / sizeof(opt_rows[0]))

static int
opt_load(struct kvp_opts *ret_opts, char **argv, char **env, const char *config)
{
	int argc = 0;

	while (argv[argc] != NULL) {
		argc++;
	}
	return kvp_opts_load(ret_opts, opt_rows, OPT_ROWS, argc, argv, env, config);
}

#define opt_args(...) ((char *[]){"prog", __VA_ARGS__, NULL})
#define opt_no_args   ((char *[]){"prog", NULL})
#define opt_env(...)  ((char *[]){"PATH=/bin", __VA_ARGS__, NULL})

/* The load fails and its one line holds each of the texts. */
static void
opt_fails(char **argv, char **env, const char *config, const char *const *texts)
{
	struct kvp_opts opts;

	assert_int_equal(opt_load(&opts, argv, env, config), -KVP_E_CONFIG);
	print_message("%s\n", opts.error);
	assert_null(strchr(opts.error, '\n'));
	for (; *texts != NULL; texts++) {
		if (strstr(opts.error, *texts) == NULL) {
			fail_msg("\"%s\" lacks \"%s\"", opts.error, *texts);
		}
	}
	kvp_opts_free(&opts);
}
#define opt_says(...) ((const char *[]){__VA_ARGS__, NULL})

static const struct kvp_opt_desc *
opt_row(const char *path)
{
	for (size_t i = 0; i < OPT_ROWS; i++) {
		if (strcmp(opt_rows[i].path, path) == 0) {
			return &opt_rows[i];
		}
	}
	fail();
	return NULL;
}

static void
opt_types_accept(void **state)
{
	static const struct {
		const char *path;
		const char *text;
		const char *canonical;
		uint64_t number;
	} rows[] = {
		{"node.name", "a b: #c", "a b: #c", 7},
		{"node.name", "kn\xc3\xb6nig", "kn\xc3\xb6nig", 7},
		{"node.fast", "true", "true", 1},
		{"node.fast", "false", "false", 0},
		{"node.port", "0", "0", 0},
		{"node.port", "65535", "65535", 65535},
		{"count", "18446744073709551615", "18446744073709551615", UINT64_MAX},
		{"store.dram", "65536", "64KiB", 65536},
		{"store.dram", "1124352", "1098KiB", 1124352},
		{"store.dram", "65537", "65537", 65537},
		{"store.dram", "1024MiB", "1GiB", 1ull << 30},
		{"store.dram", "16TiB", "16TiB", 1ull << 44},
		{"store.evict", "lru", "lru", 0},
		{"store.lease", "100ms", "100ms", 100},
		{"store.lease", "120s", "2min", 120000},
		{"store.lease", "2min", "2min", 120000},
		{"store.lease", "1500ms", "1500ms", 1500},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvp_opt_value value;
		char error[256] = "";

		print_message("%s %s\n", rows[i].path, rows[i].text);
		assert_int_equal(kvp_opt_parse(opt_row(rows[i].path), rows[i].text, &value, error,
					 sizeof(error)),
			0);
		assert_string_equal(value.text, rows[i].canonical);
		assert_int_equal(value.number, rows[i].number);
		free(value.text);
	}
}

static void
opt_real(void **state)
{
	static const char *const bad[] = {"", ".5", "5.", "1e-3", "0x1", "nan", "inf", "0,5",
		"+0.5", "0.5 ", "00.5", "-0.1", "1.01", "2", "0.1234567890123456"};
	struct kvp_opt_value value;
	char error[256];

	(void)state;
	assert_int_equal(
		kvp_opt_parse(opt_row("store.share"), "0.15", &value, error, sizeof(error)), 0);
	assert_true(value.real == 0.15);
	free(value.text);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		print_message("%s\n", bad[i]);
		assert_int_equal(
			kvp_opt_parse(opt_row("store.share"), bad[i], &value, error, sizeof(error)),
			-KVP_E_CONFIG);
	}
}

static void
opt_types_refuse(void **state)
{
	static const struct {
		const char *path;
		const char *text;
		const char *says;
	} rows[] = {
		{"node.name", "", "out of range; accepted: text, its bytes within 1..63"},
		{"node.name", "a\xff", "\"a?\" is not valid UTF-8"},
		{"node.name", "\xed\xa0\x80", "not valid UTF-8"},
		{"node.name", "\xc0\xaf", "not valid UTF-8"},
		{"node.name", "\xf4\x90\x80\x80", "not valid UTF-8"},
		{"node.name", "\xe2\x82", "not valid UTF-8"},
		{"node.name", "a\x1b[2J", "\"a?[2J\" is a text with control characters"},
		{"node.fast", "yes", "neither true nor false; accepted: true|false"},
		{"node.fast", "True", "neither true nor false"},
		{"node.fast", "1", "neither true nor false"},
		{"node.fast", "", "neither true nor false"},
		{"node.port", "65536", "out of range; accepted: a whole number, within 0..65535"},
		{"node.port", "-1", "not a whole number"},
		{"node.port", "+1", "not a whole number"},
		{"node.port", "0x10", "not a whole number"},
		{"node.port", "010", "not a whole number"},
		{"node.port", "1.0", "not a whole number"},
		{"node.port", " 1", "not a whole number"},
		{"node.port", "1_000", "not a whole number"},
		{"count", "18446744073709551616", "does not fit 64 bits"},
		{"store.dram", "64K", "say KiB"},
		{"store.dram", "64G", "say GiB"},
		{"store.dram", "64gib", "say GiB"},
		{"store.dram", "64MB", "say MiB"},
		{"store.dram", "64 GiB", "not a size"},
		{"store.dram", "1.5GiB", "not a size; accepted: bytes as 4096, or with KiB"},
		{"store.dram", "64KiBx", "not a size"},
		{"store.dram", "GiB", "not a size"},
		{"store.dram", "16777216TiB", "does not fit 64 bits"},
		{"store.dram", "65535", "within 64KiB..16TiB"},
		{"store.dram", "17TiB", "out of range"},
		{"store.evict", "LRU", "no such choice; accepted: one of lru|s3fifo"},
		{"store.evict", "", "no such choice"},
		{"store.evict", "lru|s3fifo", "no such choice"},
		{"store.lease", "5", "a time without its unit; accepted: a time as 100ms"},
		{"store.lease", "5m", "not a time"},
		{"store.lease", "0", "out of range"},
		{"store.lease", "11min", "within 1ms..10min"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvp_opt_value value = {.number = 77};
		char error[256] = "";

		assert_int_equal(kvp_opt_parse(opt_row(rows[i].path), rows[i].text, &value, error,
					 sizeof(error)),
			-KVP_E_CONFIG);
		print_message("%s\n", error);
		assert_ptr_equal(strstr(error, rows[i].path), error);
		assert_non_null(strstr(error, rows[i].says));
		assert_int_equal(value.number, 77);
	}
}

static void
opt_long_values_are_cut(void **state)
{
	struct kvp_opt_value value;
	char error[256];
	char text[300];

	(void)state;
	for (size_t i = 0; i + 2 < sizeof(text); i += 2) {
		memcpy(text + i, "\xc3\xb6", 3);
	}
	assert_int_equal(kvp_opt_parse(opt_row("node.name"), text, &value, error, sizeof(error)),
		-KVP_E_CONFIG);
	assert_non_null(strstr(error, "\xc3\xb6...\" is out of range"));
}

static void
opt_precedence(void **state)
{
	const char *text = "# of one\nnode:\n  port: 1\nnode.name: file\nstore.dram: 1MiB\n";
	struct kvp_opts opts;
	char path[128];
	char origin[160];

	hal_test_path(state, "x.yaml", path, sizeof(path));
	hal_test_write(path, text, strlen(text));
	char **env = opt_env("KVP_NODE_NAME=env", "KVP_STORE_DRAM=2MiB", "KVP_TEST_X=1", "KVPX=1",
		"KVP_META=m", "KVP_NODE=n");
	char **argv = opt_args("--store.dram=3MiB");

	assert_int_equal(opt_load(&opts, argv, env, path), 0);
	assert_string_equal(kvp_opt_str(&opts, "node.note"), "");
	assert_string_equal(kvp_opt(&opts, "node.note")->origin, "default");
	assert_int_equal(kvp_opt_num(&opts, "node.port"), 1);
	(void)snprintf(origin, sizeof(origin), "file %s:3", path);
	assert_string_equal(kvp_opt(&opts, "node.port")->origin, origin);
	assert_string_equal(kvp_opt_str(&opts, "node.name"), "env");
	assert_string_equal(kvp_opt(&opts, "node.name")->origin, "environment");
	assert_int_equal(kvp_opt_num(&opts, "store.dram"), 3u << 20);
	assert_string_equal(kvp_opt(&opts, "store.dram")->origin, "command line");
	kvp_opts_free(&opts);
	kvp_opts_free(&opts);
}

static void
opt_config_sources(void **state)
{
	struct kvp_opts opts;
	char path[128];
	char other[128];
	char variable[160];

	hal_test_path(state, "x.yaml", path, sizeof(path));
	hal_test_path(state, "other.yaml", other, sizeof(other));
	hal_test_write(path, "count: 1\n", 9);
	(void)snprintf(variable, sizeof(variable), "KVP_CONFIG=%s", path);
	/* A default file may be missing, one that was named may not. */
	assert_int_equal(opt_load(&opts, opt_no_args, NULL, other), 0);
	kvp_opts_free(&opts);
	opt_fails(opt_args("--config", other), NULL, NULL, opt_says(other, "No such file"));
	assert_int_equal(opt_load(&opts, opt_no_args, opt_env(variable), other), 0);
	assert_int_equal(kvp_opt_num(&opts, "count"), 1);
	kvp_opts_free(&opts);
	hal_test_write(other, "count: 2\n", 9);
	assert_int_equal(opt_load(&opts, opt_args("--config", other), opt_env(variable), NULL), 0);
	assert_int_equal(kvp_opt_num(&opts, "count"), 2);
	kvp_opts_free(&opts);
	opt_fails(opt_args("--config", ((struct hal_test_dir *)*state)->path), NULL, NULL,
		opt_says("directory"));
}

static void
opt_command_line(void **state)
{
	struct kvp_opts opts;
	char **argv = opt_args("get", "--node.port", "80", "--node.fast", "key", "-",
		"--ready-file=/run/r", "--node.note=", "--count=1", "--count=2", "--", "--x", "-y");

	(void)state;
	assert_int_equal(opt_load(&opts, argv, NULL, NULL), 0);
	assert_int_equal(kvp_opt_num(&opts, "node.port"), 80);
	assert_int_equal(kvp_opt_num(&opts, "node.fast"), 1);
	assert_int_equal(kvp_opt_num(&opts, "count"), 2);
	assert_string_equal(kvp_opt_str(&opts, "ready-file"), "/run/r");
	assert_int_equal(opts.arg_count, 5);
	assert_string_equal(opts.args[0], "get");
	assert_string_equal(opts.args[1], "key");
	assert_string_equal(opts.args[2], "-");
	assert_string_equal(opts.args[3], "--x");
	assert_string_equal(opts.args[4], "-y");
	assert_false(opts.help || opts.version || opts.print_config);
	kvp_opts_free(&opts);

	assert_int_equal(opt_load(&opts, opt_args("--print-config"), NULL, NULL), 0);
	assert_true(opts.print_config);
	kvp_opts_free(&opts);
	/* Help comes even where the rest is wrong. */
	assert_int_equal(
		opt_load(&opts, opt_args("--nonsense", "--help"), opt_env("KVP_X=1"), NULL), 0);
	assert_true(opts.help);
	kvp_opts_free(&opts);
	assert_int_equal(opt_load(&opts, opt_args("--version"), NULL, NULL), 0);
	assert_true(opts.version);
	kvp_opts_free(&opts);
}

static void
opt_command_line_errors(void **state)
{
	(void)state;
	opt_fails(opt_args("--store.dramm=1"), NULL, NULL,
		opt_says("argument --store.dramm: ", "not an option", "nearest is store.dram"));
	opt_fails(opt_args("--qqqqqqqqqqqqqq=1"), NULL, NULL, opt_says("not an option", "--help"));
	opt_fails(opt_args("--node.port"), NULL, NULL,
		opt_says("argument --node.port: ", "needs a value", "0..65535"));
	opt_fails(opt_args("--node.port", "--count=1"), NULL, NULL, opt_says("needs a value"));
	opt_fails(opt_args("--node.port=99999"), NULL, NULL,
		opt_says("argument --node.port: node.port: \"99999\" is out of range", "0..65535"));
	opt_fails(opt_args("--node.fast=maybe"), NULL, NULL,
		opt_says("argument --node.fast", "\"maybe\"", "true|false"));
	opt_fails(opt_args("--node.port="), NULL, NULL, opt_says("\"\" is not a whole number"));
	opt_fails(opt_args("-p"), NULL, NULL, opt_says("command line: \"-p\" is not an option"));
	opt_fails(opt_args("--config"), NULL, NULL, opt_says("config needs a value"));
	opt_fails(opt_args("--help=yes"), NULL, NULL, opt_says("argument --help"));
}

static void
opt_environment_errors(void **state)
{
	(void)state;
	opt_fails(opt_no_args, opt_env("KVP_STORE_DRAM=64G"), NULL,
		opt_says("environment KVP_STORE_DRAM: store.dram: \"64G\"", "say GiB",
			"64KiB..16TiB"));
	opt_fails(opt_no_args, opt_env("KVP_STORE_DRAMM=1"), NULL,
		opt_says("environment KVP_STORE_DRAMM: no option answers", "accepted", "set to 1"));
	opt_fails(opt_no_args, opt_env("KVP_READY-FILE=1"), NULL, opt_says("no option answers"));
	opt_fails(opt_no_args, opt_env("KVP_NODE_NAME=\xff"), NULL,
		opt_says("KVP_NODE_NAME", "not valid UTF-8"));
}

static void
opt_environment_names(void **state)
{
	struct kvp_opts opts;

	(void)state;
	assert_int_equal(opt_load(&opts, opt_no_args, opt_env("KVP_READY_FILE=/r"), NULL), 0);
	assert_string_equal(kvp_opt_str(&opts, "ready-file"), "/r");
	kvp_opts_free(&opts);
}

/* A file of this text fails at this line, and the error holds the texts. */
static void
opt_file_fails(void **state, const char *text, unsigned line, const char *const *texts)
{
	char where[160];
	char path[128];

	hal_test_path(state, "bad.yaml", path, sizeof(path));
	hal_test_write(path, text, strlen(text));
	(void)snprintf(where, sizeof(where), "%s:%u: ", path, line);
	opt_fails(opt_no_args, NULL, path, opt_says(where));
	opt_fails(opt_no_args, NULL, path, texts);
}

static void
opt_file_values(void **state)
{
	opt_file_fails(state, "\nstore:\n  dram: 64G # oops\n", 3,
		opt_says("store.dram: \"64G\"", "say GiB", "64KiB..16TiB"));
	opt_file_fails(state, "store.dram: 64G\n", 1, opt_says("store.dram: \"64G\""));
	opt_file_fails(
		state, "node.fast: maybe\n", 1, opt_says("node.fast: \"maybe\"", "true|false"));
	opt_file_fails(state, "node:\n  prt: 5\n", 2,
		opt_says("\"node.prt\" is not an option", "nearest is node.port"));
	opt_file_fails(state, "node: 5\n", 1, opt_says("\"node\" is not an option"));
	opt_file_fails(state, "node.port: 1\nnode:\n  port: 2\n", 3,
		opt_says("node.port: \"2\"", "second value, line 1", "accepted"));
	opt_file_fails(state, "node.port:\n", 1, opt_says("node.port has no value", "0..65535"));
	opt_file_fails(state, "node.name: \"a\\0b\"\n", 1, opt_says("node.name", "NUL"));
	opt_file_fails(state, "node.name: \"a\\nb\"\n", 1, opt_says("node.name", "control"));
	opt_file_fails(state, "node.port: !!int 5\n", 1, opt_says("node.port", "tags"));
	opt_file_fails(state, "node.port: &a 5\n", 1, opt_says("node.port", "anchors"));
	opt_file_fails(state, "node.port: *a\n", 1, opt_says("node.port", "aliases"));
}

static void
opt_file_shape(void **state)
{
	opt_file_fails(state, "node.port: [1, 2]\n", 1,
		opt_says("node.port: a list stands where a single value is due"));
	opt_file_fails(state, "node.port:\n- 1\n", 2, opt_says("node.port: a list"));
	opt_file_fails(state, "- 1\n", 1, opt_says("the file: a list"));
	opt_file_fails(state, "node.port: {x: 1}\n", 1, opt_says("node.port: a map stands"));
	opt_file_fails(state, "? {a: b}\n: 1\n", 1, opt_says("a map stands where a key is due"));
	opt_file_fails(state, "hello\n", 1, opt_says("\"hello\" stands alone", "accepted"));
	opt_file_fails(state, "a: {a: {a: {a: {a: {a: {a: {a: {a: 1}}}}}}}}\n", 1,
		opt_says("nested more than 8 deep"));
	opt_file_fails(state, "count: 1\n---\ncount: 2\n", 2, opt_says("second document"));
	opt_file_fails(state, "count: 1\n\"\": 2\n", 2, opt_says("a key that is empty"));
	opt_file_fails(state, "count: 1\nnode:\n\tport: 2\n", 3, opt_says("tab", "spaces"));
	opt_file_fails(state, "count: 1\nnode: {\n", 3, opt_says("not YAML"));
	opt_file_fails(state,
		"count: 1\nnode.name: a\x01"
		"b\n",
		2, opt_says("not YAML", "control"));
	opt_file_fails(state, "count: 1\nnode.name: caf\xe9\n", 2,
		opt_says("byte 0xe9 is not valid UTF-8"));
	opt_file_fails(state,
		"\xff\xfe"
		"c\n",
		1, opt_says("not valid UTF-8")); /* UTF-16 */
}

static void
opt_file_accepts(void **state)
{
	static const char *const texts[] = {"", "# only a comment\n", "---\n", "{}\n",
		("\xef\xbb\xbf" /* a byte order mark */ "count: 0\n"), "count: '0'\n",
		"{count: 0, node: {name: \"local\"}}"};
	struct kvp_opts opts;
	char path[128];

	hal_test_path(state, "good.yaml", path, sizeof(path));
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		hal_test_write(path, texts[i], strlen(texts[i]));
		if (opt_load(&opts, opt_no_args, NULL, path) < 0) {
			fail_msg("%zu: %s", i, opts.error);
		}
		assert_string_equal(kvp_opt_str(&opts, "node.name"), "local");
		kvp_opts_free(&opts);
	}
}

/* A table with a bad default is told like every other mistake, so the first start finds it. */
static void
opt_bad_default(void **state)
{
	static const struct kvp_opt_desc row = {"x", KVP_OPT_UINT, "9", "1..5", "x"};
	struct kvp_opts opts;

	(void)state;
	assert_int_equal(kvp_opts_load(&opts, &row, 1, 1, opt_no_args, NULL, NULL), -KVP_E_CONFIG);
	assert_non_null(strstr(opts.error, "default: x: \"9\" is out of range"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opt_types_accept),
		cmocka_unit_test(opt_real),
		cmocka_unit_test(opt_types_refuse),
		cmocka_unit_test(opt_long_values_are_cut),
		hal_test_in_dir(opt_precedence),
		hal_test_in_dir(opt_config_sources),
		cmocka_unit_test(opt_command_line),
		cmocka_unit_test(opt_command_line_errors),
		cmocka_unit_test(opt_environment_errors),
		cmocka_unit_test(opt_environment_names),
		hal_test_in_dir(opt_file_values),
		hal_test_in_dir(opt_file_shape),
		hal_test_in_dir(opt_file_accepts),
		cmocka_unit_test(opt_bad_default),
	};

	return cmocka_run_group_tests_name("opt", tests, NULL, NULL);
}
