/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - an xport around another one that fails when told to. For tests: a loop over 1, 2, 3...
 * walks every error path of whoever uses an xport.
 *
 * Same contract as xport.h, same thread rules. A failed post or completion breaks its connection
 * as a real one does. Not in the registry: only code that names it can get it.
 */
#ifndef KVP_TRANSPORT_FAULT_H
#define KVP_TRANSPORT_FAULT_H

#include "transport/xport.h"

/* 0: never; n: the n-th from now fails, and only that one. The owner's thread may change it. */
struct kvp_fault_plan {
	uint64_t connect_nth; /* connect() itself */
	uint64_t post_nth;    /* read() and write() themselves */
	uint64_t done_nth;    /* completions that would have succeeded, connects included */
	int post_err;         /* 0: -KVP_E_CONNDOWN. -EAGAIN breaks nothing */
	int done_err;         /* 0: -KVP_E_CONNDOWN */
	uint64_t failed;      /* how many times something was made to fail */
};

/* Opens inner with cfg, and the decorator around it. cfg->share may be a decorator of the same
 * inner ops or a plain xport of them. plan must outlive the xport. Errors as inner's open. */
int kvp_fault_open(const struct kvp_xport_ops *inner, const struct kvp_xport_cfg *cfg,
	struct kvp_fault_plan *plan, struct kvp_xport **ret_xport);

#endif /* KVP_TRANSPORT_FAULT_H */
