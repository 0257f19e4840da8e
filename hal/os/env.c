/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c - the clock and the randomness of the machine.
 */
#include "hal/os/env.h"
#include "hal/base/assert.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static uint64_t
env_now_ns(const struct kvp_env *env)
{
	struct timespec now;

	(void)env;
	kvp_assert(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * KVP_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void
env_random(const struct kvp_env *env, void *buf, size_t len)
{
	unsigned char *pos = buf;

	(void)env;
	while (len > 0) {
		ssize_t got = getrandom(pos, len, 0);

		if (got < 0) {
			/* Anything but a signal means a kernel without getrandom: identities
			 * and tokens made without it would be worse than no process. */
			kvp_assert(errno == EINTR);
			continue;
		}
		pos += got;
		len -= (size_t)got;
	}
}

const struct kvp_env *
kvp_env_real(void)
{
	static const struct kvp_env real = {.now_ns = env_now_ns, .random = env_random};

	return &real;
}

uint64_t
kvp_random_below(const struct kvp_env *env, uint64_t bound)
{
	uint64_t number;
	uint64_t surplus;

	kvp_assert(bound > 0);
	/* The first 2^64 mod bound numbers would make the small results likelier: draw again. Each
	 * turn ends the loop with a chance of more than a half. */
	surplus = -bound % bound;
	do {
		env->random(env, &number, sizeof(number));
	} while (number < surplus);
	return number % bound;
}
