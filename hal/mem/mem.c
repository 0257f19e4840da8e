/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - creates and maps shared memory.
 *
 * Two limits are checked before pages are taken, because running into them kills: the size of
 * /dev/shm is a promise of the mount, not of the machine, and memory that is not there brings the
 * OOM killer, not an error.
 */
#include "hal/mem/mem.h"
#include "hal/base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MEM_PAGE_LEN     4096u
#define MEM_RESERVE_STEP (64u << 20) /* bytes a call: a signal repeats only this much */

static int
mem_round_len(size_t len, size_t page_len, size_t *ret_len)
{
	if (len == 0 || __builtin_add_overflow(len, page_len - 1, &len) || len > INT64_MAX) {
		return -EINVAL;
	}
	*ret_len = len & ~(page_len - 1);
	return 0;
}

/* hugetlbfs maps and unmaps whole pages of its own size only. */
static size_t
mem_page_len(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC && fs.f_bsize > 0) {
		return (size_t)fs.f_bsize;
	}
	return MEM_PAGE_LEN;
}

/* Bytes the machine could give out, swap included; UINT64_MAX when /proc does not tell. */
static uint64_t
mem_available(void)
{
	FILE *stream = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t sum_kib = 0;
	uint64_t kib;
	int found = 0;

	while (stream != NULL && found < 2 && fgets(line, sizeof(line), stream) != NULL) {
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1 ||
			sscanf(line, "SwapFree: %" SCNu64, &kib) == 1) {
			sum_kib += kib;
			found++;
		}
	}
	if (stream != NULL) {
		(void)fclose(stream); /* read only */
	}
	return found > 0 ? sum_kib * 1024 : UINT64_MAX;
}

static int
mem_check_room(int fd, size_t len)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) < 0) {
		return -errno;
	}
	/* No blocks at all is a tmpfs without a limit, as behind memfd_create. */
	if (fs.f_blocks > 0 && fs.f_bavail < (len + fs.f_frsize - 1) / fs.f_frsize) {
		return -ENOSPC;
	}
	return mem_available() < len ? -ENOSPC : 0;
}

static int
mem_reserve(int fd, size_t len)
{
	int ret = mem_check_room(fd, len);
	size_t off = 0;

	while (ret == 0 && off < len) {
		size_t step = len - off < MEM_RESERVE_STEP ? len - off : MEM_RESERVE_STEP;
		int err = posix_fallocate(fd, (off_t)off, (off_t)step);

		if (err == 0) {
			off += step;
		} else if (err != EINTR) {
			ret = -err;
		}
	}
	return ret;
}

/* A new, empty object. The stale one of the same name lives on for who still maps it. */
static int
mem_open_new(const struct kvp_mem_cfg *cfg)
{
	char path[sizeof(((struct kvp_mem *)NULL)->name) + 1];
	int fd;

	if (cfg->name == NULL) {
		fd = memfd_create("kvpool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		return fd < 0 ? -errno : fd;
	}
	(void)snprintf(path, sizeof(path), "/%s", cfg->name);
	if (shm_unlink(path) < 0 && errno != ENOENT) {
		return -errno;
	}
	fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, cfg->mode); /* sets CLOEXEC itself */
	return fd < 0 ? -errno : fd;
}

static void
mem_unlink(const struct kvp_mem *mem)
{
	if (mem->path[0] != '\0') {
		(void)unlink(mem->path); /* gone already is as good */
	}
}

static int
mem_mmap(int fd, size_t len, bool writable, void **ret_base)
{
	void *base = mmap(NULL, len, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	int err;

	if (base == MAP_FAILED) {
		return -errno;
	}
	/* A child of fork must neither keep an arena alive nor write into it by accident. */
	if (madvise(base, len, MADV_DONTFORK) < 0) {
		err = errno;
		(void)munmap(base, len);
		return -err;
	}
	*ret_base = base;
	return 0;
}

/* Fills, sizes and maps fd. */
static int
mem_build(int fd, const struct kvp_mem_cfg *cfg, size_t len, void **ret_base)
{
	int ret = mem_reserve(fd, len);

	if (ret < 0) {
		return ret;
	}
	if (fchmod(fd, cfg->mode) < 0) { /* what the umask took away */
		return -errno;
	}
	/* Who maps it must not see it shrink: that would be SIGBUS. Named objects have no seals. */
	if (cfg->name == NULL && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		return -errno;
	}
	return mem_mmap(fd, len, true, ret_base);
}

int
kvp_mem_name_check(const char *name)
{
	if (name[0] == '\0' || strchr(name, '/') != NULL) {
		return -EINVAL;
	}
	return strlen(name) < sizeof(((struct kvp_mem *)NULL)->name) ? 0 : -ENAMETOOLONG;
}

int
kvp_mem_create(const struct kvp_mem_cfg *cfg, struct kvp_mem *ret_mem)
{
	struct kvp_mem mem = {.fd = -1};
	int ret = mem_round_len(cfg->len, MEM_PAGE_LEN, &mem.len);

	if (ret < 0) {
		return ret;
	}
	if (cfg->name != NULL) {
		ret = kvp_mem_name_check(cfg->name);
		if (ret < 0) {
			return ret;
		}
		strcpy(mem.name, cfg->name);
		(void)snprintf(mem.path, sizeof(mem.path), "/dev/shm/%s", cfg->name);
	}
	mem.fd = mem_open_new(cfg);
	if (mem.fd < 0) {
		return mem.fd;
	}
	ret = mem_build(mem.fd, cfg, mem.len, &mem.base);
	if (ret < 0) {
		(void)close(mem.fd);
		mem_unlink(&mem);
		return ret;
	}
	*ret_mem = mem;
	return 0;
}

int
kvp_mem_map(int fd, size_t len, bool writable, struct kvp_mem *ret_mem)
{
	struct kvp_mem mem = {.fd = fd};
	struct stat st;
	int ret = mem_round_len(len, mem_page_len(fd), &mem.len);

	if (ret < 0) {
		return ret;
	}
	if (fstat(fd, &st) < 0) {
		return -errno;
	}
	if (st.st_size < 0 || (uint64_t)st.st_size < mem.len) {
		return -EINVAL;
	}
	ret = mem_mmap(fd, mem.len, writable, &mem.base);
	if (ret < 0) {
		return ret;
	}
	*ret_mem = mem;
	return 0;
}

int
kvp_mem_fd_readonly(const struct kvp_mem *mem, int *ret_fd)
{
	char path[32];
	int fd;

	if (mem->fd < 0) {
		return -EBADF;
	}
	/* By the descriptor, not by the name, which may mean another object by now. */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", mem->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && mem->path[0] != '\0') { /* no /proc */
		fd = open(mem->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	if (fd < 0) {
		return -errno;
	}
	*ret_fd = fd;
	return 0;
}

struct kvp_mem
kvp_mem_wrap(void *base, size_t len)
{
	return (struct kvp_mem){.base = base, .len = len, .fd = -1};
}

void
kvp_mem_detach(struct kvp_mem *mem)
{
	/* A zeroed struct has no base: its fd 0 is not ours. */
	if (mem == NULL || mem->base == NULL) {
		return;
	}
	if (mem->fd >= 0) {
		kvp_assert(munmap(mem->base, mem->len) == 0);
		(void)close(mem->fd); /* memory: nothing to lose */
	}
	*mem = (struct kvp_mem){.fd = -1};
}

void
kvp_mem_close(struct kvp_mem *mem)
{
	if (mem == NULL || mem->base == NULL) {
		return;
	}
	mem_unlink(mem);
	kvp_mem_detach(mem);
}
