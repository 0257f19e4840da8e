/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os_test.c - clock and randomness, threads, files, directories, locks, ends of processes.
 */
#include "hal/base/err.h"
#include "hal/os/env.h"
#include "hal/os/file.h"
#include "hal/os/host.h"
#include "hal/os/process.h"
#include "hal/os/thread.h"
#include "tests/unit/hal/hal_test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void
env_real(void **state)
{
	const struct kvp_env *env = kvp_env_real();
	uint64_t before = kvp_now_ns(env);
	unsigned char a[32] = {0};
	unsigned char b[32] = {0};
	unsigned seen = 0;

	(void)state;
	assert_true(kvp_now_ns(env) >= before);
	env->random(env, a, sizeof(a));
	env->random(env, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	for (int i = 0; i < 1000; i++) {
		uint64_t number = kvp_random_below(env, 3);

		assert_true(number < 3);
		seen |= 1u << number;
	}
	assert_int_equal(seen, 7);
	assert_int_equal(kvp_random_below(env, 1), 0);
}

static void
thread_note_mask(void *arg)
{
	pthread_sigmask(SIG_BLOCK, NULL, arg);
}

static void
thread_blocks_signals(void **state)
{
	struct kvp_thread *thread;
	sigset_t before;
	sigset_t after;
	sigset_t inside;

	(void)state;
	sigemptyset(&inside);
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	assert_int_equal(kvp_thread_start("kvp-test", thread_note_mask, &inside, &thread), 0);
	kvp_thread_join(thread);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	assert_true(sigismember(&inside, SIGTERM) == 1 && sigismember(&inside, SIGINT) == 1);
	assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
	kvp_thread_join(NULL);
}

static unsigned
file_count(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	assert_non_null(dir);
	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
		count += entry->d_name[0] != '.';
	}
	closedir(dir);
	return count;
}

static void
file_replaces(void **state)
{
	char path[128];
	char missing[128];
	char buf[16];
	struct stat st;
	size_t len = 99;

	hal_test_path(state, "state", path, sizeof(path));
	hal_test_path(state, "none/state", missing, sizeof(missing));
	assert_int_equal(kvp_file_read(path, buf, sizeof(buf), &len), -ENOENT);
	assert_int_equal(kvp_file_replace(path, "one", 3, 0640), 0);
	assert_int_equal(kvp_file_replace(path, "second", 6, 0600), 0);
	assert_int_equal(kvp_file_read(path, buf, sizeof(buf), &len), 0);
	assert_int_equal(len, 6);
	assert_memory_equal(buf, "second", 6);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(kvp_file_read(path, buf, 6, &len), 0);
	assert_int_equal(kvp_file_read(path, buf, 5, &len), -EFBIG);
	assert_int_equal(kvp_file_replace(missing, "x", 1, 0600), -ENOENT);
	assert_int_equal(file_count(((struct hal_test_dir *)*state)->path), 1);
}

/* A replacement that cannot be finished leaves what was there and nothing else. */
static void
file_replace_fails_whole(void **state)
{
	char path[128];

	hal_test_path(state, "taken", path, sizeof(path));
	assert_int_equal(kvp_dir_make(path, 0700), 0);
	assert_int_equal(kvp_file_replace(path, "x", 1, 0600), -EISDIR);
	assert_int_equal(file_count(((struct hal_test_dir *)*state)->path), 1);
	assert_int_equal(file_count(path), 0);
}

static void
dir_makes_all_levels(void **state)
{
	char path[128];
	char file[128];
	struct stat st;

	hal_test_path(state, "a/b//c/", path, sizeof(path));
	assert_int_equal(kvp_dir_make(path, 0700), 0);
	assert_int_equal(kvp_dir_make(path, 0700), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0700);
	hal_test_path(state, "a/file", file, sizeof(file));
	hal_test_write(file, "x", 1);
	assert_int_equal(kvp_dir_make(file, 0700), -ENOTDIR);
	hal_test_path(state, "a/file/d", file, sizeof(file));
	assert_int_equal(kvp_dir_make(file, 0700), -ENOTDIR);
	assert_int_equal(kvp_dir_make("", 0700), -ENOENT);
}

/* Runs in a child: its exit status is 0 if the lock is refused and the parent named. */
static int
lock_child(const char *path, pid_t parent)
{
	pid_t owner = 0;
	int fd = -1;
	int ret = kvp_file_lock(path, &fd, &owner);

	return ret == -KVP_E_IN_USE && owner == parent && fd == -1 ? 0 : 1;
}

static void
lock_keeps_others_out(void **state)
{
	pid_t owner = -1;
	pid_t child;
	char path[128];
	int status;
	int second;
	int fd;

	hal_test_path(state, "lock", path, sizeof(path));
	hal_test_write(path, "4242424 stale text", 18);
	assert_int_equal(kvp_file_lock(path, &fd, &owner), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		_exit(lock_child(path, getppid()));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);

	/* The same process counts as another instance. */
	assert_int_equal(kvp_file_lock(path, &second, &owner), -KVP_E_IN_USE);
	assert_int_equal(owner, getpid());
	close(fd);
	assert_int_equal(kvp_file_lock(path, &second, &owner), 0);
	close(second);
}

/* The lock of a dead process does not outlive it. */
static void
lock_ends_with_its_process(void **state)
{
	pid_t owner;
	pid_t child;
	char path[128];
	int status;
	int fd;

	hal_test_path(state, "lock", path, sizeof(path));
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		_exit(kvp_file_lock(path, &fd, &owner) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(kvp_file_lock(path, &fd, &owner), 0);
	close(fd);
}

static void
test_host(void **state)
{
	uint8_t one[KVP_ID_LEN] = {0};
	uint8_t two[KVP_ID_LEN] = {1};

	(void)state;
	if (access("/proc/sys/kernel/random/boot_id", R_OK) < 0) {
		skip();
	}
	assert_int_equal(kvp_host_id(one), 0);
	assert_int_equal(kvp_host_id(two), 0);
	assert_memory_equal(one, two, KVP_ID_LEN);
}

static void
process_ends(void **state)
{
	struct kvp_process self = {0};
	struct kvp_process child = {0};
	int ends[2];
	pid_t pid;

	(void)state;
	assert_int_equal(kvp_process_self(&self), 0);
	assert_int_equal(self.pid, getpid());
	assert_int_equal(kvp_process_wait(&self, 1), -ETIMEDOUT); /* it lives */
	self.start++;
	assert_int_equal(kvp_process_wait(&self, 1), 0); /* another one has the pid */
	self.ns++;
	assert_int_equal(kvp_process_wait(&self, 1), -EXDEV);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool told = kvp_process_self(&child) == 0 &&
			    write(ends[1], &child, sizeof(child)) == sizeof(child);

		(void)pause();
		_exit(told ? 0 : 1);
	}
	assert_int_equal(read(ends[0], &child, sizeof(child)), sizeof(child));
	assert_int_equal(kvp_process_wait(&child, 1), -ETIMEDOUT);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvp_process_wait(&child, 10000), 0); /* and nobody has reaped it */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(kvp_process_wait(&child, 1), 0);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),
		cmocka_unit_test(env_real),
		cmocka_unit_test(thread_blocks_signals),
		hal_test_in_dir(file_replaces),
		hal_test_in_dir(file_replace_fails_whole),
		hal_test_in_dir(dir_makes_all_levels),
		hal_test_in_dir(lock_keeps_others_out),
		hal_test_in_dir(lock_ends_with_its_process),
		cmocka_unit_test(process_ends),
	};

	return cmocka_run_group_tests_name("os", tests, NULL, NULL);
}
