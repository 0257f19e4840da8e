/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_report.h - what was measured, for people and scripts: perftest's table byte for byte, then
 * a second one with what perftest does not tell; and the JSON (perf_json.c).
 */
#ifndef KVP_BENCH_PERF_REPORT_H
#define KVP_BENCH_PERF_REPORT_H

#include "bench/perf.h"

/* Pool against raw, of the rounds of one size. */
struct kvp_perf_ratio {
	uint64_t size;
	uint32_t rounds; /* 0: none */
	double low;
	double median;
	double high;
	double best; /* the pool's best round by raw's: a busy machine disturbs it least */
};

/* All of a run. */
struct kvp_perf_rows {
	struct kvp_perf_result **results;
	uint32_t count;
	struct kvp_perf_ratio *ratios;
	uint32_t ratio_count;
};

double kvp_perf_bw(const struct kvp_perf_cfg *cfg, double bytes_per_s); /* in the report's unit */
double kvp_perf_bps(const struct kvp_perf_result *result);              /* bytes a second */
double kvp_perf_msgrate(const struct kvp_perf_result *result);          /* Mpps */
double kvp_perf_us(const struct kvp_perf_result *result, double share); /* percentile */
double kvp_perf_stdev_us(const struct kvp_perf_result *result);
double kvp_perf_s_per_gb(const struct kvp_perf_result *result, double cpu_ns);
/* "RDMA_Read BW", "KV_Put LAT". */
void kvp_perf_test_name(const struct kvp_perf_cfg *cfg, const char *via, char buf[32]);

/* Nothing of these when --output names one number, but the rows: then they are that number. */
void kvp_perf_report_banner(const struct kvp_perf_cfg *cfg, const char *via, const char *transport);
void kvp_perf_report_row(const struct kvp_perf_cfg *cfg, const struct kvp_perf_result *result);
void kvp_perf_report_line(const struct kvp_perf_cfg *cfg);
void kvp_perf_report_more(const struct kvp_perf_cfg *cfg, const struct kvp_perf_rows *rows);

/* True when every limit that was given is met by every row. The misses are told. */
bool kvp_perf_limits_met(const struct kvp_perf_cfg *cfg, const struct kvp_perf_rows *rows);

/* perf_json.c: written in one piece. 0 or a negative error after telling it. */
int kvp_perf_json_write(const struct kvp_perf *perf, const struct kvp_perf_rows *rows, int status);

/* perf_machine.c: warns, as perftest does, of what makes figures wander. */
void kvp_perf_machine_warn(void);
/* "AMD EPYC, 2 CPUs, Linux 6.1.0". */
void kvp_perf_machine_name(char *buf, size_t cap);
/* Busy and all ticks of all CPUs so far; zeros when not to be had. */
struct kvp_perf_ticks {
	uint64_t busy;
	uint64_t all;
};
struct kvp_perf_ticks kvp_perf_machine_ticks(void);

#endif /* KVP_BENCH_PERF_REPORT_H */
