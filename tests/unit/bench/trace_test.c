/* SPDX-License-Identifier: Apache-2.0 */
/* trace_test.c - the shipped trace, and every kind of line that must be refused with its number. */
#include "bench/trace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int
load_text(const char *text, uint32_t max, struct kvp_trace *ret_trace, char error[256])
{
	char path[] = "/tmp/kvpool-trace-XXXXXX";
	int fd = mkstemp(path);
	int ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	ret = kvp_trace_load(path, max, ret_trace, error);
	unlink(path);
	return ret;
}

static void
test_reads(void **state)
{
	struct kvp_trace trace;
	char error[256];

	(void)state;
	assert_int_equal(
		load_text("{\"timestamp\":0,\"input_length\":600,\"output_length\":5,"
			  "\"hash_ids\":[1,2]}\n"
			  "{\"timestamp\":7,\"input_length\":9,\"output_length\":0,\"hash_ids\":[],"
			  "\"session_id\":\"a\"}\n",
			0, &trace, error),
		0);
	assert_int_equal(trace.request_count, 2);
	assert_int_equal(trace.requests[0].block_count, 2);
	assert_int_equal(trace.requests[0].ids[1], 2);
	assert_int_equal(trace.requests[0].conversation, 0);
	assert_int_equal(trace.requests[1].time_ms, 7);
	assert_true(trace.requests[1].conversation != 0);
	kvp_trace_free(&trace);
}

static void
test_refuses(void **state)
{
	static const char *const bad[] = {
		"{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n",
		"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}\n",
		"{\"timestamp\":0,\"input_length\":\"1\",\"output_length\":1,\"hash_ids\":[]}\n",
		"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1.5]}\n",
		"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[-1]}\n",
		"{\"timestamp\":0,\"input_length\":99999999999,\"output_length\":1,"
		"\"hash_ids\":[]}\n",
		"nonsense\n",
		"[]\n",
	};
	static const char good[] =
		"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[3]}\n";
	struct kvp_trace trace;
	char error[256];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), "%s%s", good, bad[i]);
		assert_true(load_text(text, 0, &trace, error) < 0);
		assert_non_null(strstr(error, ":2: "));
		assert_int_equal(load_text(text, 1, &trace, error), 0); /* not read that far */
		kvp_trace_free(&trace);
	}
	assert_true(load_text("", 0, &trace, error) < 0);
	assert_int_equal(kvp_trace_load("/nonexistent/trace", 0, &trace, error), -ENOENT);
}

static void
test_shipped(void **state)
{
	struct kvp_trace trace;
	char error[256];

	(void)state;
	assert_int_equal(kvp_trace_load(KVP_SOURCE_DIR "/bench/traces/conversation.jsonl.gz", 0,
				 &trace, error),
		0);
	assert_int_equal(trace.request_count, 12031);
	assert_int_equal(trace.id_count, 288500);
	kvp_trace_free(&trace);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_shipped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
