/* SPDX-License-Identifier: Apache-2.0 */
/* replay_report.c - what a replay measured, as a table and as JSON. GB are 1e9 bytes. */
#include "bench/replay.h"

#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const media[KVP_REPLAY_MEDIA] = {"local", "remote"};

static void
flows_add(struct kvp_replay_flow *into, const struct kvp_replay_flow *from)
{
	for (int m = 0; m < KVP_REPLAY_MEDIA; m++) {
		into[m].blocks += from[m].blocks;
		into[m].bytes += from[m].bytes;
		into[m].busy_ns += from[m].busy_ns;
	}
}

void
kvp_replay_stats_add(struct kvp_replay_stats *into, const struct kvp_replay_stats *from)
{
	into->requests += from->requests;
	into->input_tokens += from->input_tokens;
	into->hit_tokens += from->hit_tokens;
	into->blocks_matched += from->blocks_matched;
	into->blocks_hit += from->blocks_hit;
	into->blocks_put += from->blocks_put;
	into->blocks_exist += from->blocks_exist;
	into->blocks_refused += from->blocks_refused;
	into->decode_hits += from->decode_hits;
	into->decode_misses += from->decode_misses;
	into->errors += from->errors;
	into->unindexed += from->unindexed;
	into->wrong_bytes += from->wrong_bytes;
	into->first_error = into->first_error != 0 ? into->first_error : from->first_error;
	flows_add(into->read, from->read);
	flows_add(into->written, from->written);
	kvp_hist_merge(&into->request_ns, &from->request_ns);
	kvp_hist_merge(&into->decode_ns, &from->decode_ns);
}

static double
ratio(uint64_t part, uint64_t whole)
{
	return whole == 0 ? 0 : (double)part / (double)whole;
}

static double
flow_rate(const struct kvp_replay_flow *flow)
{
	return ratio(flow->bytes, flow->busy_ns); /* bytes per ns are GB/s */
}

static void
flow_print(const char *what, const struct kvp_replay_flow flow[KVP_REPLAY_MEDIA])
{
	for (int m = 0; m < KVP_REPLAY_MEDIA; m++) {
		printf("  %-8s %-7s %9" PRIu64 " blocks %9.3f GB %8.2f GB/s\n", what, media[m],
			flow[m].blocks, (double)flow[m].bytes / 1e9, flow_rate(&flow[m]));
	}
}

static void
hist_print(const char *what, const struct kvp_hist *hist)
{
	printf("  %-16s p50 %9.1f us   p99 %9.1f us   max %9.1f us\n", what,
		(double)kvp_hist_percentile(hist, 0.5) / 1e3,
		(double)kvp_hist_percentile(hist, 0.99) / 1e3, (double)hist->max_ns / 1e3);
}

void
kvp_replay_print(
	const struct kvp_replay_cfg *cfg, const struct kvp_replay_stats *stats, uint64_t wall_ns)
{
	printf("replay of %s: %" PRIu64 " requests, %u client%s, blocks of %" PRIu64 " B\n",
		cfg->trace_path, stats->requests, cfg->clients, cfg->clients == 1 ? "" : "s",
		cfg->block_bytes);
	printf("  %-16s %.1f s, %.0f requests/s\n", "wall", (double)wall_ns / 1e9,
		wall_ns == 0 ? 0 : (double)stats->requests * 1e9 / (double)wall_ns);
	printf("  %-16s %.4f (%" PRIu64 " of %" PRIu64 " tokens)\n", "hit tokens",
		ratio(stats->hit_tokens, stats->input_tokens), stats->hit_tokens,
		stats->input_tokens);
	printf("  %-16s matched %" PRIu64 ", hit %" PRIu64 ", put %" PRIu64 ", existed %" PRIu64
	       ", refused %" PRIu64 "\n",
		"blocks", stats->blocks_matched, stats->blocks_hit, stats->blocks_put,
		stats->blocks_exist, stats->blocks_refused);
	if (cfg->decode_node != NULL) {
		printf("  %-16s hit %" PRIu64 ", missed %" PRIu64 "\n", "decode blocks",
			stats->decode_hits, stats->decode_misses);
	}
	flow_print("read", stats->read);
	flow_print("written", stats->written);
	hist_print("per request", &stats->request_ns);
	if (cfg->decode_node != NULL) {
		hist_print("per decode get", &stats->decode_ns);
	}
	printf("  %-16s %" PRIu64 " (%s), unindexed puts %" PRIu64 "\n", "errors", stats->errors,
		kvp_err_str(stats->first_error), stats->unindexed);
	printf("  %-16s %" PRIu64 "\n", "wrong bytes", stats->wrong_bytes);
}

static json_t *
flow_json(const struct kvp_replay_flow flow[KVP_REPLAY_MEDIA])
{
	json_t *all = json_object();

	for (int m = 0; m < KVP_REPLAY_MEDIA; m++) {
		json_object_set_new(all, media[m],
			json_pack("{s:I,s:I,s:f}", "blocks", (json_int_t)flow[m].blocks, "bytes",
				(json_int_t)flow[m].bytes, "gb_per_s", flow_rate(&flow[m])));
	}
	return all;
}

static json_t *
hist_json(const struct kvp_hist *hist)
{
	return json_pack("{s:I,s:f,s:f,s:f}", "count", (json_int_t)hist->count, "p50_us",
		(double)kvp_hist_percentile(hist, 0.5) / 1e3, "p99_us",
		(double)kvp_hist_percentile(hist, 0.99) / 1e3, "max_us",
		(double)hist->max_ns / 1e3);
}

static json_t *
replay_to_json(
	const struct kvp_replay_cfg *cfg, const struct kvp_replay_stats *stats, uint64_t wall_ns)
{
	json_t *test =
		json_pack("{s:s,s:s,s:I,s:i,s:i,s:b}", "test", "replay", "trace", cfg->trace_path,
			"block_bytes", (json_int_t)cfg->block_bytes, "clients", (int)cfg->clients,
			"block_tokens", (int)cfg->block_tokens, "decode", cfg->decode_node != NULL);
	json_t *blocks = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "matched",
		(json_int_t)stats->blocks_matched, "hit", (json_int_t)stats->blocks_hit, "put",
		(json_int_t)stats->blocks_put, "existed", (json_int_t)stats->blocks_exist,
		"refused", (json_int_t)stats->blocks_refused, "decode_hit",
		(json_int_t)stats->decode_hits, "decode_missed", (json_int_t)stats->decode_misses);
	json_t *results = json_pack("{s:I,s:f,s:f,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:I}", "requests",
		(json_int_t)stats->requests, "wall_s", (double)wall_ns / 1e9, "hit_token_ratio",
		ratio(stats->hit_tokens, stats->input_tokens), "blocks", blocks, "read",
		flow_json(stats->read), "written", flow_json(stats->written), "request",
		hist_json(&stats->request_ns), "decode", hist_json(&stats->decode_ns), "errors",
		(json_int_t)stats->errors, "unindexed", (json_int_t)stats->unindexed, "wrong_bytes",
		(json_int_t)stats->wrong_bytes);

	return json_pack("{s:o,s:o}", "test_info", test, "results", results);
}

int
kvp_replay_json(const struct kvp_replay_cfg *cfg, const struct kvp_replay_stats *stats,
	uint64_t wall_ns, const char *json_path)
{
	json_t *root = replay_to_json(cfg, stats, wall_ns);
	char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
	int ret = -ENOMEM;

	if (text != NULL) {
		ret = kvp_file_replace(json_path, text, strlen(text), 0644);
	}
	free(text);
	json_decref(root);
	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: cannot write %s: %s\n", json_path, kvp_err_str(ret));
	}
	return ret;
}
