/* SPDX-License-Identifier: Apache-2.0 */
/*
 * populate.h - gives each page of a shared object its memory now, so that none is missing later.
 * A page that is not to be had is an error, never SIGBUS. What pages hold is kept.
 */
#ifndef KVP_HAL_MEM_POPULATE_H
#define KVP_HAL_MEM_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

struct kvp_populate {
	int fd;     /* of the object, at offset 0 of which base is mapped */
	void *base; /* mapped for writing */
	size_t len;
	size_t page_len;
	unsigned threads;        /* the caller's is one of them; 0: only that */
	bool touch;              /* as kernels before 5.14 need it */
	bool (*stop)(void *arg); /* asked between steps by the calling thread; true: -EINTR */
	void *stop_arg;
};

/* Blocks until every page is there and mapped. -ENOSPC when pages ran out, -EINTR, -errno; pages
 * that were got stay with the object. */
int kvp_populate(const struct kvp_populate *job);

/* Only the memory, not the mapping, by one thread: base, threads and touch do not matter. */
int kvp_populate_file(const struct kvp_populate *job);

#endif /* KVP_HAL_MEM_POPULATE_H */
