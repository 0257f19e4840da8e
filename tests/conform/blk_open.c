/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_open.c - opening files and engines: space, file systems without direct i/o, kernels and
 * containers that forbid things.
 */
#include "tests/conform/blk_test.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t
file_blocks(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint64_t
file_len(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

static void
open_creates_real_space(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(TEST_MIB);
	char *want = test_alloc(TEST_MIB);
	int fd;

	(void)state;
	test_set_open(&set, (struct kvp_blk_cfg){0}, 3, 8 * TEST_MIB);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(file_len(set.paths[i]), 8 * TEST_MIB);
		assert_true(file_blocks(set.paths[i]) >= 8 * TEST_MIB);
	}
	test_fill(want, TEST_MIB, 4);
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, want, TEST_MIB), 0);
	kvp_blk_close(set.blk);

	/* A hole, a file cut short, a longer one: repaired, and what was there stays. */
	fd = open(set.paths[0], O_RDWR | O_CLOEXEC);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * TEST_MIB,
				 4 * TEST_MIB),
		0);
	(void)close(fd);
	assert_int_equal(truncate(set.paths[1], TEST_MIB), 0);
	assert_int_equal(truncate(set.paths[2], 9 * TEST_MIB), 0);
	assert_true(file_blocks(set.paths[0]) < 8 * TEST_MIB);
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){0}), -EINVAL);
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), 0);
	assert_true(file_blocks(set.paths[0]) >= 8 * TEST_MIB);
	assert_int_equal(set.files[1].ret_found, TEST_MIB);
	assert_int_equal(file_len(set.paths[1]), 8 * TEST_MIB);
	assert_int_equal(set.files[2].ret_found, 9 * TEST_MIB);
	assert_int_equal(file_len(set.paths[2]), 9 * TEST_MIB);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 0, 0, buf, TEST_MIB), 0);
	assert_memory_equal(buf, want, TEST_MIB);
	test_set_close(&set);
	free(buf);
	free(want);
}

static void
open_says_what_is_wrong(void **state)
{
	char why[KVP_BLK_WHY_LEN];
	struct kvp_blk_cfg cfg = {.why = why};
	struct test_set set = {0};
	char target[160];

	(void)state;
	test_set_name(&set, "bad", 2, TEST_MIB);
	assert_int_equal(test_set_try(&set, cfg), -ENOENT);
	assert_non_null(strstr(why, set.paths[0]));
	cfg.create = true;
	assert_int_equal(mkdir(set.paths[1], 0700), 0);
	assert_int_equal(test_set_try(&set, cfg), -EISDIR);
	assert_non_null(strstr(why, set.paths[1]));
	assert_int_equal(rmdir(set.paths[1]), 0);
	assert_int_equal(unlink(set.paths[0]), 0); /* was made before the bad one was met */
	(void)snprintf(target, sizeof(target), "%s/elsewhere", test_dir);
	assert_int_equal(symlink(target, set.paths[0]), 0);
	assert_int_equal(test_set_try(&set, cfg), -ELOOP);
	assert_int_equal(unlink(set.paths[0]), 0);
	assert_int_equal(mkfifo(set.paths[0], 0600), 0);
	assert_int_equal(test_set_try(&set, cfg), -EINVAL);
	assert_non_null(strstr(why, "not a regular file"));
	assert_int_equal(unlink(set.paths[0]), 0);
	assert_int_equal(mknod(set.paths[0], S_IFREG | 0600, 0), 0);
	cfg.create = false;
	assert_int_equal(test_set_try(&set, cfg), -EINVAL);
	assert_non_null(strstr(why, "0 bytes long"));
	assert_int_equal(unlink(set.paths[0]), 0);
	cfg.create = true;
	cfg.engine = "nosuch";
	assert_int_equal(test_set_try(&set, cfg), -EINVAL);
	assert_non_null(strstr(why, "nosuch"));
	assert_int_equal(unlink(set.paths[0]), 0);
	assert_int_equal(unlink(set.paths[1]), 0);
}

static void
open_checks_its_numbers(void **state)
{
	const struct kvp_blk_cfg bad[] = {
		{.io_max = 4097},
		{.io_max = 512},
		{.io_max = 2 * TEST_MIB, .bytes_max = TEST_MIB},
		{.depth = KVP_BLK_DEPTH_MAX + 1},
		{.threads = 65},
	};
	struct test_set set = {0};
	struct test_set none = {0};

	(void)state;
	test_set_name(&set, "num", 1, TEST_MIB);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(test_set_try(&set, bad[i]), -EINVAL);
	}
	assert_int_equal(test_set_try(&none, (struct kvp_blk_cfg){0}), -EINVAL);
	set.files[0].bytes = 5000;
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), -EINVAL);
	set.files[0].bytes = 0;
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), -EINVAL);
	assert_int_equal(access(set.paths[0], F_OK), -1);
	kvp_blk_close(NULL);
}

/* A file system of its own in test_dir/fs; false: may not, which the test says. */
static bool
fs_mount(const char *type, const char *options, char ret_dir[128])
{
	(void)snprintf(ret_dir, 128, "%s/fs", test_dir);
	assert_int_equal(mkdir(ret_dir, 0700), 0);
	if (test_mounts && mount("none", ret_dir, type, 0, options) == 0) {
		return true;
	}
	printf("not run: mounting %s needs root\n", type);
	assert_int_equal(rmdir(ret_dir), 0);
	return false;
}

static void
fs_umount(const char *dir)
{
	assert_int_equal(umount(dir), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void
open_full_file_system(void **state)
{
	char why[KVP_BLK_WHY_LEN];
	struct test_set set = {0};
	char dir[128];

	(void)state;
	if (!fs_mount("tmpfs", "size=80m", dir)) {
		skip();
	}
	test_set_name(&set, "fs/seg", 2, 6 * TEST_MIB);
	set.files[1].bytes = 78 * TEST_MIB;
	assert_int_equal(
		test_set_try(&set, (struct kvp_blk_cfg){.create = true, .why = why}), -ENOSPC);
	assert_non_null(strstr(why, "seg1: cannot reserve 81788928 bytes"));
	assert_int_equal(access(set.paths[1], F_OK), -1); /* the half-made one is gone */
	assert_int_equal(file_len(set.paths[0]), 6 * TEST_MIB);
	set.files[1].path = NULL;
	set.files[0].bytes = 160 * TEST_MIB; /* more than goes before it fails */
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), -ENOSPC);
	assert_int_equal(file_len(set.paths[0]), 6 * TEST_MIB); /* as before */
	assert_int_equal(unlink(set.paths[0]), 0);
	fs_umount(dir);
}

/* Space taken away behind our back, then the disk is full: a write says so, and works again. */
static void
open_full_while_running(void **state)
{
	struct test_set set = {0};
	char *buf = test_alloc(2 * TEST_MIB);
	char filler[160];
	char dir[128];
	int fd;

	(void)state;
	if (!fs_mount("tmpfs", "size=8m", dir)) {
		free(buf);
		skip();
	}
	test_set_name(&set, "fs/seg", 1, 4 * TEST_MIB);
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), 0);
	fd = open(set.paths[0], O_RDWR | O_CLOEXEC);
	assert_int_equal(
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * TEST_MIB), 0);
	(void)close(fd);
	(void)snprintf(filler, sizeof(filler), "%s/filler", dir);
	fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (off_t len = 0; posix_fallocate(fd, len, 65536) == 0;) {
		len += 65536;
	}
	(void)close(fd);
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, buf, 2 * TEST_MIB), -ENOSPC);
	assert_int_equal(test_do(set.blk, KVP_BLK_READ, 0, 0, buf, 2 * TEST_MIB), 0);
	assert_int_equal(unlink(filler), 0);
	assert_int_equal(test_do(set.blk, KVP_BLK_WRITE, 0, 0, buf, 2 * TEST_MIB), 0);
	assert_int_equal(test_stats(set.blk).errors, 1);
	test_set_close(&set);
	fs_umount(dir);
	free(buf);
}

static void
fs_round(const char *type, const char *options, bool no_direct)
{
	struct test_set set = {0};
	char *want = test_alloc(4 * TEST_MIB);
	char *buf = test_alloc(4 * TEST_MIB);
	char dir[128];

	if (!fs_mount(type, options, dir)) {
		free(want);
		free(buf);
		skip();
	}
	test_set_name(&set, "fs/seg", 2, 8 * TEST_MIB);
	assert_int_equal(test_set_try(&set, (struct kvp_blk_cfg){.create = true}), 0);
	assert_int_equal(test_log_count("no direct i/o"), test_stats(set.blk).direct ? 0 : 1);
	assert_true(!no_direct || !test_stats(set.blk).direct);
	test_fill(want, 4 * TEST_MIB, 8);
	for (uint32_t file = 0; file < 2; file++) {
		assert_int_equal(
			test_do(set.blk, KVP_BLK_WRITE, file, 8192, want, 4 * TEST_MIB - 4096), 0);
		assert_int_equal(test_flush(set.blk, file), 0);
		assert_int_equal(
			test_do(set.blk, KVP_BLK_READ, file, 8192, buf, 4 * TEST_MIB - 4096), 0);
		assert_memory_equal(buf, want, 4 * TEST_MIB - 4096);
	}
	test_set_close(&set);
	fs_umount(dir);
	free(want);
	free(buf);
}

static void
open_tmpfs(void **state)
{
	(void)state;
	fs_round("tmpfs", "size=32m", false); /* direct or not: kernels differ */
}

/* It has neither direct i/o nor fallocate. */
static void
open_ramfs(void **state)
{
	(void)state;
	fs_round("ramfs", NULL, true);
}

/* ---- in a child, which is this program again: it gives up rights for good ---- */

static int
child_run(const char *what)
{
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		(void)execl("/proc/self/exe", "blk-child", "--child", what, test_dir, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define CHILD_CHECK(cond)                                                                          \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "child: line %d: %s\n", __LINE__, #cond);                  \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static int
forbid_io_uring(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
			       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0
		       ? 0
		       : -errno;
}

static int
child_forbidden(void)
{
	char why[KVP_BLK_WHY_LEN];
	struct test_set set = {0};
	struct kvp_blk_cfg cfg = {.create = true, .why = why, .engine = "uring"};

	test_set_name(&set, "sec", 1, TEST_MIB);
	CHILD_CHECK(forbid_io_uring() == 0);
	CHILD_CHECK(test_set_try(&set, cfg) == -KVP_E_NO_PROVIDER);
	CHILD_CHECK(strstr(why, "io_uring setup") != NULL);
	CHILD_CHECK(strstr(why, "seccomp") != NULL);
	cfg.engine = "auto";
	CHILD_CHECK(test_set_try(&set, cfg) == 0);
	CHILD_CHECK(strcmp(test_stats(set.blk).engine, "threads") == 0);
	CHILD_CHECK(strstr(why, "io_uring setup") != NULL);
	CHILD_CHECK(test_log_count("blk engine threads instead of uring") == 1);
	test_set_close(&set);
	return 0;
}

static void
open_io_uring_forbidden(void **state)
{
	(void)state;
	assert_int_equal(child_run("forbidden"), 0);
}

static void
open_auto(void **state)
{
	char why[KVP_BLK_WHY_LEN];
	struct test_set set = {0};
	size_t count;

	(void)state;
	assert_true(kvp_blk_all(&count) != NULL && count >= 2);
	assert_null(kvp_blk_find("fault"));
	test_set_name(&set, "auto", 1, TEST_MIB);
	assert_int_equal(
		test_set_try(
			&set, (struct kvp_blk_cfg){.engine = "auto", .create = true, .why = why}),
		0);
	assert_true((why[0] == '\0') == (strcmp(test_stats(set.blk).engine, "uring") == 0));
	test_set_close(&set);
}

/* Nobody's process with little memory to lock: slower, said once, right all the same. */
static int
child_memlock(void)
{
	const struct rlimit little = {TEST_MIB, TEST_MIB}; /* enough for the rings themselves */
	char *buf = test_alloc(4 * TEST_MIB);
	struct test_set set = {0};
	struct test_io t = {0};
	unsigned said = strcmp(BLK_NAME, "uring") == 0;
	uint32_t id[2];

	test_set_name(&set, "lock", 1, TEST_MIB);
	CHILD_CHECK(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
	CHILD_CHECK(setresuid(65534, 65534, 65534) == 0);
	CHILD_CHECK(test_set_try(&set, (struct kvp_blk_cfg){.create = true}) == 0);
	CHILD_CHECK(kvp_blk_buf_reg(set.blk, buf, 2 * TEST_MIB, &id[0]) == 0);
	CHILD_CHECK(kvp_blk_buf_reg(set.blk, buf + 2 * TEST_MIB, TEST_MIB, &id[1]) == 0);
	CHILD_CHECK(test_log_count("memlock limit 1048576") == said);
	test_io_set(&t, KVP_BLK_WRITE, 0, 0, buf + 2 * TEST_MIB, TEST_MIB);
	t.io.buf = id[1];
	CHILD_CHECK(test_post(set.blk, &t) == 0);
	test_wait(set.blk, &t.done, 1);
	CHILD_CHECK(t.status == 0);
	test_set_close(&set);
	free(buf);
	return 0;
}

static void
open_memlock_short(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		printf("not run: becoming nobody needs root\n");
		skip();
	}
	assert_int_equal(chmod(test_dir, 0777), 0);
	assert_int_equal(child_run("memlock"), 0);
	assert_int_equal(chmod(test_dir, 0700), 0);
}

int
test_child_main(const char *what)
{
	return strcmp(what, "memlock") == 0 ? child_memlock() : child_forbidden();
}

const struct CMUnitTest blk_open_tests[] = {
	TEST_CASE(open_creates_real_space),
	TEST_CASE(open_says_what_is_wrong),
	TEST_CASE(open_checks_its_numbers),
	TEST_CASE(open_full_file_system),
	TEST_CASE(open_full_while_running),
	TEST_CASE(open_tmpfs),
	TEST_CASE(open_ramfs),
	TEST_CASE(open_io_uring_forbidden),
	TEST_CASE(open_auto),
	TEST_CASE(open_memlock_short),
};
const size_t blk_open_count = sizeof(blk_open_tests) / sizeof(blk_open_tests[0]);
