/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_loop_test.c - timers, watches, posts, signals, and links that are closed from callbacks: on
 * one loop that the test itself runs.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/rpc_peer.h"

#include <fcntl.h>
#include <signal.h>

struct fixture {
	struct kvp_rpc *rpc;
	const struct kvp_rpc_ops *ops;
	struct kvp_rpc_timer timers[64];
	uint64_t fired[64]; /* when */
	struct kvp_rpc_timer limit;
	struct kvp_rpc_watch watch;
	int pipe[2];
	unsigned count;
	unsigned goal; /* stop at so many */
	struct kvp_rpc_link *link;
	struct kvp_rpc_req reqs[4];
	int status[4];
};

static struct fixture *current; /* callbacks have no argument of their own */

static void
limit_reached(struct kvp_rpc_timer *timer)
{
	(void)timer;
	current->ops->stop(current->rpc);
}

static int
setup(void **state)
{
	struct fixture *fix = calloc(1, sizeof(*fix));
	struct kvp_rpc_cfg cfg = {.env = kvp_env_real(), .self = {.kind = KVP_PEER_TOOL}};

	assert_non_null(fix);
	assert_int_equal(kvp_rpc_uv_open(&cfg, &fix->rpc), 0);
	fix->ops = fix->rpc->ops;
	fix->limit.fn = limit_reached;
	assert_int_equal(pipe2(fix->pipe, O_CLOEXEC), 0);
	fix->ops->timer_start(fix->rpc, &fix->limit, 20 * KVP_NS_PER_S);
	current = fix;
	*state = fix;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *fix = *state;

	if (fix->rpc != NULL) {
		fix->ops->close(fix->rpc);
	}
	assert_int_equal(close(fix->pipe[0]), 0);
	assert_int_equal(close(fix->pipe[1]), 0);
	free(fix);
	return 0;
}

static void
one_more(void)
{
	if (++current->count == current->goal) {
		current->ops->stop(current->rpc);
	}
}

static void
timer_fired(struct kvp_rpc_timer *timer)
{
	current->fired[timer - current->timers] = kvp_now_ns(kvp_env_real());
	one_more();
}

static void
timers_fire_in_time_and_once(void **state)
{
	struct fixture *fix = *state;
	uint64_t start = kvp_now_ns(kvp_env_real());

	fix->goal = 32;
	for (unsigned i = 0; i < 64; i++) {
		fix->timers[i].fn = timer_fired;
		fix->ops->timer_start(fix->rpc, &fix->timers[i], (i * 37 % 64) * KVP_NS_PER_MS);
	}
	for (unsigned i = 0; i < 64; i += 2) {
		fix->ops->timer_stop(fix->rpc, &fix->timers[i]);
		fix->ops->timer_stop(fix->rpc, &fix->timers[i]);
	}
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 32);
	for (unsigned i = 0; i < 64; i++) {
		if (i % 2 == 0) {
			assert_int_equal(fix->fired[i], 0);
		} else {
			assert_true(fix->fired[i] - start >= (i * 37 % 64) * KVP_NS_PER_MS);
		}
	}
	for (unsigned i = 1; i < 64; i += 2) {
		for (unsigned j = 1; j < 64; j += 2) {
			assert_true(i * 37 % 64 >= j * 37 % 64 || fix->fired[i] <= fix->fired[j]);
		}
	}
}

static void
a_running_timer_moves(void **state)
{
	struct fixture *fix = *state;

	fix->goal = 2;
	fix->timers[0].fn = timer_fired;
	fix->timers[1].fn = timer_fired;
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 1 * KVP_NS_PER_MS);
	fix->ops->timer_start(fix->rpc, &fix->timers[1], 20 * KVP_NS_PER_MS);
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 40 * KVP_NS_PER_MS); /* later */
	fix->ops->run(fix->rpc);
	assert_true(fix->fired[0] > fix->fired[1]);
	fix->goal = 3;
	fix->ops->timer_start(fix->rpc, &fix->timers[0], UINT64_MAX); /* never */
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 0);          /* earlier */
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 3);
}

static void
timer_again(struct kvp_rpc_timer *timer)
{
	current->ops->timer_start(current->rpc, timer, 0);
	if (current->count < 1000) {
		one_more();
	}
}

static void
post_stop(void *arg)
{
	(void)arg;
	current->ops->stop(current->rpc);
}

static void
timer_posts(struct kvp_rpc_timer *timer)
{
	(void)timer;
	current->ops->post(current->rpc, post_stop, NULL);
}

/* A timer that starts itself with no delay leaves the loop its turn. */
static void
a_restless_timer_does_not_stop_the_loop(void **state)
{
	struct fixture *fix = *state;

	fix->timers[0].fn = timer_again;
	fix->timers[1].fn = timer_posts;
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 0);
	fix->ops->timer_start(fix->rpc, &fix->timers[1], 2 * KVP_NS_PER_MS);
	fix->ops->run(fix->rpc);
	assert_true(fix->count > 0);
}

/* --- posts and watches --------------------------------------------------------------------------
 */
#define POSTS 1000u

static void
post_counted(void *arg)
{
	if ((uintptr_t)arg == current->count) { /* in order */
		one_more();
	}
}

static void
poster_main(void *arg)
{
	struct fixture *fix = arg;

	for (uintptr_t i = 0; i < POSTS; i++) {
		fix->ops->post(fix->rpc, post_counted, (void *)i);
	}
}

static void
posts_come_in_order(void **state)
{
	struct fixture *fix = *state;
	struct kvp_thread *thread;

	fix->goal = POSTS;
	assert_int_equal(kvp_thread_start("poster", poster_main, fix, &thread), 0);
	fix->ops->run(fix->rpc);
	kvp_thread_join(thread);
	assert_int_equal(fix->count, POSTS);
	fix->ops->post(fix->rpc, post_counted, NULL); /* never run: freed by close */
}

static void
watch_fired(struct kvp_rpc_watch *watch)
{
	char byte;

	if (read(current->pipe[0], &byte, 1) == 1) {
		one_more();
	}
	if (current->count < current->goal &&
		current->ops->watch_start(current->rpc, watch, current->pipe[0]) < 0) {
		current->ops->stop(current->rpc);
	}
}

static void
watches_tell_once(void **state)
{
	struct fixture *fix = *state;

	fix->goal = 3;
	fix->watch.fn = watch_fired;
	assert_int_equal(write(fix->pipe[1], "abcd", 4), 4);
	assert_int_equal(fix->ops->watch_start(fix->rpc, &fix->watch, fix->pipe[0]), 0);
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 3); /* it was started three times */

	assert_int_equal(fix->ops->watch_start(fix->rpc, &fix->watch, fix->pipe[0]), 0);
	assert_int_equal(fix->ops->watch_start(fix->rpc, &fix->watch, fix->pipe[0]), 0);
	fix->ops->watch_stop(fix->rpc, &fix->watch);
	fix->ops->watch_stop(fix->rpc, &fix->watch);
	fix->timers[0].fn = timer_posts;
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 0);
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 3);

	assert_true(fix->ops->watch_start(fix->rpc, &fix->watch, 9999) < 0);
	assert_int_equal(fix->ops->watch_start(fix->rpc, &fix->watch, fix->pipe[0]), 0); /* left */
}

/* --- signals ------------------------------------------------------------------------------------
 */
static void
signal_came(void *arg)
{
	(void)arg;
	one_more();
}

static void
signals_reach_the_loop(void **state)
{
	struct fixture *fix = *state;

	fix->goal = 1;
	assert_int_equal(kvp_rpc_uv_signal(fix->rpc, SIGUSR1, signal_came, NULL), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 1);
}

static void
raise_sigpipe(struct kvp_rpc_timer *timer)
{
	(void)timer;
	/* As a write to a dead peer does: to the thread itself. */
	if (pthread_kill(pthread_self(), SIGPIPE) == 0) {
		one_more();
	}
}

static void
sigpipe_never_kills_and_the_mask_stays(void **state)
{
	struct fixture *fix = *state;
	sigset_t mask;

	fix->goal = 1;
	fix->timers[0].fn = raise_sigpipe;
	fix->ops->timer_start(fix->rpc, &fix->timers[0], 0);
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 1);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	assert_int_equal(sigismember(&mask, SIGPIPE), 0);
}

/* --- links closed from callbacks ----------------------------------------------------------------
 */
static void
closing_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	(void)body;
	(void)len;
	current->status[req - current->reqs] = status;
	if (current->link != NULL) {
		struct kvp_rpc_link *link = current->link;

		current->link = NULL;
		current->ops->link_close(link); /* ends the others, inside this one's done */
		/* A retry from such a callback is ended too. */
		current->reqs[3].type = KVP_RPC_STATUS;
		current->reqs[3].done = closing_done;
		current->ops->call(link, &current->reqs[3], NULL, 0);
	}
	one_more();
}

static void
a_link_closed_inside_done(void **state)
{
	struct fixture *fix = *state;
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rpc_link_cfg cfg = {.addr = addr};

	assert_int_equal(close(raw_listen(addr)), 0);
	assert_int_equal(fix->ops->link_open(fix->rpc, &cfg, &fix->link), 0);
	fix->goal = 4;
	for (size_t i = 0; i < 3; i++) {
		fix->reqs[i].type = KVP_RPC_STATUS;
		fix->reqs[i].deadline_ns = kvp_now_ns(kvp_env_real()) + 10 * KVP_NS_PER_S;
		fix->reqs[i].done = closing_done;
		fix->ops->call(fix->link, &fix->reqs[i], "abc", 3);
	}
	assert_int_equal(fix->count, 0); /* never from within the call */
	fix->ops->run(fix->rpc);
	assert_int_equal(fix->count, 4);
	assert_int_equal(fix->status[0], -ECONNREFUSED);
	assert_int_equal(fix->status[1], -KVP_E_CANCELLED);
	assert_int_equal(fix->status[2], -KVP_E_CANCELLED);
	assert_int_equal(fix->status[3], -KVP_E_CANCELLED);
}

static void
closing_a_loop_that_never_ran(void **state)
{
	struct fixture *fix = *state;
	struct kvp_rpc_link_cfg cfg = {.addr = "127.0.0.1:1"};
	struct kvp_rpc_link_cfg name_cfg = {.addr = "localhost:1"};
	struct kvp_rpc_link *link;

	assert_int_equal(fix->ops->link_open(fix->rpc, &cfg, &fix->link), 0);
	assert_int_equal(fix->ops->link_open(fix->rpc, &name_cfg, &link), 0);
	fix->ops->link_close(link);
	fix->ops->link_close(NULL);
	fix->reqs[0] = (struct kvp_rpc_req){.type = KVP_RPC_STATUS, .done = closing_done};
	fix->ops->call(fix->link, &fix->reqs[0], NULL, 0);
	fix->link = NULL;
	fix->ops->close(fix->rpc);
	fix->rpc = NULL;
	assert_int_equal(fix->count, 1);
	assert_int_equal(fix->status[0], -KVP_E_CANCELLED);
}

int
main(void)
{
#define LOOP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		LOOP(timers_fire_in_time_and_once),
		LOOP(a_running_timer_moves),
		LOOP(a_restless_timer_does_not_stop_the_loop),
		LOOP(posts_come_in_order),
		LOOP(watches_tell_once),
		LOOP(signals_reach_the_loop),
		LOOP(sigpipe_never_kills_and_the_mask_stays),
		LOOP(a_link_closed_inside_done),
		LOOP(closing_a_loop_that_never_ran),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
