/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_test.c - seeds of the simulated cluster. KVP_TEST_SEED=N runs one, KVP_TEST_SEEDS=N so
 * many. */
#include "tests/sim/sim_cluster.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEEDS 60u
#define OPS   400u

static uint64_t
env_number(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);

	return text == NULL ? fallback : strtoull(text, NULL, 0);
}

static bool
outcome_bad(const struct sim_outcome *out)
{
	return out->wrong_bytes > 0 || out->late > 0 || out->lost > 0 || out->leased_lost > 0 ||
	       out->stuck;
}

static void
outcome_print(uint64_t seed, const struct sim_outcome *out)
{
	printf("seed %" PRIu64 ": ops %" PRIu64 " hits %" PRIu64 " misses %" PRIu64 " puts %" PRIu64
	       " errors %" PRIu64 " stale %" PRIu64 " evicted %" PRIu64 " broken %" PRIu64
	       " fenced %" PRIu64 " leases %" PRIu64 " leased hits %" PRIu64 " held %" PRIu64
	       " epochs %" PRIu64 " late writers %" PRIu64 " | leased lost %" PRIu64
	       " wrong bytes %" PRIu64 " late %" PRIu64 " lost %" PRIu64 "%s\n",
		seed, out->ops, out->hits, out->misses, out->puts, out->errors, out->stale,
		out->evicted, out->broken, out->fenced, out->leases, out->leased_hits, out->held,
		out->epochs, out->late_writers, out->leased_lost, out->wrong_bytes, out->late,
		out->lost, out->stuck ? " STUCK" : "");
}

static void
sum_add(struct sim_outcome *sum, const struct sim_outcome *out)
{
	sum->ops += out->ops;
	sum->hits += out->hits;
	sum->misses += out->misses;
	sum->puts += out->puts;
	sum->errors += out->errors;
	sum->stale += out->stale;
	sum->evicted += out->evicted;
	sum->broken += out->broken;
	sum->fenced += out->fenced;
	sum->leases += out->leases;
	sum->leased_hits += out->leased_hits;
	sum->leased_lost += out->leased_lost;
	sum->held += out->held;
	sum->epochs += out->epochs;
	sum->late_writers += out->late_writers;
}

static void
seeds_run(bool faults, struct sim_outcome *ret_sum)
{
	uint64_t only = env_number("KVP_TEST_SEED", 0);
	uint64_t count = only != 0 ? 1 : env_number("KVP_TEST_SEEDS", SEEDS);

	*ret_sum = (struct sim_outcome){0};
	for (uint64_t i = 0; i < count; i++) {
		struct sim_run_cfg cfg = {
			.seed = only != 0 ? only : i + 1, .ops = OPS, .faults = faults};
		struct sim_outcome out;

		sim_cluster_run(&cfg, &out);
		sum_add(ret_sum, &out);
		if (outcome_bad(&out) || only != 0) {
			outcome_print(cfg.seed, &out);
			assert_false(outcome_bad(&out));
		}
	}
	printf("%" PRIu64 " seeds%s, in all: ", count, faults ? " with faults" : "");
	outcome_print(0, ret_sum);
}

static void
test_quiet(void **state)
{
	struct sim_outcome sum;

	(void)state;
	seeds_run(false, &sum);
	assert_int_equal(sum.errors, 0);
	assert_true(sum.hits > 0 && sum.puts > 0 && sum.misses > 0);
	assert_true(sum.evicted > 0);
	assert_true(sum.leased_hits > 0 && sum.held > 0);
	assert_true(sum.epochs > 0 && sum.late_writers > 0);
	assert_true(sum.stale > 0); /* else the race this is about never happened */
}

static void
test_faults(void **state)
{
	struct sim_outcome sum;

	(void)state;
	seeds_run(true, &sum);
	assert_true(sum.hits > 0 && sum.puts > 0 && sum.evicted > 0 && sum.stale > 0);
	assert_true(sum.broken > 0 && sum.fenced > 0);
}

static void
test_same_seed_same_run(void **state)
{
	struct sim_run_cfg cfg = {.seed = 4711, .ops = OPS, .faults = true};
	struct sim_outcome first, second;

	(void)state;
	sim_cluster_run(&cfg, &first);
	sim_cluster_run(&cfg, &second);
	assert_int_equal(first.digest, second.digest);
	cfg.seed++;
	sim_cluster_run(&cfg, &second);
	assert_int_not_equal(first.digest, second.digest);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_same_seed_same_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
