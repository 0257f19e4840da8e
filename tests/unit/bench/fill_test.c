/* SPDX-License-Identifier: Apache-2.0 */
/* fill_test.c - a block that names itself must not be mistaken for another one. */
#include "bench/fill.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEN 4099u

static void
test_right(void **state)
{
	unsigned char *buf = malloc(LEN);
	struct kvp_fill seen;

	(void)state;
	for (size_t len = KVP_FILL_LEN_MIN; len <= LEN; len++) {
		struct kvp_fill fill = {.key = len, .writer = 7, .number = 3};

		kvp_fill_write(buf, len, &fill);
		assert_int_equal(kvp_fill_check(buf, len, len, &seen), 0);
		assert_int_equal(seen.writer, 7);
		assert_int_equal(seen.number, 3);
	}
	free(buf);
}

/* Every single byte counts, in the name and after it. */
static void
test_each_byte(void **state)
{
	unsigned char buf[LEN];
	struct kvp_fill fill = {.key = 1, .writer = 2, .number = 3};
	struct kvp_fill seen;

	(void)state;
	kvp_fill_write(buf, LEN, &fill);
	for (size_t i = 0; i < LEN; i++) {
		buf[i] ^= 0x40;
		assert_true(kvp_fill_check(buf, LEN, 1, &seen) > 0);
		buf[i] ^= 0x40;
	}
	assert_int_equal(kvp_fill_check(buf, LEN, 1, &seen), 0);
}

/* The front of one put and the rest of another, whatever differs between them. */
static void
test_mixtures(void **state)
{
	const struct kvp_fill fills[] = {{1, 2, 3}, {1, 2, 4}, {1, 3, 3}, {2, 2, 3}};
	unsigned char a[LEN], b[LEN], mixed[LEN];
	struct kvp_fill seen;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (size_t j = 0; j < 4; j++) {
			if (i == j) {
				continue;
			}
			kvp_fill_write(a, LEN, &fills[i]);
			kvp_fill_write(b, LEN, &fills[j]);
			for (size_t cut = 1; cut < LEN; cut += 61) {
				memcpy(mixed, a, cut);
				memcpy(mixed + cut, b + cut, LEN - cut);
				if (memcmp(mixed, a, LEN) == 0 || memcmp(mixed, b, LEN) == 0) {
					continue; /* they differ on one side of the cut only */
				}
				assert_true(kvp_fill_check(mixed, LEN, fills[i].key, &seen) > 0);
			}
		}
	}
}

static void
test_other_key_or_length(void **state)
{
	unsigned char buf[LEN];
	struct kvp_fill fill = {.key = 1, .writer = 2, .number = 3};
	struct kvp_fill seen;

	(void)state;
	kvp_fill_write(buf, LEN, &fill);
	assert_true(kvp_fill_check(buf, LEN, 2, &seen) > 0);
	assert_true(kvp_fill_check(buf, LEN - 8, 1, &seen) > 0);
	memset(buf, 0, LEN);
	assert_true(kvp_fill_check(buf, LEN, 0, &seen) > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_each_byte),
		cmocka_unit_test(test_mixtures),
		cmocka_unit_test(test_other_key_or_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
