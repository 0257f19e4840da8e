/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_test.c - frames, messages and packed arrays: round trips, and what is refused.
 */
#include "hal/base/err.h"
#include "tests/unit/transport/transport_test.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/wire.h"

/* --- frame --------------------------------------------------------------------------------------
 */
static void
frames_round_trip(void **state)
{
	struct kvp_frame frame = {.body_len = 0x12345,
		.type = KVP_RPC_OFFER,
		.kind = KVP_FRAME_REPLY,
		.id = 0xdeadbeef,
		.status = -KVP_E_STALE};
	static const uint8_t want[KVP_FRAME_HEADER_LEN] = {
		0x45, 0x23, 1, 0, 11, 0, 2, 0, 0xef, 0xbe, 0xad, 0xde, 0x77, 0xec, 0xff, 0xff};
	uint8_t header[KVP_FRAME_HEADER_LEN];
	struct kvp_frame back;

	(void)state;
	kvp_frame_encode(&frame, header);
	assert_memory_equal(header, want, sizeof(want));
	assert_int_equal(kvp_frame_decode(header, KVP_FRAME_LEN_MAX, &back), 0);
	assert_memory_equal(&back, &frame, sizeof(frame));
}

static void
frames_refused(void **state)
{
	static const struct {
		struct kvp_frame frame;
		int want;
	} rows[] = {
		{{.type = 11, .kind = KVP_FRAME_REQUEST, .body_len = 4096}, 0},
		{{.type = 11, .kind = KVP_FRAME_REQUEST, .body_len = 4097}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REQUEST, .body_len = UINT32_MAX}, -KVP_E_PROTO},
		{{.type = 60000, .kind = KVP_FRAME_ONE_WAY}, 0}, /* not this layer's business */
		{{.type = 11, .kind = 0}, -KVP_E_PROTO},
		{{.type = 11, .kind = 4}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REQUEST, .zero = 1}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REQUEST, .status = -5}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_ONE_WAY, .status = -5}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REPLY, .status = 1}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REPLY, .status = -65535}, 0},
		{{.type = 11, .kind = KVP_FRAME_REPLY, .status = -65536}, -KVP_E_PROTO},
		{{.type = 11, .kind = KVP_FRAME_REPLY, .status = INT32_MIN}, -KVP_E_PROTO},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t header[KVP_FRAME_HEADER_LEN];
		struct kvp_frame frame;

		memcpy(header, &rows[i].frame, sizeof(header));
		assert_int_equal(kvp_frame_decode(header, 4096, &frame), rows[i].want);
	}
}

static void
calls_have_names_and_messages(void **state)
{
	(void)state;
	assert_string_equal(kvp_rpc_name(KVP_RPC_HELLO), "HELLO");
	assert_string_equal(kvp_rpc_name(KVP_RPC_TOUCH), "TOUCH");
	assert_string_equal(kvp_rpc_name(9999), "?");
	assert_ptr_equal(kvp_rpc_request_desc(KVP_RPC_OFFER), &kvp__offer__descriptor);
	assert_ptr_equal(kvp_rpc_reply_desc(KVP_RPC_OFFER), &kvp__offer_reply__descriptor);
	assert_non_null(kvp_rpc_request_desc(KVP_RPC_TOUCH));
	assert_null(kvp_rpc_reply_desc(KVP_RPC_TOUCH));
	assert_null(kvp_rpc_request_desc(0));
	assert_null(kvp_rpc_reply_desc(9999));
}

/* --- protobuf -----------------------------------------------------------------------------------
 */
static void
messages_round_trip_and_survive_truncation(void **state)
{
	static const char keys[] = "\3abc\1x";
	Kvp__Context context = KVP__CONTEXT__INIT;
	Kvp__Offer offer = KVP__OFFER__INIT;
	ProtobufCMessage *msg;
	uint8_t *body;
	size_t len;

	(void)state;
	context.conversation = 1ull << 60;
	context.turn = 3;
	offer.context = &context;
	offer.epoch = 9;
	offer.transport = (char *)(uintptr_t) "ofi";
	offer.keys = kvp_bytes(keys, sizeof(keys) - 1);
	assert_int_equal(kvp_msg_encode(&offer.base, &body, &len), 0);

	msg = kvp_msg_decode(&kvp__offer__descriptor, body, len);
	assert_non_null(msg);
	assert_int_equal(((Kvp__Offer *)msg)->context->conversation, 1ull << 60);
	assert_int_equal(((Kvp__Offer *)msg)->epoch, 9);
	assert_string_equal(((Kvp__Offer *)msg)->transport, "ofi");
	assert_int_equal(((Kvp__Offer *)msg)->keys.len, sizeof(keys) - 1);
	protobuf_c_message_free_unpacked(msg, NULL);

	for (size_t cut = 0; cut < len; cut++) {
		/* Fields are optional, so a cut between two of them is a message; else none. */
		uint8_t *part = malloc(cut > 0 ? cut : 1); /* so that ASan sees its end */

		assert_non_null(part);
		memcpy(part, body, cut);
		msg = kvp_msg_decode(&kvp__offer__descriptor, part, cut);
		if (msg != NULL) {
			protobuf_c_message_free_unpacked(msg, NULL);
		}
		free(part);
	}
	free(body);
	assert_null(kvp_msg_decode(NULL, "", 0));
	msg = kvp_msg_decode(&kvp__ping__descriptor, NULL, 0);
	assert_non_null(msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* Four million empty pairs in a frame of 8 MiB would take half a gigabyte. */
static void
small_bytes_make_no_large_message(void **state)
{
	size_t len = KVP_FRAME_LEN_MAX;
	uint8_t *body = malloc(len + 1);

	(void)state;
	assert_non_null(body);
	for (size_t i = 0; i < len; i += 2) {
		body[i] = 1 << 3 | 2; /* pairs, of length */
		body[i + 1] = 0;
	}
	assert_null(kvp_msg_decode(&kvp__status_reply__descriptor, body, len));
	assert_null(kvp_msg_decode(&kvp__ping__descriptor, body, len)); /* unknown fields */
	assert_null(kvp_msg_decode(&kvp__ping__descriptor, body, len + 1));
	free(body);
}

static void
legal_lists_fit(void **state)
{
	Kvp__LookupReply reply = KVP__LOOKUP_REPLY__INIT;
	Kvp__NodeInfo *nodes[KVP_NODES_MAX];
	Kvp__NodeInfo node = KVP__NODE_INFO__INIT;
	ProtobufCBinaryData behind[KVP_NODES_MAX];
	ProtobufCMessage *msg;
	uint8_t *big = calloc(1, KVP_RPC_KEYS_MAX * sizeof(struct kvp_loc));
	uint8_t *body;
	size_t len;

	(void)state;
	assert_non_null(big);
	node.id = kvp_bytes(big, KVP_ID_LEN);
	node.host_id = node.id;
	node.name = (char *)(uintptr_t) "n";
	node.address = node.name;
	node.local_address = node.name;
	for (size_t i = 0; i < KVP_NODES_MAX; i++) {
		nodes[i] = &node;
		behind[i] = node.id;
	}
	reply.nodes = nodes;
	reply.n_nodes = KVP_NODES_MAX;
	reply.behind = behind;
	reply.n_behind = KVP_NODES_MAX;
	reply.locations = kvp_bytes(big, KVP_RPC_KEYS_MAX * sizeof(struct kvp_loc));
	assert_int_equal(kvp_msg_encode(&reply.base, &body, &len), 0);
	msg = kvp_msg_decode(&kvp__lookup_reply__descriptor, body, len);
	assert_non_null(msg);
	protobuf_c_message_free_unpacked(msg, NULL);
	free(body);

	free(big);
}

static void
too_large_to_encode(void **state)
{
	Kvp__Announce announce = KVP__ANNOUNCE__INIT;
	uint8_t *big = calloc(1, KVP_FRAME_LEN_MAX);
	uint8_t *body;
	size_t len;

	(void)state;
	assert_non_null(big);
	announce.records = kvp_bytes(big, KVP_FRAME_LEN_MAX);
	assert_int_equal(kvp_msg_encode(&announce.base, &body, &len), -KVP_E_TOO_LARGE);
	free(big);
}

/* --- packed arrays ------------------------------------------------------------------------------
 */
static void
keys_round_trip(void **state)
{
	uint8_t buf[256];
	struct kvp_writer w = kvp_writer_over(buf, sizeof(buf));
	struct kvp_key keys[3];
	uint8_t longest[KVP_KEY_LEN_MAX];
	size_t len;

	(void)state;
	memset(longest, 0xff, sizeof(longest));
	assert_int_equal(kvp_key_set(&keys[0], "a", 1), 0);
	assert_int_equal(kvp_key_set(&keys[1], "\0\0", 2), 0);
	assert_int_equal(kvp_key_set(&keys[2], longest, sizeof(longest)), 0);
	assert_int_equal(kvp_key_set(&keys[2], longest, sizeof(longest) + 1), -KVP_E_KEY_LEN);
	assert_int_equal(kvp_key_set(&keys[2], longest, 0), -KVP_E_KEY_LEN);
	for (size_t i = 0; i < 3; i++) {
		kvp_write_key(&w, &keys[i]);
	}
	assert_false(w.failed);
	len = sizeof(buf) - w.left;
	assert_int_equal(kvp_keys_count(buf, len, 3), 3);
	assert_int_equal(kvp_keys_count(buf, len, 2), -KVP_E_PROTO);
	assert_int_equal(kvp_keys_count(NULL, 0, 3), 0);

	for (size_t cut = 0; cut <= len; cut++) {
		struct kvp_reader r = kvp_reader_over(buf, cut);
		size_t whole = 0;

		for (size_t i = 0; i < 3; i++) {
			struct kvp_key key;

			kvp_read_key(&r, &key);
			if (!r.failed) {
				assert_true(kvp_key_equal(&key, &keys[i]));
				whole++;
			} else {
				assert_int_equal(key.len, 0);
			}
		}
		assert_int_equal(whole, cut < 2 ? 0 : cut < 5 ? 1 : cut < len ? 2 : 3);
		assert_true(cut == 0 || cut == 2 || cut == 5 || cut == len
				    ? kvp_keys_count(buf, cut, 3) == (int)whole
				    : kvp_keys_count(buf, cut, 3) == -KVP_E_PROTO);
	}
}

static void
keys_refused(void **state)
{
	uint8_t buf[80] = {0};
	struct kvp_key key;
	struct kvp_reader r;
	struct kvp_writer w;

	(void)state;
	assert_int_equal(kvp_keys_count(buf, 1, 9), -KVP_E_PROTO); /* length 0 */
	r = kvp_reader_over(buf, sizeof(buf));
	kvp_read_key(&r, &key);
	assert_true(r.failed);
	buf[0] = KVP_KEY_LEN_MAX + 1;
	assert_int_equal(kvp_keys_count(buf, KVP_KEY_LEN_MAX + 2, 9), -KVP_E_PROTO);
	r = kvp_reader_over(buf, sizeof(buf));
	kvp_read_key(&r, &key);
	assert_true(r.failed);

	/* All or nothing: half a key would be another key. */
	assert_int_equal(kvp_key_set(&key, "abcd", 4), 0);
	w = kvp_writer_over(buf, 4);
	kvp_write_key(&w, &key);
	assert_true(w.failed);
	assert_int_equal(w.left, 4);
}

static void
announcements_round_trip(void **state)
{
	uint8_t buf[256];
	struct kvp_writer w = kvp_writer_over(buf, sizeof(buf));
	struct kvp_announce stored = {.kind = KVP_ANNOUNCE_STORED,
		.tier = KVP_TIER_SSD,
		.slot = 7,
		.word = kvp_word_make(1, 2, KVP_SLOT_VALID),
		.off = 1ull << 40,
		.len = 4097,
		.ns = "0123456789abcde"};
	struct kvp_announce removed = {
		.kind = KVP_ANNOUNCE_REMOVED, .slot = 8, .word = stored.word};
	struct kvp_key key;
	size_t len;

	(void)state;
	assert_int_equal(kvp_key_set(&key, "a key", 5), 0);
	kvp_write_announce(&w, &stored, &key);
	kvp_write_announce(&w, &removed, NULL);
	assert_false(w.failed);
	len = sizeof(buf) - w.left;
	assert_int_equal(len, 2 * sizeof(stored) + 5);
	for (size_t cut = 0; cut <= len; cut++) {
		struct kvp_reader r = kvp_reader_over(buf, cut);
		struct kvp_announce head;
		struct kvp_key back;

		kvp_read_announce(&r, &head, &back);
		assert_int_equal(r.failed, cut < sizeof(stored) + 5);
		if (!r.failed) {
			assert_int_equal(head.klen, 5);
			head.klen = 0;
			assert_memory_equal(&head, &stored, sizeof(head));
			assert_true(kvp_key_equal(&back, &key));
		}
		kvp_read_announce(&r, &head, &back);
		assert_int_equal(r.failed, cut < len);
		assert_int_equal(head.kind, cut < len ? 0 : KVP_ANNOUNCE_REMOVED);
		assert_int_equal(back.len, 0);
	}
}

static void
announcements_refused(void **state)
{
	const struct kvp_announce good = {.kind = KVP_ANNOUNCE_STORED,
		.klen = 1,
		.word = kvp_word_make(1, 2, KVP_SLOT_VALID)};
	struct kvp_announce rows[9];

	(void)state;
	for (size_t i = 0; i < 9; i++) {
		rows[i] = good;
	}
	rows[1].kind = 0;
	rows[2].kind = 3;
	rows[3].klen = 0;
	rows[4].klen = KVP_KEY_LEN_MAX + 1;
	rows[5].tier = KVP_TIER_SSD + 1;
	rows[6].zero = 1;
	rows[7].word = kvp_word_with(good.word, KVP_SLOT_WRITING);
	rows[8].kind = KVP_ANNOUNCE_REMOVED; /* with a key */
	for (size_t i = 0; i < 9; i++) {
		uint8_t buf[sizeof(good) + KVP_KEY_LEN_MAX + 1] = {0};
		struct kvp_reader r = kvp_reader_over(buf, sizeof(buf));
		struct kvp_announce head;
		struct kvp_key key;

		memcpy(buf, &rows[i], sizeof(good));
		kvp_read_announce(&r, &head, &key);
		assert_int_equal(r.failed, i != 0);
	}
}

static void
arrays_have_their_exact_length(void **state)
{
	uint8_t bytes[64] = {0};
	ProtobufCBinaryData field = kvp_bytes(bytes, sizeof(bytes));
	ProtobufCBinaryData none = {.data = NULL};

	(void)state;
	assert_ptr_equal(kvp_array(&field, 2, 32), bytes);
	assert_null(kvp_array(&field, 1, 32));
	assert_null(kvp_array(&field, 3, 32));
	assert_null(kvp_array(&field, SIZE_MAX / 32 + 3, 32)); /* 64, after overflow */
	assert_non_null(kvp_array(&none, 0, 32));
	assert_null(kvp_array(&none, 1, 32));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_round_trip),
		cmocka_unit_test(frames_refused),
		cmocka_unit_test(calls_have_names_and_messages),
		cmocka_unit_test(messages_round_trip_and_survive_truncation),
		cmocka_unit_test(small_bytes_make_no_large_message),
		cmocka_unit_test(legal_lists_fit),
		cmocka_unit_test(too_large_to_encode),
		cmocka_unit_test(keys_round_trip),
		cmocka_unit_test(keys_refused),
		cmocka_unit_test(announcements_round_trip),
		cmocka_unit_test(announcements_refused),
		cmocka_unit_test(arrays_have_their_exact_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
