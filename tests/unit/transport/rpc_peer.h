/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_peer.h - a real event loop on a thread of its own, as server, client or both, and raw sockets
 * to misbehave with. Everything that happens in it wakes peer_wait(); nothing here sleeps.
 */
#ifndef KVP_TESTS_UNIT_TRANSPORT_RPC_PEER_H
#define KVP_TESTS_UNIT_TRANSPORT_RPC_PEER_H

#include "hal/os/thread.h"
#include "tests/unit/transport/transport_test.h"
#include "transport/rpc/rpc_uv.h"

#include <pthread.h>

#define PEER_HELD_MAX 16384u

/* What the service does with each type:
 *   STATUS        replies with the body it got
 *   DELETE        replies -KVP_E_NOKEY and "why"
 *   LOOKUP OFFER  holds the call; COMMIT releases what is held, last first, then is answered
 *   SESSION_OPEN  replies with KVP_FRAME_LEN_MAX bytes
 *   RELEASE       closes its connection and replies afterwards
 *   TOUCH         is counted */
struct peer {
	struct kvp_rpc *rpc;
	struct kvp_rpc_uv *uv;
	struct kvp_thread *thread;
	struct kvp_rpc_service service;
	struct kvp_rpc_listener *listener;
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_log log;
	struct kvp_metrics metrics;
	struct kvp_rpc_call *held[PEER_HELD_MAX]; /* loop thread */
	uint8_t *big;

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	char text[16384]; /* the log */
	unsigned opened;
	unsigned closed;
	unsigned calls;
	unsigned touches;
	unsigned ups;
	unsigned downs;
	unsigned held_count;
	int why;                /* of the last closed() or down() */
	struct kvp_ident ident; /* of the last who came in, or whom a link reached */
};

struct peer_cfg {
	const char *name;
	const char *listen; /* NULL: no */
	uint32_t conns_max;
	struct kvp_hello_range versions;
	struct kvp_rpc_bounds bounds; /* zero fields: as they are */
};

void peer_open(struct peer *peer, const struct peer_cfg *cfg);
void peer_close(struct peer *peer); /* stops and frees the loop, joins */

/* On the loop's thread, and waits for it. */
void peer_do(struct peer *peer, void (*fn)(void *arg), void *arg);
/* Waits, 20 s at most, until *field is at least want; the test fails otherwise. */
void peer_wait(struct peer *peer, const unsigned *field, unsigned want);
unsigned peer_now(struct peer *peer, const unsigned *field);
bool peer_said(struct peer *peer, const char *text); /* in its log */
uint64_t peer_metric(const struct peer *peer, enum kvp_rpc_row row);

/* A link of the peer, with up() and down() counted. */
struct kvp_rpc_link *peer_link(struct peer *peer, const char *addr);
void peer_unlink(struct peer *peer, struct kvp_rpc_link *link);

/* One call, from any thread. */
struct peer_call {
	struct kvp_rpc_req req;
	struct peer *peer;
	struct kvp_rpc_link *link;
	const void *body;
	size_t len;
	uint8_t *reply; /* owned, by peer_call_free() */
	size_t reply_len;
	int status;
	unsigned done;
	uint64_t order; /* counts completions of the peer's calls */
};

void peer_call_start(struct peer *peer, struct peer_call *call, struct kvp_rpc_link *link,
	uint16_t type, const void *body, size_t len, unsigned timeout_ms);
int peer_call_wait(struct peer_call *call); /* its status */
void peer_call_free(struct peer_call *call);
/* Start, wait, free. */
int peer_call_status(
	struct peer *peer, struct kvp_rpc_link *link, uint16_t type, unsigned timeout_ms);

/* --- raw sockets: blocking, 20 s at most --------------------------------------------------------
 */
int raw_connect(const char *addr);
int raw_listen(char ret_addr[KVP_ADDR_LEN_MAX]);
void raw_send(int fd, const void *buf, size_t len);
void raw_send_frame(int fd, const struct kvp_frame *frame, const void *body);
/* Bytes read; fewer than len only at the end of the connection. */
size_t raw_recv(int fd, void *buf, size_t len);
/* The next frame, its body malloc'd; false at the end of the connection. */
bool raw_recv_frame(int fd, struct kvp_frame *ret_frame, uint8_t **ret_body);
/* Connects and says a proper hello. */
int raw_hello(const char *addr);
void raw_expect_end(int fd); /* the other side closes; closes fd */

unsigned count_fds(void);

#endif /* KVP_TESTS_UNIT_TRANSPORT_RPC_PEER_H */
