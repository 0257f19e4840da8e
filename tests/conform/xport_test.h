/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_test.h - what the files of the transport conformance suite share. The suite is built once
 * a provider (XPORT_NAME); targets run in this process or in a child that is this program again.
 */
#ifndef KVP_TESTS_CONFORM_XPORT_TEST_H
#define KVP_TESTS_CONFORM_XPORT_TEST_H

#include "hal/base/err.h"
#include "transport/fault/fault.h"
#include "transport/xport.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#define TEST_WAIT_MS   20000 /* longer than anything takes, also under a sanitizer */
#define TEST_ARENA_LEN (80u << 20)

extern const struct kvp_xport_ops *test_ops;
extern char test_dir[64]; /* sockets of this run */
bool test_is(const char *name);

/* An xport as the suite's build says: plain or behind the fault decorator. */
int test_open(struct kvp_xport_cfg cfg, struct kvp_xport **ret_xport);
struct kvp_xport *test_open_ok(struct kvp_xport *share);
void test_listen_addr(char addr[KVP_ADDR_LEN_MAX]);
/* Where targets listen: KVP_TEST_HOST, loopback by default. RDMA devices have no loopback. */
const char *test_host(void);
/* n of something that is many for the sake of it; fewer where KVP_TEST_SLOW is set. */
size_t test_many(size_t n);
void test_token(uint8_t token[KVP_TOKEN_LEN]);
void test_fill(void *buf, size_t len, uint64_t seed);
uint64_t test_sum(const void *buf, size_t len);
uint64_t test_now_ms(void);
unsigned test_fd_count(void);

/* A target with its arena, registered for reading and for writing. */
struct test_target {
	struct kvp_xport *x;
	struct kvp_mem mem;
	struct kvp_mr *read_mr;
	struct kvp_mr *write_mr;
	struct kvp_rdesc read_desc;
	struct kvp_rdesc write_desc;
	char addr[KVP_ADDR_LEN_MAX];
};
void test_target_open(struct test_target *t, size_t len);
void test_target_close(struct test_target *t);

/* The same in a child process. */
struct test_child {
	pid_t pid;
	int to;
	int from;
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rdesc read_desc;
	struct kvp_rdesc write_desc;
};
enum test_cmd_op {
	CMD_ADMIT,
	CMD_FENCE,  /* ret: fence's */
	CMD_SUM,    /* value: checksum of off, len */
	CMD_FILL,   /* off, len, seed */
	CMD_CPU_US, /* value: CPU time used so far */
	CMD_QUIT,
};
struct test_cmd {
	uint32_t op;
	uint8_t token[KVP_TOKEN_LEN];
	uint64_t off;
	uint64_t len;
	uint64_t seed;
};
struct test_reply {
	int64_t ret;
	uint64_t value;
};
void test_child_start(struct test_child *c, size_t len);
struct test_reply test_child_ask(struct test_child *c, const struct test_cmd *cmd);
void test_child_admit(struct test_child *c, const uint8_t token[KVP_TOKEN_LEN]);
void test_child_stop(struct test_child *c);
void test_child_kill(struct test_child *c);

/* A child that connects and writes 16 MiB again and again, until it is told or cut off. */
void test_writer_start(struct test_child *c, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	const struct kvp_rdesc *rdesc);
/* Its next line: 'U'p, 'W'rote once, 'D'own. 0: it ended. */
char test_writer_event(struct test_child *c);

/* main() of the children. */
int test_child_main(int argc, char **argv);

/* An io that counts. */
struct test_io {
	struct kvp_io io;
	int done;
	int status;
};
void test_io_init(struct test_io *t);
/* Polls until it is done; its status. Fails after TEST_WAIT_MS. */
int test_io_wait(struct kvp_xport *x, struct test_io *t);
/* Connects and waits. */
int test_connect(struct kvp_xport *x, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_conn **ret_conn);
struct kvp_conn *test_connect_ok(
	struct kvp_xport *x, const char *addr, const uint8_t token[KVP_TOKEN_LEN]);
/* One piece, and wait: the error of posting or the status. */
int test_read(struct kvp_xport *x, struct kvp_conn *conn, struct kvp_mr *mr, void *buf, size_t len,
	const struct kvp_rdesc *rdesc, uint64_t off);
int test_write(struct kvp_xport *x, struct kvp_conn *conn, struct kvp_mr *mr, void *buf, size_t len,
	const struct kvp_rdesc *rdesc, uint64_t off);

/* Local memory registered with an xport. */
struct test_buf {
	struct kvp_mem mem;
	struct kvp_mr *mr;
	struct kvp_xport *x;
};
void test_buf_open(struct test_buf *b, struct kvp_xport *x, size_t len);
void test_buf_close(struct test_buf *b);

extern const struct CMUnitTest xport_data_tests[];
extern const size_t xport_data_count;
extern const struct CMUnitTest xport_cm_tests[];
extern const size_t xport_cm_count;
extern const struct CMUnitTest xport_fence_tests[];
extern const size_t xport_fence_count;

#endif /* KVP_TESTS_CONFORM_XPORT_TEST_H */
