/* SPDX-License-Identifier: Apache-2.0 */
/* perf_page_test.c - tickets, requests and replies there and back, and what is refused. */
#include "bench/perf_page.h"

#include "hal/base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct kvp_perf_ticket
ticket_sample(void)
{
	struct kvp_perf_ticket ticket;

	memset(&ticket, 0, sizeof(ticket));
	strcpy(ticket.transport, "ofi");
	strcpy(ticket.addr, "[::1]:18515");
	memset(ticket.token, 0xa7, sizeof(ticket.token));
	ticket.read_desc.len = 3;
	memcpy(ticket.read_desc.bytes, "\x00\x7f\xff", 3);
	ticket.write_desc.len = KVP_RDESC_LEN_MAX;
	memset(ticket.write_desc.bytes, 0x5a, KVP_RDESC_LEN_MAX);
	return ticket;
}

static void
test_ticket(void **state)
{
	struct kvp_perf_ticket ticket = ticket_sample();
	struct kvp_perf_ticket got;
	char text[KVP_PERF_TICKET_LEN];
	char path[] = "/tmp/kvpool-ticket-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	kvp_perf_ticket_format(&ticket, text);
	assert_int_equal(kvp_perf_ticket_parse(text, &got), 0);
	assert_memory_equal(&got, &ticket, sizeof(got));
	assert_int_equal(kvp_perf_ticket_load(text, &got), 0);
	/* In a file, behind what a server prints before it. */
	assert_true(fd >= 0);
	assert_true(dprintf(fd, "\n***\n* Waiting *\n%s\n", text) > 0);
	memset(&got, 0, sizeof(got));
	assert_int_equal(kvp_perf_ticket_load(path, &got), 0);
	assert_memory_equal(&got, &ticket, sizeof(got));
	(void)close(fd);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(kvp_perf_ticket_load(path, &got), -ENOENT);
}

static void
test_ticket_bad(void **state)
{
	struct kvp_perf_ticket ticket = ticket_sample();
	struct kvp_perf_ticket got;
	char text[KVP_PERF_TICKET_LEN];
	size_t len;

	(void)state;
	kvp_perf_ticket_format(&ticket, text);
	len = strlen(text);
	/* Cut anywhere: only the last field, whole bytes of it, may be shorter unnoticed. */
	for (size_t cut = 0; cut < len; cut++) {
		char part[KVP_PERF_TICKET_LEN];

		memcpy(part, text, cut);
		part[cut] = '\0';
		if (cut <= len - 2 * KVP_RDESC_LEN_MAX || (len - cut) % 2 != 0) {
			assert_true(kvp_perf_ticket_parse(part, &got) < 0);
		}
	}
	assert_int_equal(kvp_perf_ticket_parse("kvpool-perf-2,ofi,a,b,c,d", &got), -KVP_E_VERSION);
	assert_int_equal(kvp_perf_ticket_parse("hello", &got), -EINVAL);
	strcat(text, ",00");
	assert_int_equal(kvp_perf_ticket_parse(text, &got), -EINVAL);
	text[len - 1] = 'g';
	text[len] = '\0';
	assert_int_equal(kvp_perf_ticket_parse(text, &got), -EINVAL);
}

static void
test_request(void **state)
{
	const struct kvp_perf_request request = {.version = KVP_PERF_PAGE_VERSION,
		.op = KVP_PERF_REQ_CHECK,
		.access = KVP_MR_REMOTE_WRITE,
		.qps = 7,
		.len = 1ull << 40,
		.size = 3,
		.blocks = 1024};
	struct kvp_perf_request got;
	uint8_t buf[KVP_PERF_REQUEST_LEN];

	(void)state;
	kvp_perf_request_write(&request, buf);
	memset(&got, 0xff, sizeof(got));
	assert_int_equal(kvp_perf_request_read(buf, &got), 0);
	assert_int_equal(got.op, request.op);
	assert_int_equal(got.access, request.access);
	assert_int_equal(got.qps, request.qps);
	assert_int_equal(got.len, request.len);
	assert_int_equal(got.size, request.size);
	assert_int_equal(got.blocks, request.blocks);
	buf[0]++;
	assert_int_equal(kvp_perf_request_read(buf, &got), -KVP_E_VERSION);
}

static void
test_reply(void **state)
{
	struct kvp_perf_reply reply = {.status = -KVP_E_TIMEOUT,
		.refused = "region",
		.why = "too much",
		.wrong_bytes = 5,
		.cpu_ns = 1ull << 50,
		.addr = "unix:/x",
		.rdesc = {.len = 2, .bytes = {1, 2}}};
	struct kvp_perf_reply got;
	uint8_t buf[KVP_PERF_REPLY_LEN];

	(void)state;
	kvp_perf_reply_write(&reply, buf);
	assert_int_equal(kvp_perf_reply_read(buf, &got), 0);
	assert_int_equal(got.status, reply.status);
	assert_string_equal(got.refused, reply.refused);
	assert_string_equal(got.why, reply.why);
	assert_int_equal(got.wrong_bytes, reply.wrong_bytes);
	assert_int_equal(got.cpu_ns, reply.cpu_ns);
	assert_string_equal(got.addr, reply.addr);
	assert_memory_equal(got.rdesc.bytes, reply.rdesc.bytes, 2);
	/* Texts without end are ended; a descriptor that is too long is refused. */
	memset(buf + 8, 'x', 32 + 128);
	assert_int_equal(kvp_perf_reply_read(buf, &got), 0);
	assert_int_equal(strlen(got.refused), sizeof(got.refused) - 1);
	assert_int_equal(strlen(got.why), sizeof(got.why) - 1);
	reply.rdesc.len = KVP_RDESC_LEN_MAX + 1;
	kvp_perf_reply_write(&reply, buf);
	assert_int_equal(kvp_perf_reply_read(buf, &got), -KVP_E_PROTO);
	buf[0]++;
	assert_int_equal(kvp_perf_reply_read(buf, &got), -KVP_E_VERSION);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ticket),
		cmocka_unit_test(test_ticket_bad),
		cmocka_unit_test(test_request),
		cmocka_unit_test(test_reply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
