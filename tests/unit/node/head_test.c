/* SPDX-License-Identifier: Apache-2.0 */
/* head_test.c - the head of the shared memory: what is written is read, whatever else is there. */
#include "pool/node/head.h"

#include "hal/base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 100u

static void
test_layout(void **state)
{
	uint8_t *base = calloc(1, kvp_head_len(SLOTS));
	uint8_t *end = base + kvp_head_len(SLOTS);

	(void)state;
	assert_int_equal(kvp_head_tokens(base) - base, 4096);
	assert_true(kvp_head_tokens(base) + KVP_HEAD_OWNERS_MAX * KVP_TOKEN_LEN <=
		    (uint8_t *)kvp_head_notes(base));
	assert_ptr_equal((uint8_t *)(kvp_head_notes(base) + SLOTS), end);
	free(base);
}

static void
test_rewrites(void **state)
{
	uint8_t *base = calloc(1, kvp_head_len(SLOTS));
	struct kvp_head_info info = {.slots = SLOTS};
	struct kvp_head_info seen;

	(void)state;
	assert_int_equal(kvp_head_read(base, &seen), -EINVAL);
	for (uint64_t i = 1; i < 10; i++) {
		info.incarnation = i;
		kvp_head_write(base, &info);
		assert_int_equal(kvp_head_read(base, &seen), 0);
		assert_int_equal(seen.incarnation, i);
		assert_int_equal(seen.serial, i);
		assert_int_equal(seen.slots, SLOTS);
	}
	free(base);
}

/* Whoever dies while it writes leaves the former: any mixture of the two copies' bytes. */
static void
test_torn(void **state)
{
	uint8_t *base = calloc(1, kvp_head_len(SLOTS));
	uint8_t *next = calloc(1, kvp_head_len(SLOTS));
	struct kvp_head_info info = {.slots = SLOTS, .incarnation = 1};
	struct kvp_head_info seen;

	(void)state;
	for (info.incarnation = 1; info.incarnation < 6; info.incarnation++) {
		kvp_head_write(base, &info);
	}
	memcpy(next, base, kvp_head_len(SLOTS));
	kvp_head_write(next, &info);
	for (size_t cut = 0; cut <= 2 * 2048; cut++) {
		uint8_t *mixed = malloc(kvp_head_len(SLOTS));

		memcpy(mixed, base, kvp_head_len(SLOTS));
		memcpy(mixed, next, cut);
		assert_int_equal(kvp_head_read(mixed, &seen), 0);
		assert_true(seen.incarnation == 5 || seen.incarnation == 6);
		free(mixed);
	}
	free(next);
	free(base);
}

static void
test_damage(void **state)
{
	uint8_t *base = calloc(1, kvp_head_len(SLOTS));
	struct kvp_head_info info = {.slots = SLOTS, .incarnation = 1};
	struct kvp_head_info seen = {0};
	uint32_t version = KVP_HEAD_VERSION + 1;

	(void)state;
	kvp_head_write(base, &info);
	for (size_t bit = 0; bit < 8 * sizeof(info); bit++) {
		base[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(kvp_head_read(base, &seen),
			bit / 8 >= 8 && bit / 8 < 12 ? -KVP_E_VERSION : -EINVAL);
		base[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	memcpy(base + 8, &version, sizeof(version));
	assert_int_equal(kvp_head_read(base, &seen), -KVP_E_VERSION);
	assert_int_equal(seen.version, version);
	kvp_head_write(base, &info); /* over the other one's */
	assert_int_equal(kvp_head_read(base, &seen), 0);
	free(base);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_rewrites),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests_name("head", tests, NULL, NULL);
}
