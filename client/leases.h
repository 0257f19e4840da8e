/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases.h - what this client has leased: one number of the caller's for the leases of several
 * nodes. Bounded; one that ran out makes room for others.
 *
 * THREADS any: one lock.
 */
#ifndef KVP_CLIENT_LEASES_H
#define KVP_CLIENT_LEASES_H

#include "client/client.h"

struct kvp_leases;

/* A lease at one node. */
struct kvp_lease_part {
	uint32_t number;      /* of the node */
	uint32_t session_seq; /* it is worth nothing under another session */
	uint64_t lease;       /* the node's number */
};

int kvp_leases_open(struct kvp_client *client, struct kvp_leases **ret_leases);
void kvp_leases_close(struct kvp_leases *leases); /* releases nothing; NULL is fine */

/* Takes parts over, which are malloc'd, also on failure: then they are released. -KVP_E_BUSY: too
 * many. views: who will say that they are done by kvp_leases_unview(). */
int kvp_leases_add(struct kvp_leases *leases, struct kvp_lease_part *parts, uint32_t count,
	uint64_t until_ns, uint32_t views, uint64_t *ret_lease);
/* The last view's end releases it. */
void kvp_leases_unview(struct kvp_leases *leases, uint64_t lease);

/* Tells a node, without waiting for an answer. */
void kvp_lease_part_release(struct kvp_client *client, const struct kvp_lease_part *part);

#endif /* KVP_CLIENT_LEASES_H */
