/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_poll.c - moving an initiator on, and what to sleep on. HOT.
 *
 * Completions go through xport.ready, from where at most max are delivered, because one read of
 * the completion queue may finish more.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/assert.h"

#define POLL_ENTRIES_MAX 16  /* taken from the completion queue at once */
#define POLL_EQ_EVERY    64u /* polls between two looks at the event queue, when nothing is known */

/* One read of a connection's completion queue. An error ends the connection and its queue. */
static void
poll_cq(struct ofi_xport *x, struct ofi_conn *conn)
{
	struct fi_cq_entry entries[POLL_ENTRIES_MAX];
	ssize_t n = fi_cq_read(conn->cq, entries, POLL_ENTRIES_MAX);

	while (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};

		if (fi_cq_readerr(conn->cq, &err, 0) <= 0) {
			return;
		}
		x->eq_check = true;
		ofi_io_complete(x, (uint64_t)(uintptr_t)err.op_context,
			err.err != 0 ? err.err : FI_EIO, err.prov_errno);
		if (conn->cq == NULL) {
			return;
		}
		n = fi_cq_read(conn->cq, entries, POLL_ENTRIES_MAX);
	}
	for (ssize_t i = 0; i < n; i++) {
		ofi_io_complete(x, (uint64_t)(uintptr_t)entries[i].op_context, 0, 0);
	}
}

static void
poll_deliver(struct kvp_io *io)
{
	struct ofi_conn *conn = (struct ofi_conn *)(uintptr_t)io->prov[OFI_IO_CONN];

	kvp_assert(conn->io_count > 0);
	conn->io_count--;
	if (conn->gone && conn->io_count == 0) {
		ofi_conn_free(conn);
	}
	io->done(io); /* may post, connect or disconnect */
}

int
ofi_poll(struct kvp_xport *xport, uint32_t max)
{
	struct ofi_xport *x = ofi_of(xport);
	uint32_t done = 0;

	x->poll_count++;
	if (x->eq_check || !kvp_list_empty(&x->connecting) || x->poll_count % POLL_EQ_EVERY == 0) {
		ofi_cm_progress(x);
	}
	if (kvp_list_empty(&x->ready)) {
		kvp_list_for_each_safe (node, &x->open) {
			poll_cq(x, kvp_container_of(node, struct ofi_conn, open_link));
		}
	}
	while (done < max) {
		struct kvp_list *node = kvp_list_pop_front(&x->ready);

		if (node == NULL) {
			break;
		}
		done++;
		poll_deliver(kvp_container_of(node, struct kvp_io, link));
	}
	return (int)done;
}

int
ofi_wait_fd(struct kvp_xport *xport)
{
	struct ofi_xport *x = ofi_of(xport);
	struct fid *eq = &x->queue.eq->fid;
	bool ready = !kvp_list_empty(&x->ready);

	kvp_list_for_each (node, &x->open) {
		struct fid *cq = &kvp_container_of(node, struct ofi_conn, open_link)->cq->fid;

		ready = ready || fi_trywait(x->dom->fabric, &cq, 1) != 0;
	}
	/* The event queue last: progress of the others may write to it. */
	if (ready || fi_trywait(x->dom->fabric, &eq, 1) != 0) {
		x->eq_check = true;
		return -EAGAIN;
	}
	x->eq_check = true; /* whatever wakes the caller may be an event */
	return x->epoll_fd;
}
