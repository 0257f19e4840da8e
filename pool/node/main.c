// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - kvpoold: options, then each module in the order in which the next one needs it, then
 * the loop, then back in reverse. Modules log why they fail; main only stops.
 */
#include "hal/base/err.h"
#include "hal/os/file.h"
#include "hal/os/host.h"
#include "pool/daemon.h"
#include "pool/node/identity.h"
#include "pool/node/memory.h"
#include "pool/node/node.h"
#include "pool/node/quotas.h"
#include "pool/node/settings.h"
#include "pool/node/ssd.h"
#include "pool/node/xports.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAIN_METAS_MAX    16u
#define MAIN_HEARTBEAT_MS 500u
#define MAIN_EXIT_CONFIG  2 /* as for options that the table refuses */

static const struct kvp_opt_desc options[] = {
	{"listen", KVP_OPT_STRING, "127.0.0.1:7490", NULL, "control address, host:port"},
	{"local", KVP_OPT_STRING, "/run/kvpool/kvpoold.sock", NULL,
		"control socket for this host, a path; empty: none"},
	{"advertise", KVP_OPT_STRING, "", NULL,
		"control address that clients are told; empty: listen's"},
	{"metrics.listen", KVP_OPT_STRING, "127.0.0.1:7492", NULL,
		"HTTP address of /metrics, /healthz, /readyz; empty: none"},
	{"name", KVP_OPT_STRING, "", NULL, "name of the node, one a host; empty: the host's name"},
	{"data_dir", KVP_OPT_STRING, "/var/lib/kvpool", NULL, "directory of the node's identity"},
	{"metas", KVP_OPT_STRING, "", NULL, "addresses of metadata servers, comma separated"},
	{"transports", KVP_OPT_STRING, "auto", NULL,
		"data transports, comma separated, all required; auto: those that work here"},
	{"ofi.listen", KVP_OPT_STRING, "", NULL,
		"data address of ofi; empty: port 7491 of listen's host"},
	{"ofi.provider", KVP_OPT_STRING, "tcp", NULL, "libfabric provider"},
	{"verbs.listen", KVP_OPT_STRING, "", NULL,
		"data address of verbs, on an RDMA device; empty: port 7491 of listen's host"},
	{"verbs.device", KVP_OPT_STRING, "", NULL, "RDMA device; empty: any"},
	{"shm.listen", KVP_OPT_STRING, "/run/kvpool/kvpoold-shm.sock", NULL,
		"data socket of shm, a path"},
	KVP_SETTINGS_OPTS,
	{"store.evict", KVP_OPT_STRING, "lru", NULL, "eviction policy"},
	{"store.quarantine", KVP_OPT_TIME, "100ms", "1ms..60s",
		"how long evicted bytes stay as they are, for readers on their way"},
	{"store.grant", KVP_OPT_TIME, "30s", "100ms..600s",
		"how long a client may take to fill a slot"},
	{"store.low_water", KVP_OPT_UINT, "50", "0..500",
		"per mille of store.dram that eviction keeps free ahead of demand"},
	{"store.lease_max", KVP_OPT_TIME, "60s", "0ms..60min",
		"the longest that a client may have blocks kept in place; 0: not at all"},
	{"store.lease_share", KVP_OPT_UINT, "500", "0..1000",
		"per mille of store.dram that may be kept in place"},
	{"store.quota", KVP_OPT_SIZE, "0", "0..1024TiB",
		"the most that one namespace may take of store.dram; 0: no limit"},
	{"store.quotas", KVP_OPT_STRING, "", NULL,
		"other limits for some namespaces: DIGEST=SIZE, comma separated"},
	{"store.quota_evict", KVP_OPT_BOOL, "false", NULL,
		"a namespace at its limit loses its own oldest block; else it gets no more"},
	{"ssd.path", KVP_OPT_STRING, "", NULL, "folder of the SSD tier; empty: no such tier"},
	{"ssd.size", KVP_OPT_SIZE, "64GiB", "2MiB..64TiB", "bytes on disk, reserved at start"},
	{"ssd.segment", KVP_OPT_SIZE, "1GiB", "1MiB..1TiB",
		"bytes of one file, 1/64 to 1/2 of ssd.size: what is evicted at a time"},
	{"ssd.slots", KVP_OPT_UINT, "0", "0..536870912",
		"the most blocks; 0: one for each 64KiB of ssd.size"},
	{"ssd.write_policy", KVP_OPT_CHOICE, "on_evict", "on_evict|through|second_use",
		"what is written: evicted blocks; all, at once; evicted ones that were read"},
	{"ssd.io_max", KVP_OPT_SIZE, "1MiB", "64KiB..64MiB", "bytes of one request to the device"},
	{"ssd.inflight", KVP_OPT_SIZE, "64MiB", "1MiB..1TiB",
		"bytes waiting to be written or being written; blocks beyond that are dropped"},
	{"ssd.read_budget", KVP_OPT_SIZE, "64MiB", "1MiB..1TiB", "bytes being read back at a time"},
	{"ssd.free_floor", KVP_OPT_SIZE, "1GiB", NULL, "bytes that stay free on the file system"},
	{"ssd.flush_interval", KVP_OPT_TIME, "1s", "10ms..60s",
		"how much of what was written a power cut may cost"},
	{"ssd.engine", KVP_OPT_CHOICE, "auto", "auto|uring|threads",
		"how the files are read and written"},
	{"sessions.max", KVP_OPT_UINT, "1024", "1..1024", "client sessions at a time"},
	{"index_wait", KVP_OPT_TIME, "100ms", "1ms..10s",
		"how long a commit waits for metadata servers"},
	KVP_DAEMON_OPTS,
};

struct kvpoold {
	struct kvp_daemon daemon;
	const struct kvp_env *env;
	char name[KVP_MEMORY_NAME_LEN_MAX + 1];
	struct kvp_addr advertise; /* port 0: the one that listen gets */
	const struct kvp_evict_ops *evict;
	struct kvp_settings settings;
	struct kvp_fault fault;
	bool has_fault;
	struct kvp_ssd_cfg ssd; /* path NULL: none */
	char metas_text[4096];  /* metas point into it */
	const char *metas[MAIN_METAS_MAX];
	uint32_t meta_count;
	struct kvp_node_quota quotas[KVP_QUOTAS_MAX];
	uint32_t quota_count;
	char epochs_path[PATH_MAX];

	struct kvp_identity identity;
	struct kvp_metrics metrics;
	struct kvp_memory memory;
	struct kvp_xports xports;
	struct kvp_rpc *rpc;
	struct kvp_node *node;
	struct kvp_rpc_listener *listeners[2];
	uint32_t listener_count;
	struct kvp_http *http;
	_Atomic bool ready;
	char address[KVP_ADDR_LEN_MAX];
	char local_address[KVP_ADDR_LEN_MAX];
};

/* --- options that the table cannot check ---------------------------------------------------------
 */

static bool
name_char_ok(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_' || c == '.';
}

/* The name is part of file names, so it is short and plain. A host's name is made to fit. */
static int
options_name(struct kvpoold *self)
{
	const char *name = kvp_opt_str(&self->daemon.opts, "name");
	char host[HOST_NAME_MAX + 1] = "";

	if (name[0] != '\0') {
		size_t len = strlen(name);

		for (size_t i = 0; i < len; i++) {
			len = name_char_ok(name[i]) ? len : SIZE_MAX;
			if (len == SIZE_MAX) {
				break;
			}
		}
		if (len > KVP_MEMORY_NAME_LEN_MAX) {
			kvp_error(&self->daemon.log,
				"option name: takes 1 to %d letters, digits, '.', '_', '-'",
				KVP_MEMORY_NAME_LEN_MAX);
			return -KVP_E_CONFIG;
		}
		(void)snprintf(self->name, sizeof(self->name), "%s", name);
		return 0;
	}
	if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0') {
		(void)snprintf(host, sizeof(host), "node");
	}
	for (char *pos = host; *pos != '\0'; pos++) {
		*pos = name_char_ok(*pos) ? *pos : '-';
	}
	(void)snprintf(self->name, sizeof(self->name), "%.*s", KVP_MEMORY_NAME_LEN_MAX, host);
	return 0;
}

static int
options_advertise(struct kvpoold *self)
{
	const char *listen = kvp_opt_str(&self->daemon.opts, "listen");
	const char *advertise = kvp_opt_str(&self->daemon.opts, "advertise");
	const char *text = advertise[0] != '\0' ? advertise : listen;

	if (kvp_addr_parse(text, advertise[0] != '\0' ? 0 : -1, &self->advertise) < 0 ||
		self->advertise.is_unix) {
		kvp_error(&self->daemon.log, "option %s: \"%s\" is not host:port",
			advertise[0] != '\0' ? "advertise" : "listen", text);
		return -KVP_E_CONFIG;
	}
	if (kvp_addr_is_wildcard(&self->advertise)) {
		kvp_error(&self->daemon.log,
			"option advertise: must name an address of this host, because nobody can "
			"connect to \"%s\"",
			text);
		return -KVP_E_CONFIG;
	}
	return 0;
}

static int
options_metas(struct kvpoold *self)
{
	const char *text = kvp_opt_str(&self->daemon.opts, "metas");
	char *save = NULL;

	if (strlen(text) >= sizeof(self->metas_text)) {
		kvp_error(&self->daemon.log, "option metas: too long");
		return -KVP_E_CONFIG;
	}
	(void)snprintf(self->metas_text, sizeof(self->metas_text), "%s", text);
	for (char *one = strtok_r(self->metas_text, ", ", &save); one != NULL;
		one = strtok_r(NULL, ", ", &save)) {
		struct kvp_addr addr;

		if (self->meta_count == MAIN_METAS_MAX || kvp_addr_parse(one, -1, &addr) < 0) {
			kvp_error(&self->daemon.log,
				"option metas: \"%s\" is not host:port, or one more than %u", one,
				MAIN_METAS_MAX);
			return -KVP_E_CONFIG;
		}
		self->metas[self->meta_count++] = one;
	}
	return 0;
}

static int
options_store(struct kvpoold *self)
{
	const struct kvp_opts *opts = &self->daemon.opts;

	self->evict = kvp_evict_find(kvp_opt_str(opts, "store.evict"));
	if (self->evict == NULL) {
		kvp_error(&self->daemon.log, "option store.evict: \"%s\" is no eviction policy",
			kvp_opt_str(opts, "store.evict"));
		return -KVP_E_CONFIG;
	}
	(void)snprintf(self->epochs_path, sizeof(self->epochs_path), "%s/epochs",
		kvp_opt_str(opts, "data_dir")); /* one that is too long is refused later */
	if (kvp_quotas_parse(kvp_opt_str(opts, "store.quotas"), &self->daemon.log, self->quotas,
		    &self->quota_count) < 0) {
		return -KVP_E_CONFIG;
	}
	return kvp_settings_load(opts, &self->daemon.log, &self->settings);
}

/* Tests have it die at a point of their choice. */
static int
options_fault(struct kvpoold *self)
{
	const char *text = getenv("KVP_TEST_FAULT");

	if (text == NULL) {
		return 0;
	}
	if (kvp_fault_parse(text, &self->fault) < 0) {
		kvp_error(&self->daemon.log, "KVP_TEST_FAULT: \"%s\" is not POINT:N[:kill|stop]",
			text);
		return -KVP_E_CONFIG;
	}
	self->has_fault = true;
	kvp_warn(&self->daemon.log, "KVP_TEST_FAULT is set: a test, not for service");
	return 0;
}

static enum kvp_ssd_policy
options_ssd_policy(const char *text)
{
	if (strcmp(text, "through") == 0) {
		return KVP_SSD_THROUGH;
	}
	return strcmp(text, "second_use") == 0 ? KVP_SSD_SECOND_USE : KVP_SSD_ON_EVICT;
}

static int
options_ssd(struct kvpoold *self)
{
	const struct kvp_opts *opts = &self->daemon.opts;
	const char *problem;

	if (kvp_opt_str(opts, "ssd.path")[0] == '\0') {
		return 0;
	}
	self->ssd = (struct kvp_ssd_cfg){
		.path = kvp_opt_str(opts, "ssd.path"),
		.size = kvp_opt_num(opts, "ssd.size"),
		.segment = kvp_opt_num(opts, "ssd.segment"),
		.slots = (uint32_t)kvp_opt_num(opts, "ssd.slots"),
		.io_max = (uint32_t)kvp_opt_num(opts, "ssd.io_max"),
		.inflight = kvp_opt_num(opts, "ssd.inflight"),
		.read_budget = kvp_opt_num(opts, "ssd.read_budget"),
		.free_floor = kvp_opt_num(opts, "ssd.free_floor"),
		.flush_ms = (uint32_t)kvp_opt_num(opts, "ssd.flush_interval"),
		.policy = options_ssd_policy(kvp_opt_str(opts, "ssd.write_policy")),
		.engine = kvp_opt_str(opts, "ssd.engine"),
	};
	problem = kvp_ssd_cfg_problem(&self->ssd);
	if (problem != NULL) {
		kvp_error(&self->daemon.log, "option %s", problem);
		return -KVP_E_CONFIG;
	}
	return 0;
}

static int
options_check(struct kvpoold *self)
{
	int err = options_name(self);

	err = err < 0 ? err : options_fault(self);

	err = err < 0 ? err : options_advertise(self);
	err = err < 0 ? err : options_metas(self);
	err = err < 0 ? err : options_store(self);
	return err < 0 ? err : options_ssd(self);
}

/* --- modules, in order ---------------------------------------------------------------------------
 */

static struct kvp_ident
main_ident(const struct kvpoold *self)
{
	struct kvp_ident ident = {
		.incarnation = self->identity.incarnation,
		.kind = KVP_PEER_NODE,
		.version = KVP_PROTO_VERSION,
	};

	memcpy(ident.id, self->identity.id, KVP_ID_LEN);
	(void)snprintf(ident.name, sizeof(ident.name), "%s", self->name);
	return ident;
}

static int
main_open_rpc(struct kvpoold *self)
{
	struct kvp_rpc_cfg cfg = {
		.env = self->env,
		.log = &self->daemon.log,
		.self = main_ident(self),
		.metrics = &self->metrics,
		.metrics_base = KVP_NODE_RPC_CONNS,
	};
	int err = kvp_metrics_init(&self->metrics, kvp_node_metrics, KVP_NODE_METRIC_COUNT);

	err = err < 0 ? err : kvp_rpc_uv_open(&cfg, &self->rpc);
	if (err < 0) {
		kvp_error(&self->daemon.log, "event loop cannot be made: %s", kvp_err_str(err));
	}
	self->daemon.rpc = self->rpc;
	return err;
}

static int
main_open_node(struct kvpoold *self)
{
	const struct kvp_opts *opts = &self->daemon.opts;
	struct kvp_node_cfg cfg = {
		.env = self->env,
		.log = &self->daemon.log,
		.metrics = &self->metrics,
		.rpc = self->rpc,
		.self = main_ident(self),
		.arena = self->memory.arena.base,
		.arena_len = self->memory.arena.len,
		.table = self->memory.table.base,
		.notes = kvp_head_notes(self->memory.head.base),
		.tokens = kvp_head_tokens(self->memory.head.base),
		.slots_max = self->settings.slots,
		.recover = self->memory.recovered,
		.scrub_rate = kvp_opt_num(opts, "store.scrub"),
		.fault = self->has_fault ? &self->fault : NULL,
		.evict = self->evict,
		.quarantine_ms = (uint32_t)kvp_opt_num(opts, "store.quarantine"),
		.grant_ms = (uint32_t)kvp_opt_num(opts, "store.grant"),
		.low_water_permille = (uint32_t)kvp_opt_num(opts, "store.low_water"),
		.sessions_max = (uint32_t)kvp_opt_num(opts, "sessions.max"),
		.lease_ms_max = (uint32_t)kvp_opt_num(opts, "store.lease_max"),
		.lease_permille = (uint32_t)kvp_opt_num(opts, "store.lease_share"),
		.quota = kvp_opt_num(opts, "store.quota"),
		.quota_evict = kvp_opt_num(opts, "store.quota_evict") != 0,
		.quotas = self->quotas,
		.quota_count = self->quota_count,
		.epochs_path = self->epochs_path,
		.ssd = self->ssd.path != NULL ? &self->ssd : NULL,
		.transports = self->xports.list,
		.transport_count = self->xports.count,
		.metas = self->metas,
		.meta_count = self->meta_count,
		.index_wait_ms = (uint32_t)kvp_opt_num(opts, "index_wait"),
		.heartbeat_ms = MAIN_HEARTBEAT_MS,
	};
	int err = kvp_host_id(cfg.host_id);

	if (err < 0) {
		kvp_warn(&self->daemon.log,
			"boot id of this host cannot be read: %s; clients of this "
			"host will not use shared memory",
			kvp_err_str(err));
		self->env->random(self->env, cfg.host_id, sizeof(cfg.host_id));
	}
	err = kvp_node_open(&cfg, &self->node);
	if (err < 0) {
		kvp_error(&self->daemon.log, "node cannot be made: %s", kvp_err_str(err));
	}
	return err;
}

static int
main_listen(
	struct kvpoold *self, const char *what, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	int err = self->rpc->ops->listen(self->rpc, addr, kvp_node_service(self->node), ret_addr,
		&self->listeners[self->listener_count]);

	if (err < 0) {
		kvp_daemon_listen_failed(&self->daemon, what, addr, err);
		return err;
	}
	self->listener_count++;
	kvp_daemon_listens(&self->daemon, what, ret_addr);
	return 0;
}

static int
main_listen_local(struct kvpoold *self)
{
	const char *local = kvp_opt_str(&self->daemon.opts, "local");
	struct kvp_addr addr;
	char dir[KVP_ADDR_LEN_MAX];
	char *slash;
	int err;

	if (local[0] == '\0') {
		return 0;
	}
	err = kvp_addr_parse(local, -1, &addr);
	if (err < 0 || !addr.is_unix) {
		kvp_error(&self->daemon.log, "option local: \"%s\" is not the path of a socket",
			local);
		return -KVP_E_CONFIG;
	}
	(void)snprintf(dir, sizeof(dir), "%s", addr.host);
	slash = strrchr(dir, '/');
	if (slash != NULL && slash != dir) {
		*slash = '\0';
		err = kvp_dir_make(dir, 0755);
		if (err < 0) {
			kvp_daemon_listen_failed(&self->daemon, "local", local, err);
			return err;
		}
	}
	return main_listen(self, "local", local, self->local_address);
}

static int
main_listen_all(struct kvpoold *self)
{
	const struct kvp_opts *opts = &self->daemon.opts;
	const char *metrics = kvp_opt_str(opts, "metrics.listen");
	struct kvp_http_cfg http = {
		.addr = metrics,
		.log = &self->daemon.log,
		.metrics = &self->metrics,
		.ready = &self->ready,
	};
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_addr bound;
	int err = main_listen(self, "control", kvp_opt_str(opts, "listen"), addr);

	if (err < 0) {
		return err;
	}
	if (self->advertise.port == 0 && kvp_addr_parse(addr, -1, &bound) == 0) {
		self->advertise.port = bound.port;
	}
	kvp_addr_format(&self->advertise, self->address, sizeof(self->address));
	err = main_listen_local(self);
	if (err < 0 || metrics[0] == '\0') {
		return err;
	}
	err = kvp_http_open(&http, addr, &self->http);
	if (err < 0) {
		kvp_daemon_listen_failed(&self->daemon, "metrics", metrics, err);
		return err;
	}
	kvp_daemon_listens(&self->daemon, "metrics", addr);
	return 0;
}

static int
main_open_memory(struct kvpoold *self)
{
	struct kvp_memory_cfg cfg = {
		.name = self->name,
		.arena_len = self->settings.arena_len,
		.slots = self->settings.slots,
		.want = self->settings.want,
		.node_id = self->identity.id,
		.incarnation = self->identity.incarnation,
		.env = self->env,
		.log = &self->daemon.log,
	};

	return kvp_memory_open(&cfg, &self->memory);
}

static int
main_open(struct kvpoold *self)
{
	const struct kvp_opts *opts = &self->daemon.opts;
	const struct kvp_log *log = &self->daemon.log;
	int err = options_check(self);

	err = err < 0 ? err
		      : kvp_identity_open(
				kvp_opt_str(opts, "data_dir"), self->env, log, &self->identity);
	err = err < 0 ? err : main_open_rpc(self);
	err = err < 0 ? err : main_open_memory(self);
	err = err < 0 ? err
		      : kvp_xports_open(&self->daemon, self->env, &self->memory, &self->advertise,
				&self->xports);
	err = err < 0 ? err : main_open_node(self);
	err = err < 0 ? err : main_listen_all(self);
	if (err == 0) {
		kvp_info(log, "node %s advertises %s", self->name, self->address);
		kvp_node_start(self->node, self->address, self->local_address);
	}
	return err;
}

/* In reverse; whatever was not opened is zero. The node goes before what it works on. */
static void
main_close(struct kvpoold *self, bool keep)
{
	self->ready = false;
	kvp_http_close(self->http);
	for (uint32_t i = 0; i < self->listener_count; i++) {
		self->rpc->ops->unlisten(self->listeners[i]);
	}
	kvp_node_close(self->node);
	if (self->rpc != NULL) {
		self->rpc->ops->close(self->rpc);
	}
	kvp_xports_close(&self->xports);
	kvp_memory_close(&self->memory, keep);
	kvp_metrics_fini(&self->metrics);
	kvp_identity_close(&self->identity);
}

int
main(int argc, char **argv)
{
	static const struct kvp_daemon_desc desc = {
		.name = "kvpoold",
		.usage = "kvpoold [OPTION]... - memory server of a pool of KV-cache blocks",
		.config_default = "/etc/kvpool/kvpoold.yaml",
		.opts = options,
		.opt_count = sizeof(options) / sizeof(options[0]),
		.features = "shm ofi",
	};
	struct kvpoold *self = calloc(1, sizeof(*self));
	int status;

	if (self == NULL) {
		return EXIT_FAILURE;
	}
	self->env = kvp_env_real();
	self->identity.lock_fd = -1;
	self->memory.lock_fd = -1;
	status = kvp_daemon_start(&self->daemon, &desc, argc, argv);
	if (status < 0) {
		int err = main_open(self);
		bool keep;

		if (err == 0) {
			self->ready = true;
			status = kvp_daemon_serve(&self->daemon);
			keep = kvp_opt_num(&self->daemon.opts, "store.keep") != 0;
		} else {
			status = err == -KVP_E_CONFIG ? MAIN_EXIT_CONFIG : EXIT_FAILURE;
			keep = self->memory.recovered; /* the next start may be luckier */
		}
		main_close(self, keep);
	}
	kvp_daemon_end(&self->daemon);
	free(self);
	return status;
}
