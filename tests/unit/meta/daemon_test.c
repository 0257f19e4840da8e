/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_test.c - the frame around a daemon, with the real kvpool-meta as a process: what it says
 * and with which status it ends, the ready file, the ports, the way it stops.
 */
#include "tests/unit/hal/hal_test.h"

#include "hal/os/env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ARGS_MAX 16
#define START_MS 20000 /* a loaded machine under a sanitizer */

struct child {
	pid_t pid;
	int err_fd; /* what it writes to stderr, and stdout if asked */
	char text[16384];
	size_t len;
};

static void
child_start(struct child *child, int fd, const char *const *args)
{
	posix_spawn_file_actions_t actions;
	char *argv[ARGS_MAX] = {(char *)(uintptr_t)TEST_META_BIN};
	char *envp[] = {(char *)(uintptr_t) "ASAN_OPTIONS=detect_leaks=1", NULL};
	int ends[2];

	memset(child, 0, sizeof(*child));
	for (int i = 1; i < ARGS_MAX && args[i - 1] != NULL; i++) {
		argv[i] = (char *)(uintptr_t)args[i - 1];
	}
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], fd), 0);
	assert_int_equal(posix_spawn(&child->pid, argv[0], &actions, NULL, argv, envp), 0);
	assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
	assert_int_equal(close(ends[1]), 0);
	child->err_fd = ends[0];
}

/* Collects text until it holds want, or, want being NULL, until the end of it. */
static bool
child_read(struct child *child, const char *want, int for_ms)
{
	uint64_t end_ns = kvp_now_ns(kvp_env_real()) + (uint64_t)for_ms * KVP_NS_PER_MS;

	while (want == NULL || strstr(child->text, want) == NULL) {
		struct pollfd pfd = {.fd = child->err_fd, .events = POLLIN};
		uint64_t now_ns = kvp_now_ns(kvp_env_real());
		ssize_t got;

		if (now_ns >= end_ns || child->len + 1 >= sizeof(child->text) ||
			poll(&pfd, 1, (int)((end_ns - now_ns) / KVP_NS_PER_MS) + 1) <= 0) {
			return false;
		}
		got = read(child->err_fd, child->text + child->len,
			sizeof(child->text) - 1 - child->len);
		if (got <= 0) {
			return want == NULL;
		}
		child->len += (size_t)got;
	}
	return true;
}

/* Its exit status; text holds all it said. */
static int
child_end(struct child *child, int for_ms)
{
	int status;

	if (!child_read(child, NULL, for_ms)) {
		(void)kill(child->pid, SIGKILL);
		print_message("%s", child->text);
		fail_msg("it did not end within %d ms", for_ms);
	}
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_int_equal(close(child->err_fd), 0);
	if (!WIFEXITED(status)) {
		print_message("%s", child->text);
		fail_msg("ended by signal %d", WTERMSIG(status));
	}
	return WEXITSTATUS(status);
}

static int
run(struct child *child, int fd, const char *const *args)
{
	child_start(child, fd, args);
	return child_end(child, START_MS);
}

/* The word after what in the text of the ready file. */
static void
ready_value(const char *ready, const char *what, char *ret_value, size_t cap)
{
	const char *at = strstr(ready, what);
	size_t len;

	assert_non_null(at);
	at += strlen(what) + 1;
	len = strcspn(at, "\n");
	assert_true(len > 0 && len < cap);
	memcpy(ret_value, at, len);
	ret_value[len] = '\0';
}

static void
file_text(const char *path, char *ret_text, size_t cap)
{
	FILE *file = fopen(path, "re");
	size_t len;

	assert_non_null(file);
	len = fread(ret_text, 1, cap - 1, file);
	ret_text[len] = '\0';
	assert_int_equal(fclose(file), 0);
}

static void
one_line(const struct child *child, const char *want)
{
	const char *end = strchr(child->text, '\n');

	if (strncmp(child->text, "kvpool-meta: ", 13) != 0 || strstr(child->text, want) == NULL ||
		end == NULL || end[1] != '\0') {
		fail_msg("got '%s', want one line with '%s'", child->text, want);
	}
}

static void
daemon_refuses(void **state)
{
	static const struct {
		const char *args[3];
		const char *want;
	} rows[] = {
		{{"--no-such=1"}, "no-such"},
		{{"--node.heartbeat=5"}, "node.heartbeat"},
		{{"--node.heartbeat=1s", "--node.suspect=1s"}, "suspect must be at least twice"},
		{{"--log.level=loud"}, "log.level"},
		{{"--listen=", "--local="}, "listen: '' is no address"},
		{{"--listen=127.0.0.1:0", "--local=rel:7"}, "local: "},
		{{"--config=/nonexistent/x.yaml"}, "/nonexistent/x.yaml"},
		{{"stray"}, "unexpected argument 'stray'"},
	};
	struct child child;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(run(&child, STDERR_FILENO, rows[i].args), 2);
		/* Listeners may be logged before one fails. */
		if (strstr(child.text, " info ") == NULL) {
			one_line(&child, rows[i].want);
		}
		assert_non_null(strstr(child.text, rows[i].want));
	}
}

static void
daemon_tells(void **state)
{
	const char *version[] = {"--version", NULL};
	const char *print[] = {"--print-config", "--name=x1", NULL};
	const char *help[] = {"--help", NULL};
	struct child child;

	(void)state;
	assert_int_equal(run(&child, STDOUT_FILENO, version), 0);
	assert_string_equal(child.text, "kvpool-meta " KVP_VERSION " (protocol 1)\n"
					"features: soft state, prefix lookup, replicas, fences\n");
	assert_int_equal(run(&child, STDOUT_FILENO, print), 0);
	assert_non_null(strstr(child.text, "name: x1 # command line\n"));
	assert_non_null(strstr(child.text, "index.blocks: 16777216 # default\n"));
	assert_int_equal(run(&child, STDOUT_FILENO, help), 0);
	assert_non_null(strstr(child.text, "--metrics.listen"));
}

static void
daemon_serves(void **state)
{
	char ready[128];
	char ready_arg[160];
	char local[128];
	char local_arg[160];
	char text[1024];
	char control[64];
	char listen_arg[96];
	struct child first;
	struct child second;
	struct stat st;
	uint64_t start_ns;

	hal_test_path(state, "ready", ready, sizeof(ready));
	hal_test_path(state, "run/deep/meta.sock", local, sizeof(local));
	(void)snprintf(ready_arg, sizeof(ready_arg), "--ready-file=%s", ready);
	(void)snprintf(local_arg, sizeof(local_arg), "--local=%s", local);
	const char *args[] = {
		"--listen=127.0.0.1:0", "--metrics.listen=127.0.0.1:0", local_arg, ready_arg, NULL};

	child_start(&first, STDERR_FILENO, args);
	if (!child_read(&first, " serves\n", START_MS)) {
		fail_msg("not ready: %s", first.text);
	}
	/* The file is whole and on its place before anything says so. */
	file_text(ready, text, sizeof(text));
	ready_value(text, "control", control, sizeof(control));
	assert_int_equal(strncmp(control, "127.0.0.1:", 10), 0);
	assert_true(atoi(control + 10) > 0);
	assert_non_null(strstr(text, "\nlocal unix:/"));
	assert_non_null(strstr(text, "\nmetrics 127.0.0.1:"));
	assert_int_equal(stat(local, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));

	/* Another one at the same port says what is wrong and what to do. */
	(void)snprintf(listen_arg, sizeof(listen_arg), "--listen=%s", control);
	const char *same[] = {listen_arg, "--local=", "--metrics.listen=", NULL};

	assert_int_equal(run(&second, STDERR_FILENO, same), 1);
	(void)snprintf(text, sizeof(text),
		"kvpool-meta: cannot listen on %s for control: address already in use; another "
		"instance, or choose another port with --listen\n",
		control);
	assert_string_equal(second.text, text);
	const char *same_local[] = {
		"--listen=127.0.0.1:0", local_arg, "--metrics.listen=", "--log.level=error", NULL};

	assert_int_equal(run(&second, STDERR_FILENO, same_local), 1);
	one_line(&second, "for local: address already in use; another instance, or choose another "
			  "path with --local");

	/* SIGHUP is nothing; SIGTERM ends it in time, and cleanly. */
	assert_int_equal(kill(first.pid, SIGHUP), 0);
	assert_int_equal(kill(first.pid, SIGTERM), 0);
	start_ns = kvp_now_ns(kvp_env_real());
	assert_int_equal(child_end(&first, 5000), 0);
	print_message("stopped after %llu ms\n",
		(unsigned long long)((kvp_now_ns(kvp_env_real()) - start_ns) / KVP_NS_PER_MS));
	assert_int_equal(stat(ready, &st), -1);
	assert_int_equal(stat(local, &st), -1);
}

static void
daemon_ready_fails(void **state)
{
	const char *args[] = {"--listen=127.0.0.1:0",
		"--local=", "--metrics.listen=", "--log.level=error",
		"--ready-file=/nonexistent/ready", NULL};
	struct child child;

	(void)state;
	assert_int_equal(run(&child, STDERR_FILENO, args), 1);
	one_line(&child, "cannot write the ready file /nonexistent/ready: no such file");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(daemon_refuses),
		cmocka_unit_test(daemon_tells),
		cmocka_unit_test_setup_teardown(daemon_serves, hal_test_setup, hal_test_teardown),
		cmocka_unit_test(daemon_ready_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
