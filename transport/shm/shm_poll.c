/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_poll.c - moving an initiator on, and what to sleep on. HOT.
 */
#include "transport/shm/shm.h"

#include "hal/base/assert.h"

#include <errno.h>

static void
poll_deliver(struct kvp_io *io)
{
	struct shm_conn *conn = (struct shm_conn *)(uintptr_t)io->prov[SHM_IO_CONN];

	kvp_assert(conn->io_count > 0);
	conn->io_count--;
	if (conn->connect_io == io) {
		conn->connect_io = NULL;
	}
	if (conn->gone && conn->io_count == 0) {
		shm_conn_free(conn);
	}
	io->done(io); /* may post, connect or disconnect */
}

int
shm_poll(struct kvp_xport *xport, uint32_t max)
{
	struct shm_xport *x = shm_of(xport);
	uint32_t done = 0;

	if (!kvp_list_empty(&x->connecting)) {
		shm_cm_progress(x);
	}
	while (done < max) {
		struct kvp_list *node = kvp_list_pop_front(&x->ready);
		struct kvp_io *io;

		if (node != NULL) {
			io = kvp_container_of(node, struct kvp_io, link);
		} else if ((node = kvp_list_pop_front(&x->queue)) != NULL) {
			io = kvp_container_of(node, struct kvp_io, link);
			shm_io_run(x, io);
		} else {
			break;
		}
		done++;
		poll_deliver(io);
	}
	return (int)done;
}

int
shm_wait_fd(struct kvp_xport *xport)
{
	struct shm_xport *x = shm_of(xport);

	if (!kvp_list_empty(&x->ready) || !kvp_list_empty(&x->queue)) {
		return -EAGAIN;
	}
	return x->epoll_fd;
}
