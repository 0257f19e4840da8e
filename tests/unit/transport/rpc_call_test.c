/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_call_test.c - two loops talk, over TCP and over a UNIX socket: hello, calls, replies in any
 * order, deadlines, large bodies, and the end of one side.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/rpc_peer.h"

#include <sys/stat.h>

struct pair {
	struct peer server;
	struct peer client;
	struct kvp_rpc_link *link;
	char dir[64];
};

static void
pair_listen_addr(struct pair *pair, bool is_unix, char ret_addr[KVP_ADDR_LEN_MAX])
{
	(void)snprintf(ret_addr, KVP_ADDR_LEN_MAX, "127.0.0.1:0");
	if (is_unix) {
		strcpy(pair->dir, "/tmp/kvpool-test-XXXXXX");
		assert_non_null(mkdtemp(pair->dir));
		(void)snprintf(ret_addr, KVP_ADDR_LEN_MAX, "unix:%s/s", pair->dir);
	}
}

static int
pair_setup(void **state, bool is_unix)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	char addr[KVP_ADDR_LEN_MAX];

	assert_non_null(pair);
	pair_listen_addr(pair, is_unix, addr);
	peer_open(&pair->server, &(struct peer_cfg){.name = "server", .listen = addr});
	peer_open(&pair->client, &(struct peer_cfg){.name = "client"});
	pair->link = peer_link(&pair->client, pair->server.addr);
	*state = pair;
	return 0;
}

static int
setup_tcp(void **state)
{
	return pair_setup(state, false);
}

static int
setup_unix(void **state)
{
	return pair_setup(state, true);
}

static int
teardown(void **state)
{
	struct pair *pair = *state;

	peer_close(&pair->client);
	peer_close(&pair->server);
	if (pair->dir[0] != '\0') {
		assert_int_equal(
			rmdir(pair->dir), 0); /* the socket file has gone with its listener */
	}
	free(pair);
	return 0;
}

static void
both_learn_who_the_other_is(void **state)
{
	struct pair *pair = *state;

	peer_wait(&pair->client, &pair->client.ups, 1);
	peer_wait(&pair->server, &pair->server.opened, 1);
	assert_string_equal(pair->client.ident.name, "server");
	assert_string_equal(pair->client.ident.addr, pair->server.addr);
	assert_int_equal(pair->client.ident.version, KVP_PROTO_VERSION);
	assert_int_equal(pair->client.ident.incarnation, 7);
	assert_string_equal(pair->server.ident.name, "client");
	assert_true(strlen(pair->server.ident.addr) > 0);
	assert_int_equal(peer_metric(&pair->server, KVP_ROW_RPC_CONNS), 1);
	assert_int_equal(peer_metric(&pair->server, KVP_ROW_RPC_ACCEPTED), 1);
	if (pair->dir[0] != '\0') {
		struct stat st;

		assert_int_equal(stat(pair->server.addr + strlen("unix:"), &st), 0);
		assert_int_equal(st.st_mode & 0777, 0660);
	}
}

static void
calls_and_replies(void **state)
{
	struct pair *pair = *state;
	struct peer_call call;

	/* The first waits for the connection. */
	peer_call_start(&pair->client, &call, pair->link, KVP_RPC_STATUS, "hello", 5, 10000);
	assert_int_equal(peer_call_wait(&call), 0);
	assert_int_equal(call.reply_len, 5);
	assert_memory_equal(call.reply, "hello", 5);
	peer_call_free(&call);

	peer_call_start(&pair->client, &call, pair->link, KVP_RPC_DELETE, NULL, 0, 10000);
	assert_int_equal(peer_call_wait(&call), -KVP_E_NOKEY);
	assert_int_equal(call.reply_len, 3);
	assert_memory_equal(call.reply, "why", 3);
	peer_call_free(&call);

	assert_int_equal(peer_call_status(&pair->client, pair->link, KVP_RPC_PING, 10000), 0);
	assert_int_equal(peer_now(&pair->server, &pair->server.calls),
		2); /* ping is answered below the service */
	assert_int_equal(peer_metric(&pair->server, KVP_ROW_RPC_CALLS), 3);
}

static void
replies_come_in_any_order(void **state)
{
	struct pair *pair = *state;
	struct peer_call calls[6];

	for (size_t i = 0; i < 5; i++) {
		static const uint8_t bodies[] = {10, 11, 12, 13, 14};

		peer_call_start(
			&pair->client, &calls[i], pair->link, KVP_RPC_LOOKUP, &bodies[i], 1, 10000);
	}
	peer_wait(&pair->server, &pair->server.held_count, 5);
	peer_call_start(&pair->client, &calls[5], pair->link, KVP_RPC_COMMIT, NULL, 0, 10000);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(peer_call_wait(&calls[i]), 0);
	}
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(calls[i].reply_len, 1);
		assert_int_equal(calls[i].reply[0], 10 + i);
		if (i > 0) {
			assert_true(calls[i].order < calls[i - 1].order);
		}
		peer_call_free(&calls[i]);
	}
}

static void
do_notify(void *arg)
{
	struct kvp_rpc_link *link = arg;

	link->rpc->ops->notify(link, KVP_RPC_TOUCH, "read", 4);
}

static void
one_way_messages_arrive(void **state)
{
	struct pair *pair = *state;

	peer_wait(&pair->client, &pair->client.ups, 1);
	peer_do(&pair->client, do_notify, pair->link);
	peer_do(&pair->client, do_notify, pair->link);
	peer_wait(&pair->server, &pair->server.touches, 2);
	assert_int_equal(peer_call_status(&pair->client, pair->link, KVP_RPC_STATUS, 10000), 0);
}

static void
a_deadline_ends_a_call(void **state)
{
	struct pair *pair = *state;
	uint64_t before;
	uint64_t took;

	peer_wait(&pair->client, &pair->client.ups, 1);
	before = kvp_now_ns(kvp_env_real());
	assert_int_equal(
		peer_call_status(&pair->client, pair->link, KVP_RPC_OFFER, 50), -KVP_E_TIMEOUT);
	took = kvp_now_ns(kvp_env_real()) - before;
	assert_true(took >= 50 * KVP_NS_PER_MS);
	/* One that has already passed, too. */
	assert_int_equal(
		peer_call_status(&pair->client, pair->link, KVP_RPC_OFFER, 0), -KVP_E_TIMEOUT);
	/* The late reply finds nobody, and the connection goes on. */
	peer_wait(&pair->server, &pair->server.held_count, 1);
	assert_int_equal(peer_call_status(&pair->client, pair->link, KVP_RPC_COMMIT, 10000), 0);
	assert_int_equal(peer_call_status(&pair->client, pair->link, KVP_RPC_STATUS, 10000), 0);
	assert_int_equal(peer_now(&pair->client, &pair->client.downs), 0);
}

static void
the_largest_body_goes_both_ways(void **state)
{
	struct pair *pair = *state;
	uint8_t *body = malloc(KVP_FRAME_LEN_MAX);
	struct peer_call call;

	assert_non_null(body);
	for (size_t i = 0; i < KVP_FRAME_LEN_MAX; i++) {
		body[i] = (uint8_t)(i * 13 + i / 4093);
	}
	peer_call_start(
		&pair->client, &call, pair->link, KVP_RPC_STATUS, body, KVP_FRAME_LEN_MAX, 20000);
	assert_int_equal(peer_call_wait(&call), 0);
	assert_int_equal(call.reply_len, KVP_FRAME_LEN_MAX);
	assert_memory_equal(call.reply, body, KVP_FRAME_LEN_MAX);
	peer_call_free(&call);
	peer_call_start(&pair->client, &call, pair->link, KVP_RPC_STATUS, body,
		(size_t)KVP_FRAME_LEN_MAX + 1, 20000);
	assert_int_equal(peer_call_wait(&call), -KVP_E_TOO_LARGE);
	free(body);
}

static void
many_small_and_large_calls_keep_their_bodies(void **state)
{
	static const size_t lens[] = {0, 1, 100, 16383, 16384, 70000, 65536 - 16, 300000};
	struct pair *pair = *state;
	struct peer_call calls[64];
	uint8_t *body = malloc(400000);

	assert_non_null(body);
	for (size_t i = 0; i < 400000; i++) {
		body[i] = (uint8_t)(i * 31 + i / 257);
	}
	for (size_t i = 0; i < 64; i++) {
		peer_call_start(&pair->client, &calls[i], pair->link, KVP_RPC_STATUS, body + i,
			lens[i * 5 % 8], 20000);
	}
	for (size_t i = 0; i < 64; i++) {
		assert_int_equal(peer_call_wait(&calls[i]), 0);
		assert_int_equal(calls[i].reply_len, lens[i * 5 % 8]);
		if (calls[i].reply_len > 0) {
			assert_memory_equal(calls[i].reply, body + i, calls[i].reply_len);
		}
		peer_call_free(&calls[i]);
	}
	free(body);
}

static void
the_server_closes_within_a_call(void **state)
{
	struct pair *pair = *state;

	assert_int_equal(peer_call_status(&pair->client, pair->link, KVP_RPC_RELEASE, 10000),
		-KVP_E_CONNDOWN);
	peer_wait(&pair->client, &pair->client.downs, 1);
	peer_wait(&pair->server, &pair->server.closed, 1);
	assert_int_equal(pair->server.why, -KVP_E_CANCELLED);
}

static void
closing_a_link_ends_its_calls(void **state)
{
	struct pair *pair = *state;
	struct peer_call calls[3];

	for (size_t i = 0; i < 3; i++) {
		peer_call_start(&pair->client, &calls[i], pair->link, KVP_RPC_OFFER, "x", 1, 10000);
	}
	peer_wait(&pair->server, &pair->server.held_count, 3);
	peer_unlink(&pair->client, pair->link);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(calls[i].done, 1); /* before link_close returned */
		assert_int_equal(calls[i].status, -KVP_E_CANCELLED);
	}
	/* The server's side of it ends; its calls can still be replied to, by teardown. */
	peer_wait(&pair->server, &pair->server.closed, 1);
	assert_int_equal(pair->server.why, -KVP_E_CONNDOWN);
	assert_int_equal(peer_now(&pair->client, &pair->client.downs), 0);
}

int
main(void)
{
#define BOTH(test)                                                                                 \
	cmocka_unit_test_setup_teardown(test, setup_tcp, teardown),                                \
		cmocka_unit_test_setup_teardown(test, setup_unix, teardown)
	const struct CMUnitTest tests[] = {
		BOTH(both_learn_who_the_other_is),
		BOTH(calls_and_replies),
		BOTH(replies_come_in_any_order),
		BOTH(one_way_messages_arrive),
		BOTH(a_deadline_ends_a_call),
		BOTH(the_largest_body_goes_both_ways),
		BOTH(many_small_and_large_calls_keep_their_bodies),
		BOTH(the_server_closes_within_a_call),
		BOTH(closing_a_link_ends_its_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
