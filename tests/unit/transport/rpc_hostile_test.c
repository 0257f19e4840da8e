/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_hostile_test.c - peers that break the rules, die or do not read; on both sides. Whatever they
 * do, the loop goes on and counts it.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/rpc_peer.h"

#include <sys/socket.h>
#include <sys/time.h>

static int
setup(void **state)
{
	struct peer *server = calloc(1, sizeof(*server));

	assert_non_null(server);
	peer_open(server, &(struct peer_cfg){.name = "server",
				  .listen = "127.0.0.1:0",
				  .conns_max = 8,
				  .bounds = {.hello_ns = 300 * KVP_NS_PER_MS,
					  .frame_ns = 300 * KVP_NS_PER_MS,
					  .stall_ns = KVP_NS_PER_S,
					  .out_max = 20 << 20}});
	*state = server;
	return 0;
}

/* Whatever the test did, an honest peer is served. */
static int
teardown(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {.type = KVP_RPC_PING, .kind = KVP_FRAME_REQUEST, .id = 1};
	uint8_t *body;
	int fd = raw_hello(server->addr);

	raw_send_frame(fd, &frame, NULL);
	assert_true(raw_recv_frame(fd, &frame, &body));
	free(body);
	assert_int_equal(frame.status, 0);
	assert_int_equal(close(fd), 0);
	peer_close(server);
	free(server);
	return 0;
}

static void
garbage(void **state)
{
	struct peer *server = *state;
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd = raw_connect(server->addr);

	raw_send(fd, http, sizeof(http) - 1);
	raw_expect_end(fd);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_FRAME), 1);

	fd = raw_hello(server->addr); /* after hello, too */
	raw_send(fd, http, sizeof(http) - 1);
	raw_expect_end(fd);
	peer_wait(server, &server->closed, 1);
	assert_int_equal(server->why, -KVP_E_PROTO);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_FRAME), 2);
	assert_true(peer_said(server, "peer 'raw' at 127.0.0.1:"));
}

static void
headers_over_the_limits(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {.type = KVP_RPC_HELLO,
		.kind = KVP_FRAME_REQUEST,
		.body_len = KVP_HELLO_LEN_MAX + 1};
	uint8_t header[KVP_FRAME_HEADER_LEN];
	int fd = raw_connect(server->addr);

	kvp_frame_encode(&frame, header);
	raw_send(fd, header, sizeof(header));
	raw_expect_end(fd);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_FRAME), 1);

	fd = raw_hello(server->addr);
	frame.type = KVP_RPC_OFFER;
	frame.body_len = KVP_FRAME_LEN_MAX + 1;
	kvp_frame_encode(&frame, header);
	raw_send(fd, header, sizeof(header));
	raw_expect_end(fd);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_FRAME), 2);
}

static void
first_messages_that_are_no_hello(void **state)
{
	struct peer *server = *state;
	const struct kvp_frame frames[] = {
		{.type = KVP_RPC_PING, .kind = KVP_FRAME_REQUEST},
		{.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REPLY},
		{.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REQUEST}, /* empty */
		{.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REQUEST, .body_len = 3},
	};

	for (size_t i = 0; i < 4; i++) {
		int fd = raw_connect(server->addr);

		raw_send_frame(fd, &frames[i], "\xff\xff\xff");
		raw_expect_end(fd);
		assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_HELLO), i + 1);
	}
	assert_int_equal(peer_now(server, &server->opened), 0);
}

static void
silence_and_dripping(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {
		.type = KVP_RPC_STATUS, .kind = KVP_FRAME_REQUEST, .body_len = 1000};
	uint8_t header[KVP_FRAME_HEADER_LEN];
	unsigned sent = 0;
	int fd = raw_connect(server->addr);

	raw_expect_end(fd); /* no hello */
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_HELLO), 1);

	fd = raw_hello(server->addr);
	kvp_frame_encode(&frame, header);
	raw_send(fd, header, 5);
	raw_expect_end(fd); /* half a header */
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_SLOW), 1);

	/* A byte now and then does not help: the frame as a whole has its time. The receive
	 * time-out of the socket is what paces it. */
	fd = raw_hello(server->addr);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO,
				 &(struct timeval){.tv_usec = 20000}, sizeof(struct timeval)),
		0);
	raw_send(fd, header, sizeof(header));
	for (;;) {
		uint8_t byte = 0;
		ssize_t got = recv(fd, &byte, 1, 0);

		if (got == 0 || (got < 0 && errno != EAGAIN)) {
			break;
		}
		if (send(fd, &byte, 1, MSG_NOSIGNAL) < 0) {
			break;
		}
		assert_true(++sent < 900);
	}
	assert_int_equal(close(fd), 0);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_SLOW), 2);
	assert_int_equal(peer_now(server, &server->calls), 0);
}

static void
frames_cut_at_every_length(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {
		.type = KVP_RPC_STATUS, .kind = KVP_FRAME_REQUEST, .body_len = 20};
	uint8_t bytes[KVP_FRAME_HEADER_LEN + 20] = {0};

	kvp_frame_encode(&frame, bytes);
	for (size_t cut = 0; cut < sizeof(bytes); cut++) {
		int fd = raw_hello(server->addr);

		raw_send(fd, bytes, cut);
		assert_int_equal(shutdown(fd, SHUT_WR), 0);
		raw_expect_end(fd);
		peer_wait(server, &server->closed, (unsigned)cut + 1);
	}
	assert_int_equal(peer_now(server, &server->calls), 0);
}

static void
unknown_messages_keep_the_connection(void **state)
{
	struct peer *server = *state;
	const struct kvp_frame frames[] = {
		{.type = 9999, .kind = KVP_FRAME_REQUEST, .id = 7, .body_len = 3},
		{.type = 9999, .kind = KVP_FRAME_ONE_WAY, .body_len = 3},
		{.type = KVP_RPC_TOUCH, .kind = KVP_FRAME_REQUEST, .id = 8},
		{.type = KVP_RPC_OFFER, .kind = KVP_FRAME_ONE_WAY},
		{.type = KVP_RPC_OFFER, .kind = KVP_FRAME_REPLY, .id = 1},
		{.type = KVP_RPC_HELLO, .kind = KVP_FRAME_REQUEST, .id = 9},
	};
	struct kvp_frame frame = {.type = KVP_RPC_STATUS, .kind = KVP_FRAME_REQUEST, .id = 10};
	uint8_t *body;
	int fd = raw_hello(server->addr);

	for (size_t i = 0; i < 6; i++) {
		raw_send_frame(fd, &frames[i], "new");
	}
	raw_send_frame(fd, &frame, NULL);
	for (uint32_t id = 7; id <= 10; id++) {
		assert_true(raw_recv_frame(fd, &frame, &body));
		free(body);
		assert_int_equal(frame.kind, KVP_FRAME_REPLY);
		assert_int_equal(frame.id, id);
		assert_int_equal(frame.status, id == 10 ? 0 : -KVP_E_PROTO);
	}
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_MESSAGE), 6);
	assert_int_equal(peer_now(server, &server->calls), 1);
	assert_int_equal(close(fd), 0);
}

static void
bytes_one_by_one_make_frames(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {
		.type = KVP_RPC_STATUS, .kind = KVP_FRAME_REQUEST, .id = 3, .body_len = 2};
	uint8_t bytes[KVP_FRAME_HEADER_LEN + 2] = {0};
	uint8_t *body;
	int fd = raw_hello(server->addr);

	kvp_frame_encode(&frame, bytes);
	memcpy(bytes + KVP_FRAME_HEADER_LEN, "ab", 2);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		raw_send(fd, &bytes[i], 1);
	}
	assert_true(raw_recv_frame(fd, &frame, &body));
	assert_int_equal(frame.body_len, 2);
	assert_memory_equal(body, "ab", 2);
	free(body);
	assert_int_equal(close(fd), 0);
}

static void
more_connections_than_allowed(void **state)
{
	struct peer *server = *state;
	int fds[8];

	for (size_t i = 0; i < 8; i++) {
		fds[i] = raw_hello(server->addr);
	}
	raw_expect_end(raw_connect(server->addr));
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_LIMIT), 1);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(close(fds[i]), 0);
	}
	peer_wait(server, &server->closed, 8);
}

static void
thousands_of_connections_leave_nothing(void **state)
{
	struct peer *server = *state;
	unsigned before = count_fds();

	for (unsigned i = 0; i < 1000; i++) {
		int fd = raw_hello(server->addr);

		assert_int_equal(close(fd), 0);
		peer_wait(server, &server->closed, i + 1);
	}
	assert_int_equal(count_fds(), before);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_CONNS), 0);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_ACCEPTED), 1000);
}

/* --- peers that do not read ---------------------------------------------------------------------
 */
static void
replies_nobody_reads(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {.type = KVP_RPC_SESSION_OPEN, .kind = KVP_FRAME_REQUEST};
	int fd = raw_hello(server->addr);

	/* Each is answered with 8 MiB. Requests read in one go are all served: the first round has
	 * one only, so it is the limit of 20 MiB that stops the reading, not the end of the peer.
	 */
	for (unsigned i = 1; i <= 3; i++) {
		raw_send_frame(fd, &frame, NULL);
		peer_wait(server, &server->calls, i);
	}
	for (unsigned i = 0; i < 20; i++) {
		raw_send_frame(fd, &frame, NULL);
	}
	/* It reads nothing: the server waits for stall_ns, then it goes. */
	peer_wait(server, &server->closed, 1);
	assert_int_equal(server->why, -KVP_E_TIMEOUT);
	assert_true(peer_now(server, &server->calls) <= 4);
	assert_int_equal(peer_metric(server, KVP_ROW_RPC_REJECT_SLOW), 1);
	assert_int_equal(close(fd), 0);
}

static void
a_throttled_peer_that_reads_is_served(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {.type = KVP_RPC_SESSION_OPEN, .kind = KVP_FRAME_REQUEST};
	int fd = raw_hello(server->addr);

	for (unsigned i = 1; i <= 3; i++) {
		raw_send_frame(fd, &frame, NULL);
		peer_wait(server, &server->calls, i);
	}
	for (unsigned i = 0; i < 5; i++) {
		raw_send_frame(fd, &frame, NULL);
	}
	for (unsigned i = 0; i < 8; i++) {
		uint8_t *body;

		assert_true(raw_recv_frame(fd, &frame, &body));
		assert_int_equal(frame.body_len, KVP_FRAME_LEN_MAX);
		free(body);
	}
	assert_int_equal(close(fd), 0);
	peer_wait(server, &server->closed, 1);
	assert_int_equal(server->why, -KVP_E_CONNDOWN);
}

static void
calls_held_by_the_service_are_bounded(void **state)
{
	struct peer *server = *state;
	struct kvp_frame frame = {.type = KVP_RPC_OFFER, .kind = KVP_FRAME_REQUEST};
	struct kvp_frame commit = {.type = KVP_RPC_COMMIT, .kind = KVP_FRAME_REQUEST, .id = 1};
	struct timeval at_once = {.tv_usec = 1};
	uint8_t header[KVP_FRAME_HEADER_LEN];
	unsigned sent = 0;
	int other = raw_hello(server->addr);
	int fd = raw_hello(server->addr);

	/* More than it takes, as far as the socket does. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &at_once, sizeof(at_once)), 0);
	kvp_frame_encode(&frame, header);
	while (sent < 100000 && send(fd, header, sizeof(header), MSG_NOSIGNAL) == sizeof(header)) {
		sent++;
	}
	assert_true(sent > KVP_RPC_CALLS_MAX);
	peer_wait(server, &server->held_count, KVP_RPC_CALLS_MAX + 1);
	raw_send_frame(other, &commit, NULL); /* others are served meanwhile */
	assert_true(peer_now(server, &server->held_count) <=
		    KVP_RPC_CALLS_MAX + 1 + KVP_RPC_SCRATCH_LEN / KVP_FRAME_HEADER_LEN);
	peer_wait(server, &server->calls, sent > 9000 ? 9000 : sent); /* released: it goes on */
	assert_int_equal(close(fd), 0);
	/* Its end is seen once what came before has been served. */
	for (unsigned i = 0; peer_now(server, &server->closed) == 0 && i < 1000; i++) {
		uint8_t *body;

		assert_true(raw_recv_frame(other, &commit, &body));
		free(body);
		commit.kind = KVP_FRAME_REQUEST;
		raw_send_frame(other, &commit, NULL);
	}
	assert_int_equal(close(other), 0);
	peer_wait(server, &server->closed, 2);
}

/* --- servers that misbehave ---------------------------------------------------------------------
 */
static int
raw_accept_hello(int listener)
{
	const struct kvp_hello_range range = {KVP_PROTO_VERSION_MIN, KVP_PROTO_VERSION};
	struct kvp_ident self = {.kind = KVP_PEER_NODE, .name = "raw server"};
	struct kvp_frame frame;
	uint8_t *body;
	size_t len;
	int fd = accept(listener, NULL, NULL);

	assert_true(fd >= 0);
	assert_true(raw_recv_frame(fd, &frame, &body));
	free(body);
	assert_int_equal(frame.type, KVP_RPC_HELLO);
	assert_int_equal(kvp_hello_reply(&self, &range, KVP_PROTO_VERSION, &body, &len), 0);
	frame.kind = KVP_FRAME_REPLY;
	frame.body_len = (uint32_t)len;
	raw_send_frame(fd, &frame, body);
	free(body);
	return fd;
}

static void
a_server_that_does_not_read(void **state)
{
	struct peer *client = *state; /* it can be both */
	char addr[KVP_ADDR_LEN_MAX];
	int listener = raw_listen(addr);
	struct kvp_rpc_link *link = peer_link(client, addr);
	struct peer_call calls[6];
	uint8_t *body = calloc(1, KVP_FRAME_LEN_MAX);
	unsigned busy = 0;
	int fd = raw_accept_hello(listener);

	assert_non_null(body);
	peer_wait(client, &client->ups, 1);
	for (size_t i = 0; i < 6; i++) {
		peer_call_start(
			client, &calls[i], link, KVP_RPC_ANNOUNCE, body, KVP_FRAME_LEN_MAX, 60000);
	}
	for (size_t i = 0; i < 6; i++) {
		int status = peer_call_wait(&calls[i]);

		assert_true(status == -KVP_E_BUSY || status == -KVP_E_CONNDOWN);
		busy += status == -KVP_E_BUSY;
	}
	assert_true(busy >= 3); /* 20 MiB and what the kernel took */
	/* The others ended with the connection, which the server had let stall. */
	peer_wait(client, &client->downs, 1);
	assert_int_equal(client->why, -KVP_E_TIMEOUT);
	peer_unlink(client, link);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(listener), 0);
	free(body);
}

static void
a_server_that_never_says_hello(void **state)
{
	struct peer *client = *state;
	char addr[KVP_ADDR_LEN_MAX];
	int listener = raw_listen(addr);
	struct kvp_rpc_link *link = peer_link(client, addr);

	assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), -KVP_E_TIMEOUT);
	peer_unlink(client, link);
	assert_int_equal(close(listener), 0);
}

static void
answers_that_were_not_asked_for(void **state)
{
	struct peer *client = *state;
	char addr[KVP_ADDR_LEN_MAX];
	int listener = raw_listen(addr);
	struct kvp_rpc_link *link = peer_link(client, addr);
	struct kvp_frame frame = {.type = KVP_RPC_STATUS, .kind = KVP_FRAME_REPLY, .id = 555};
	struct kvp_frame request;
	struct peer_call call;
	uint8_t *body;
	int fd = raw_accept_hello(listener);

	raw_send_frame(fd, &frame, NULL); /* no such call: dropped */
	frame.kind = KVP_FRAME_REQUEST;
	raw_send_frame(fd, &frame, NULL); /* a request, to a client */
	assert_true(raw_recv_frame(fd, &frame, &body));
	free(body);
	assert_int_equal(frame.status, -KVP_E_PROTO);

	peer_call_start(client, &call, link, KVP_RPC_STATUS, "x", 1, 10000);
	assert_true(raw_recv_frame(fd, &request, &body));
	free(body);
	request.kind = KVP_FRAME_REPLY;
	request.type = KVP_RPC_OFFER; /* not what was asked */
	request.body_len = 0;
	raw_send_frame(fd, &request, NULL);
	assert_int_equal(peer_call_wait(&call), -KVP_E_PROTO);
	assert_int_equal(peer_metric(client, KVP_ROW_RPC_REJECT_MESSAGE), 2);
	assert_int_equal(peer_now(client, &client->downs), 0);

	raw_send(fd, "0123456789abcdef", KVP_FRAME_HEADER_LEN); /* garbage */
	peer_wait(client, &client->downs, 1);
	assert_int_equal(client->why, -KVP_E_PROTO);
	peer_unlink(client, link);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(listener), 0);
}

int
main(void)
{
#define HOSTILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		HOSTILE(garbage),
		HOSTILE(headers_over_the_limits),
		HOSTILE(first_messages_that_are_no_hello),
		HOSTILE(silence_and_dripping),
		HOSTILE(frames_cut_at_every_length),
		HOSTILE(unknown_messages_keep_the_connection),
		HOSTILE(bytes_one_by_one_make_frames),
		HOSTILE(more_connections_than_allowed),
		HOSTILE(thousands_of_connections_leave_nothing),
		HOSTILE(replies_nobody_reads),
		HOSTILE(a_throttled_peer_that_reads_is_served),
		HOSTILE(calls_held_by_the_service_are_bounded),
		HOSTILE(a_server_that_does_not_read),
		HOSTILE(a_server_that_never_says_hello),
		HOSTILE(answers_that_were_not_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
