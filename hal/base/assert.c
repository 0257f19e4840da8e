/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assert.c - the last words of a process that found a bug of ours.
 */
#include "hal/base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void
kvp_assert_fail(const char *file, int line, const char *what)
{
	(void)fprintf(stderr, "kvpool bug: %s:%d: assertion failed: %s\n", file, line, what);
	abort();
}
