/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_print_test.c - what --print-config writes is a file that gives the same values again.
 */
#include "hal/base/opt.h"
#include "tests/unit/hal/hal_test.h"

static const struct kvp_opt_desc print_rows[] = {
	{"a.text", KVP_OPT_STRING, "", NULL, "some text"},
	{"a.size", KVP_OPT_SIZE, "65537", "1..1TiB", "some size"},
	{"a.time", KVP_OPT_TIME, "1500ms", NULL, "some time"},
	{"a.flag", KVP_OPT_BOOL, "true", NULL, "some flag"},
	{"b.share", KVP_OPT_REAL, "-0.25", NULL, "some share"},
	{"b.kind", KVP_OPT_CHOICE, "x", "x|y", "some kind"},
	{"b.count", KVP_OPT_UINT, "7", "0..9", "some count"},
};
#define PRINT_ROWS (sizeof(print_rows) / sizeof(print_rows[0]))

/* Runs print with standard output going to path. */
static void
print_to(const char *path, void (*print)(const struct kvp_opts *opts), const struct kvp_opts *opts)
{
	FILE *file = fopen(path, "we");
	int saved;

	assert_non_null(file);
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
	print(opts);
	assert_true(dup2(saved, STDOUT_FILENO) >= 0);
	close(saved);
	fclose(file);
}

static void
print_read(const char *path, char *buf, size_t cap)
{
	FILE *file = fopen(path, "re");
	size_t len;

	assert_non_null(file);
	len = fread(buf, 1, cap - 1, file);
	buf[len] = '\0';
	fclose(file);
}

static void
print_round_trip(void **state, char *text)
{
	char argument[128];
	char *first_argv[] = {"prog", argument, "--b.kind=y", NULL};
	char *second_argv[] = {"prog", NULL};
	struct kvp_opts first;
	struct kvp_opts second;
	char path[128];

	hal_test_path(state, "config.yaml", path, sizeof(path));
	(void)snprintf(argument, sizeof(argument), "--a.text=%s", text);
	assert_int_equal(
		kvp_opts_load(&first, print_rows, PRINT_ROWS, 3, first_argv, NULL, NULL), 0);
	print_to(path, kvp_opts_print, &first);
	if (kvp_opts_load(&second, print_rows, PRINT_ROWS, 1, second_argv, NULL, path) < 0) {
		fail_msg("%s", second.error);
	}
	for (size_t i = 0; i < PRINT_ROWS; i++) {
		assert_string_equal(first.values[i].text, second.values[i].text);
		assert_int_equal(first.values[i].number, second.values[i].number);
		assert_true(first.values[i].real == second.values[i].real);
		assert_ptr_equal(strstr(second.values[i].origin, "file "), second.values[i].origin);
	}
	kvp_opts_free(&first);
	kvp_opts_free(&second);
}

static void
print_is_read_again(void **state)
{
	static char *const texts[] = {"", "plain", "/run/kvpool/x.sock", "a: b # c", "\"q\" \\n",
		"- x", "-", "null", "~", "[1]", "{a}", "*a", "&a", "!t", "'s'", " lead", "trail ",
		"kn\xc3\xb6nig \xe2\x82\xac \xf0\x9f\x90\x99", "a:1", "#", "%x", "@x", "`x", "?"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		print_message("%s\n", texts[i]);
		print_round_trip(state, texts[i]);
	}
}

static void
print_exact_text(void **state)
{
	char *argv[] = {"prog", "--a.text=a b", NULL};
	struct kvp_opts opts;
	char path[128];
	char text[512];

	hal_test_path(state, "out", path, sizeof(path));
	assert_int_equal(kvp_opts_load(&opts, print_rows, PRINT_ROWS, 2, argv, NULL, NULL), 0);
	print_to(path, kvp_opts_print, &opts);
	print_read(path, text, sizeof(text));
	assert_string_equal(text, "a.text: \"a b\" # command line\n"
				  "a.size: 65537 # default\n"
				  "a.time: 1500ms # default\n"
				  "a.flag: true # default\n"
				  "b.share: \"-0.25\" # default\n"
				  "b.kind: x # default\n"
				  "b.count: 7 # default\n");
	kvp_opts_free(&opts);
}

static void
print_help(const struct kvp_opts *opts)
{
	(void)opts;
	kvp_opts_help(print_rows, PRINT_ROWS, "prog [options]");
}

static void
print_help_names_all(void **state)
{
	char path[128];
	char text[4096];

	hal_test_path(state, "out", path, sizeof(path));
	print_to(path, print_help, NULL);
	print_read(path, text, sizeof(text));
	assert_ptr_equal(strstr(text, "usage: prog [options]\n"), text);
	for (size_t i = 0; i < PRINT_ROWS; i++) {
		assert_non_null(strstr(text, print_rows[i].path));
		assert_non_null(strstr(text, print_rows[i].help));
	}
	assert_non_null(strstr(text, "--b.kind=x|y "));
	assert_non_null(strstr(text, "--a.size=SIZE   1..1TiB   default 65537\n"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		hal_test_in_dir(print_is_read_again),
		hal_test_in_dir(print_exact_text),
		hal_test_in_dir(print_help_names_all),
	};

	return cmocka_run_group_tests_name("opt_print", tests, NULL, NULL);
}
