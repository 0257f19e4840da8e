/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoold_test.c - the program: options it refuses, what it says when something is taken, and that
 * it leaves nothing behind. Waits on its stderr and its end, never on time.
 */
#include "hal/os/file.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGS_MAX 24

/* One kvpoold. Its arguments are made from these; extra ones come last and so win. */
struct daemon {
	char dir[64]; /* the test's; sockets and ready file are in it */
	const char *name;
	const char *data; /* below dir */
	const char *extra[4];

	pid_t pid;
	FILE *log;
	char text[8192]; /* what it has said */
	char ready[128];
};

static void
daemon_dir(struct daemon *d)
{
	(void)snprintf(d->dir, sizeof(d->dir), "/tmp/kvpoold-XXXXXX");
	assert_non_null(mkdtemp(d->dir));
}

static void
daemon_exec(const struct daemon *d)
{
	static char buf[ARGS_MAX][256];
	char *args[ARGS_MAX] = {NULL};
	int count = 0;

	(void)snprintf(buf[count++], 256, "%s", KVPOOLD);
	(void)snprintf(buf[count++], 256, "--listen=127.0.0.1:0");
	(void)snprintf(buf[count++], 256, "--metrics.listen=127.0.0.1:0");
	(void)snprintf(buf[count++], 256, "--ofi.listen=127.0.0.1:0");
	(void)snprintf(buf[count++], 256, "--store.dram=1MiB");
	(void)snprintf(buf[count++], 256, "--store.keep=false");
	(void)snprintf(buf[count++], 256, "--name=%s", d->name);
	(void)snprintf(buf[count++], 256, "--data_dir=%s/%s", d->dir, d->data);
	(void)snprintf(buf[count++], 256, "--local=%s/c-%s.sock", d->dir, d->data);
	(void)snprintf(buf[count++], 256, "--shm.listen=%s/s-%s.sock", d->dir, d->data);
	(void)snprintf(buf[count++], 256, "--ready-file=%s", d->ready);
	for (size_t i = 0; i < 4 && d->extra[i] != NULL; i++) {
		(void)snprintf(buf[count++], 256, "%s", d->extra[i]);
	}
	for (int i = 0; i < count; i++) {
		args[i] = buf[i];
	}
	(void)execv(KVPOOLD, args);
	_exit(127);
}

static void
daemon_run(struct daemon *d)
{
	int ends[2];

	(void)snprintf(d->ready, sizeof(d->ready), "%s/ready-%s", d->dir, d->data);
	assert_int_equal(pipe(ends), 0);
	d->pid = fork();
	assert_true(d->pid >= 0);
	if (d->pid == 0) {
		/* A test that fails leaves none behind. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(ends[1], STDERR_FILENO);
		(void)close(ends[0]);
		(void)close(ends[1]);
		daemon_exec(d);
	}
	(void)close(ends[1]);
	d->log = fdopen(ends[0], "r");
	assert_non_null(d->log);
	d->text[0] = '\0';
}

/* Reads what it says until a line has these words, or it has ended: then false. */
static bool
daemon_says(struct daemon *d, const char *words)
{
	char line[1024];

	while (fgets(line, sizeof(line), d->log) != NULL) {
		size_t len = strlen(d->text);

		(void)snprintf(d->text + len, sizeof(d->text) - len, "%s", line);
		if (words != NULL && strstr(line, words) != NULL) {
			return true;
		}
	}
	return false;
}

/* Its exit status. */
static int
daemon_wait(struct daemon *d)
{
	int status;

	(void)daemon_says(d, NULL);
	(void)fclose(d->log);
	assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
	if (!WIFEXITED(status)) {
		fail_msg("kvpoold died by signal %d: %s", WTERMSIG(status), d->text);
	}
	return WEXITSTATUS(status);
}

static void
daemon_serves(struct daemon *d)
{
	daemon_run(d);
	if (!daemon_says(d, "serves")) {
		fail_msg("kvpoold does not serve: %s", d->text);
	}
}

static int
daemon_stop(struct daemon *d)
{
	assert_int_equal(kill(d->pid, SIGTERM), 0);
	return daemon_wait(d);
}

/* A name of shared memory that no other run uses. */
static const char *
unique_name(const char *test)
{
	static char name[48];

	(void)snprintf(name, sizeof(name), "%s-%d", test, (int)getpid());
	return name;
}

static bool
exists(const char *head, const char *name, const char *tail)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s%s%s", head, name, tail);
	return access(path, F_OK) == 0;
}

/* Removes what a stopped daemon may keep, then the directory: it fails if there is more. */
static void
dir_remove(const char *dir, const char *const *data, size_t count)
{
	char path[256];

	for (size_t i = 0; i < count; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/identity", dir, data[i]);
		(void)unlink(path);
		(void)snprintf(path, sizeof(path), "%s/%s/lock", dir, data[i]);
		(void)unlink(path);
		(void)snprintf(path, sizeof(path), "%s/%s", dir, data[i]);
		(void)rmdir(path);
	}
	assert_int_equal(rmdir(dir), 0);
}

static const char *const one_dir[] = {"d"};
static const char *const two_dirs[] = {"d", "e"};

static void
test_serves_and_stops(void **state)
{
	static const char *const kinds[] = {
		"control 127.0.0.1:", "local unix:/tmp/kvpoold-", "metrics 127.0.0.1:"};
	struct daemon d = {.name = unique_name("serve"), .data = "d"};
	char text[2048] = "";
	size_t len = 0;

	(void)state;
	daemon_dir(&d);
	daemon_serves(&d);
	assert_int_equal(kvp_file_read(d.ready, text, sizeof(text) - 1, &len), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_non_null(strstr(text, kinds[i]));
	}
	assert_true(strstr(text, "ofi 127.0.0.1:") != NULL || strstr(text, "shm /") != NULL);
	assert_null(strstr(text, ":0\n"));
	assert_true(exists("/dev/shm/kvpool-", d.name, "-arena"));
	assert_true(exists("/dev/shm/kvpool-", d.name, "-table"));
	assert_int_equal(daemon_stop(&d), 0);
	assert_false(exists("/dev/shm/kvpool-", d.name, "-arena"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-table"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-head"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-lock"));
	dir_remove(d.dir, one_dir, 1);
}

static void
test_refuses_options(void **state)
{
	static const struct {
		const char *arg;
		const char *says;
	} rows[] = {
		{"--store.drm=1MiB", "store.drm"},
		{"--store.dram=1KiB", "store.dram"},
		{"--store.dram=1.5", "store.dram"},
		{"--store.dram=0", "store.dram"},
		{"--store.hugepages=maybe", "store.hugepages"},
		{"--store.hugepage_size=3MiB", "store.hugepage_size"},
		{"--store.hugepage_size=0.5", "store.hugepage_size"},
		{"--store.lock=yes", "store.lock"},
		{"--store.numa=-1", "store.numa"},
		{"--store.numa=1x", "store.numa"},
		{"--store.evict=magic", "magic"},
		{"--name=a/b", "name"},
		{"--listen=0.0.0.0:0", "advertise"},
		{"--listen=nonsense", "listen"},
		{"--advertise=[::]:1", "advertise"},
		{"--metas=10.0.0.1", "metas"},
		{"--transports=pigeon", "pigeon"},
		{"--transports=", "transports"},
		{"--local=tcp", "local"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct daemon d = {.name = unique_name("opt"), .data = "d", .extra = {rows[i].arg}};

		daemon_dir(&d);
		daemon_run(&d);
		assert_int_equal(daemon_wait(&d), 2);
		if (strstr(d.text, rows[i].says) == NULL) {
			fail_msg("%s: %s", rows[i].arg, d.text);
		}
		assert_false(exists("/dev/shm/kvpool-", d.name, "-arena"));
		dir_remove(d.dir, one_dir, 1);
	}
}

/* Same directory, same name, same port: refused in words, the first one is not disturbed. */
static void
test_second_instance(void **state)
{
	struct daemon first = {.name = unique_name("twice"), .data = "d"};
	struct daemon second = {.name = "twice-other", .data = "d"};
	char text[2048] = "";
	char port[64];
	char pid[32];
	size_t len = 0;

	(void)state;
	daemon_dir(&first);
	daemon_serves(&first);
	(void)snprintf(pid, sizeof(pid), "process %d", (int)first.pid);
	memcpy(second.dir, first.dir, sizeof(second.dir));
	second.extra[0] = "--local=";
	second.extra[1] = "--transports=auto";

	daemon_run(&second);
	assert_int_equal(daemon_wait(&second), 1);
	assert_non_null(strstr(second.text, pid));

	second.name = first.name;
	second.data = "e";
	daemon_run(&second);
	assert_int_equal(daemon_wait(&second), 1);
	assert_non_null(strstr(second.text, pid));
	assert_true(exists("/dev/shm/kvpool-", first.name, "-arena"));

	assert_int_equal(kvp_file_read(first.ready, text, sizeof(text) - 1, &len), 0);
	assert_int_equal(sscanf(strstr(text, "control "), "control 127.0.0.1:%31s", pid), 1);
	(void)snprintf(port, sizeof(port), "--listen=127.0.0.1:%s", pid);
	second.name = "twice-other";
	second.extra[2] = port;
	daemon_run(&second);
	assert_int_equal(daemon_wait(&second), 1);
	assert_non_null(strstr(second.text, port + strlen("--listen=")));
	assert_false(exists("/dev/shm/kvpool-", "twice-other", "-arena"));

	assert_int_equal(daemon_stop(&first), 0);
	dir_remove(first.dir, two_dirs, 2);
}

/* Killed hard: what it left is taken over by the next one of that name. */
static void
test_after_kill(void **state)
{
	struct daemon d = {.name = unique_name("kill"), .data = "d"};
	int status;

	(void)state;
	daemon_dir(&d);
	daemon_serves(&d);
	assert_int_equal(kill(d.pid, SIGKILL), 0);
	(void)daemon_says(&d, NULL);
	(void)fclose(d.log);
	assert_int_equal(waitpid(d.pid, &status, 0), d.pid);
	assert_true(exists("/dev/shm/kvpool-", d.name, "-arena"));
	daemon_serves(&d);
	assert_int_equal(daemon_stop(&d), 0);
	assert_false(exists("/dev/shm/kvpool-", d.name, "-arena"));
	dir_remove(d.dir, one_dir, 1);
}

/* Told to keep: stopped, it leaves what it has, and one that cannot start leaves it, too. */
static void
test_keep(void **state)
{
	struct daemon d = {.name = unique_name("keep"), .data = "d"};

	(void)state;
	daemon_dir(&d);
	d.extra[0] = "--store.keep=true";
	daemon_serves(&d);
	assert_int_equal(daemon_stop(&d), 0);
	assert_true(exists("/dev/shm/kvpool-", d.name, "-arena"));
	assert_true(exists("/dev/shm/kvpool-", d.name, "-head"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-lock"));
	d.extra[0] = "--metrics.listen=192.0.2.1:1";
	daemon_run(&d);
	assert_int_equal(daemon_wait(&d), 1);
	assert_true(exists("/dev/shm/kvpool-", d.name, "-head"));
	d.extra[0] = NULL; /* store.keep=false */
	daemon_run(&d);
	assert_true(daemon_says(&d, "taken over"));
	assert_true(daemon_says(&d, "serves"));
	assert_int_equal(daemon_stop(&d), 0);
	assert_false(exists("/dev/shm/kvpool-", d.name, "-arena"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-table"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-head"));
	dir_remove(d.dir, one_dir, 1);
}

/* A share of the machine; and what it does not have, if that is required, in one line. */
static void
test_memory_options(void **state)
{
	struct daemon d = {.name = unique_name("memory"), .data = "d"};

	(void)state;
	daemon_dir(&d);
	d.extra[0] = "--store.dram=0.001";
	d.extra[1] = "--store.slots=64";
	daemon_run(&d);
	assert_true(daemon_says(&d, "store.dram 0.001 of"));
	assert_true(daemon_says(&d, "serves"));
	assert_int_equal(daemon_stop(&d), 0);
	d.extra[0] = "--store.numa=1000";
	daemon_run(&d);
	assert_int_equal(daemon_wait(&d), 1);
	if (strstr(d.text, "numa") == NULL) {
		fail_msg("%s", d.text);
	}
	assert_false(exists("/dev/shm/kvpool-", d.name, "-arena"));
	assert_false(exists("/dev/shm/kvpool-", d.name, "-lock"));
	dir_remove(d.dir, one_dir, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serves_and_stops),
		cmocka_unit_test(test_refuses_options),
		cmocka_unit_test(test_second_instance),
		cmocka_unit_test(test_after_kill),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_memory_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
