/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - the engine for where io_uring is forbidden: a pool of threads that call pread,
 * pwrite and fdatasync.
 *
 * The requests on `todo` and `done` are shared under the lock; one that a worker took is its own
 * until it is on `done`. A worker wakes the owner only if it said that it is about to sleep.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/blk/blk.h"
#include "hal/os/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

extern const struct kvp_blk_ops kvp_blk_threads;

struct threads {
	struct kvp_blk_engine engine;
	const int *fds;
	uint32_t flight; /* the owner's */
	uint32_t count;
	int event_fd;
	pthread_mutex_t lock;
	pthread_cond_t work; /* todo is not empty, or stop */
	struct kvp_list todo;
	struct kvp_list done;
	bool stop;
	bool sleeping; /* the owner wants a wakeup */
	bool woken;    /* event_fd is readable */
	struct kvp_thread *workers[];
};

static struct threads *
threads_of(struct kvp_blk_engine *engine)
{
	return kvp_container_of(engine, struct threads, engine);
}

static int32_t
threads_do(const struct threads *t, const struct kvp_blk_req *req)
{
	int fd = t->fds[req->file];
	ssize_t ret;

	if (req->op == KVP_BLK_READ) {
		ret = pread(fd, req->addr, req->len, (off_t)req->off);
	} else if (req->op == KVP_BLK_WRITE) {
		ret = pwrite(fd, req->addr, req->len, (off_t)req->off);
	} else {
		ret = fdatasync(fd);
	}
	return ret < 0 ? -errno : (int32_t)ret;
}

/* Under the lock. */
static void
threads_wake_owner(struct threads *t)
{
	const uint64_t one = 1;

	if (t->sleeping) {
		t->sleeping = false;
		t->woken = true;
		/* Cannot block: the counter is read back before it is raised again. */
		kvp_assert(write(t->event_fd, &one, sizeof(one)) == sizeof(one));
	}
}

static void
threads_worker(void *arg)
{
	struct threads *t = arg;
	struct kvp_list *link;

	kvp_assert(pthread_mutex_lock(&t->lock) == 0);
	for (;;) {
		struct kvp_blk_req *req;

		link = kvp_list_pop_front(&t->todo);
		if (link == NULL && t->stop) {
			break;
		}
		if (link == NULL) {
			kvp_assert(pthread_cond_wait(&t->work, &t->lock) == 0);
			continue;
		}
		kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
		req = kvp_container_of(link, struct kvp_blk_req, link);
		req->res = threads_do(t, req);
		kvp_assert(pthread_mutex_lock(&t->lock) == 0);
		kvp_list_push_back(&t->done, link);
		threads_wake_owner(t);
	}
	kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
}

static void
threads_close(struct kvp_blk_engine *engine)
{
	struct threads *t = threads_of(engine);

	kvp_assert(t->flight == 0);
	kvp_assert(pthread_mutex_lock(&t->lock) == 0);
	t->stop = true;
	kvp_assert(pthread_cond_broadcast(&t->work) == 0);
	kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
	for (uint32_t i = 0; i < t->count; i++) {
		kvp_thread_join(t->workers[i]);
	}
	kvp_assert(pthread_cond_destroy(&t->work) == 0);
	kvp_assert(pthread_mutex_destroy(&t->lock) == 0);
	(void)close(t->event_fd); /* a counter */
	free(t);
}

static int
threads_open(const struct kvp_blk_engine_cfg *cfg, struct kvp_blk_engine **ret_engine)
{
	uint32_t want = cfg->threads < cfg->depth ? cfg->threads : cfg->depth;
	struct threads *t = calloc(1, sizeof(*t) + want * sizeof(t->workers[0]));

	if (t == NULL) {
		return -ENOMEM;
	}
	t->engine.ops = &kvp_blk_threads;
	t->fds = cfg->fds;
	kvp_list_init(&t->todo);
	kvp_list_init(&t->done);
	t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->event_fd < 0) {
		int err = errno;

		free(t);
		return -err;
	}
	kvp_assert(pthread_mutex_init(&t->lock, NULL) == 0);
	kvp_assert(pthread_cond_init(&t->work, NULL) == 0);
	for (t->count = 0; t->count < want; t->count++) {
		char name[16];
		int ret;

		(void)snprintf(name, sizeof(name), "kvp-blk-%u", t->count % 100u);
		ret = kvp_thread_start(name, threads_worker, t, &t->workers[t->count]);
		if (ret < 0) {
			threads_close(&t->engine); /* joins those that started */
			return ret;
		}
	}
	*ret_engine = &t->engine;
	return 0;
}

static void
threads_post(struct kvp_blk_engine *engine, struct kvp_list *reqs)
{
	struct threads *t = threads_of(engine);
	struct kvp_list *link;
	uint32_t count = 0;

	kvp_assert(pthread_mutex_lock(&t->lock) == 0);
	while ((link = kvp_list_pop_front(reqs)) != NULL) {
		kvp_list_push_back(&t->todo, link);
		count++;
	}
	if (count == 1) {
		kvp_assert(pthread_cond_signal(&t->work) == 0);
	} else {
		kvp_assert(pthread_cond_broadcast(&t->work) == 0);
	}
	kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
	t->flight += count;
}

static void
threads_poll(struct kvp_blk_engine *engine, struct kvp_list *ret_reqs)
{
	struct threads *t = threads_of(engine);
	struct kvp_list *link;

	if (t->flight == 0) {
		return;
	}
	kvp_assert(pthread_mutex_lock(&t->lock) == 0);
	while ((link = kvp_list_pop_front(&t->done)) != NULL) {
		kvp_list_push_back(ret_reqs, link);
		t->flight--;
	}
	kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
}

static int
threads_wait_fd(struct kvp_blk_engine *engine)
{
	struct threads *t = threads_of(engine);
	int ret = t->event_fd;
	uint64_t count;

	kvp_assert(pthread_mutex_lock(&t->lock) == 0);
	if (t->woken) {
		kvp_assert(read(t->event_fd, &count, sizeof(count)) == sizeof(count));
		t->woken = false;
	}
	t->sleeping = kvp_list_empty(&t->done);
	if (!t->sleeping) {
		ret = -EAGAIN;
	}
	kvp_assert(pthread_mutex_unlock(&t->lock) == 0);
	return ret;
}

const struct kvp_blk_ops kvp_blk_threads = {
	.name = "threads",
	.open = threads_open,
	.close = threads_close,
	.post = threads_post,
	.poll = threads_poll,
	.wait_fd = threads_wait_fd,
};
