/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv_timer.c - timers and watches.
 *
 * Timers lie in a binary heap of pointers by deadline (env time), under one uv_timer that is set
 * for the earliest: a deadline for each call costs no handle. Loop thread only.
 *   timer->impl[0]  place in the heap, counted from 1; 0: not running
 *   timer->impl[1]  deadline
 *   watch->impl[0]  its struct watch_handle; NULL: not running
 */
#include "hal/base/assert.h"
#include "transport/rpc/rpc_uv.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a deadline lies in a pointer's place");

static uint64_t
timer_deadline(const struct kvp_rpc_timer *timer)
{
	return (uint64_t)(uintptr_t)timer->impl[1];
}

static void
heap_put(struct kvp_rpc_uv *rpc, size_t idx, struct kvp_rpc_timer *timer)
{
	rpc->heap[idx] = timer;
	timer->impl[0] = (void *)(uintptr_t)(idx + 1);
}

/* Moves the timer at idx to where its deadline belongs. */
static void
heap_settle(struct kvp_rpc_uv *rpc, size_t idx)
{
	struct kvp_rpc_timer *timer = rpc->heap[idx];
	uint64_t deadline = timer_deadline(timer);

	while (idx > 0 && timer_deadline(rpc->heap[(idx - 1) / 2]) > deadline) {
		heap_put(rpc, idx, rpc->heap[(idx - 1) / 2]);
		idx = (idx - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * idx + 1;

		if (child + 1 < rpc->heap_count &&
			timer_deadline(rpc->heap[child + 1]) < timer_deadline(rpc->heap[child])) {
			child++;
		}
		if (child >= rpc->heap_count || timer_deadline(rpc->heap[child]) >= deadline) {
			break;
		}
		heap_put(rpc, idx, rpc->heap[child]);
		idx = child;
	}
	heap_put(rpc, idx, timer);
}

static void
heap_remove(struct kvp_rpc_uv *rpc, size_t idx)
{
	struct kvp_rpc_timer *timer = rpc->heap[idx];
	struct kvp_rpc_timer *last = rpc->heap[--rpc->heap_count];

	timer->impl[0] = NULL;
	if (last != timer) {
		heap_put(rpc, idx, last);
		heap_settle(rpc, idx);
	}
}

static void
timer_clock(uv_timer_t *clock)
{
	kvp_rpc_timer_fire(clock->data);
}

/* Has the loop come back at the earliest deadline. */
static void
timer_arm(struct kvp_rpc_uv *rpc)
{
	uint64_t now;
	uint64_t deadline;
	int err;

	if (rpc->closing) {
		return;
	}
	if (rpc->heap_count == 0) {
		(void)uv_timer_stop(&rpc->clock); /* never fails */
		return;
	}
	now = kvp_now_ns(rpc->cfg.env);
	deadline = timer_deadline(rpc->heap[0]);
	if (deadline <= now) {
		/* Not by a timer of no delay: libuv runs one that starts itself again for ever,
		 * without a look at its sockets. */
		(void)uv_timer_stop(&rpc->clock); /* never fails */
		err = uv_async_send(&rpc->wake);
	} else {
		/* Rounded up, so that it has passed when we wake. */
		uv_update_time(&rpc->loop);
		err = uv_timer_start(&rpc->clock, timer_clock,
			(deadline - now + KVP_NS_PER_MS - 1) / KVP_NS_PER_MS, 0);
	}
	kvp_assert(err == 0);
}

void
kvp_rpc_timer_fire(struct kvp_rpc_uv *rpc)
{
	uint64_t now = kvp_now_ns(rpc->cfg.env);

	/* At most as many as there are now: a timer that starts itself again with no delay must
	 * not keep the loop from its sockets. */
	for (size_t left = rpc->heap_count; left > 0 && rpc->heap_count > 0; left--) {
		struct kvp_rpc_timer *timer = rpc->heap[0];

		if (timer_deadline(timer) > now) {
			break;
		}
		heap_remove(rpc, 0);
		timer->fn(timer);
	}
	timer_arm(rpc);
}

bool
kvp_rpc_timer_running(const struct kvp_rpc_timer *timer)
{
	return timer->impl[0] != NULL;
}

static void
heap_grow(struct kvp_rpc_uv *rpc)
{
	size_t cap = rpc->heap_cap == 0 ? 256 : rpc->heap_cap * 2;
	struct kvp_rpc_timer **heap = realloc(rpc->heap, cap * sizeof(*heap));

	/* Eight bytes a timer; there is no way on without deadlines. */
	kvp_assert(heap != NULL);
	rpc->heap = heap;
	rpc->heap_cap = cap;
}

void
kvp_rpc_timer_start(struct kvp_rpc *pub, struct kvp_rpc_timer *timer, uint64_t delay_ns)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct kvp_rpc_timer *first = rpc->heap_count > 0 ? rpc->heap[0] : NULL;
	uint64_t deadline;
	size_t idx;

	kvp_assert(timer->fn != NULL);
	if (__builtin_add_overflow(kvp_now_ns(rpc->cfg.env), delay_ns, &deadline)) {
		deadline = UINT64_MAX;
	}
	timer->impl[1] = (void *)(uintptr_t)deadline;
	if (kvp_rpc_timer_running(timer)) {
		idx = (size_t)(uintptr_t)timer->impl[0] - 1;
		kvp_assert(idx < rpc->heap_count && rpc->heap[idx] == timer);
	} else {
		if (rpc->heap_count == rpc->heap_cap) {
			heap_grow(rpc);
		}
		idx = rpc->heap_count++;
		heap_put(rpc, idx, timer);
	}
	heap_settle(rpc, idx);
	if (rpc->heap[0] == timer || rpc->heap[0] != first) {
		timer_arm(rpc);
	}
}

void
kvp_rpc_timer_stop(struct kvp_rpc *pub, struct kvp_rpc_timer *timer)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	size_t idx;

	if (!kvp_rpc_timer_running(timer)) {
		return;
	}
	idx = (size_t)(uintptr_t)timer->impl[0] - 1;
	kvp_assert(idx < rpc->heap_count && rpc->heap[idx] == timer);
	heap_remove(rpc, idx);
	/* A uv_timer that is now too early finds nothing to do and is set again then. */
}

/* --- watches ------------------------------------------------------------------------------------
 */
struct watch_handle {
	uv_poll_t poll;
	struct kvp_list node; /* in rpc->watches */
	struct kvp_rpc_watch *watch;
};

static void
watch_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void
watch_drop(struct watch_handle *handle)
{
	handle->watch->impl[0] = NULL;
	kvp_list_remove(&handle->node);
	uv_close((uv_handle_t *)&handle->poll, watch_closed);
}

/* Errors of the descriptor count as readiness: whoever reads it will see them. */
static void
watch_ready(uv_poll_t *poll, int status, int events)
{
	struct watch_handle *handle = poll->data;
	struct kvp_rpc_watch *watch = handle->watch;

	(void)status;
	(void)events;
	watch_drop(handle);
	watch->fn(watch);
}

int
kvp_rpc_watch_start(struct kvp_rpc *pub, struct kvp_rpc_watch *watch, int fd)
{
	struct kvp_rpc_uv *rpc = kvp_rpc_uv_of(pub);
	struct watch_handle *handle;
	int err;

	kvp_rpc_watch_stop(pub, watch);
	handle = calloc(1, sizeof(*handle));
	if (handle == NULL) {
		return -ENOMEM;
	}
	err = uv_poll_init(&rpc->loop, &handle->poll, fd);
	if (err < 0) {
		free(handle);
		return kvp_rpc_uv_err(err);
	}
	handle->poll.data = handle;
	handle->watch = watch;
	watch->impl[0] = handle;
	kvp_list_push_back(&rpc->watches, &handle->node);
	err = uv_poll_start(&handle->poll, UV_READABLE | UV_DISCONNECT, watch_ready);
	if (err < 0) {
		watch_drop(handle);
	}
	return kvp_rpc_uv_err(err);
}

void
kvp_rpc_watch_stop(struct kvp_rpc *pub, struct kvp_rpc_watch *watch)
{
	(void)pub;
	if (watch->impl[0] != NULL) {
		watch_drop(watch->impl[0]);
	}
}

void
kvp_rpc_watch_close_all(struct kvp_rpc_uv *rpc)
{
	while (!kvp_list_empty(&rpc->watches)) {
		watch_drop(kvp_container_of(rpc->watches.next, struct watch_handle, node));
	}
}
