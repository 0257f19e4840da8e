/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.h - what a caller got instead of what it wanted, one line each: limit, have, need, remedy.
 */
#ifndef KVP_HAL_MEM_WHY_H
#define KVP_HAL_MEM_WHY_H

#include <stddef.h>
#include <stdint.h>

#define KVP_MEM_WHY_COUNT 6 /* more than one call can produce */
#define KVP_MEM_WHY_LEN   320

struct kvp_mem_why {
	unsigned count;
	char line[KVP_MEM_WHY_COUNT][KVP_MEM_WHY_LEN]; /* no newline */
};

/* Adds a line; one too many or too long is cut. */
void __attribute__((format(printf, 2, 3)))
kvp_mem_why_add(struct kvp_mem_why *why, const char *format, ...);

/* "2 MiB", "1 GiB", "12345 bytes": the largest unit that divides. */
#define KVP_MEM_TEXT_LEN 32
const char *kvp_mem_len_text(uint64_t len, char buf[KVP_MEM_TEXT_LEN]);

#endif /* KVP_HAL_MEM_WHY_H */
