/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - large shared memory as a server wants it: huge pages, every page there and locked from
 * the start, of one NUMA node; and named objects that outlive their process.
 *
 * What the machine does not give is said in lines (limit, have, need, remedy) for the caller's
 * log; the policies decide whether it is an error. Nothing here ends in SIGBUS.
 *
 * A named object can only have hugetlb pages on a mount of hugetlbfs that this process may write
 * to; we mount none. An unnamed one needs no mount. A read-only descriptor, mapping by others and
 * closing are those of mem.h. THREADS any one; calls block, by the second and gigabyte.
 */
#ifndef KVP_HAL_MEM_ARENA_H
#define KVP_HAL_MEM_ARENA_H

#include "hal/mem/mem.h"
#include "hal/mem/why.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* All zero: memory as kvp_mem_create makes it. */
struct kvp_mem_want {
	/* PREFER: of hugetlb, else transparent huge pages, else small ones. REQUIRE: hugetlb. */
	enum kvp_mem_policy hugepages;
	size_t page_len; /* 0: 1 GiB when it divides the length and enough are free, else 2 MiB */
	enum kvp_mem_policy lock; /* hugetlb pages are never swapped, so they count as locked */
	bool populate;            /* map every page now; new huge pages and NUMA imply it */
	bool numa_bind;           /* only memory of numa_node, or fail */
	int numa_node;
	unsigned threads; /* that populate; 0: only the caller's */
	/* Asked by the calling thread between steps of some 16 MiB (or one page if that is more);
	 * true ends the call with -EINTR. May be NULL. */
	bool (*stop)(void *arg);
	void *stop_arg;
};

enum kvp_mem_kind {
	KVP_MEM_SMALL,   /* pages as they come */
	KVP_MEM_THP,     /* transparent huge pages: nearly all of it is mapped by them */
	KVP_MEM_HUGETLB, /* reserved huge pages */
};

struct kvp_mem_got {
	enum kvp_mem_kind kind;
	size_t page_len;
	bool populated;
	bool locked;                 /* never swapped */
	int numa_node;               /* of the first page; -1 unknown */
	char path[KVP_MEM_PATH_LEN]; /* empty when unnamed */
	struct kvp_mem_why why;      /* filled also when the call fails */
};

/* As kvp_mem_create; cfg.len is rounded up to the pages that were got. Stale objects of the name
 * go, wherever they are. Errors, each with a line: -ENOSPC not enough pages or memory, -ENODEV no
 * such page size, mount or node, -EPERM and -ENOMEM may not lock, -EFBIG RLIMIT_FSIZE, -EINTR
 * stopped (no line), -errno. Nothing is left behind then. */
int kvp_mem_create_arena(const struct kvp_mem_cfg *cfg, const struct kvp_mem_want *want,
	struct kvp_mem *ret_mem, struct kvp_mem_got *ret_got);

/* Maps a named object that an earlier process left, whole and with what it holds; mem.len is its
 * length. The caller makes sure that no other process owns it. A failure never removes it; create
 * replaces it. Only want.populate and want.lock map its pages here: 0.14 s for 512 MiB of small
 * ones, 1 ms of huge ones; else pages that are there are not looked at, and the call is quick.
 * Errors: -ENOENT, -ENOTUNIQ two of that name, -EINVAL shorter than len_min or not of whole pages,
 * -EPERM not a plain file of this user, -ENODEV huge pages are required and it has none, or others;
 * -ENOSPC it has holes and memory is short; and those of locking. */
int kvp_mem_open_existing(const char *name, size_t len_min, const struct kvp_mem_want *want,
	struct kvp_mem *ret_mem, struct kvp_mem_got *ret_got);

struct kvp_mem_object {
	char name[64];
	char path[KVP_MEM_PATH_LEN];
	uint64_t len;
	size_t page_len; /* 0: not of hugetlb */
	uid_t uid;
};

/* Calls fn for each object whose name starts with prefix, in /dev/shm and on hugetlbfs mounts,
 * until it returns something else than 0, and returns that. fn may unlink. */
int kvp_mem_list(
	const char *prefix, int (*fn)(const struct kvp_mem_object *object, void *arg), void *arg);

/* Removes the name wherever it is; who maps it keeps it. -ENOENT when there was none, -errno. */
int kvp_mem_unlink(const char *name);

#endif /* KVP_HAL_MEM_ARENA_H */
