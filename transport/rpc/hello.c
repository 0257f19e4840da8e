/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello.c - see hello.h. No state. What peers send is checked and refused, never asserted.
 */
#include "transport/rpc/hello.h"

#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/wire.h"

#include <string.h>

#define SOFTWARE "kvpool " KVP_VERSION

uint32_t
kvp_hello_agree(const struct kvp_hello_range *a, const struct kvp_hello_range *b)
{
	uint32_t min = a->min > b->min ? a->min : b->min;
	uint32_t max = a->max < b->max ? a->max : b->max;

	return min <= max ? max : 0;
}

static void
hello_fill(const struct kvp_ident *self, const struct kvp_hello_range *ours, Kvp__Hello *ret_msg)
{
	kvp__hello__init(ret_msg);
	ret_msg->version_min = ours->min;
	ret_msg->version_max = ours->max;
	ret_msg->features = self->features;
	ret_msg->kind = self->kind;
	ret_msg->id = kvp_bytes(self->id, KVP_ID_LEN);
	ret_msg->incarnation = self->incarnation;
	ret_msg->name = (char *)(uintptr_t)self->name; /* read only when packing */
	ret_msg->software = (char *)(uintptr_t)SOFTWARE;
}

/* A name goes into logs: cut, and without control characters. */
static void
hello_copy_name(const char *name, char ret_name[KVP_NAME_LEN_MAX])
{
	size_t len = strnlen(name, KVP_NAME_LEN_MAX - 1);

	memset(ret_name, 0, KVP_NAME_LEN_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		ret_name[i] = c >= 0x20 && c != 0x7f && c != '\'' ? name[i] : '?';
	}
}

static int
hello_read(const struct kvp_hello_range *ours, const Kvp__Hello *msg, struct kvp_hello *ret_peer)
{
	struct kvp_hello peer = {.range = {.min = msg->version_min, .max = msg->version_max}};

	memset(ret_peer, 0, sizeof(*ret_peer));
	if (msg->id.len != KVP_ID_LEN || msg->kind == 0) {
		return -KVP_E_PROTO;
	}
	if (peer.range.min == 0 || peer.range.min > peer.range.max) {
		return -KVP_E_PROTO;
	}
	memcpy(peer.ident.id, msg->id.data, KVP_ID_LEN);
	peer.ident.incarnation = msg->incarnation;
	peer.ident.features = msg->features;
	peer.ident.kind = msg->kind;
	peer.ident.version = kvp_hello_agree(ours, &peer.range);
	hello_copy_name(msg->name, peer.ident.name);
	*ret_peer = peer;
	return peer.ident.version != 0 ? 0 : -KVP_E_VERSION;
}

int
kvp_hello_request(const struct kvp_ident *self, const struct kvp_hello_range *ours,
	uint8_t **ret_body, size_t *ret_len)
{
	Kvp__Hello msg;

	hello_fill(self, ours, &msg);
	return kvp_msg_encode(&msg.base, ret_body, ret_len);
}

int
kvp_hello_judge(const struct kvp_hello_range *ours, const void *body, size_t len,
	struct kvp_hello *ret_peer)
{
	ProtobufCMessage *msg = kvp_msg_decode(&kvp__hello__descriptor, body, len);
	int err;

	memset(ret_peer, 0, sizeof(*ret_peer));
	if (msg == NULL) {
		return -KVP_E_PROTO;
	}
	err = hello_read(ours, (const Kvp__Hello *)msg, ret_peer);
	protobuf_c_message_free_unpacked(msg, NULL);
	return err;
}

int
kvp_hello_reply(const struct kvp_ident *self, const struct kvp_hello_range *ours, uint32_t version,
	uint8_t **ret_body, size_t *ret_len)
{
	Kvp__Hello hello;
	Kvp__HelloReply msg = KVP__HELLO_REPLY__INIT;

	hello_fill(self, ours, &hello);
	msg.version = version;
	msg.self = &hello;
	return kvp_msg_encode(&msg.base, ret_body, ret_len);
}

int
kvp_hello_finish(const struct kvp_hello_range *ours, int status, const void *body, size_t len,
	struct kvp_hello *ret_peer)
{
	Kvp__HelloReply *msg;
	int err = -KVP_E_PROTO;

	memset(ret_peer, 0, sizeof(*ret_peer));
	if (status < 0 && status != -KVP_E_VERSION) {
		return status;
	}
	msg = (Kvp__HelloReply *)kvp_msg_decode(&kvp__hello_reply__descriptor, body, len);
	if (msg == NULL) {
		return status < 0 ? status : -KVP_E_PROTO;
	}
	if (msg->self != NULL) {
		err = hello_read(ours, msg->self, ret_peer);
	}
	if (status == -KVP_E_VERSION) {
		ret_peer->ident.version = 0;
		err = status;
	} else if (err == 0 && (msg->version < ours->min || msg->version > ours->max)) {
		/* It accepted us under a version we did not offer. */
		memset(ret_peer, 0, sizeof(*ret_peer));
		err = -KVP_E_PROTO;
	} else if (err == 0) {
		ret_peer->ident.version = msg->version;
	}
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return err;
}
