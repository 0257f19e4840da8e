/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello.h - what two peers say first, and whether they can talk. Pure: bytes in, verdict out, so
 * every implementation of rpc.h uses it, and tests speak for other versions.
 *
 * Two ranges of versions that overlap agree on the smaller of both maxima. When they do not,
 * the answer carries status -KVP_E_VERSION and who we are, so both sides can name both ranges.
 */
#ifndef KVP_TRANSPORT_RPC_HELLO_H
#define KVP_TRANSPORT_RPC_HELLO_H

#include "transport/rpc/rpc.h"

#include <stddef.h>
#include <stdint.h>

struct kvp_hello_range {
	uint32_t min;
	uint32_t max;
};

/* What a peer said about itself. ident.addr is not filled in; ident.version is the one agreed on,
 * 0 when there is none. */
struct kvp_hello {
	struct kvp_ident ident;
	struct kvp_hello_range range;
};

/* The version both speak, 0: none. */
uint32_t kvp_hello_agree(const struct kvp_hello_range *a, const struct kvp_hello_range *b);

/* The body of our request. malloc'd. -ENOMEM. */
int kvp_hello_request(const struct kvp_ident *self, const struct kvp_hello_range *ours,
	uint8_t **ret_body, size_t *ret_len);

/* The accepting side reads it. 0; -KVP_E_VERSION with *ret_peer filled in; -KVP_E_PROTO with
 * *ret_peer zeroed: not a hello. */
int kvp_hello_judge(const struct kvp_hello_range *ours, const void *body, size_t len,
	struct kvp_hello *ret_peer);

/* The body of our answer; version 0 when refused. malloc'd. -ENOMEM. */
int kvp_hello_reply(const struct kvp_ident *self, const struct kvp_hello_range *ours,
	uint32_t version, uint8_t **ret_body, size_t *ret_len);

/* The connecting side reads the answer. As kvp_hello_judge; any other negative status of the peer
 * is returned as it is. */
int kvp_hello_finish(const struct kvp_hello_range *ours, int status, const void *body, size_t len,
	struct kvp_hello *ret_peer);

#endif /* KVP_TRANSPORT_RPC_HELLO_H */
