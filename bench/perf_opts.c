/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_opts.c - the options of bw and lat, and what they mean together. perftest's names where it
 * has them (their letters are in perf_args.c), long names for what is ours.
 */
#include "bench/perf.h"
#include "hal/base/opt.h"
#include "transport/xport.h"

#include <kvpool/kvpool.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define ITERS_DEFAULT          1000
#define ITERS_WRITE_BW_DEFAULT 5000
#define DEPTH_BW_DEFAULT       128
#define SIZE_BW_DEFAULT        65536
#define SIZE_LAT_DEFAULT       2

static const struct kvp_opt_desc perf_opts[] = {
	{"op", KVP_OPT_CHOICE, "read", "read|write|get|put",
		"read and get are the same, as are write and put: --via says which way"},
	{"via", KVP_OPT_CHOICE, "auto", "auto|raw|pool|both",
		"raw: the transport alone; pool: a running cluster; both, in turns; auto: raw for "
		"read and write, pool for get and put"},
	{"transport", KVP_OPT_STRING, "auto", NULL, "auto, or only the one of this name"},
	{"size", KVP_OPT_SIZE, "0", "0..128MiB", "-s: bytes; 0: 65536 for bw, 2 for lat"},
	{"all", KVP_OPT_BOOL, "false", NULL, "-a: sizes from 2 to 2^23"},
	{"iters", KVP_OPT_UINT, "0", "0..1000000000000",
		"-n: operations; 0: 1000, for bandwidth of writes 5000"},
	{"duration", KVP_OPT_REAL, "0", "0..86400", "-D: seconds instead of a number"},
	{"margin", KVP_OPT_REAL, "-1", "-1..3600",
		"-f: seconds not counted at both ends of -D; -1: a quarter of it"},
	{"tx-depth", KVP_OPT_UINT, "0", "0..4096",
		"-t: operations in flight; 0: 128 for bw, 1 for lat"},
	{"batch", KVP_OPT_UINT, "1", "1..4096", "operations posted together, as one batch"},
	{"post_list", KVP_OPT_UINT, "0", "0..4096", "-l: another name of --batch"},
	{"segments", KVP_OPT_UINT, "1", "1..256", "local pieces of one operation"},
	{"qp", KVP_OPT_UINT, "1", "1..1024", "-q: connections, raw only"},
	{"region", KVP_OPT_SIZE, "64MiB", "4KiB..64GiB",
		"operations go round in so many bytes, on both sides"},
	{"rounds", KVP_OPT_UINT, "5", "1..1000", "turns of each way with --via=both"},
	{"events", KVP_OPT_BOOL, "false", NULL, "-e: sleep until something ends; else spin"},
	{"perform_warm_up", KVP_OPT_BOOL, "false", NULL, "one unmeasured trip (pool: always)"},
	{"data_validation", KVP_OPT_BOOL, "false", NULL, "check every byte; the time counts"},
	{"noPeak", KVP_OPT_BOOL, "false", NULL, "-N: no peak"},
	{"report_gbits", KVP_OPT_BOOL, "false", NULL, "Gb/sec (1e9 bits), not MiB/sec (2^20 B)"},
	{"report-histogram", KVP_OPT_BOOL, "false", NULL, "-H: all latencies, sorted"},
	{"report-unsorted", KVP_OPT_BOOL, "false", NULL, "-U: all latencies, as they came"},
	{"cpu_util", KVP_OPT_BOOL, "false", NULL, "a column with the machine's CPU use"},
	{"output", KVP_OPT_CHOICE, "all", "all|bandwidth|message_rate|latency",
		"print this number only"},
	{"limit_bw", KVP_OPT_REAL, "0", "0..1000000000", "-w: status 1 if the average is below"},
	{"limit_msgrate", KVP_OPT_REAL, "0", "0..1000000", "-y: likewise, in Mpps"},
	{"limit_p99", KVP_OPT_REAL, "0", "0..1000000000", "status 1 if p99 is above, usec"},
	{"out_json", KVP_OPT_BOOL, "false", NULL, "also write the results as JSON"},
	{"out_json_file", KVP_OPT_STRING, "", NULL, "where to; implies it (kvpool_perf_out.json)"},
	{"CPU-freq", KVP_OPT_BOOL, "false", NULL, "-F: no warning about CPU frequency"},
	{"rdma_cm", KVP_OPT_BOOL, "false", NULL, "-R: accepted; transports connect as they can"},
	{"ib-dev", KVP_OPT_STRING, "", NULL, "-d: the transport's device"},
	{"provider", KVP_OPT_STRING, "", NULL, "libfabric's provider"},
	{"server", KVP_OPT_BOOL, "false", NULL,
		"raw: serve one client, which tells the settings; prints a ticket for it"},
	{"listen", KVP_OPT_STRING, "", NULL, "of the server: host (127.0.0.1), or socket for shm"},
	{"port", KVP_OPT_UINT, "18515", "0..65534", "-p: of the server; data is on the next"},
	{"ticket-file", KVP_OPT_STRING, "", NULL, "the server writes its ticket here, too"},
	{"ticket", KVP_OPT_STRING, "", NULL,
		"the server's ticket, a file with it, or - for stdin; none: a server of our own"},
	{"meta", KVP_OPT_STRING, "", NULL, "pool: metadata servers, comma separated"},
	{"node", KVP_OPT_STRING, "", NULL, "pool: home node, which holds the blocks"},
	{"deadline", KVP_OPT_TIME, "5s", "1ms..10min", "pool: of one batch"},
	{"verify", KVP_OPT_CHOICE, "sampled", "off|sampled|always", "pool: checksums of gets"},
	{"checksum", KVP_OPT_CHOICE, "client", "client|none", "pool: checksums of puts"},
};
#define OPT_COUNT (sizeof(perf_opts) / sizeof(perf_opts[0]))

static const char *
text_or_null(const struct kvp_opts *opts, const char *path)
{
	const char *text = kvp_opt_str(opts, path);

	return *text == '\0' ? NULL : text;
}

static bool
is(const struct kvp_opts *opts, const char *path, const char *text)
{
	return strcmp(kvp_opt_str(opts, path), text) == 0;
}

static uint64_t
number_or(const struct kvp_opts *opts, const char *path, uint64_t otherwise)
{
	uint64_t number = kvp_opt_num(opts, path);

	return number != 0 ? number : otherwise;
}

static uint64_t
seconds_ns(double seconds)
{
	return (uint64_t)(seconds * 1e9);
}

static enum kvp_perf_via
via_of(const struct kvp_opts *opts)
{
	if (is(opts, "via", "both")) {
		return KVP_PERF_BOTH;
	}
	if (is(opts, "via", "auto")) {
		return is(opts, "op", "get") || is(opts, "op", "put") ? KVP_PERF_POOL
								      : KVP_PERF_RAW;
	}
	return is(opts, "via", "pool") ? KVP_PERF_POOL : KVP_PERF_RAW;
}

static enum kvp_perf_output
output_of(const struct kvp_opts *opts)
{
	if (is(opts, "output", "bandwidth")) {
		return KVP_PERF_OUT_BW;
	}
	if (is(opts, "output", "message_rate")) {
		return KVP_PERF_OUT_RATE;
	}
	return is(opts, "output", "latency") ? KVP_PERF_OUT_LAT : KVP_PERF_OUT_ALL;
}

static void
cfg_sizes(const struct kvp_opts *opts, struct kvp_perf_cfg *cfg)
{
	bool bw = cfg->test == KVP_PERF_BW;
	double duration = kvp_opt(opts, "duration")->real;
	double margin = kvp_opt(opts, "margin")->real;

	cfg->write = is(opts, "op", "write") || is(opts, "op", "put");
	cfg->size = number_or(opts, "size", bw ? SIZE_BW_DEFAULT : SIZE_LAT_DEFAULT);
	cfg->iters =
		number_or(opts, "iters", bw && cfg->write ? ITERS_WRITE_BW_DEFAULT : ITERS_DEFAULT);
	cfg->duration_ns = seconds_ns(duration);
	cfg->margin_ns = seconds_ns(margin < 0 ? duration / 4 : margin);
	cfg->depth = (uint32_t)number_or(opts, "tx-depth", bw ? DEPTH_BW_DEFAULT : 1);
	cfg->batch = (uint32_t)number_or(opts, "post_list", kvp_opt_num(opts, "batch"));
	cfg->segments = (uint32_t)kvp_opt_num(opts, "segments");
	cfg->qps = (uint32_t)kvp_opt_num(opts, "qp");
	cfg->rounds = (uint32_t)kvp_opt_num(opts, "rounds");
	cfg->region = kvp_opt_num(opts, "region");
}

static void
cfg_report(const struct kvp_opts *opts, struct kvp_perf_cfg *cfg)
{
	const char *path = text_or_null(opts, "out_json_file");

	cfg->all = kvp_opt_num(opts, "all") != 0;
	cfg->no_peak = kvp_opt_num(opts, "noPeak") != 0;
	cfg->validate = kvp_opt_num(opts, "data_validation") != 0;
	cfg->events = kvp_opt_num(opts, "events") != 0;
	cfg->warm_up = kvp_opt_num(opts, "perform_warm_up") != 0;
	cfg->cpu_util = kvp_opt_num(opts, "cpu_util") != 0;
	cfg->gbits = kvp_opt_num(opts, "report_gbits") != 0;
	cfg->histogram = kvp_opt_num(opts, "report-histogram") != 0;
	cfg->unsorted = kvp_opt_num(opts, "report-unsorted") != 0;
	cfg->quiet_cpu = kvp_opt_num(opts, "CPU-freq") != 0;
	cfg->output = output_of(opts);
	cfg->limit_bw = kvp_opt(opts, "limit_bw")->real;
	cfg->limit_msgrate = kvp_opt(opts, "limit_msgrate")->real;
	cfg->limit_p99_us = kvp_opt(opts, "limit_p99")->real;
	cfg->json = kvp_opt_num(opts, "out_json") != 0 || path != NULL;
	cfg->json_path = path != NULL ? path : "kvpool_perf_out.json";
}

static void
cfg_sides(const struct kvp_opts *opts, struct kvp_perf_cfg *cfg)
{
	cfg->via = via_of(opts);
	cfg->transport = kvp_opt_str(opts, "transport");
	cfg->device = text_or_null(opts, "ib-dev");
	cfg->provider = text_or_null(opts, "provider");
	cfg->server = kvp_opt_num(opts, "server") != 0;
	cfg->ticket = text_or_null(opts, "ticket");
	cfg->ticket_file = text_or_null(opts, "ticket-file");
	cfg->listen = text_or_null(opts, "listen");
	cfg->port = (uint16_t)kvp_opt_num(opts, "port");
	cfg->meta = text_or_null(opts, "meta");
	cfg->node = text_or_null(opts, "node");
	cfg->deadline_ms = (uint32_t)kvp_opt_num(opts, "deadline");
	cfg->verify = is(opts, "verify", "off")      ? KVP_VERIFY_OFF
		      : is(opts, "verify", "always") ? KVP_VERIFY_ALWAYS
						     : KVP_VERIFY_SAMPLED;
	cfg->checksum = is(opts, "checksum", "none") ? KVP_CHECKSUM_NONE : KVP_CHECKSUM_CLIENT;
}

static int
mistake(const char *text)
{
	fprintf(stderr, "kvpool-perf: %s\n", text);
	return -EINVAL;
}

static int
transport_check(const char *name)
{
	const struct kvp_xport_ops *const *all;
	size_t count;

	if (strcmp(name, "auto") == 0 || kvp_xport_find(name) != NULL) {
		return 0;
	}
	all = kvp_xport_all(&count);
	fprintf(stderr, "kvpool-perf: --transport: no '%s'; accepted: auto", name);
	for (size_t i = 0; i < count; i++) {
		fprintf(stderr, ", %s", all[i]->name);
	}
	fputc('\n', stderr);
	return -EINVAL;
}

/* What single options cannot say. */
static int
cfg_check(const struct kvp_perf_cfg *cfg)
{
	bool bw = cfg->test == KVP_PERF_BW;

	if (cfg->duration_ns > 0 && cfg->duration_ns <= 2 * cfg->margin_ns) {
		return mistake("--duration must be longer than twice --margin");
	}
	if (!cfg->all && cfg->size < cfg->segments) {
		return mistake("--segments: more than --size has bytes");
	}
	if (cfg->via != KVP_PERF_RAW && cfg->qps > 1) {
		return mistake("--qp: the pool's client makes its own connections");
	}
	if (cfg->server && (cfg->ticket != NULL || cfg->via != KVP_PERF_RAW)) {
		return mistake("--server: for raw only, and without --ticket");
	}
	if (!cfg->server && cfg->ticket_file != NULL) {
		return mistake("--ticket-file: of a --server only");
	}
	if ((bw && cfg->output == KVP_PERF_OUT_LAT) ||
		(!bw && cfg->output != KVP_PERF_OUT_LAT && cfg->output != KVP_PERF_OUT_ALL)) {
		return mistake("--output: bandwidth or message_rate for bw, latency for lat");
	}
	if (!bw && cfg->limit_bw > 0) {
		return mistake("--limit_bw: for bw only");
	}
	return transport_check(cfg->transport);
}

static int
opts_use(struct kvp_opts *opts, struct kvp_perf_cfg *cfg)
{
	const char *name = cfg->test == KVP_PERF_BW ? "bw" : "lat";
	char usage[96];

	if (opts->help) {
		snprintf(usage, sizeof(usage), "kvpool-perf %s [--server | --ticket T] [options]",
			name);
		kvp_opts_help(perf_opts, OPT_COUNT, usage);
		return KVP_CMD_OK + 1;
	}
	if (opts->version) {
		printf("kvpool-perf %s\n", kvp_version());
		return KVP_CMD_OK + 1;
	}
	if (opts->print_config) {
		kvp_opts_print(opts);
		return KVP_CMD_OK + 1;
	}
	if (opts->arg_count > 0) {
		fprintf(stderr,
			"kvpool-perf: unexpected argument '%s': a server is reached by --ticket\n",
			opts->args[0]);
		return KVP_CMD_USAGE + 1;
	}
	cfg_sizes(opts, cfg);
	cfg_report(opts, cfg);
	cfg_sides(opts, cfg);
	return cfg_check(cfg) < 0 ? KVP_CMD_USAGE + 1 : 0;
}

int
kvp_perf_opts_load(enum kvp_perf_test test, int argc, char **argv, struct kvp_opts *ret_opts,
	struct kvp_perf_cfg *ret_cfg)
{
	char **long_argv = NULL;
	int long_argc = 0;
	int ret;

	memset(ret_opts, 0, sizeof(*ret_opts));
	memset(ret_cfg, 0, sizeof(*ret_cfg));
	ret_cfg->test = test;
	ret = kvp_perf_args_expand(
		argc, argv, &long_argc, &long_argv, ret_opts->error, sizeof(ret_opts->error));
	if (ret == 0) {
		ret = kvp_opts_load(
			ret_opts, perf_opts, OPT_COUNT, long_argc, long_argv, environ, NULL);
	}
	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: %s\n", ret_opts->error);
		ret = KVP_CMD_USAGE + 1;
	} else {
		ret = opts_use(ret_opts, ret_cfg);
	}
	free(long_argv);
	return ret;
}

void
kvp_perf_opts_free(struct kvp_opts *opts)
{
	kvp_opts_free(opts);
}
