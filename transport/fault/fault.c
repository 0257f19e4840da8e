/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - the decorator. Each xport has its own ops table: what it does not change are the inner
 * functions themselves, so registrations are the inner provider's.
 *
 * A completion that is made to fail disconnects the inner connection first, so that everything
 * still posted on it completes with an error too, as the contract says.
 */
#include "transport/fault/fault.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct fault_xport {
	struct kvp_xport base; /* .ops points to ops below */
	struct kvp_xport_ops ops;
	struct kvp_xport *inner;
	struct kvp_fault_plan *plan;
};

struct fault_conn {
	struct fault_xport *x;
	struct kvp_conn *inner; /* NULL: already given back */
	uint32_t io_count;
	bool gone;
};

/* Stands in for the caller's io while that is posted. */
struct fault_io {
	struct kvp_io inner;
	struct kvp_io *user;
	struct fault_conn *conn;
};

static struct fault_xport *
fault_of(struct kvp_xport *xport)
{
	return kvp_container_of(xport, struct fault_xport, base);
}

static bool
fault_hit(struct fault_xport *x, uint64_t *countdown)
{
	if (*countdown == 0 || --*countdown > 0) {
		return false;
	}
	x->plan->failed++;
	return true;
}

static void
conn_break(struct fault_conn *conn)
{
	if (conn->inner != NULL) {
		struct kvp_conn *inner = conn->inner;

		conn->inner = NULL;
		conn->x->inner->ops->disconnect(inner);
	}
}

static void
conn_put(struct fault_conn *conn)
{
	if (conn->gone && conn->io_count == 0) {
		free(conn);
	}
}

static void
fault_done(struct kvp_io *inner)
{
	struct fault_io *fio = kvp_container_of(inner, struct fault_io, inner);
	struct fault_conn *conn = fio->conn;
	struct kvp_io *user = fio->user;

	user->status = inner->status;
	user->prov_err = inner->prov_err;
	free(fio);
	if (user->status == 0 && fault_hit(conn->x, &conn->x->plan->done_nth)) {
		int err = conn->x->plan->done_err;

		user->status = err != 0 ? err : -KVP_E_CONNDOWN;
		conn_break(conn);
	}
	conn->io_count--;
	conn_put(conn);
	user->done(user);
}

static struct fault_io *
io_new(struct fault_conn *conn, struct kvp_io *user)
{
	struct fault_io *fio = calloc(1, sizeof(*fio));

	if (fio != NULL) {
		fio->inner.done = fault_done;
		fio->user = user;
		fio->conn = conn;
		conn->io_count++;
	}
	return fio;
}

/* Posting went wrong: the inner io was never posted. */
static void
io_undo(struct fault_io *fio)
{
	fio->conn->io_count--;
	free(fio);
}

static int
fault_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn)
{
	struct fault_xport *x = fault_of(xport);
	struct fault_conn *conn;
	struct fault_io *fio;
	int ret;

	if (fault_hit(x, &x->plan->connect_nth)) {
		return x->plan->post_err != 0 ? x->plan->post_err : -ECONNREFUSED;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL) {
		return -ENOMEM;
	}
	conn->x = x;
	fio = io_new(conn, io);
	if (fio == NULL) {
		free(conn);
		return -ENOMEM;
	}
	ret = x->inner->ops->connect(x->inner, addr, token, &fio->inner, &conn->inner);
	if (ret != 0) {
		io_undo(fio);
		free(conn);
		return ret;
	}
	*ret_conn = (struct kvp_conn *)conn;
	return 0;
}

static void
fault_disconnect(struct kvp_conn *kvp_conn)
{
	struct fault_conn *conn = (struct fault_conn *)kvp_conn;

	kvp_assert(!conn->gone);
	conn_break(conn);
	conn->gone = true;
	conn_put(conn);
}

static int
fault_post(struct fault_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, struct kvp_io *io, bool write)
{
	struct fault_xport *x = conn->x;
	struct fault_io *fio;
	int ret;

	if (conn->inner == NULL) {
		return -KVP_E_CONNDOWN;
	}
	if (fault_hit(x, &x->plan->post_nth)) {
		ret = x->plan->post_err != 0 ? x->plan->post_err : -KVP_E_CONNDOWN;
		if (ret != -EAGAIN) {
			conn_break(conn);
		}
		return ret;
	}
	fio = io_new(conn, io);
	if (fio == NULL) {
		return -ENOMEM;
	}
	ret = write ? x->inner->ops->write(conn->inner, segs, count, rdesc, off, &fio->inner)
		    : x->inner->ops->read(conn->inner, segs, count, rdesc, off, &fio->inner);
	if (ret != 0) {
		io_undo(fio);
	}
	return ret;
}

static int
fault_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io)
{
	return fault_post((struct fault_conn *)conn, dst, count, src, off, io, false);
}

static int
fault_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io)
{
	return fault_post((struct fault_conn *)conn, src, count, dst, off, io, true);
}

/* Those that take an xport hand on the inner one. */
static void
fault_close(struct kvp_xport *xport)
{
	struct fault_xport *x;

	if (xport == NULL) {
		return;
	}
	x = fault_of(xport);
	x->inner->ops->close(x->inner);
	free(x);
}

static int
fault_mr_reg(
	struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->mr_reg(inner, mem, access, ret_mr);
}

static int
fault_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->listen(inner, addr, ret_addr);
}

static int
fault_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->admit(inner, token);
}

static int
fault_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->fence(inner, token);
}

static int
fault_poll(struct kvp_xport *xport, uint32_t max)
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->poll(inner, max);
}

static int
fault_wait_fd(struct kvp_xport *xport)
{
	struct kvp_xport *inner = fault_of(xport)->inner;

	return inner->ops->wait_fd(inner);
}

int
kvp_fault_open(const struct kvp_xport_ops *inner, const struct kvp_xport_cfg *cfg,
	struct kvp_fault_plan *plan, struct kvp_xport **ret_xport)
{
	struct kvp_xport_cfg inner_cfg = *cfg;
	struct fault_xport *x = calloc(1, sizeof(*x));
	int ret;

	if (x == NULL) {
		return -ENOMEM;
	}
	if (cfg->share != NULL && cfg->share->ops->connect == fault_connect) {
		inner_cfg.share = fault_of(cfg->share)->inner;
	}
	ret = inner->open(&inner_cfg, &x->inner);
	if (ret != 0) {
		free(x);
		return ret;
	}
	x->plan = plan;
	x->ops = *inner; /* name, caps, mr_dereg and mr_rdesc stay */
	x->ops.close = fault_close;
	x->ops.mr_reg = fault_mr_reg;
	x->ops.listen = fault_listen;
	x->ops.admit = fault_admit;
	x->ops.fence = fault_fence;
	x->ops.connect = fault_connect;
	x->ops.disconnect = fault_disconnect;
	x->ops.read = inner->read != NULL ? fault_read : NULL;
	x->ops.write = inner->write != NULL ? fault_write : NULL;
	x->ops.poll = fault_poll;
	x->ops.wait_fd = fault_wait_fd;
	x->base.ops = &x->ops;
	*ret_xport = &x->base;
	return 0;
}
