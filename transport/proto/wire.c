/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - frames, protobuf and packed arrays. No state; any thread. Everything that is decoded
 * here came from a peer: it is checked and refused, never asserted.
 */
#include "transport/proto/wire.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Statuses are -errno (4095 at most) or ours (from 5000 on); no number beyond this is an error. */
#define STATUS_MIN (-65535)

/* What one decoded message may allocate beside twice its length. The longest legal lists (1024
 * nodes in a lookup's reply) need a third of it; bulk arrays are plain bytes. */
#define DECODE_LEN_BASE ((size_t)1 << 20)

/* --- frame --------------------------------------------------------------------------------------
 */
int
kvp_frame_decode(
	const uint8_t header[KVP_FRAME_HEADER_LEN], uint32_t len_max, struct kvp_frame *ret_frame)
{
	struct kvp_frame frame;

	memcpy(&frame, header, sizeof(frame));
	if (frame.kind < KVP_FRAME_REQUEST || frame.kind > KVP_FRAME_ONE_WAY || frame.zero != 0) {
		return -KVP_E_PROTO;
	}
	if (frame.body_len > len_max) {
		return -KVP_E_PROTO;
	}
	if (frame.status > 0 || frame.status < STATUS_MIN) {
		return -KVP_E_PROTO;
	}
	if (frame.kind != KVP_FRAME_REPLY && frame.status != 0) {
		return -KVP_E_PROTO;
	}
	*ret_frame = frame;
	return 0;
}

void
kvp_frame_encode(const struct kvp_frame *frame, uint8_t ret_header[KVP_FRAME_HEADER_LEN])
{
	kvp_assert(frame->status <= 0 && frame->zero == 0);
	memcpy(ret_header, frame, sizeof(*frame));
}

const char *
kvp_rpc_name(uint16_t type)
{
	switch (type) {
#define KVP_RPC(name, number, req, Req, reply, Reply)                                              \
	case number:                                                                               \
		return #name;
#define KVP_RPC_ONE_WAY(name, number, req, Req)                                                    \
	case number:                                                                               \
		return #name;
#include "transport/proto/rpc.def"
#undef KVP_RPC
#undef KVP_RPC_ONE_WAY
	default:
		return "?";
	}
}

/* --- protobuf -----------------------------------------------------------------------------------
 */
const ProtobufCMessageDescriptor *
kvp_rpc_request_desc(uint16_t type)
{
	switch (type) {
#define KVP_RPC(name, number, req, Req, reply, Reply)                                              \
	case number:                                                                               \
		return &kvp__##req##__descriptor;
#define KVP_RPC_ONE_WAY(name, number, req, Req)                                                    \
	case number:                                                                               \
		return &kvp__##req##__descriptor;
#include "transport/proto/rpc.def"
#undef KVP_RPC
#undef KVP_RPC_ONE_WAY
	default:
		return NULL;
	}
}

const ProtobufCMessageDescriptor *
kvp_rpc_reply_desc(uint16_t type)
{
	switch (type) {
#define KVP_RPC(name, number, req, Req, reply, Reply)                                              \
	case number:                                                                               \
		return &kvp__##reply##__descriptor;
#define KVP_RPC_ONE_WAY(name, number, req, Req)                                                    \
	case number:                                                                               \
		return NULL;
#include "transport/proto/rpc.def"
#undef KVP_RPC
#undef KVP_RPC_ONE_WAY
	default:
		return NULL;
	}
}

/* Counts what a message makes the decoder allocate: two bytes on the wire can ask for a hundred
 * (an empty element of a repeated field), which would turn a frame of 8 MiB into 400 MiB. */
static void *
budget_alloc(void *arg, size_t len)
{
	size_t *left = arg;

	if (len > *left) {
		return NULL;
	}
	*left -= len;
	return malloc(len);
}

static void
budget_free(void *arg, void *ptr)
{
	(void)arg;
	free(ptr);
}

ProtobufCMessage *
kvp_msg_decode(const ProtobufCMessageDescriptor *desc, const void *body, size_t len)
{
	size_t left;
	ProtobufCAllocator allocator = {
		.alloc = budget_alloc, .free = budget_free, .allocator_data = &left};

	if (desc == NULL || len > KVP_FRAME_LEN_MAX) {
		return NULL;
	}
	left = 2 * len + DECODE_LEN_BASE;
	return protobuf_c_message_unpack(desc, &allocator, len, body);
}

int
kvp_msg_encode(const ProtobufCMessage *msg, uint8_t **ret_body, size_t *ret_len)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *body;

	if (len > KVP_FRAME_LEN_MAX) {
		return -KVP_E_TOO_LARGE;
	}
	body = malloc(len > 0 ? len : 1);
	if (body == NULL) {
		return -ENOMEM;
	}
	*ret_len = protobuf_c_message_pack(msg, body);
	*ret_body = body;
	return 0;
}

/* --- packed arrays -------------------------------------------------------------------------------
 */
ProtobufCBinaryData
kvp_bytes(const void *buf, size_t len)
{
	/* protobuf-c has no const bytes; it only reads when packing. */
	return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)buf, .len = len};
}

int
kvp_key_set(struct kvp_key *ret_key, const void *bytes, size_t len)
{
	if (len < 1 || len > KVP_KEY_LEN_MAX) {
		return -KVP_E_KEY_LEN;
	}
	memset(ret_key, 0, sizeof(*ret_key));
	ret_key->len = (uint8_t)len;
	memcpy(ret_key->bytes, bytes, len);
	return 0;
}

bool
kvp_key_equal(const struct kvp_key *a, const struct kvp_key *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

void
kvp_write_key(struct kvp_writer *w, const struct kvp_key *key)
{
	kvp_assert(key->len >= 1 && key->len <= KVP_KEY_LEN_MAX);
	if ((size_t)key->len + 1 > w->left) {
		w->failed = true; /* all or nothing */
		return;
	}
	kvp_write_u8(w, key->len);
	kvp_write_bytes(w, key->bytes, key->len);
}

static void
read_key_bytes(struct kvp_reader *r, size_t len, struct kvp_key *ret_key)
{
	const uint8_t *span = kvp_read_span(r, len);

	memset(ret_key, 0, sizeof(*ret_key));
	if (span != NULL && kvp_key_set(ret_key, span, len) < 0) {
		r->failed = true;
	}
}

void
kvp_read_key(struct kvp_reader *r, struct kvp_key *ret_key)
{
	read_key_bytes(r, kvp_read_u8(r), ret_key);
}

int
kvp_keys_count(const void *buf, size_t len, uint32_t max)
{
	struct kvp_reader r = kvp_reader_over(buf, len);
	uint32_t count = 0;

	while (r.left > 0) {
		uint8_t klen = kvp_read_u8(&r);

		if (klen < 1 || klen > KVP_KEY_LEN_MAX || kvp_read_span(&r, klen) == NULL ||
			count >= max) {
			return -KVP_E_PROTO;
		}
		count++;
	}
	return (int)count;
}

void
kvp_write_announce(struct kvp_writer *w, const struct kvp_announce *head, const struct kvp_key *key)
{
	struct kvp_announce out = *head;

	kvp_assert(head->kind == KVP_ANNOUNCE_STORED || head->kind == KVP_ANNOUNCE_REMOVED);
	out.klen = 0;
	if (head->kind == KVP_ANNOUNCE_STORED) {
		kvp_assert(key->len >= 1 && key->len <= KVP_KEY_LEN_MAX);
		out.klen = key->len;
	}
	if (sizeof(out) + out.klen > w->left) {
		w->failed = true;
		return;
	}
	kvp_write_bytes(w, &out, sizeof(out));
	if (out.klen > 0) {
		kvp_write_bytes(w, key->bytes, out.klen);
	}
}

static bool
announce_is_sound(const struct kvp_announce *head)
{
	if (head->zero != 0 || head->tier > KVP_TIER_SSD) {
		return false;
	}
	switch (head->kind) {
	case KVP_ANNOUNCE_STORED:
		return head->klen >= 1 && head->klen <= KVP_KEY_LEN_MAX &&
		       kvp_word_state(head->word) == KVP_SLOT_VALID;
	case KVP_ANNOUNCE_REMOVED:
		return head->klen == 0;
	default:
		return false;
	}
}

void
kvp_read_announce(struct kvp_reader *r, struct kvp_announce *ret_head, struct kvp_key *ret_key)
{
	memset(ret_key, 0, sizeof(*ret_key));
	kvp_read_bytes(r, ret_head, sizeof(*ret_head));
	if (!r->failed && !announce_is_sound(ret_head)) {
		r->failed = true;
	}
	if (!r->failed && ret_head->klen > 0) {
		read_key_bytes(r, ret_head->klen, ret_key);
	}
	if (r->failed) {
		memset(ret_head, 0, sizeof(*ret_head));
	}
}

const uint8_t *
kvp_array(const ProtobufCBinaryData *field, size_t count, size_t size)
{
	static const uint8_t empty[1];
	size_t len;

	if (__builtin_mul_overflow(count, size, &len) || field->len != len) {
		return NULL;
	}
	return len > 0 ? field->data : empty;
}

void
kvp_key_digest(uint64_t seed, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	uint64_t ret_digest[2])
{
	uint8_t buf[KVP_NS_LEN + 1 + KVP_KEY_LEN_MAX];
	XXH128_hash_t hash;

	kvp_assert(key->len <= KVP_KEY_LEN_MAX);
	memcpy(buf, ns, KVP_NS_LEN);
	buf[KVP_NS_LEN] = key->len;
	memcpy(buf + KVP_NS_LEN + 1, key->bytes, key->len);
	hash = XXH3_128bits_withSeed(buf, KVP_NS_LEN + 1u + key->len, seed);
	ret_digest[0] = hash.low64;
	ret_digest[1] = hash.high64;
}
