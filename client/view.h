/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - a block of a node on this host, read in place. Made by op_lease.c for KVP_VIEW, the
 * caller's from the completion on.
 */
#ifndef KVP_CLIENT_VIEW_H
#define KVP_CLIENT_VIEW_H

#include "client/chan.h"

/* The block at loc, if it is what ns and key say. The connection is up. -KVP_E_NO_PROVIDER: it does
 * not reach memory in place; -KVP_E_NOKEY: something else is there; -ENOMEM. */
int kvp_view_make(struct kvp_chan *chan, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	const struct kvp_loc *loc, struct kvp_view **ret_view);
/* Its part in a lease that kvp_leases_add() counted views for. */
void kvp_view_set_lease(struct kvp_view *view, uint64_t lease);
void kvp_view_free(struct kvp_view *view); /* without that */

#endif /* KVP_CLIENT_VIEW_H */
