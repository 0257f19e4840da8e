/* SPDX-License-Identifier: Apache-2.0 */
/* hist.c - log-linear buckets, see hist.h. */
#include "bench/hist.h"

/* Values below 64 have a bucket each; above, the octave and its 64 parts. */
static uint32_t
bucket_of(uint64_t ns)
{
	uint32_t octave;
	uint32_t idx;

	if (ns < KVP_HIST_SUB) {
		return (uint32_t)ns;
	}
	octave = 63u - (uint32_t)__builtin_clzll(ns); /* >= 6 */
	idx = (octave - 5) * KVP_HIST_SUB + (uint32_t)((ns >> (octave - 6)) - KVP_HIST_SUB);
	return idx < KVP_HIST_BUCKETS ? idx : KVP_HIST_BUCKETS - 1;
}

/* The largest value of a bucket. */
static uint64_t
bucket_top(uint32_t idx)
{
	uint32_t octave;

	if (idx < KVP_HIST_SUB) {
		return idx;
	}
	octave = idx / KVP_HIST_SUB + 5;
	return ((uint64_t)(KVP_HIST_SUB + idx % KVP_HIST_SUB + 1) << (octave - 6)) - 1;
}

void
kvp_hist_add(struct kvp_hist *hist, uint64_t ns)
{
	hist->buckets[bucket_of(ns)]++;
	hist->min_ns = hist->count == 0 || ns < hist->min_ns ? ns : hist->min_ns;
	hist->max_ns = ns > hist->max_ns ? ns : hist->max_ns;
	hist->sum_ns += ns;
	hist->count++;
}

void
kvp_hist_merge(struct kvp_hist *into, const struct kvp_hist *from)
{
	if (from->count == 0) {
		return;
	}
	into->min_ns =
		into->count == 0 || from->min_ns < into->min_ns ? from->min_ns : into->min_ns;
	into->max_ns = from->max_ns > into->max_ns ? from->max_ns : into->max_ns;
	into->sum_ns += from->sum_ns;
	into->count += from->count;
	for (uint32_t i = 0; i < KVP_HIST_BUCKETS; i++) {
		into->buckets[i] += from->buckets[i];
	}
}

uint64_t
kvp_hist_percentile(const struct kvp_hist *hist, double p)
{
	uint64_t rank = (uint64_t)(p * (double)hist->count);
	uint64_t seen = 0;

	if (hist->count == 0) {
		return 0;
	}
	rank = rank < 1 ? 1 : rank;
	for (uint32_t i = 0; i < KVP_HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen >= rank) {
			return bucket_top(i) < hist->max_ns ? bucket_top(i) : hist->max_ns;
		}
	}
	return hist->max_ns;
}
