/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - memory that several processes map: created by one, mapped by others through its
 * descriptor. Pages are reserved when it is created, so touching them never gives SIGBUS.
 *
 * OWNERSHIP A kvp_mem owns its mapping and its descriptor. THREADS create and close from one
 * thread; the bytes are anybody's.
 */
#ifndef KVP_HAL_MEM_H
#define KVP_HAL_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KVP_MEM_PATH_LEN 192

struct kvp_mem {
	void *base;
	size_t len;                  /* bytes, a multiple of the page size */
	int fd;                      /* -1 when the memory is the caller's own (kvp_mem_wrap) */
	char name[64];               /* shm_open name without the slash; empty when unnamed */
	char path[KVP_MEM_PATH_LEN]; /* of a named one: /dev/shm/name, or on a hugetlbfs mount */
};

/* What to do about something that not every machine has. */
enum kvp_mem_policy {
	KVP_MEM_OFF,
	KVP_MEM_PREFER,  /* without it if it is not to be had, and say so */
	KVP_MEM_REQUIRE, /* fail if it is not to be had */
};

struct kvp_mem_cfg {
	const char *name; /* "kvpool-<node name>-arena"; NULL: unnamed (memfd) */
	size_t len;       /* bytes, rounded up to 4 KiB */
	mode_t mode;      /* of the file, for example 0600 */
};

/* 0 when an object may be called that, -EINVAL, -ENAMETOOLONG. */
int kvp_mem_name_check(const char *name);

/* Creates, reserves and maps it read-write, MADV_DONTFORK, with pages as they come: arena.h makes
 * it of huge, locked pages or those of one NUMA node. A stale object of the same name is
 * replaced. Errors: -ENOSPC when the mount or the machine has not enough (nothing was taken then;
 * the caller logs limit, need and remedy), -errno. */
int kvp_mem_create(const struct kvp_mem_cfg *cfg, struct kvp_mem *ret_mem);

/* Maps what another process created; takes over fd on success. Checks that fd is at least len
 * long. writable needs a descriptor opened for writing. MADV_DONTFORK. */
int kvp_mem_map(int fd, size_t len, bool writable, struct kvp_mem *ret_mem);

/* A second, read-only descriptor of the same memory, to hand to readers. */
int kvp_mem_fd_readonly(const struct kvp_mem *mem, int *ret_fd);

/* The caller's own memory in this form; close does nothing to it. */
struct kvp_mem kvp_mem_wrap(void *base, size_t len);

/* Unmaps, closes, and unlinks what was created or opened by name. Zeroed or closed: nothing
 * happens. */
void kvp_mem_close(struct kvp_mem *mem);

/* The same, but a named object stays, with what it holds, for kvp_mem_open_existing. */
void kvp_mem_detach(struct kvp_mem *mem);

/* Copies with non-temporal stores when large (the destination is not read from cache next) and
 * ends in a store fence then; small ones are memcpy. */
void kvp_mem_copy(void *dst, const void *src, size_t len);

#endif /* KVP_HAL_MEM_H */
