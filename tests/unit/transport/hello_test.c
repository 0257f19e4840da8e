/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello_test.c - which peers can talk, and in which version; bytes only, no socket.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/transport_test.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/wire.h"
#include "transport/rpc/hello.h"

static const struct kvp_ident self = {.id = "0123456789abcde",
	.incarnation = 12,
	.features = 5,
	.kind = KVP_PEER_NODE,
	.name = "node-1"};

/* The rule of N and N-1: who still speaks the version before meets who only speaks that one. */
static void
ranges_that_overlap_agree(void **state)
{
	static const struct {
		struct kvp_hello_range a;
		struct kvp_hello_range b;
		uint32_t want;
	} rows[] = {
		{{1, 1}, {1, 1}, 1},
		{{1, 2}, {1, 1}, 1}, /* N here, N-1 there */
		{{1, 2}, {2, 3}, 2}, /* N here, N+1 there */
		{{1, 3}, {1, 3}, 3},
		{{1, 1}, {2, 3}, 0},
		{{2, 3}, {4, 9}, 0},
		{{1, UINT32_MAX}, {7, UINT32_MAX}, UINT32_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(kvp_hello_agree(&rows[i].a, &rows[i].b), rows[i].want);
		assert_int_equal(kvp_hello_agree(&rows[i].b, &rows[i].a), rows[i].want);
	}
}

static void
both_sides_learn_who_the_other_is(void **state)
{
	const struct kvp_hello_range theirs = {.min = 1, .max = 2};
	const struct kvp_hello_range ours = {.min = 2, .max = 3};
	struct kvp_hello peer;
	uint8_t *body;
	size_t len;

	(void)state;
	assert_int_equal(kvp_hello_request(&self, &theirs, &body, &len), 0);
	assert_true(len <= KVP_HELLO_LEN_MAX);
	assert_int_equal(kvp_hello_judge(&ours, body, len, &peer), 0);
	free(body);
	assert_int_equal(peer.ident.version, 2);
	assert_int_equal(peer.ident.kind, KVP_PEER_NODE);
	assert_int_equal(peer.ident.incarnation, 12);
	assert_int_equal(peer.ident.features, 5);
	assert_string_equal(peer.ident.name, "node-1");
	assert_memory_equal(peer.ident.id, self.id, KVP_ID_LEN);

	assert_int_equal(kvp_hello_reply(&self, &ours, 2, &body, &len), 0);
	assert_int_equal(kvp_hello_finish(&theirs, 0, body, len, &peer), 0);
	assert_int_equal(peer.ident.version, 2);
	assert_string_equal(peer.ident.name, "node-1");
	free(body);
}

static void
refusal_names_both_ranges(void **state)
{
	const struct kvp_hello_range theirs = {.min = 1, .max = 2};
	const struct kvp_hello_range ours = {.min = 3, .max = 4};
	struct kvp_hello peer;
	uint8_t *body;
	size_t len;

	(void)state;
	assert_int_equal(kvp_hello_request(&self, &theirs, &body, &len), 0);
	assert_int_equal(kvp_hello_judge(&ours, body, len, &peer), -KVP_E_VERSION);
	assert_int_equal(peer.range.min, 1);
	assert_int_equal(peer.range.max, 2);
	assert_int_equal(peer.ident.version, 0);
	assert_string_equal(peer.ident.name, "node-1");
	free(body);

	assert_int_equal(kvp_hello_reply(&self, &ours, 0, &body, &len), 0);
	assert_int_equal(
		kvp_hello_finish(&theirs, -KVP_E_VERSION, body, len, &peer), -KVP_E_VERSION);
	assert_int_equal(peer.range.min, 3);
	assert_int_equal(peer.range.max, 4);
	free(body);
}

static void
malformed_hellos(void **state)
{
	const struct kvp_hello_range ours = {.min = 1, .max = 1};
	struct kvp_hello peer;

	(void)state;
	for (size_t i = 0; i < 7; i++) {
		Kvp__Hello msg = KVP__HELLO__INIT;
		uint8_t *body;
		size_t len;

		msg.version_min = i == 1 ? 0 : i == 2 ? 2 : 1;
		msg.version_max = 1;
		msg.id = kvp_bytes(self.id, i == 3 ? 15 : i == 4 ? 0 : KVP_ID_LEN);
		msg.kind = i == 5 ? 0 : 77; /* a kind of later times is none of our business */
		msg.name = (char *)(uintptr_t) "a\nb\x7f'c";
		assert_int_equal(kvp_msg_encode(&msg.base, &body, &len), 0);
		if (i == 6) {
			len--; /* cut within the name */
		}
		assert_int_equal(
			kvp_hello_judge(&ours, body, len, &peer), i == 0 ? 0 : -KVP_E_PROTO);
		assert_string_equal(peer.ident.name, i == 0 ? "a?b??c" : "");
		free(body);
	}
	assert_int_equal(kvp_hello_judge(&ours, "\xff\xff", 2, &peer), -KVP_E_PROTO);
}

static void
answers_that_are_wrong(void **state)
{
	const struct kvp_hello_range ours = {.min = 1, .max = 1};
	struct kvp_hello peer;
	uint8_t *body;
	size_t len;

	(void)state;
	/* It agrees to a version that nobody offered. */
	assert_int_equal(kvp_hello_reply(&self, &ours, 2, &body, &len), 0);
	assert_int_equal(kvp_hello_finish(&ours, 0, body, len, &peer), -KVP_E_PROTO);
	/* Another error is handed on. */
	assert_int_equal(kvp_hello_finish(&ours, -KVP_E_AUTH, body, len, &peer), -KVP_E_AUTH);
	free(body);
	assert_int_equal(kvp_hello_finish(&ours, 0, "", 0, &peer), -KVP_E_PROTO); /* no self */
	assert_int_equal(kvp_hello_finish(&ours, 0, "\xff", 1, &peer), -KVP_E_PROTO);
	assert_int_equal(kvp_hello_finish(&ours, -KVP_E_VERSION, "\xff", 1, &peer), -KVP_E_VERSION);
}

static void
a_long_name_is_cut(void **state)
{
	const struct kvp_hello_range ours = {.min = 1, .max = 1};
	Kvp__Hello msg = KVP__HELLO__INIT;
	char name[1000];
	struct kvp_hello peer;
	uint8_t *body;
	size_t len;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	msg.version_min = 1;
	msg.version_max = 1;
	msg.kind = KVP_PEER_TOOL;
	msg.id = kvp_bytes(self.id, KVP_ID_LEN);
	msg.name = name;
	assert_int_equal(kvp_msg_encode(&msg.base, &body, &len), 0);
	assert_int_equal(kvp_hello_judge(&ours, body, len, &peer), 0);
	assert_int_equal(strlen(peer.ident.name), KVP_NAME_LEN_MAX - 1);
	free(body);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_that_overlap_agree),
		cmocka_unit_test(both_sides_learn_who_the_other_is),
		cmocka_unit_test(refusal_names_both_ranges),
		cmocka_unit_test(malformed_hellos),
		cmocka_unit_test(answers_that_are_wrong),
		cmocka_unit_test(a_long_name_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
