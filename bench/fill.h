/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.h - bytes that prove what they are: every block says which key it belongs to, who wrote it
 * and in which put, and all its bytes follow from that. So an old version of a block, another
 * block, or a mixture is never taken for the right one. Pure functions, any thread.
 */
#ifndef KVP_BENCH_FILL_H
#define KVP_BENCH_FILL_H

#include <stddef.h>
#include <stdint.h>

struct kvp_fill {
	uint64_t key;    /* a number that stands for the key */
	uint64_t writer; /* who put it */
	uint64_t number; /* of the put; larger is later */
};

#define KVP_FILL_LEN_MIN 32u /* bytes; shorter blocks cannot carry their name */

/* Fills buf, len >= KVP_FILL_LEN_MIN. */
void kvp_fill_write(void *buf, size_t len, const struct kvp_fill *fill);

/* Checks every byte of a block of this key, by whatever writer and put it names, and tells those.
 * Returns 0, or the number of bytes that are not as they must be (at least 1 when the name itself
 * is another's). */
size_t kvp_fill_check(const void *buf, size_t len, uint64_t key, struct kvp_fill *ret_fill);

#endif /* KVP_BENCH_FILL_H */
