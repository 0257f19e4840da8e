/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - kvpoolctl status: asks each daemon in turn and prints what it says, as tables or as
 * one JSON array. What daemons say is not trusted to be printable.
 */
#include "client/ctl/ctl.h"
#include "client/include/kvpool/admin.h"
#include "hal/base/addr.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_ADDRS_MAX      256u
#define STATUS_TIMEOUT_MS     2000u
#define STATUS_TIMEOUT_MS_MAX 600000u
#define STATUS_SOCKET_META    "/run/kvpool/kvpool-meta.sock"
#define STATUS_SOCKET_NODE    "/run/kvpool/kvpoold.sock"
#define STATUS_PORT_META      7480
#define STATUS_PORT_NODE      7490

struct status_pair {
	char *name;
	char *value;
};

/* What one daemon said. */
struct status_reply {
	struct status_pair *pairs;
	size_t count;
	size_t cap;
};

struct status_args {
	char addrs[STATUS_ADDRS_MAX][KVP_ADDR_LEN_MAX + 8]; /* as kvp_addr_format gives them */
	uint32_t addr_count;
	uint32_t timeout_ms;
	bool json;
};

/* --- arguments ----------------------------------------------------------------------------------
 */

static int
addr_add(struct status_args *args, const char *text, int port_default)
{
	struct kvp_addr addr;

	if (kvp_addr_parse(text, port_default, &addr) < 0 || (!addr.is_unix && addr.port == 0)) {
		ctl_complain("'%s' is no address: write host:port, [::1]:port or unix:/path", text);
		return CTL_USAGE;
	}
	if (args->addr_count == STATUS_ADDRS_MAX) {
		ctl_complain("more than %u addresses", STATUS_ADDRS_MAX);
		return CTL_USAGE;
	}
	kvp_addr_format(&addr, args->addrs[args->addr_count], sizeof(args->addrs[0]));
	args->addr_count++;
	return CTL_OK;
}

/* Several, comma separated, as the library takes them. */
static int
addrs_add(struct status_args *args, const char *list, int port_default)
{
	char *copy = strdup(list);
	char *rest = copy;
	char *text;
	int status = CTL_OK;

	if (copy == NULL) {
		abort();
	}
	while (status == CTL_OK && (text = strsep(&rest, ",")) != NULL) {
		status = addr_add(args, text, port_default);
	}
	free(copy);
	return status;
}

/* Nothing given: what the library itself would use, as far as it is there. */
static int
addrs_default(struct status_args *args)
{
	const char *meta = getenv("KVP_META");
	const char *node = getenv("KVP_NODE");
	int status = CTL_OK;

	if (meta != NULL && meta[0] != 0) {
		status = addrs_add(args, meta, STATUS_PORT_META);
	} else if (access(STATUS_SOCKET_META, F_OK) == 0) {
		status = addr_add(args, STATUS_SOCKET_META, -1);
	}
	if (status != CTL_OK) {
		return status;
	}
	if (node != NULL && node[0] != 0 && strcmp(node, "none") != 0) {
		status = addrs_add(args, node, STATUS_PORT_NODE);
	} else if (access(STATUS_SOCKET_NODE, F_OK) == 0) {
		status = addr_add(args, STATUS_SOCKET_NODE, -1);
	}
	if (status == CTL_OK && args->addr_count == 0) {
		ctl_complain("no daemon of this host: neither %s nor %s is there",
			STATUS_SOCKET_NODE, STATUS_SOCKET_META);
		fprintf(stderr,
			"  next: start kvpoold, or name a daemon with --addr, --node, --meta\n");
		return CTL_UNREACHABLE;
	}
	return status;
}

static int
timeout_set(struct status_args *args, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != 0 || value == 0 ||
		value > STATUS_TIMEOUT_MS_MAX) {
		ctl_complain("--timeout '%s': milliseconds, 1 to %u", text, STATUS_TIMEOUT_MS_MAX);
		return CTL_USAGE;
	}
	args->timeout_ms = (uint32_t)value;
	return CTL_OK;
}

static int
args_parse(struct status_args *args, int argc, char **argv)
{
	static const struct option options[] = {
		{"addr", required_argument, NULL, 'a'},
		{"meta", required_argument, NULL, 'm'},
		{"node", required_argument, NULL, 'n'},
		{"timeout", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{0},
	};
	int status = CTL_OK;
	int option;

	opterr = 0;
	while (status == CTL_OK && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'a':
			status = addrs_add(args, optarg, -1);
			break;
		case 'm':
			status = addrs_add(args, optarg, STATUS_PORT_META);
			break;
		case 'n':
			status = addrs_add(args, optarg, STATUS_PORT_NODE);
			break;
		case 't':
			status = timeout_set(args, optarg);
			break;
		case 'j':
			args->json = true;
			break;
		default:
			ctl_complain("'%s': unknown, or its value is missing or too much; "
				     "kvpoolctl status --help",
				argv[optind - 1]);
			status = CTL_USAGE;
		}
	}
	for (; status == CTL_OK && optind < argc; optind++) {
		status = addrs_add(args, argv[optind], -1);
	}
	return status == CTL_OK && args->addr_count == 0 ? addrs_default(args) : status;
}

/* --- asking --------------------------------------------------------------------------------------
 */

/* A copy without control characters: they could move a terminal's cursor. */
static char *
text_clean(const char *text)
{
	char *copy = strdup(text);

	if (copy == NULL) {
		abort(); /* a tool: nothing to save */
	}
	for (char *pos = copy; *pos != 0; pos++) {
		if ((unsigned char)*pos < 0x20 || *pos == 0x7f) {
			*pos = '?';
		}
	}
	return copy;
}

static void
reply_add(void *arg, const char *name, const char *value)
{
	struct status_reply *reply = arg;

	if (reply->count == reply->cap) {
		reply->cap = reply->cap == 0 ? 64 : reply->cap * 2;
		reply->pairs = realloc(reply->pairs, reply->cap * sizeof(*reply->pairs));
		if (reply->pairs == NULL) {
			abort();
		}
	}
	reply->pairs[reply->count].name = text_clean(name);
	reply->pairs[reply->count].value = text_clean(value);
	reply->count++;
}

static void
reply_fini(struct status_reply *reply)
{
	for (size_t i = 0; i < reply->count; i++) {
		free(reply->pairs[i].name);
		free(reply->pairs[i].value);
	}
	free(reply->pairs);
}

/* What to do about an error. */
static const char *
error_next(int err)
{
	switch (err) {
	case -ECONNREFUSED:
		return "nothing listens there: start the daemon, or check the port";
	case -ENOENT:
		return "no such socket: start the daemon on this host, or name it by --addr";
	case -EACCES:
	case -EPERM:
		return "ask as root, or as the user or a member of the group the daemon runs as";
	case -KVP_E_TIMEOUT:
	case -ETIMEDOUT:
		return "check the host and its firewall, or ask with a longer --timeout";
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return "check the name of the host and the way to it";
	case -KVP_E_VERSION:
		return "the daemon speaks another protocol version: use its release's kvpoolctl";
	case -KVP_E_PROTO:
	case -KVP_E_CONNDOWN:
	case -ECONNRESET:
		return "check that this is the control address of a kvpool daemon";
	default:
		return "check the address and the daemon's log";
	}
}

/* --- printing ------------------------------------------------------------------------------------
 */

static void
table_print(const char *addr, const struct status_reply *reply, bool first)
{
	size_t width = 0;

	for (size_t i = 0; i < reply->count; i++) {
		size_t len = strlen(reply->pairs[i].name);

		width = len > width ? len : width;
	}
	printf("%s%s\n", first ? "" : "\n", addr);
	for (size_t i = 0; i < reply->count; i++) {
		printf("  %-*s  %s\n", (int)width, reply->pairs[i].name, reply->pairs[i].value);
	}
}

/* Bytes that are not UTF-8 become question marks. */
static json_t *
json_text(char *text)
{
	json_t *json = json_string(text);

	if (json == NULL) {
		for (char *pos = text; *pos != 0; pos++) {
			*pos = (unsigned char)*pos < 0x80 ? *pos : '?';
		}
		json = json_string(text);
	}
	return json;
}

static json_t *
json_of_reply(const char *addr, struct status_reply *reply, int err)
{
	json_t *object = json_object();
	json_t *status = json_object();

	json_object_set_new(object, "addr", json_string(addr));
	json_object_set_new(object, "ok", json_boolean(err == 0));
	if (err < 0) {
		json_object_set_new(object, "error", json_string(kvp_strerrorname(err)));
		json_object_set_new(object, "text", json_string(kvp_strerror(err)));
		json_object_set_new(object, "next", json_string(error_next(err)));
	}
	for (size_t i = 0; i < reply->count; i++) {
		json_decref(
			json_text(reply->pairs[i].name)); /* makes a name of it that can be used */
		json_object_set_new(status, reply->pairs[i].name, json_text(reply->pairs[i].value));
	}
	json_object_set_new(object, "status", status);
	return object;
}

/* --- the command
 * ---------------------------------------------------------------------------------- */

static int
ask_all(const struct status_args *args)
{
	json_t *all = json_array();
	int status = CTL_OK;
	bool first = true;

	for (uint32_t i = 0; i < args->addr_count; i++) {
		const char *addr = args->addrs[i];
		struct status_reply reply = {0};
		int err = kvp_admin_status(addr, args->timeout_ms, reply_add, &reply);

		if (args->json) {
			json_array_append_new(all, json_of_reply(addr, &reply, err));
		} else if (err == 0) {
			table_print(addr, &reply, first);
			first = false;
		}
		if (err < 0) {
			status = CTL_UNREACHABLE;
			ctl_complain("%s: %s (%s)", addr, kvp_strerror(err), kvp_strerrorname(err));
			fprintf(stderr, "  next: %s\n", error_next(err));
		}
		reply_fini(&reply);
	}
	if (args->json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	return status;
}

void
ctl_status_help(void)
{
	printf("usage: kvpoolctl status [OPTION]... [ADDR]...\n"
	       "Asks daemons about themselves: a table for each.\n\n"
	       "  --addr=ADDR     address of any daemon: host:port, [::1]:port, unix:/path\n"
	       "  --node=ADDR     the same for a kvpoold; the port may be left out (%d)\n"
	       "  --meta=ADDR     the same for a kvpool-meta (%d)\n"
	       "  --timeout=MS    how long to wait for each; default %u\n"
	       "  --json          one JSON array on stdout, an object a daemon\n\n"
	       "Each may be repeated, or take several addresses, comma separated. With none:\n"
	       "KVP_META and KVP_NODE from the environment, else the daemons of this host,\n"
	       "%s, %s\n",
		STATUS_PORT_NODE, STATUS_PORT_META, STATUS_TIMEOUT_MS, STATUS_SOCKET_META,
		STATUS_SOCKET_NODE);
}

int
ctl_status(int argc, char **argv)
{
	struct status_args *args = calloc(1, sizeof(*args));
	int status;

	if (args == NULL) {
		abort();
	}
	args->timeout_ms = STATUS_TIMEOUT_MS;
	status = args_parse(args, argc, argv);
	if (status == CTL_OK) {
		status = ask_all(args);
	}
	free(args);
	return status;
}
