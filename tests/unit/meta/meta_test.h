/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_test.h - what the tests of pool/meta share: cmocka, a clock that the test moves, and an rpc
 * that sends nothing: it keeps the last answer, the timers and the closed connections for the test.
 */
#ifndef KVP_TESTS_UNIT_META_TEST_H
#define KVP_TESTS_UNIT_META_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hal/base/list.h"
#include "hal/os/env.h"
#include "transport/rpc/rpc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_env {
	struct kvp_env env;
	uint64_t now_ns;
	uint64_t random;
};

static inline uint64_t
test_env_now(const struct kvp_env *env)
{
	return ((const struct test_env *)(const void *)env)->now_ns;
}

/* splitmix64 */
static inline uint64_t
test_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t
test_below(uint64_t *state, uint64_t bound)
{
	return test_next(state) % bound;
}

static inline void
test_env_random(const struct kvp_env *env, void *buf, size_t len)
{
	struct test_env *test = (struct test_env *)(uintptr_t)env;

	for (size_t i = 0; i < len; i++) {
		((uint8_t *)buf)[i] = (uint8_t)test_next(&test->random);
	}
}

/* Of KVP_TEST_SEED, else any; printed, so that a failure can be had again. */
static inline uint64_t
test_seed(void)
{
	const char *text = getenv("KVP_TEST_SEED");
	uint64_t seed;

	if (text != NULL) {
		seed = strtoull(text, NULL, 0);
	} else {
		kvp_env_real()->random(kvp_env_real(), &seed, sizeof(seed));
	}
	print_message("KVP_TEST_SEED=0x%llx\n", (unsigned long long)seed);
	return seed;
}

struct test_timer {
	struct kvp_rpc_timer *timer;
	uint64_t due_ns;
};

struct test_rpc {
	struct kvp_rpc rpc;
	struct test_env env;
	bool replied;
	int status;
	uint8_t *body; /* of the last answer; owned */
	size_t len;
	struct kvp_rpc_conn *closed[16]; /* connections it was asked to close */
	size_t closed_count;
	struct test_timer timers[4];
};

static inline struct test_rpc *
test_rpc_of(struct kvp_rpc *rpc)
{
	return kvp_container_of(rpc, struct test_rpc, rpc);
}

static inline void
test_rpc_reply(struct kvp_rpc_call *call, int status, const void *body, size_t len)
{
	struct test_rpc *test = test_rpc_of(call->conn->rpc);

	assert_false(test->replied); /* once */
	free(test->body);
	test->replied = true;
	test->status = status;
	test->body = malloc(len + 1);
	assert_non_null(test->body);
	if (len > 0) {
		memcpy(test->body, body, len);
	}
	test->len = len;
}

static inline void
test_rpc_conn_close(struct kvp_rpc_conn *conn)
{
	struct test_rpc *test = test_rpc_of(conn->rpc);

	assert_true(test->closed_count < 16);
	test->closed[test->closed_count++] = conn;
}

static inline struct test_timer *
test_rpc_timer(struct test_rpc *test, const struct kvp_rpc_timer *timer)
{
	for (size_t i = 0; i < 4; i++) {
		if (test->timers[i].timer == timer) {
			return &test->timers[i];
		}
	}
	return NULL;
}

static inline void
test_rpc_timer_start(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer, uint64_t delay_ns)
{
	struct test_rpc *test = test_rpc_of(rpc);
	struct test_timer *place = test_rpc_timer(test, timer);

	place = place != NULL ? place : test_rpc_timer(test, NULL);
	assert_non_null(place);
	*place = (struct test_timer){.timer = timer, .due_ns = test->env.now_ns + delay_ns};
}

static inline void
test_rpc_timer_stop(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer)
{
	struct test_timer *place = test_rpc_timer(test_rpc_of(rpc), timer);

	if (place != NULL) {
		place->timer = NULL;
	}
}

static inline void
test_rpc_init(struct test_rpc *test)
{
	static const struct kvp_rpc_ops ops = {.reply = test_rpc_reply,
		.conn_close = test_rpc_conn_close,
		.timer_start = test_rpc_timer_start,
		.timer_stop = test_rpc_timer_stop};

	memset(test, 0, sizeof(*test));
	test->env.env.now_ns = test_env_now;
	test->env.env.random = test_env_random;
	test->env.now_ns = 1000 * KVP_NS_PER_S;
	test->rpc.ops = &ops;
	test->rpc.env = &test->env.env;
}

/* Time passes and timers fire in order. */
static inline void
test_rpc_run(struct test_rpc *test, uint64_t for_ns)
{
	uint64_t end_ns = test->env.now_ns + for_ns;

	for (;;) {
		struct test_timer *next = NULL;

		for (size_t i = 0; i < 4; i++) {
			struct test_timer *timer = &test->timers[i];

			if (timer->timer != NULL && timer->due_ns <= end_ns &&
				(next == NULL || timer->due_ns < next->due_ns)) {
				next = timer;
			}
		}
		if (next == NULL) {
			test->env.now_ns = end_ns;
			return;
		}
		struct kvp_rpc_timer *timer = next->timer;

		if (next->due_ns > test->env.now_ns) {
			test->env.now_ns = next->due_ns;
		}
		next->timer = NULL;
		timer->fn(timer);
	}
}

#endif /* KVP_TESTS_UNIT_META_TEST_H */
