/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_count.h - how often this program called the allocator. The test links alloc_count.c with
 * KVP_ALLOC_COUNT_OPTIONS (unit/store.cmake). One thread.
 */
#ifndef KVP_TESTS_UNIT_STORE_ALLOC_COUNT_H
#define KVP_TESTS_UNIT_STORE_ALLOC_COUNT_H

#include <stdint.h>

extern uint64_t allocs;

#endif /* KVP_TESTS_UNIT_STORE_ALLOC_COUNT_H */
