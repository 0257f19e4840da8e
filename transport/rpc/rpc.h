/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc.h - control messages: calls with deadlines over framed connections, on one event loop.
 *
 * The contract has two implementations: rpc_uv.c (TCP and UNIX sockets on libuv) and the
 * simulation's (virtual time, seeded delays and losses). Users (pool/node, pool/meta, client)
 * know only this header, so the same code runs on both.
 *
 * HELLO      Every connection starts with hello both ways: protocol version range, features,
 *            identity, incarnation. It is done here; users see a peer only after it succeeded.
 *            Incompatible peers are refused with both versions named on both sides.
 * OWNERSHIP  Everything belongs to the loop's thread; only post() may come from another.
 *            Callbacks come from the loop, never from within a call of the same object.
 * LIMITS     A frame is at most KVP_FRAME_LEN_MAX, the first one KVP_HELLO_LEN_MAX, checked
 *            before allocation; hello must come within 5 s; a frame that started must end within
 *            30 s. What breaks a rule closes that connection, is counted and logged.
 */
#ifndef KVP_TRANSPORT_RPC_H
#define KVP_TRANSPORT_RPC_H

#include "hal/base/limits.h"
#include "hal/base/log.h"
#include "hal/base/metrics.h"
#include "hal/os/env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_PROTO_VERSION     1u /* what we speak */
#define KVP_PROTO_VERSION_MIN 1u /* the oldest we still speak */

enum kvp_peer_kind { KVP_PEER_CLIENT = 1, KVP_PEER_NODE = 2, KVP_PEER_META = 3, KVP_PEER_TOOL = 4 };

/* Who somebody is; ours and the peer's. */
struct kvp_ident {
	uint8_t id[KVP_ID_LEN];
	uint64_t incarnation;
	uint64_t features; /* KVP_FEATURE_* bits; none yet */
	uint32_t kind;     /* enum kvp_peer_kind */
	uint32_t version;  /* peer: the version agreed on */
	char name[KVP_NAME_LEN_MAX];
	char addr[KVP_ADDR_LEN_MAX]; /* peer: where it is connected from, for logs */
};

struct kvp_rpc {
	const struct kvp_rpc_ops *ops;
	const struct kvp_env *env; /* the loop's clock */
};

/* One accepted connection after hello. */
struct kvp_rpc_conn {
	struct kvp_rpc *rpc;
	void *ctx; /* the service's own */
	struct kvp_ident peer;
};

/* A request being served. It stays valid until reply(), even if its connection goes before. */
struct kvp_rpc_call {
	struct kvp_rpc_conn *conn; /* NULL once the connection is closed */
	uint16_t type;             /* enum kvp_rpc_type */
	bool one_way;              /* no reply is sent; reply() must be called all the same */
	const uint8_t *body;       /* valid until reply() */
	size_t len;
};

struct kvp_rpc_service {
	void *arg;
	void (*opened)(void *arg, struct kvp_rpc_conn *conn);
	void (*closed)(void *arg, struct kvp_rpc_conn *conn, int why); /* conn is gone after it */
	void (*call)(void *arg, struct kvp_rpc_call *call); /* reply now or later, once */
};

struct kvp_rpc_listener; /* closed by unlisten() */

/* An outgoing connection that reconnects by itself with jittered back-off (50 ms to 2 s). */
struct kvp_rpc_link {
	struct kvp_rpc *rpc;
	struct kvp_ident peer; /* valid while up */
	bool up;
	int why; /* while down: the last error */
};

struct kvp_rpc_link_cfg {
	const char *addr; /* see hal/base/addr.h; copied */
	void *arg;
	/* After hello, before the calls that waited are sent. May be NULL. */
	void (*up)(void *arg, struct kvp_rpc_link *link);
	/* Once after each up(), when the calls have failed; not after a failed attempt (link->why
	 * tells), nor from link_close(). May be NULL. */
	void (*down)(void *arg, struct kvp_rpc_link *link, int why);
};

/* One outgoing call; embedded in its owner, which keeps it until done(). */
struct kvp_rpc_req {
	uint16_t type;
	uint64_t deadline_ns; /* env time */
	/* status: 0, the peer's negative status, -KVP_E_TIMEOUT, -KVP_E_CONNDOWN, -KVP_E_VERSION,
	 * -KVP_E_CANCELLED, or why no connection could be made (-ECONNREFUSED, -ETIMEDOUT,
	 * -EHOSTUNREACH: no such name...). body is valid inside only and may hold bytes with any
	 * status of the peer. */
	void (*done)(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len);
	struct kvp_rpc_link *link; /* set by call() */
	void *impl[4];             /* the implementation's */
};

struct kvp_rpc_timer {
	void (*fn)(struct kvp_rpc_timer *timer);
	void *impl[2]; /* zero before first start */
};

/* Watches a descriptor for one readiness to read. */
struct kvp_rpc_watch {
	void (*fn)(struct kvp_rpc_watch *watch);
	void *impl[2]; /* zero before first start */
};

struct kvp_rpc_ops {
	/* Loop thread, or before run(). ret_addr: where it really listens. -EADDRINUSE, -EACCES...:
	 * the caller logs address and purpose. UNIX sockets get mode 0660; a stale socket file
	 * nobody listens on is replaced. */
	int (*listen)(struct kvp_rpc *rpc, const char *addr, const struct kvp_rpc_service *service,
		char ret_addr[KVP_ADDR_LEN_MAX], struct kvp_rpc_listener **ret_listener);
	void (*unlisten)(struct kvp_rpc_listener *listener); /* its connections stay */
	void (*reply)(struct kvp_rpc_call *call, int status, const void *body, size_t len);
	void (*conn_close)(struct kvp_rpc_conn *conn); /* closed() follows from the loop */

	int (*link_open)(struct kvp_rpc *rpc, const struct kvp_rpc_link_cfg *cfg,
		struct kvp_rpc_link **ret_link);
	/* Pending calls end with -KVP_E_CANCELLED, before it returns. May be called from any
	 * callback, once. */
	void (*link_close)(struct kvp_rpc_link *link);
	/* Sends when the link is up. While the first or a new attempt runs the call waits for it;
	 * in back-off after a failed attempt it fails at once with that attempt's error. body is
	 * copied. done() exactly once, later. Also -KVP_E_BUSY: too much is queued to that peer,
	 * -KVP_E_TOO_LARGE: len is over KVP_FRAME_LEN_MAX. */
	void (*call)(
		struct kvp_rpc_link *link, struct kvp_rpc_req *req, const void *body, size_t len);
	/* One way, dropped when the link is down. */
	void (*notify)(struct kvp_rpc_link *link, uint16_t type, const void *body, size_t len);

	/* One shot; starting a running timer moves it. */
	void (*timer_start)(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer, uint64_t delay_ns);
	void (*timer_stop)(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer);
	int (*watch_start)(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch, int fd);
	void (*watch_stop)(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch);

	/* Any thread: fn(arg) runs on the loop, in order. */
	void (*post)(struct kvp_rpc *rpc, void (*fn)(void *arg), void *arg);
	void (*run)(struct kvp_rpc *rpc);  /* until stop() */
	void (*stop)(struct kvp_rpc *rpc); /* loop thread: run() returns soon */
	/* After run() has returned: closes what is left, frees the loop. Inside it open links end
	 * their calls with -KVP_E_CANCELLED, and closed() comes for each open connection, so what
	 * those callbacks use must still be there. Posts not yet run are dropped. A call still
	 * being served may be replied to even afterwards, by the ops, which are static. */
	void (*close)(struct kvp_rpc *rpc);
};

/* What any implementation is told at its making. */
struct kvp_rpc_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct kvp_ident self;
	uint32_t conns_max;          /* accepted ones; more are refused and counted; 0: 4096 */
	struct kvp_metrics *metrics; /* may be NULL */
	size_t metrics_base;         /* index of the first row of transport/rpc/rpc_metrics.def */
};

/* The real one. -errno. */
int kvp_rpc_uv_open(const struct kvp_rpc_cfg *cfg, struct kvp_rpc **ret_rpc);
/* Real loop only: fn(arg) on the loop when the signal comes. Daemons only, before run(). */
int kvp_rpc_uv_signal(struct kvp_rpc *rpc, int signo, void (*fn)(void *arg), void *arg);

#endif /* KVP_TRANSPORT_RPC_H */
