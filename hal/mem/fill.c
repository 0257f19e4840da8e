/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c - maps an object, and takes, maps and locks its pages: the same for a new arena and for
 * one that an earlier process left.
 */
#include "hal/base/assert.h"
#include "hal/mem/arena_impl.h"
#include "hal/mem/mlock.h"
#include "hal/mem/numa.h"
#include "hal/mem/populate.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t
kvp_arena_small_len(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int
kvp_arena_map(int fd, size_t len, size_t align, void **ret_base)
{
	size_t room = align > kvp_arena_small_len() ? len + align : len;
	char *base =
		mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *begin;
	int err;

	if (base == MAP_FAILED) {
		return -errno;
	}
	begin = base + (-(uintptr_t)base & (align - 1));
	if (mmap(begin, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
		madvise(begin, len, MADV_DONTFORK) < 0) {
		err = errno;
		(void)munmap(base, room);
		return -err;
	}
	if (begin > base) {
		kvp_assert(munmap(base, (size_t)(begin - base)) == 0);
	}
	if (begin + len < base + room) {
		kvp_assert(munmap(begin + len, (size_t)(base + room - begin - len)) == 0);
	}
	*ret_base = begin;
	return 0;
}

int
kvp_arena_check(const struct kvp_mem_want *want, struct kvp_mem_why *why)
{
	char online[64];

	if ((want->page_len & (want->page_len - 1)) != 0) {
		return -EINVAL;
	}
	if (want->numa_bind && !kvp_numa_exists("", want->numa_node)) {
		kvp_numa_online("", online, sizeof(online));
		kvp_mem_why_add(why,
			"numa node: limit /sys/devices/system/node, have %s, need %d, remedy: name "
			"one of these or none",
			online, want->numa_node);
		return -ENODEV;
	}
	return 0;
}

int
kvp_arena_lock_check(const struct kvp_mem_want *want, size_t len, struct kvp_mem_got *got,
	enum kvp_mem_policy *ret_lock)
{
	int ret;

	*ret_lock = KVP_MEM_OFF;
	if (want->lock == KVP_MEM_OFF || got->kind == KVP_MEM_HUGETLB) {
		return 0;
	}
	ret = kvp_mlock_check(len, &got->why);
	if (ret == 0) {
		*ret_lock = want->lock;
	}
	return want->lock == KVP_MEM_REQUIRE ? ret : 0;
}

static int
fill_lock(const struct kvp_mem *mem, const struct kvp_mem_want *want, enum kvp_mem_policy lock,
	struct kvp_mem_got *got)
{
	int ret = 0;

	got->locked = got->kind == KVP_MEM_HUGETLB;
	if (lock != KVP_MEM_OFF) {
		ret = kvp_mlock(mem->base, mem->len, &got->why, want->stop, want->stop_arg);
		got->locked = ret == 0;
	}
	return lock == KVP_MEM_REQUIRE || ret == -EINTR ? ret : 0;
}

int
kvp_arena_fill(const struct kvp_mem *mem, const struct kvp_mem_want *want, bool populate,
	enum kvp_mem_policy lock, struct kvp_mem_got *got)
{
	const struct kvp_populate job = {.fd = mem->fd,
		.base = mem->base,
		.len = mem->len,
		.page_len = got->page_len,
		.threads = want->threads,
		.stop = want->stop,
		.stop_arg = want->stop_arg};
	char text[KVP_MEM_TEXT_LEN];
	int ret = populate ? kvp_populate(&job) : kvp_populate_file(&job);

	if (ret < 0 && ret != -EINTR) {
		kvp_mem_why_add(&got->why,
			"pages of %s: limit of the kernel or a cgroup, have fewer than need "
			"%zu (%s), remedy: raise the limit or lower the size",
			kvp_mem_len_text(got->page_len, text), mem->len / got->page_len,
			strerrorname_np(-ret));
	}
	if (ret < 0) {
		return ret;
	}
	ret = fill_lock(mem, want, lock, got);
	got->populated = populate || got->locked;
	got->numa_node = got->populated ? kvp_numa_of(mem->base) : -1;
	return ret;
}
