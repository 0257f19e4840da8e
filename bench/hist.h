/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hist.h - a histogram of times in nanoseconds: 64 buckets an octave, so a value is off by at most
 * 1.6 %; the maximum is exact. Counters are 64-bit. One owner; merge to add up threads'.
 */
#ifndef KVP_BENCH_HIST_H
#define KVP_BENCH_HIST_H

#include <stdint.h>

#define KVP_HIST_SUB     64u
#define KVP_HIST_BUCKETS (KVP_HIST_SUB * 48u) /* up to 2^53 ns */

struct kvp_hist {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t min_ns; /* 0 when empty */
	uint64_t max_ns;
	uint64_t buckets[KVP_HIST_BUCKETS];
};

void kvp_hist_add(struct kvp_hist *hist, uint64_t ns);
void kvp_hist_merge(struct kvp_hist *into, const struct kvp_hist *from);

/* The value that the share p (0..1) of samples does not exceed; 0 when empty. */
uint64_t kvp_hist_percentile(const struct kvp_hist *hist, double p);

#endif /* KVP_BENCH_HIST_H */
