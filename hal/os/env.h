/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - time and randomness, so that the same code runs on the machine's and on virtual ones.
 *
 * OWNERSHIP Callers keep a pointer only; kvp_env_real() lives for ever, a simulated one as long
 *           as the test says. THREADS The real one may be used from any thread.
 */
#ifndef KVP_HAL_OS_ENV_H
#define KVP_HAL_OS_ENV_H

#include <stddef.h>
#include <stdint.h>

struct kvp_env {
	uint64_t (*now_ns)(const struct kvp_env *env); /* CLOCK_MONOTONIC, nanoseconds */
	void (*random)(const struct kvp_env *env, void *buf, size_t len);
};

const struct kvp_env *kvp_env_real(void);

static inline uint64_t
kvp_now_ns(const struct kvp_env *env)
{
	return env->now_ns(env);
}

/* Uniform in [0, bound); bound > 0. For jitter and sampling, not for secrets. */
uint64_t kvp_random_below(const struct kvp_env *env, uint64_t bound);

#define KVP_NS_PER_MS 1000000ull
#define KVP_NS_PER_S  1000000000ull

#endif /* KVP_HAL_OS_ENV_H */
