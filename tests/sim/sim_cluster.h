/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_cluster.h - two nodes, a metadata server and two clients in one simulation, a random workload
 * on them, and the oracle that watches.
 */
#ifndef KVP_TESTS_SIM_CLUSTER_H
#define KVP_TESTS_SIM_CLUSTER_H

#include "tests/sim/sim.h"

struct sim_outcome {
	uint64_t ops;  /* batches completed */
	uint64_t hits; /* blocks read and checked */
	uint64_t misses;
	uint64_t puts;   /* blocks stored */
	uint64_t errors; /* items with another status: the faults' doing */
	uint64_t stale;  /* reads that met a changed entry */
	uint64_t evicted;
	uint64_t leases;       /* given to clients */
	uint64_t leased_hits;  /* blocks read under a lease */
	uint64_t leased_lost;  /* without faults: blocks not found though a lease held them */
	uint64_t held;         /* items refused because a lease held them, or held too much */
	uint64_t epochs;       /* raised */
	uint64_t late_writers; /* items refused because their epoch was over */
	uint64_t wrong_bytes;
	uint64_t late;   /* operations that completed after deadline and grace */
	uint64_t lost;   /* blocks put after the last fault that were not found */
	uint64_t broken; /* connections broken */
	uint64_t fenced; /* pieces dropped at a fence or an end */
	uint64_t digest; /* of everything that happened, in order: equal for equal seeds */
	bool stuck;      /* no event left, but operations out */
};

struct sim_run_cfg {
	uint64_t seed;
	uint32_t ops; /* batches of the workload */
	bool faults;
};

/* Builds the cluster, runs the workload, ends the faults, checks what is found, takes all down. */
void sim_cluster_run(const struct sim_run_cfg *cfg, struct sim_outcome *ret_outcome);

#endif /* KVP_TESTS_SIM_CLUSTER_H */
