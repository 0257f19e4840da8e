// SPDX-License-Identifier: Apache-2.0
/*
 * session.c - see session.h. The table has room for as many sessions that wait for a fence as may
 * be open, so a few clients that never let go cannot keep new ones out.
 */
#include "pool/node/session.h"

#include "hal/base/assert.h"
#include "pool/node/work.h"

#include <errno.h>
#include <stdlib.h>

#define SESSION_NEVER (1u << 31) /* in session.transports: nobody can tell that it is fenced */

_Static_assert(KVP_TRANSPORTS_MAX < 31, "a bit is left over");

int
kvp_sessions_init(struct kvp_node *node)
{
	/* An earlier process may have had more. */
	node->owners_max = 2 * (node->cfg.recover ? KVP_SESSIONS_MAX : node->cfg.sessions_max);
	node->sessions = calloc(node->owners_max, sizeof(*node->sessions));
	if (node->sessions == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < node->owners_max; i++) {
		node->sessions[i].owner = i;
		kvp_list_init(&node->sessions[i].works);
	}
	return 0;
}

static struct kvp_session *
session_find_free(struct kvp_node *node)
{
	if (node->sessions_open == node->cfg.sessions_max) {
		return NULL;
	}
	for (uint32_t i = 0; i < node->owners_max; i++) {
		if (node->sessions[i].state == KVP_SESSION_FREE) {
			return &node->sessions[i];
		}
	}
	return NULL;
}

int
kvp_session_open(
	struct kvp_node *node, struct kvp_node_peer *peer, struct kvp_session **ret_session)
{
	struct kvp_session *session = session_find_free(node);

	if (session == NULL) {
		kvp_warn(node->cfg.log,
			"session of %s refused: %u open (limit %u), %u being fenced",
			peer->conn->peer.addr, node->sessions_open, node->cfg.sessions_max,
			node->sessions_fencing);
		return -KVP_E_BUSY;
	}
	kvp_assert(kvp_list_empty(&session->works) && session->transports == 0);
	node->cfg.env->random(node->cfg.env, session->token, sizeof(session->token));
	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		struct kvp_xport *xport = node->transports[i].xport;
		int err = xport->ops->admit(xport, session->token);

		if (err < 0) {
			kvp_warn(node->cfg.log, "session of %s goes without transport %s: %s",
				peer->conn->peer.addr, xport->ops->name, kvp_err_str(err));
			continue;
		}
		session->transports |= 1u << i;
	}
	if (session->transports == 0) {
		return -KVP_E_NO_PROVIDER;
	}
	if (node->cfg.tokens != NULL) {
		memcpy(node->cfg.tokens + (size_t)session->owner * KVP_TOKEN_LEN, session->token,
			KVP_TOKEN_LEN);
	}
	session->state = KVP_SESSION_OPEN;
	session->expired = false;
	session->peer = peer;
	peer->session = session;
	node->sessions_open++;
	kvp_metric_add(node->cfg.metrics, KVP_NODE_SESSIONS_OPENED, 1);
	kvp_debug(node->cfg.log, "session %u opened by %s at %s", session->owner,
		peer->conn->peer.name, peer->conn->peer.addr);
	*ret_session = session;
	return 0;
}

/* Asks every transport that is not done; the slots are free once all are. */
static void
session_fence(struct kvp_node *node, struct kvp_session *session)
{
	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		struct kvp_xport *xport = node->transports[i].xport;
		int err;

		if ((session->transports & 1u << i) == 0) {
			continue;
		}
		err = xport->ops->fence(xport, session->token);
		if (err == 0) {
			session->transports &= ~(1u << i);
		} else if (err != -EINPROGRESS) {
			/* Nobody vouches for that client, so its slots stay reserved. */
			kvp_error(node->cfg.log, "session %u not fenced on %s: %s", session->owner,
				xport->ops->name, kvp_err_str(err));
		}
	}
	if (session->transports != 0) {
		return;
	}
	kvp_store_owner_fenced(node->store, kvp_node_now(node), session->owner);
	kvp_debug(node->cfg.log, "session %u fenced", session->owner);
	session->state = KVP_SESSION_FREE;
	node->sessions_fencing--;
}

/* Of connections to other hosts the earlier process's end is the fence. Those of this host are
 * asked for by the transport that can tell. */
static uint32_t
recover_transports(const struct kvp_node *node)
{
	bool tells = false;

	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		tells = tells || (node->transports[i].xport->ops->caps & KVP_XPORT_LOCAL) != 0;
	}
	if (!tells) {
		kvp_warn(node->cfg.log,
			"slots that clients of this host may still write to stay reserved: no "
			"transport shm to ask; add it to the option transports");
	}
	return ((1u << node->cfg.transport_count) - 1) | (tells ? 0 : SESSION_NEVER);
}

void
kvp_sessions_recover(struct kvp_node *node)
{
	struct kvp_store_stats stats;
	uint32_t transports;

	kvp_store_stats(node->store, &stats);
	if (stats.lost == 0) {
		return;
	}
	transports = recover_transports(node);
	for (uint32_t i = 0; i < node->owners_max; i++) {
		struct kvp_session *session = &node->sessions[i];

		if (kvp_store_owner_slots(node->store, i) == 0) {
			continue;
		}
		memcpy(session->token, node->cfg.tokens + (size_t)i * KVP_TOKEN_LEN, KVP_TOKEN_LEN);
		session->state = KVP_SESSION_FENCING;
		session->transports = transports;
		session->ended_ns = kvp_node_now(node);
		node->sessions_fencing++;
		session_fence(node, session);
	}
}

void
kvp_session_end(struct kvp_node *node, struct kvp_session *session)
{
	kvp_assert(session->state == KVP_SESSION_OPEN);
	/* First, so that nothing done on the way out can commit. */
	kvp_store_owner_fence(node->store, kvp_node_now(node), session->owner);
	session->state = KVP_SESSION_FENCING;
	session->expired = false;
	session->ended_ns = kvp_node_now(node);
	session->peer->session = NULL;
	session->peer = NULL;
	node->sessions_open--;
	node->sessions_fencing++;
	kvp_list_for_each_safe (pos, &session->works) {
		struct kvp_work *work = kvp_container_of(pos, struct kvp_work, of_session);

		kvp_work_reply(work, -KVP_E_NO_SESSION, NULL);
	}
	session_fence(node, session);
}

void
kvp_session_expired(void *arg, uint32_t owner)
{
	struct kvp_node *node = arg;

	if (owner >= KVP_SSD_OWNERS) {
		return; /* a stage that takes long: its slot is back when the disk has answered */
	}
	kvp_assert(owner < node->owners_max);
	node->sessions[owner].expired = true;
	node->sessions_expired = true;
}

/* The session's connection goes too: the client must not take later silence for success. */
static void
session_cut(struct kvp_node *node, struct kvp_session *session)
{
	struct kvp_rpc_conn *conn = session->peer->conn;

	kvp_warn(node->cfg.log,
		"session %u of %s at %s ended: a grant ran out after %u ms; %u slots wait "
		"for its fence",
		session->owner, conn->peer.name, conn->peer.addr, node->cfg.grant_ms,
		kvp_store_owner_slots(node->store, session->owner));
	kvp_metric_add(node->cfg.metrics, KVP_NODE_SESSIONS_EXPIRED, 1);
	kvp_session_end(node, session);
	node->cfg.rpc->ops->conn_close(conn);
}

void
kvp_session_poll(struct kvp_node *node)
{
	if (!node->sessions_expired && node->sessions_fencing == 0) {
		return;
	}
	node->sessions_expired = false;
	for (uint32_t i = 0; i < node->owners_max; i++) {
		struct kvp_session *session = &node->sessions[i];

		if (session->state == KVP_SESSION_FENCING) {
			session_fence(node, session);
		} else if (session->state == KVP_SESSION_OPEN && session->expired) {
			session_cut(node, session);
		}
	}
}

void
kvp_sessions_fini(struct kvp_node *node)
{
	if (node->sessions == NULL) {
		return;
	}
	for (uint32_t i = 0; i < node->owners_max; i++) {
		if (node->sessions[i].state == KVP_SESSION_OPEN) {
			kvp_session_end(node, &node->sessions[i]);
		}
	}
	free(node->sessions);
	node->sessions = NULL;
}
