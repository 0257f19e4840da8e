/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.c - starts and joins threads.
 */
#include "hal/os/thread.h"
#include "hal/base/assert.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_NAME_LEN_MAX 15u /* the kernel's */

struct kvp_thread {
	pthread_t id;
	void (*fn)(void *arg);
	void *arg;
};

static void *
thread_main(void *arg)
{
	struct kvp_thread *thread = arg;

	thread->fn(thread->arg);
	return NULL;
}

int
kvp_thread_start(const char *name, void (*fn)(void *arg), void *arg, struct kvp_thread **ret_thread)
{
	struct kvp_thread *thread;
	sigset_t all;
	sigset_t before;
	int ret;

	kvp_assert(strlen(name) <= THREAD_NAME_LEN_MAX);
	thread = malloc(sizeof(*thread));
	if (thread == NULL) {
		return -ENOMEM;
	}
	*thread = (struct kvp_thread){.fn = fn, .arg = arg};
	/* A new thread inherits the mask: signals stay with the threads of the program. */
	(void)sigfillset(&all);
	kvp_assert(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	ret = pthread_create(&thread->id, NULL, thread_main, thread);
	kvp_assert(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	if (ret != 0) {
		free(thread);
		return -ret;
	}
	(void)pthread_setname_np(thread->id, name); /* for top and gdb only */
	*ret_thread = thread;
	return 0;
}

void
kvp_thread_join(struct kvp_thread *thread)
{
	if (thread == NULL) {
		return;
	}
	kvp_assert(pthread_equal(thread->id, pthread_self()) == 0);
	kvp_assert(pthread_join(thread->id, NULL) == 0);
	free(thread);
}
