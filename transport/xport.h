/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport.h - the contract that every transport provider implements: moving bytes one-sidedly
 * between registered memory of two processes. It knows no key and no block.
 *
 * TWO SIDES  A target (kvpoold) registers memory for remote access, listens, admits sessions by
 *            token and fences them. An initiator (client) connects with a token, reads, writes.
 * OWNERSHIP  One kvp_xport belongs to one thread at a time (the holder of its queue's lock): no
 *            call on it, or on a connection made from it, may run beside another. Exceptions,
 *            safe from any thread: mr_reg, mr_dereg, mr_rdesc. A target's progress needs nobody:
 *            providers that need a thread for it start their own in listen().
 * COMPLETION A posting call (connect, read, write) that returns 0 calls io->done() exactly once,
 *            later, from poll() of the same xport, never from the posting call itself.
 * ERRORS     -EAGAIN: the queue is full, nothing was posted, try after the next poll().
 *            -EINVAL: outside of what the descriptor names; nothing was posted, nothing is lost.
 *            Any other error of a posting call: nothing was posted, the connection is dead.
 *            A completion with an error means the same for its connection: every io still posted
 *            on it completes with an error too, and the owner must disconnect() it.
 * MEMORY     Posted segments and their registrations belong to the provider until done().
 *            After done(), with whatever status, nothing is written to them any more.
 * ORDER      With KVP_XPORT_ORDERED, reads of one connection fetch remote memory in the order
 *            they were posted; without it only completions say what happened before what.
 */
#ifndef KVP_TRANSPORT_XPORT_H
#define KVP_TRANSPORT_XPORT_H

#include "hal/base/limits.h"
#include "hal/base/list.h"
#include "hal/base/log.h"
#include "hal/mem/mem.h"
#include "hal/os/env.h"

#include <stddef.h>
#include <stdint.h>

struct kvp_conn; /* one reliable connection of an initiator */
struct kvp_mr;   /* memory registered with one xport */

/* One piece of a scatter/gather list in registered local memory. */
struct kvp_seg {
	struct kvp_mr *mr; /* covers addr..addr+len */
	void *addr;
	size_t len; /* bytes, > 0 */
};

/* What a peer needs to reach registered memory; opaque outside the provider, goes over the wire. */
struct kvp_rdesc {
	uint8_t len; /* bytes used */
	uint8_t bytes[KVP_RDESC_LEN_MAX];
};

/* One operation in flight. Embedded in its owner, so posting never allocates. */
struct kvp_io {
	void (*done)(struct kvp_io *io);
	int status;           /* 0 or a negative error; valid inside done() */
	int prov_err;         /* the provider's own code, for logs only */
	struct kvp_list link; /* the provider's, while posted */
	uint64_t prov[6];     /* the provider's, while posted */
};

enum kvp_xport_caps {
	KVP_XPORT_READ = 1 << 0,    /* one-sided read */
	KVP_XPORT_WRITE = 1 << 1,   /* one-sided write; completed means visible at the target */
	KVP_XPORT_ORDERED = 1 << 2, /* see ORDER above */
	KVP_XPORT_LOCAL = 1 << 3,   /* reaches processes of the same host only */
};

enum kvp_mr_access {
	KVP_MR_LOCAL = 1 << 0,        /* source and destination of our own operations */
	KVP_MR_REMOTE_READ = 1 << 1,  /* peers with an admitted session may read */
	KVP_MR_REMOTE_WRITE = 1 << 2, /* ... and write */
};

struct kvp_xport {
	const struct kvp_xport_ops *ops;
};

/* Remote memory that this process can read in place. */
struct kvp_xport_view {
	const void *addr;
	void *base; /* the provider's, as len is */
	size_t len;
};

struct kvp_xport_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	const char *device;      /* the provider's name for the device, NULL: any */
	const char *provider;    /* ofi: libfabric provider, NULL: "tcp" */
	const char *lock_prefix; /* shm target: path that names of session locks begin with, so that
				  * they outlive the process; NULL: they need not */
	uint32_t io_depth;       /* operations in flight per connection, 0: 64 */
	uint32_t conns_max;      /* hard limit, both sides; 0: 1024 */
	struct kvp_xport *share; /* registrations made on it are valid on the new one too; it must
				  * stay open longer. NULL: none. */
};

struct kvp_xport_ops {
	const char *name; /* "ofi", "shm" */
	uint32_t caps;    /* must match the ops that are not NULL; the registry asserts it */

	/* Loads the provider's library if it needs one. -KVP_E_NO_PROVIDER: absent or unsuitable;
	 * the reason is logged. */
	int (*open)(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport);
	/* Every connection must be disconnected and drained, every mr deregistered (asserted). A
	 * target stops listening, fences everybody. NULL is fine. */
	void (*close)(struct kvp_xport *xport);

	/* access: KVP_MR_*. Remote access needs memory made by kvp_mem_create. May block. */
	int (*mr_reg)(struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access,
		struct kvp_mr **ret_mr);
	void (*mr_dereg)(struct kvp_mr *mr);
	void (*mr_rdesc)(const struct kvp_mr *mr, struct kvp_rdesc *ret_rdesc);

	/* Target. addr: "host:port" (port 0: any) or, for shm, a socket path. ret_addr gets what
	 * initiators connect to. Register memory for remote access before. May be called once.
	 * -EADDRINUSE and so on name no purpose: the caller logs it. */
	int (*listen)(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX]);
	/* Target: from now on connections that present this token are accepted, at most 64. */
	int (*admit)(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
	/* Target: the token is no longer accepted and its connections end. 0: nothing that peer
	 * posted can change or read our memory any more. -EINPROGRESS: not yet, call again later
	 * (by timer). A token that an earlier process admitted is fenced likewise: providers whose
	 * connections do not end with the process find it by cfg.lock_prefix. Unknown token: 0.
	 * Idempotent. */
	int (*fence)(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);

	/* Initiator. On done() with 0 the connection can be used; with an error, or not, the owner
	 * gives it back by disconnect(). io has the provider's time-out, the caller has its own. */
	int (*connect)(struct kvp_xport *xport, const char *addr,
		const uint8_t token[KVP_TOKEN_LEN], struct kvp_io *io, struct kvp_conn **ret_conn);
	/* Starts the end of a connection. What is still posted completes with -KVP_E_CONNDOWN from
	 * poll(), once its memory is no longer touched; then the provider frees the connection. The
	 * caller uses conn no more. */
	void (*disconnect)(struct kvp_conn *conn);

	/* Moves sum(len) bytes between the segments, in order, and remote memory at off within what
	 * rdesc names. count 1..KVP_SEGS_MAX; providers split at their own limits. */
	int (*read)(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
		const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io);
	int (*write)(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
		const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io);

	/* Initiator, of a transport that stays on this host; NULL: it cannot. Makes remote memory
	 * readable in place until unmap(), also after the connection's end; what it shows then is
	 * nobody's promise. -EINVAL, -ENOTCONN, -errno. */
	int (*map)(struct kvp_conn *conn, const struct kvp_rdesc *src, uint64_t off, uint64_t len,
		struct kvp_xport_view *ret_view);
	void (*unmap)(struct kvp_xport_view *view); /* any thread */

	/* Moves things on and calls done() for at most max operations. Returns how many. */
	int (*poll)(struct kvp_xport *xport, uint32_t max);
	/* Before sleeping: a descriptor that becomes readable when poll() has something to do,
	 * valid until close; -EAGAIN: something is there already, poll first; -ENOSYS: nothing to
	 * sleep on (never has pending work that poll would not do at once). */
	int (*wait_fd)(struct kvp_xport *xport);
};

/* registry.c: the only place that knows which providers are built in; best first. */
const struct kvp_xport_ops *const *kvp_xport_all(size_t *ret_count);
const struct kvp_xport_ops *kvp_xport_find(const char *name); /* NULL: none of that name */

#endif /* KVP_TRANSPORT_XPORT_H */
