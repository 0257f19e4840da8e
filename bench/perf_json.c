/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_json.c - a run as JSON: perftest's names where it has them, "results" a list with an element
 * for each row, and always "status" (the exit status) and "error" (text or null).
 */
#include "bench/perf_report.h"
#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
set(json_t *object, const char *name, json_t *value)
{
	(void)json_object_set_new(object, name, value); /* lack of memory shows in the dump */
}

static void
set_number(json_t *object, const char *name, uint64_t number)
{
	set(object, name, json_integer((json_int_t)number));
}

static json_t *
info_json(const struct kvp_perf_cfg *cfg)
{
	static const char *const vias[] = {
		[KVP_PERF_RAW] = "raw", [KVP_PERF_POOL] = "pool", [KVP_PERF_BOTH] = "both"};
	json_t *info = json_object();
	char text[160];

	kvp_perf_test_name(cfg, cfg->via == KVP_PERF_POOL ? "pool" : "raw", text);
	set(info, "test", json_string(text));
	set(info, "via", json_string(vias[cfg->via]));
	set(info, "Device", json_string(cfg->device != NULL ? cfg->device : "any"));
	set(info, "Transport_type", json_string(cfg->transport));
	set_number(info, "Number_of_qps", cfg->qps);
	set_number(info, "TX_depth", cfg->depth);
	set_number(info, "Post_list", cfg->batch);
	set_number(info, "segments", cfg->segments);
	set_number(info, "region", cfg->region);
	set_number(info, "rounds", cfg->via == KVP_PERF_BOTH ? cfg->rounds : 1);
	set(info, "duration_s", json_real((double)cfg->duration_ns / 1e9));
	set(info, "BW_unit", json_string(cfg->gbits ? "Gb/sec" : "MiB/sec"));
	set(info, "data_validation", json_boolean(cfg->validate));
	kvp_perf_machine_name(text, sizeof(text));
	set(info, "machine", json_string(text));
	return info;
}

static json_t *
row_json(const struct kvp_perf_cfg *cfg, const struct kvp_perf_result *result)
{
	static const struct {
		const char *name;
		double share;
	} percentiles[] = {{"percentile_50", 0.5}, {"percentile_90", 0.9}, {"percentile_99", 0.99},
		{"percentile_99.9", 0.999}, {"percentile_99.99", 0.9999}};
	json_t *row = json_object();

	set_number(row, "MsgSize", result->shape.size);
	set_number(row, "n_iterations", result->ops);
	set(row, "via", json_string(result->via));
	set(row, "transport", json_string(result->transport));
	set(row, "BW_peak", json_real(cfg->no_peak ? 0 : kvp_perf_bw(cfg, result->peak_bps)));
	set(row, "BW_average", json_real(kvp_perf_bw(cfg, kvp_perf_bps(result))));
	set(row, "MsgRate", json_real(kvp_perf_msgrate(result)));
	set(row, "t_min", json_real((double)result->hist.min_ns / 1e3));
	set(row, "t_max", json_real((double)result->hist.max_ns / 1e3));
	set(row, "t_typical", json_real(kvp_perf_us(result, 0.5)));
	set(row, "t_avg", json_real(result->mean_ns / 1e3));
	set(row, "t_stdev", json_real(kvp_perf_stdev_us(result)));
	for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
		set(row, percentiles[i].name, json_real(kvp_perf_us(result, percentiles[i].share)));
	}
	set_number(row, "units_in_flight", result->shape.units);
	set_number(row, "blocks", result->shape.blocks);
	set(row, "cpu_s_per_GB", json_real(kvp_perf_s_per_gb(result, result->cpu_ns)));
	set(row, "server_cpu_s_per_GB",
		result->peer_cpu_ns < 0
			? json_null()
			: json_real(kvp_perf_s_per_gb(result, result->peer_cpu_ns)));
	set_number(row, "wrong_bytes", result->wrong_bytes);
	if (cfg->cpu_util) {
		set(row, "CPU_util", json_real(result->cpu_util));
	}
	return row;
}

static json_t *
ratio_json(const struct kvp_perf_ratio *ratio)
{
	json_t *object = json_object();

	set_number(object, "MsgSize", ratio->size);
	set_number(object, "rounds", ratio->rounds);
	set(object, "median", json_real(ratio->median));
	set(object, "low", json_real(ratio->low));
	set(object, "high", json_real(ratio->high));
	set(object, "best", json_real(ratio->best));
	return object;
}

int
kvp_perf_json_write(const struct kvp_perf *perf, const struct kvp_perf_rows *rows, int status)
{
	const char *path = perf->cfg->json_path;
	json_t *root = json_object();
	json_t *results = json_array();
	json_t *ratios = json_array();
	int ret = -ENOMEM;
	char *text;

	for (uint32_t i = 0; i < rows->count; i++) {
		(void)json_array_append_new(results, row_json(perf->cfg, rows->results[i]));
	}
	for (uint32_t i = 0; i < rows->ratio_count; i++) {
		(void)json_array_append_new(ratios, ratio_json(&rows->ratios[i]));
	}
	set(root, "test_info", info_json(perf->cfg));
	set(root, "results", results);
	set(root, "pool_to_raw", ratios);
	set(root, "status", json_integer(status));
	set(root, "error", perf->error[0] != '\0' ? json_string(perf->error) : json_null());
	set(root, "interrupted", json_boolean(perf->stopped));
	text = json_dumps(root, JSON_INDENT(2));
	if (text != NULL) {
		ret = kvp_file_replace(path, text, strlen(text), 0644);
	}
	free(text);
	json_decref(root);
	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: cannot write %s: %s\n", path, kvp_err_str(ret));
	}
	return ret;
}
