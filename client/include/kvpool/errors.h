/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errors.h - the error codes of kvpool. Generated from hal/base/err.def: change that.
 *
 * Functions return 0 or more on success, -errno, or a negated code from here. Numbers are never
 * reused. kvp_strerror() gives the text of any of them.
 */
#ifndef KVPOOL_ERRORS_H
#define KVPOOL_ERRORS_H

#ifndef KVP_ERR_ENUM
#define KVP_ERR_ENUM
enum kvp_err {
	KVP_E_NOKEY = 5000,          /* no such key: a miss */
	KVP_E_STALE = 5001,          /* location is stale, look the key up again */
	KVP_E_BADSUM = 5002,         /* payload checksum does not match */
	KVP_E_CONNDOWN = 5003,       /* connection is down */
	KVP_E_NODEDOWN = 5004,       /* pool node is not reachable */
	KVP_E_VERSION = 5005,        /* peer speaks an incompatible protocol version */
	KVP_E_PROTO = 5006,          /* malformed or unexpected message */
	KVP_E_EXISTS = 5007,         /* key is already stored */
	KVP_E_IN_PROGRESS = 5008,    /* another writer is storing this key */
	KVP_E_NO_SPACE = 5009,       /* no space that could be freed, or the quota is reached */
	KVP_E_TIMEOUT = 5010,        /* deadline passed */
	KVP_E_BUSY = 5011,           /* out of resources for a moment, try again shortly */
	KVP_E_META_DOWN = 5012,      /* no metadata server is reachable */
	KVP_E_NOT_REGISTERED = 5013, /* memory is not registered with the client */
	KVP_E_TOO_LARGE = 5014,      /* larger than the stated limit */
	KVP_E_KEY_LEN = 5015,        /* key length is not within 1 to 64 bytes */
	KVP_E_SIZE = 5016,           /* length differs from the length of the stored block */
	KVP_E_NO_GRANT = 5017,       /* the grant ran out, was fenced or never existed */
	KVP_E_CANCELLED = 5018,      /* the client is closing */
	KVP_E_CONFIG = 5019,         /* bad configuration */
	KVP_E_IN_USE = 5020,         /* already in use by another instance */
	KVP_E_NO_PROVIDER = 5021,    /* transport is not usable here */
	KVP_E_NAMESPACE = 5022,      /* bad namespace descriptor */
	KVP_E_EPOCH = 5023,          /* namespace epoch is older than the one already seen */
	KVP_E_AUTH = 5024,           /* peer is not who it must be */
	KVP_E_BEHIND = 5025,         /* this metadata server lags behind, ask another one */
	KVP_E_NO_SESSION = 5026,     /* no such session: open one first */
};
#endif

#endif /* KVPOOL_ERRORS_H */
