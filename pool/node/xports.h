/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xports.h - kvpoold's data transports: opened by the option transports, with arena and table
 * registered, listening.
 */
#ifndef KVP_POOL_NODE_XPORTS_H
#define KVP_POOL_NODE_XPORTS_H

#include "hal/base/addr.h"
#include "pool/daemon.h"
#include "pool/node/memory.h"
#include "pool/node/node.h"

enum { KVP_XPORTS_MRS = 3 }; /* arena to read, arena to write, table to read */

struct kvp_xports {
	struct kvp_node_transport list[KVP_TRANSPORTS_MAX];
	struct kvp_mr *mrs[KVP_TRANSPORTS_MAX][KVP_XPORTS_MRS];
	uint32_t count;
};

/*
 * "auto": every one that works here, at least one. A list: all of it, or -KVP_E_NO_PROVIDER or
 * what listening failed with. Everything is logged. advertise: whose host replaces a wildcard.
 */
int kvp_xports_open(struct kvp_daemon *daemon, const struct kvp_env *env,
	const struct kvp_memory *memory, const struct kvp_addr *advertise,
	struct kvp_xports *ret_xports);
/* After the node is closed. */
void kvp_xports_close(struct kvp_xports *xports);

#endif /* KVP_POOL_NODE_XPORTS_H */
