/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_test.c - what the HTTP endpoint answers, read through a plain socket.
 */
#include "hal/base/addr.h"
#include "tests/unit/transport/transport_test.h"
#include "transport/http/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

static const struct kvp_metric_desc rows[] = {
	{KVP_METRIC_COUNTER, "kvpool_test_total", "things"},
	{KVP_METRIC_GAUGE, "kvpool_test_level", "level"},
};

struct fixture {
	struct kvp_metrics metrics;
	_Atomic bool ready;
	struct kvp_http *http;
	char addr[KVP_ADDR_LEN_MAX];
};

static void
refresh(void *arg)
{
	struct fixture *fix = arg;

	kvp_metric_set(&fix->metrics, 1, 42);
}

static int
setup(void **state)
{
	struct fixture *fix = calloc(1, sizeof(*fix));
	struct kvp_http_cfg cfg = {.addr = "127.0.0.1:0", .refresh = refresh, .arg = fix};

	assert_non_null(fix);
	assert_int_equal(kvp_metrics_init(&fix->metrics, rows, 2), 0);
	cfg.metrics = &fix->metrics;
	cfg.ready = &fix->ready;
	assert_int_equal(kvp_http_open(&cfg, fix->addr, &fix->http), 0);
	*state = fix;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *fix = *state;

	kvp_http_close(fix->http);
	kvp_metrics_fini(&fix->metrics);
	free(fix);
	return 0;
}

static int
http_connect(const char *text)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct timeval limit = {.tv_sec = 20};
	struct kvp_addr addr;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(kvp_addr_parse(text, -1, &addr), 0);
	sin.sin_port = htons(addr.port);
	assert_int_equal(inet_pton(AF_INET, addr.host, &sin.sin_addr), 1);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

/* The whole answer to one request. */
static void
http_ask(const char *addr, const char *method, const char *path, char *ret_text, size_t cap)
{
	char request[256];
	size_t used = 0;
	ssize_t got;
	int len = snprintf(request, sizeof(request),
		"%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
	int fd = http_connect(addr);

	assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
	while ((got = recv(fd, ret_text + used, cap - 1 - used, 0)) > 0) {
		used += (size_t)got;
	}
	assert_int_equal(got, 0);
	ret_text[used] = '\0';
	assert_int_equal(close(fd), 0);
}

static void
metrics_are_fresh(void **state)
{
	struct fixture *fix = *state;
	char text[4096];

	kvp_metric_add(&fix->metrics, 0, 7);
	http_ask(fix->addr, "GET", "/metrics", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
	assert_non_null(strstr(text, "Content-Type: text/plain; version=0.0.4"));
	assert_non_null(strstr(text, "\n# TYPE kvpool_test_total counter\n"));
	assert_non_null(strstr(text, "\nkvpool_test_total 7\n"));
	assert_non_null(strstr(text, "\nkvpool_test_level 42\n"));
}

static void
health_is_not_readiness(void **state)
{
	struct fixture *fix = *state;
	char text[4096];

	http_ask(fix->addr, "GET", "/healthz", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
	http_ask(fix->addr, "GET", "/readyz", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 503 "));
	atomic_store(&fix->ready, true);
	http_ask(fix->addr, "GET", "/readyz", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
}

static void
the_rest_is_refused(void **state)
{
	struct fixture *fix = *state;
	char text[4096];

	http_ask(fix->addr, "GET", "/", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 404 "));
	http_ask(fix->addr, "GET", "/metrics/../etc/passwd", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 404 "));
	http_ask(fix->addr, "POST", "/metrics", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 405 "));
	http_ask(fix->addr, "DELETE", "/healthz", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 405 "));
}

/* More than it lets in, with all sorts of bytes; then it is asked properly. */
static void
misuse_leaves_it_working(void **state)
{
	struct fixture *fix = *state;
	char text[4096];
	char long_line[40000];
	int fds[100];

	memset(long_line, 'x', sizeof(long_line));
	for (size_t i = 0; i < 100; i++) {
		fds[i] = http_connect(fix->addr);
		(void)send(fds[i], long_line, i * 400, MSG_NOSIGNAL); /* may be cut already */
	}
	for (size_t i = 0; i < 100; i++) {
		assert_int_equal(close(fds[i]), 0);
	}
	for (size_t i = 0; i < 20; i++) {
		int fd = http_connect(fix->addr);

		/* Goes before the answer comes: the answer meets a closed socket. */
		assert_true(
			send(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 34, MSG_NOSIGNAL) > 0);
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER,
					 &(struct linger){.l_onoff = 1}, sizeof(struct linger)),
			0);
		assert_int_equal(close(fd), 0);
	}
	http_ask(fix->addr, "GET", "/healthz", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
}

static void
bad_addresses(void **state)
{
	struct fixture *fix = *state;
	struct kvp_http_cfg cfg = {.metrics = &fix->metrics, .ready = &fix->ready};
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_http *http;

	cfg.addr = fix->addr;
	assert_int_equal(kvp_http_open(&cfg, addr, &http), -EADDRINUSE);
	cfg.addr = "localhost:0"; /* a name */
	assert_int_equal(kvp_http_open(&cfg, addr, &http), -EINVAL);
	cfg.addr = "unix:/tmp/x";
	assert_int_equal(kvp_http_open(&cfg, addr, &http), -EINVAL);
	cfg.addr = "127.0.0.1";
	assert_int_equal(kvp_http_open(&cfg, addr, &http), -EINVAL);
	cfg.addr = "203.0.113.1:0";
	assert_int_equal(kvp_http_open(&cfg, addr, &http), -EADDRNOTAVAIL);
	kvp_http_close(NULL);
}

static void
the_callers_signals_are_untouched(void **state)
{
	sigset_t mask;

	(void)state;
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	assert_int_equal(sigismember(&mask, SIGTERM), 0);
	assert_int_equal(sigismember(&mask, SIGPIPE), 0);
}

int
main(void)
{
#define HTTP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		HTTP(metrics_are_fresh),
		HTTP(health_is_not_readiness),
		HTTP(the_rest_is_refused),
		HTTP(misuse_leaves_it_working),
		HTTP(bad_addresses),
		HTTP(the_callers_signals_are_untouched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
