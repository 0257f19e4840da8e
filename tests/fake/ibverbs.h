/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ibverbs.h - how a test steers the fake RDMA libraries (ibverbs.c). The test finds these functions
 * in the loaded library by name.
 */
#ifndef KVP_TESTS_FAKE_IBVERBS_H
#define KVP_TESTS_FAKE_IBVERBS_H

#include <stdint.h>

enum fake_kind {
	FAKE_CALL,       /* a call that may fail fails with err */
	FAKE_POLL,       /* a look at a completion queue fails */
	FAKE_COMPLETION, /* a work request completes with an error and breaks its queue pair */
	FAKE_EVENT,      /* an address, a route or a connection is not to be had */
	FAKE_KINDS,
};

/* From now on the n-th of its kind fails, and only that one; 0: none. err: a positive errno. */
typedef void (*fake_fail_fn)(enum fake_kind kind, uint64_t n, int err);
/* How many were made to fail since the last fake_fail of this kind. */
typedef uint64_t (*fake_failed_fn)(enum fake_kind kind);
/* Objects that exist: devices' lists, domains, registrations, queues, connections, events. */
typedef int (*fake_live_fn)(void);

void fake_fail(enum fake_kind kind, uint64_t n, int err);
uint64_t fake_failed(enum fake_kind kind);
int fake_live(void);

#endif /* KVP_TESTS_FAKE_IBVERBS_H */
