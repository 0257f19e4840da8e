/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tie.h - a control link that is kept: it reconnects by itself (rpc.h), and a peer that is silent
 * for KVP_TIE_SILENCE_NS counts as dead even if its sockets are alive: the link is opened anew.
 *
 * THREADS the loop's. Embedded in its owner.
 */
#ifndef KVP_CLIENT_TIE_H
#define KVP_CLIENT_TIE_H

#include "client/client.h"
#include "transport/proto/wire.h"

#define KVP_TIE_BEAT_NS    (1 * KVP_NS_PER_S)
#define KVP_TIE_SILENCE_NS (3 * KVP_NS_PER_S)

struct kvp_tie {
	struct kvp_client *client;
	char addr[KVP_ADDR_LEN_MAX];
	void (*up)(struct kvp_tie *tie);   /* a new connection is up; may be NULL */
	void (*down)(struct kvp_tie *tie); /* it went down; may be NULL */
	void (*tick)(struct kvp_tie *tie); /* each beat; may close the tie; may be NULL */

	struct kvp_rpc_link *link;
	uint64_t down_since_ns;
	uint32_t ups;
	bool pinging;
	bool reopen; /* the next beat opens the link anew */
	struct kvp_rpc_req ping;
	struct kvp_rpc_timer beat;
};

/* client, addr and callbacks are set by the owner before. */
int kvp_tie_open(struct kvp_tie *tie);
/* Ends this connection and makes another, at the next beat: not more than one a second. */
void kvp_tie_reopen(struct kvp_tie *tie);
/* The same without waiting for the beat. Not from within a callback of its link. */
void kvp_tie_renew(struct kvp_tie *tie);
/* Pending calls are answered before it returns. Not from within a callback of its link. */
void kvp_tie_close(struct kvp_tie *tie);

#endif /* KVP_CLIENT_TIE_H */
