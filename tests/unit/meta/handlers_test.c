/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_test.c - a whole meta on an rpc that only keeps its answers: streams, lookups, status,
 * and what hostile peers send.
 */
#include "tests/unit/meta/meta_test.h"

#include "hal/base/err.h"
#include "pool/meta/meta.h"
#include "transport/proto/kvpool.pb-c.h"
#include "transport/proto/wire.h"

#include <inttypes.h>

#define HEARTBEAT_MS 100u

struct fixture {
	struct test_rpc rpc;
	struct kvp_metrics metrics;
	struct kvp_meta *meta;
	const struct kvp_rpc_service *service;
	struct kvp_rpc_conn node;
	struct kvp_rpc_conn client;
};

static struct kvp_rpc_conn
conn_make(struct fixture *fx, uint32_t kind, uint8_t id)
{
	struct kvp_rpc_conn conn = {.rpc = &fx->rpc.rpc};

	memset(conn.peer.id, id, sizeof(conn.peer.id));
	conn.peer.incarnation = 1;
	conn.peer.kind = kind;
	(void)snprintf(conn.peer.name, sizeof(conn.peer.name), "peer%u", id);
	(void)snprintf(conn.peer.addr, sizeof(conn.peer.addr), "127.0.0.1:%u", id);
	return conn;
}

#define SUSPECT_MS (3 * HEARTBEAT_MS)

/* age_ms: how long the meta has been up. */
static int
setup_blocks(void **state, uint64_t blocks_max, uint64_t age_ms)
{
	struct fixture *fx = calloc(1, sizeof(*fx));
	struct kvp_meta_cfg cfg = {.blocks_max = blocks_max,
		.heartbeat_ms = HEARTBEAT_MS,
		.suspect_ms = SUSPECT_MS,
		.forget_ms = 10 * HEARTBEAT_MS};

	assert_non_null(fx);
	test_rpc_init(&fx->rpc);
	assert_int_equal(
		kvp_metrics_init(&fx->metrics, kvp_meta_metrics, KVP_META_METRIC_COUNT), 0);
	cfg.env = &fx->rpc.env.env;
	cfg.metrics = &fx->metrics;
	cfg.rpc = &fx->rpc.rpc;
	(void)snprintf(cfg.self.name, sizeof(cfg.self.name), "meta1");
	assert_int_equal(kvp_meta_open(&cfg, &fx->meta), 0);
	test_rpc_run(&fx->rpc, age_ms * KVP_NS_PER_MS);
	fx->service = kvp_meta_service(fx->meta);
	fx->node = conn_make(fx, KVP_PEER_NODE, 1);
	fx->client = conn_make(fx, KVP_PEER_CLIENT, 9);
	fx->service->opened(fx->service->arg, &fx->node);
	fx->service->opened(fx->service->arg, &fx->client);
	*state = fx;
	return 0;
}

static int
setup(void **state)
{
	return setup_blocks(state, 4096, SUSPECT_MS);
}

static int
setup_young(void **state)
{
	return setup_blocks(state, 4096, 0);
}

static int
setup_large(void **state)
{
	return setup_blocks(state, 1u << 20, SUSPECT_MS);
}

static int
teardown(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_service service = *fx->service;

	/* The meta closes first: its connections end later, as with a real loop. */
	kvp_meta_close(fx->meta);
	service.closed(service.arg, &fx->node, 0);
	service.closed(service.arg, &fx->client, 0);
	free(fx->rpc.body);
	kvp_metrics_fini(&fx->metrics);
	free(fx);
	return 0;
}

static uint64_t
metric(const struct fixture *fx, enum kvp_meta_metric idx)
{
	return kvp_metric_get(&fx->metrics, idx);
}

static int
call_bytes(
	struct fixture *fx, struct kvp_rpc_conn *conn, uint16_t type, const void *body, size_t len)
{
	struct kvp_rpc_call call = {.conn = conn, .type = type, .body = body, .len = len};

	fx->rpc.replied = false;
	fx->rpc.closed_count = 0;
	fx->service->call(fx->service->arg, &call);
	assert_true(fx->rpc.replied);
	return fx->rpc.status;
}

static int
call(struct fixture *fx, struct kvp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg)
{
	uint8_t *body;
	size_t len;
	int status;

	assert_int_equal(kvp_msg_encode(msg, &body, &len), 0);
	status = call_bytes(fx, conn, type, body, len);
	free(body);
	return status;
}

static void *
reply_decode(struct fixture *fx, uint16_t type)
{
	ProtobufCMessage *msg = kvp_msg_decode(kvp_rpc_reply_desc(type), fx->rpc.body, fx->rpc.len);

	assert_non_null(msg);
	return msg;
}

static void
reply_free(void *msg)
{
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* --- streams -----------------------------------------------------------------------------------
 */

static int
join(struct fixture *fx, struct kvp_rpc_conn *conn, uint64_t sequence, bool *ret_snapshot)
{
	Kvp__NodeInfo info = KVP__NODE_INFO__INIT;
	Kvp__Join msg = KVP__JOIN__INIT;
	Kvp__JoinReply *reply;
	int status;

	info.id = kvp_bytes(conn->peer.id, KVP_ID_LEN);
	info.incarnation = conn->peer.incarnation;
	info.name = conn->peer.name;
	info.address = conn->peer.addr;
	info.local_address = (char *)"unix:/tmp/n.sock";
	msg.node = &info;
	msg.sequence = sequence;
	status = call(fx, conn, KVP_RPC_JOIN, &msg.base);
	if (status == 0) {
		reply = reply_decode(fx, KVP_RPC_JOIN);
		assert_int_equal(reply->heartbeat_ms, HEARTBEAT_MS);
		*ret_snapshot = reply->snapshot;
		reply_free(reply);
	}
	return status;
}

static const uint8_t ns_a[KVP_NS_LEN] = {1, 2, 3};

static struct kvp_key
key_of(uint64_t number)
{
	uint8_t bytes[32] = {0};
	struct kvp_key key;

	memcpy(bytes, &number, sizeof(number));
	assert_int_equal(kvp_key_set(&key, bytes, sizeof(bytes)), 0);
	return key;
}

static struct kvp_announce
record_of(uint8_t kind, uint64_t number)
{
	struct kvp_announce head = {.kind = kind,
		.tier = kind == KVP_ANNOUNCE_STORED ? KVP_TIER_DRAM : 0,
		.slot = (uint32_t)number,
		.word = kvp_word_make(1, number + 1, KVP_SLOT_VALID),
		.off = number * 4096,
		.len = kind == KVP_ANNOUNCE_STORED ? 100 + number : 0};

	memcpy(head.ns, ns_a, sizeof(ns_a));
	return head;
}

struct stream {
	Kvp__Announce msg;
	struct kvp_writer writer;
	uint8_t bytes[KVP_RPC_KEYS_MAX * 96];
};

static struct stream *
stream_new(uint64_t sequence)
{
	struct stream *stream = malloc(sizeof(*stream));

	assert_non_null(stream);
	kvp__announce__init(&stream->msg);
	stream->msg.sequence = sequence;
	stream->writer = kvp_writer_over(stream->bytes, sizeof(stream->bytes));
	return stream;
}

static void
stream_add(struct stream *stream, uint8_t kind, uint64_t number)
{
	struct kvp_announce head = record_of(kind, number);
	struct kvp_key key = key_of(number);

	kvp_write_announce(&stream->writer, &head, &key);
	assert_false(stream->writer.failed);
	stream->msg.sequence++;
	stream->msg.records_count++;
}

static int
stream_send(struct fixture *fx, struct kvp_rpc_conn *conn, struct stream *stream, bool *ret_resync,
	uint64_t *ret_sequence)
{
	Kvp__AnnounceReply *reply;
	int status;

	stream->msg.records =
		kvp_bytes(stream->bytes, (size_t)(stream->writer.pos - stream->bytes));
	status = call(fx, conn, KVP_RPC_ANNOUNCE, &stream->msg.base);
	free(stream);
	if (status == 0) {
		reply = reply_decode(fx, KVP_RPC_ANNOUNCE);
		*ret_resync = reply->resync;
		*ret_sequence = reply->sequence;
		reply_free(reply);
	}
	return status;
}

/* Records first..first+count-1 in one message after sequence. */
static void
announce(struct fixture *fx, struct kvp_rpc_conn *conn, uint64_t sequence, uint64_t first,
	uint32_t count, bool begin, bool end)
{
	struct stream *stream = stream_new(sequence);
	uint64_t applied;
	bool resync;

	for (uint32_t i = 0; i < count; i++) {
		stream_add(stream, KVP_ANNOUNCE_STORED, first + i);
	}
	stream->msg.snapshot_begin = begin;
	stream->msg.snapshot_end = end;
	assert_int_equal(stream_send(fx, conn, stream, &resync, &applied), 0);
	assert_false(resync);
	assert_int_equal(applied, sequence + count);
}

static bool
heartbeat(struct fixture *fx, struct kvp_rpc_conn *conn, uint64_t sequence)
{
	uint64_t applied;
	bool resync;

	assert_int_equal(stream_send(fx, conn, stream_new(sequence), &resync, &applied), 0);
	return !resync;
}

/* --- lookups -----------------------------------------------------------------------------------
 */

struct question {
	Kvp__Lookup msg;
	uint8_t bytes[(KVP_RPC_KEYS_MAX + 1) * 33];
	struct kvp_writer writer;
};

static struct question *
question_new(uint64_t first, uint32_t count)
{
	struct question *q = malloc(sizeof(*q));

	assert_non_null(q);
	kvp__lookup__init(&q->msg);
	q->writer = kvp_writer_over(q->bytes, sizeof(q->bytes));
	for (uint32_t i = 0; i < count; i++) {
		struct kvp_key key = key_of(first + i);

		kvp_write_key(&q->writer, &key);
	}
	assert_false(q->writer.failed);
	q->msg.ns = kvp_bytes(ns_a, sizeof(ns_a));
	q->msg.keys = kvp_bytes(q->bytes, (size_t)(q->writer.pos - q->bytes));
	return q;
}

static Kvp__LookupReply *
ask(struct fixture *fx, struct question *q)
{
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), 0);
	free(q);
	return reply_decode(fx, KVP_RPC_LOOKUP);
}

static size_t
found(struct fixture *fx, uint64_t first, uint32_t count)
{
	Kvp__LookupReply *reply = ask(fx, question_new(first, count));
	size_t locs = reply->locations.len / sizeof(struct kvp_loc);

	assert_int_equal(reply->counts.len, count);
	reply_free(reply);
	return locs;
}

static void
stream_whole(struct fixture *fx, uint32_t count)
{
	bool snapshot;

	assert_int_equal(join(fx, &fx->node, 0, &snapshot), 0);
	assert_true(snapshot);
	announce(fx, &fx->node, 0, 0, count, true, true);
}

static void
stream_flow(void **state)
{
	struct fixture *fx = *state;
	struct stream *stream;
	uint64_t applied;
	bool resync;
	bool snapshot;

	/* Nothing without a join, and the connection goes. */
	assert_int_equal(
		stream_send(fx, &fx->node, stream_new(0), &resync, &applied), -KVP_E_PROTO);
	assert_true(fx->rpc.closed_count == 1 && fx->rpc.closed[0] == &fx->node);
	assert_int_equal(metric(fx, KVP_META_REJECT_NOT_JOINED), 1);

	assert_int_equal(join(fx, &fx->node, 50, &snapshot), 0);
	assert_true(snapshot);
	assert_false(heartbeat(fx, &fx->node, 50)); /* it still wants the snapshot */
	announce(fx, &fx->node, 50, 0, 10, true, false);
	assert_int_equal(found(fx, 0, 10), 10);
	announce(fx, &fx->node, 60, 10, 10, false, true);
	assert_int_equal(found(fx, 0, 30), 20);
	assert_true(heartbeat(fx, &fx->node, 70));

	stream = stream_new(70);
	stream_add(stream, KVP_ANNOUNCE_REMOVED, 3);
	stream_add(stream, KVP_ANNOUNCE_REMOVED, 2000); /* never was: counted, no error */
	stream_add(stream, KVP_ANNOUNCE_STORED, 20);
	assert_int_equal(stream_send(fx, &fx->node, stream, &resync, &applied), 0);
	assert_true(!resync && applied == 73);
	assert_int_equal(found(fx, 0, 30), 20);
	assert_int_equal(found(fx, 3, 1), 0);
	assert_int_equal(metric(fx, KVP_META_IGNORED_UNKNOWN), 1);

	/* Joined again where it was: no snapshot. */
	assert_int_equal(join(fx, &fx->node, 73, &snapshot), 0);
	assert_false(snapshot);

	/* A gap: ignored, and everything must come again. What is known stays until then. */
	stream = stream_new(74);
	stream_add(stream, KVP_ANNOUNCE_STORED, 30);
	assert_int_equal(stream_send(fx, &fx->node, stream, &resync, &applied), 0);
	assert_true(resync && applied == 73);
	assert_int_equal(found(fx, 0, 31), 20);
	assert_false(heartbeat(fx, &fx->node, 73));
	announce(fx, &fx->node, 80, 5, 3, true, true);
	assert_int_equal(found(fx, 0, 31), 3);
	assert_int_equal(metric(fx, KVP_META_BLOCKS), 3);
	test_rpc_run(&fx->rpc, KVP_NS_PER_S / 20);
	assert_int_equal(metric(fx, KVP_META_BLOCKS_HELD), 3); /* the sweep's timer came */
	assert_int_equal(metric(fx, KVP_META_RESYNCS), 3);
	assert_int_equal(metric(fx, KVP_META_SNAPSHOTS), 2);
}

/* A snapshot that breaks off leaves what was known, and is needed again. */
static void
stream_broken_snapshot(void **state)
{
	struct fixture *fx = *state;
	bool snapshot;

	stream_whole(fx, 20);
	announce(fx, &fx->node, 20, 0, 5, true, false);
	fx->service->closed(fx->service->arg, &fx->node, 0);
	fx->service->opened(fx->service->arg, &fx->node);
	assert_int_equal(join(fx, &fx->node, 25, &snapshot), 0);
	assert_true(snapshot);
	assert_int_equal(found(fx, 0, 20), 20);
	assert_false(heartbeat(fx, &fx->node, 25));
	announce(fx, &fx->node, 0, 3, 4, true, true);
	assert_int_equal(found(fx, 0, 20), 4);
}

static void
stream_full(void **state)
{
	struct fixture *fx = *state;

	stream_whole(fx, 4096);
	announce(fx, &fx->node, 4096, 4096, 10, false, false);
	assert_int_equal(metric(fx, KVP_META_IGNORED_FULL), 10);
	assert_int_equal(found(fx, 4090, 16), 6);
}

static void
join_refused(void **state)
{
	struct fixture *fx = *state;
	static const char *const addresses[] = {
		"0.0.0.0:7490", "[::]:7490", "", "unix:/x", "10.0.0.1:0", "10.0.0.1", "no address"};
	Kvp__NodeInfo info = KVP__NODE_INFO__INIT;
	Kvp__Join msg = KVP__JOIN__INIT;
	char name[KVP_NAME_LEN_MAX + 1];

	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_PROTO); /* no node */
	msg.node = &info;
	info.id = kvp_bytes(fx->node.peer.id, KVP_ID_LEN);
	info.incarnation = 1;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		info.address = (char *)(uintptr_t)addresses[i];
		assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_CONFIG);
		assert_int_equal(fx->rpc.closed_count, 0);
	}
	info.address = (char *)"10.0.0.1:7490";
	info.local_address = (char *)"10.0.0.1:7490";
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_CONFIG);
	info.local_address = (char *)"";
	info.incarnation = 2; /* not what its hello said */
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_AUTH);
	assert_int_equal(fx->rpc.closed_count, 1);
	info.incarnation = 1;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_JOIN, &msg.base), -KVP_E_AUTH);
	info.id.len = KVP_ID_LEN - 1;
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_PROTO);
	info.id.len = KVP_ID_LEN;
	info.host_id = kvp_bytes(fx->node.peer.id, 3);
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_PROTO);
	info.host_id.len = 0;
	memset(name, 'x', sizeof(name));
	name[KVP_NAME_LEN_MAX] = '\0';
	info.name = name;
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), -KVP_E_PROTO);
	name[KVP_NAME_LEN_MAX - 1] = '\0';
	assert_int_equal(call(fx, &fx->node, KVP_RPC_JOIN, &msg.base), 0);
	assert_int_equal(metric(fx, KVP_META_JOINS), 1);
}

/* Sends one record made bad by the caller; the answer, and that nothing of it was applied. */
static void
record_refused(struct fixture *fx, const struct kvp_announce *head, uint32_t records_count)
{
	struct stream *stream = stream_new(20);
	uint64_t applied;
	bool snapshot;
	bool resync;

	stream_add(stream, KVP_ANNOUNCE_STORED, 100);
	kvp_write_bytes(&stream->writer, head, sizeof(*head));
	kvp_write_bytes(&stream->writer, ns_a, head->klen <= KVP_NS_LEN ? head->klen : 0);
	stream->msg.sequence = 20 + records_count;
	stream->msg.records_count = records_count;
	assert_int_equal(stream_send(fx, &fx->node, stream, &resync, &applied), -KVP_E_PROTO);
	assert_int_equal(fx->rpc.closed_count, 1);
	fx->service->closed(fx->service->arg, &fx->node, 0);
	fx->service->opened(fx->service->arg, &fx->node);
	assert_int_equal(found(fx, 100, 1), 0);
	assert_int_equal(join(fx, &fx->node, 20, &snapshot), 0);
	assert_false(snapshot);
}

static void
records_refused(void **state)
{
	struct fixture *fx = *state;
	struct kvp_announce good = record_of(KVP_ANNOUNCE_STORED, 101);
	struct kvp_announce head;

	stream_whole(fx, 20);
	good.klen = 8;
	head = good;
	head.kind = 3;
	record_refused(fx, &head, 2);
	head = good;
	head.zero = 1;
	record_refused(fx, &head, 2);
	head = good;
	head.tier = 3;
	record_refused(fx, &head, 2);
	head = good;
	head.klen = 0;
	record_refused(fx, &head, 2);
	head.klen = KVP_KEY_LEN_MAX + 1;
	record_refused(fx, &head, 2);
	head = good;
	head.len = KVP_BLOCK_LEN_MAX + 1ull;
	record_refused(fx, &head, 2);
	head = good;
	head.word = kvp_word_with(head.word, KVP_SLOT_WRITING);
	record_refused(fx, &head, 2);
	head = good;
	head.kind = KVP_ANNOUNCE_REMOVED; /* with a key */
	record_refused(fx, &head, 2);
	record_refused(fx, &good, 1);
	record_refused(fx, &good, 3);
	record_refused(fx, &good, KVP_RPC_KEYS_MAX + 1);
	record_refused(fx, &good, UINT32_MAX);
	assert_int_equal(metric(fx, KVP_META_REJECT_RECORDS), 12);
}

static void
lookup_answers(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn other = conn_make(fx, KVP_PEER_NODE, 2);
	struct kvp_loc locs[20];
	struct question *q;
	Kvp__LookupReply *reply;
	bool snapshot;

	stream_whole(fx, 10);
	fx->service->opened(fx->service->arg, &other);
	assert_int_equal(join(fx, &other, 0, &snapshot), 0);
	announce(fx, &other, 0, 5, 2, true, true);

	/* 8, 9, a miss, and one beyond it. */
	reply = ask(fx, question_new(8, 3));
	assert_int_equal(reply->prefix, 2);
	assert_int_equal(reply->n_nodes, 1);
	assert_string_equal(reply->nodes[0]->name, "peer1");
	assert_string_equal(reply->nodes[0]->local_address, "unix:/tmp/n.sock");
	assert_int_equal(reply->locations.len, 2 * sizeof(locs[0]));
	memcpy(locs, reply->locations.data, reply->locations.len);
	assert_true(locs[1].slot == 9 && locs[1].len == 109 && locs[1].off == 9 * 4096 &&
		    locs[1].node == 0 && locs[1].word == kvp_word_make(1, 10, KVP_SLOT_VALID));
	assert_int_equal(reply->n_behind, 0);
	reply_free(reply);

	q = question_new(5, 2);
	q->msg.replicas_max = 1000;
	reply = ask(fx, q);
	assert_int_equal(reply->n_nodes, 2);
	assert_int_equal(reply->counts.data[0], 2);
	assert_int_equal(reply->locations.len, 4 * sizeof(locs[0]));
	reply_free(reply);

	/* Another namespace knows none of them. */
	q = question_new(0, 1);
	q->msg.ns.data = fx->client.peer.id;
	reply = ask(fx, q);
	assert_int_equal(reply->locations.len, 0);
	reply_free(reply);

	/* Prefix: nothing after the miss, across batches too. */
	q = question_new(0, 1);
	q->writer = kvp_writer_over(q->bytes, sizeof(q->bytes));
	for (uint32_t i = 0; i < 200; i++) {
		struct kvp_key key = key_of(i == 3 ? 999 : i % 10);

		kvp_write_key(&q->writer, &key);
	}
	q->msg.keys.len = (size_t)(q->writer.pos - q->bytes);
	q->msg.prefix = true;
	reply = ask(fx, q);
	assert_int_equal(reply->prefix, 3);
	assert_int_equal(reply->counts.len, 200);
	assert_int_equal(reply->counts.data[2], 1);
	assert_int_equal(reply->counts.data[4], 0);
	assert_int_equal(reply->locations.len, 3 * sizeof(locs[0]));
	reply_free(reply);
	fx->service->closed(fx->service->arg, &other, 0);
}

/* Without keys, for who wants to tell all of them something. */
static void
lookup_names_all_nodes(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn other = conn_make(fx, KVP_PEER_NODE, 2);
	Kvp__LookupReply *reply;
	struct question *q;
	bool snapshot;

	stream_whole(fx, 10);
	fx->service->opened(fx->service->arg, &other);
	assert_int_equal(join(fx, &other, 0, &snapshot), 0);
	for (uint32_t keys = 0; keys < 2; keys++) {
		q = question_new(0, keys); /* the key is at one of them */
		q->msg.all_nodes = true;
		reply = ask(fx, q);
		assert_int_equal(reply->n_nodes, 2);
		assert_int_equal(reply->counts.len, keys);
		assert_int_equal(reply->locations.len, keys * sizeof(struct kvp_loc));
		reply_free(reply);
	}
	reply = ask(fx, question_new(0, 0));
	assert_int_equal(reply->n_nodes, 0);
	reply_free(reply);
	fx->service->closed(fx->service->arg, &other, 0);
}

static size_t
behind_with(struct fixture *fx, const uint8_t *id, uint64_t incarnation, uint64_t sequence)
{
	Kvp__Fence fence = KVP__FENCE__INIT;
	Kvp__Fence *fences[2] = {&fence, &fence};
	struct question *q = question_new(0, 1);
	Kvp__LookupReply *reply;
	size_t behind;

	fence.node = kvp_bytes(id, KVP_ID_LEN);
	fence.incarnation = incarnation;
	fence.sequence = sequence;
	q->msg.n_fences = 2;
	q->msg.fences = fences;
	reply = ask(fx, q);
	behind = reply->n_behind;
	reply_free(reply);
	return behind;
}

static void
lookup_fences(void **state)
{
	struct fixture *fx = *state;
	const uint8_t *id = fx->node.peer.id;
	bool snapshot;

	assert_int_equal(join(fx, &fx->node, 0, &snapshot), 0);
	assert_int_equal(behind_with(fx, id, 1, 0), 1); /* joined, not heard whole */
	announce(fx, &fx->node, 0, 0, 10, true, true);
	assert_int_equal(behind_with(fx, id, 1, 10), 0);
	assert_int_equal(behind_with(fx, id, 1, 11), 1);
	assert_int_equal(behind_with(fx, id, 2, 0), 1); /* an incarnation not heard of yet */
	assert_int_equal(behind_with(fx, id, 0, 100), 0);
	assert_true(behind_with(fx, fx->client.peer.id, 1, 0) > 0); /* unknown node */

	/* Silence: behind first, then suspect as well and without locations, then forgotten. */
	test_rpc_run(&fx->rpc, 5 * HEARTBEAT_MS / 2 * KVP_NS_PER_MS);
	assert_int_equal(behind_with(fx, id, 1, 10), 1);
	assert_int_equal(found(fx, 0, 10), 10);
	test_rpc_run(&fx->rpc, HEARTBEAT_MS * KVP_NS_PER_MS);
	assert_int_equal(found(fx, 0, 10), 0);
	assert_int_equal(metric(fx, KVP_META_NODES_SUSPECT), 1);
	assert_true(heartbeat(fx, &fx->node, 10));
	assert_int_equal(found(fx, 0, 10), 10);
	assert_int_equal(behind_with(fx, id, 1, 10), 0);
	test_rpc_run(&fx->rpc, 20 * HEARTBEAT_MS * KVP_NS_PER_MS);
	assert_int_equal(metric(fx, KVP_META_BLOCKS_HELD), 0);
	assert_int_equal(metric(fx, KVP_META_FORGOTTEN), 1);
	assert_int_equal(metric(fx, KVP_META_NODES_FORGOTTEN), 0); /* its place is free */
	assert_int_equal(behind_with(fx, id, 1, 10), 3); /* lost; and each of two fences says so */

	/* This meta stands still: the first message it serves then is a lookup. */
	assert_int_equal(join(fx, &fx->node, 10, &snapshot), 0);
	announce(fx, &fx->node, 0, 0, 10, true, true);
	fx->rpc.env.now_ns += 60 * KVP_NS_PER_S;
	assert_int_equal(behind_with(fx, id, 1, 10), 1);
	assert_int_equal(found(fx, 0, 10), 10);
	test_rpc_run(&fx->rpc, HEARTBEAT_MS * KVP_NS_PER_MS);
	assert_true(heartbeat(fx, &fx->node, 10));
	assert_int_equal(behind_with(fx, id, 1, 10), 0);
}

/* A meta that has just started vouches for nobody: a miss may be a node that has not joined yet. */
static void
lookup_young(void **state)
{
	struct fixture *fx = *state;
	const uint8_t *id = fx->node.peer.id;
	bool snapshot;

	assert_int_equal(join(fx, &fx->node, 0, &snapshot), 0);
	announce(fx, &fx->node, 0, 0, 10, true, true);
	assert_int_equal(behind_with(fx, id, 1, 10), 1);
	assert_int_equal(found(fx, 0, 10), 10);
	test_rpc_run(&fx->rpc, SUSPECT_MS * KVP_NS_PER_MS);
	assert_true(heartbeat(fx, &fx->node, 10));
	assert_int_equal(behind_with(fx, id, 1, 10), 0);
}

static void
lookup_refused(void **state)
{
	struct fixture *fx = *state;
	Kvp__Fence fence = KVP__FENCE__INIT;
	Kvp__Fence *fences[KVP_NODES_MAX + 1];
	struct question *q = question_new(0, KVP_RPC_KEYS_MAX + 1);

	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	q->msg.keys.len -= 33;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), 0);
	q->msg.keys.len--; /* the last key is cut */
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	q->msg.keys.len = 33;
	q->bytes[0] = KVP_KEY_LEN_MAX + 1;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	q->bytes[0] = 0;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	assert_int_equal(metric(fx, KVP_META_REJECT_KEYS), 4);
	q->bytes[0] = 32;
	q->msg.ns.len = KVP_NS_LEN - 1;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	q->msg.ns.len = KVP_NS_LEN;
	fence.node = kvp_bytes(ns_a, KVP_ID_LEN - 1);
	for (uint32_t i = 0; i <= KVP_NODES_MAX; i++) {
		fences[i] = &fence;
	}
	q->msg.fences = fences;
	q->msg.n_fences = 1;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	fence.node.len = KVP_ID_LEN;
	q->msg.n_fences = KVP_NODES_MAX + 1;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), -KVP_E_PROTO);
	q->msg.n_fences = KVP_NODES_MAX;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), 0);
	q->msg.n_fences = 0;
	q->msg.keys.len = 0;
	assert_int_equal(call(fx, &fx->client, KVP_RPC_LOOKUP, &q->msg.base), 0); /* none */
	assert_int_equal(metric(fx, KVP_META_REJECT_MESSAGE), 3);
	free(q);
}

static const char *
pair_value(const Kvp__StatusReply *reply, const char *name)
{
	for (size_t i = 0; i < reply->n_pairs; i++) {
		if (strcmp(reply->pairs[i]->name, name) == 0) {
			return reply->pairs[i]->value;
		}
	}
	fail_msg("no pair %s", name);
	return NULL;
}

static void
status_answers(void **state)
{
	struct fixture *fx = *state;
	Kvp__Status msg = KVP__STATUS__INIT;
	Kvp__StatusReply *reply;

	stream_whole(fx, 10);
	test_rpc_run(&fx->rpc, 7 * KVP_NS_PER_S / 2 / 20);
	assert_int_equal(call(fx, &fx->client, KVP_RPC_STATUS, &msg.base), 0);
	reply = reply_decode(fx, KVP_RPC_STATUS);
	assert_string_equal(pair_value(reply, "name"), "meta1");
	assert_string_equal(pair_value(reply, "nodes"), "1");
	assert_string_equal(pair_value(reply, "blocks"), "10");
	assert_string_equal(pair_value(reply, "node.0.name"), "peer1");
	assert_string_equal(pair_value(reply, "node.0.state"), "live");
	assert_string_equal(pair_value(reply, "node.0.address"), "127.0.0.1:1");
	assert_string_equal(pair_value(reply, "node.0.blocks"), "10");
	assert_string_equal(pair_value(reply, "node.0.sequence"), "10");
	assert_string_equal(pair_value(reply, "kvpool_meta_joins_total"), "1");
	assert_int_equal(strlen(pair_value(reply, "id")), 32);
	reply_free(reply);
	assert_int_equal(call_bytes(fx, &fx->client, KVP_RPC_PING, "", 0), 0);
}

/* Random bytes, and good messages with random damage, of every type: an answer each time. */
static void
garbage(void **state)
{
	struct fixture *fx = *state;
	uint64_t random = test_seed();
	struct stream *stream = stream_new(0);
	struct question *q = question_new(0, 20);
	uint8_t *good[2];
	size_t lens[2];
	bool snapshot;

	stream_add(stream, KVP_ANNOUNCE_STORED, 1);
	stream_add(stream, KVP_ANNOUNCE_REMOVED, 1);
	stream->msg.records =
		kvp_bytes(stream->bytes, (size_t)(stream->writer.pos - stream->bytes));
	stream->msg.snapshot_begin = true;
	assert_int_equal(kvp_msg_encode(&stream->msg.base, &good[0], &lens[0]), 0);
	assert_int_equal(kvp_msg_encode(&q->msg.base, &good[1], &lens[1]), 0);
	for (uint32_t round = 0; round < 50000; round++) {
		static const uint16_t types[] = {KVP_RPC_ANNOUNCE, KVP_RPC_LOOKUP, KVP_RPC_JOIN,
			KVP_RPC_STATUS, KVP_RPC_PING, KVP_RPC_OFFER, 0, 999};
		uint32_t which = (uint32_t)test_below(&random, 8);
		uint8_t bytes[2048];
		size_t len = test_below(&random, 64);

		if (which < 2) {
			len = lens[which] < sizeof(bytes) ? lens[which] : sizeof(bytes);
			memcpy(bytes, good[which], len);
			for (uint64_t i = test_below(&random, 6); i > 0; i--) {
				bytes[test_below(&random, len)] = (uint8_t)test_next(&random);
			}
		} else {
			for (size_t i = 0; i < len; i++) {
				bytes[i] = (uint8_t)test_next(&random);
			}
		}
		(void)call_bytes(fx, &fx->node, types[which], bytes, len);
		if (fx->rpc.closed_count > 0) {
			fx->service->closed(fx->service->arg, &fx->node, 0);
			fx->service->opened(fx->service->arg, &fx->node);
		}
		if (fx->node.ctx == NULL) {
			assert_int_equal(join(fx, &fx->node, 0, &snapshot), 0);
		}
	}
	assert_true(metric(fx, KVP_META_REJECT_TYPE) > 0);
	assert_true(metric(fx, KVP_META_STORED) > 0);
	free(good[0]);
	free(good[1]);
	free(stream);
	free(q);
}

#define SPEED_MESSAGES 128u

/* Printed, not judged: whole messages of 8,192 keys, decoded, answered and encoded, over an index
 * of a million blocks. */
static void
lookup_speed(void **state)
{
	struct fixture *fx = *state;
	const struct kvp_env *env = kvp_env_real();
	uint8_t *bodies[SPEED_MESSAGES];
	size_t lens[SPEED_MESSAGES];
	bool snapshot;
	uint64_t start_ns;
	double seconds;

	assert_int_equal(join(fx, &fx->node, 0, &snapshot), 0);
	for (uint32_t i = 0; i < SPEED_MESSAGES; i++) {
		uint64_t first = (uint64_t)i * KVP_RPC_KEYS_MAX;
		struct question *q = question_new(first, KVP_RPC_KEYS_MAX);

		announce(fx, &fx->node, first, first, KVP_RPC_KEYS_MAX, i == 0, i == 0);
		assert_int_equal(kvp_msg_encode(&q->msg.base, &bodies[i], &lens[i]), 0);
		free(q);
	}
	start_ns = kvp_now_ns(env);
	for (uint32_t i = 0; i < SPEED_MESSAGES; i++) {
		assert_int_equal(
			call_bytes(fx, &fx->client, KVP_RPC_LOOKUP, bodies[i], lens[i]), 0);
	}
	seconds = (double)(kvp_now_ns(env) - start_ns) / 1e9;
	print_message("%.2f M keys/s in lookups of %d keys of 32 bytes\n",
		(double)SPEED_MESSAGES * KVP_RPC_KEYS_MAX / seconds / 1e6, KVP_RPC_KEYS_MAX);
	assert_int_equal(metric(fx, KVP_META_LOOKUP_FOUND), SPEED_MESSAGES * KVP_RPC_KEYS_MAX);
	for (uint32_t i = 0; i < SPEED_MESSAGES; i++) {
		free(bodies[i]);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stream_flow),
		TEST(stream_broken_snapshot),
		TEST(stream_full),
		TEST(join_refused),
		TEST(records_refused),
		TEST(lookup_answers),
		TEST(lookup_names_all_nodes),
		TEST(lookup_fences),
		cmocka_unit_test_setup_teardown(lookup_young, setup_young, teardown),
		TEST(lookup_refused),
		TEST(status_answers),
		TEST(garbage),
		cmocka_unit_test_setup_teardown(lookup_speed, setup_large, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
