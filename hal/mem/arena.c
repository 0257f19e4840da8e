/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - makes an arena: tries the kinds of pages from the largest down, and fills what it got.
 *
 * The order within one kind matters. Room is looked at first, because to run into a limit of
 * memory kills. Mapping comes next: on hugetlb it reserves the pages, and advice and NUMA policy
 * must be set before the first page is taken. Then every page is taken; locking comes last.
 */
#include "hal/mem/arena.h"
#include "hal/mem/arena_impl.h"
#include "hal/mem/huge.h"
#include "hal/mem/limit.h"
#include "hal/mem/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* One attempt with one kind of pages. */
struct arena_try {
	const struct kvp_mem_cfg *cfg;
	const struct kvp_mem_want *want;
	enum kvp_mem_kind kind;
	size_t page_len;
	const char *dir; /* where a named one goes */
	struct kvp_mem mem;
};

static int
try_node(const struct arena_try *try)
{
	return try->want->numa_bind ? try->want->numa_node : -1;
}

/* A new, empty object of the wished kind in try->mem. */
static int
try_open(struct arena_try *try)
{
	const struct kvp_mem_cfg *cfg = try->cfg;
	struct kvp_mem *mem = &try->mem;
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int len;

	if (cfg->name == NULL) {
		if (try->kind == KVP_MEM_HUGETLB) {
			unsigned shift = (unsigned)__builtin_ctzll(try->page_len);

			flags |= MFD_HUGETLB | shift << MFD_HUGE_SHIFT;
		}
		mem->fd = memfd_create("kvpool", flags);
		return mem->fd < 0 ? -errno : 0;
	}
	len = snprintf(mem->path, sizeof(mem->path), "%s/%s", try->dir, cfg->name);
	if (len >= (int)sizeof(mem->path)) {
		return -ENAMETOOLONG;
	}
	strcpy(mem->name, cfg->name);
	mem->fd = open(mem->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, cfg->mode);
	return mem->fd < 0 ? -errno : 0;
}

/* The mount may be smaller than what is behind it. */
static int
try_check_mount(const struct arena_try *try, struct kvp_mem_why *why)
{
	const char *place = try->cfg->name != NULL ? try->dir : "the mount of memfd";
	struct statvfs fs;
	uint64_t have;

	if (fstatvfs(try->mem.fd, &fs) < 0) {
		return -errno;
	}
	have = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_blocks == 0 || have >= try->mem.len) { /* no blocks: no limit */
		return 0;
	}
	kvp_mem_why_add(why,
		"space of %s: limit %" PRIu64 " bytes, have %" PRIu64
		", need %zu, remedy: lower the size or mount -o remount,size=... %s",
		place, (uint64_t)fs.f_blocks * fs.f_frsize, have, try->mem.len, place);
	return -ENOSPC;
}

static int
try_check_pages(const struct arena_try *try, struct kvp_mem_why *why)
{
	struct kvp_huge_pool pool;
	char text[KVP_MEM_TEXT_LEN];
	uint64_t need = try->mem.len / try->page_len;

	if (try->kind != KVP_MEM_HUGETLB) {
		return kvp_mem_room(
			"", try_node(try), try->want->lock == KVP_MEM_OFF, try->mem.len, why);
	}
	if (kvp_huge_pool("", try->page_len, try_node(try), &pool) < 0 || pool.room >= need) {
		return 0; /* who knows: mmap decides */
	}
	kvp_mem_why_add(why,
		"huge pages of %s: limit %s %" PRIu64 ", have %" PRIu64 " free, need %" PRIu64
		", remedy: echo %" PRIu64 " > %s%s",
		kvp_mem_len_text(try->page_len, text), "nr_hugepages", pool.total, pool.room, need,
		pool.total + need - pool.room, pool.file,
		try->page_len == KVP_HUGE_LEN_2M && try_node(try) < 0 ? " (sysctl vm.nr_hugepages)"
								      : "");
	return -ENOSPC;
}

/* Beyond it a signal would end the process. */
static int
try_check_file_limit(size_t len, struct kvp_mem_why *why)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0) {
		return -errno;
	}
	if (limit.rlim_cur == RLIM_INFINITY || len <= limit.rlim_cur) {
		return 0;
	}
	kvp_mem_why_add(why,
		"file size: limit RLIMIT_FSIZE, have %" PRIu64
		" bytes, need %zu, remedy: ulimit -f unlimited or LimitFSIZE=infinity in the unit",
		(uint64_t)limit.rlim_cur, len);
	return -EFBIG;
}

static int
try_check_kind(const struct arena_try *try)
{
	struct statfs fs;

	if (try->kind != KVP_MEM_HUGETLB) {
		return 0;
	}
	/* The list of mounts was read before: another one may lie on top. */
	if (fstatfs(try->mem.fd, &fs) < 0) {
		return -errno;
	}
	return fs.f_type == HUGETLBFS_MAGIC && (size_t)fs.f_bsize == try->page_len ? 0 : -ENODEV;
}

/* Sizes and maps it, and says how pages are to come. */
static int
try_map(struct arena_try *try, struct kvp_mem_why *why)
{
	struct kvp_mem *mem = &try->mem;
	int ret;

	if (ftruncate(mem->fd, (off_t)mem->len) < 0) {
		return -errno;
	}
	ret = kvp_arena_map(mem->fd, mem->len, try->page_len, &mem->base);
	if (ret < 0) {
		kvp_mem_why_add(why,
			"mapping: limit of the kernel (%s), have less than need %zu "
			"bytes, remedy: reserve pages, or ulimit -v unlimited",
			strerrorname_np(-ret), mem->len);
		return ret == -ENOMEM ? -ENOSPC : ret;
	}
	if (try->kind == KVP_MEM_THP && madvise(mem->base, mem->len, MADV_HUGEPAGE) < 0) {
		return -errno;
	}
	ret = try->want->numa_bind ? kvp_numa_bind(mem->base, mem->len, try->want->numa_node) : 0;
	if (ret < 0) {
		kvp_mem_why_add(why,
			"numa node %d: limit of the system, have %s, need mbind, remedy: allow "
			"mbind (CAP_SYS_NICE in a container) or name no node",
			try->want->numa_node, strerrorname_np(-ret));
	}
	return ret;
}

static int
try_finish(const struct arena_try *try)
{
	if (fchmod(try->mem.fd, try->cfg->mode) < 0) { /* what the umask took away */
		return -errno;
	}
	/* Who maps it must not see it shrink: that would be SIGBUS. Named objects have no seals. */
	if (try->cfg->name == NULL &&
		fcntl(try->mem.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		return -errno;
	}
	return 0;
}

static void
try_undo(struct arena_try *try)
{
	if (try->mem.base != NULL) {
		kvp_mem_close(&try->mem);
		return;
	}
	if (try->mem.fd >= 0) {
		(void)close(try->mem.fd);
		if (try->mem.path[0] != '\0') {
			(void)unlink(try->mem.path); /* ours, and empty */
		}
	}
}

/* Huge pages were advised; what came is what counts. */
static void
try_judge_thp(const struct arena_try *try, struct kvp_mem_got *got)
{
	uint64_t mapped = kvp_huge_thp_mapped(try->mem.base, try->mem.len);

	if (mapped >= try->mem.len - try->mem.len / 10) {
		return;
	}
	got->kind = KVP_MEM_SMALL;
	got->page_len = kvp_arena_small_len();
	kvp_mem_why_add(&got->why,
		"transparent huge pages: limit of free contiguous memory, have %" PRIu64
		" bytes mapped by them, need %zu, remedy: echo 1 > /proc/sys/vm/compact_memory "
		"before the start, or reserve huge pages",
		mapped, try->mem.len);
}

/* One kind of pages from nothing to a full arena. */
static int
try_kind(struct arena_try *try, struct kvp_mem_got *got)
{
	bool populate =
		try->want->populate || try->want->numa_bind || try->want->hugepages != KVP_MEM_OFF;
	enum kvp_mem_policy lock;
	int ret;

	*got = (struct kvp_mem_got){
		.kind = try->kind, .page_len = try->page_len, .numa_node = -1, .why = got->why};
	try->mem = (struct kvp_mem){.fd = -1};
	if (__builtin_add_overflow(try->cfg->len, try->page_len - 1, &try->mem.len) ||
		try->mem.len > INT64_MAX) {
		return -EINVAL;
	}
	try->mem.len &= ~(try->page_len - 1);
	ret = kvp_arena_lock_check(try->want, try->mem.len, got, &lock);
	if (ret == 0) {
		ret = try_check_file_limit(try->mem.len, &got->why);
	}
	if (ret == 0) {
		ret = try_check_pages(try, &got->why);
	}
	if (ret == 0) {
		ret = try_open(try);
	}
	if (ret == 0) {
		ret = try_check_kind(try);
	}
	if (ret == 0) {
		ret = try_check_mount(try, &got->why);
	}
	if (ret == 0) {
		ret = try_map(try, &got->why);
	}
	if (ret == 0) {
		ret = kvp_arena_fill(&try->mem, try->want, populate, lock, got);
	}
	if (ret == 0) {
		ret = try_finish(try);
	}
	if (ret < 0) {
		try_undo(try);
		return ret;
	}
	if (try->kind == KVP_MEM_THP) {
		try_judge_thp(try, got);
	}
	return 0;
}

/* A named one goes to the first mount that takes it. */
static int
arena_hugetlb(struct arena_try *try, struct kvp_mem_got *got)
{
	struct kvp_huge_mounts mounts = {.count = 0};
	struct kvp_huge_pool pool;
	char text[KVP_MEM_TEXT_LEN];
	int ret = -ENODEV;

	try->kind = KVP_MEM_HUGETLB;
	try->page_len = try->want->page_len != 0
				? try->want->page_len
				: kvp_huge_choose("", try->cfg->len, try_node(try));
	(void)kvp_mem_len_text(try->page_len, text);
	if (kvp_huge_pool("", try->page_len, -1, &pool) < 0) {
		kvp_mem_why_add(&got->why,
			"huge pages of %s: limit of the machine, have none of that size, need it, "
			"remedy: another page size",
			text);
		return -ENODEV;
	}
	if (try->cfg->name == NULL) {
		return try_kind(try, got);
	}
	kvp_huge_mounts("", try->page_len, &mounts);
	for (unsigned i = 0; ret != 0 && ret != -EINTR && i < mounts.count; i++) {
		try->dir = mounts.dir[i];
		ret = try_kind(try, got);
	}
	if (mounts.count == 0) {
		kvp_mem_why_add(&got->why,
			"huge pages of %s: limit hugetlbfs mounts with that pagesize, have none to "
			"write to, need 1, remedy: mkdir -p /dev/hugepages; mount -t hugetlbfs -o "
			"pagesize=%zuM,uid=%u,mode=0700 none /dev/hugepages",
			text, try->page_len >> 20, (unsigned)geteuid());
	}
	return ret;
}

/* Whether transparent ones may be tried; if not, one line says why. */
static bool
arena_thp(struct arena_try *try, struct kvp_mem_why *why)
{
	struct kvp_huge_thp thp;

	kvp_huge_thp("", try->cfg->name != NULL, &thp);
	if (!thp.allowed) {
		kvp_mem_why_add(why,
			"transparent huge pages: limit %s, have pages of %zu bytes, need %zu, "
			"remedy: %s",
			thp.said, kvp_arena_small_len(), thp.page_len, thp.remedy);
		return false;
	}
	try->kind = KVP_MEM_THP;
	try->page_len = thp.page_len;
	return true;
}

static int
arena_pick(struct arena_try *try, struct kvp_mem_got *got)
{
	int ret = -ENODEV;

	if (try->want->hugepages != KVP_MEM_OFF) {
		ret = arena_hugetlb(try, got);
	}
	if (ret == 0 || ret == -EINTR || try->want->hugepages == KVP_MEM_REQUIRE) {
		return ret;
	}
	try->dir = "/dev/shm";
	if (try->want->hugepages == KVP_MEM_OFF || !arena_thp(try, &got->why)) {
		try->kind = KVP_MEM_SMALL;
		try->page_len = kvp_arena_small_len();
	}
	return try_kind(try, got);
}

int
kvp_mem_create_arena(const struct kvp_mem_cfg *cfg, const struct kvp_mem_want *want,
	struct kvp_mem *ret_mem, struct kvp_mem_got *ret_got)
{
	struct arena_try try = {.cfg = cfg, .want = want};
	int ret = cfg->len == 0 ? -EINVAL : 0;

	*ret_got = (struct kvp_mem_got){.numa_node = -1};
	if (ret == 0 && cfg->name != NULL) {
		ret = kvp_mem_name_check(cfg->name);
	}
	if (ret == 0) {
		ret = kvp_arena_check(want, &ret_got->why);
	}
	if (ret == 0 && cfg->name != NULL) {
		/* Wherever it was: the next start must find one object, not two. */
		ret = kvp_mem_unlink(cfg->name);
		ret = ret == -ENOENT ? 0 : ret;
	}
	if (ret == 0) {
		ret = arena_pick(&try, ret_got);
	}
	if (ret < 0) {
		return ret;
	}
	strcpy(ret_got->path, try.mem.path);
	*ret_mem = try.mem;
	return 0;
}
