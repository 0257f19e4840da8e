/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_test.h - cmocka and what it needs before it.
 */
#ifndef KVP_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H
#define KVP_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#endif /* KVP_TESTS_UNIT_TRANSPORT_TRANSPORT_TEST_H */
