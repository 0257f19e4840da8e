/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_run.c - a whole run of bw or lat: the local buffers, the paths, sizes one after the other,
 * rounds in turns when there are two paths, and the exit status.
 */
#include "bench/perf_report.h"
#include "bench/perf_server.h"
#include "hal/base/err.h"
#include "hal/base/opt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SIZES_MAX 23 /* of -a: 2^1..2^23 */

struct run {
	struct kvp_perf perf;
	struct kvp_perf_rows rows;
	struct kvp_perf_result *results[2 * SIZES_MAX];
	struct kvp_perf_ratio ratios[SIZES_MAX];
	double round_ratios[KVP_PERF_ROUNDS_MAX];
	double best_bps[2]; /* rounds of raw and pool at this size */
	uint64_t wrong_bytes;
};

int
kvp_perf_fail(struct kvp_perf *perf, int err, const char *format, ...)
{
	char text[sizeof(perf->error)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "kvpool-perf: %s\n", text);
	if (perf->error[0] == '\0') {
		memcpy(perf->error, text, sizeof(text));
	}
	return err;
}

bool
kvp_perf_stopped(struct kvp_perf *perf)
{
	struct signalfd_siginfo info;

	if (!perf->stopped && read(perf->stop_fd, &info, sizeof(info)) == sizeof(info)) {
		perf->stopped = true;
	}
	return perf->stopped;
}

struct kvp_perf_shape
kvp_perf_shape_of(const struct kvp_perf_cfg *cfg, uint64_t size)
{
	uint64_t fit = cfg->region / kvp_perf_stride(size);
	uint32_t blocks = fit < KVP_PERF_BLOCKS_MAX ? (uint32_t)fit : KVP_PERF_BLOCKS_MAX;
	uint32_t units = cfg->depth / cfg->batch;

	/* Every operation in flight has a block of its own. */
	blocks = blocks < cfg->batch ? cfg->batch : blocks;
	units = units < blocks / cfg->batch ? units : blocks / cfg->batch;
	return (struct kvp_perf_shape){.size = size,
		.blocks = blocks,
		.units = units < 1 ? 1 : units,
		.batch = cfg->batch};
}

static uint64_t
size_at(const struct kvp_perf_cfg *cfg, uint32_t idx)
{
	return cfg->all ? 2ull << idx : cfg->size;
}

static uint32_t
size_count(const struct kvp_perf_cfg *cfg)
{
	return cfg->all ? SIZES_MAX : 1;
}

static int
run_buffers(struct run *run)
{
	struct kvp_perf *perf = &run->perf;
	void *buf;

	for (uint32_t i = 0; i < size_count(perf->cfg); i++) {
		struct kvp_perf_shape shape = kvp_perf_shape_of(perf->cfg, size_at(perf->cfg, i));
		uint64_t len = shape.blocks * kvp_perf_stride(shape.size);

		perf->buf_len = len > perf->buf_len ? len : perf->buf_len;
	}
	perf->buf_len = (perf->buf_len + 4095) & ~4095ull;
	buf = mmap(NULL, perf->buf_len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buf == MAP_FAILED) {
		return kvp_perf_fail(
			perf, -ENOMEM, "--region: no memory for %zu bytes", perf->buf_len);
	}
	perf->buf = buf;
	return 0;
}

/* Raw first: its server may be a fork of us, and the pool's client makes threads. */
static int
run_open(struct run *run)
{
	struct kvp_perf *perf = &run->perf;
	int ret = run_buffers(run);

	if (ret == 0 && (perf->cfg->via & KVP_PERF_RAW) != 0) {
		ret = kvp_perf_raw_open(perf, &perf->paths[perf->path_count]);
		perf->path_count += ret == 0;
	}
	if (ret == 0 && (perf->cfg->via & KVP_PERF_POOL) != 0) {
		ret = kvp_perf_pool_open(perf, &perf->paths[perf->path_count]);
		perf->path_count += ret == 0;
	}
	return ret;
}

static void
run_close(struct run *run)
{
	struct kvp_perf *perf = &run->perf;

	while (perf->path_count > 0) {
		struct kvp_perf_path *path = perf->paths[--perf->path_count];

		path->ops->close(path);
	}
	if (perf->buf != NULL) {
		(void)munmap(perf->buf, perf->buf_len);
	}
	for (uint32_t i = 0; i < run->rows.count; i++) {
		free(run->results[i]->samples);
		free(run->results[i]);
	}
}

static struct kvp_perf_result *
result_new(struct run *run, const struct kvp_perf_path *path, const struct kvp_perf_shape *shape)
{
	const struct kvp_perf_cfg *cfg = run->perf.cfg;
	struct kvp_perf_result *result = calloc(1, sizeof(*result));

	if (result != NULL && (cfg->histogram || cfg->unsorted)) {
		result->samples = calloc(KVP_PERF_SAMPLES_MAX, sizeof(*result->samples));
	}
	if (result == NULL || ((cfg->histogram || cfg->unsorted) && result->samples == NULL)) {
		free(result);
		(void)kvp_perf_fail(&run->perf, -ENOMEM, "out of memory");
		return NULL;
	}
	result->via = path->ops->name;
	result->shape = *shape;
	result->peer_cpu_ns = path->ops->peer_cpu != NULL ? 0 : -1;
	return result;
}

/* One turn of one path; *ret_bps is its rate. */
static int
round_run(struct run *run, struct kvp_perf_path *path, struct kvp_perf_result *result,
	double *ret_bps)
{
	const struct kvp_perf_cfg *cfg = run->perf.cfg;
	uint32_t share = run->perf.path_count > 1 ? cfg->rounds : 1;
	uint64_t ops = cfg->iters / share > 0 ? cfg->iters / share : 1;
	struct kvp_perf_ticks ticks = kvp_perf_machine_ticks();
	uint64_t bytes = result->bytes;
	uint64_t wall_ns = result->wall_ns;
	uint64_t cpu_before = 0;
	uint64_t cpu_after = 0;
	int ret = 0;

	if (path->ops->peer_cpu != NULL) {
		ret = path->ops->peer_cpu(path, &cpu_before);
	}
	if (ret == 0) {
		ret = kvp_perf_loop_run(&run->perf, path, &result->shape, ops, share, result);
	}
	if (ret == 0 && path->ops->peer_cpu != NULL) {
		ret = path->ops->peer_cpu(path, &cpu_after);
		result->peer_cpu_ns += (double)(cpu_after - cpu_before);
	}
	if (result->wall_ns > wall_ns) {
		*ret_bps =
			(double)(result->bytes - bytes) * 1e9 / (double)(result->wall_ns - wall_ns);
	}
	if (kvp_perf_machine_ticks().all > ticks.all) {
		struct kvp_perf_ticks now = kvp_perf_machine_ticks();

		result->cpu_util =
			100.0 * (double)(now.busy - ticks.busy) / (double)(now.all - ticks.all);
	}
	return ret;
}

static int
by_double(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
ratio_keep(struct run *run, uint64_t size, uint32_t rounds)
{
	if (rounds == 0) {
		return;
	}
	qsort(run->round_ratios, rounds, sizeof(run->round_ratios[0]), by_double);
	run->ratios[run->rows.ratio_count++] = (struct kvp_perf_ratio){
		.size = size,
		.rounds = rounds,
		.low = run->round_ratios[0],
		.median = (run->round_ratios[(rounds - 1) / 2] + run->round_ratios[rounds / 2]) / 2,
		.high = run->round_ratios[rounds - 1],
		.best = run->best_bps[1] / run->best_bps[0],
	};
}

/* Who begins changes from round to round. */
static int
size_rounds(struct run *run, struct kvp_perf_result *results[2])
{
	struct kvp_perf *perf = &run->perf;
	uint32_t paths = perf->path_count;
	uint32_t rounds = paths > 1 ? perf->cfg->rounds : 1;
	uint32_t full = 0;
	int ret = 0;

	memset(run->best_bps, 0, sizeof(run->best_bps));
	for (uint32_t r = 0; r < rounds && ret == 0 && !kvp_perf_stopped(perf); r++) {
		double bps[2] = {0, 0};

		for (uint32_t i = 0; i < paths && ret == 0; i++) {
			uint32_t idx = (i + r) % paths;

			ret = round_run(run, perf->paths[idx], results[idx], &bps[idx]);
			run->best_bps[idx] =
				bps[idx] > run->best_bps[idx] ? bps[idx] : run->best_bps[idx];
		}
		if (ret == 0 && paths > 1 && bps[0] > 0 && bps[1] > 0) {
			run->round_ratios[full++] = bps[1] / bps[0];
		}
	}
	ratio_keep(run, results[0]->shape.size, full);
	return ret;
}

static int
path_begin(struct run *run, struct kvp_perf_path *path, const struct kvp_perf_shape *shape)
{
	struct kvp_perf *perf = &run->perf;
	bool warm = perf->cfg->warm_up || perf->cfg->via != KVP_PERF_RAW;
	int ret;

	for (uint32_t k = 0; k < shape->blocks; k++) {
		kvp_perf_fill(perf->buf + k * kvp_perf_stride(shape->size), shape->size, k);
	}
	ret = path->ops->begin(path, shape);
	if (ret == 0 && warm) {
		ret = kvp_perf_loop_run(perf, path, shape, shape->blocks, 1, NULL);
	}
	return ret;
}

/* Measures one size by every path. What was measured is kept, also when it ends early. */
static int
size_run(struct run *run, uint64_t size)
{
	struct kvp_perf *perf = &run->perf;
	struct kvp_perf_shape shape = kvp_perf_shape_of(perf->cfg, size);
	struct kvp_perf_result *results[2] = {NULL, NULL};
	uint64_t wrong[2] = {0, 0};
	int ret = 0;

	for (uint32_t i = 0; i < perf->path_count; i++) {
		results[i] = result_new(run, perf->paths[i], &shape);
		if (results[i] == NULL) {
			free(results[0]);
			return -ENOMEM;
		}
		wrong[i] = perf->paths[i]->wrong_bytes;
	}
	for (uint32_t i = 0; i < perf->path_count && ret == 0; i++) {
		ret = path_begin(run, perf->paths[i], &shape);
	}
	if (ret == 0) {
		ret = size_rounds(run, results);
	}
	for (uint32_t i = 0; i < perf->path_count; i++) {
		struct kvp_perf_path *path = perf->paths[i];

		if (ret == 0) {
			ret = path->ops->end(path);
		}
		path->ops->used(path, results[i]->transport, sizeof(results[i]->transport));
		results[i]->wrong_bytes = path->wrong_bytes - wrong[i];
		run->wrong_bytes += results[i]->wrong_bytes;
		if (results[i]->ops == 0) {
			free(results[i]->samples);
			free(results[i]);
			continue;
		}
		run->results[run->rows.count++] = results[i];
	}
	return ret;
}

/* The rows of one path under their banner. */
static void
table_print(const struct run *run, const char *via)
{
	const struct kvp_perf_cfg *cfg = run->perf.cfg;
	bool banner = false;

	for (uint32_t i = 0; i < run->rows.count; i++) {
		const struct kvp_perf_result *result = run->results[i];

		if (strcmp(result->via, via) != 0) {
			continue;
		}
		if (!banner) {
			kvp_perf_report_banner(cfg, via, result->transport);
			banner = true;
		}
		kvp_perf_report_row(cfg, result);
	}
}

static int
sizes_run(struct run *run)
{
	const struct kvp_perf_cfg *cfg = run->perf.cfg;
	uint32_t shown = 0;
	int ret = 0;

	for (uint32_t i = 0; i < size_count(cfg) && ret == 0; i++) {
		ret = size_run(run, size_at(cfg, i));
		/* One path: rows as they come. Two: a table each, at the end. */
		for (; cfg->via != KVP_PERF_BOTH && shown < run->rows.count; shown++) {
			if (shown == 0) {
				kvp_perf_report_banner(
					cfg, run->results[0]->via, run->results[0]->transport);
			}
			kvp_perf_report_row(cfg, run->results[shown]);
		}
		if (kvp_perf_stopped(&run->perf)) {
			break;
		}
	}
	if (cfg->via == KVP_PERF_BOTH) {
		table_print(run, "raw");
		table_print(run, "pool");
	}
	if (run->rows.count > 0) {
		kvp_perf_report_line(cfg);
		kvp_perf_report_more(cfg, &run->rows);
	}
	return ret;
}

static int
status_of(const struct run *run, int ret)
{
	if (run->wrong_bytes > 0) {
		fprintf(stderr, "kvpool-perf: %llu wrong bytes\n",
			(unsigned long long)run->wrong_bytes);
		return KVP_CMD_DATA;
	}
	if (ret < 0) {
		return ret == -KVP_E_CONFIG ? KVP_CMD_USAGE : KVP_CMD_TRANSPORT;
	}
	return kvp_perf_limits_met(run->perf.cfg, &run->rows) ? KVP_CMD_OK : KVP_CMD_LIMIT;
}

static int
client_run(struct run *run)
{
	const struct kvp_perf_cfg *cfg = run->perf.cfg;
	int status;
	int ret;

	if (!cfg->quiet_cpu && cfg->output == KVP_PERF_OUT_ALL) {
		kvp_perf_machine_warn();
	}
	ret = run_open(run);
	if (ret == 0) {
		ret = sizes_run(run);
	}
	status = status_of(run, ret);
	if (cfg->json && kvp_perf_json_write(&run->perf, &run->rows, status) < 0 &&
		status == KVP_CMD_OK) {
		status = KVP_CMD_TRANSPORT;
	}
	run_close(run);
	return status;
}

int
kvp_perf_run(const struct kvp_perf_cfg *cfg)
{
	struct run *run = calloc(1, sizeof(*run));
	sigset_t signals;
	int status;
	int ret;

	if (run == NULL) {
		fprintf(stderr, "kvpool-perf: out of memory\n");
		return KVP_CMD_TRANSPORT;
	}
	run->perf.cfg = cfg;
	run->rows.results = run->results;
	run->rows.ratios = run->ratios;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	/* They stay blocked: one more Ctrl-C must not cost the report. */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	run->perf.stop_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (cfg->server) {
		ret = kvp_perf_server_run(&run->perf);
		status = ret == 0               ? KVP_CMD_OK
			 : ret == -KVP_E_CONFIG ? KVP_CMD_USAGE
						: KVP_CMD_TRANSPORT;
	} else {
		status = client_run(run);
	}
	(void)close(run->perf.stop_fd);
	free(run);
	return status;
}

static int
cmd_run(enum kvp_perf_test test, int argc, char **argv)
{
	struct kvp_perf_cfg cfg;
	struct kvp_opts opts;
	int ret = kvp_perf_opts_load(test, argc, argv, &opts, &cfg);
	int status = ret != 0 ? ret - 1 : kvp_perf_run(&cfg);

	kvp_perf_opts_free(&opts);
	return status;
}

int
kvp_cmd_bw(int argc, char **argv)
{
	return cmd_run(KVP_PERF_BW, argc, argv);
}

int
kvp_cmd_lat(int argc, char **argv)
{
	return cmd_run(KVP_PERF_LAT, argc, argv);
}
