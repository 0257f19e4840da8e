/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_test.c - shared memory: who may write, who may not, when it goes; and the copy.
 */
#include "hal/mem/mem.h"
#include "tests/unit/hal/hal_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void
mem_name(char buf[40])
{
	unsigned long long number;

	assert_int_equal(getentropy(&number, sizeof(number)), 0);
	(void)snprintf(buf, 40, "kvpool-test-%016llx", number);
}

static bool
mem_name_exists(const char *name)
{
	char path[128];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/dev/shm/%s", name);
	return stat(path, &st) == 0;
}

/* Creates one, maps it a second time, and tries to write where one may only read. */
static void
mem_share(const char *name)
{
	const struct kvp_mem_cfg cfg = {.name = name, .len = 10000, .mode = 0600};
	struct kvp_mem mem;
	struct kvp_mem reader;
	struct kvp_mem writer;
	struct stat st;
	int fd;

	assert_int_equal(kvp_mem_create(&cfg, &mem), 0);
	assert_int_equal(mem.len, 12288);
	assert_int_equal(fstat(mem.fd, &st), 0);
	assert_int_equal(st.st_size, 12288);
	assert_int_equal(st.st_blocks * 512, 12288); /* reserved, though never touched */
	assert_int_equal(st.st_mode & 0777, 0600);
	memset(mem.base, 0xa5, mem.len);

	assert_int_equal(kvp_mem_fd_readonly(&mem, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(kvp_mem_map(fd, 12288, true, &reader), -EACCES);
	assert_int_equal(kvp_mem_map(fd, 12289, false, &reader), -EINVAL);
	assert_int_equal(kvp_mem_map(fd, 0, false, &reader), -EINVAL);
	assert_int_equal(kvp_mem_map(fd, 12288, false, &reader), 0);
	assert_memory_equal(reader.base, mem.base, mem.len);
	assert_int_equal(mprotect(reader.base, reader.len, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);

	assert_int_equal(kvp_mem_map(dup(mem.fd), 10000, true, &writer), 0);
	((char *)writer.base)[9999] = 7;
	assert_int_equal(((char *)reader.base)[9999], 7);
	kvp_mem_close(&reader);
	kvp_mem_close(&writer);
	if (name != NULL) {
		assert_true(mem_name_exists(name)); /* the mappers' ends are not the owner's */
	}
	kvp_mem_close(&mem);
	kvp_mem_close(&mem);
}

static void
mem_unnamed(void **state)
{
	(void)state;
	mem_share(NULL);
}

static void
mem_named(void **state)
{
	char name[40];

	(void)state;
	mem_name(name);
	mem_share(name);
	assert_false(mem_name_exists(name));
}

static void
mem_replaces_stale(void **state)
{
	struct kvp_mem old;
	struct kvp_mem new;
	struct kvp_mem_cfg cfg = {.len = 4096, .mode = 0600};
	char name[40];

	(void)state;
	mem_name(name);
	cfg.name = name;
	assert_int_equal(kvp_mem_create(&cfg, &old), 0);
	strcpy(old.base, "old");
	assert_int_equal(kvp_mem_create(&cfg, &new), 0);
	assert_int_equal(((char *)new.base)[0], 0);
	assert_string_equal(old.base, "old");
	kvp_mem_close(&new);
	kvp_mem_close(&old);
	assert_false(mem_name_exists(name));
}

static void
mem_refuses(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 0, .mode = 0600};
	struct kvp_mem mem = {0};
	char name[80];

	(void)state;
	assert_int_equal(kvp_mem_create(&cfg, &mem), -EINVAL);
	cfg.len = SIZE_MAX;
	assert_int_equal(kvp_mem_create(&cfg, &mem), -EINVAL);
	cfg.len = (size_t)1 << 50; /* more than any machine this runs on: refused, not tried */
	assert_int_equal(kvp_mem_create(&cfg, &mem), -ENOSPC);
	mem_name(name);
	cfg.name = name;
	assert_int_equal(kvp_mem_create(&cfg, &mem), -ENOSPC);
	assert_false(mem_name_exists(name));
	cfg.len = 4096;
	memset(name, 'n', 64);
	name[64] = '\0';
	assert_int_equal(kvp_mem_create(&cfg, &mem), -ENAMETOOLONG);
	cfg.name = "a/b";
	assert_int_equal(kvp_mem_create(&cfg, &mem), -EINVAL);
	cfg.name = "";
	assert_int_equal(kvp_mem_create(&cfg, &mem), -EINVAL);
	assert_null(mem.base);
	kvp_mem_close(&mem); /* zeroed: fd 0 stays open */
	assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
	kvp_mem_close(NULL);
}

static void
mem_unnamed_cannot_shrink(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 8192, .mode = 0600};
	struct kvp_mem mem;

	(void)state;
	assert_int_equal(kvp_mem_create(&cfg, &mem), 0);
	assert_int_equal(ftruncate(mem.fd, 4096), -1);
	assert_int_equal(errno, EPERM);
	kvp_mem_close(&mem);
}

/* mincore fails with ENOMEM where nothing is mapped. */
static void
mem_not_in_child(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 4096, .mode = 0600};
	unsigned char resident;
	struct kvp_mem mem;
	pid_t child;
	int status;

	(void)state;
	assert_int_equal(kvp_mem_create(&cfg, &mem), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		_exit(mincore(mem.base, mem.len, &resident) < 0 && errno == ENOMEM ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kvp_mem_close(&mem);
}

static void
mem_wraps(void **state)
{
	char own[64] = "mine";
	struct kvp_mem mem = kvp_mem_wrap(own, sizeof(own));
	int fd;

	(void)state;
	assert_ptr_equal(mem.base, own);
	assert_int_equal(kvp_mem_fd_readonly(&mem, &fd), -EBADF);
	kvp_mem_close(&mem);
	assert_string_equal(own, "mine");
}

/* Copies and checks every byte, also those around. */
static void
copy_check(char *dst, const char *src, size_t dst_off, size_t src_off, size_t len)
{
	char *to = dst + 64 + dst_off;

	memset(to - 64, 0x5a, 64);
	memset(to + len, 0x5a, 64);
	kvp_mem_copy(to, src + src_off, len);
	assert_int_equal(memcmp(to, src + src_off, len), 0);
	for (int i = 0; i < 64; i++) {
		assert_true(to[i - 64] == 0x5a && to[len + (size_t)i] == 0x5a);
	}
}

static void
mem_copies(void **state)
{
	static const size_t lens[] = {
		0, 1, 63, 64, 65, 4096, 8191, 8192, 8193, 8255, 8256, 8257, 65536, 65536 + 127};
	size_t cap = 65536 + 512;
	char *src = aligned_alloc(64, cap);
	char *dst = aligned_alloc(64, cap);

	(void)state;
	assert_non_null(src);
	assert_non_null(dst);
	for (size_t i = 0; i < cap; i++) {
		src[i] = (char)(i * 31 + (i >> 8));
	}
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (size_t off = 0; off < 64; off++) {
			copy_check(dst, src, off, 0, lens[i]);
			copy_check(dst, src, 0, off, lens[i]);
			copy_check(dst, src, off, 63 - off, lens[i]);
		}
	}
	free(src);
	free(dst);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mem_unnamed),
		cmocka_unit_test(mem_named),
		cmocka_unit_test(mem_replaces_stale),
		cmocka_unit_test(mem_refuses),
		cmocka_unit_test(mem_unnamed_cannot_shrink),
		cmocka_unit_test(mem_not_in_child),
		cmocka_unit_test(mem_wraps),
		cmocka_unit_test(mem_copies),
	};

	return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
