/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err_test.c - the error table and what is asked of it.
 */
#include "hal/base/err.h"
#include "tests/unit/hal/hal_test.h"

#include <errno.h>
#include <limits.h>

static void
err_rows_are_distinct(void **state)
{
	static const int numbers[] = {
#define KVP_ERR(name, number, scope, retry, text) KVP_E_##name,
#include "hal/base/err.def"
#undef KVP_ERR
	};
	size_t count = sizeof(numbers) / sizeof(numbers[0]);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		assert_true(numbers[i] >= 5000);
		for (size_t j = 0; j < i; j++) {
			assert_int_not_equal(numbers[i], numbers[j]);
			assert_string_not_equal(
				kvp_err_name(-numbers[i]), kvp_err_name(-numbers[j]));
			assert_string_not_equal(kvp_err_str(-numbers[i]), kvp_err_str(-numbers[j]));
		}
	}
}

static void
err_own_codes(void **state)
{
	(void)state;
	assert_string_equal(kvp_err_name(-KVP_E_STALE), "KVP_E_STALE");
	assert_string_equal(kvp_err_str(-KVP_E_STALE), "location is stale, look the key up again");
	assert_int_equal(kvp_err_retry(-KVP_E_STALE), KVP_RETRY_RELOOKUP);
	assert_int_equal(kvp_err_scope(-KVP_E_CONNDOWN), KVP_SCOPE_CONN);
	assert_int_equal(kvp_err_retry(-KVP_E_BUSY), KVP_RETRY_SAME);
}

static void
err_foreign_codes(void **state)
{
	(void)state;
	assert_string_equal(kvp_err_name(-ENOENT), "ENOENT");
	assert_string_equal(kvp_err_str(-ENOENT), "No such file or directory");
	assert_int_equal(kvp_err_retry(-ENOENT), KVP_RETRY_NEVER);
	assert_int_equal(kvp_err_scope(-ENOENT), KVP_SCOPE_OP);
	assert_string_equal(kvp_err_str(0), "ok");
	assert_string_equal(kvp_err_name(0), "ok");
	assert_string_equal(kvp_err_str(-4999), "unknown error");
	assert_string_equal(kvp_err_name(INT_MIN), "unknown");
	/* A positive number is no error, whatever row has it. */
	assert_string_equal(kvp_err_str(KVP_E_STALE), "ok");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(err_rows_are_distinct),
		cmocka_unit_test(err_own_codes),
		cmocka_unit_test(err_foreign_codes),
	};

	return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
