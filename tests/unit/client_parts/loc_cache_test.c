/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loc_cache_test.c - the location cache against a model: what it answers was put last under that
 * key and not dropped since, it never holds more than it may, and it keeps what is used.
 */
#include "client/loc_cache.h"
#include "transport/proto/wire.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define KEYS 400u

static const uint8_t ns_a[KVP_NS_LEN] = {1};
static const uint8_t ns_b[KVP_NS_LEN] = {2};

static struct kvp_key
key_of(uint32_t n)
{
	struct kvp_key key;

	assert_int_equal(kvp_key_set(&key, &n, sizeof(n)), 0);
	return key;
}

static struct kvp_loc
loc_of(uint64_t generation, uint32_t slot)
{
	return (struct kvp_loc){
		.word = kvp_word_make(1, generation, KVP_SLOT_VALID),
		.off = slot * 4096ull,
		.len = 100 + slot,
		.slot = slot,
		.node = 3,
	};
}

static uint32_t
rand_below(uint64_t *seed, uint32_t bound)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((*seed >> 33) % bound);
}

/* model[n] is the generation put last under key n, 0 when none may be answered. */
static void
model_step(struct kvp_loc_cache *cache, uint64_t model[KEYS], uint64_t *seed, uint64_t generation)
{
	uint32_t n = rand_below(seed, KEYS);
	struct kvp_key key = key_of(n);
	struct kvp_loc loc = loc_of(generation, n);

	switch (rand_below(seed, 4)) {
	case 0:
		kvp_loc_cache_put(cache, ns_a, &key, &loc);
		model[n] = generation;
		break;
	case 1:
		if (model[n] != 0 && rand_below(seed, 4) == 0) {
			loc = loc_of(model[n], n);
			model[n] = 0;
		} /* else another generation: nothing is dropped */
		kvp_loc_cache_drop(cache, ns_a, &key, &loc);
		break;
	default:
		if (kvp_loc_cache_get(cache, ns_a, &key, &loc)) {
			struct kvp_loc want = loc_of(model[n], n);

			assert_int_not_equal(model[n], 0);
			assert_memory_equal(&loc, &want, sizeof(loc));
		}
	}
}

static void
test_model(void **state)
{
	const uint32_t sizes[] = {1, 3, 8, 20, 100, 1000};
	uint64_t seed = 20260101;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint64_t model[KEYS] = {0};
		struct kvp_loc_cache *cache;
		uint32_t held = 0;

		assert_int_equal(kvp_loc_cache_open(sizes[s], seed, &cache), 0);
		for (uint64_t i = 1; i <= 40000; i++) {
			model_step(cache, model, &seed, i);
		}
		for (uint32_t n = 0; n < KEYS; n++) {
			struct kvp_key key = key_of(n);
			struct kvp_loc loc;

			held += kvp_loc_cache_get(cache, ns_a, &key, &loc);
			assert_false(kvp_loc_cache_get(cache, ns_b, &key, &loc));
		}
		assert_in_range(held, 1, sizes[s]);
		kvp_loc_cache_close(cache);
	}
}

/* Only who knows the generation that is there can drop it. */
static void
test_drop(void **state)
{
	struct kvp_key key = key_of(1);
	struct kvp_loc loc = loc_of(5, 1);
	struct kvp_loc other = loc_of(6, 1);
	struct kvp_loc got;
	struct kvp_loc_cache *cache;

	(void)state;
	assert_int_equal(kvp_loc_cache_open(8, 1, &cache), 0);
	kvp_loc_cache_put(cache, ns_a, &key, &loc);
	kvp_loc_cache_drop(cache, ns_a, &key, &other);
	assert_true(kvp_loc_cache_get(cache, ns_a, &key, &got));
	other = loc;
	other.node++;
	kvp_loc_cache_drop(cache, ns_a, &key, &other);
	assert_true(kvp_loc_cache_get(cache, ns_a, &key, &got));
	kvp_loc_cache_drop(cache, ns_b, &key, &loc);
	assert_true(kvp_loc_cache_get(cache, ns_a, &key, &got));
	kvp_loc_cache_drop(cache, ns_a, &key, &loc);
	assert_false(kvp_loc_cache_get(cache, ns_a, &key, &got));
	kvp_loc_cache_close(cache);
}

static void
test_bounded(void **state)
{
	struct kvp_loc_cache *cache;
	uint32_t held = 0;

	(void)state;
	assert_int_equal(kvp_loc_cache_open(0, 1, &cache), -EINVAL);
	assert_int_equal(kvp_loc_cache_open(4096, 1, &cache), 0);
	for (uint32_t n = 0; n < 100000; n++) {
		struct kvp_key key = key_of(n);
		struct kvp_loc loc = loc_of(n + 1, n);

		kvp_loc_cache_put(cache, ns_a, &key, &loc);
		assert_true(kvp_loc_cache_get(cache, ns_a, &key, &loc)); /* the newest stays */
	}
	for (uint32_t n = 0; n < 100000; n++) {
		struct kvp_key key = key_of(n);
		struct kvp_loc loc;

		held += kvp_loc_cache_get(cache, ns_a, &key, &loc);
	}
	/* The sets fill evenly: nearly all the room is used. */
	assert_in_range(held, 4000, 4096);
	kvp_loc_cache_close(cache);
}

/* A key asked for all the time stays while strangers pass through. */
static void
test_keeps_what_is_used(void **state)
{
	struct kvp_key hot = key_of(1u << 30);
	struct kvp_loc loc = loc_of(1, 1);
	struct kvp_loc_cache *cache;

	(void)state;
	assert_int_equal(kvp_loc_cache_open(64, 7, &cache), 0);
	kvp_loc_cache_put(cache, ns_a, &hot, &loc);
	for (uint32_t n = 0; n < 10000; n++) {
		struct kvp_key key = key_of(n);

		loc = loc_of(n + 2, n);
		kvp_loc_cache_put(cache, ns_a, &key, &loc);
		assert_true(kvp_loc_cache_get(cache, ns_a, &hot, &loc));
		assert_int_equal(loc.slot, 1);
	}
	kvp_loc_cache_close(cache);
}

static void *
thread_main(void *arg)
{
	struct kvp_loc_cache *cache = arg;
	uint64_t seed = (uint64_t)(uintptr_t)&cache;

	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t n = rand_below(&seed, KEYS);
		struct kvp_key key = key_of(n);
		struct kvp_loc loc = loc_of(n + 1, n);
		struct kvp_loc got;

		if (i % 3 == 0) {
			kvp_loc_cache_put(cache, ns_a, &key, &loc);
		} else if (i % 7 == 0) {
			kvp_loc_cache_drop(cache, ns_a, &key, &loc);
		} else if (kvp_loc_cache_get(cache, ns_a, &key, &got)) {
			assert_memory_equal(&got, &loc, sizeof(loc)); /* never half of two */
		}
	}
	return NULL;
}

static void
test_threads(void **state)
{
	struct kvp_loc_cache *cache;
	pthread_t threads[4];

	(void)state;
	assert_int_equal(kvp_loc_cache_open(128, 9, &cache), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, cache), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
	}
	kvp_loc_cache_close(cache);
	kvp_loc_cache_close(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_keeps_what_is_used),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
