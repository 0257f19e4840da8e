/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assert.h - for our own bugs, in release too. Bytes of peers, users and files are checked and
 * refused instead.
 */
#ifndef KVP_HAL_BASE_ASSERT_H
#define KVP_HAL_BASE_ASSERT_H

_Noreturn void kvp_assert_fail(const char *file, int line, const char *what);

#define kvp_assert(cond)                                                                           \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0)) {                                                \
			kvp_assert_fail(__FILE__, __LINE__, #cond);                                \
		}                                                                                  \
	} while (0)

#endif /* KVP_HAL_BASE_ASSERT_H */
