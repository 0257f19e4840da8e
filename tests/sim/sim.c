/* SPDX-License-Identifier: Apache-2.0 */
/* sim.c - the clock, the dice and the queue of events. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static uint64_t
env_now(const struct kvp_env *env)
{
	return kvp_container_of(env, const struct sim, env)->now_ns;
}

static void
env_random(const struct kvp_env *env, void *buf, size_t len)
{
	struct sim *sim = (struct sim *)(uintptr_t)kvp_container_of(env, const struct sim, env);
	uint8_t *out = buf;

	for (size_t i = 0; i < len; i++) {
		out[i] = (uint8_t)(sim_random(sim) >> 32);
	}
}

void
sim_init(struct sim *sim, uint64_t seed)
{
	*sim = (struct sim){
		.env = {.now_ns = env_now, .random = env_random},
		.now_ns = KVP_NS_PER_S,
		.rng = seed,
		.delay_ns_max = 200000,
		.piece_ns_max = 100000,
	};
	kvp_list_init(&sim->listeners);
	kvp_list_init(&sim->pipes);
	kvp_list_init(&sim->xport_targets);
}

void
sim_fini(struct sim *sim)
{
	for (size_t i = 0; i < sim->heap_count; i++) {
		free(sim->heap[i]);
	}
	free(sim->heap);
	*sim = (struct sim){0};
}

uint64_t
sim_random(struct sim *sim)
{
	uint64_t x = sim->rng += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t
sim_below(struct sim *sim, uint64_t bound)
{
	return bound == 0 ? 0 : sim_random(sim) % bound;
}

static bool
earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void
heap_up(struct sim *sim, size_t idx)
{
	while (idx > 0 && earlier(sim->heap[idx], sim->heap[(idx - 1) / 2])) {
		struct sim_event *event = sim->heap[idx];

		sim->heap[idx] = sim->heap[(idx - 1) / 2];
		sim->heap[(idx - 1) / 2] = event;
		idx = (idx - 1) / 2;
	}
}

static void
heap_down(struct sim *sim)
{
	size_t idx = 0;

	for (;;) {
		size_t least = idx;

		for (size_t child = 2 * idx + 1; child <= 2 * idx + 2; child++) {
			if (child < sim->heap_count &&
				earlier(sim->heap[child], sim->heap[least])) {
				least = child;
			}
		}
		if (least == idx) {
			return;
		}
		struct sim_event *event = sim->heap[idx];

		sim->heap[idx] = sim->heap[least];
		sim->heap[least] = event;
		idx = least;
	}
}

struct sim_event *
sim_after(struct sim *sim, uint64_t delay_ns, void (*fn)(void *arg), void *arg)
{
	struct sim_event *event = calloc(1, sizeof(*event));

	*event = (struct sim_event){
		.at_ns = sim->now_ns + delay_ns,
		.order = sim->orders++,
		.fn = fn,
		.arg = arg,
	};
	if (sim->heap_count == sim->heap_cap) {
		sim->heap_cap = sim->heap_cap == 0 ? 1024 : 2 * sim->heap_cap;
		sim->heap = realloc(sim->heap, sim->heap_cap * sizeof(sim->heap[0]));
	}
	sim->heap[sim->heap_count] = event;
	heap_up(sim, sim->heap_count++);
	return event;
}

void
sim_cancel(struct sim_event *event)
{
	event->cancelled = true;
}

bool
sim_step(struct sim *sim)
{
	struct sim_event *event;

	if (sim->heap_count == 0) {
		return false;
	}
	event = sim->heap[0];
	sim->heap[0] = sim->heap[--sim->heap_count];
	heap_down(sim);
	sim->now_ns = event->at_ns > sim->now_ns ? event->at_ns : sim->now_ns;
	if (!event->cancelled) {
		event->fn(event->arg);
	}
	free(event);
	return true;
}
