/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_messages.c - every protobuf message and the packed arrays in it. The first byte chooses the
 * message: the type in its low seven bits, the reply by its high one.
 */
#include "tests/fuzz/fuzz.h"
#include "transport/proto/wire.h"

/* Every field of bytes is read as each of the arrays that a field may hold. */
static void
read_arrays(const ProtobufCBinaryData *field)
{
	static const size_t sizes[] = {1, 4, 8, 16, sizeof(struct kvp_offer_item),
		sizeof(struct kvp_grant), sizeof(struct kvp_loc), sizeof(struct kvp_touch_item)};
	struct kvp_reader r = kvp_reader_over(field->data, field->len);
	int count = kvp_keys_count(field->data, field->len, KVP_RPC_KEYS_MAX);
	volatile uint8_t sink = 0;

	for (int i = 0; i < count; i++) {
		struct kvp_key key;

		kvp_read_key(&r, &key);
		kvp_assert(!r.failed && key.len >= 1 && key.len <= KVP_KEY_LEN_MAX);
	}
	kvp_assert(count < 0 || r.left == 0);
	r = kvp_reader_over(field->data, field->len);
	while (!r.failed && r.left > 0) {
		struct kvp_announce head;
		struct kvp_key key;

		kvp_read_announce(&r, &head, &key);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const uint8_t *array = kvp_array(field, field->len / sizes[i], sizes[i]);

		kvp_assert((array != NULL) == (field->len % sizes[i] == 0));
		if (array != NULL && field->len > 0) {
			sink = array[0];
			sink = array[field->len - 1];
		}
	}
	(void)sink;
}

static void
read_fields(const ProtobufCMessage *msg)
{
	for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i];
		const uint8_t *member = (const uint8_t *)msg + field->offset;

		if (field->type != PROTOBUF_C_TYPE_BYTES) {
			continue;
		}
		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			size_t count =
				*(const size_t *)((const uint8_t *)msg + field->quantifier_offset);

			for (size_t j = 0; j < count; j++) {
				read_arrays(&(*(ProtobufCBinaryData *const *)member)[j]);
			}
		} else {
			read_arrays((const ProtobufCBinaryData *)member);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const ProtobufCMessageDescriptor *desc;
	ProtobufCMessage *msg;
	uint8_t *body;
	size_t len;

	if (size < 1) {
		return 0;
	}
	desc = (data[0] & 0x80) != 0 ? kvp_rpc_reply_desc(data[0] & 0x7f)
				     : kvp_rpc_request_desc(data[0] & 0x7f);
	msg = kvp_msg_decode(desc, data + 1, size - 1);
	if (msg == NULL) {
		return 0;
	}
	read_fields(msg);
	/* Its own encoding is read like any other's. It need not be accepted: protobuf-c keeps an
	 * unknown field 0 in an overlong form and refuses it in the short one that it writes. */
	if (kvp_msg_encode(msg, &body, &len) == 0) {
		ProtobufCMessage *again = kvp_msg_decode(desc, body, len);

		if (again != NULL) {
			protobuf_c_message_free_unpacked(again, NULL);
		}
		free(body);
	}
	protobuf_c_message_free_unpacked(msg, NULL);
	return 0;
}
