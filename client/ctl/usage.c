/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.c - kvpoolctl usage and kvpoolctl leases: what a node holds and for whom, and who keeps it
 * there. One node a run: the one named, else KVP_NODE, else that of this host.
 */
#include "client/ctl/ctl.h"
#include "client/include/kvpool/admin.h"
#include "hal/base/addr.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_TIMEOUT_MS     2000u
#define USAGE_TIMEOUT_MS_MAX 600000u
#define USAGE_SOCKET_NODE    "unix:/run/kvpool/kvpoold.sock"
#define USAGE_PORT_NODE      7490

struct usage_args {
	char addr[KVP_ADDR_LEN_MAX + 8];
	uint32_t timeout_ms;
	bool purge;
};

/* --- arguments -----------------------------------------------------------------------------------
 */

static int
addr_set(struct usage_args *args, const char *text)
{
	struct kvp_addr addr;

	if (kvp_addr_parse(text, USAGE_PORT_NODE, &addr) < 0 || (!addr.is_unix && addr.port == 0)) {
		ctl_complain("'%s' is no address: write host:port, [::1]:port or unix:/path", text);
		return CTL_USAGE;
	}
	kvp_addr_format(&addr, args->addr, sizeof(args->addr));
	return CTL_OK;
}

static int
timeout_set(struct usage_args *args, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != 0 || value == 0 ||
		value > USAGE_TIMEOUT_MS_MAX) {
		ctl_complain("--timeout '%s': milliseconds, 1 to %u", text, USAGE_TIMEOUT_MS_MAX);
		return CTL_USAGE;
	}
	args->timeout_ms = (uint32_t)value;
	return CTL_OK;
}

static int
args_parse(struct usage_args *args, int argc, char **argv, bool may_purge)
{
	static const struct option options[] = {
		{"node", required_argument, NULL, 'n'},
		{"timeout", required_argument, NULL, 't'},
		{"purge", no_argument, NULL, 'p'},
		{0},
	};
	const char *node = getenv("KVP_NODE");
	const char *text = node != NULL && node[0] != 0 ? node : USAGE_SOCKET_NODE;
	int status = CTL_OK;
	int option;

	args->timeout_ms = USAGE_TIMEOUT_MS;
	opterr = 0;
	while (status == CTL_OK && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'n') {
			text = optarg;
		} else if (option == 't') {
			status = timeout_set(args, optarg);
		} else if (option == 'p' && may_purge) {
			args->purge = true;
		} else {
			ctl_complain("'%s': unknown, or its value is missing or too much; "
				     "kvpoolctl %s --help",
				argv[optind - 1], argv[0]);
			status = CTL_USAGE;
		}
	}
	if (status == CTL_OK && optind < argc) {
		text = argv[optind++];
	}
	if (status == CTL_OK && optind < argc) {
		ctl_complain("'%s': one node at a time", argv[optind]);
		status = CTL_USAGE;
	}
	return status == CTL_OK ? addr_set(args, text) : status;
}

static int
answer_failed(const struct usage_args *args, int err)
{
	ctl_complain("%s: %s (%s)", args->addr, kvp_strerror(err), kvp_strerrorname(err));
	fprintf(stderr, "  next: check that this is the control address of a running kvpoold; "
			"kvpoolctl status asks it, too\n");
	return CTL_UNREACHABLE;
}

/* --- usage ---------------------------------------------------------------------------------------
 */

static const char *
medium_name(uint32_t medium)
{
	switch ((enum kvp_medium)medium) {
	case KVP_MEDIUM_DRAM:
		return "dram";
	case KVP_MEDIUM_SSD:
		return "ssd";
	case KVP_MEDIUM_HBM:
		return "hbm";
	case KVP_MEDIUM_NONE:
		break;
	}
	return "?";
}

static void
tier_print(void *arg, const struct kvp_admin_tier *tier)
{
	bool *first = arg;

	if (*first) {
		printf("%-32s  %12s %18s %18s %18s %12s %18s\n", "tier", "blocks", "bytes", "total",
			"free", "leased", "leased bytes");
		*first = false;
	}
	printf("%-32s  %12" PRIu64 " %18" PRIu64 " %18" PRIu64 " %18" PRIu64 " %12" PRIu64
	       " %18" PRIu64 "\n",
		medium_name(tier->medium), tier->blocks, tier->bytes_used, tier->bytes_total,
		tier->bytes_free, tier->leased_blocks, tier->leased_bytes);
}

static void
ns_print(void *arg, const struct kvp_admin_namespace *ns)
{
	bool *first = arg;

	if (*first) {
		printf("%-32s  %12s %18s %18s %18s %12s\n", "namespace", "blocks", "bytes", "taken",
			"quota", "epoch");
		*first = false;
	}
	for (size_t i = 0; i < sizeof(ns->digest); i++) {
		printf("%02x", ns->digest[i]);
	}
	printf("  %12" PRIu64 " %18" PRIu64 " %18" PRIu64 " %18" PRIu64 " %12" PRIu64 "%s\n",
		ns->blocks, ns->bytes, ns->taken, ns->quota, ns->epoch,
		ns->old ? "  being cleared" : "");
}

struct usage_first {
	bool tier;
	bool ns;
};

static void
usage_tier(void *arg, const struct kvp_admin_tier *tier)
{
	tier_print(&((struct usage_first *)arg)->tier, tier);
}

static void
usage_ns(void *arg, const struct kvp_admin_namespace *ns)
{
	ns_print(&((struct usage_first *)arg)->ns, ns);
}

int
ctl_usage(int argc, char **argv)
{
	struct usage_first first = {.tier = true, .ns = true};
	struct usage_args args = {0};
	int status = args_parse(&args, argc, argv, false);
	int err;

	if (status != CTL_OK) {
		return status;
	}
	err = kvp_admin_usage(args.addr, args.timeout_ms, usage_tier, usage_ns, &first);
	return err < 0 ? answer_failed(&args, err) : CTL_OK;
}

void
ctl_usage_help(void)
{
	printf("usage: kvpoolctl usage [--timeout=MS] [[--node=]ADDRESS]\n"
	       "What a node holds: a row a tier, a row a namespace. Numbers are bytes.\n\n"
	       "  taken    what counts against the quota: also blocks being written, rounded up\n"
	       "  quota    0: no limit; options store.quota and store.quotas of kvpoold\n\n"
	       "Without ADDRESS: KVP_NODE, else " USAGE_SOCKET_NODE "\n");
}

/* --- leases --------------------------------------------------------------------------------------
 */

static void
lease_print(void *arg, const struct kvp_admin_lease *lease)
{
	bool *first = arg;

	if (*first) {
		printf("%-18s %8s %12s %12s  %s\n", "lease", "session", "blocks", "left ms",
			"client");
		*first = false;
	}
	printf("%-18" PRIx64 " %8" PRIu32 " %12" PRIu32 " %12" PRIu64 "  ", lease->lease,
		lease->session, lease->blocks, lease->left_ms);
	for (const char *pos = lease->client; *pos != 0; pos++) {
		/* What peers call themselves could move a terminal's cursor. */
		putchar((unsigned char)*pos < 0x20 || *pos == 0x7f ? '?' : *pos);
	}
	putchar('\n');
}

int
ctl_leases(int argc, char **argv)
{
	struct usage_args args = {0};
	int status = args_parse(&args, argc, argv, true);
	bool first = true;
	int err;

	if (status != CTL_OK) {
		return status;
	}
	err = kvp_admin_leases(args.addr, args.timeout_ms, args.purge, lease_print, &first);
	if (err < 0) {
		return answer_failed(&args, err);
	}
	if (args.purge) {
		printf("%d leases ended\n", err);
	}
	return CTL_OK;
}

void
ctl_leases_help(void)
{
	printf("usage: kvpoolctl leases [--purge] [--timeout=MS] [[--node=]ADDRESS]\n"
	       "Which clients keep blocks of a node in place, and for how much longer.\n\n"
	       "  --purge    ends all of them: their blocks can be evicted again\n\n"
	       "Without ADDRESS: KVP_NODE, else " USAGE_SOCKET_NODE "\n");
}
