/* SPDX-License-Identifier: Apache-2.0 */
/* hist_test.c - percentiles against sorted samples, the exact maximum, merging. */
#include "bench/hist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SAMPLES 20000

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void
test_percentiles(void **state)
{
	static const double shares[] = {0.01, 0.5, 0.9, 0.99, 0.999, 1.0};
	uint64_t *samples = malloc(SAMPLES * sizeof(*samples));
	struct kvp_hist *hist = calloc(1, sizeof(*hist));
	uint64_t x = 42;

	(void)state;
	for (int i = 0; i < SAMPLES; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		samples[i] = (x >> 33) >> (x % 31); /* from 0 to 2^31 ns, all octaves */
		kvp_hist_add(hist, samples[i]);
	}
	qsort(samples, SAMPLES, sizeof(*samples), by_value);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		uint64_t due = samples[(size_t)(shares[i] * SAMPLES) - 1];
		uint64_t got = kvp_hist_percentile(hist, shares[i]);

		assert_true(got >= due);
		assert_true(got <= due + due / 60 + 1);
	}
	assert_int_equal(hist->max_ns, samples[SAMPLES - 1]);
	assert_int_equal(kvp_hist_percentile(hist, 1.0), samples[SAMPLES - 1]);
	free(samples);
	free(hist);
}

static void
test_merge_and_empty(void **state)
{
	struct kvp_hist *a = calloc(1, sizeof(*a));
	struct kvp_hist *b = calloc(1, sizeof(*b));

	(void)state;
	assert_int_equal(kvp_hist_percentile(a, 0.5), 0);
	kvp_hist_merge(a, b);
	assert_int_equal(a->count, 0);
	kvp_hist_add(b, 10);
	kvp_hist_add(b, UINT64_MAX);
	kvp_hist_merge(a, b);
	kvp_hist_add(a, 5);
	assert_int_equal(a->count, 3);
	assert_int_equal(a->min_ns, 5);
	assert_int_equal(a->max_ns, UINT64_MAX);
	assert_int_equal(kvp_hist_percentile(a, 0.5), 5);
	free(a);
	free(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_merge_and_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
