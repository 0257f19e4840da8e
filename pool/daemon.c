/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c - the frame around a daemon's work. Runs on the main thread.
 *
 * What a user must read goes to stderr as one "NAME: ..." line, whatever the log level.
 */
#include "pool/daemon.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/os/file.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED  1
#define EXIT_CONFIG  2
#define STOP_SECONDS 4u /* closing may take so long, then the process ends all the same */

extern char **environ;

/* Which option says where a listener is; the rest share one text. */
static const struct {
	const char *what;
	const char *option;
} listen_options[] = {
	{"control", "--listen"},
	{"local", "--local"},
	{"metrics", "--metrics.listen"},
	{"ofi", "--ofi.listen"},
	{"shm", "--shm.listen"},
};

static const char *
listen_option(const char *what)
{
	for (size_t i = 0; i < sizeof(listen_options) / sizeof(listen_options[0]); i++) {
		if (strcmp(listen_options[i].what, what) == 0) {
			return listen_options[i].option;
		}
	}
	return NULL;
}

/* --- start ----------------------------------------------------------------------------------- */

/* Output that did not get out is a failure, as for any other program. */
static int
output_status(void)
{
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : EXIT_FAILED;
}

static int
version_print(const struct kvp_daemon_desc *desc)
{
	(void)printf("%s %s (protocol %u)\nfeatures: %s\n", desc->name, KVP_VERSION,
		KVP_PROTO_VERSION, desc->features);
	return output_status();
}

static enum kvp_log_level
log_level(const char *name)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], name) == 0) {
			return (enum kvp_log_level)i;
		}
	}
	kvp_assert(false); /* the option's range has just these */
	return KVP_LOG_INFO;
}

/* What remains to be done after the options are loaded: -1 to go on. */
static int
options_act(struct kvp_daemon *daemon, const struct kvp_daemon_desc *desc)
{
	if (daemon->opts.help) {
		kvp_opts_help(desc->opts, desc->opt_count, desc->usage);
		return output_status();
	}
	if (daemon->opts.version) {
		return version_print(desc);
	}
	if (daemon->opts.arg_count > 0) {
		(void)fprintf(stderr, "%s: unexpected argument '%s'; options begin with --\n",
			desc->name, daemon->opts.args[0]);
		return EXIT_CONFIG;
	}
	if (daemon->opts.print_config) {
		kvp_opts_print(&daemon->opts);
		return output_status();
	}
	return -1;
}

int
kvp_daemon_start(
	struct kvp_daemon *daemon, const struct kvp_daemon_desc *desc, int argc, char **argv)
{
	int status;

	*daemon = (struct kvp_daemon){.name = desc->name};
	if (kvp_opts_load(&daemon->opts, desc->opts, desc->opt_count, argc, argv, environ,
		    desc->config_default) < 0) {
		(void)fprintf(stderr, "%s: %s\n", desc->name, daemon->opts.error);
		kvp_opts_free(&daemon->opts);
		return EXIT_CONFIG;
	}
	status = options_act(daemon, desc);
	if (status >= 0) {
		kvp_opts_free(&daemon->opts);
		return status;
	}
	daemon->log.level = log_level(kvp_opt_str(&daemon->opts, "log.level"));
	daemon->log.sink = kvp_log_stderr;
	return -1;
}

/* --- listeners ------------------------------------------------------------------------------- */

void
kvp_daemon_listens(struct kvp_daemon *daemon, const char *what, const char *addr)
{
	size_t len = strlen(daemon->ready_lines);
	size_t left = sizeof(daemon->ready_lines) - len;
	int added = snprintf(daemon->ready_lines + len, left, "%s %s\n", what, addr);

	kvp_info(&daemon->log, "%s listens on %s", what, addr);
	if (added < 0 || (size_t)added >= left) {
		daemon->ready_lines[len] = '\0'; /* no half lines */
		kvp_warn(&daemon->log, "%s on %s is left out of the ready file: it is full", what,
			addr);
	}
}

/* The system's texts begin with a capital; ours stand within a line. */
static void
reason_text(int err, char *ret_text, size_t cap)
{
	(void)snprintf(ret_text, cap, "%s", kvp_err_str(err));
	if (isupper((unsigned char)ret_text[0]) && islower((unsigned char)ret_text[1])) {
		ret_text[0] = (char)tolower((unsigned char)ret_text[0]);
	}
}

void
kvp_daemon_listen_failed(struct kvp_daemon *daemon, const char *what, const char *addr, int err)
{
	const char *option = listen_option(what);
	const char *noun = strncmp(addr, "unix:", 5) == 0 || addr[0] == '/' ? "path" : "port";
	char reason[128];

	reason_text(err, reason, sizeof(reason));
	(void)fprintf(
		stderr, "%s: cannot listen on %s for %s: %s", daemon->name, addr, what, reason);
	if (err == -EADDRINUSE && option != NULL) {
		(void)fprintf(
			stderr, "; another instance, or choose another %s with %s", noun, option);
	} else if (err == -EADDRINUSE) {
		(void)fprintf(stderr, "; another instance, or choose another %s", noun);
	} else if (option != NULL) {
		(void)fprintf(stderr, "; choose another address with %s", option);
	}
	(void)fputc('\n', stderr);
}

/* --- serving --------------------------------------------------------------------------------- */

/* A signal handler: closing hangs. The ready file is gone by now. */
static void
stop_expired(int signo)
{
	static const char text[] = "closing did not end in time: ending at once\n";
	ssize_t written;

	(void)signo;
	written = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)written; /* there is nobody left to tell */
	_exit(EXIT_FAILED);
}

/* Whoever removed it before was right. */
static void
ready_file_remove(const struct kvp_daemon *daemon)
{
	const char *path = kvp_opt_str(&daemon->opts, "ready-file");

	if (path[0] != '\0') {
		(void)unlink(path);
	}
}

static void
signal_set(int signo, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler};

	(void)sigemptyset(&action.sa_mask);
	kvp_assert(sigaction(signo, &action, NULL) == 0); /* fails on bad arguments only */
}

static void
serve_stop(void *arg)
{
	struct kvp_daemon *daemon = arg;

	kvp_info(&daemon->log, "stopping on a signal");
	ready_file_remove(daemon);
	(void)alarm(STOP_SECONDS);
	daemon->rpc->ops->stop(daemon->rpc);
}

static int
serve_signals(struct kvp_daemon *daemon)
{
	int err;

	signal_set(SIGPIPE, SIG_IGN);
	signal_set(SIGHUP, SIG_IGN);
	signal_set(SIGALRM, stop_expired);
	err = kvp_rpc_uv_signal(daemon->rpc, SIGTERM, serve_stop, daemon);
	if (err < 0) {
		return err;
	}
	return kvp_rpc_uv_signal(daemon->rpc, SIGINT, serve_stop, daemon);
}

int
kvp_daemon_serve(struct kvp_daemon *daemon)
{
	const char *ready_file = kvp_opt_str(&daemon->opts, "ready-file");
	char reason[128];
	int err;

	kvp_assert(daemon->rpc != NULL);
	err = serve_signals(daemon);
	if (err < 0) {
		reason_text(err, reason, sizeof(reason));
		(void)fprintf(stderr, "%s: cannot watch signals: %s\n", daemon->name, reason);
		return EXIT_FAILED;
	}
	if (ready_file[0] != '\0') {
		err = kvp_file_replace(
			ready_file, daemon->ready_lines, strlen(daemon->ready_lines), 0644);
	}
	if (err < 0) {
		reason_text(err, reason, sizeof(reason));
		(void)fprintf(stderr,
			"%s: cannot write the ready file %s: %s; choose another with "
			"--ready-file\n",
			daemon->name, ready_file, reason);
		return EXIT_FAILED;
	}
	kvp_info(&daemon->log, "%s %s serves", daemon->name, KVP_VERSION);
	daemon->rpc->ops->run(daemon->rpc);
	ready_file_remove(daemon);
	return 0;
}

void
kvp_daemon_end(struct kvp_daemon *daemon)
{
	(void)alarm(0);
	kvp_opts_free(&daemon->opts);
}
