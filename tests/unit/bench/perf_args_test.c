/* SPDX-License-Identifier: Apache-2.0 */
/* perf_args_test.c - perftest's letters in all the forms that getopt takes. */
#include "bench/perf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Both are words between blanks. */
static void
check(const char *given, const char *due)
{
	char words[256];
	char joined[512] = "";
	char *argv[32];
	char *rest = words;
	char **out = NULL;
	char error[128];
	int argc = 0;
	int out_argc = 0;

	strcpy(words, given);
	while ((argv[argc] = strsep(&rest, " ")) != NULL) {
		argc++;
	}
	assert_int_equal(
		kvp_perf_args_expand(argc, argv, &out_argc, &out, error, sizeof(error)), 0);
	for (int i = 0; i < out_argc; i++) {
		strcat(joined, i > 0 ? " " : "");
		strcat(joined, out[i]);
	}
	assert_null(out[out_argc]);
	assert_string_equal(joined, due);
	free(out);
}

static void
test_letters(void **state)
{
	(void)state;
	check("bw", "bw");
	check("bw -s 64 -n100", "bw --size=64 --iters=100");
	check("bw -aF -q 2", "bw --all --CPU-freq --qp=2");
	check("bw -eNFs64 --via=raw", "bw --events --noPeak --CPU-freq --size=64 --via=raw");
	check("bw -D 5 -f 1 -t 16 -l 4", "bw --duration=5 --margin=1 --tx-depth=16 --post_list=4");
	check("lat -w 1 -y 2 -p 3 -d x", "lat --limit_bw=1 --limit_msgrate=2 --port=3 --ib-dev=x");
	check("lat -H -U -V -h -R",
		"lat --report-histogram --report-unsorted --version --help --rdma_cm");
	check("bw --ticket - x", "bw --ticket - x");
}

static void
test_mistakes(void **state)
{
	char *unknown[] = {"bw", "-s", "64", "-aZ"};
	char *no_value[] = {"bw", "-as"};
	char error[128];
	char **out;
	int out_argc;

	(void)state;
	assert_int_equal(
		kvp_perf_args_expand(4, unknown, &out_argc, &out, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "-Z"));
	assert_int_equal(
		kvp_perf_args_expand(2, no_value, &out_argc, &out, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "-s (--size) needs a value"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_letters),
		cmocka_unit_test(test_mistakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
