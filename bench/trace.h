/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - request traces in memory: JSON lines as bench/traces/README.md describes them, plain or
 * gzipped. Read once; then read-only, any thread.
 */
#ifndef KVP_BENCH_TRACE_H
#define KVP_BENCH_TRACE_H

#include <stdint.h>

struct kvp_trace_request {
	uint64_t time_ms;
	uint32_t input_tokens;
	uint32_t output_tokens;
	uint64_t conversation; /* 0: the trace does not say */
	uint32_t block_count;
	const uint32_t *ids; /* block_count of them, into the trace's pool */
};

struct kvp_trace {
	uint32_t request_count;
	struct kvp_trace_request *requests;
	uint32_t *ids;
	uint64_t id_count;
};

/* Reads at most requests_max (0: all). On failure a negative error, and error says file, line and
 * what is wrong. */
int kvp_trace_load(
	const char *path, uint32_t requests_max, struct kvp_trace *ret_trace, char error[256]);
void kvp_trace_free(struct kvp_trace *trace);

#endif /* KVP_BENCH_TRACE_H */
