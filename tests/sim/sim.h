/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - a cluster in one process on virtual time: events in order of time, a network that delays
 * and breaks, memory that is read and written remotely piece by piece. All from one seed: the same
 * seed gives the same run.
 *
 * Everything is one thread. sim_step() runs the earliest event; ties go by order of making.
 */
#ifndef KVP_TESTS_SIM_H
#define KVP_TESTS_SIM_H

#include "hal/base/list.h"
#include "hal/os/env.h"
#include "transport/rpc/rpc.h"
#include "transport/xport.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_event {
	uint64_t at_ns;
	uint64_t order;
	void (*fn)(void *arg);
	void *arg;
	bool cancelled;
};

struct sim {
	struct kvp_env env; /* first: providers find the sim through it */
	uint64_t now_ns;
	uint64_t rng;
	uint64_t orders;
	struct sim_event **heap;
	size_t heap_count;
	size_t heap_cap;
	struct kvp_list listeners;     /* struct sim_listener */
	struct kvp_list pipes;         /* struct sim_pipe */
	struct kvp_list xport_targets; /* struct sim_xport that listen */
	uint64_t delay_ns_max;         /* of a message; uniform from delay_ns_max / 16 */
	uint64_t piece_ns_max;         /* one-sided pieces land within this of their posting */
	uint64_t counts_broken;        /* connections broken on purpose */
	uint64_t counts_fenced;        /* pieces that came after a fence and were dropped */
	bool slow;                     /* some one-sided operations take longer than a quarantine */
};

void sim_init(struct sim *sim, uint64_t seed);
void sim_fini(struct sim *sim);

uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);

/* fn(arg) at now + delay. The event is freed after it ran or was cancelled. */
struct sim_event *sim_after(struct sim *sim, uint64_t delay_ns, void (*fn)(void *arg), void *arg);
void sim_cancel(struct sim_event *event);

/* Runs the earliest event; false when there is none. */
bool sim_step(struct sim *sim);

/* sim_rpc.c: one loop of one simulated process. run() must not be called: sim_step() is it. */
int sim_rpc_open(struct sim *sim, const struct kvp_rpc_cfg *cfg, struct kvp_rpc **ret_rpc);
/* Breaks one control connection at random; false when there is none. */
bool sim_rpc_break_any(struct sim *sim);

/* sim_xport.c: the provider; its cfg.env must be a sim's. */
extern const struct kvp_xport_ops sim_xport_ops;

#endif /* KVP_TESTS_SIM_H */
