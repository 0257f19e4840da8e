// SPDX-License-Identifier: Apache-2.0
/*
 * xports.c - see xports.h. Knows transports by their names in the registry and their options
 * NAME.listen.
 */
#include "pool/node/xports.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define XPORTS_PORT 7491 /* of each transport that has ports; their port spaces are apart */

struct xports_job {
	struct kvp_daemon *daemon;
	const struct kvp_env *env;
	const struct kvp_memory *memory;
	const struct kvp_addr *advertise;
	struct kvp_xports *xports;
	enum kvp_log_level failed_level; /* info where another transport may do, else error */
};

/* What to listen on: the option, or the control address' host with the default port. */
static void
xports_listen_addr(const struct xports_job *job, const char *name, char buf[KVP_ADDR_LEN_MAX])
{
	char path[KVP_NAME_LEN_MAX + 8];
	struct kvp_addr addr;

	(void)snprintf(path, sizeof(path), "%s.listen", name);
	(void)snprintf(buf, KVP_ADDR_LEN_MAX, "%s", kvp_opt_str(&job->daemon->opts, path));
	if (buf[0] != '\0') {
		return;
	}
	if (kvp_addr_parse(kvp_opt_str(&job->daemon->opts, "listen"), 0, &addr) < 0 ||
		addr.is_unix) {
		addr = *job->advertise;
	}
	addr.port = XPORTS_PORT;
	kvp_addr_format(&addr, buf, KVP_ADDR_LEN_MAX);
}

/* Clients cannot connect to a wildcard: there the advertised host stands for it. */
static void
xports_make_reachable(const struct xports_job *job, char addr_text[KVP_ADDR_LEN_MAX])
{
	struct kvp_addr addr;

	if (addr_text[0] == '/' || kvp_addr_parse(addr_text, -1, &addr) < 0 ||
		!kvp_addr_is_wildcard(&addr)) {
		return;
	}
	(void)memcpy(addr.host, job->advertise->host, sizeof(addr.host));
	kvp_addr_format(&addr, addr_text, KVP_ADDR_LEN_MAX);
}

/* The directory of a socket that is named by its path. */
static int
xports_make_dir(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (path[0] != '/' || slash == path) {
		return 0;
	}
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	return kvp_dir_make(dir, 0755);
}

static void
xports_close_one(struct kvp_xport *xport, struct kvp_mr **mrs)
{
	for (int i = 0; i < KVP_XPORTS_MRS; i++) {
		if (mrs[i] != NULL) {
			xport->ops->mr_dereg(mrs[i]);
			mrs[i] = NULL;
		}
	}
	xport->ops->close(xport);
}

static int
xports_register(
	struct kvp_node_transport *transport, const struct kvp_memory *memory, struct kvp_mr **mrs)
{
	struct {
		const struct kvp_mem *mem;
		uint32_t access;
		struct kvp_rdesc *rdesc;
	} rows[KVP_XPORTS_MRS] = {
		{&memory->arena, KVP_MR_REMOTE_READ, &transport->arena_read},
		{&memory->arena, KVP_MR_REMOTE_WRITE, &transport->arena_write},
		{&memory->table, KVP_MR_REMOTE_READ, &transport->table_read},
	};
	const struct kvp_xport_ops *ops = transport->xport->ops;

	for (int i = 0; i < KVP_XPORTS_MRS; i++) {
		int err = ops->mr_reg(transport->xport, rows[i].mem, rows[i].access, &mrs[i]);

		if (err < 0) {
			return err;
		}
		ops->mr_rdesc(mrs[i], rows[i].rdesc);
	}
	return 0;
}

/* NULL: any. */
static const char *
xports_device(const struct xports_job *job, const char *name)
{
	const char *device = kvp_opt_str(&job->daemon->opts, "verbs.device");

	return strcmp(name, "verbs") == 0 && *device != '\0' ? device : NULL;
}

static int
xports_open_one(const struct xports_job *job, const struct kvp_xport_ops *ops)
{
	struct kvp_xport_cfg cfg = {
		.env = job->env,
		.log = &job->daemon->log,
		.provider = kvp_opt_str(&job->daemon->opts, "ofi.provider"),
		.device = xports_device(job, ops->name),
		.lock_prefix = job->memory->session_prefix,
	};
	uint32_t idx = job->xports->count;
	struct kvp_node_transport *transport = &job->xports->list[idx];
	struct kvp_mr **mrs = job->xports->mrs[idx];
	char addr[KVP_ADDR_LEN_MAX];
	int err = ops->open(&cfg, &transport->xport);

	if (err < 0) {
		KVP_LOG_AT(&job->daemon->log, job->failed_level,
			"transport %s cannot be opened: %s", ops->name, kvp_err_str(err));
		return err;
	}
	err = xports_register(transport, job->memory, mrs);
	if (err < 0) {
		kvp_warn(&job->daemon->log, "transport %s cannot register the memory: %s",
			ops->name, kvp_err_str(err));
		xports_close_one(transport->xport, mrs);
		return err;
	}
	xports_listen_addr(job, ops->name, addr);
	err = xports_make_dir(addr);
	err = err < 0 ? err : ops->listen(transport->xport, addr, transport->addr);
	if (err < 0) {
		kvp_daemon_listen_failed(job->daemon, ops->name, addr, err);
		xports_close_one(transport->xport, mrs);
		return err;
	}
	xports_make_reachable(job, transport->addr);
	kvp_daemon_listens(job->daemon, ops->name, transport->addr);
	job->xports->count++;
	return 0;
}

static int
xports_open_auto(const struct xports_job *job)
{
	size_t count;
	const struct kvp_xport_ops *const *all = kvp_xport_all(&count);

	for (size_t i = 0; i < count; i++) {
		(void)xports_open_one(job, all[i]); /* it said why; one that works is enough */
	}
	if (job->xports->count == 0) {
		kvp_error(&job->daemon->log, "no data transport works here");
		return -KVP_E_NO_PROVIDER;
	}
	return 0;
}

static bool
xports_has(const struct kvp_xports *xports, const struct kvp_xport_ops *ops)
{
	for (uint32_t i = 0; i < xports->count; i++) {
		if (xports->list[i].xport->ops == ops) {
			return true;
		}
	}
	return false;
}

static int
xports_open_list(const struct xports_job *job, const char *list)
{
	while (*list != '\0') {
		size_t len = strcspn(list, ",");
		char name[KVP_NAME_LEN_MAX];
		const struct kvp_xport_ops *ops;
		int err;

		(void)snprintf(name, sizeof(name), "%.*s", (int)(len < 32 ? len : 32), list);
		ops = kvp_xport_find(name);
		if (ops == NULL || xports_has(job->xports, ops)) {
			kvp_error(&job->daemon->log, "option transports: \"%s\" is %s", name,
				ops == NULL ? "no transport of this program" : "named twice");
			return -KVP_E_CONFIG;
		}
		err = xports_open_one(job, ops);
		if (err < 0) {
			kvp_error(&job->daemon->log,
				"transport %s is required by the option transports: %s", name,
				kvp_err_str(err));
			return err;
		}
		list += len;
		list += *list == ',';
	}
	if (job->xports->count == 0) {
		kvp_error(&job->daemon->log, "option transports names no transport");
		return -KVP_E_CONFIG;
	}
	return 0;
}

int
kvp_xports_open(struct kvp_daemon *daemon, const struct kvp_env *env,
	const struct kvp_memory *memory, const struct kvp_addr *advertise,
	struct kvp_xports *ret_xports)
{
	struct xports_job job = {
		.daemon = daemon,
		.env = env,
		.memory = memory,
		.advertise = advertise,
		.xports = ret_xports,
	};
	const char *list = kvp_opt_str(&daemon->opts, "transports");
	bool any = strcmp(list, "auto") == 0;
	int err;

	memset(ret_xports, 0, sizeof(*ret_xports));
	job.failed_level = any ? KVP_LOG_INFO : KVP_LOG_ERROR;
	err = any ? xports_open_auto(&job) : xports_open_list(&job, list);
	if (err < 0) {
		kvp_xports_close(ret_xports);
	}
	return err;
}

void
kvp_xports_close(struct kvp_xports *xports)
{
	while (xports->count > 0) {
		xports->count--;
		xports_close_one(xports->list[xports->count].xport, xports->mrs[xports->count]);
	}
}
