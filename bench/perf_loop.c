/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_loop.c - keeps a number of units in flight on a path and times each. HOT.
 *
 * The clock stands still while a path is refilled: all times here are net of such pauses.
 */
#include "bench/perf.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/os/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LOOP_DONE_MAX      64 /* units taken at once */
#define LOOP_TICK_NS       (50 * KVP_NS_PER_MS)
#define LOOP_STUCK_NS      (30 * KVP_NS_PER_S) /* without a completion */
#define LOOP_PEAK_UNITS    64                  /* the peak is over at least so many */
#define LOOP_PEAK_RING_MAX (2 * KVP_PERF_DEPTH_MAX)

struct loop {
	struct kvp_perf *perf;
	struct kvp_perf_path *path;
	const struct kvp_perf_shape *shape;
	struct kvp_perf_result *result; /* NULL: warming up */
	uint64_t ops_left;              /* to post; with a duration: no limit */
	uint64_t paused_ns;
	uint64_t from_ns; /* completions before are not counted */
	uint64_t to_ns;   /* nor from here on; posting stops at until_ns */
	uint64_t until_ns;
	uint64_t start_ns;
	uint64_t last_ns; /* completion */
	uint64_t cpu_ns;  /* of this process, not of its pauses */
	uint64_t moved;   /* bytes, counted or not */
	uint64_t tick_ns;
	uint32_t in_flight;
	uint32_t idle_count;
	bool refill_due;
	void (*wait)(struct kvp_perf_path *path); /* NULL: spin */
	uint32_t *idle;                           /* units, a stack */
	uint64_t *started_ns;
	uint64_t *ring; /* of completion times */
	uint32_t ring_len;
	uint64_t ring_seen;
	uint64_t peak_ns; /* shortest time for ring_len units; 0: none */
};

static uint64_t
loop_now(const struct loop *l)
{
	return kvp_now_ns(kvp_env_real()) - l->paused_ns;
}

static uint64_t
cpu_now(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage); /* cannot fail */
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * KVP_NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static bool
loop_may_post(const struct loop *l)
{
	return l->ops_left > 0 && !l->perf->stopped && !l->refill_due;
}

static int
loop_post(struct loop *l)
{
	while (l->idle_count > 0 && loop_may_post(l)) {
		uint32_t unit = l->idle[l->idle_count - 1];
		uint64_t now = loop_now(l);
		int ret;

		if (now >= l->until_ns) {
			l->ops_left = 0;
			break;
		}
		l->started_ns[unit] = now;
		ret = l->path->ops->post(l->path, unit);
		if (ret == -ENOBUFS) {
			l->refill_due = true;
			break;
		}
		if (ret < 0) {
			return ret;
		}
		l->idle_count--;
		l->in_flight++;
		l->ops_left -= l->shape->batch < l->ops_left ? l->shape->batch : l->ops_left;
	}
	return 0;
}

static void
result_add(struct kvp_perf_result *result, uint64_t ns)
{
	const struct kvp_perf_shape *shape = &result->shape;
	double delta = (double)ns - result->mean_ns;

	kvp_hist_add(&result->hist, ns);
	result->mean_ns += delta / (double)result->hist.count;
	result->m2_ns += delta * ((double)ns - result->mean_ns);
	result->ops += shape->batch;
	result->bytes += shape->batch * shape->size;
	if (result->samples != NULL && result->sample_count < KVP_PERF_SAMPLES_MAX) {
		result->samples[result->sample_count++] = ns;
	}
}

static void
loop_peak(struct loop *l, uint64_t end)
{
	uint64_t *slot = &l->ring[l->ring_seen++ % l->ring_len];

	if (l->ring_seen > l->ring_len && end > *slot) {
		uint64_t ns = end - *slot;

		l->peak_ns = l->peak_ns == 0 || ns < l->peak_ns ? ns : l->peak_ns;
	}
	*slot = end;
}

static int
loop_poll(struct loop *l)
{
	struct kvp_perf_done done[LOOP_DONE_MAX];
	int n = l->path->ops->poll(l->path, done, LOOP_DONE_MAX);

	for (int i = 0; i < n; i++) {
		uint64_t end = done[i].end_ns - l->paused_ns;

		kvp_assert(l->in_flight > 0);
		l->in_flight--;
		l->idle[l->idle_count++] = done[i].unit;
		l->last_ns = end;
		l->moved += l->shape->batch * l->shape->size;
		if (l->result != NULL && end >= l->from_ns && end < l->to_ns) {
			result_add(l->result, end - l->started_ns[done[i].unit]);
			loop_peak(l, end);
		}
	}
	return n;
}

/* Now and then: signals, life signs, and a look whether anything still moves. */
static int
loop_tick(struct loop *l)
{
	uint64_t now = loop_now(l);

	if (now - l->tick_ns < LOOP_TICK_NS) {
		return 0;
	}
	l->tick_ns = now;
	(void)kvp_perf_stopped(l->perf); /* kept in perf->stopped */
	for (uint32_t i = 0; i < l->perf->path_count; i++) {
		struct kvp_perf_path *path = l->perf->paths[i];

		if (path->ops->tick != NULL) {
			path->ops->tick(path);
		}
	}
	if (l->in_flight > 0 && now > l->last_ns + LOOP_STUCK_NS) {
		return kvp_perf_fail(l->perf, -KVP_E_TIMEOUT,
			"%s: %u units in flight and none ended for %llu s", l->path->ops->name,
			l->in_flight, LOOP_STUCK_NS / KVP_NS_PER_S);
	}
	return 0;
}

static int
loop_refill(struct loop *l)
{
	uint64_t start = kvp_now_ns(kvp_env_real());
	uint64_t cpu = cpu_now();
	int ret = l->path->ops->refill(l->path);

	l->cpu_ns += cpu_now() - cpu; /* it counts from the start on: put it off as much */
	l->paused_ns += kvp_now_ns(kvp_env_real()) - start;
	l->refill_due = false;
	return ret;
}

static int
loop_run(struct loop *l)
{
	int ret = loop_post(l);

	while (ret >= 0 && (l->in_flight > 0 || loop_may_post(l) || l->refill_due)) {
		if (l->refill_due && l->in_flight == 0) {
			ret = loop_refill(l);
		} else {
			ret = loop_poll(l);
			if (ret == 0 && l->in_flight > 0 && l->wait != NULL) {
				l->wait(l->path);
			}
		}
		if (ret >= 0) {
			ret = loop_post(l);
		}
		if (ret >= 0) {
			ret = loop_tick(l);
		}
	}
	return ret;
}

static int
loop_open(struct loop *l, uint64_t ops, uint32_t share)
{
	const struct kvp_perf_cfg *cfg = l->perf->cfg;
	uint32_t units = l->shape->units;
	bool timed = cfg->duration_ns > 0 && l->result != NULL;

	l->ring_len = 2 * units > LOOP_PEAK_UNITS ? 2 * units : LOOP_PEAK_UNITS;
	l->idle = calloc(units, sizeof(*l->idle));
	l->started_ns = calloc(units, sizeof(*l->started_ns));
	l->ring = calloc(l->ring_len, sizeof(*l->ring));
	if (l->idle == NULL || l->started_ns == NULL || l->ring == NULL) {
		return kvp_perf_fail(l->perf, -ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < units; i++) {
		l->idle[l->idle_count++] = units - 1 - i;
	}
	l->wait = cfg->events ? l->path->ops->wait : NULL;
	l->cpu_ns = cpu_now();
	l->start_ns = loop_now(l);
	l->last_ns = l->start_ns;
	l->tick_ns = l->start_ns;
	l->ops_left = timed ? UINT64_MAX : ops;
	l->from_ns = l->start_ns + (timed ? cfg->margin_ns / share : 0);
	l->until_ns = timed ? l->start_ns + cfg->duration_ns / share : UINT64_MAX;
	l->to_ns = timed ? l->until_ns - cfg->margin_ns / share : UINT64_MAX;
	return 0;
}

/* What belongs to the whole run, and not to one unit. */
static void
loop_account(const struct loop *l, uint64_t ops_before)
{
	struct kvp_perf_result *result = l->result;
	uint64_t end = l->last_ns < l->to_ns ? l->last_ns : l->to_ns;
	uint64_t wall = end > l->from_ns ? end - l->from_ns : 0;
	double unit_bytes = (double)l->shape->size * l->shape->batch;
	double peak = 0;

	if (l->peak_ns > 0) {
		peak = unit_bytes * l->ring_len * 1e9 / (double)l->peak_ns;
	} else if (wall > 0) { /* too short a run to have one of its own */
		peak = (double)(result->ops - ops_before) * (double)l->shape->size * 1e9 /
		       (double)wall;
	}
	result->peak_bps = peak > result->peak_bps ? peak : result->peak_bps;
	result->wall_ns += wall;
	result->cpu_ns += (double)(cpu_now() - l->cpu_ns);
	result->moved += l->moved;
}

int
kvp_perf_loop_run(struct kvp_perf *perf, struct kvp_perf_path *path,
	const struct kvp_perf_shape *shape, uint64_t ops, uint32_t share,
	struct kvp_perf_result *result)
{
	struct loop l = {.perf = perf, .path = path, .shape = shape, .result = result};
	uint64_t ops_before = result != NULL ? result->ops : 0;
	int ret = loop_open(&l, ops, share);

	if (ret == 0) {
		ret = loop_run(&l);
		if (result != NULL) {
			loop_account(&l, ops_before);
		}
	}
	free(l.idle);
	free(l.started_ns);
	free(l.ring);
	return ret < 0 ? ret : 0;
}
