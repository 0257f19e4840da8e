/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - every hard limit that more than one file must know. Units are in the names.
 */
#ifndef KVP_HAL_BASE_LIMITS_H
#define KVP_HAL_BASE_LIMITS_H

#define KVP_KEY_LEN_MAX    64           /* bytes of a key */
#define KVP_NS_LEN         16           /* bytes of a namespace digest */
#define KVP_ID_LEN         16           /* bytes of a node, meta or client id */
#define KVP_TOKEN_LEN      16           /* bytes of a session token */
#define KVP_SUM_LEN        16           /* bytes of a payload checksum */
#define KVP_RDESC_LEN_MAX  64           /* bytes of an opaque remote descriptor */
#define KVP_BLOCK_LEN_MAX  (128u << 20) /* bytes of one block */
#define KVP_BLOCK_ALIGN    4096u        /* blocks start at, and are rounded up to, this */
#define KVP_SEGS_MAX       256          /* segments of one item of a batch */
#define KVP_BATCH_KEYS_MAX 65536        /* keys of one batch at the public API */
#define KVP_RPC_KEYS_MAX   8192         /* keys of one message; larger batches are split */
#define KVP_FRAME_LEN_MAX  (8u << 20)   /* bytes of one control message */
#define KVP_HELLO_LEN_MAX  4096u        /* bytes of the first message of a connection */
#define KVP_ADDR_LEN_MAX   264  /* bytes of an address with its NUL: a name of 253, a port */
#define KVP_NAME_LEN_MAX   64   /* bytes of a name of a node, client, transport */
#define KVP_SESSIONS_MAX   1024 /* client sessions of one node */
#define KVP_NODES_MAX      1024 /* nodes known to one meta or client */
#define KVP_TRANSPORTS_MAX 4    /* data transports of one node */

#endif /* KVP_HAL_BASE_LIMITS_H */
