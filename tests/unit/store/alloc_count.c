/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_count.c - see alloc_count.h. */
#include "tests/unit/store/alloc_count.h"

#include <stddef.h>

uint64_t allocs;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *
__wrap_malloc(size_t size)
{
	allocs++;
	return __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
	allocs++;
	return __real_calloc(count, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
	allocs++;
	return __real_realloc(old, size);
}
