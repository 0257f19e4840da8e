/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotas.h - the option store.quotas: DIGEST=SIZE, comma separated.
 */
#ifndef KVP_POOL_NODE_QUOTAS_H
#define KVP_POOL_NODE_QUOTAS_H

#include "pool/node/node.h"

#define KVP_QUOTAS_MAX 256u

/* -KVP_E_CONFIG, with a line that says what is wrong. */
int kvp_quotas_parse(const char *text, const struct kvp_log *log,
	struct kvp_node_quota ret_quotas[KVP_QUOTAS_MAX], uint32_t *ret_count);

#endif /* KVP_POOL_NODE_QUOTAS_H */
