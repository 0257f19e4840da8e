/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_test.c - registered ranges: overlaps, counting, users, and a remove that waits. The
 * transports are stubs that count registrations.
 */
#include "client/region.h"
#include "hal/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#define AT(off) ((void *)(uintptr_t)(0x10000000ull + (off)))
#define PAGE    4096u

struct kvp_mr {
	struct stub *stub;
	const void *base;
};

struct stub {
	struct kvp_xport xport;
	atomic_int live;
	atomic_int fail; /* the next registration fails with it */
};

static int
stub_mr_reg(
	struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct stub *stub = (struct stub *)xport;
	int fail = atomic_exchange(&stub->fail, 0);

	assert_int_equal(access, KVP_MR_LOCAL);
	if (fail < 0) {
		return fail;
	}
	*ret_mr = malloc(sizeof(**ret_mr));
	assert_non_null(*ret_mr);
	**ret_mr = (struct kvp_mr){.stub = stub, .base = mem->base};
	atomic_fetch_add(&stub->live, 1);
	return 0;
}

static void
stub_mr_dereg(struct kvp_mr *mr)
{
	atomic_fetch_sub(&mr->stub->live, 1);
	free(mr);
}

static const struct kvp_xport_ops stub_ops = {
	.name = "stub", .mr_reg = stub_mr_reg, .mr_dereg = stub_mr_dereg};

struct fixture {
	struct stub stubs[2];
	struct kvp_regions *regions;
};

static int
setup(void **state)
{
	struct fixture *fix = calloc(1, sizeof(*fix));
	struct kvp_xport *xports[2];

	for (int i = 0; i < 2; i++) {
		fix->stubs[i].xport.ops = &stub_ops;
		xports[i] = &fix->stubs[i].xport;
	}
	assert_int_equal(kvp_regions_open(xports, 2, &fix->regions), 0);
	*state = fix;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *fix = *state;

	kvp_regions_close(fix->regions);
	assert_int_equal(fix->stubs[0].live, 0);
	assert_int_equal(fix->stubs[1].live, 0);
	free(fix);
	return 0;
}

static void
test_overlaps(void **state)
{
	struct kvp_regions *regions = ((struct fixture *)*state)->regions;

	assert_int_equal(kvp_regions_add(regions, AT(0x10000), 0x10000), 0);
	assert_int_equal(kvp_regions_add(regions, AT(0x30000), 0x10000), 0);
	/* Touching is fine on both sides. */
	assert_int_equal(kvp_regions_add(regions, AT(0x20000), 0x10000), 0);
	assert_int_equal(kvp_regions_remove(regions, AT(0x20000), 0x10000, 0), 0);

	assert_int_equal(kvp_regions_add(regions, AT(0x0ffff), 2), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0x1ffff), 2), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0x10000), 0xffff), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0x10001), 0xffff), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0), 0x100000), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0x20000), 0x10001), -EEXIST);
	assert_int_equal(kvp_regions_add(regions, AT(0x1c000), 0x18000), -EEXIST);

	assert_int_equal(kvp_regions_add(regions, NULL, 1), -EINVAL);
	assert_int_equal(kvp_regions_add(regions, AT(0), 0), -EINVAL);
	assert_int_equal(kvp_regions_add(regions, (void *)(UINTPTR_MAX - 10), 11), -EINVAL);
	assert_int_equal(
		kvp_regions_remove(regions, AT(0x10000), 0xffff, 0), -KVP_E_NOT_REGISTERED);
	assert_int_equal(kvp_regions_remove(regions, AT(0x40000), 1, 0), -KVP_E_NOT_REGISTERED);
}

static void
test_covers(void **state)
{
	struct fixture *fix = *state;
	struct kvp_region *region;

	assert_int_equal(kvp_regions_add(fix->regions, AT(0x10000), 0x10000), 0);
	assert_null(kvp_regions_ref(fix->regions, AT(0xffff), 2));
	assert_null(kvp_regions_ref(fix->regions, AT(0x10000), 0x10001));
	assert_null(kvp_regions_ref(fix->regions, AT(0x1ffff), 2));
	assert_null(kvp_regions_ref(fix->regions, AT(0x10001), SIZE_MAX));
	assert_null(kvp_regions_ref(fix->regions, AT(0x20001), 1));
	assert_null(kvp_regions_ref(fix->regions, AT(0x20000), 1));
	region = kvp_regions_ref(fix->regions, AT(0x10000), 0x10000);
	assert_non_null(region);
	assert_true(kvp_region_covers(region, AT(0x1ffff), 1));
	assert_false(kvp_region_covers(region, AT(0x1ffff), 2));
	assert_false(kvp_region_covers(region, AT(0xffff), 1));
	for (uint32_t i = 0; i < 2; i++) {
		assert_ptr_equal(kvp_region_mr(region, i)->stub, &fix->stubs[i]);
		assert_ptr_equal(kvp_region_mr(region, i)->base, AT(0x10000));
	}
	kvp_region_unref(region);
}

static void
test_counts(void **state)
{
	struct fixture *fix = *state;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), 0);
		assert_int_equal(fix->stubs[0].live, 1);
	}
	for (int i = 0; i < 3; i++) {
		struct kvp_region *region = kvp_regions_ref(fix->regions, AT(0), PAGE);

		assert_non_null(region);
		kvp_region_unref(region);
		assert_int_equal(fix->stubs[1].live, 1);
		assert_int_equal(kvp_regions_remove(fix->regions, AT(0), PAGE, 0), 0);
	}
	assert_int_equal(fix->stubs[0].live, 0);
	assert_null(kvp_regions_ref(fix->regions, AT(0), PAGE));
	assert_int_equal(kvp_regions_remove(fix->regions, AT(0), PAGE, 0), -KVP_E_NOT_REGISTERED);
}

/* The second transport refuses: the first one's registration is taken back too. */
static void
test_registration_fails(void **state)
{
	struct fixture *fix = *state;

	fix->stubs[1].fail = -ENOMEM;
	assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), -ENOMEM);
	assert_int_equal(fix->stubs[0].live, 0);
	assert_null(kvp_regions_ref(fix->regions, AT(0), PAGE));
	assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), 0);
}

static void
test_many(void **state)
{
	struct kvp_regions *regions = ((struct fixture *)*state)->regions;
	enum { COUNT = 1000 };

	/* In an order that inserts at every place: 7 has no factor in common with 1000. */
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(kvp_regions_add(regions, AT(i * 7 % COUNT * PAGE), PAGE), 0);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		struct kvp_region *region = kvp_regions_ref(regions, AT(i * PAGE + 5), PAGE - 5);

		assert_non_null(region);
		kvp_region_unref(region);
		assert_null(kvp_regions_ref(regions, AT(i * PAGE + 5), PAGE)); /* over two */
	}
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(
			kvp_regions_remove(regions, AT(i * 77 % COUNT * PAGE + 0), PAGE, 0), 0);
	}
}

static void
test_remove_times_out(void **state)
{
	struct kvp_regions *regions = ((struct fixture *)*state)->regions;
	const struct kvp_env *env = kvp_env_real();
	struct kvp_region *region;
	uint64_t start;

	assert_int_equal(kvp_regions_add(regions, AT(0), PAGE), 0);
	region = kvp_regions_ref(regions, AT(0), PAGE);
	kvp_region_ref(region);
	kvp_region_unref(region);
	start = kvp_now_ns(env);
	assert_int_equal(kvp_regions_remove(regions, AT(0), PAGE, 30), -KVP_E_TIMEOUT);
	assert_true(kvp_now_ns(env) - start >= 30 * KVP_NS_PER_MS);
	/* It is registered again, once. */
	kvp_region_unref(region);
	region = kvp_regions_ref(regions, AT(0), PAGE);
	assert_non_null(region);
	kvp_region_unref(region);
	assert_int_equal(kvp_regions_remove(regions, AT(0), PAGE, 0), 0);
	assert_int_equal(kvp_regions_remove(regions, AT(0), PAGE, 0), -KVP_E_NOT_REGISTERED);
}

struct remover {
	pthread_t thread;
	struct kvp_regions *regions;
	int result;
};

static void *
remover_main(void *arg)
{
	struct remover *remover = arg;

	remover->result = kvp_regions_remove(remover->regions, AT(0), PAGE, 20000);
	return NULL;
}

/* Starts a remove in a thread and returns once it waits: new users are refused from then on. */
static void
remover_start(struct remover *remover, struct kvp_regions *regions)
{
	struct kvp_region *region;

	*remover = (struct remover){.regions = regions, .result = 1};
	assert_int_equal(pthread_create(&remover->thread, NULL, remover_main, remover), 0);
	while ((region = kvp_regions_ref(regions, AT(0), PAGE)) != NULL) {
		kvp_region_unref(region);
		sched_yield();
	}
}

static void
test_remove_waits(void **state)
{
	struct fixture *fix = *state;
	uint64_t start = kvp_now_ns(kvp_env_real());
	struct kvp_region *region;
	struct remover remover;

	assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), 0);
	region = kvp_regions_ref(fix->regions, AT(0), PAGE);
	remover_start(&remover, fix->regions);
	assert_int_equal(fix->stubs[0].live, 1);
	assert_int_equal(kvp_regions_remove(fix->regions, AT(0), PAGE, 0), -KVP_E_NOT_REGISTERED);
	assert_int_equal(kvp_regions_add(fix->regions, AT(1), PAGE), -EEXIST);
	kvp_region_ref(region); /* who holds it may still share it */
	kvp_region_unref(region);
	kvp_region_unref(region);
	pthread_join(remover.thread, NULL);
	/* Woken by the last user, not by its time-out of 20 s. */
	assert_true(kvp_now_ns(kvp_env_real()) - start < 10 * KVP_NS_PER_S);
	assert_int_equal(remover.result, 0);
	assert_int_equal(fix->stubs[0].live, 0);
}

/* Registered anew while a remove waits: the remove is done, the new registration stands. */
static void
test_added_while_removing(void **state)
{
	struct fixture *fix = *state;
	struct kvp_region *region;
	struct remover remover;

	assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), 0);
	region = kvp_regions_ref(fix->regions, AT(0), PAGE);
	remover_start(&remover, fix->regions);
	assert_int_equal(kvp_regions_add(fix->regions, AT(0), PAGE), 0);
	pthread_join(remover.thread, NULL);
	assert_int_equal(remover.result, 0);
	assert_int_equal(fix->stubs[0].live, 1);
	kvp_region_unref(region);
	assert_int_equal(kvp_regions_remove(fix->regions, AT(0), PAGE, 0), 0);
}

enum { CHURN_THREADS = 4, CHURN_ROUNDS = 3000 };

/* Adds, uses and removes one range that all the threads share, and one of its own. */
static void *
churn_main(void *arg)
{
	struct kvp_regions *regions = *(struct kvp_regions **)arg;

	for (int i = 0; i < CHURN_ROUNDS; i++) {
		struct kvp_region *region;
		int err;

		assert_int_equal(kvp_regions_add(regions, AT(0), PAGE), 0);
		region = kvp_regions_ref(regions, AT(16), 16);
		if (region != NULL) { /* else somebody's remove waits for the users */
			kvp_region_unref(region);
		}
		err = kvp_regions_remove(regions, AT(0), PAGE, 20000);
		assert_int_equal(err, 0);
	}
	return NULL;
}

static void
test_churn(void **state)
{
	struct fixture *fix = *state;
	pthread_t threads[CHURN_THREADS];

	for (int i = 0; i < CHURN_THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, churn_main, &fix->regions), 0);
	}
	for (int i = 0; i < CHURN_THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_null(kvp_regions_ref(fix->regions, AT(0), PAGE));
	assert_int_equal(fix->stubs[0].live, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_overlaps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_covers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_registration_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove_times_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_added_while_removing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_churn, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
