/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_report.c - tables. The formats of perftest's rows are an interface: scripts take the fields
 * by number. Rows of our own second table begin with a word, so that those scripts pass them over.
 */
#include "bench/perf_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

double
kvp_perf_bw(const struct kvp_perf_cfg *cfg, double bytes_per_s)
{
	return cfg->gbits ? bytes_per_s * 8 / 1e9 : bytes_per_s / MIB;
}

double
kvp_perf_bps(const struct kvp_perf_result *result)
{
	return result->wall_ns == 0 ? 0 : (double)result->bytes * 1e9 / (double)result->wall_ns;
}

double
kvp_perf_msgrate(const struct kvp_perf_result *result)
{
	return result->wall_ns == 0 ? 0 : (double)result->ops * 1e3 / (double)result->wall_ns;
}

double
kvp_perf_us(const struct kvp_perf_result *result, double share)
{
	return (double)kvp_hist_percentile(&result->hist, share) / 1e3;
}

double
kvp_perf_stdev_us(const struct kvp_perf_result *result)
{
	uint64_t count = result->hist.count;

	return count < 2 ? 0 : sqrt(result->m2_ns / (double)(count - 1)) / 1e3;
}

double
kvp_perf_s_per_gb(const struct kvp_perf_result *result, double cpu_ns)
{
	return result->moved == 0 ? 0 : cpu_ns / (double)result->moved; /* ns/B are s/GB */
}

void
kvp_perf_test_name(const struct kvp_perf_cfg *cfg, const char *via, char buf[32])
{
	const char *op = strcmp(via, "raw") == 0 ? (cfg->write ? "RDMA_Write" : "RDMA_Read")
						 : (cfg->write ? "KV_Put" : "KV_Get");

	snprintf(buf, 32, "%s %s", op, cfg->test == KVP_PERF_BW ? "BW" : "Latency");
}

void
kvp_perf_report_line(const struct kvp_perf_cfg *cfg)
{
	if (cfg->output == KVP_PERF_OUT_ALL) {
		printf("--------------------------------------------"
		       "-------------------------------------------\n");
	}
}

static void
report_head(const struct kvp_perf_cfg *cfg)
{
	if (cfg->test == KVP_PERF_BW) {
		const char *unit = cfg->gbits ? "Gb/sec" : "MiB/sec";

		printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]",
			unit, unit);
	} else if (cfg->duration_ns > 0) {
		printf(" #bytes        #iterations       t_avg[usec]    tps average");
	} else {
		printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
		       "t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   "
		       "99.9%% percentile[usec] ");
	}
	printf("%s\n", cfg->cpu_util ? "    CPU_Util[%]" : "");
}

void
kvp_perf_report_banner(const struct kvp_perf_cfg *cfg, const char *via, const char *transport)
{
	char name[32];

	if (cfg->output != KVP_PERF_OUT_ALL) {
		return;
	}
	kvp_perf_test_name(cfg, via, name);
	kvp_perf_report_line(cfg);
	printf("                    %s Test\n", name);
	printf(" Device          : %s\t\tTransport type : %s\n",
		cfg->device != NULL ? cfg->device : "any", transport);
	printf(" Number of qps   : %u\t\tVia            : %s\n", cfg->qps, via);
	printf(" TX depth        : %u\t\tPost List      : %u\n", cfg->depth, cfg->batch);
	printf(" Segments        : %u\t\tRegion         : %" PRIu64 "\n", cfg->segments,
		cfg->region);
	printf(" Data validation : %s\n", cfg->validate ? "ON, and its time counts" : "OFF");
	kvp_perf_report_line(cfg);
	report_head(cfg);
	(void)fflush(stdout);
}

static void
row_bw(const struct kvp_perf_cfg *cfg, const struct kvp_perf_result *result)
{
	printf(" %-7lu    %-10" PRIu64 "       %-7.2lf            %-7.2lf\t\t     %-7.6lf",
		(unsigned long)result->shape.size, result->ops,
		cfg->no_peak ? 0.0 : kvp_perf_bw(cfg, result->peak_bps),
		kvp_perf_bw(cfg, kvp_perf_bps(result)), kvp_perf_msgrate(result));
}

static void
row_lat(const struct kvp_perf_cfg *cfg, const struct kvp_perf_result *result)
{
	double mean_us = result->mean_ns / 1e3;

	if (cfg->duration_ns > 0) {
		printf(" %-7lu       %" PRIu64 "            %-7.2f        %-7.2f",
			(unsigned long)result->shape.size, result->ops, mean_us,
			kvp_perf_msgrate(result) * 1e6);
		return;
	}
	printf(" %-7lu %" PRIu64 "          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     "
	       "\t%-7.2f\t\t%-7.2f \t\t%-7.2f",
		(unsigned long)result->shape.size, result->ops, (double)result->hist.min_ns / 1e3,
		(double)result->hist.max_ns / 1e3, kvp_perf_us(result, 0.5), mean_us,
		kvp_perf_stdev_us(result), kvp_perf_us(result, 0.99), kvp_perf_us(result, 0.999));
}

void
kvp_perf_report_row(const struct kvp_perf_cfg *cfg, const struct kvp_perf_result *result)
{
	if (cfg->output == KVP_PERF_OUT_BW) {
		printf("%f\n", kvp_perf_bw(cfg, kvp_perf_bps(result)));
	} else if (cfg->output == KVP_PERF_OUT_RATE) {
		printf("%f\n", kvp_perf_msgrate(result));
	} else if (cfg->output == KVP_PERF_OUT_LAT) {
		printf("%f\n", result->mean_ns / 1e3);
	} else {
		if (cfg->test == KVP_PERF_BW) {
			row_bw(cfg, result);
		} else {
			row_lat(cfg, result);
		}
		if (cfg->cpu_util) {
			printf("\t    %-3.2f", result->cpu_util);
		}
		printf("\n");
	}
	(void)fflush(stdout);
}

static void
more_row(const struct kvp_perf_result *result)
{
	char server[16] = "-";

	if (result->peer_cpu_ns >= 0) {
		snprintf(server, sizeof(server), "%.4f",
			kvp_perf_s_per_gb(result, result->peer_cpu_ns));
	}
	printf(" %-5s %-10s %9" PRIu64 " %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %11.4f %11s\n",
		result->via, result->transport, result->shape.size, kvp_perf_us(result, 0.5),
		kvp_perf_us(result, 0.9), kvp_perf_us(result, 0.99), kvp_perf_us(result, 0.999),
		kvp_perf_us(result, 0.9999), (double)result->hist.max_ns / 1e3,
		kvp_perf_s_per_gb(result, result->cpu_ns), server);
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void
samples_print(struct kvp_perf_result *result, bool sorted)
{
	if (sorted) {
		qsort(result->samples, result->sample_count, sizeof(*result->samples), by_value);
	}
	printf("#, usec\n");
	for (size_t i = 0; i < result->sample_count; i++) {
		printf("%zu, %.3f\n", i + 1, (double)result->samples[i] / 1e3);
	}
}

void
kvp_perf_report_more(const struct kvp_perf_cfg *cfg, const struct kvp_perf_rows *rows)
{
	if (cfg->output != KVP_PERF_OUT_ALL || rows->count == 0) {
		return;
	}
	printf(" via   transport     #bytes       p50       p90       p99     p99.9    p99.99"
	       "       max   CPU[s/GB]  server CPU\n");
	for (uint32_t i = 0; i < rows->count; i++) {
		more_row(rows->results[i]);
	}
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct kvp_perf_result *result = rows->results[i];

		if (cfg->validate) {
			printf(" check %-5s %9" PRIu64 " bytes: %" PRIu64 " wrong\n", result->via,
				result->shape.size, result->wrong_bytes);
		}
	}
	for (uint32_t i = 0; i < rows->ratio_count; i++) {
		const struct kvp_perf_ratio *ratio = &rows->ratios[i];

		printf(" pool/raw %9" PRIu64 " bytes: %.3f (median of %u rounds in turns, %.3f to "
		       "%.3f; best by best %.3f)\n",
			ratio->size, ratio->median, ratio->rounds, ratio->low, ratio->high,
			ratio->best);
	}
	kvp_perf_report_line(cfg);
	for (uint32_t i = 0; i < rows->count && (cfg->histogram || cfg->unsorted); i++) {
		samples_print(rows->results[i], cfg->histogram);
	}
}

static bool
limit_met(const char *what, double value, double limit, bool above, const char *via)
{
	bool met = limit <= 0 || (above ? value >= limit : value <= limit);

	if (!met) {
		fprintf(stderr, "kvpool-perf: %s: --%s missed: %g, limit %g\n", via, what, value,
			limit);
	}
	return met;
}

bool
kvp_perf_limits_met(const struct kvp_perf_cfg *cfg, const struct kvp_perf_rows *rows)
{
	bool met = true;

	for (uint32_t i = 0; i < rows->count; i++) {
		const struct kvp_perf_result *result = rows->results[i];

		met &= limit_met("limit_bw", kvp_perf_bw(cfg, kvp_perf_bps(result)), cfg->limit_bw,
			true, result->via);
		met &= limit_met("limit_msgrate", kvp_perf_msgrate(result), cfg->limit_msgrate,
			true, result->via);
		met &= limit_met("limit_p99", kvp_perf_us(result, 0.99), cfg->limit_p99_us, false,
			result->via);
	}
	return met;
}
