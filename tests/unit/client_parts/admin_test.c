/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_test.c - asking a daemon that is not there, that hangs, or that talks rubbish: an error in
 * bounded time, no signal, nothing left open. Against real daemons: tests/e2e.
 */
#include "client/include/kvpool/admin.h"
#include "hal/os/env.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* What a bad server does with a connection. */
enum bad { BAD_SILENT, BAD_CLOSES, BAD_RUBBISH, BAD_ZEROS, BAD_HTTP, BAD_RESETS, BAD_COUNT };

struct server {
	int fd;
	enum bad bad;
	char addr[64];
	pthread_t thread;
	atomic_bool stop;
};

static void
must_not_be_called(void *arg, const char *name, const char *value)
{
	(void)arg;
	fail_msg("told '%s' '%s'", name, value);
}

/* A socket bound to any free port of the loopback. */
static int
socket_bound(char *ret_addr, size_t cap)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	snprintf(ret_addr, cap, "127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

static void
server_talk(const struct server *server, int fd)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	const char http[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
	uint8_t bytes[512];

	memset(bytes, server->bad == BAD_ZEROS ? 0 : 0xa5, sizeof(bytes));
	switch (server->bad) {
	case BAD_RUBBISH:
	case BAD_ZEROS:
		(void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		break;
	case BAD_HTTP:
		(void)send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL);
		break;
	case BAD_RESETS:
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		break;
	default:
		break;
	}
}

/* Serves one connection after the other until it is told to stop. */
static void *
server_main(void *arg)
{
	struct server *server = arg;
	int held[64];
	int held_count = 0;

	for (;;) {
		int fd = accept(server->fd, NULL, NULL);

		if (fd < 0 || atomic_load(&server->stop)) {
			close(fd);
			break;
		}
		server_talk(server, fd);
		if (server->bad == BAD_SILENT && held_count < 64) {
			held[held_count++] = fd;
		} else {
			close(fd);
		}
	}
	while (held_count > 0) {
		close(held[--held_count]);
	}
	return NULL;
}

static void
server_start(struct server *server, enum bad bad)
{
	*server = (struct server){.bad = bad};
	server->fd = socket_bound(server->addr, sizeof(server->addr));
	assert_int_equal(listen(server->fd, 8), 0);
	assert_int_equal(pthread_create(&server->thread, NULL, server_main, server), 0);
}

static void
server_stop(struct server *server)
{
	atomic_store(&server->stop, true);
	shutdown(server->fd, SHUT_RDWR); /* accept returns */
	pthread_join(server->thread, NULL);
	close(server->fd);
}

static int
fds_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	closedir(dir);
	return count;
}

static uint64_t
now_ms(void)
{
	return kvp_now_ns(kvp_env_real()) / KVP_NS_PER_MS;
}

static void
test_nobody(void **state)
{
	char addr[64];
	int fd = socket_bound(addr, sizeof(addr)); /* bound, not listening: refused */
	uint64_t start = now_ms();

	(void)state;
	assert_int_equal(kvp_admin_status(addr, 5000, must_not_be_called, NULL), -ECONNREFUSED);
	assert_int_equal(
		kvp_admin_status("unix:/nonexistent/kvpool.sock", 5000, must_not_be_called, NULL),
		-ENOENT);
	assert_true(now_ms() - start < 4000);
	close(fd);
}

static void
test_bad_arguments(void **state)
{
	(void)state;
	assert_int_equal(kvp_admin_status(NULL, 100, must_not_be_called, NULL), -EINVAL);
	assert_int_equal(kvp_admin_status("127.0.0.1:1", 100, NULL, NULL), -EINVAL);
	assert_true(kvp_admin_status("", 100, must_not_be_called, NULL) < 0);
	assert_true(kvp_admin_status("no port", 100, must_not_be_called, NULL) < 0);
	assert_true(kvp_admin_status("[::1", 100, must_not_be_called, NULL) < 0);
}

static void
test_bad_servers(void **state)
{
	(void)state;
	for (enum bad bad = 0; bad < BAD_COUNT; bad++) {
		struct server server;
		uint64_t start = now_ms();
		int err;

		server_start(&server, bad);
		err = kvp_admin_status(server.addr, 300, must_not_be_called, NULL);
		print_message("server %d: %s\n", (int)bad, kvp_strerrorname(err));
		assert_true(err < 0);
		if (bad == BAD_SILENT) {
			assert_int_equal(err, -KVP_E_TIMEOUT);
		}
		assert_true(now_ms() - start <= 300 + 1000); /* generous: loaded machines */
		server_stop(&server);
	}
}

/* Neither descriptors nor the signal mask change, and SIGPIPE reaches nobody. */
static void
test_leaves_nothing(void **state)
{
	struct server server;
	sigset_t before;
	sigset_t after;
	int fds;

	(void)state;
	server_start(&server, BAD_RESETS);
	(void)kvp_admin_status(server.addr, 200, must_not_be_called, NULL);
	fds = fds_open();
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	for (int i = 0; i < 20; i++) {
		assert_true(kvp_admin_status(server.addr, 200, must_not_be_called, NULL) < 0);
	}
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int signo = 1; signo < NSIG; signo++) {
		assert_int_equal(sigismember(&before, signo), sigismember(&after, signo));
	}
	assert_int_equal(sigismember(&after, SIGPIPE), 0);
	server_stop(&server);
	assert_true(fds_open() < fds); /* its socket was one of them */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_bad_arguments),
		cmocka_unit_test(test_bad_servers),
		cmocka_unit_test(test_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
