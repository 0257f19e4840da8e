/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - one error space: 0 is success, -errno is errno, -KVP_E_* is ours (err.def).
 */
#ifndef KVP_HAL_BASE_ERR_H
#define KVP_HAL_BASE_ERR_H

#ifndef KVP_ERR_ENUM /* client/include/kvpool/errors.h defines the same enum for users */
#define KVP_ERR_ENUM
enum kvp_err {
#define KVP_ERR(name, number, scope, retry, text) KVP_E_##name = number,
#include "hal/base/err.def"
#undef KVP_ERR
};
#endif

enum kvp_err_scope { KVP_SCOPE_OP, KVP_SCOPE_CONN, KVP_SCOPE_NODE, KVP_SCOPE_POOL, KVP_SCOPE_BUG };
enum kvp_err_retry { KVP_RETRY_NEVER, KVP_RETRY_SAME, KVP_RETRY_RELOOKUP, KVP_RETRY_RECONNECT };

/* All take a negative code, ours or an errno; 0 is "ok". They never fail, from any thread. */
const char *kvp_err_str(int err);
const char *kvp_err_name(int err); /* "KVP_E_STALE", "ENOENT" */
enum kvp_err_scope kvp_err_scope(int err);
enum kvp_err_retry kvp_err_retry(int err);

#endif /* KVP_HAL_BASE_ERR_H */
