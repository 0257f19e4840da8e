/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_link_test.c - links that come back, links that reach nobody, peers of other versions, and
 * sockets to listen on.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/rpc_peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void
a_link_to_nobody_fails_its_calls(void **state)
{
	struct peer *client = calloc(1, sizeof(*client));
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rpc_link *link;
	uint64_t before;

	(void)state;
	assert_non_null(client);
	assert_int_equal(close(raw_listen(addr)), 0); /* a port that was free a moment ago */
	peer_open(client, &(struct peer_cfg){.name = "client"});
	link = peer_link(client, addr);
	before = kvp_now_ns(kvp_env_real());
	for (size_t i = 0; i < 20; i++) {
		assert_int_equal(
			peer_call_status(client, link, KVP_RPC_STATUS, 10000), -ECONNREFUSED);
	}
	assert_true(kvp_now_ns(kvp_env_real()) - before < 5 * KVP_NS_PER_S);
	assert_true(peer_said(client, "not connected, trying on"));
	assert_int_equal(peer_now(client, &client->downs), 0);
	peer_close(client); /* with the link open */
	free(client);
}

static void
a_server_that_dies_and_comes_back(void **state)
{
	struct peer *server = calloc(1, sizeof(*server));
	struct peer *client = calloc(1, sizeof(*client));
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rpc_link *link;
	struct peer_call call;

	(void)state;
	assert_true(server != NULL && client != NULL);
	peer_open(server, &(struct peer_cfg){.name = "server", .listen = "127.0.0.1:0"});
	peer_open(client, &(struct peer_cfg){.name = "client"});
	memcpy(addr, server->addr, sizeof(addr));
	link = peer_link(client, addr);
	for (unsigned round = 1; round <= 3; round++) {
		int status;

		peer_wait(client, &client->ups, round);
		peer_call_start(client, &call, link, KVP_RPC_OFFER, "x", 1, 10000);
		peer_wait(server, &server->held_count, 1);
		peer_close(server); /* in the middle of the call */
		assert_int_equal(peer_call_wait(&call), -KVP_E_CONNDOWN);
		peer_wait(client, &client->downs, round);
		status = peer_call_status(client, link, KVP_RPC_STATUS, 10000);
		assert_true(status == -ECONNREFUSED || status == -KVP_E_CONNDOWN);
		peer_open(server, &(struct peer_cfg){.name = "server", .listen = addr});
	}
	peer_wait(client, &client->ups, 4);
	assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), 0);
	peer_unlink(client, link);
	peer_close(client);
	peer_close(server);
	free(client);
	free(server);
}

/* --- versions -----------------------------------------------------------------------------------
 */
static void
peers_of_other_versions_are_refused(void **state)
{
	struct peer *server = calloc(1, sizeof(*server));
	struct peer *client = calloc(1, sizeof(*client));
	struct kvp_rpc_link *link;

	(void)state;
	assert_true(server != NULL && client != NULL);
	peer_open(
		server, &(struct peer_cfg){
				.name = "old-server", .listen = "127.0.0.1:0", .versions = {1, 2}});
	peer_open(client, &(struct peer_cfg){.name = "new-client", .versions = {3, 4}});
	link = peer_link(client, server->addr);
	assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), -KVP_E_VERSION);
	assert_true(peer_said(server, "peer 'new-client' at 127.0.0.1:"));
	assert_true(peer_said(server, "speaks protocol versions 3..4, this one 1..2: refused"));
	assert_true(peer_said(client, "peer 'old-server' at 127.0.0.1:"));
	assert_true(peer_said(client, "speaks protocol versions 1..2, this one 3..4: refused"));
	assert_true(peer_metric(server, KVP_ROW_RPC_REJECT_VERSION) >= 1);
	assert_int_equal(peer_now(server, &server->opened), 0);
	assert_int_equal(peer_now(client, &client->ups), 0);
	peer_close(client);
	peer_close(server);
	free(client);
	free(server);
}

static void
neighbouring_versions_talk(void **state)
{
	struct peer *server = calloc(1, sizeof(*server));
	struct peer *client = calloc(1, sizeof(*client));
	struct kvp_rpc_link *link;

	(void)state;
	assert_true(server != NULL && client != NULL);
	peer_open(server,
		&(struct peer_cfg){.name = "server", .listen = "127.0.0.1:0", .versions = {2, 3}});
	peer_open(client, &(struct peer_cfg){.name = "client", .versions = {1, 2}});
	link = peer_link(client, server->addr);
	assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), 0);
	assert_int_equal(client->ident.version, 2);
	assert_int_equal(server->ident.version, 2);
	peer_close(client);
	peer_close(server);
	free(client);
	free(server);
}

/* --- addresses ----------------------------------------------------------------------------------
 */
static void
addresses_of_all_kinds(void **state)
{
	static const char *const addrs[] = {
		"127.0.0.1:0", "[::1]:0", "localhost:0", "tcp://127.0.0.1:0"};
	struct peer *server = calloc(1, sizeof(*server));
	struct peer *client = calloc(1, sizeof(*client));

	(void)state;
	assert_true(server != NULL && client != NULL);
	for (size_t i = 0; i < sizeof(addrs) / sizeof(addrs[0]); i++) {
		char addr[KVP_ADDR_LEN_MAX];
		struct kvp_rpc_link *link;
		int fd = socket(AF_INET6, SOCK_STREAM, 0);

		if (fd < 0 && addrs[i][0] == '[') {
			print_message("no IPv6 here\n");
			continue;
		}
		if (fd >= 0) {
			assert_int_equal(close(fd), 0);
		}
		peer_open(server, &(struct peer_cfg){.name = "server", .listen = addrs[i]});
		peer_open(client, &(struct peer_cfg){.name = "client"});
		memcpy(addr, server->addr, sizeof(addr));
		assert_null(strstr(addr, ":0"));
		if (i == 2) { /* through the resolver on our side too */
			(void)snprintf(
				addr, sizeof(addr), "localhost%s", strrchr(server->addr, ':'));
		}
		link = peer_link(client, addr);
		if (i == 2) {
			peer_wait(client, &client->ups, 1); /* its other addresses may refuse */
		}
		assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), 0);
		peer_close(client);
		peer_close(server);
	}
	free(client);
	free(server);
}

static void
names_that_do_not_resolve(void **state)
{
	struct peer *client = calloc(1, sizeof(*client));
	struct kvp_rpc_link *link;
	int status;

	(void)state;
	assert_non_null(client);
	peer_open(client, &(struct peer_cfg){.name = "client"});
	link = peer_link(client, "no-such-host.invalid:7490");
	status = peer_call_status(client, link, KVP_RPC_STATUS, 10000);
	assert_true(status == -EHOSTUNREACH || status == -ETIMEDOUT);
	peer_close(client);
	free(client);
}

static void
addresses_that_are_none(void **state)
{
	static const char *const addrs[] = {"", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", ":"};
	struct peer *client = calloc(1, sizeof(*client));

	(void)state;
	assert_non_null(client);
	peer_open(client, &(struct peer_cfg){.name = "client"});
	for (size_t i = 0; i < sizeof(addrs) / sizeof(addrs[0]); i++) {
		struct kvp_rpc_link_cfg cfg = {.addr = addrs[i]};
		struct kvp_rpc_link *link;

		/* Refused before it touches the loop, so from any thread. */
		assert_true(client->rpc->ops->link_open(client->rpc, &cfg, &link) < 0);
	}
	peer_close(client);
	free(client);
}

/* --- listening ----------------------------------------------------------------------------------
 */
struct listening {
	struct peer *peer;
	const char *addr;
	char got[KVP_ADDR_LEN_MAX];
	struct kvp_rpc_listener *listener;
	int err;
};

static void
do_listen(void *arg)
{
	struct listening *listening = arg;
	struct peer *peer = listening->peer;

	listening->err = peer->rpc->ops->listen(
		peer->rpc, listening->addr, &peer->service, listening->got, &listening->listener);
}

static void
do_unlisten(void *arg)
{
	struct listening *listening = arg;

	listening->peer->rpc->ops->unlisten(listening->listener);
}

static int
listen_err(struct peer *peer, const char *addr)
{
	struct listening listening = {.peer = peer, .addr = addr};

	peer_do(peer, do_listen, &listening);
	return listening.err;
}

static void
ports_and_paths_in_use(void **state)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	char dir[] = "/tmp/kvpool-test-XXXXXX";
	char path[64];
	char missing[64];
	struct listening listening = {.peer = peer, .addr = path};
	struct stat st;

	(void)state;
	assert_non_null(peer);
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "unix:%s/s", dir);
	(void)snprintf(missing, sizeof(missing), "unix:%s/no/s", dir);
	peer_open(peer, &(struct peer_cfg){.name = "peer", .listen = "127.0.0.1:0"});
	assert_int_equal(listen_err(peer, peer->addr), -EADDRINUSE);
	assert_int_equal(listen_err(peer, missing), -ENOENT);
	assert_int_equal(listen_err(peer, "unix:/proc/s"), -ENOENT);
	assert_int_equal(listen_err(peer, "203.0.113.1:0"), -EADDRNOTAVAIL);

	peer_do(peer, do_listen, &listening);
	assert_int_equal(listening.err, 0);
	assert_string_equal(listening.got, path);
	assert_int_equal(listen_err(peer, path), -EADDRINUSE);
	peer_do(peer, do_unlisten, &listening);
	assert_true(stat(path + strlen("unix:"), &st) < 0);

	/* A file that is no socket is not ours to replace. */
	assert_int_equal(close(creat(path + strlen("unix:"), 0600)), 0);
	assert_int_equal(listen_err(peer, path), -EADDRINUSE);
	assert_int_equal(unlink(path + strlen("unix:")), 0);
	peer_close(peer);
	assert_int_equal(rmdir(dir), 0);
	free(peer);
}

static void
a_stale_socket_file_is_replaced(void **state)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	char dir[] = "/tmp/kvpool-test-XXXXXX";
	char path[64];
	struct listening listening = {.peer = peer, .addr = path};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd;

	(void)state;
	assert_non_null(peer);
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(fd, 1), 0);
	peer_open(peer, &(struct peer_cfg){.name = "peer"});
	assert_int_equal(listen_err(peer, path), -EADDRINUSE); /* somebody is there */
	assert_int_equal(close(fd), 0);
	peer_do(peer, do_listen, &listening);
	assert_int_equal(listening.err, 0);

	/* Who takes the path over keeps his file when we go. */
	assert_int_equal(unlink(path), 0);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	peer_close(peer);
	assert_int_equal(close(fd), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	free(peer);
}

static void
connections_outlive_their_listener(void **state)
{
	struct peer *server = calloc(1, sizeof(*server));
	struct peer *client = calloc(1, sizeof(*client));
	struct listening listening = {.peer = server, .addr = "127.0.0.1:0"};
	struct kvp_rpc_link *link;
	struct kvp_rpc_link *late;

	(void)state;
	assert_true(server != NULL && client != NULL);
	peer_open(server, &(struct peer_cfg){.name = "server"});
	peer_open(client, &(struct peer_cfg){.name = "client"});
	peer_do(server, do_listen, &listening);
	link = peer_link(client, listening.got);
	peer_wait(client, &client->ups, 1);
	peer_do(server, do_unlisten, &listening);
	assert_int_equal(peer_call_status(client, link, KVP_RPC_STATUS, 10000), 0);
	late = peer_link(client, listening.got);
	assert_int_equal(peer_call_status(client, late, KVP_RPC_STATUS, 10000), -ECONNREFUSED);
	peer_close(client);
	peer_close(server);
	free(client);
	free(server);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_to_nobody_fails_its_calls),
		cmocka_unit_test(a_server_that_dies_and_comes_back),
		cmocka_unit_test(peers_of_other_versions_are_refused),
		cmocka_unit_test(neighbouring_versions_talk),
		cmocka_unit_test(addresses_of_all_kinds),
		cmocka_unit_test(names_that_do_not_resolve),
		cmocka_unit_test(addresses_that_are_none),
		cmocka_unit_test(ports_and_paths_in_use),
		cmocka_unit_test(a_stale_socket_file_is_replaced),
		cmocka_unit_test(connections_outlive_their_listener),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
