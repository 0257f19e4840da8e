/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_main.c - runs the block engine suite against BLK_NAME; its helpers.
 */
#include "tests/conform/blk_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINES_MAX 256

char test_dir[64] = "/var/tmp/kvp-blk-XXXXXX";
bool test_mounts;

static char log_lines[LOG_LINES_MAX][300];
static unsigned log_count;
static uint64_t random_state;

static void
log_sink(void *arg, enum kvp_log_level level, const char *line)
{
	(void)arg;
	if (getenv("KVP_TEST_LOG") != NULL) {
		kvp_log_stderr(NULL, level, line);
	}
	if (log_count < LOG_LINES_MAX) {
		(void)snprintf(log_lines[log_count++], sizeof(log_lines[0]), "%s", line);
	}
}

const struct kvp_log *
test_log(void)
{
	static const struct kvp_log log = {.level = KVP_LOG_INFO, .sink = log_sink};

	return &log;
}

unsigned
test_log_count(const char *text)
{
	unsigned count = 0;

	for (unsigned i = 0; i < log_count; i++) {
		count += strstr(log_lines[i], text) != NULL;
	}
	return count;
}

void
test_log_reset(void)
{
	log_count = 0;
}

unsigned
test_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	(void)closedir(dir);
	return count;
}

uint64_t
test_random(void)
{
	uint64_t v = random_state += 0x9e3779b97f4a7c15ull;

	v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
	return v ^ (v >> 31);
}

/* Every eight bytes depend on their place. */
void
test_fill(void *buf, size_t len, uint64_t seed)
{
	uint64_t *words = buf;

	for (size_t i = 0; i < len / sizeof(*words); i++) {
		words[i] = (seed + i) * 0x9e3779b97f4a7c15ull;
	}
}

void *
test_alloc(size_t len)
{
	void *buf = aligned_alloc(KVP_BLK_ALIGN, len);

	assert_non_null(buf);
	memset(buf, 0, len);
	return buf;
}

void
test_set_name(struct test_set *set, const char *name, uint32_t count, uint64_t bytes)
{
	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(set->paths[i], sizeof(set->paths[i]), "%s/%s%u", test_dir, name, i);
		set->files[i] = (struct kvp_blk_file){.path = set->paths[i], .bytes = bytes};
	}
}

static struct kvp_blk_cfg
set_cfg(struct test_set *set, struct kvp_blk_cfg cfg)
{
	cfg.env = kvp_env_real();
	cfg.log = test_log();
	cfg.files = set->files;
	for (cfg.file_count = 0; cfg.file_count < 4 && set->files[cfg.file_count].path != NULL;) {
		cfg.file_count++;
	}
	return cfg;
}

int
test_set_try(struct test_set *set, struct kvp_blk_cfg cfg)
{
	cfg = set_cfg(set, cfg);
	if (cfg.ops == NULL && cfg.engine == NULL) {
#ifdef BLK_FAULT
		set->plan.inner = kvp_blk_find(BLK_NAME);
		cfg.ops = &kvp_blk_fault;
		cfg.ops_arg = &set->plan;
#else
		cfg.engine = BLK_NAME;
#endif
	}
	return kvp_blk_open(&cfg, &set->blk);
}

void
test_set_open(struct test_set *set, struct kvp_blk_cfg cfg, uint32_t count, uint64_t bytes)
{
	test_set_name(set, "seg", count, bytes);
	cfg.create = true;
	assert_int_equal(test_set_try(set, cfg), 0);
}

void
test_set_open_fault(struct test_set *set, struct kvp_blk_cfg cfg, uint32_t count, uint64_t bytes)
{
	set->plan.inner = kvp_blk_find(BLK_NAME);
	cfg.ops = &kvp_blk_fault;
	cfg.ops_arg = &set->plan;
	test_set_open(set, cfg, count, bytes);
}

void
test_set_close(struct test_set *set)
{
	kvp_blk_close(set->blk);
	set->blk = NULL;
	for (uint32_t i = 0; i < 4 && set->files[i].path != NULL; i++) {
		assert_int_equal(unlink(set->files[i].path), 0);
	}
}

static void
io_done(struct kvp_blk_io *io)
{
	struct test_io *t = (struct test_io *)io;

	t->done++;
	t->status = io->status;
	if (t->total != NULL) {
		(*t->total)++;
	}
}

void
test_io_set(struct test_io *t, enum kvp_blk_op op, uint32_t file, uint64_t off, void *addr,
	uint64_t len)
{
	_Static_assert(offsetof(struct test_io, io) == 0, "io_done casts");
	t->io.done = io_done;
	t->io.op = op;
	t->io.file = file;
	t->io.buf = KVP_BLK_BUF_NONE;
	t->io.addr = addr;
	t->io.off = off;
	t->io.len = len;
	t->done = 0;
	t->status = 1;
}

int
test_post(struct kvp_blk *blk, struct test_io *t)
{
	struct kvp_blk_io *io = &t->io;

	return kvp_blk_post(blk, &io, 1);
}

void
test_wait(struct kvp_blk *blk, const unsigned *total, unsigned want)
{
	uint64_t end = kvp_now_ns(kvp_env_real()) + TEST_WAIT_MS * KVP_NS_PER_MS;

	while (*total < want) {
		struct pollfd pfd = {.events = POLLIN};

		if (kvp_blk_poll(blk, UINT32_MAX) > 0) {
			continue;
		}
		pfd.fd = kvp_blk_wait_fd(blk);
		assert_true(pfd.fd >= 0 || pfd.fd == -EAGAIN);
		if (pfd.fd >= 0) {
			int ret = poll(&pfd, 1, TEST_WAIT_MS);

			assert_true(ret == 1 || (ret < 0 && errno == EINTR));
		}
		assert_true(kvp_now_ns(kvp_env_real()) < end);
	}
}

int
test_do(struct kvp_blk *blk, enum kvp_blk_op op, uint32_t file, uint64_t off, void *addr,
	uint64_t len)
{
	struct test_io t = {0};

	test_io_set(&t, op, file, off, addr, len);
	assert_int_equal(test_post(blk, &t), 0);
	test_wait(blk, &t.done, 1);
	assert_int_equal(t.done, 1);
	return t.status;
}

int
test_flush(struct kvp_blk *blk, uint32_t file)
{
	return test_do(blk, KVP_BLK_FLUSH, file, 0, NULL, 0);
}

struct kvp_blk_stats
test_stats(const struct kvp_blk *blk)
{
	struct kvp_blk_stats stats;

	kvp_blk_stats(blk, &stats);
	return stats;
}

int
test_setup(void **state)
{
	*state = (void *)(uintptr_t)test_fd_count();
	test_log_reset();
	return 0;
}

int
test_teardown(void **state)
{
	return test_fd_count() == (unsigned)(uintptr_t)*state ? 0 : -1;
}

static int
tests_run(void)
{
	const struct {
		const struct CMUnitTest *tests;
		size_t count;
	} groups[] = {
		{blk_data_tests, blk_data_count},
		{blk_flow_tests, blk_flow_count},
		{blk_fail_tests, blk_fail_count},
		{blk_power_tests, blk_power_count},
		{blk_open_tests, blk_open_count},
	};
	struct CMUnitTest all[64];
	size_t total = 0;

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (total + groups[i].count > sizeof(all) / sizeof(all[0])) {
			return 1;
		}
		memcpy(all + total, groups[i].tests, groups[i].count * sizeof(all[0]));
		total += groups[i].count;
	}
	return _cmocka_run_group_tests("conform.blk." BLK_NAME, all, total, NULL, NULL) != 0;
}

/* Mounts of the tests are seen by nobody else and end with the process. */
static bool
mounts_own(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

int
main(int argc, char **argv)
{
	struct test_set set = {0};
	char why[KVP_BLK_WHY_LEN];
	const char *seed = getenv("KVP_TEST_SEED");
	int ret;

	if (argc == 4 && strcmp(argv[1], "--child") == 0) {
		(void)snprintf(test_dir, sizeof(test_dir), "%s", argv[3]);
		return test_child_main(argv[2]);
	}
	random_state = seed != NULL ? strtoull(seed, NULL, 0) : kvp_now_ns(kvp_env_real());
	printf("seed %llu\n", (unsigned long long)random_state);
	if (argc > 1) {
		cmocka_set_test_filter(argv[1]);
	}
	test_mounts = mounts_own();
	if (mkdtemp(test_dir) == NULL) {
		return 2;
	}
	test_set_name(&set, "probe", 1, KVP_BLK_ALIGN);
	ret = test_set_try(&set, (struct kvp_blk_cfg){.create = true, .why = why});
	if (ret == 0) {
		kvp_blk_close(set.blk);
	}
	(void)unlink(set.paths[0]);
	if (ret == -KVP_E_NO_PROVIDER) {
		printf("skipped: %s\n", why);
		(void)rmdir(test_dir);
		return 77;
	}
	ret = ret == 0 ? tests_run() : 2;
	if (rmdir(test_dir) != 0) { /* every file must be gone */
		perror(test_dir);
		ret = 1;
	}
	return ret;
}
