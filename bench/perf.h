/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf.h - what the files of `kvpool-perf bw` and `lat` share: the settings, one measured row, and
 * the contract of a path, which is a way that bytes can take (raw: a transport alone; pool: the
 * public API). The measuring loop knows paths only, so that both are measured alike.
 *
 * THREADS  One thread does all of it. A path may have threads of its own inside.
 * MEMORY   Block k of a size lies in local buffer k at k * kvp_perf_stride(size), whichever the
 *          path, so that pool and raw touch the same bytes in the same order.
 */
#ifndef KVP_BENCH_PERF_H
#define KVP_BENCH_PERF_H

#include "bench/cmd.h"
#include "bench/hist.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_PERF_PORT        18515 /* of a raw server; its data is on the next one */
#define KVP_PERF_BLOCKS_MAX  1024u /* small sizes do not use all of the region */
#define KVP_PERF_DEPTH_MAX   4096u /* operations in flight */
#define KVP_PERF_QPS_MAX     64u   /* connections with one token */
#define KVP_PERF_ROUNDS_MAX  1000u
#define KVP_PERF_SAMPLES_MAX (1u << 20)   /* kept one by one for -H and -U */
#define KVP_PERF_SIZE_ALL    (8ull << 20) /* -a ends there */

enum kvp_perf_test { KVP_PERF_BW, KVP_PERF_LAT };
enum kvp_perf_via { KVP_PERF_RAW = 1, KVP_PERF_POOL = 2, KVP_PERF_BOTH = 3 };
enum kvp_perf_output { KVP_PERF_OUT_ALL, KVP_PERF_OUT_BW, KVP_PERF_OUT_RATE, KVP_PERF_OUT_LAT };

struct kvp_perf_cfg {
	enum kvp_perf_test test;
	enum kvp_perf_via via;
	bool write;            /* write or put; else read or get */
	const char *transport; /* "auto" or a name */
	const char *device;    /* NULL: any; likewise below */
	const char *provider;
	uint64_t size; /* bytes of one operation */
	bool all;
	uint64_t iters;       /* operations; ignored with a duration */
	uint64_t duration_ns; /* 0: by iters */
	uint64_t margin_ns;   /* not counted, at both ends of the duration */
	uint32_t depth;       /* operations in flight */
	uint32_t batch;       /* posted together */
	uint32_t segments;
	uint32_t qps;
	uint32_t rounds; /* of each path, when both are measured */
	uint64_t region; /* bytes that operations go round in */
	bool no_peak;
	bool validate;
	bool warm_up;
	bool events; /* sleep when there is nothing to do, instead of spinning */
	bool cpu_util;
	bool gbits;
	bool histogram;
	bool unsorted;
	bool quiet_cpu;
	enum kvp_perf_output output;
	double limit_bw;      /* in the unit of the report; 0: none, likewise below */
	double limit_msgrate; /* Mpps */
	double limit_p99_us;
	bool json;
	const char *json_path;
	/* raw */
	bool server;
	const char *ticket;      /* NULL: a server of our own */
	const char *ticket_file; /* NULL: none */
	const char *listen;      /* NULL: loopback, or a socket in a temporary folder */
	uint16_t port;
	/* pool */
	const char *meta;
	const char *node;
	uint32_t deadline_ms;
	uint32_t verify;   /* enum kvp_verify */
	uint32_t checksum; /* enum kvp_checksum */
};

/* How one size is run. */
struct kvp_perf_shape {
	uint64_t size;
	uint32_t blocks; /* different ones */
	uint32_t units;  /* in flight; a unit is what is posted together */
	uint32_t batch;  /* operations of a unit */
};

/* One row. Latencies are those of units. */
struct kvp_perf_result {
	const char *via;
	char transport[32]; /* really used */
	struct kvp_perf_shape shape;
	uint64_t ops;
	uint64_t bytes;
	uint64_t moved;   /* bytes, with those of the margins */
	uint64_t wall_ns; /* without refills */
	double mean_ns;
	double m2_ns;       /* sum of squared distances from the mean */
	double peak_bps;    /* bytes a second */
	double cpu_ns;      /* of this process, for moved; likewise below */
	double peer_cpu_ns; /* of the raw server; negative: not known */
	double cpu_util;    /* of the machine, percent */
	uint64_t wrong_bytes;
	uint64_t *samples; /* ns; NULL unless -H or -U */
	size_t sample_count;
	struct kvp_hist hist;
};

/* A unit that has ended. */
struct kvp_perf_done {
	uint32_t unit;
	uint64_t end_ns;
};

struct kvp_perf_path {
	const struct kvp_perf_path_ops *ops;
	uint64_t wrong_bytes; /* since open */
};

struct kvp_perf_path_ops {
	const char *name; /* "raw", "pool" */
	/* Makes the blocks of a shape. The local buffers hold what they should hold. */
	int (*begin)(struct kvp_perf_path *path, const struct kvp_perf_shape *shape);
	/* Starts a unit that is not in flight. -ENOBUFS: refill first. */
	int (*post)(struct kvp_perf_path *path, uint32_t unit);
	/* Moves things on; returns how many units ended, at most max, or an error (then none). */
	int (*poll)(struct kvp_perf_path *path, struct kvp_perf_done *ret_done, uint32_t max);
	/* Sleeps until poll has something to do, or a moment. NULL: it never has to wait. */
	void (*wait)(struct kvp_perf_path *path);
	/* Nothing is in flight and the clock stands: makes room for more. NULL: never needed. */
	int (*refill)(struct kvp_perf_path *path);
	/* Takes the blocks away, after checking those that were written. */
	int (*end)(struct kvp_perf_path *path);
	/* Now and then while running. NULL: nothing to do. */
	void (*tick)(struct kvp_perf_path *path);
	/* CPU time of the other side so far. NULL: not known. */
	int (*peer_cpu)(struct kvp_perf_path *path, uint64_t *ret_ns);
	/* The transport really used. */
	void (*used)(const struct kvp_perf_path *path, char *buf, size_t cap);
	/* At any time, also with units in flight. */
	void (*close)(struct kvp_perf_path *path);
};

#define KVP_PERF_WAIT_MS 10 /* the moment of wait() */

/* A run of the tool. */
struct kvp_perf {
	const struct kvp_perf_cfg *cfg;
	uint8_t *buf; /* local buffers; for the largest shape */
	size_t buf_len;
	int stop_fd; /* signalfd of SIGINT and SIGTERM, blocked otherwise */
	bool stopped;
	struct kvp_perf_path *paths[2];
	uint32_t path_count;
	char error[320]; /* the first one, for the JSON; empty: none */
};

/* Prints why and keeps it; returns err. */
int kvp_perf_fail(struct kvp_perf *perf, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* True from the first SIGINT or SIGTERM on. */
bool kvp_perf_stopped(struct kvp_perf *perf);

struct kvp_perf_shape kvp_perf_shape_of(const struct kvp_perf_cfg *cfg, uint64_t size);
static inline uint64_t
kvp_perf_stride(uint64_t size)
{
	return (size + 63) & ~63ull;
}

/* Pieces of an operation: a small one has fewer. */
static inline uint32_t
kvp_perf_segments(const struct kvp_perf_cfg *cfg, uint64_t size)
{
	return size < cfg->segments ? (uint32_t)size : cfg->segments;
}

/* perf_fill.c: blocks of any length that tell whether they are right. */
void kvp_perf_fill(void *buf, size_t len, uint32_t block);
size_t kvp_perf_wrong(const void *buf, size_t len, uint32_t block);

/* perf_opts.c: the settings of a command line. 0; or an exit status + 1 when there is nothing to
 * run (help, or a mistake that was told). The texts live until kvp_perf_opts_free. */
struct kvp_opts;
int kvp_perf_opts_load(enum kvp_perf_test test, int argc, char **argv, struct kvp_opts *ret_opts,
	struct kvp_perf_cfg *ret_cfg);
void kvp_perf_opts_free(struct kvp_opts *opts);

/* perf_args.c: turns perftest's letters into long options: a new argv, to be freed as one piece.
 * -EINVAL with the reason in error. */
int kvp_perf_args_expand(
	int argc, char **argv, int *ret_argc, char ***ret_argv, char *error, size_t error_cap);

/* perf_raw.c, perf_pool.c. Errors are told. */
int kvp_perf_raw_open(struct kvp_perf *perf, struct kvp_perf_path **ret_path);
int kvp_perf_pool_open(struct kvp_perf *perf, struct kvp_perf_path **ret_path);

/* perf_loop.c: runs ops operations, or for a time when the settings have one (share: of how many
 * equal parts this is one), adding to the result (NULL: warm up, nothing is kept). 0, also when
 * stopped; or an error. */
int kvp_perf_loop_run(struct kvp_perf *perf, struct kvp_perf_path *path,
	const struct kvp_perf_shape *shape, uint64_t ops, uint32_t share,
	struct kvp_perf_result *result);

/* perf_run.c: everything after the options; the exit status. */
int kvp_perf_run(const struct kvp_perf_cfg *cfg);

#endif /* KVP_BENCH_PERF_H */
