/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - kvpool-perf replay: a real request trace against a running cluster. Each request
 * matches its chain of blocks, gets what hits, puts what misses (the prefill client); then the
 * decode client, if there is one, gets the whole chain. Every byte read is checked.
 */
#ifndef KVP_BENCH_REPLAY_H
#define KVP_BENCH_REPLAY_H

#include "bench/hist.h"
#include "bench/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvp_replay_cfg {
	const char *trace_path;
	const char *meta; /* NULL: the library's default; likewise below */
	const char *node;
	const char *transport;
	const char *decode_node; /* NULL: no decode client */
	const char *decode_transport;
	uint64_t block_bytes;
	uint32_t block_tokens;
	uint32_t requests; /* 0: all */
	uint32_t clients;
	uint32_t deadline_ms;
	uint32_t verify; /* enum kvp_verify */
};

enum kvp_replay_medium { KVP_REPLAY_LOCAL, KVP_REPLAY_REMOTE, KVP_REPLAY_MEDIA };

struct kvp_replay_flow {
	uint64_t blocks;
	uint64_t bytes;
	uint64_t busy_ns; /* time inside the library, by share of bytes where a batch had both media
			   */
};

/* What one worker saw; summed up over all. */
struct kvp_replay_stats {
	uint64_t requests;
	uint64_t input_tokens;
	uint64_t hit_tokens;
	uint64_t blocks_matched; /* match said so */
	uint64_t blocks_hit;     /* and get delivered */
	uint64_t blocks_put;
	uint64_t blocks_exist;   /* another client was first */
	uint64_t blocks_refused; /* put refused for want of space */
	uint64_t decode_hits;
	uint64_t decode_misses; /* evicted before decode read them, or never stored */
	uint64_t errors;        /* items with any other status */
	uint64_t unindexed;
	uint64_t wrong_bytes;
	int first_error; /* status of the first of errors; 0: none */
	struct kvp_replay_flow read[KVP_REPLAY_MEDIA];
	struct kvp_replay_flow written[KVP_REPLAY_MEDIA];
	struct kvp_hist request_ns; /* match, get, put of one request */
	struct kvp_hist decode_ns;
};

void kvp_replay_stats_add(struct kvp_replay_stats *into, const struct kvp_replay_stats *from);

/* Runs it: progress to stderr each second; ends early on SIGINT or SIGTERM with what was measured.
 * 0, or a negative error after printing why. The caller frees nothing. */
int kvp_replay_run(const struct kvp_replay_cfg *cfg, struct kvp_replay_stats *ret_stats,
	uint64_t *ret_wall_ns);

/* replay_report.c. json_path NULL: none; "-": stdout. */
void kvp_replay_print(
	const struct kvp_replay_cfg *cfg, const struct kvp_replay_stats *stats, uint64_t wall_ns);
int kvp_replay_json(const struct kvp_replay_cfg *cfg, const struct kvp_replay_stats *stats,
	uint64_t wall_ns, const char *json_path);

#endif /* KVP_BENCH_REPLAY_H */
