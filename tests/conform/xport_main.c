/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_main.c - runs the transport suite against the provider it was built for (XPORT_NAME).
 */
#include "tests/conform/xport_test.h"

#include <signal.h>
#include <unistd.h>

const struct kvp_xport_ops *test_ops;
char test_dir[64] = "/tmp/kvp-xport-XXXXXX";

static int
tests_run(void)
{
	size_t total = xport_data_count + xport_cm_count + xport_fence_count;
	struct CMUnitTest *all = calloc(total, sizeof(*all));
	int failed;

	if (all == NULL) {
		return 1;
	}
	memcpy(all, xport_data_tests, xport_data_count * sizeof(*all));
	memcpy(all + xport_data_count, xport_cm_tests, xport_cm_count * sizeof(*all));
	memcpy(all + xport_data_count + xport_cm_count, xport_fence_tests,
		xport_fence_count * sizeof(*all));
	failed = _cmocka_run_group_tests("conform.xport." XPORT_NAME, all, total, NULL, NULL);
	free(all);
	return failed != 0;
}

/* The signals that somebody catches, as /proc says. */
static unsigned long long
signals_caught(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long long caught = 0;
	char line[256];

	while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
		(void)sscanf(line, "SigCgt: %llx", &caught);
	}
	if (status != NULL) {
		(void)fclose(status);
	}
	return caught;
}

int
main(int argc, char **argv)
{
	unsigned long long caught = signals_caught();
	struct kvp_xport *probe = NULL;
	int ret;

	(void)signal(SIGPIPE, SIG_IGN);
	test_ops = kvp_xport_find(XPORT_NAME);
	if (test_ops == NULL) {
		return 2;
	}
	if (argc > 1 && strncmp(argv[1], "--", 2) == 0) {
		return test_child_main(argc, argv);
	}
	if (argc > 1) {
		cmocka_set_test_filter(argv[1]);
	}
	ret = test_open((struct kvp_xport_cfg){0}, &probe);
	if (ret == -KVP_E_NO_PROVIDER) {
		printf("skipped: %s is not usable here\n", XPORT_NAME);
		return 77;
	}
	if (ret != 0 || mkdtemp(test_dir) == NULL) {
		return 2;
	}
	probe->ops->close(probe);
	if (signals_caught() != caught) {
		printf("opening changed the handlers of signals: %llx to %llx\n", caught,
			signals_caught());
		return 1;
	}
	ret = tests_run();
	if (rmdir(test_dir) != 0) { /* every socket must be gone */
		perror(test_dir);
		ret = 1;
	}
	return ret;
}
