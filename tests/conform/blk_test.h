/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk_test.h - what the files of the block engine suite share. The suite is built once an engine
 * (BLK_NAME), for the decorator with BLK_FAULT around it.
 */
#ifndef KVP_TESTS_CONFORM_BLK_TEST_H
#define KVP_TESTS_CONFORM_BLK_TEST_H

#include "hal/base/err.h"
#include "hal/blk/blk.h"
#include "hal/blk/fault.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_WAIT_MS 20000 /* longer than anything takes, also under a sanitizer */
#define TEST_KIB     1024u
#define TEST_MIB     (1024u * 1024u)

extern char test_dir[64];
extern bool test_mounts; /* this process has a mount namespace of its own */

/* Lines of the log since the last test_log_reset that hold text. */
unsigned test_log_count(const char *text);
void test_log_reset(void);
const struct kvp_log *test_log(void);

unsigned test_fd_count(void);
uint64_t test_random(void); /* from the seed that main printed */
void test_fill(void *buf, size_t len, uint64_t seed);
void *test_alloc(size_t len); /* aligned; free() */

/* Files of this test: test_dir/NAME0... of these bytes. cfg: what differs from the default. */
struct test_set {
	struct kvp_blk_file files[4];
	char paths[4][128];
	struct kvp_blk *blk;
	struct kvp_blk_fault plan;
};
void test_set_name(struct test_set *set, const char *name, uint32_t count, uint64_t bytes);
/* The engine of this build. */
int test_set_try(struct test_set *set, struct kvp_blk_cfg cfg);
void test_set_open(struct test_set *set, struct kvp_blk_cfg cfg, uint32_t count, uint64_t bytes);
/* The decorator around BLK_NAME, told what to do through set->plan. */
void test_set_open_fault(
	struct test_set *set, struct kvp_blk_cfg cfg, uint32_t count, uint64_t bytes);
void test_set_close(struct test_set *set); /* and removes the files */

/* An io that counts. */
struct test_io {
	struct kvp_blk_io io;
	unsigned done;
	int status;
	unsigned *total; /* counts up too, NULL: none */
};
void test_io_set(struct test_io *t, enum kvp_blk_op op, uint32_t file, uint64_t off, void *addr,
	uint64_t len);
int test_post(struct kvp_blk *blk, struct test_io *t);
/* Sleeps and polls until *total is at least want; fails after TEST_WAIT_MS. */
void test_wait(struct kvp_blk *blk, const unsigned *total, unsigned want);
/* Post and wait: its status. */
int test_do(struct kvp_blk *blk, enum kvp_blk_op op, uint32_t file, uint64_t off, void *addr,
	uint64_t len);
int test_flush(struct kvp_blk *blk, uint32_t file);
struct kvp_blk_stats test_stats(const struct kvp_blk *blk);

/* For each test: no descriptor may be left. */
int test_setup(void **state);
int test_teardown(void **state);

/* What runs in a process of its own; its exit code. */
int test_child_main(const char *what);

#define TEST_CASE(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)

extern const struct CMUnitTest blk_data_tests[];
extern const size_t blk_data_count;
extern const struct CMUnitTest blk_flow_tests[];
extern const size_t blk_flow_count;
extern const struct CMUnitTest blk_fail_tests[];
extern const size_t blk_fail_count;
extern const struct CMUnitTest blk_power_tests[];
extern const size_t blk_power_count;
extern const struct CMUnitTest blk_open_tests[];
extern const size_t blk_open_count;

#endif /* KVP_TESTS_CONFORM_BLK_TEST_H */
