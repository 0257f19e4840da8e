/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one client's tie to this node: a token that opens data connections, and the number
 * under which the store knows its grants.
 *
 * LIFE FREE -> OPEN -> FENCING -> FREE. A session ends with its control connection or when one of
 * its grants runs out; then the store refuses its commits at once, every transport is fenced, and
 * only when all of them say that nothing of that client can land any more are its slots free and
 * its number used again. A client that is cut off opens a new session.
 */
#ifndef KVP_POOL_NODE_SESSION_H
#define KVP_POOL_NODE_SESSION_H

#include "pool/node/node_impl.h"

enum kvp_session_state { KVP_SESSION_FREE, KVP_SESSION_OPEN, KVP_SESSION_FENCING };

struct kvp_session {
	enum kvp_session_state state;
	uint32_t owner;             /* the index in the node's table */
	struct kvp_node_peer *peer; /* NULL unless OPEN */
	uint8_t token[KVP_TOKEN_LEN];
	uint32_t transports; /* bit i: transport i admitted the token and is not fenced yet */
	bool expired;        /* a grant ran out; ended by the next kvp_session_poll() */
	uint64_t ended_ns;
	struct kvp_list works; /* struct kvp_work, of_session */
	uint32_t works_count;
	size_t works_len;
};

/* Makes the table. -ENOMEM. */
int kvp_sessions_init(struct kvp_node *node);
/* After the store's recovery: who may still write to a slot of an earlier process is a session that
 * waits for its fence. */
void kvp_sessions_recover(struct kvp_node *node);
/* Ends all of them, fences once. NULL table is fine. */
void kvp_sessions_fini(struct kvp_node *node);

/* -KVP_E_BUSY: too many sessions, or too many that wait for a fence. -KVP_E_NO_PROVIDER: no
 * transport admitted it. */
int kvp_session_open(
	struct kvp_node *node, struct kvp_node_peer *peer, struct kvp_session **ret_session);

/* Cuts its calls short, starts the fence. Its control connection stays. */
void kvp_session_end(struct kvp_node *node, struct kvp_session *session);

/* kvp_store_turn()'s callback; arg is the node. Only marks. */
void kvp_session_expired(void *arg, uint32_t owner);

/* Ends what is marked and closes its connection, asks again for fences that are not done. */
void kvp_session_poll(struct kvp_node *node);

#endif /* KVP_POOL_NODE_SESSION_H */
