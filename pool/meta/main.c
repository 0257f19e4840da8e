/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - kvpool-meta: the list of its modules, opened in order and closed in reverse.
 */
#include "hal/base/addr.h"
#include "hal/base/err.h"
#include "hal/os/env.h"
#include "hal/os/file.h"
#include "pool/daemon.h"
#include "pool/meta/meta.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORT_DEFAULT         7480
#define METRICS_PORT_DEFAULT 7481

static const struct kvp_opt_desc meta_opts[] = {
	{"listen", KVP_OPT_STRING, "127.0.0.1:7480", NULL, "control address for nodes and clients"},
	{"local", KVP_OPT_STRING, "/run/kvpool/kvpool-meta.sock", NULL,
		"control socket for this host; empty: none"},
	{"metrics.listen", KVP_OPT_STRING, "127.0.0.1:7481", NULL,
		"/metrics, /healthz, /readyz; empty: none"},
	{"name", KVP_OPT_STRING, "", NULL, "of this daemon, in logs and status; empty: the host's"},
	{"index.blocks", KVP_OPT_UINT, "16777216", "1024..2147483648",
		"locations kept, over all nodes; 64 bytes of memory each once used"},
	{"node.heartbeat", KVP_OPT_TIME, "500ms", "10ms..1min", "how often nodes are to be heard"},
	{"node.suspect", KVP_OPT_TIME, "2s", "20ms..10min",
		"silence after which a node's blocks are not named"},
	{"node.forget", KVP_OPT_TIME, "60s", "20ms..1440min",
		"silence after which a node's blocks are dropped"},
	KVP_DAEMON_OPTS,
};

struct meta_main {
	struct kvp_daemon daemon;
	struct kvp_metrics metrics;
	struct kvp_ident self;
	struct kvp_meta *meta;
	struct kvp_http *http;
	_Atomic bool ready;
};

/* A start that ends here: one line, and main's status. */
#define FAIL_RUN    1
#define FAIL_CONFIG 2

static int
fail(struct meta_main *mm, int status, const char *what, const char *why)
{
	(void)fprintf(stderr, "%s: %s: %s\n", mm->daemon.name, what, why);
	return status;
}

static int
self_make(struct meta_main *mm)
{
	const char *name = kvp_opt_str(&mm->daemon.opts, "name");

	if (strlen(name) >= sizeof(mm->self.name)) {
		return fail(mm, FAIL_CONFIG, "name", "longer than 63 bytes");
	}
	(void)snprintf(mm->self.name, sizeof(mm->self.name), "%s", name);
	if (name[0] == '\0' && gethostname(mm->self.name, sizeof(mm->self.name) - 1) < 0) {
		(void)snprintf(mm->self.name, sizeof(mm->self.name), "meta");
	}
	/* A meta remembers nothing, so a new start is a new meta. */
	kvp_env_real()->random(kvp_env_real(), mm->self.id, sizeof(mm->self.id));
	mm->self.incarnation = 1;
	mm->self.kind = KVP_PEER_META;
	return 0;
}

static int
rpc_start(struct meta_main *mm)
{
	struct kvp_rpc_cfg cfg = {.env = kvp_env_real(),
		.log = &mm->daemon.log,
		.self = mm->self,
		.metrics = &mm->metrics,
		.metrics_base = KVP_META_RPC_CONNS};
	int err = kvp_metrics_init(&mm->metrics, kvp_meta_metrics, KVP_META_METRIC_COUNT);

	if (err == 0) {
		err = kvp_rpc_uv_open(&cfg, &mm->daemon.rpc);
	}
	return err < 0 ? fail(mm, FAIL_RUN, "cannot make the event loop", kvp_err_str(err)) : 0;
}

static int
meta_start(struct meta_main *mm)
{
	const struct kvp_opts *opts = &mm->daemon.opts;
	struct kvp_meta_cfg cfg = {.env = kvp_env_real(),
		.log = &mm->daemon.log,
		.metrics = &mm->metrics,
		.rpc = mm->daemon.rpc,
		.self = mm->self,
		.blocks_max = kvp_opt_num(opts, "index.blocks"),
		.heartbeat_ms = (uint32_t)kvp_opt_num(opts, "node.heartbeat"),
		.suspect_ms = (uint32_t)kvp_opt_num(opts, "node.suspect"),
		.forget_ms = (uint32_t)kvp_opt_num(opts, "node.forget")};
	int err = kvp_meta_open(&cfg, &mm->meta);

	if (err == -KVP_E_CONFIG) {
		return fail(mm, FAIL_CONFIG, "node.heartbeat, node.suspect, node.forget",
			"suspect must be at least twice heartbeat, and forget at least suspect");
	}
	if (err < 0) {
		return fail(mm, FAIL_RUN, "cannot make an index of index.blocks locations",
			kvp_err_str(err));
	}
	return 0;
}

static int
address_check(
	struct meta_main *mm, const char *option, int port_default, char ret_text[KVP_ADDR_LEN_MAX])
{
	const char *text = kvp_opt_str(&mm->daemon.opts, option);
	struct kvp_addr addr;
	char why[KVP_ADDR_LEN_MAX + 64];

	if (kvp_addr_parse(text, port_default, &addr) < 0) {
		(void)snprintf(
			why, sizeof(why), "'%.200s' is no address: want HOST:PORT or a path", text);
		return fail(mm, FAIL_CONFIG, option, why);
	}
	kvp_addr_format(&addr, ret_text, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
listen_on(struct meta_main *mm, const char *what, const char *addr)
{
	struct kvp_rpc_listener *listener; /* closed with the loop */
	char real[KVP_ADDR_LEN_MAX];
	int err = mm->daemon.rpc->ops->listen(
		mm->daemon.rpc, addr, kvp_meta_service(mm->meta), real, &listener);

	if (err == 0) {
		kvp_daemon_listens(&mm->daemon, what, real);
	}
	return err;
}

static int
control_start(struct meta_main *mm)
{
	char addr[KVP_ADDR_LEN_MAX];
	int status = address_check(mm, "listen", PORT_DEFAULT, addr);
	int err;

	if (status != 0) {
		return status;
	}
	err = listen_on(mm, "control", addr);
	if (err < 0) {
		kvp_daemon_listen_failed(&mm->daemon, "control", addr, err);
		return FAIL_RUN;
	}
	return 0;
}

/* The socket's folder, made if missing. */
static int
run_dir_make(const char *addr)
{
	char dir[KVP_ADDR_LEN_MAX];
	char *slash;

	(void)snprintf(dir, sizeof(dir), "%s", addr + strlen("unix:"));
	slash = strrchr(dir, '/');
	if (slash == NULL || slash == dir) {
		return 0;
	}
	*slash = '\0';
	return kvp_dir_make(dir, 0755);
}

static int
local_start(struct meta_main *mm)
{
	const struct kvp_opt_value *value = kvp_opt(&mm->daemon.opts, "local");
	char addr[KVP_ADDR_LEN_MAX];
	int status;
	int err;

	if (value->text[0] == '\0') {
		return 0;
	}
	status = address_check(mm, "local", PORT_DEFAULT, addr);
	if (status != 0) {
		return status;
	}
	if (strncmp(addr, "unix:", strlen("unix:")) != 0) {
		return fail(mm, FAIL_CONFIG, "local", "want the path of a socket, or nothing");
	}
	err = run_dir_make(addr);
	if (err == 0) {
		err = listen_on(mm, "local", addr);
	}
	if (err == 0) {
		return 0;
	}
	if (err != -EADDRINUSE && strcmp(value->origin, "default") == 0) {
		/* A user who asked for nothing and may not write to /run still gets a meta. */
		kvp_warn(&mm->daemon.log, "no local socket at %s: %s; set local to a path of yours",
			addr, kvp_err_str(err));
		return 0;
	}
	kvp_daemon_listen_failed(&mm->daemon, "local", addr, err);
	return FAIL_RUN;
}

static int
http_start(struct meta_main *mm)
{
	struct kvp_http_cfg cfg = {
		.log = &mm->daemon.log, .metrics = &mm->metrics, .ready = &mm->ready};
	char addr[KVP_ADDR_LEN_MAX];
	char real[KVP_ADDR_LEN_MAX];
	int err;

	if (kvp_opt_str(&mm->daemon.opts, "metrics.listen")[0] == '\0') {
		return 0;
	}
	err = address_check(mm, "metrics.listen", METRICS_PORT_DEFAULT, addr);
	if (err != 0) {
		return err;
	}
	cfg.addr = addr;
	err = kvp_http_open(&cfg, real, &mm->http);
	if (err < 0) {
		kvp_daemon_listen_failed(&mm->daemon, "metrics", addr, err);
		return FAIL_RUN;
	}
	kvp_daemon_listens(&mm->daemon, "metrics", real);
	return 0;
}

static void
stop_all(struct meta_main *mm)
{
	atomic_store(&mm->ready, false);
	kvp_http_close(mm->http);
	kvp_meta_close(mm->meta);
	if (mm->daemon.rpc != NULL) {
		mm->daemon.rpc->ops->close(mm->daemon.rpc);
	}
	kvp_metrics_fini(&mm->metrics);
	kvp_daemon_end(&mm->daemon);
}

int
main(int argc, char **argv)
{
	static int (*const steps[])(struct meta_main *) = {
		self_make, rpc_start, meta_start, control_start, local_start, http_start};
	const struct kvp_daemon_desc desc = {.name = "kvpool-meta",
		.usage = "kvpool-meta [--OPTION=VALUE]...",
		.config_default = "/etc/kvpool/kvpool-meta.yaml",
		.opts = meta_opts,
		.opt_count = sizeof(meta_opts) / sizeof(meta_opts[0]),
		.features = "soft state, prefix lookup, replicas, fences"};
	struct meta_main mm = {0};
	int status = kvp_daemon_start(&mm.daemon, &desc, argc, argv);

	if (status >= 0) {
		return status;
	}
	status = 0;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == 0; i++) {
		status = steps[i](&mm);
	}
	if (status == 0) {
		atomic_store(&mm.ready, true);
		status = kvp_daemon_serve(&mm.daemon);
	}
	stop_all(&mm);
	return status;
}
