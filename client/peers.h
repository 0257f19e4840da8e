/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h - the table of nodes: one entry a (node id, incarnation), numbered by its place. That
 * number is kvp_loc.node in the location cache.
 *
 * A node that came back under a new incarnation is a new entry, so a location of the old one is
 * never read from the new one. A place is used again only when the table is full, by an
 * entry that is gone and that no connection refers to; a cached location that still carries the
 * number fails the check of the slot's entry then (the state word names the incarnation).
 *
 * THREADS Identity never changes after creation. What is published is under the table's lock: the
 *         loop writes, anybody reads. "tie" is the loop's.
 */
#ifndef KVP_CLIENT_PEERS_H
#define KVP_CLIENT_PEERS_H

#include "client/client.h"
#include "client/reads.h"
#include "transport/proto/wire.h"

/* A data transport a session offers. */
struct kvp_session_transport {
	char name[KVP_NAME_LEN_MAX];
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rdesc arena_read;
	struct kvp_rdesc table_read;
	bool usable; /* no host given, or ours */
};

/* What a node told when it opened our session. */
struct kvp_session {
	uint8_t token[KVP_TOKEN_LEN];
	uint32_t quarantine_ms;
	uint32_t grant_ms;
	uint32_t keys_max;
	uint64_t block_len_max;
	uint32_t transport_count;
	struct kvp_session_transport transports[KVP_TRANSPORTS_MAX];
};

struct kvp_node_tie;

struct kvp_peer {
	/* Set once. */
	uint32_t number;
	uint8_t id[KVP_ID_LEN];
	uint64_t incarnation;
	bool same_host;
	char addr[KVP_ADDR_LEN_MAX]; /* control address as seen from here; may be empty (home) */
	struct kvp_reads *reads;
	_Atomic uint32_t refs;

	/* Published, under the table's lock. */
	_Atomic bool gone; /* another incarnation answers there: never read again; read freely */
	_Atomic uint32_t live_seq; /* number of the session that is open, 0: none; read freely */
	uint32_t session_seq;      /* counts sessions */
	struct kvp_session session;

	struct kvp_node_tie *tie; /* the loop's */
};

int kvp_peers_open(struct kvp_client *client, struct kvp_peers **ret_peers);
void kvp_peers_close(struct kvp_peers *peers);

/* Who a node is, as a lookup or a handshake tells. addr may be empty. */
struct kvp_peer_info {
	const uint8_t *id;
	uint64_t incarnation;
	const char *addr;
	bool same_host;
};

/* The entry of that node, made if new, with one reference more; NULL: no place or memory. */
struct kvp_peer *kvp_peers_learn(struct kvp_peers *peers, const struct kvp_peer_info *info);
/* The entry of that number with one reference more; NULL: none. */
struct kvp_peer *kvp_peers_ref(struct kvp_peers *peers, uint32_t number);
/* One more of a peer already held. */
struct kvp_peer *kvp_peer_again(struct kvp_peer *peer);
void kvp_peer_unref(struct kvp_peer *peer); /* NULL is fine */

/* Copies the session if it is open. -KVP_E_NODEDOWN: gone; -KVP_E_NO_SESSION: not open. */
int kvp_peers_session(struct kvp_peers *peers, struct kvp_peer *peer,
	struct kvp_session *ret_session, uint32_t *ret_seq);
/* The number of the open session; 0: none. */
static inline uint32_t
kvp_peer_session_seq(const struct kvp_peer *peer)
{
	return atomic_load_explicit(&peer->live_seq, memory_order_relaxed);
}

/* The loop's: publish. session NULL: it is not open any more. */
void kvp_peers_publish(
	struct kvp_peers *peers, struct kvp_peer *peer, const struct kvp_session *session);
void kvp_peers_set_gone(struct kvp_peers *peers, struct kvp_peer *peer);
/* Walks the entries: the one of the lowest number >= *cursor, with a reference; NULL at the end. */
struct kvp_peer *kvp_peers_next(struct kvp_peers *peers, uint32_t *cursor);

#endif /* KVP_CLIENT_PEERS_H */
