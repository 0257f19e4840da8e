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

#ifdef __cplusplus
}
#endif

#endif /* KVPOOL_ADMIN_H */
