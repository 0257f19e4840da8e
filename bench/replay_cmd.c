/* SPDX-License-Identifier: Apache-2.0 */
/* replay_cmd.c - kvpool-perf replay: its options and its exit status. */
#include "bench/cmd.h"
#include "bench/replay.h"
#include "hal/base/opt.h"

#include <kvpool/kvpool.h>

#include <stdio.h>
#include <string.h>

extern char **environ;

static const struct kvp_opt_desc replay_opts[] = {
	{"trace", KVP_OPT_STRING, "", NULL, "request trace, JSON lines, plain or gzipped"},
	{"block-bytes", KVP_OPT_SIZE, "4096", "64..128MiB", "bytes of one block"},
	{"block-tokens", KVP_OPT_UINT, "512", "1..65536", "tokens of one block of the trace"},
	{"requests", KVP_OPT_UINT, "0", "0..100000000", "how many of the trace; 0: all"},
	{"clients", KVP_OPT_UINT, "1", "1..64", "workers; each has a client of its own"},
	{"meta", KVP_OPT_STRING, "", NULL, "metadata servers, comma separated"},
	{"node", KVP_OPT_STRING, "", NULL, "node the prefill clients put to"},
	{"transport", KVP_OPT_CHOICE, "auto", "auto|shm|ofi", "of the prefill clients"},
	{"decode-node", KVP_OPT_STRING, "", NULL, "home node of the decode clients; empty: none"},
	{"decode-transport", KVP_OPT_CHOICE, "auto", "auto|shm|ofi", "of the decode clients"},
	{"deadline", KVP_OPT_TIME, "5s", "1ms..10min", "of one operation"},
	{"verify", KVP_OPT_CHOICE, "sampled", "off|sampled|always",
		"the library's own check of payload checksums (the tool checks every byte itself)"},
	{"out_json", KVP_OPT_BOOL, "false", NULL, "also write the results as JSON"},
	{"out_json_file", KVP_OPT_STRING, "kvpool_perf_out.json", NULL, "where to"},
};
#define REPLAY_OPT_COUNT (sizeof(replay_opts) / sizeof(replay_opts[0]))

static const char *
text_or_null(const struct kvp_opts *opts, const char *path)
{
	const char *text = kvp_opt_str(opts, path);

	return *text == '\0' ? NULL : text;
}

static uint32_t
verify_of(const char *text)
{
	if (strcmp(text, "off") == 0) {
		return KVP_VERIFY_OFF;
	}
	return strcmp(text, "always") == 0 ? KVP_VERIFY_ALWAYS : KVP_VERIFY_SAMPLED;
}

static int
replay_go(const struct kvp_opts *opts)
{
	struct kvp_replay_cfg cfg = {
		.trace_path = kvp_opt_str(opts, "trace"),
		.meta = text_or_null(opts, "meta"),
		.node = text_or_null(opts, "node"),
		.transport = kvp_opt_str(opts, "transport"),
		.decode_node = text_or_null(opts, "decode-node"),
		.decode_transport = kvp_opt_str(opts, "decode-transport"),
		.block_bytes = kvp_opt_num(opts, "block-bytes"),
		.block_tokens = (uint32_t)kvp_opt_num(opts, "block-tokens"),
		.requests = (uint32_t)kvp_opt_num(opts, "requests"),
		.clients = (uint32_t)kvp_opt_num(opts, "clients"),
		.deadline_ms = (uint32_t)kvp_opt_num(opts, "deadline"),
		.verify = verify_of(kvp_opt_str(opts, "verify")),
	};
	struct kvp_replay_stats stats;
	uint64_t wall_ns = 0;
	int ret = kvp_replay_run(&cfg, &stats, &wall_ns);

	if (ret < 0) {
		return KVP_CMD_TRANSPORT;
	}
	kvp_replay_print(&cfg, &stats, wall_ns);
	if (kvp_opt_num(opts, "out_json") != 0) {
		ret = kvp_replay_json(&cfg, &stats, wall_ns, kvp_opt_str(opts, "out_json_file"));
	}
	if (stats.wrong_bytes > 0) {
		return KVP_CMD_DATA;
	}
	return ret < 0 || stats.errors > 0 ? KVP_CMD_TRANSPORT : KVP_CMD_OK;
}

int
kvp_cmd_replay(int argc, char **argv)
{
	static const char usage[] = "kvpool-perf replay --trace FILE [options]";
	struct kvp_opts opts;
	int status = KVP_CMD_USAGE;
	int ret = kvp_opts_load(&opts, replay_opts, REPLAY_OPT_COUNT, argc, argv, environ, NULL);

	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: %s\n", opts.error);
	} else if (opts.help) {
		kvp_opts_help(replay_opts, REPLAY_OPT_COUNT, usage);
		status = KVP_CMD_OK;
	} else if (opts.version) {
		printf("kvpool-perf %s\n", kvp_version());
		status = KVP_CMD_OK;
	} else if (opts.print_config) {
		kvp_opts_print(&opts);
		status = KVP_CMD_OK;
	} else if (opts.arg_count > 0) {
		fprintf(stderr, "kvpool-perf: unexpected argument '%s'\n", opts.args[0]);
	} else if (*kvp_opt_str(&opts, "trace") == '\0') {
		fprintf(stderr, "kvpool-perf: --trace FILE is missing; usage: %s\n", usage);
	} else {
		status = replay_go(&opts);
	}
	kvp_opts_free(&opts);
	return status;
}
