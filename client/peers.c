/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c - the table of nodes. See peers.h.
 */
#include "client/peers.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kvp_peers {
	struct kvp_client *client;
	pthread_mutex_t lock;
	uint32_t count; /* places used so far */
	struct kvp_peer *table[KVP_NODES_MAX];
};

int
kvp_peers_open(struct kvp_client *client, struct kvp_peers **ret_peers)
{
	struct kvp_peers *peers = calloc(1, sizeof(*peers));

	if (peers == NULL) {
		return -ENOMEM;
	}
	peers->client = client;
	pthread_mutex_init(&peers->lock, NULL);
	*ret_peers = peers;
	return 0;
}

static void
peer_free(struct kvp_peer *peer)
{
	kvp_reads_close(peer->reads);
	free(peer);
}

void
kvp_peers_close(struct kvp_peers *peers)
{
	if (peers == NULL) {
		return;
	}
	for (uint32_t i = 0; i < peers->count; i++) {
		peer_free(peers->table[i]);
	}
	pthread_mutex_destroy(&peers->lock);
	free(peers);
}

/* A place for a new entry, or -1. What stood there is freed. */
static int
peers_place(struct kvp_peers *peers)
{
	if (peers->count < KVP_NODES_MAX) {
		return (int)peers->count++;
	}
	for (uint32_t i = 0; i < peers->count; i++) {
		if (peers->table[i]->gone && atomic_load(&peers->table[i]->refs) == 0) {
			peer_free(peers->table[i]);
			return (int)i;
		}
	}
	return -1;
}

static struct kvp_peer *
peers_find(struct kvp_peers *peers, const struct kvp_peer_info *info)
{
	for (uint32_t i = 0; i < peers->count; i++) {
		struct kvp_peer *peer = peers->table[i];

		if (peer->incarnation == info->incarnation &&
			memcmp(peer->id, info->id, KVP_ID_LEN) == 0) {
			return peer;
		}
	}
	return NULL;
}

static struct kvp_peer *
peers_add(struct kvp_peers *peers, const struct kvp_peer_info *info)
{
	struct kvp_peer *peer = calloc(1, sizeof(*peer));
	int place;

	if (peer == NULL) {
		return NULL;
	}
	if (kvp_reads_open(&peer->reads) < 0) {
		free(peer);
		return NULL;
	}
	place = peers_place(peers);
	if (place < 0) {
		peer_free(peer);
		return NULL;
	}
	peer->number = (uint32_t)place;
	peer->incarnation = info->incarnation;
	peer->same_host = info->same_host;
	memcpy(peer->id, info->id, KVP_ID_LEN);
	peers->table[place] = peer;
	return peer;
}

struct kvp_peer *
kvp_peers_learn(struct kvp_peers *peers, const struct kvp_peer_info *info)
{
	struct kvp_peer *peer;

	pthread_mutex_lock(&peers->lock);
	peer = peers_find(peers, info);
	if (peer == NULL) {
		peer = peers_add(peers, info);
	}
	if (peer != NULL) {
		if (peer->addr[0] == '\0') { /* first known by its handshake only */
			snprintf(peer->addr, sizeof(peer->addr), "%s", info->addr);
			peer->same_host = peer->same_host || info->same_host;
		}
		atomic_fetch_add(&peer->refs, 1);
	}
	pthread_mutex_unlock(&peers->lock);
	return peer;
}

struct kvp_peer *
kvp_peers_ref(struct kvp_peers *peers, uint32_t number)
{
	struct kvp_peer *peer = NULL;

	pthread_mutex_lock(&peers->lock);
	if (number < peers->count) {
		peer = peers->table[number];
		atomic_fetch_add(&peer->refs, 1);
	}
	pthread_mutex_unlock(&peers->lock);
	return peer;
}

struct kvp_peer *
kvp_peer_again(struct kvp_peer *peer)
{
	atomic_fetch_add(&peer->refs, 1);
	return peer;
}

void
kvp_peer_unref(struct kvp_peer *peer)
{
	if (peer != NULL) {
		kvp_assert(atomic_fetch_sub(&peer->refs, 1) > 0);
	}
}

int
kvp_peers_session(struct kvp_peers *peers, struct kvp_peer *peer, struct kvp_session *ret_session,
	uint32_t *ret_seq)
{
	int err = 0;

	pthread_mutex_lock(&peers->lock);
	if (peer->gone) {
		err = -KVP_E_NODEDOWN;
	} else if (peer->live_seq == 0) {
		err = -KVP_E_NO_SESSION;
	} else {
		*ret_session = peer->session;
		*ret_seq = peer->session_seq;
	}
	pthread_mutex_unlock(&peers->lock);
	return err;
}

void
kvp_peers_publish(struct kvp_peers *peers, struct kvp_peer *peer, const struct kvp_session *session)
{
	pthread_mutex_lock(&peers->lock);
	peer->live_seq = 0;
	if (session != NULL && !peer->gone) {
		peer->session = *session;
		peer->session_seq++;
		peer->live_seq = peer->session_seq;
	}
	pthread_mutex_unlock(&peers->lock);
}

void
kvp_peers_set_gone(struct kvp_peers *peers, struct kvp_peer *peer)
{
	pthread_mutex_lock(&peers->lock);
	peer->gone = true;
	peer->live_seq = 0;
	pthread_mutex_unlock(&peers->lock);
}

struct kvp_peer *
kvp_peers_next(struct kvp_peers *peers, uint32_t *cursor)
{
	struct kvp_peer *peer = kvp_peers_ref(peers, *cursor);

	*cursor += peer != NULL;
	return peer;
}
