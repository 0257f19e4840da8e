/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_test.h - what the tests of hal share: cmocka in its needed order, a directory that goes.
 */
#ifndef KVP_TESTS_UNIT_HAL_HAL_TEST_H
#define KVP_TESTS_UNIT_HAL_HAL_TEST_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct hal_test_dir {
	char path[64];
};

static inline int
hal_test_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* A cmocka setup: *state becomes a struct hal_test_dir of a new directory. */
static inline int
hal_test_setup(void **state)
{
	struct hal_test_dir *dir = malloc(sizeof(*dir));

	if (dir == NULL) {
		return -1;
	}
	strcpy(dir->path, "/tmp/kvpool-test-XXXXXX");
	*state = dir;
	return mkdtemp(dir->path) != NULL ? 0 : -1;
}

static inline int
hal_test_teardown(void **state)
{
	struct hal_test_dir *dir = *state;
	int ret = nftw(dir->path, hal_test_remove, 8, FTW_DEPTH | FTW_PHYS);

	free(dir);
	return ret;
}

static inline void
hal_test_path(void **state, const char *name, char *buf, size_t cap)
{
	const struct hal_test_dir *dir = *state;

	(void)snprintf(buf, cap, "%s/%s", dir->path, name);
}

static inline void
hal_test_write(const char *path, const char *text, size_t len)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

#define hal_test_in_dir(name)                                                                      \
	cmocka_unit_test_setup_teardown(name, hal_test_setup, hal_test_teardown)

#endif /* KVP_TESTS_UNIT_HAL_HAL_TEST_H */
