/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_uv.h - what the files of the libuv implementation share. Only they, and their tests,
 * include it.
 *
 * rpc_uv.c         the loop: posts, run, stop, signals, closing it, the table of operations
 * rpc_uv_timer.c   timers (one heap, one uv_timer) and watches
 * rpc_uv_stream.c  one socket: frames in and out, their limits and times
 * rpc_uv_listen.c  listening sockets
 * rpc_uv_conn.c    an accepted connection: hello, requests, replies
 * rpc_uv_link.c    an outgoing connection that comes back by itself
 * rpc_uv_dial.c    one attempt of a link: resolve, connect, hello
 *
 * OWNERSHIP All of it belongs to the loop's thread, except the queue of posts (its lock).
 */
#ifndef KVP_TRANSPORT_RPC_UV_H
#define KVP_TRANSPORT_RPC_UV_H

#include "hal/base/addr.h"
#include "hal/base/list.h"
#include "transport/proto/wire.h"
#include "transport/rpc/hello.h"
#include "transport/rpc/rpc.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>

#define KVP_RPC_HELLO_NS       (5 * KVP_NS_PER_S)  /* from accept or connect to hello */
#define KVP_RPC_CONNECT_NS     (2 * KVP_NS_PER_S)  /* name resolution included */
#define KVP_RPC_FRAME_NS       (30 * KVP_NS_PER_S) /* from a frame's first byte to its last */
#define KVP_RPC_STALL_NS       (30 * KVP_NS_PER_S) /* a peer that reads nothing of what we send */
#define KVP_RPC_STEADY_NS      KVP_NS_PER_S /* a link that lived so long was no failed attempt */
#define KVP_RPC_BACKOFF_MIN_NS (50 * KVP_NS_PER_MS)
#define KVP_RPC_BACKOFF_MAX_NS (2 * KVP_NS_PER_S)
#define KVP_RPC_CONNS_DEFAULT  4096u
#define KVP_RPC_BACKLOG        1024
#define KVP_RPC_OUT_MAX        ((size_t)64 << 20) /* bytes queued to one peer */
#define KVP_RPC_CALLS_MAX      4096u              /* requests of one connection being served */
#define KVP_RPC_CALLS_LEN_MAX  ((size_t)64 << 20) /* their bytes */
#define KVP_RPC_HELD_MAX       ((size_t)1 << 30) /* bytes of all bodies coming in or being served */
#define KVP_RPC_LINK_CALLS_MAX 65536u            /* calls of one link without an answer */
#define KVP_RPC_LINK_ADDRS_MAX 8                 /* addresses tried of one name */
#define KVP_RPC_SCRATCH_LEN    65536u
#define KVP_RPC_RESOLVER_MS    3000 /* close() waits so long for a resolver that hangs */

/* Rows of rpc_metrics.def, counted from cfg.metrics_base. */
enum kvp_rpc_row {
#define KVP_METRIC(name, kind, metric, help) KVP_ROW_##name,
#include "transport/rpc/rpc_metrics.def"
#undef KVP_METRIC
};

/* --- the loop -----------------------------------------------------------------------------------
 */
struct kvp_rpc_post;

/* From the constants above. */
struct kvp_rpc_bounds {
	uint64_t hello_ns;
	uint64_t connect_ns;
	uint64_t frame_ns;
	uint64_t stall_ns;
	size_t out_max;
};

struct kvp_rpc_uv {
	struct kvp_rpc pub;
	struct kvp_rpc_cfg cfg;
	struct kvp_hello_range versions; /* a test may speak other ones, */
	struct kvp_rpc_bounds bounds;    /* and be in a hurry */
	uv_loop_t loop;
	bool running; /* inside run(): only then is SIGPIPE known to be blocked, and written */
	bool closing;

	uv_async_t wake;      /* posts have come, or a timer is due at once */
	pthread_mutex_t lock; /* of the two below */
	struct kvp_rpc_post *post_head;
	struct kvp_rpc_post *post_tail;

	uv_timer_t clock;
	struct kvp_rpc_timer **heap; /* owned array of pointers to others' timers */
	size_t heap_count;
	size_t heap_cap;

	struct kvp_list listeners;
	struct kvp_list conns;
	struct kvp_list links;
	struct kvp_list signals;
	struct kvp_list watches;
	struct kvp_list orphans; /* calls whose connection is gone */
	uint32_t conns_count;
	size_t held; /* bytes of bodies; KVP_RPC_HELD_MAX */

	uint8_t scratch[KVP_RPC_SCRATCH_LEN]; /* of the read being handled */
};

static inline struct kvp_rpc_uv *
kvp_rpc_uv_of(struct kvp_rpc *rpc)
{
	return kvp_container_of(rpc, struct kvp_rpc_uv, pub);
}

static inline void
kvp_rpc_count(struct kvp_rpc_uv *rpc, enum kvp_rpc_row row)
{
	kvp_metric_add(rpc->cfg.metrics, rpc->cfg.metrics_base + row, 1);
}

/* libuv's codes are -errno but for its own few; those become ours. */
int kvp_rpc_uv_err(int uv_err);

/* Text of a socket address; unix and unknown families give "". */
void kvp_rpc_sockaddr_format(const struct sockaddr *sa, char ret_addr[KVP_ADDR_LEN_MAX]);
/* A literal host:port. False: it is a name. */
bool kvp_rpc_sockaddr_literal(const struct kvp_addr *addr, struct sockaddr_storage *ret_sa);

/* --- timers and watches
 * --------------------------------------------------------------------------- */
void kvp_rpc_timer_start(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer, uint64_t delay_ns);
void kvp_rpc_timer_stop(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer);
bool kvp_rpc_timer_running(const struct kvp_rpc_timer *timer);
void kvp_rpc_timer_fire(struct kvp_rpc_uv *rpc); /* what is due */
int kvp_rpc_watch_start(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch, int fd);
void kvp_rpc_watch_stop(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch);
void kvp_rpc_watch_close_all(struct kvp_rpc_uv *rpc);

/* --- stream -------------------------------------------------------------------------------------
 */
struct kvp_rpc_stream;

/* All come from the loop. */
struct kvp_rpc_stream_events {
	/* One frame; body (malloc'd, NULL when empty) is the receiver's now. */
	void (*frame)(struct kvp_rpc_stream *stream, const struct kvp_frame *frame, uint8_t *body);
	/* Broken; once at most. The owner closes the stream. */
	void (*failed)(struct kvp_rpc_stream *stream, int why);
	/* A frame has gone out. */
	void (*sent)(struct kvp_rpc_stream *stream);
	/* After kvp_rpc_stream_close(): its memory may go. */
	void (*closed)(struct kvp_rpc_stream *stream);
};

/* One connected socket. Embedded in its owner, whose memory stays until closed(). */
struct kvp_rpc_stream {
	struct kvp_rpc_uv *rpc;
	const struct kvp_rpc_stream_events *events;
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} uv;
	bool is_unix;
	bool reading; /* started, and not paused */
	bool paused;
	bool failed;
	bool closing;
	uint32_t len_max;   /* of the next body */
	size_t out_bytes;   /* given to libuv and not yet written */
	size_t stall_bytes; /* libuv's queue when it was last looked at */

	uint8_t header[KVP_FRAME_HEADER_LEN];
	size_t header_got;
	struct kvp_frame frame; /* valid once header_got is the whole header */
	uint8_t *body;          /* owned; counted in rpc->held */
	size_t body_got;

	struct kvp_rpc_timer slow;
	struct kvp_rpc_timer stall;
};

/* A frame to be sent: one allocation with its body. */
struct kvp_rpc_out {
	uv_write_t req;
	struct kvp_rpc_stream *stream;
	size_t len; /* header and body */
	uint8_t bytes[];
};

/* NULL without memory. body is copied. */
struct kvp_rpc_out *kvp_rpc_out_new(const struct kvp_frame *frame, const void *body);

/* Owns nothing but a handle after success. */
int kvp_rpc_stream_init(struct kvp_rpc_stream *stream, struct kvp_rpc_uv *rpc, bool is_unix,
	const struct kvp_rpc_stream_events *events);
/* After connect or accept: socket options, then reads frames of at most len_max. */
int kvp_rpc_stream_start(struct kvp_rpc_stream *stream, uint32_t len_max);
/* Takes out in any case. A negative result: it was not sent. */
int kvp_rpc_stream_send(struct kvp_rpc_stream *stream, struct kvp_rpc_out *out);
void kvp_rpc_stream_pause(struct kvp_rpc_stream *stream, bool pause);
void kvp_rpc_stream_close(struct kvp_rpc_stream *stream); /* idempotent */
/* Gives the bytes of a body back to the limit on all of them. */
void kvp_rpc_stream_unhold(struct kvp_rpc_uv *rpc, size_t len);

/* --- listener, connection
 * ------------------------------------------------------------------------- */
struct kvp_rpc_listener {
	struct kvp_rpc_uv *rpc;
	struct kvp_list node; /* in rpc->listeners */
	struct kvp_rpc_service service;
	struct kvp_addr addr;
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} uv;
	dev_t file_dev; /* of the socket file we made; */
	ino_t file_ino; /* 0: none */
	bool closing;
};

int kvp_rpc_listen(struct kvp_rpc *rpc, const char *addr, const struct kvp_rpc_service *service,
	char ret_addr[KVP_ADDR_LEN_MAX], struct kvp_rpc_listener **ret_listener);
void kvp_rpc_unlisten(struct kvp_rpc_listener *listener);

struct kvp_rpc_uv_conn {
	struct kvp_rpc_conn pub;
	struct kvp_rpc_stream stream;
	struct kvp_list node; /* in rpc->conns */
	struct kvp_rpc_service service;
	struct kvp_rpc_timer hello;
	bool opened;  /* the service knows it */
	bool refused; /* closes once the answer is out */
	int why;
	struct kvp_list calls; /* being served */
	uint32_t calls_count;
	size_t calls_len;
};

/* Takes one waiting connection from the listener. */
void kvp_rpc_conn_accept(struct kvp_rpc_listener *listener);
void kvp_rpc_conn_end(struct kvp_rpc_uv_conn *conn, int why);
void kvp_rpc_conn_close(struct kvp_rpc_conn *conn);
void kvp_rpc_conn_reply(struct kvp_rpc_call *call, int status, const void *body, size_t len);
void kvp_rpc_conn_forget_orphans(struct kvp_rpc_uv *rpc);

/* --- link ---------------------------------------------------------------------------------------
 */
enum kvp_rpc_link_state {
	KVP_RPC_LINK_SOON,    /* an attempt starts in a moment: calls wait */
	KVP_RPC_LINK_RESOLVE, /* attempt: asking for the name's addresses */
	KVP_RPC_LINK_CONNECT, /* attempt: connecting to addrs[addr_next - 1] */
	KVP_RPC_LINK_HELLO,   /* attempt: waiting for the answer to our hello */
	KVP_RPC_LINK_UP,
	KVP_RPC_LINK_BACKOFF, /* the last attempt failed: calls fail */
	KVP_RPC_LINK_CLOSED,  /* freed by the loop */
};

struct kvp_rpc_uv_link;

/* One connection of a link. It outlives its link's interest in it, until libuv let go. */
struct kvp_rpc_tie {
	struct kvp_rpc_stream stream;
	struct kvp_rpc_uv_link *link; /* NULL: given up */
	uv_connect_t connect;
};

/* One question to the resolver; likewise. */
struct kvp_rpc_lookup {
	uv_getaddrinfo_t req;
	struct kvp_rpc_uv_link *link; /* NULL: given up */
};

#define KVP_RPC_LINK_BUCKETS 256u

struct kvp_rpc_uv_link {
	struct kvp_rpc_link pub;
	struct kvp_rpc_uv *rpc;
	struct kvp_list node; /* in rpc->links */
	struct kvp_rpc_link_cfg cfg;
	char text[KVP_ADDR_LEN_MAX]; /* the address, for logs */
	struct kvp_addr addr;
	enum kvp_rpc_link_state state; /* changed by link_enter() alone */
	struct kvp_rpc_timer turn;     /* ends the state SOON, BACKOFF or an attempt */
	struct kvp_rpc_timer later;    /* completes what is on failed; frees a closed link */
	struct kvp_rpc_tie *tie;
	struct kvp_rpc_lookup *lookup;
	struct sockaddr_storage addrs[KVP_RPC_LINK_ADDRS_MAX];
	uint32_t addr_count;
	uint32_t addr_left; /* of this attempt */
	uint32_t addr_next;
	int attempt_err;
	int logged_err;
	uint64_t backoff_ns;
	uint64_t up_ns; /* when it came up */
	uint32_t id_last;
	uint32_t calls_count;
	size_t waiting_bytes;
	struct kvp_list waiting;                    /* calls to send once up, in order */
	struct kvp_list sent[KVP_RPC_LINK_BUCKETS]; /* calls by id */
	struct kvp_list failed;                     /* requests that never became calls */
};

int kvp_rpc_link_open(
	struct kvp_rpc *rpc, const struct kvp_rpc_link_cfg *cfg, struct kvp_rpc_link **ret_link);
void kvp_rpc_link_close(struct kvp_rpc_link *link);
void kvp_rpc_link_call(
	struct kvp_rpc_link *link, struct kvp_rpc_req *req, const void *body, size_t len);
void kvp_rpc_link_notify(struct kvp_rpc_link *link, uint16_t type, const void *body, size_t len);
void kvp_rpc_link_free_all(struct kvp_rpc_uv *rpc); /* closed ones, at the end */

/* Dial: one attempt. It ends in exactly one of link_dialed() or link_failed(), from the loop, or
 * by kvp_rpc_dial_stop(). */
void kvp_rpc_dial_start(struct kvp_rpc_uv_link *link);
void kvp_rpc_dial_stop(struct kvp_rpc_uv_link *link);
void kvp_rpc_link_enter(struct kvp_rpc_uv_link *link, enum kvp_rpc_link_state state);
void kvp_rpc_link_dialed(struct kvp_rpc_uv_link *link, const struct kvp_hello *peer);
void kvp_rpc_link_failed(struct kvp_rpc_uv_link *link, int why);
/* What comes in on the connection while the link is up. */
void kvp_rpc_link_frame(struct kvp_rpc_uv_link *link, const struct kvp_frame *frame, uint8_t *body);
void kvp_rpc_link_lost(struct kvp_rpc_uv_link *link, int why);

#endif /* KVP_TRANSPORT_RPC_UV_H */
