/* SPDX-License-Identifier: Apache-2.0 */
/*
 * existing.c - opens an arena that an earlier process left, for a restart that keeps the cache.
 *
 * A name in /dev/shm can be taken by anybody: what is opened must be a plain file of this user
 * with no second name. The file may have been cut or have holes, so its pages are taken again,
 * which costs nothing where they are there.
 */
#include "hal/mem/arena_impl.h"
#include "hal/mem/huge.h"
#include "hal/mem/limit.h"
#include "hal/mem/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct existing_search {
	const char *name;
	unsigned count;
	struct kvp_mem_object object;
};

static int
existing_visit(const struct kvp_mem_object *object, void *arg)
{
	struct existing_search *search = arg;

	if (strcmp(object->name, search->name) == 0) {
		search->object = *object;
		search->count++;
	}
	return 0;
}

static int
existing_find(const char *name, struct kvp_mem_object *ret_object)
{
	struct existing_search search = {.name = name};
	int ret = kvp_mem_name_check(name);

	if (ret == 0) {
		ret = kvp_mem_list(name, existing_visit, &search);
	}
	if (ret < 0) {
		return ret;
	}
	if (search.count != 1) {
		return search.count == 0 ? -ENOENT : -ENOTUNIQ;
	}
	*ret_object = search.object;
	return 0;
}

static int
existing_check_pages(const struct kvp_mem_object *object, const struct kvp_mem_want *want,
	struct kvp_mem_why *why)
{
	char have[KVP_MEM_TEXT_LEN];
	char need[KVP_MEM_TEXT_LEN];

	if (want->hugepages != KVP_MEM_REQUIRE ||
		(object->page_len != 0 &&
			(want->page_len == 0 || want->page_len == object->page_len))) {
		return 0;
	}
	(void)kvp_mem_len_text(
		object->page_len != 0 ? object->page_len : kvp_arena_small_len(), have);
	(void)kvp_mem_len_text(want->page_len, need);
	kvp_mem_why_add(why,
		"pages of %s: limit of the object as it was made, have %s, need huge pages%s%s, "
		"remedy: make it anew or prefer them only",
		object->path, have, want->page_len != 0 ? " of " : "",
		want->page_len != 0 ? need : "");
	return -ENODEV;
}

/* Opens the file and checks that it is what it must be. */
static int
existing_open(const struct kvp_mem_object *object, size_t len_min, size_t page_len, int *ret_fd,
	struct stat *ret_st)
{
	int fd = open(object->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int ret = 0;

	if (fd < 0) {
		return -errno;
	}
	if (fstat(fd, ret_st) < 0) {
		ret = -errno;
	} else if (!S_ISREG(ret_st->st_mode) || ret_st->st_uid != geteuid() ||
		   ret_st->st_nlink != 1) {
		ret = -EPERM;
	} else if (ret_st->st_size <= 0 || (uint64_t)ret_st->st_size < len_min ||
		   (size_t)ret_st->st_size % page_len != 0) {
		ret = -EINVAL;
	}
	if (ret < 0) {
		(void)close(fd);
		return ret;
	}
	*ret_fd = fd;
	return 0;
}

/* Bytes of the file that have no memory yet. */
static uint64_t
existing_holes(const struct stat *st)
{
	uint64_t have = (uint64_t)st->st_blocks * 512;

	return (uint64_t)st->st_size > have ? (uint64_t)st->st_size - have : 0;
}

/* Memory that may not be there. Hugetlb has its own pool, where nothing is killed. */
static int
existing_check_room(const struct kvp_mem_want *want, uint64_t need, struct kvp_mem_got *got)
{
	if (got->kind == KVP_MEM_HUGETLB || need == 0) {
		return 0;
	}
	return kvp_mem_room("", -1, want->lock == KVP_MEM_OFF, need, &got->why);
}

static void
existing_check_node(
	const struct kvp_mem *mem, const struct kvp_mem_want *want, struct kvp_mem_got *got)
{
	got->numa_node = kvp_numa_of(mem->base);
	if (want->numa_bind && got->numa_node >= 0 && got->numa_node != want->numa_node) {
		kvp_mem_why_add(&got->why,
			"numa node of %s: limit of the object as it was made, have %d, need %d, "
			"remedy: make it anew",
			got->path, got->numa_node, want->numa_node);
	}
}

/* Its pages may be transparent huge ones, which only map where both sides are aligned. */
static size_t
existing_align(const struct kvp_mem *mem, const struct kvp_mem_got *got)
{
	return got->kind == KVP_MEM_SMALL && mem->len % KVP_HUGE_LEN_2M == 0 ? KVP_HUGE_LEN_2M
									     : got->page_len;
}

/* As far as it is mapped by now, which is all of it only when populated. */
static void
existing_judge_thp(const struct kvp_mem *mem, struct kvp_mem_got *got)
{
	if (got->kind == KVP_MEM_SMALL && got->populated &&
		kvp_huge_thp_mapped(mem->base, mem->len) >= mem->len - mem->len / 10) {
		got->kind = KVP_MEM_THP;
		got->page_len = KVP_HUGE_LEN_2M;
	}
}

static int
existing_map(const struct kvp_mem_want *want, const struct stat *st, struct kvp_mem *mem,
	struct kvp_mem_got *got)
{
	uint64_t holes = existing_holes(st);
	enum kvp_mem_policy lock;
	int ret = kvp_arena_lock_check(want, mem->len, got, &lock);

	if (ret == 0) {
		ret = existing_check_room(want, holes, got);
	}
	if (ret == 0) {
		ret = kvp_arena_map(mem->fd, mem->len, existing_align(mem, got), &mem->base);
	}
	/* A start should not wait for pages that are all there: some 50 us a MiB of small ones. */
	got->locked = got->kind == KVP_MEM_HUGETLB;
	if (ret == 0 && (want->populate || lock != KVP_MEM_OFF || holes > 0)) {
		ret = kvp_arena_fill(mem, want, want->populate, lock, got);
	}
	if (ret == 0) {
		existing_check_node(mem, want, got);
		existing_judge_thp(mem, got);
	}
	return ret;
}

int
kvp_mem_open_existing(const char *name, size_t len_min, const struct kvp_mem_want *want,
	struct kvp_mem *ret_mem, struct kvp_mem_got *ret_got)
{
	struct kvp_mem mem = {.fd = -1};
	struct kvp_mem_object object;
	struct stat st;
	int ret;

	*ret_got = (struct kvp_mem_got){.numa_node = -1};
	ret = kvp_arena_check(want, &ret_got->why);
	if (ret == 0) {
		ret = existing_find(name, &object);
	}
	if (ret == 0) {
		ret = existing_check_pages(&object, want, &ret_got->why);
	}
	if (ret < 0) {
		return ret;
	}
	ret_got->kind = object.page_len != 0 ? KVP_MEM_HUGETLB : KVP_MEM_SMALL;
	ret_got->page_len = object.page_len != 0 ? object.page_len : kvp_arena_small_len();
	strcpy(ret_got->path, object.path);
	strcpy(mem.name, object.name);
	strcpy(mem.path, object.path);
	ret = existing_open(&object, len_min, ret_got->page_len, &mem.fd, &st);
	if (ret < 0) {
		return ret;
	}
	mem.len = (size_t)st.st_size;
	ret = existing_map(want, &st, &mem, ret_got);
	if (ret < 0) {
		if (mem.base != NULL) {
			kvp_mem_detach(&mem);
		} else {
			(void)close(mem.fd);
		}
		return ret;
	}
	*ret_mem = mem;
	return 0;
}
