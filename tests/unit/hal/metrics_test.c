/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_test.c - the exact Prometheus text of a table.
 */
#include "hal/base/metrics.h"
#include "tests/unit/hal/hal_test.h"

static const struct kvp_metric_desc metrics_rows[] = {
	{KVP_METRIC_COUNTER, "t_gets_total", "gets"},
	{KVP_METRIC_COUNTER, "t_rejects_total{reason=\"frame\"}", "refused input"},
	{KVP_METRIC_COUNTER, "t_rejects_total{reason=\"version\"}", "refused input"},
	{KVP_METRIC_GAUGE, "t_rejects", "a family of its own"},
};

static const char metrics_text[] = "# HELP t_gets_total gets\n"
				   "# TYPE t_gets_total counter\n"
				   "t_gets_total 18446744073709551615\n"
				   "# HELP t_rejects_total refused input\n"
				   "# TYPE t_rejects_total counter\n"
				   "t_rejects_total{reason=\"frame\"} 3\n"
				   "t_rejects_total{reason=\"version\"} 0\n"
				   "# HELP t_rejects a family of its own\n"
				   "# TYPE t_rejects gauge\n"
				   "t_rejects 42\n";

static void
metrics_setup(struct kvp_metrics *ret_metrics)
{
	assert_int_equal(kvp_metrics_init(ret_metrics, metrics_rows, 4), 0);
	kvp_metric_set(ret_metrics, 0, UINT64_MAX);
	kvp_metric_add(ret_metrics, 1, 1);
	kvp_metric_add(ret_metrics, 1, 2);
	kvp_metric_set(ret_metrics, 3, 42);
	kvp_metric_add(NULL, 1, 1);
}

static void
metrics_render_exactly(void **state)
{
	struct kvp_metrics metrics;
	char buf[1024];

	(void)state;
	metrics_setup(&metrics);
	assert_int_equal(kvp_metrics_render(&metrics, buf, sizeof(buf)), strlen(metrics_text));
	assert_string_equal(buf, metrics_text);
	kvp_metrics_fini(&metrics);
	kvp_metrics_fini(&metrics);
	kvp_metrics_fini(NULL);
}

static void
metrics_render_cut(void **state)
{
	struct kvp_metrics metrics;
	size_t len = strlen(metrics_text);
	char *buf;

	(void)state;
	metrics_setup(&metrics);
	for (size_t cap = 0; cap <= len + 1; cap++) {
		buf = malloc(cap + 1);
		assert_non_null(buf);
		buf[cap] = '!';
		assert_int_equal(kvp_metrics_render(&metrics, buf, cap), len);
		if (cap > 0) {
			assert_int_equal(strlen(buf), cap - 1);
			assert_memory_equal(buf, metrics_text, cap - 1);
		}
		assert_int_equal(buf[cap], '!');
		free(buf);
	}
	kvp_metrics_fini(&metrics);
}

static void
metrics_empty_table(void **state)
{
	struct kvp_metrics metrics;
	char buf[8] = "x";

	(void)state;
	assert_int_equal(kvp_metrics_init(&metrics, NULL, 0), 0);
	assert_int_equal(kvp_metrics_render(&metrics, buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	kvp_metrics_fini(&metrics);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metrics_render_exactly),
		cmocka_unit_test(metrics_render_cut),
		cmocka_unit_test(metrics_empty_table),
	};

	return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
