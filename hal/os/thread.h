/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.h - our threads: named, every signal blocked, joined by who started them.
 */
#ifndef KVP_HAL_OS_THREAD_H
#define KVP_HAL_OS_THREAD_H

struct kvp_thread;

/* fn(arg) runs on a new thread. name: at most 15 bytes. Errors: -EAGAIN, -ENOMEM. */
int kvp_thread_start(
	const char *name, void (*fn)(void *arg), void *arg, struct kvp_thread **ret_thread);

/* Waits for fn to return, frees the thread. NULL is fine. */
void kvp_thread_join(struct kvp_thread *thread);

#endif /* KVP_HAL_OS_THREAD_H */
