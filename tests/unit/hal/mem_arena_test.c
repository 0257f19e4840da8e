/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_arena_test.c - arenas on this machine: pages, locks, nodes, fallbacks, and restarts.
 *
 * Where it may, the test works in a mount namespace of its own, so that what it mounts is seen by
 * nobody and goes with it, and reserves a few huge pages. The reservation is undone by the parent,
 * also when a test crashes, and is guarded by a lock against a second run.
 */
#include "hal/mem/arena.h"
#include "hal/mem/huge.h"
#include "hal/mem/mounts.h"
#include "hal/mem/numa.h"
#include "hal/mem/populate.h"
#include "tests/unit/hal/hal_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB           ((size_t)1 << 20)
#define PAGES_FILE    "/proc/sys/vm/nr_hugepages"
#define PAGES_WISHED  16u
#define UNPRIVILEGED  65534
#define FAULTS_ALWAYS 64 /* of the program itself */

struct machine {
	bool own_mounts;      /* a mount namespace of our own */
	const char *no_pages; /* why there are no huge pages */
	uint64_t pages_before;
	int pages_fd;
};

static struct machine machine;

/* A name per process: two runs of this test must not meet. */
static const char *
name_of(const char *what)
{
	static char name[64];

	(void)snprintf(name, sizeof(name), "kvpool-test-%d-%s", (int)getpid(), what);
	return name;
}

/* Not instrumented: the shadow of sanitizers has faults of its own. */
static void __attribute__((noinline, no_sanitize("address", "thread")))
touch_all(volatile char *base, size_t len)
{
	for (size_t off = 0; off < len; off += 4096) {
		base[off] = (char)(base[off] + 1);
	}
}

static long
touch_faults(void *base, size_t len)
{
	struct rusage before;
	struct rusage after;

	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	touch_all(base, len);
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	return after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt;
}

static bool
why_has(const struct kvp_mem_got *got, const char *text)
{
	for (unsigned i = 0; i < got->why.count; i++) {
		if (strstr(got->why.line[i], text) != NULL) {
			return true;
		}
	}
	return false;
}

/* Each line names what an operator needs. */
static void
why_check(const struct kvp_mem_got *got, unsigned count_min)
{
	assert_true(got->why.count >= count_min);
	for (unsigned i = 0; i < got->why.count; i++) {
		const char *line = got->why.line[i];

		print_message("    %s\n", line);
		assert_non_null(strstr(line, "limit "));
		assert_non_null(strstr(line, "have "));
		assert_non_null(strstr(line, "need "));
		assert_non_null(strstr(line, "remedy: "));
		assert_null(strchr(line, '\n'));
		assert_true(strlen(line) < KVP_MEM_WHY_LEN - 1); /* not cut */
	}
}

static void
skip_without_pages(void)
{
	if (machine.no_pages != NULL) {
		print_message("skipped: %s\n", machine.no_pages);
		skip();
	}
}

static void
skip_without_mounts(void)
{
	if (!machine.own_mounts) {
		print_message("skipped: may not make a mount namespace\n");
		skip();
	}
}

/* Runs fn in a child, which is allowed no more than others. */
static void
in_child(bool unprivileged, void (*fn)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		if (unprivileged && geteuid() == 0 &&
			(setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) < 0 ||
				setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) < 0)) {
			_exit(99);
		}
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		fail_msg("child died of signal %d", WTERMSIG(status));
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a child, where cmocka cannot jump: the line is the exit status. */
#define CHILD_CHECK(cond)                                                                          \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                   \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void
arena_zero_is_plain(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 10000, .mode = 0640};
	const struct kvp_mem_want want = {0};
	struct kvp_mem_got got;
	struct kvp_mem plain;
	struct kvp_mem mem;
	struct stat a;
	struct stat b;

	(void)state;
	assert_int_equal(kvp_mem_create(&cfg, &plain), 0);
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	assert_int_equal(fstat(plain.fd, &a), 0);
	assert_int_equal(fstat(mem.fd, &b), 0);
	assert_int_equal(mem.len, plain.len);
	assert_int_equal(a.st_size, b.st_size);
	assert_int_equal(a.st_blocks, b.st_blocks);
	assert_int_equal(a.st_mode, b.st_mode);
	assert_int_equal(fcntl(mem.fd, F_GET_SEALS), fcntl(plain.fd, F_GET_SEALS));
	assert_int_equal(got.kind, KVP_MEM_SMALL);
	assert_false(got.populated);
	assert_false(got.locked);
	assert_int_equal(got.why.count, 0);
	assert_string_equal(got.path, "");
	kvp_mem_close(&plain);
	kvp_mem_close(&mem);
}

static void
arena_refuses(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 0, .mode = 0600};
	struct kvp_mem_want want = {.populate = true};
	struct kvp_mem_got got;
	struct kvp_mem mem;

	(void)state;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -EINVAL);
	cfg.len = SIZE_MAX;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -EINVAL);
	cfg.len = (size_t)1 << 50;
	cfg.name = name_of("a");
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -ENOSPC);
	why_check(&got, 1);
	assert_int_equal(kvp_mem_unlink(cfg.name), -ENOENT);
	cfg.len = 4096;
	want.page_len = 3 * MIB;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -EINVAL);
	want.page_len = 4 * MIB; /* no machine of ours has that */
	want.hugepages = KVP_MEM_REQUIRE;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -ENODEV);
	why_check(&got, 1);
	cfg.name = "a/b";
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -EINVAL);
	assert_int_equal(kvp_mem_unlink("../x"), -EINVAL);
}

static void
arena_populates(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 40 * MIB + 4096, .mode = 0600};

	(void)state;
	for (unsigned threads = 0; threads < 5; threads++) {
		const struct kvp_mem_want want = {.populate = true, .threads = threads};
		struct kvp_mem_got got;
		struct kvp_mem mem;
		struct stat st;

		assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
		assert_true(got.populated);
		assert_int_equal(mem.len, cfg.len);
		assert_int_equal(fstat(mem.fd, &st), 0);
		assert_int_equal((size_t)st.st_blocks * 512, cfg.len);
		assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
		kvp_mem_close(&mem);
	}
}

/* Both ways of populating keep what pages hold and leave nothing to fault. */
static void
populate_keeps_bytes(void **state)
{
	size_t len = 33 * MIB;

	(void)state;
	for (int touch = 0; touch < 2; touch++) {
		int fd = memfd_create("kvpool-test", MFD_CLOEXEC);
		char *base = NULL;
		struct kvp_populate job = {
			.fd = fd, .len = len, .page_len = 4096, .threads = 2, .touch = touch == 1};

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, (off_t)len), 0);
		assert_int_equal(pwrite(fd, "here", 4, (off_t)(20 * MIB)), 4);
		base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(base != MAP_FAILED);
		job.base = base;
		assert_int_equal(kvp_populate(&job), 0);
		assert_memory_equal(base + 20 * MIB, "here", 4);
		if (touch == 0) {
			assert_true(touch_faults(base, len) < FAULTS_ALWAYS);
		}
		assert_int_equal(kvp_populate_file(&job), 0);
		assert_int_equal(munmap(base, len), 0);
		(void)close(fd);
	}
}

/* A page that is not to be had is an error of the call, not SIGBUS. */
static void
populate_no_sigbus(void **state)
{
	(void)state;
	for (int touch = 0; touch < 2; touch++) {
		size_t len = 8 * MIB;
		char path[64] = "/tmp/kvpool-test-XXXXXX";
		struct kvp_populate job = {.len = len, .page_len = 4096, .touch = touch == 1};
		int err;

		skip_without_mounts();
		assert_non_null(mkdtemp(path));
		assert_int_equal(mount("none", path, "tmpfs", 0, "size=4m"), 0);
		job.fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		assert_true(job.fd >= 0);
		assert_int_equal(ftruncate(job.fd, (off_t)len), 0);
		job.base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, job.fd, 0);
		assert_true(job.base != MAP_FAILED);
		err = kvp_populate(&job);
		assert_int_equal(munmap(job.base, len), 0);
		(void)close(job.fd);
		assert_int_equal(umount(path), 0);
		assert_int_equal(rmdir(path), 0);
		assert_int_equal(err, -ENOSPC);
	}
}

static bool
stop_after(void *arg)
{
	int *left = arg;

	return --*left < 0;
}

/* Mappings and descriptors of this process whose object is called so. */
static int
leaks_of(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	char path[64];
	int count = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		count += strstr(line, name) != NULL;
	}
	(void)fclose(maps);
	for (int fd = 0; fd < 64; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		memset(line, 0, sizeof(line));
		if (readlink(path, line, sizeof(line) - 1) > 0) {
			count += strstr(line, name) != NULL;
		}
	}
	return count;
}

static void
arena_stops(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 64 * MIB, .mode = 0600};
	struct kvp_mem_got got;
	struct kvp_mem mem = {0};

	(void)state;
	cfg.name = name_of("stop");
	for (int after = 0; after < 3; after++) {
		int left = after;
		struct kvp_mem_want want = {.populate = after != 2,
			.threads = 2,
			.stop = stop_after,
			.stop_arg = &left};

		if (after == 1) {
			want.threads = 1; /* two would be done with the rest meanwhile */
		}
		assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -EINTR);
		assert_int_equal(got.why.count, 0);
		assert_null(mem.base);
		assert_int_equal(kvp_mem_unlink(cfg.name), -ENOENT);
		assert_int_equal(leaks_of(cfg.name), 0);
	}
}

static void
arena_small_mount(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 16 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {.populate = true};
	struct kvp_mem_got got;
	struct kvp_mem mem;
	int err;

	(void)state;
	skip_without_mounts();
	cfg.name = name_of("small");
	assert_int_equal(mount("none", "/dev/shm", "tmpfs", 0, "size=8m"), 0);
	err = kvp_mem_create_arena(&cfg, &want, &mem, &got);
	assert_int_equal(umount("/dev/shm"), 0);
	assert_int_equal(err, -ENOSPC);
	why_check(&got, 1);
	assert_true(why_has(&got, "limit 8388608 bytes, have 8388608, need 16777216"));
}

static void
arena_transparent(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 32 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {
		.hugepages = KVP_MEM_PREFER, .page_len = 1024 * MIB, .threads = 2};
	const struct kvp_mem_want again = {.populate = true};
	struct kvp_mem_got got;
	struct kvp_mem_got got_again = {0};
	struct kvp_mem mem;
	struct kvp_huge_thp thp;
	long faults = 0;
	int err;

	(void)state;
	skip_without_mounts();
	cfg.name = name_of("thp");
	if (mount("none", "/dev/shm", "tmpfs", 0, "huge=advise") < 0) {
		print_message("skipped: this kernel has no huge pages in tmpfs\n");
		skip();
	}
	kvp_huge_thp("", true, &thp);
	err = kvp_mem_create_arena(&cfg, &want, &mem, &got);
	if (err == 0) {
		faults = touch_faults(mem.base, mem.len);
		kvp_mem_detach(&mem);
		err = kvp_mem_open_existing(cfg.name, cfg.len, &again, &mem, &got_again);
		if (err == 0) {
			kvp_mem_close(&mem);
		}
	}
	assert_int_equal(umount("/dev/shm"), 0);
	assert_int_equal(err, 0);
	assert_int_equal(got_again.kind, got.kind);
	assert_true(faults < FAULTS_ALWAYS);
	why_check(&got, 1); /* no 1 GiB pages */
	if (thp.allowed && !why_has(&got, "contiguous")) {
		print_message("    transparent huge pages came\n");
		assert_int_equal(got.kind, KVP_MEM_THP);
		assert_int_equal(got.page_len, 2 * MIB);
	}
}

static void
hugetlb_unnamed(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 5 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {
		.hugepages = KVP_MEM_REQUIRE, .lock = KVP_MEM_REQUIRE, .threads = 2};
	struct kvp_huge_pool before;
	struct kvp_huge_pool after;
	struct kvp_mem_got got;
	struct kvp_mem reader;
	struct kvp_mem mem;
	int fd;

	(void)state;
	skip_without_pages();
	assert_int_equal(kvp_huge_pool("", KVP_HUGE_LEN_2M, -1, &before), 0);
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	assert_int_equal(got.kind, KVP_MEM_HUGETLB);
	assert_int_equal(got.page_len, 2 * MIB);
	assert_true(got.populated && got.locked);
	assert_int_equal(got.why.count, 0);
	assert_int_equal(mem.len, 6 * MIB);
	assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
	assert_int_equal(ftruncate(mem.fd, 0), -1); /* sealed */
	assert_int_equal(kvp_mem_fd_readonly(&mem, &fd), 0);
	assert_int_equal(kvp_mem_map(fd, 5 * MIB, false, &reader), 0); /* whole pages of it */
	assert_int_equal(reader.len, 6 * MIB);
	assert_int_equal(memcmp(reader.base, mem.base, mem.len), 0);
	kvp_mem_close(&reader);
	kvp_mem_close(&mem);
	assert_int_equal(kvp_huge_pool("", KVP_HUGE_LEN_2M, -1, &after), 0);
	assert_int_equal(after.room, before.room);
}

static void
hugetlb_too_few(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 64 * MIB, .mode = 0600};
	struct kvp_mem_want want = {
		.hugepages = KVP_MEM_REQUIRE, .page_len = KVP_HUGE_LEN_2M, .threads = 2};
	struct kvp_huge_pool pool;
	struct kvp_mem_got got;
	struct kvp_mem mem;
	char text[128];

	(void)state;
	if (kvp_huge_pool("", KVP_HUGE_LEN_2M, -1, &pool) < 0 || pool.room >= 32) {
		print_message("skipped: too many or no pages of 2 MiB\n");
		skip();
	}
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -ENOSPC);
	why_check(&got, 1);
	(void)snprintf(text, sizeof(text), "have %u free, need 32", (unsigned)pool.room);
	assert_true(why_has(&got, text));
	want.hugepages = KVP_MEM_PREFER;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	why_check(&got, 1);
	assert_true(got.kind != KVP_MEM_HUGETLB);
	assert_true(got.populated);
	assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
	kvp_mem_close(&mem);
}

/* A mount of hugetlbfs for one test; its directory is new. */
static void
hugetlb_mount(char path[64])
{
	strcpy(path, "/tmp/kvpool-test-XXXXXX");
	assert_non_null(mkdtemp(path));
	assert_int_equal(mount("none", path, "hugetlbfs", 0, "pagesize=2M"), 0);
}

static void
hugetlb_umount(const char *path)
{
	assert_int_equal(umount(path), 0);
	assert_int_equal(rmdir(path), 0);
}

static int
list_count(const struct kvp_mem_object *object, void *arg)
{
	int *sum = arg;

	assert_int_equal(object->uid, geteuid());
	*sum += object->page_len != 0 ? 100 : 1;
	return 0;
}

static void
hugetlb_named(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 4 * MIB, .mode = 0600};
	struct kvp_mem_want want = {.hugepages = KVP_MEM_REQUIRE, .page_len = KVP_HUGE_LEN_2M};
	struct kvp_huge_mounts mounts;
	struct kvp_mem_got got;
	struct kvp_mem other;
	struct kvp_mem mem;
	char path[64];
	int sum = 0;

	(void)state;
	skip_without_pages();
	skip_without_mounts();
	cfg.name = name_of("huge");
	kvp_huge_mounts("", KVP_HUGE_LEN_2M, &mounts);
	if (mounts.count == 0) {
		assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -ENODEV);
		why_check(&got, 1);
		hugetlb_mount(path);
	} else {
		strcpy(path, mounts.dir[0]);
	}
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	assert_int_equal(got.kind, KVP_MEM_HUGETLB);
	assert_memory_equal(got.path, path, strlen(path));
	assert_string_equal(got.path, mem.path);
	strcpy((char *)mem.base + 3 * MIB, "kept");
	kvp_mem_detach(&mem);
	want.populate = true;
	assert_int_equal(kvp_mem_open_existing(cfg.name, 4 * MIB, &want, &mem, &got), 0);
	assert_int_equal(got.kind, KVP_MEM_HUGETLB);
	assert_true(got.locked && got.populated);
	assert_string_equal((char *)mem.base + 3 * MIB, "kept");
	/* The plain one of the same name lies elsewhere; then nobody can tell which is meant. */
	assert_int_equal(kvp_mem_create(&cfg, &other), 0);
	assert_int_equal(kvp_mem_list(cfg.name, list_count, &sum), 0);
	assert_int_equal(sum, 101);
	kvp_mem_detach(&mem);
	assert_int_equal(kvp_mem_open_existing(cfg.name, 1, &want, &mem, &got), -ENOTUNIQ);
	kvp_mem_detach(&other);
	/* A new arena replaces both. */
	want.hugepages = KVP_MEM_OFF;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	sum = 0;
	assert_int_equal(kvp_mem_list(cfg.name, list_count, &sum), 0);
	assert_int_equal(sum, 1);
	kvp_mem_detach(&mem);
	want.hugepages = KVP_MEM_REQUIRE;
	assert_int_equal(kvp_mem_open_existing(cfg.name, 1, &want, &mem, &got), -ENODEV);
	why_check(&got, 1);
	assert_int_equal(kvp_mem_unlink(cfg.name), 0);
	if (mounts.count == 0) {
		hugetlb_umount(path);
	}
}

static void
lock_small_limit(void)
{
	const struct kvp_mem_cfg cfg = {.len = 4 * MIB, .mode = 0600};
	struct kvp_mem_want want = {.lock = KVP_MEM_PREFER, .populate = true};
	struct rlimit limit = {65536, 65536};
	struct kvp_mem_got got;
	struct kvp_mem mem;

	CHILD_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == 0);
	CHILD_CHECK(!got.locked && got.populated && got.why.count == 1);
	CHILD_CHECK(strstr(got.why.line[0], "RLIMIT_MEMLOCK 65536 bytes") != NULL);
	touch_all(mem.base, mem.len);
	kvp_mem_close(&mem);
	want.lock = KVP_MEM_REQUIRE;
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == -ENOMEM);
	CHILD_CHECK(got.why.count == 1);
	limit = (struct rlimit){0, 0};
	CHILD_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == -EPERM);
	want.lock = KVP_MEM_OFF;
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == 0);
	CHILD_CHECK(got.why.count == 0);
	/* All fallbacks at once; nothing of it may end in a signal. */
	want = (struct kvp_mem_want){.hugepages = KVP_MEM_PREFER,
		.page_len = 1024 * MIB,
		.lock = KVP_MEM_PREFER,
		.threads = 2};
	kvp_mem_close(&mem);
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == 0);
	CHILD_CHECK(got.why.count >= 2);
	touch_all(mem.base, mem.len);
	kvp_mem_close(&mem);
}

static void
arena_lock_limit(void **state)
{
	(void)state;
	in_child(true, lock_small_limit);
}

static uint64_t
locked_len(void)
{
	uint64_t len = 0;

	assert_int_equal(kvp_proc_field("/proc/self/status", "VmLck:", &len), 0);
	return len;
}

/* Sanitizers make a call of mlock that does nothing. */
static bool
mlock_works(void)
{
	static char page[4096 * 2];
	uint64_t before = locked_len();
	bool works = mlock(page, sizeof(page)) == 0 && locked_len() > before;

	(void)munlock(page, sizeof(page));
	return works;
}

static void
arena_locks(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 4 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {.lock = KVP_MEM_PREFER};
	struct kvp_mem_got got;
	struct kvp_mem mem;

	(void)state;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	if (!got.locked) {
		kvp_mem_close(&mem);
		print_message("skipped: %s\n", got.why.line[0]);
		skip();
	}
	if (mlock_works()) {
		assert_true(locked_len() >= cfg.len);
		assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
	}
	kvp_mem_close(&mem);
}

static void
file_limit(void)
{
	const struct kvp_mem_cfg cfg = {.len = 4 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {.populate = true};
	const struct rlimit limit = {MIB, MIB};
	struct kvp_mem_got got;
	struct kvp_mem mem;

	CHILD_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == -EFBIG);
	CHILD_CHECK(got.why.count == 1);
}

static void
arena_file_limit(void **state)
{
	(void)state;
	in_child(true, file_limit);
}

static void
arena_numa(void **state)
{
	const struct kvp_mem_cfg cfg = {.len = 20 * MIB, .mode = 0600};
	struct kvp_mem_want want = {.numa_bind = true, .numa_node = 1000, .threads = 2};
	struct kvp_mem_got got;
	struct kvp_mem mem;
	int err;

	(void)state;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), -ENODEV);
	why_check(&got, 1);
	want.numa_node = 0;
	if (!kvp_numa_exists("", 0)) {
		print_message("skipped: no NUMA node 0\n");
		skip();
	}
	err = kvp_mem_create_arena(&cfg, &want, &mem, &got);
	if (err == -EPERM || err == -ENOSYS) {
		why_check(&got, 1);
		print_message("skipped: %s\n", got.why.line[0]);
		skip();
	}
	assert_int_equal(err, 0);
	assert_int_equal(got.numa_node, 0);
	assert_int_equal(kvp_numa_of((char *)mem.base + mem.len - 1), 0);
	kvp_mem_close(&mem);
	want.hugepages = KVP_MEM_PREFER; /* of the pool of that node, or small ones of it */
	want.page_len = KVP_HUGE_LEN_2M;
	assert_int_equal(kvp_mem_create_arena(&cfg, &want, &mem, &got), 0);
	assert_int_equal(got.kind == KVP_MEM_HUGETLB, machine.no_pages == NULL);
	assert_int_equal(kvp_numa_of((char *)mem.base + mem.len - 1), 0);
	assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
	kvp_mem_close(&mem);
}

static void
existing_child(const char *name)
{
	const struct kvp_mem_cfg cfg = {.name = name, .len = 2 * MIB, .mode = 0600};
	const struct kvp_mem_want want = {.populate = true};
	struct kvp_mem_got got;
	struct kvp_mem mem;

	CHILD_CHECK(kvp_mem_create_arena(&cfg, &want, &mem, &got) == 0);
	strcpy((char *)mem.base + MIB, "survives");
	(void)raise(SIGKILL);
}

static void
existing_after_kill(void **state)
{
	const struct kvp_mem_want want = {.populate = true, .lock = KVP_MEM_PREFER, .threads = 2};
	const char *name = name_of("kill");
	struct kvp_mem_got got;
	struct kvp_mem mem;
	pid_t child;
	int status;

	(void)state;
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), -ENOENT);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		existing_child(name);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(kvp_mem_open_existing(name, 2 * MIB + 1, &want, &mem, &got), -EINVAL);
	assert_int_equal(kvp_mem_open_existing(name, MIB, &want, &mem, &got), 0);
	assert_int_equal(mem.len, 2 * MIB);
	assert_int_equal(got.kind, KVP_MEM_SMALL);
	assert_true(got.populated);
	assert_string_equal((char *)mem.base + MIB, "survives");
	assert_true(touch_faults(mem.base, mem.len) < FAULTS_ALWAYS);
	kvp_mem_detach(&mem);
	assert_int_equal(kvp_mem_open_existing(name, MIB, &want, &mem, &got), 0);
	kvp_mem_close(&mem); /* an owner again: it goes */
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), -ENOENT);
}

/* Files that a stranger or a crash could leave. */
static void
existing_damaged(void **state)
{
	const struct kvp_mem_want want = {0};
	const char *name = name_of("bad");
	struct kvp_mem_got got;
	struct kvp_mem mem;
	struct stat st;
	char path[128];
	char link_path[128];
	int fd;

	(void)state;
	(void)snprintf(path, sizeof(path), "/dev/shm/%s", name);
	(void)snprintf(link_path, sizeof(link_path), "/dev/shm/%s.x", name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(kvp_mem_open_existing(name, 0, &want, &mem, &got), -EINVAL); /* empty */
	assert_int_equal(ftruncate(fd, 5000), 0);
	assert_int_equal(kvp_mem_open_existing(name, 0, &want, &mem, &got), -EINVAL);
	assert_int_equal(ftruncate(fd, 8 << 20), 0); /* one great hole */
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, 8 << 20);
	kvp_mem_detach(&mem);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, (off_t)1 << 50), 0); /* more than there is */
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), -ENOSPC);
	why_check(&got, 1);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(link(path, link_path), 0);
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(link_path, path), 0);
	assert_int_equal(kvp_mem_open_existing(name, 1, &want, &mem, &got), -ENOENT);
	assert_int_equal(unlink(link_path), 0);
	assert_int_equal(kvp_mem_unlink(name), 0);
	(void)close(fd);
}

static int
list_unlink(const struct kvp_mem_object *object, void *arg)
{
	++*(int *)arg;
	assert_int_equal(object->len, 4096);
	return kvp_mem_unlink(object->name);
}

static void
object_reclaim(void **state)
{
	struct kvp_mem_cfg cfg = {.len = 4096, .mode = 0600};
	struct kvp_mem mem;
	char prefix[64];
	char name[80];
	int count = 0;

	(void)state;
	strcpy(prefix, name_of("list-"));
	for (int i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "%s%d", prefix, i);
		cfg.name = name;
		assert_int_equal(kvp_mem_create(&cfg, &mem), 0);
		assert_int_equal(strncmp(mem.path, "/dev/shm/", 9), 0);
		kvp_mem_detach(&mem);
	}
	assert_int_equal(kvp_mem_list(prefix, list_unlink, &count), 0);
	assert_int_equal(count, 3);
	assert_int_equal(kvp_mem_list(prefix, list_unlink, &count), 0);
	assert_int_equal(count, 3);
}

static bool
pages_write(uint64_t count)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)count);

	return pwrite(machine.pages_fd, text, (size_t)len, 0) == len;
}

static void
machine_reserve(void)
{
	struct kvp_huge_pool pool;

	machine.pages_fd = open(PAGES_FILE, O_RDWR | O_CLOEXEC);
	if (machine.pages_fd < 0) {
		machine.no_pages = "may not reserve huge pages";
	} else if (flock(machine.pages_fd, LOCK_EX) < 0 ||
		   kvp_proc_number(PAGES_FILE, &machine.pages_before) < 0 ||
		   !pages_write(machine.pages_before + PAGES_WISHED) ||
		   kvp_huge_pool("", KVP_HUGE_LEN_2M, -1, &pool) < 0 || pool.room < 8) {
		machine.no_pages = "no huge pages of 2 MiB can be reserved";
	}
}

static int
machine_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arena_zero_is_plain),
		cmocka_unit_test(arena_refuses),
		cmocka_unit_test(arena_populates),
		cmocka_unit_test(populate_keeps_bytes),
		cmocka_unit_test(populate_no_sigbus),
		cmocka_unit_test(arena_stops),
		cmocka_unit_test(arena_small_mount),
		cmocka_unit_test(arena_transparent),
		cmocka_unit_test(hugetlb_unnamed),
		cmocka_unit_test(hugetlb_too_few),
		cmocka_unit_test(hugetlb_named),
		cmocka_unit_test(arena_lock_limit),
		cmocka_unit_test(arena_locks),
		cmocka_unit_test(arena_file_limit),
		cmocka_unit_test(arena_numa),
		cmocka_unit_test(existing_after_kill),
		cmocka_unit_test(existing_damaged),
		cmocka_unit_test(object_reclaim),
	};

	machine.own_mounts = unshare(CLONE_NEWNS) == 0 &&
			     mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests_name("mem_arena", tests, NULL, NULL);
}

int
main(void)
{
	int status = 1;
	pid_t child;

	machine_reserve();
	child = fork();
	if (child == 0) {
		exit(machine_run());
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		status = 1;
	}
	if (machine.pages_fd >= 0 && !pages_write(machine.pages_before)) {
		(void)fprintf(stderr, "huge pages could not be given back\n");
		status = 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
