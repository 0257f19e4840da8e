/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_test.c - what a client does with nobody at the other end: options, arguments, deadlines,
 * fork, closing.
 */
#include "client/client.h"
#include "client/include/kvpool/kvpool.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Nobody listens there: port 1 of loopback, and a socket that does not exist. */
#define NOBODY_META "127.0.0.1:1"
#define NOBODY_NODE "unix:/nonexistent/kvpoold.sock"

/* The promise is 100 ms after a deadline; a machine that runs many tests at once adds its own. */
#define LATE_MS 1000u

struct lines {
	char text[4096];
};

static void
lines_add(void *arg, enum kvp_log_severity severity, const char *line)
{
	struct lines *lines = arg;
	size_t len = strlen(lines->text);

	if (severity == KVP_LOG_IS_ERROR) {
		snprintf(lines->text + len, sizeof(lines->text) - len, "%s\n", line);
	}
}

static struct kvp_client_options
options_make(struct lines *lines)
{
	return (struct kvp_client_options){.struct_size = sizeof(struct kvp_client_options),
		.meta = NOBODY_META,
		.node = NOBODY_NODE,
		.log = lines_add,
		.log_arg = lines};
}

static struct kvp_client *
client_make(struct lines *lines)
{
	struct kvp_client_options options = options_make(lines);
	struct kvp_client *client;

	memset(lines, 0, sizeof(*lines));
	assert_int_equal(kvp_client_open(&options, &client), 0);
	return client;
}

static struct kvp_namespace
namespace_make(void)
{
	const struct kvp_namespace_desc desc = {.struct_size = sizeof(desc), .model = "test"};
	struct kvp_namespace ns;

	assert_int_equal(kvp_namespace_make(&desc, &ns), 0);
	return ns;
}

static uint64_t
now_ms(void)
{
	return kvp_now_ns(kvp_env_real()) / KVP_NS_PER_MS;
}

/* --- options
 * ---------------------------------------------------------------------------------------- */

static void
refused(const struct kvp_client_options *options, struct lines *lines, const char *says)
{
	struct kvp_client *client = NULL;

	lines->text[0] = '\0';
	assert_int_equal(kvp_client_open(options, &client), -KVP_E_CONFIG);
	assert_null(client);
	if (says != NULL && strstr(lines->text, says) == NULL) {
		fail_msg("log has no '%s': %s", says, lines->text);
	}
}

static void
test_options(void **state)
{
	struct lines lines = {0};
	struct kvp_client_options options = options_make(&lines);

	(void)state;
	options.transport = "pigeon";
	refused(&options, &lines, "option transport is 'pigeon': accepted are auto");
	options = options_make(&lines);
	options.meta = "127.0.0.1:1,:::";
	refused(&options, &lines, "option meta is ':::'");
	options = options_make(&lines);
	options.meta = "127.0.0.1:99999";
	refused(&options, &lines, "option meta is '127.0.0.1:99999'");
	options = options_make(&lines);
	options.node = "127.0.0.1:port";
	refused(&options, &lines, "option node is '127.0.0.1:port'");
	options = options_make(&lines);
	options.verify = 9;
	refused(&options, &lines, "option verify is 9: accepted is 0 to 2");
	options = options_make(&lines);
	options.checksum = 2;
	refused(&options, &lines, "option checksum is 2");
	options = options_make(&lines);
	options.spin_us = 100000000;
	refused(&options, &lines, "option spin_us");
	options = options_make(&lines);
	options.struct_size = 4;
	refused(&options, &lines, NULL);
}

/* An application built for a longer struct is fine as long as it does not use what we lack. */
static void
test_options_of_later(void **state)
{
	struct {
		struct kvp_client_options options;
		uint64_t later;
	} both;
	struct lines lines = {0};
	struct kvp_client *client;

	(void)state;
	both.options = options_make(&lines);
	both.options.struct_size = sizeof(both);
	both.later = 0;
	assert_int_equal(kvp_client_open(&both.options, &client), 0);
	kvp_client_close(client);
	both.later = 1;
	assert_int_equal(kvp_client_open(&both.options, &client), -KVP_E_CONFIG);
	kvp_client_close(NULL);
	kvp_cq_close(NULL);
}

/* --- arguments
 * ---------------------------------------------------------------------------------------- */

static void
test_submit_arguments(void **state)
{
	struct kvp_namespace ns = namespace_make();
	struct kvp_item item = {.key = "k", .key_len = 1};
	struct kvp_batch good = {.op = KVP_MATCH, .item_count = 1, .items = &item, .ns = &ns};
	struct kvp_batch batch = good;
	struct kvp_completion done;
	struct kvp_client *client;
	struct lines lines;
	struct kvp_cq *cq;

	(void)state;
	client = client_make(&lines);
	assert_int_equal(kvp_cq_open(client, 5000, &cq), -EINVAL);
	assert_int_equal(kvp_cq_open(client, 1, &cq), 0);
	batch.op = (enum kvp_opcode)9;
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	batch = good;
	batch.item_count = 0;
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	batch.item_count = 65537;
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	batch = good;
	batch.items = NULL;
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	batch = good;
	batch.ns = NULL;
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	batch = good;
	batch.flags = KVP_BATCH_PREFIX; /* of get */
	assert_int_equal(kvp_submit(cq, &batch), -EINVAL);
	assert_int_equal(kvp_cq_poll(cq, &done, 1), 0);

	/* Depth counts what is out until it is taken. */
	good.deadline_ms = 20;
	assert_int_equal(kvp_submit(cq, &good), 0);
	assert_int_equal(kvp_submit(cq, &good), -EAGAIN);
	assert_int_equal(kvp_cq_wait(cq, &done, 1, 2000), 1);
	assert_int_equal(kvp_submit(cq, &good), 0);
	assert_int_equal(kvp_cq_wait(cq, &done, 1, 2000), 1);
	kvp_cq_close(cq);
	kvp_client_close(client);
}

/* Bad items have their own status; when all are bad nobody is asked. */
static void
test_item_arguments(void **state)
{
	static uint8_t memory[4096];
	struct kvp_namespace ns = namespace_make();
	struct iovec inside = {.iov_base = memory, .iov_len = 64};
	struct iovec over = {.iov_base = memory + 4000, .iov_len = 200};
	struct iovec empty = {.iov_base = memory, .iov_len = 0};
	struct kvp_item items[] = {
		{.key = "", .key_len = 0, .segs = &inside, .seg_count = 1},
		{.key = memory, .key_len = 65, .segs = &inside, .seg_count = 1},
		{.key = "a", .key_len = 1, .segs = &inside, .seg_count = 0},
		{.key = "a", .key_len = 1, .segs = &inside, .seg_count = 257},
		{.key = "a", .key_len = 1, .segs = &over, .seg_count = 1},
		{.key = "a", .key_len = 1, .segs = &empty, .seg_count = 1},
		{.key = "a", .key_len = 1, .segs = NULL, .seg_count = 1},
		{.key = "a", .key_len = 1, .segs = &inside, .seg_count = 1, .reserved = 1},
		{.key = NULL, .key_len = 1, .segs = &inside, .seg_count = 1},
	};
	static const int want[] = {-KVP_E_KEY_LEN, -KVP_E_KEY_LEN, -EINVAL, -EINVAL,
		-KVP_E_NOT_REGISTERED, -KVP_E_SIZE, -EINVAL, -EINVAL, -KVP_E_KEY_LEN};
	struct kvp_batch batch = {.op = KVP_PUT,
		.items = items,
		.item_count = sizeof(items) / sizeof(items[0]),
		.ns = &ns};
	struct kvp_completion done;
	struct kvp_client *client;
	struct lines lines;

	(void)state;
	client = client_make(&lines);
	assert_int_equal(kvp_memory_register(client, NULL, 1), -EINVAL);
	assert_int_equal(kvp_memory_register(client, memory, 0), -EINVAL);
	assert_int_equal(kvp_memory_register(client, memory, sizeof(memory)), 0);
	for (int round = 0; round < 2; round++) {
		batch.op = round == 0 ? KVP_PUT : KVP_GET;
		assert_int_equal(kvp_run(client, &batch, &done), 0);
		assert_int_equal(done.ok_count, 0);
		for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
			assert_int_equal(items[i].status, want[i]);
		}
	}
	assert_int_equal(kvp_get(client, &ns, "k", 65, memory, 1), -KVP_E_KEY_LEN);
	assert_int_equal(kvp_get(client, &ns, "k", 0, memory, 1), -KVP_E_KEY_LEN);
	assert_int_equal(kvp_match(client, &ns, "k", 1, 0), 0);
	assert_int_equal(kvp_memory_unregister(client, memory, sizeof(memory), 100), 0);
	assert_int_equal(
		kvp_memory_unregister(client, memory, sizeof(memory), 100), -KVP_E_NOT_REGISTERED);
	kvp_client_close(client);
}

/* --- deadlines
 * ---------------------------------------------------------------------------------------- */

static void
test_nobody_there(void **state)
{
	static uint8_t memory[4096];
	const enum kvp_opcode ops[] = {KVP_GET, KVP_PUT, KVP_MATCH, KVP_DELETE};
	const int want[] = {-KVP_E_META_DOWN, -KVP_E_NODEDOWN, -KVP_E_META_DOWN, -KVP_E_META_DOWN};
	struct kvp_namespace ns = namespace_make();
	struct iovec seg = {.iov_base = memory, .iov_len = sizeof(memory)};
	struct kvp_client *client;
	struct lines lines;

	(void)state;
	client = client_make(&lines);
	assert_int_equal(kvp_memory_register(client, memory, sizeof(memory)), 0);
	(void)kvp_get(client, &ns, "", 1, memory, 0); /* the first one also makes the queue */
	for (size_t i = 0; i < 4; i++) {
		struct kvp_item item = {.key = "k", .key_len = 1};
		struct kvp_batch batch = {.op = ops[i],
			.item_count = 1,
			.items = &item,
			.ns = &ns,
			.deadline_ms = 200};
		uint64_t begin = now_ms();

		if (ops[i] == KVP_GET || ops[i] == KVP_PUT) {
			item.segs = &seg;
			item.seg_count = 1;
		}
		assert_int_equal(kvp_run(client, &batch, NULL), want[i]);
		assert_int_equal(item.status, want[i]);
		assert_true(now_ms() - begin <= 200 + LATE_MS);
	}
	kvp_client_close(client);
}

static void
test_no_home_node(void **state)
{
	static uint8_t memory[64];
	struct lines lines = {0};
	struct kvp_client_options options = options_make(&lines);
	struct kvp_namespace ns = namespace_make();
	struct kvp_client *client;
	uint64_t begin;

	(void)state;
	options.node = "none";
	assert_int_equal(kvp_client_open(&options, &client), 0);
	assert_int_equal(kvp_memory_register(client, memory, sizeof(memory)), 0);
	begin = now_ms();
	assert_int_equal(kvp_put(client, &ns, "k", 1, memory, sizeof(memory)), -KVP_E_NODEDOWN);
	assert_true(now_ms() - begin < 500); /* there is nothing to wait for */
	kvp_client_close(client);
}

/* The descriptor wakes a sleeper at the deadline, too. */
static void
test_fd_wakes(void **state)
{
	struct kvp_namespace ns = namespace_make();
	struct kvp_item item = {.key = "k", .key_len = 1};
	const struct kvp_batch batch = {.op = KVP_MATCH,
		.item_count = 1,
		.items = &item,
		.ns = &ns,
		.deadline_ms = 100,
		.tag = 5};
	struct kvp_completion done;
	struct kvp_client *client;
	struct lines lines;
	struct kvp_cq *cq;
	uint64_t begin = now_ms();
	uint32_t wakes = 0;

	(void)state;
	client = client_make(&lines);
	assert_int_equal(kvp_cq_open(client, 0, &cq), 0);
	assert_int_equal(kvp_submit(cq, &batch), 0);
	while (kvp_cq_poll(cq, &done, 1) == 0) {
		struct pollfd wait = {.fd = kvp_cq_fd(cq), .events = POLLIN};

		assert_int_equal(poll(&wait, 1, 2000), 1);
		wakes++;
	}
	assert_int_equal(done.tag, 5);
	assert_true(now_ms() - begin <= 100 + LATE_MS);
	assert_true(wakes < 20); /* not a busy loop */
	kvp_cq_close(cq);
	kvp_client_close(client);
}

/* --- the end
 * ------------------------------------------------------------------------------------------ */

static void
test_close_completes(void **state)
{
	struct kvp_namespace ns = namespace_make();
	struct kvp_item items[2] = {{.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}};
	struct kvp_batch batch = {
		.op = KVP_MATCH, .item_count = 1, .ns = &ns, .deadline_ms = 60000};
	struct kvp_client *client;
	struct lines lines;
	struct kvp_cq *cqs[2];
	uint64_t begin;

	(void)state;
	client = client_make(&lines);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvp_cq_open(client, 0, &cqs[i]), 0);
		batch.items = &items[i];
		assert_int_equal(kvp_submit(cqs[i], &batch), 0);
	}
	begin = now_ms();
	kvp_cq_close(cqs[0]); /* without a completion */
	assert_int_equal(items[0].status, -KVP_E_CANCELLED);
	kvp_client_close(client);
	assert_int_equal(items[1].status, -KVP_E_CANCELLED);
	assert_true(now_ms() - begin < 1000);
}

static void
test_fork(void **state)
{
	struct kvp_namespace ns = namespace_make();
	struct kvp_item item = {.key = "k", .key_len = 1};
	const struct kvp_batch batch = {
		.op = KVP_MATCH, .item_count = 1, .items = &item, .ns = &ns};
	struct kvp_completion done;
	struct kvp_client *client;
	struct lines lines;
	struct kvp_cq *cq;
	int status = 0;
	pid_t pid;

	(void)state;
	client = client_make(&lines);
	assert_int_equal(kvp_cq_open(client, 0, &cq), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool good = kvp_submit(cq, &batch) == -EPERM &&
			    kvp_cq_poll(cq, &done, 1) == -EPERM &&
			    kvp_cq_wait(cq, &done, 1, 10) == -EPERM &&
			    kvp_run(client, &batch, NULL) == -EPERM &&
			    kvp_memory_register(client, &done, sizeof(done)) == -EPERM;

		kvp_cq_close(cq);
		kvp_client_close(client);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kvp_cq_close(cq);
	kvp_client_close(client);
}

/* Many clients in one process, opened and closed, leave no descriptor behind. */
static void
test_no_growth(void **state)
{
	struct lines lines;
	int before;
	int after;

	(void)state;
	kvp_client_close(client_make(&lines));
	before = dup(0);
	close(before);
	for (int i = 0; i < 8; i++) {
		struct kvp_client *client = client_make(&lines);
		struct kvp_cq *cq;

		assert_int_equal(kvp_cq_open(client, 0, &cq), 0);
		kvp_client_close(client);
	}
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_options_of_later),
		cmocka_unit_test(test_submit_arguments),
		cmocka_unit_test(test_item_arguments),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_no_home_node),
		cmocka_unit_test(test_fd_wakes),
		cmocka_unit_test(test_close_completes),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_no_growth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
