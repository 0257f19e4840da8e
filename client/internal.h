/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - how a client is made from its parts. kvp_client_open() gives it the real ones and
 * a thread for the loop; the simulation and embedded mode give their own.
 */
#ifndef KVP_CLIENT_INTERNAL_H
#define KVP_CLIENT_INTERNAL_H

#include "client/include/kvpool/kvpool.h"
#include "transport/rpc/rpc.h"
#include "transport/xport.h"

/* The parts; all the caller's and longer-lived than the client. */
struct kvp_client_parts {
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct kvp_rpc *rpc;                       /* its loop is run by the caller */
	const struct kvp_xport_ops *const *xports; /* best first */
	uint32_t xport_count;
	uint8_t host_id[KVP_ID_LEN];
};

/* Must be called on, or before, the loop's thread runs. */
int kvp_client_open_with(const struct kvp_client_options *options,
	const struct kvp_client_parts *parts, struct kvp_client **ret_client);
/* Ends a client so made. The loop must not be running in another thread. */
void kvp_client_close_with(struct kvp_client *client);

#endif /* KVP_CLIENT_INTERNAL_H */
