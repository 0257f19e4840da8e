/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - for operators' tools: ask one daemon about itself.
 */
#ifndef KVPOOL_ADMIN_H
#define KVPOOL_ADMIN_H

#include <kvpool/kvpool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Asks the daemon at addr (control address of a node or a meta) for its status. For each pair the
 * daemon tells, fn(arg, name, value) is called; the strings live during the call. Blocks up to
 * timeout_ms. 0, or -ECONNREFUSED, -KVP_E_TIMEOUT, -KVP_E_VERSION, ...
 */
KVP_API int kvp_admin_status(const char *addr, uint32_t timeout_ms,
	void (*fn)(void *arg, const char *name, const char *value), void *arg);

/* What one namespace takes up of a node. */
struct kvp_admin_namespace {
	uint8_t digest[16];
	uint8_t family[16]; /* all zero: not told */
	uint64_t epoch;
	uint64_t blocks;
	uint64_t bytes; /* payload */
	uint64_t taken; /* what counts against the quota: also what is being written, rounded up */
	uint64_t quota; /* 0: none */
	uint32_t old;   /* 1: a newer epoch is known, its blocks are being dropped */
	uint32_t reserved;
};

/* What one tier of a node holds. */
struct kvp_admin_tier {
	uint32_t medium; /* enum kvp_medium */
	uint32_t reserved;
	uint64_t bytes_total;
	uint64_t bytes_used; /* payload */
	uint64_t bytes_free;
	uint64_t blocks;
	uint64_t leased_blocks;
	uint64_t leased_bytes;
};

/* Asks a node what it holds: fn_tier for each tier, then fn_ns for each namespace (4096 at most);
 * either may be NULL. Errors as above. */
KVP_API int kvp_admin_usage(const char *addr, uint32_t timeout_ms,
	void (*fn_tier)(void *arg, const struct kvp_admin_tier *tier),
	void (*fn_ns)(void *arg, const struct kvp_admin_namespace *ns), void *arg);

struct kvp_admin_lease {
	uint64_t lease;
	uint32_t session;   /* of the node */
	uint32_t blocks;    /* it holds */
	uint64_t left_ms;   /* until it ends */
	const char *client; /* name and address; lives during the call */
};

/* Asks a node for the leases it gave, 4096 at most, and ends all of them if purge is not 0; fn may
 * be NULL. Returns how many were ended. Errors as above. */
KVP_API int kvp_admin_leases(const char *addr, uint32_t timeout_ms, int purge,
	void (*fn)(void *arg, const struct kvp_admin_lease *lease), void *arg);

#ifdef __cplusplus
}
#endif

#endif /* KVPOOL_ADMIN_H */
