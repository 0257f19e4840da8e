/* SPDX-License-Identifier: Apache-2.0 */
/* quotas_test.c - the option store.quotas: what it takes, and what it refuses. */
#include "pool/node/quotas.h"

#include "hal/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DIGEST "00112233445566778899aABbccddeeff"

static struct kvp_node_quota quotas[KVP_QUOTAS_MAX];

static int
parse(const char *text, uint32_t *ret_count)
{
	return kvp_quotas_parse(text, NULL, quotas, ret_count);
}

static void
test_takes(void **state)
{
	uint32_t count = 7;

	(void)state;
	assert_int_equal(parse("", &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(parse(DIGEST "=64GiB", &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(quotas[0].bytes, 64ull << 30);
	assert_int_equal(quotas[0].ns[1], 0x11);
	assert_int_equal(quotas[0].ns[10], 0xaa);
	assert_int_equal(quotas[0].ns[15], 0xff);
	assert_int_equal(parse(DIGEST "=0," DIGEST "=4096", &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(quotas[0].bytes, 0);
	assert_int_equal(quotas[1].bytes, 4096);
}

static void
test_refuses(void **state)
{
	static const char *const bad[] = {",", DIGEST, DIGEST "=", DIGEST "=x", DIGEST "=-1",
		DIGEST "0=64GiB", "0=64GiB", "g0112233445566778899aabbccddeeff=1GiB",
		DIGEST "=1GiB,,", DIGEST "=2048TiB", " " DIGEST "=1GiB"};
	static char long_list[(sizeof(DIGEST) + 4) * (KVP_QUOTAS_MAX + 1)];
	uint32_t count = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i], &count), -KVP_E_CONFIG);
	}
	for (uint32_t i = 0; i <= KVP_QUOTAS_MAX; i++) {
		strcat(long_list, DIGEST "=0,");
	}
	assert_int_equal(parse(long_list, &count), -KVP_E_CONFIG);
	assert_int_equal(count, 7);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes),
		cmocka_unit_test(test_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
