/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - what both daemons do around their work: options, log, version, ready file, HTTP,
 * signals. main.c of each is a list of its modules and nothing else.
 */
#ifndef KVP_POOL_DAEMON_H
#define KVP_POOL_DAEMON_H

#include "hal/base/log.h"
#include "hal/base/metrics.h"
#include "hal/base/opt.h"
#include "transport/http/http.h"
#include "transport/rpc/rpc.h"

/* Rows every daemon has; paste them into its table. */
#define KVP_DAEMON_OPTS                                                                            \
	{"log.level", KVP_OPT_CHOICE, "info", "error|warn|info|debug",                             \
		"what is logged to stderr"},                                                       \
	{                                                                                          \
		"ready-file", KVP_OPT_STRING, "", NULL,                                            \
			"written once the daemon serves: one 'name address' line a listener"       \
	}

struct kvp_daemon_desc {
	const char *name;           /* "kvpoold" */
	const char *usage;          /* one line */
	const char *config_default; /* "/etc/kvpool/kvpoold.yaml" */
	const struct kvp_opt_desc *opts;
	size_t opt_count;
	const char *features; /* for --version */
};

struct kvp_daemon {
	struct kvp_opts opts;
	struct kvp_log log;
	const char *name;
	struct kvp_rpc *rpc;    /* set by the caller before kvp_daemon_serve */
	char ready_lines[2048]; /* "control 127.0.0.1:7490\n..." */
};

/* Parses options; handles --help, --version, --print-config. Returns -1 to go on, else the exit
 * status that main returns. */
int kvp_daemon_start(
	struct kvp_daemon *daemon, const struct kvp_daemon_desc *desc, int argc, char **argv);

/* Notes one listener for the ready file and logs it. */
void kvp_daemon_listens(struct kvp_daemon *daemon, const char *what, const char *addr);

/* Logs "cannot listen on ADDR for PURPOSE: reason", for every listener the same way. */
void kvp_daemon_listen_failed(
	struct kvp_daemon *daemon, const char *what, const char *addr, int err);

/* Installs SIGTERM/SIGINT (stop the loop), ignores SIGPIPE and SIGHUP, writes the ready file,
 * runs the loop until it stops, removes the ready file. Exit status. */
int kvp_daemon_serve(struct kvp_daemon *daemon);

void kvp_daemon_end(struct kvp_daemon *daemon);

#endif /* KVP_POOL_DAEMON_H */
