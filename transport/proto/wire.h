/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - the packed arrays inside control messages, the frame around them, and protobuf in and
 * out. All decoders take hostile bytes: they check lengths and counts before use.
 *
 * A packed key is one length byte (1..64) and the bytes. Statuses are packed i32. Locations and
 * grants are arrays of their structs (slot.h).
 */
#ifndef KVP_TRANSPORT_PROTO_WIRE_H
#define KVP_TRANSPORT_PROTO_WIRE_H

#include "hal/base/bytes.h"
#include "transport/proto/slot.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

enum kvp_rpc_type {
#define KVP_RPC(name, number, req, Req, reply, Reply) KVP_RPC_##name = number,
#define KVP_RPC_ONE_WAY(name, number, req, Req)       KVP_RPC_##name = number,
#include "transport/proto/rpc.def"
#undef KVP_RPC
#undef KVP_RPC_ONE_WAY
};

/* --- frame: 16 bytes, then the body ---------------------------------------------------------- */
enum kvp_frame_kind { KVP_FRAME_REQUEST = 1, KVP_FRAME_REPLY = 2, KVP_FRAME_ONE_WAY = 3 };

#define KVP_FRAME_HEADER_LEN 16u

struct kvp_frame {
	uint32_t body_len;
	uint16_t type;  /* enum kvp_rpc_type */
	uint8_t kind;   /* enum kvp_frame_kind */
	uint8_t zero;   /* must be 0 */
	uint32_t id;    /* of the call, chosen by the caller */
	int32_t status; /* reply: 0 or a negative error; request: 0 */
};
_Static_assert(sizeof(struct kvp_frame) == KVP_FRAME_HEADER_LEN, "kvp_frame is wire format");

/* -KVP_E_PROTO when the header breaks a rule (unknown kind, zero set, body over len_max, a
 * status that is no error number, or on anything but a reply). An unknown type is not an error
 * here. */
int kvp_frame_decode(
	const uint8_t header[KVP_FRAME_HEADER_LEN], uint32_t len_max, struct kvp_frame *ret_frame);
void kvp_frame_encode(const struct kvp_frame *frame, uint8_t ret_header[KVP_FRAME_HEADER_LEN]);

const char *kvp_rpc_name(uint16_t type); /* "OFFER", or "?" */

/* --- protobuf -------------------------------------------------------------------------------- */
/* NULL for an unknown type. */
const ProtobufCMessageDescriptor *kvp_rpc_request_desc(uint16_t type);
const ProtobufCMessageDescriptor *kvp_rpc_reply_desc(uint16_t type);

/* NULL when the bytes are no such message. Freed by protobuf_c_message_free_unpacked(msg, NULL). */
ProtobufCMessage *kvp_msg_decode(
	const ProtobufCMessageDescriptor *desc, const void *body, size_t len);
/* malloc'd bytes. -ENOMEM; -KVP_E_TOO_LARGE over KVP_FRAME_LEN_MAX. */
int kvp_msg_encode(const ProtobufCMessage *msg, uint8_t **ret_body, size_t *ret_len);

/* --- packed arrays --------------------------------------------------------------------------- */
/* A view of len bytes as protobuf-c's field type; no copy. */
ProtobufCBinaryData kvp_bytes(const void *buf, size_t len);

/* Copies a key in: -KVP_E_KEY_LEN. */
int kvp_key_set(struct kvp_key *ret_key, const void *bytes, size_t len);
bool kvp_key_equal(const struct kvp_key *a, const struct kvp_key *b);

/* Appends one key. w->failed when it does not fit. */
void kvp_write_key(struct kvp_writer *w, const struct kvp_key *key);
/* The next key. r->failed on a bad length or the end. */
void kvp_read_key(struct kvp_reader *r, struct kvp_key *ret_key);
/* Counts the packed keys: the number, or -KVP_E_PROTO when malformed or over max. */
int kvp_keys_count(const void *buf, size_t len, uint32_t max);

/* One item of an offer. 24 bytes. */
struct kvp_offer_item {
	uint64_t len;      /* payload bytes */
	uint32_t position; /* tokens of the prompt before this block */
	uint32_t tokens;   /* tokens in it */
	int32_t parent;    /* index of the parent within the message, or KVP_PARENT_* */
	uint32_t flags;    /* 0 */
};
_Static_assert(sizeof(struct kvp_offer_item) == 24, "kvp_offer_item is wire format");
#define KVP_PARENT_NONE (-1) /* the first block of a prompt */
#define KVP_PARENT_KEY  (-2) /* the message's parent key */

/* One reported read. 32 bytes. */
struct kvp_touch_item {
	uint64_t word;
	uint32_t slot;
	uint32_t count;
	uint64_t conversation;
	uint32_t class;
	uint32_t zero;
};
_Static_assert(sizeof(struct kvp_touch_item) == 32, "kvp_touch_item is wire format");

/* One change in a node's stream: this header, then the key's bytes (none for REMOVED). */
enum kvp_announce_kind { KVP_ANNOUNCE_STORED = 1, KVP_ANNOUNCE_REMOVED = 2 };

struct kvp_announce {
	uint8_t kind;
	uint8_t klen; /* bytes of key that follow; 0 for REMOVED */
	uint8_t tier;
	uint8_t zero;
	uint32_t slot;
	uint64_t word; /* STORED: the valid word; REMOVED: the word that was valid */
	uint64_t off;
	uint64_t len;
	uint8_t ns[KVP_NS_LEN];
};
_Static_assert(sizeof(struct kvp_announce) == 48, "kvp_announce is wire format");

void kvp_write_announce(
	struct kvp_writer *w, const struct kvp_announce *head, const struct kvp_key *key);
/* r->failed when malformed. */
void kvp_read_announce(
	struct kvp_reader *r, struct kvp_announce *ret_head, struct kvp_key *ret_key);

/* The array behind a bytes field if its length is exactly count * size and it is not misaligned
 * for copying: bytes to memcpy from, else NULL. */
const uint8_t *kvp_array(const ProtobufCBinaryData *field, size_t count, size_t size);

/* 128-bit digest of (namespace, key), seeded: what the metas' directory keeps. */
void kvp_key_digest(uint64_t seed, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	uint64_t ret_digest[2]);

#endif /* KVP_TRANSPORT_PROTO_WIRE_H */
