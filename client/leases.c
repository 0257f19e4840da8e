/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases.c - see leases.h. A number is a place in the table and a count, so that one that was
 * released means nothing any more.
 */
#include "client/leases.h"

#include "client/control.h"
#include "client/peers.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>

#define LEASES_MAX       4096u
#define LEASE_RELEASE_NS KVP_NS_PER_S /* for the message; a lease that is not released runs out */

struct lease {
	uint32_t seq;
	uint32_t part_count;
	struct kvp_lease_part *parts; /* owned; NULL: the place is free */
	uint64_t until_ns;
	uint32_t views;
};

struct kvp_leases {
	struct kvp_client *client;
	pthread_mutex_t lock;
	uint32_t seq;
	uint32_t next; /* where to look for a free place first */
	struct lease places[LEASES_MAX];
};

int
kvp_leases_open(struct kvp_client *client, struct kvp_leases **ret_leases)
{
	struct kvp_leases *leases = calloc(1, sizeof(*leases));

	if (leases == NULL) {
		return -ENOMEM;
	}
	leases->client = client;
	pthread_mutex_init(&leases->lock, NULL);
	*ret_leases = leases;
	return 0;
}

void
kvp_leases_close(struct kvp_leases *leases)
{
	if (leases == NULL) {
		return;
	}
	for (uint32_t i = 0; i < LEASES_MAX; i++) {
		free(leases->places[i].parts);
	}
	pthread_mutex_destroy(&leases->lock);
	free(leases);
}

void
kvp_lease_part_release(struct kvp_client *client, const struct kvp_lease_part *part)
{
	Kvp__Unlease msg = KVP__UNLEASE__INIT;
	struct kvp_peer *peer = kvp_peers_ref(client->peers, part->number);
	struct kvp_call *call = NULL;
	uint8_t *body;
	size_t len;

	msg.leases = kvp_bytes(&part->lease, sizeof(part->lease));
	if (peer != NULL && kvp_peer_session_seq(peer) == part->session_seq &&
		kvp_msg_encode(&msg.base, &body, &len) == 0) {
		call = kvp_call_new(client, NULL, KVP_TO_NODE, KVP_RPC_UNLEASE, body, len);
	}
	if (call == NULL) {
		kvp_peer_unref(peer);
		return; /* it ended with its session, or runs out */
	}
	call->peer = peer;
	call->session_seq = part->session_seq;
	call->deadline_ns = kvp_now_ns(client->env) + LEASE_RELEASE_NS;
	kvp_call_post(call);
}

static void
parts_release(struct kvp_client *client, struct kvp_lease_part *parts, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		kvp_lease_part_release(client, &parts[i]);
	}
	free(parts);
}

/* Under the lock. A free place, or one whose lease is over; LEASES_MAX: none. */
static uint32_t
leases_place(struct kvp_leases *leases)
{
	uint64_t now = kvp_now_ns(leases->client->env);

	for (uint32_t i = 0; i < LEASES_MAX; i++) {
		uint32_t idx = (leases->next + i) % LEASES_MAX;
		struct lease *lease = &leases->places[idx];

		if (lease->parts == NULL || (lease->views == 0 && now >= lease->until_ns)) {
			free(lease->parts);
			lease->parts = NULL;
			leases->next = idx + 1;
			return idx;
		}
	}
	return LEASES_MAX;
}

int
kvp_leases_add(struct kvp_leases *leases, struct kvp_lease_part *parts, uint32_t count,
	uint64_t until_ns, uint32_t views, uint64_t *ret_lease)
{
	uint32_t idx;

	pthread_mutex_lock(&leases->lock);
	idx = leases_place(leases);
	if (idx < LEASES_MAX) {
		leases->seq += leases->seq == UINT32_MAX ? 2 : 1; /* no lease is number 0 */
		leases->places[idx] = (struct lease){
			.seq = leases->seq,
			.part_count = count,
			.parts = parts,
			.until_ns = until_ns,
			.views = views,
		};
		*ret_lease = (uint64_t)leases->seq << 32 | idx;
	}
	pthread_mutex_unlock(&leases->lock);
	if (idx == LEASES_MAX) {
		parts_release(leases->client, parts, count);
		return -KVP_E_BUSY;
	}
	return 0;
}

/* Takes one out if nobody holds it: by its owner, or by one view less. */
static void
leases_end(struct kvp_leases *leases, uint64_t number, bool by_view)
{
	struct kvp_lease_part *parts = NULL;
	uint32_t count = 0;
	struct lease *lease = &leases->places[(uint32_t)number % LEASES_MAX];

	pthread_mutex_lock(&leases->lock);
	if (lease->parts != NULL && lease->seq == number >> 32) {
		lease->views -= by_view;
		if (!by_view || lease->views == 0) {
			parts = lease->parts;
			count = lease->part_count;
			lease->parts = NULL;
		}
	}
	pthread_mutex_unlock(&leases->lock);
	parts_release(leases->client, parts, count);
}

void
kvp_leases_unview(struct kvp_leases *leases, uint64_t lease)
{
	leases_end(leases, lease, true);
}

void
kvp_release(struct kvp_client *client, uint64_t lease)
{
	if (client != NULL && lease != 0 && !kvp_client_forked(client) &&
		!atomic_load_explicit(&client->closing, memory_order_relaxed)) {
		leases_end(client->leases, lease, false);
	}
}
