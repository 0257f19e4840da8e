/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_xport.c - one-sided reads and writes as hardware does them at its worst: in pieces, each at
 * a time of its own between posting and completion, in any order. A read's completion comes after
 * its last piece; pieces of a fenced or ended connection are dropped.
 */
#include "hal/base/err.h"
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_LEN_MAX 4096u
#define TOKENS_MAX    64u
#define SLOW_ONE_IN   8u            /* operations: a retransmission, a busy link */
#define SLOW_NS_MAX   (25000000ull) /* longer than the quarantine of the simulated nodes */

struct sim_xport {
	struct kvp_xport pub;
	struct sim *sim;
	struct kvp_list link; /* of sim.xport_targets */
	char addr[KVP_ADDR_LEN_MAX];
	uint8_t tokens[TOKENS_MAX][KVP_TOKEN_LEN];
	uint32_t token_count;
	struct kvp_list accepted; /* struct kvp_conn.target_link */
	struct kvp_list ready;    /* struct kvp_io: poll() completes them */
};

struct kvp_mr {
	struct kvp_mem mem;
	uint32_t access;
};

struct kvp_conn {
	struct sim_xport *xport;
	struct kvp_list target_link; /* empty: the target ended it */
	uint8_t token[KVP_TOKEN_LEN];
	uint32_t posted;
	bool up;
	bool disconnected;
};

/* What an io carries while it is posted: prov[0] conn, prov[1] pieces left, prov[2] status. */
struct piece {
	struct kvp_io *io;
	struct kvp_conn *conn;
	uint8_t *dst;
	const uint8_t *src;
	size_t len;
};

static struct sim_xport *
xport_of(struct kvp_xport *xport)
{
	return kvp_container_of(xport, struct sim_xport, pub);
}

static int
simx_open(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport)
{
	struct sim_xport *xport = calloc(1, sizeof(*xport));

	xport->pub.ops = &sim_xport_ops;
	xport->sim = kvp_container_of(cfg->env, struct sim, env);
	kvp_list_init(&xport->link);
	kvp_list_init(&xport->accepted);
	kvp_list_init(&xport->ready);
	*ret_xport = &xport->pub;
	return 0;
}

static void
conn_dead(struct kvp_conn *conn)
{
	kvp_list_remove(&conn->target_link);
}

static void
simx_close(struct kvp_xport *pub)
{
	struct sim_xport *xport;

	if (pub == NULL) {
		return;
	}
	xport = xport_of(pub);
	kvp_list_for_each_safe (pos, &xport->accepted) {
		conn_dead(kvp_container_of(pos, struct kvp_conn, target_link));
	}
	kvp_list_remove(&xport->link);
	free(xport);
}

static int
simx_mr_reg(
	struct kvp_xport *pub, const struct kvp_mem *mem, uint32_t access, struct kvp_mr **ret_mr)
{
	struct kvp_mr *mr = calloc(1, sizeof(*mr));

	(void)pub;
	mr->mem = *mem;
	mr->access = access;
	*ret_mr = mr;
	return 0;
}

static void
simx_mr_dereg(struct kvp_mr *mr)
{
	free(mr);
}

static void
simx_mr_rdesc(const struct kvp_mr *mr, struct kvp_rdesc *ret_rdesc)
{
	ret_rdesc->len = 3 * 8;
	memcpy(ret_rdesc->bytes, &(uint64_t[3]){(uintptr_t)mr->mem.base, mr->mem.len, mr->access},
		24);
}

static int
simx_listen(struct kvp_xport *pub, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct sim_xport *xport = xport_of(pub);

	snprintf(xport->addr, sizeof(xport->addr), "%s", addr);
	snprintf(ret_addr, KVP_ADDR_LEN_MAX, "%s", addr);
	kvp_list_push_back(&xport->sim->xport_targets, &xport->link);
	return 0;
}

static int
simx_admit(struct kvp_xport *pub, const uint8_t token[KVP_TOKEN_LEN])
{
	struct sim_xport *xport = xport_of(pub);

	if (xport->token_count == TOKENS_MAX) {
		return -ENOSPC;
	}
	memcpy(xport->tokens[xport->token_count++], token, KVP_TOKEN_LEN);
	return 0;
}

static int
simx_fence(struct kvp_xport *pub, const uint8_t token[KVP_TOKEN_LEN])
{
	struct sim_xport *xport = xport_of(pub);

	for (uint32_t i = 0; i < xport->token_count; i++) {
		if (memcmp(xport->tokens[i], token, KVP_TOKEN_LEN) == 0) {
			memcpy(xport->tokens[i], xport->tokens[--xport->token_count],
				KVP_TOKEN_LEN);
			break;
		}
	}
	kvp_list_for_each_safe (pos, &xport->accepted) {
		struct kvp_conn *conn = kvp_container_of(pos, struct kvp_conn, target_link);

		if (memcmp(conn->token, token, KVP_TOKEN_LEN) == 0) {
			conn_dead(conn);
		}
	}
	return 0;
}

static void
conn_free_if_done(struct kvp_conn *conn)
{
	if (conn->disconnected && conn->posted == 0) {
		conn_dead(conn);
		free(conn);
	}
}

static void
io_ready(struct kvp_io *io)
{
	struct kvp_conn *conn = (struct kvp_conn *)(uintptr_t)io->prov[0];

	kvp_list_push_back(&conn->xport->ready, &io->link);
}

static bool
token_known(const struct sim_xport *target, const uint8_t token[KVP_TOKEN_LEN])
{
	for (uint32_t i = 0; i < target->token_count; i++) {
		if (memcmp(target->tokens[i], token, KVP_TOKEN_LEN) == 0) {
			return true;
		}
	}
	return false;
}

struct attempt {
	struct kvp_conn *conn;
	struct kvp_io *io;
	char addr[KVP_ADDR_LEN_MAX];
};

static void
connect_arrive(void *arg)
{
	struct attempt *attempt = arg;
	struct kvp_conn *conn = attempt->conn;
	int status = -ECONNREFUSED;

	kvp_list_for_each (pos, &conn->xport->sim->xport_targets) {
		struct sim_xport *target = kvp_container_of(pos, struct sim_xport, link);

		if (strcmp(target->addr, attempt->addr) == 0 && token_known(target, conn->token)) {
			kvp_list_push_back(&target->accepted, &conn->target_link);
			status = 0;
			break;
		}
	}
	conn->up = status == 0;
	attempt->io->prov[2] = (uint64_t)(int64_t)status;
	io_ready(attempt->io);
	free(attempt);
}

static int
simx_connect(struct kvp_xport *pub, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn)
{
	struct sim_xport *xport = xport_of(pub);
	struct kvp_conn *conn = calloc(1, sizeof(*conn));
	struct attempt *attempt = calloc(1, sizeof(*attempt));

	conn->xport = xport;
	kvp_list_init(&conn->target_link);
	memcpy(conn->token, token, KVP_TOKEN_LEN);
	*attempt = (struct attempt){.conn = conn, .io = io};
	snprintf(attempt->addr, sizeof(attempt->addr), "%s", addr);
	io->prov[0] = (uintptr_t)conn;
	conn->posted++;
	sim_after(xport->sim, sim_below(xport->sim, xport->sim->delay_ns_max), connect_arrive,
		attempt);
	*ret_conn = conn;
	return 0;
}

static void
simx_disconnect(struct kvp_conn *conn)
{
	conn->disconnected = true;
	conn_free_if_done(conn);
}

static void
piece_land(void *arg)
{
	struct piece *piece = arg;
	struct kvp_conn *conn = piece->conn;
	struct kvp_io *io = piece->io;

	if (conn->disconnected || kvp_list_empty(&conn->target_link)) {
		conn->xport->sim->counts_fenced++;
		io->prov[2] = (uint64_t)(int64_t)-KVP_E_CONNDOWN;
	} else {
		memcpy(piece->dst, piece->src, piece->len);
	}
	if (--io->prov[1] == 0) {
		io_ready(io);
	}
	free(piece);
}

/* Cuts one segment's share into pieces. */
static void
pieces_make(struct kvp_conn *conn, struct kvp_io *io, uint8_t *local, uint8_t *remote, size_t len,
	bool write)
{
	struct sim *sim = conn->xport->sim;
	uint64_t ns_max = (io->prov[3] & 1) != 0 ? SLOW_NS_MAX : sim->piece_ns_max;

	while (len > 0) {
		struct piece *piece = calloc(1, sizeof(*piece));
		size_t n = 64 + sim_below(sim, PIECE_LEN_MAX);

		n = n < len ? n : len;
		*piece = (struct piece){.io = io,
			.conn = conn,
			.dst = write ? remote : local,
			.src = write ? local : remote,
			.len = n};
		io->prov[1]++;
		sim_after(sim, 1 + sim_below(sim, ns_max), piece_land, piece);
		local += n;
		remote += n;
		len -= n;
	}
}

static int
post(struct kvp_conn *conn, const struct kvp_seg *segs, uint32_t count,
	const struct kvp_rdesc *rdesc, uint64_t off, struct kvp_io *io, bool write)
{
	uint64_t desc[3];
	uint64_t len = 0;

	memcpy(desc, rdesc->bytes, sizeof(desc));
	for (uint32_t i = 0; i < count; i++) {
		len += segs[i].len;
	}
	if (!conn->up || conn->disconnected) {
		return -KVP_E_CONNDOWN;
	}
	if (off > desc[1] || len > desc[1] - off ||
		(desc[2] & (write ? KVP_MR_REMOTE_WRITE : KVP_MR_REMOTE_READ)) == 0) {
		return -EINVAL;
	}
	io->prov[0] = (uintptr_t)conn;
	io->prov[1] = 0;
	io->prov[2] = 0;
	io->prov[3] = conn->xport->sim->slow && sim_below(conn->xport->sim, SLOW_ONE_IN) == 0;
	conn->posted++;
	for (uint32_t i = 0; i < count; i++) {
		pieces_make(conn, io, segs[i].addr, (uint8_t *)(uintptr_t)desc[0] + off,
			segs[i].len, write);
		off += segs[i].len;
	}
	return 0;
}

static int
simx_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io)
{
	return post(conn, dst, count, src, off, io, false);
}

static int
simx_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io)
{
	return post(conn, src, count, dst, off, io, true);
}

static int
simx_poll(struct kvp_xport *pub, uint32_t max)
{
	struct sim_xport *xport = xport_of(pub);
	int count = 0;

	while ((uint32_t)count < max) {
		struct kvp_list *node = kvp_list_pop_front(&xport->ready);
		struct kvp_conn *conn;
		struct kvp_io *io;

		if (node == NULL) {
			break;
		}
		io = kvp_container_of(node, struct kvp_io, link);
		conn = (struct kvp_conn *)(uintptr_t)io->prov[0];
		io->status = (int)(int64_t)io->prov[2];
		conn->posted--;
		conn_free_if_done(conn);
		io->done(io);
		count++;
	}
	return count;
}

static int
simx_wait_fd(struct kvp_xport *pub)
{
	(void)pub;
	return -ENOSYS;
}

const struct kvp_xport_ops sim_xport_ops = {
	.name = "sim",
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE,
	.open = simx_open,
	.close = simx_close,
	.mr_reg = simx_mr_reg,
	.mr_dereg = simx_mr_dereg,
	.mr_rdesc = simx_mr_rdesc,
	.listen = simx_listen,
	.admit = simx_admit,
	.fence = simx_fence,
	.connect = simx_connect,
	.disconnect = simx_disconnect,
	.read = simx_read,
	.write = simx_write,
	.poll = simx_poll,
	.wait_fd = simx_wait_fd,
};
