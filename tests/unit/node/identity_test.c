/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity_test.c - the file that says who a node is: made, counted up, damaged in every byte, in
 * use by another process.
 */
#include "pool/node/identity.h"

#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[256];
static char file[300];
static char bad[310];

static int
setup(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/kvp-identity-XXXXXX");
	if (mkdtemp(dir) == NULL) {
		return -1;
	}
	(void)snprintf(file, sizeof(file), "%s/identity", dir);
	(void)snprintf(bad, sizeof(bad), "%s.bad", file);
	return 0;
}

static int
teardown(void **state)
{
	char lock[300];

	(void)state;
	(void)snprintf(lock, sizeof(lock), "%s/lock", dir);
	(void)unlink(lock);
	(void)unlink(file);
	(void)unlink(bad);
	(void)rmdir(bad);
	return rmdir(dir);
}

static int
start(struct kvp_identity *identity)
{
	return kvp_identity_open(dir, kvp_env_real(), NULL, identity);
}

static void
test_counts_up(void **state)
{
	struct kvp_identity first;
	struct kvp_identity next;

	(void)state;
	assert_int_equal(start(&first), 0);
	assert_int_equal(first.incarnation, 1);
	kvp_identity_close(&first);
	for (uint64_t i = 2; i < 5; i++) {
		assert_int_equal(start(&next), 0);
		assert_int_equal(next.incarnation, i);
		assert_memory_equal(next.id, first.id, KVP_ID_LEN);
		kvp_identity_close(&next);
	}
	assert_int_equal(access(bad, F_OK), -1);
	/* Gone: a new node. */
	assert_int_equal(unlink(file), 0);
	assert_int_equal(start(&next), 0);
	assert_int_equal(next.incarnation, 1);
	assert_memory_not_equal(next.id, first.id, KVP_ID_LEN);
	kvp_identity_close(&next);
}

/* Any byte changed, cut off or added: never a failure, never the old id with a wrong number. */
static void
test_damaged(void **state)
{
	struct kvp_identity first;
	struct kvp_identity next;
	char good[512];
	char text[512];
	size_t len = 0;

	(void)state;
	assert_int_equal(start(&first), 0);
	kvp_identity_close(&first);
	assert_int_equal(kvp_file_read(file, good, sizeof(good), &len), 0);
	for (size_t i = 0; i < len; i++) {
		memcpy(text, good, len);
		text[i] ^= 1;
		assert_int_equal(kvp_file_replace(file, text, len, 0600), 0);
		assert_int_equal(start(&next), 0);
		assert_int_equal(next.incarnation, 1);
		assert_memory_not_equal(next.id, first.id, KVP_ID_LEN);
		kvp_identity_close(&next);
		assert_int_equal(unlink(bad), 0);
	}
	for (size_t cut = 0; cut < len + 100; cut += 7) {
		memset(text, '\n', sizeof(text));
		memcpy(text, good, len);
		assert_int_equal(kvp_file_replace(file, text, cut, 0600), 0);
		assert_int_equal(start(&next), 0);
		assert_int_equal(next.incarnation, cut == len ? 2 : 1);
		kvp_identity_close(&next);
		(void)unlink(bad);
	}
}

static void
test_foreign_things(void **state)
{
	struct kvp_identity identity;
	char huge[1000];

	(void)state;
	memset(huge, 'x', sizeof(huge));
	assert_int_equal(kvp_file_replace(file, huge, sizeof(huge), 0600), 0);
	assert_int_equal(start(&identity), 0);
	kvp_identity_close(&identity);
	assert_int_equal(unlink(bad), 0);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkdir(file, 0700), 0);
	assert_int_equal(start(&identity), 0);
	assert_int_equal(identity.incarnation, 1);
	kvp_identity_close(&identity);
}

static void
test_second_owner(void **state)
{
	struct kvp_identity mine;
	struct kvp_identity other;
	pid_t pid;
	int status;

	(void)state;
	assert_int_equal(start(&mine), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		_exit(start(&other) == -KVP_E_IN_USE ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	kvp_identity_close(&mine);
	assert_int_equal(start(&other), 0);
	assert_int_equal(other.incarnation, 2); /* the one refused counted nothing */
	kvp_identity_close(&other);
}

static void
test_bad_dir(void **state)
{
	struct kvp_identity identity;
	char path[PATH_MAX + 10];

	(void)state;
	assert_int_equal(
		kvp_identity_open("/dev/null/x", kvp_env_real(), NULL, &identity), -ENOTDIR);
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(kvp_identity_open(path, kvp_env_real(), NULL, &identity), -ENAMETOOLONG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_counts_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_things, setup, teardown),
		cmocka_unit_test_setup_teardown(test_second_owner, setup, teardown),
		cmocka_unit_test(test_bad_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
