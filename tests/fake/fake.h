/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.h - what the two files of the fake RDMA libraries share. Tests include ibverbs.h.
 */
#ifndef KVP_TESTS_FAKE_FAKE_H
#define KVP_TESTS_FAKE_FAKE_H

#include "tests/fake/ibverbs.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "fake: %s:%d: %s\n", __func__, __LINE__, #cond);     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct fake_qp {
	struct ibv_qp qp;
	struct fake_qp *peer; /* NULL: not connected or gone */
	int sge_max;
	int window_count;
};

extern pthread_mutex_t fake_lock; /* guards everything */
extern struct ibv_context fake_context;
extern int fake_count; /* of objects that exist */

/* The lock is held. Sets errno when it is this one's turn to fail. */
bool fake_fails(enum fake_kind kind);
/* A zeroed object, or NULL when this call is to fail. Leaves the lock held. */
void *fake_new(size_t size);
void fake_free(void *object);
/* Releases the lock, returns object. */
void *fake_unlocked(void *object);
/* Takes the lock; 0, or the errno with which this call is to fail. */
int fake_begin(void);
/* Releases the lock; 0, or -1 with errno. */
int fake_status(int err);
/* NULL: none. The lock is held. */
struct fake_qp *fake_qp_find(uint32_t qp_num);

#endif /* KVP_TESTS_FAKE_FAKE_H */
