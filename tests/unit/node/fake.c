/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.c - see fake.h. One thread; callbacks come from fake_run_ms() and the calls that say so.
 */
#include "tests/unit/node/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const uint8_t fake_ns[KVP_NS_LEN] = "namespace-number";

static struct fake *
fake_of(struct kvp_rpc *rpc)
{
	return kvp_container_of(rpc, struct fake, rpc);
}

/* --- environment ---------------------------------------------------------------------------------
 */

static uint64_t
env_now(const struct kvp_env *env)
{
	struct fake *fake = (struct fake *)(uintptr_t)kvp_container_of(env, struct fake, env);
	uint64_t now_ns = fake->now_ns;

	fake->now_ns += fake->look_ns;
	return now_ns;
}

static void
env_random(const struct kvp_env *env, void *buf, size_t len)
{
	struct fake *fake = kvp_container_of(env, struct fake, env);

	for (size_t i = 0; i < len; i++) {
		fake->seed = fake->seed * 6364136223846793005ull + 1442695040888963407ull;
		((uint8_t *)buf)[i] = (uint8_t)(fake->seed >> 56);
	}
}

/* --- rpc -----------------------------------------------------------------------------------------
 */

static void
rpc_reply(struct kvp_rpc_call *pub, int status, const void *body, size_t len)
{
	struct fake_call *call = kvp_container_of(pub, struct fake_call, pub);

	assert_false(call->replied);
	call->replied = true;
	call->status = status;
	call->body = malloc(len + 1);
	assert_non_null(call->body);
	if (len > 0) {
		memcpy(call->body, body, len);
	}
	call->len = len;
	kvp_list_remove(&call->link);
}

static void
rpc_conn_close(struct kvp_rpc_conn *pub)
{
	kvp_container_of(pub, struct fake_conn, pub)->closing = true;
}

static int
rpc_link_open(
	struct kvp_rpc *rpc, const struct kvp_rpc_link_cfg *cfg, struct kvp_rpc_link **ret_link)
{
	struct fake *fake = fake_of(rpc);
	struct fake_link *link = &fake->links[fake->link_count++];

	assert_true(fake->link_count <= FAKE_LINKS_MAX);
	link->pub.rpc = rpc;
	link->cfg = *cfg;
	(void)snprintf(link->addr, sizeof(link->addr), "%s", cfg->addr);
	*ret_link = &link->pub;
	return 0;
}

/* Ends the call at place idx, with a message or without. */
static void
link_done(struct fake_link *link, int idx, int status, const uint8_t *body, size_t len)
{
	struct fake_sent sent = link->sent[idx];

	link->sent_count--;
	memmove(&link->sent[idx], &link->sent[idx + 1],
		(size_t)(link->sent_count - idx) * sizeof(sent));
	free(sent.body);
	sent.req->done(sent.req, status, body, len);
}

static void
rpc_link_close(struct kvp_rpc_link *pub)
{
	struct fake_link *link = kvp_container_of(pub, struct fake_link, pub);

	while (link->sent_count > 0) {
		link_done(link, 0, -KVP_E_CANCELLED, NULL, 0);
	}
}

static void
rpc_call(struct kvp_rpc_link *pub, struct kvp_rpc_req *req, const void *body, size_t len)
{
	struct fake_link *link = kvp_container_of(pub, struct fake_link, pub);
	struct fake_sent *sent = &link->sent[link->sent_count++];

	assert_true(pub->up);
	assert_true(link->sent_count <= FAKE_SENT_MAX);
	req->link = pub;
	sent->req = req;
	sent->len = len;
	sent->body = malloc(len + 1);
	assert_non_null(sent->body);
	memcpy(sent->body, body, len);
}

static void
rpc_timer_stop(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer)
{
	struct fake *fake = fake_of(rpc);

	for (int i = 0; i < FAKE_TIMERS_MAX; i++) {
		if (fake->timers[i] == timer) {
			fake->timers[i] = NULL;
		}
	}
}

static void
rpc_timer_start(struct kvp_rpc *rpc, struct kvp_rpc_timer *timer, uint64_t delay_ns)
{
	struct fake *fake = fake_of(rpc);

	rpc_timer_stop(rpc, timer);
	for (int i = 0; i < FAKE_TIMERS_MAX; i++) {
		if (fake->timers[i] == NULL) {
			fake->timers[i] = timer;
			fake->timers_ns[i] = fake->now_ns + delay_ns;
			return;
		}
	}
	fail_msg("too many timers");
}

/* Nothing wakes the node but its tick: a test that has real files lets time pass. */
static int
rpc_watch_start(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch, int fd)
{
	(void)rpc;
	(void)watch;
	assert_true(fd >= 0);
	return 0;
}

static void
rpc_watch_stop(struct kvp_rpc *rpc, struct kvp_rpc_watch *watch)
{
	(void)rpc;
	(void)watch;
}

static const struct kvp_rpc_ops rpc_ops = {
	.reply = rpc_reply,
	.conn_close = rpc_conn_close,
	.link_open = rpc_link_open,
	.link_close = rpc_link_close,
	.call = rpc_call,
	.timer_start = rpc_timer_start,
	.timer_stop = rpc_timer_stop,
	.watch_start = rpc_watch_start,
	.watch_stop = rpc_watch_stop,
};

/* --- transport -----------------------------------------------------------------------------------
 */

static int
xport_find(const struct fake_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	for (int i = 0; i < xport->token_count; i++) {
		if (memcmp(xport->tokens[i], token, KVP_TOKEN_LEN) == 0) {
			return i;
		}
	}
	return -1;
}

static int
xport_admit(struct kvp_xport *pub, const uint8_t token[KVP_TOKEN_LEN])
{
	struct fake_xport *xport = kvp_container_of(pub, struct fake_xport, pub);

	if (xport->admit_err < 0) {
		return xport->admit_err;
	}
	assert_true(xport->token_count < FAKE_TOKENS_MAX && xport_find(xport, token) < 0);
	memcpy(xport->tokens[xport->token_count++], token, KVP_TOKEN_LEN);
	return 0;
}

static int
xport_fence(struct kvp_xport *pub, const uint8_t token[KVP_TOKEN_LEN])
{
	struct fake_xport *xport = kvp_container_of(pub, struct fake_xport, pub);
	int idx = xport_find(xport, token);

	if (idx < 0) {
		return 0;
	}
	if (xport->polls_left < 0) {
		xport->fence_begun++;
		xport->polls_left = xport->fence_polls;
	}
	if (xport->polls_left-- > 0) {
		return -EINPROGRESS;
	}
	memcpy(xport->tokens[idx], xport->tokens[--xport->token_count], KVP_TOKEN_LEN);
	return 0;
}

static const struct kvp_xport_ops xport_one = {
	.name = "one",
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE,
	.admit = xport_admit,
	.fence = xport_fence,
};
static const struct kvp_xport_ops xport_two = {
	.name = "two",
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE | KVP_XPORT_LOCAL,
	.admit = xport_admit,
	.fence = xport_fence,
};

/* --- the whole -----------------------------------------------------------------------------------
 */

void
fake_init(struct fake *fake)
{
	memset(fake, 0, sizeof(*fake));
	fake->env = (struct kvp_env){.now_ns = env_now, .random = env_random};
	fake->rpc = (struct kvp_rpc){.ops = &rpc_ops, .env = &fake->env};
	fake->now_ns = 5 * KVP_NS_PER_S;
	fake->seed = 1;
	kvp_list_init(&fake->conns);
	for (int i = 0; i < 2; i++) {
		fake->xports[i].pub.ops = i == 0 ? &xport_one : &xport_two;
		fake->xports[i].polls_left = -1;
		fake->transports[i].xport = &fake->xports[i].pub;
		(void)snprintf(fake->transports[i].addr, KVP_ADDR_LEN_MAX, "addr-%d", i);
		fake->transports[i].arena_read = (struct kvp_rdesc){.len = 2, .bytes = "ar"};
		fake->transports[i].arena_write = (struct kvp_rdesc){.len = 3, .bytes = "aw"};
		fake->transports[i].arena_write.bytes[2] = (uint8_t)('0' + i);
		fake->transports[i].table_read = (struct kvp_rdesc){.len = 2, .bytes = "tr"};
	}
	fake->cfg = (struct kvp_node_cfg){
		.env = &fake->env,
		.rpc = &fake->rpc,
		.metrics = &fake->metrics,
		.arena_len = 256 * 1024,
		.slots_max = 64,
		.evict = kvp_evict_find("lru"),
		.quarantine_ms = 100,
		.lease_ms_max = 60000,
		.lease_permille = 500,
		.grant_ms = 1000,
		.sessions_max = 4,
		.transports = fake->transports,
		.transport_count = 2,
		.index_wait_ms = 100,
		.heartbeat_ms = 200,
	};
	memset(fake->cfg.self.id, 7, KVP_ID_LEN);
	memset(fake->cfg.host_id, 9, KVP_ID_LEN);
	fake->cfg.self.incarnation = 3;
	(void)snprintf(fake->cfg.self.name, KVP_NAME_LEN_MAX, "n1");
}

void
fake_open(struct fake *fake)
{
	fake->arena = aligned_alloc(4096, fake->cfg.arena_len);
	fake->table = calloc(fake->cfg.slots_max, sizeof(*fake->table));
	fake->notes = calloc(fake->cfg.slots_max, sizeof(*fake->notes));
	fake->tokens = calloc(2 * KVP_SESSIONS_MAX, KVP_TOKEN_LEN);
	assert_true(fake->arena != NULL && fake->table != NULL && fake->notes != NULL &&
		    fake->tokens != NULL);
	fake->cfg.arena = fake->arena;
	fake->cfg.table = fake->table;
	fake->cfg.notes = fake->notes;
	fake->cfg.tokens = fake->tokens;
	assert_int_equal(
		kvp_metrics_init(&fake->metrics, kvp_node_metrics, KVP_NODE_METRIC_COUNT), 0);
	assert_int_equal(kvp_node_open(&fake->cfg, &fake->node), 0);
	kvp_node_start(fake->node, "10.0.0.1:7490", "unix:/x");
}

static void
conn_closed(struct fake_conn *conn)
{
	kvp_list_for_each_safe (pos, &conn->calls) {
		kvp_container_of(pos, struct fake_call, link)->pub.conn = NULL;
	}
	conn->service->closed(conn->service->arg, &conn->pub, -KVP_E_CONNDOWN);
	conn->closed = true;
}

static void
conns_close(struct fake *fake)
{
	kvp_list_for_each_safe (pos, &fake->conns) {
		struct fake_conn *conn = kvp_container_of(pos, struct fake_conn, link);

		if (conn->closing && !conn->closed) {
			conn_closed(conn);
		}
	}
}

static void
node_close(struct fake *fake)
{
	kvp_node_close(fake->node);
	conns_close(fake);
	kvp_list_for_each_safe (pos, &fake->conns) {
		struct fake_conn *conn = kvp_container_of(pos, struct fake_conn, link);

		assert_true(conn->closed);
		assert_true(kvp_list_empty(&conn->calls));
		kvp_list_remove(&conn->link);
		free(conn);
	}
	for (int i = 0; i < FAKE_TIMERS_MAX; i++) {
		assert_null(fake->timers[i]);
	}
	kvp_metrics_fini(&fake->metrics);
}

static void *
bytes_copy(const void *from, size_t len)
{
	void *copy = malloc(len);

	assert_non_null(copy);
	memcpy(copy, from, len);
	return copy;
}

void
fake_restart(struct fake *fake)
{
	size_t table_len = fake->cfg.slots_max * sizeof(*fake->table);
	size_t notes_len = fake->cfg.slots_max * sizeof(*fake->notes);
	void *table = bytes_copy(fake->table, table_len);
	void *notes = bytes_copy(fake->notes, notes_len);
	struct fake_xport local = fake->xports[1];

	node_close(fake); /* which does what a killed one does not */
	memcpy(fake->table, table, table_len);
	memcpy(fake->notes, notes, notes_len);
	free(table);
	free(notes);
	fake->xports[0].token_count = 0;
	fake->xports[1] = local;
	fake->cfg.self.incarnation++;
	fake->cfg.recover = true;
	assert_int_equal(
		kvp_metrics_init(&fake->metrics, kvp_node_metrics, KVP_NODE_METRIC_COUNT), 0);
	assert_int_equal(kvp_node_open(&fake->cfg, &fake->node), 0);
	kvp_node_start(fake->node, "10.0.0.1:7490", "unix:/x");
}

void
fake_close(struct fake *fake)
{
	node_close(fake);
	free(fake->tokens);
	free(fake->notes);
	free(fake->table);
	free(fake->arena);
}

/* The next thing due at or before until; false when there is none. */
static bool
run_one(struct fake *fake, uint64_t until_ns)
{
	struct fake_link *late = NULL;
	uint64_t best_ns = until_ns + 1;
	int best = -1;
	int late_idx = 0;

	for (int i = 0; i < FAKE_TIMERS_MAX; i++) {
		if (fake->timers[i] != NULL && fake->timers_ns[i] < best_ns) {
			best = i;
			best_ns = fake->timers_ns[i];
		}
	}
	for (int i = 0; i < fake->link_count; i++) {
		for (int j = 0; j < fake->links[i].sent_count; j++) {
			if (fake->links[i].sent[j].req->deadline_ns < best_ns) {
				late = &fake->links[i];
				late_idx = j;
				best_ns = late->sent[j].req->deadline_ns;
			}
		}
	}
	if (best_ns > until_ns) {
		return false;
	}
	fake->now_ns = best_ns > fake->now_ns ? best_ns : fake->now_ns;
	if (late != NULL) {
		link_done(late, late_idx, -KVP_E_TIMEOUT, NULL, 0);
	} else {
		struct kvp_rpc_timer *timer = fake->timers[best];

		fake->timers[best] = NULL;
		timer->fn(timer);
	}
	return true;
}

void
fake_run_ms(struct fake *fake, uint64_t ms)
{
	uint64_t until_ns = fake->now_ns + ms * KVP_NS_PER_MS;

	conns_close(fake);
	while (run_one(fake, until_ns)) {
		conns_close(fake);
	}
	fake->now_ns = until_ns;
}

/* --- clients -------------------------------------------------------------------------------------
 */

struct fake_conn *
fake_connect(struct fake *fake)
{
	struct fake_conn *conn = calloc(1, sizeof(*conn));

	assert_non_null(conn);
	conn->pub.rpc = &fake->rpc;
	conn->pub.peer.kind = KVP_PEER_CLIENT;
	(void)snprintf(conn->pub.peer.addr, KVP_ADDR_LEN_MAX, "10.1.1.1:1");
	conn->service = kvp_node_service(fake->node);
	kvp_list_init(&conn->calls);
	kvp_list_push_back(&fake->conns, &conn->link);
	conn->service->opened(conn->service->arg, &conn->pub);
	return conn;
}

void
fake_disconnect(struct fake *fake, struct fake_conn *conn)
{
	conn->closing = true;
	conns_close(fake);
}

struct fake_call *
fake_call_bytes(struct fake_conn *conn, uint16_t type, const void *body, size_t len)
{
	struct fake_call *call = calloc(1, sizeof(*call));

	assert_non_null(call);
	/* Exactly as long as it says, so that reading past the end is seen. */
	call->request = malloc(len > 0 ? len : 1);
	assert_non_null(call->request);
	if (len > 0) {
		memcpy(call->request, body, len);
	}
	call->pub = (struct kvp_rpc_call){
		.conn = &conn->pub,
		.type = type,
		.one_way = type == KVP_RPC_TOUCH,
		.body = call->request,
		.len = len,
	};
	kvp_list_push_back(&conn->calls, &call->link);
	conn->service->call(conn->service->arg, &call->pub);
	return call;
}

struct fake_call *
fake_call(struct fake_conn *conn, uint16_t type, const ProtobufCMessage *msg)
{
	struct fake_call *call;
	uint8_t *body;
	size_t len;

	assert_int_equal(kvp_msg_encode(msg, &body, &len), 0);
	call = fake_call_bytes(conn, type, body, len);
	free(body);
	return call;
}

void
fake_call_free(struct fake_call *call)
{
	assert_true(call->replied);
	free(call->request);
	free(call->body);
	free(call);
}

ProtobufCMessage *
fake_reply(const struct fake_call *call)
{
	ProtobufCMessage *msg;

	assert_true(call->replied);
	assert_int_equal(call->status, 0);
	msg = kvp_msg_decode(kvp_rpc_reply_desc(call->pub.type), call->body, call->len);
	assert_non_null(msg);
	return msg;
}

int
fake_ask_bytes(struct fake_conn *conn, uint16_t type, const void *body, size_t len)
{
	struct fake_call *call = fake_call_bytes(conn, type, body, len);
	int status = call->status;

	fake_call_free(call);
	return status;
}

int
fake_ask(struct fake_conn *conn, uint16_t type, const ProtobufCMessage *msg)
{
	struct fake_call *call = fake_call(conn, type, msg);
	int status = call->status;

	fake_call_free(call);
	return status;
}

struct fake_conn *
fake_session(struct fake *fake)
{
	Kvp__SessionOpen msg = KVP__SESSION_OPEN__INIT;
	struct fake_conn *conn = fake_connect(fake);

	assert_int_equal(fake_ask(conn, KVP_RPC_SESSION_OPEN, &msg.base), 0);
	return conn;
}

/* --- metas ---------------------------------------------------------------------------------------
 */

void
fake_link_up(struct fake_link *link)
{
	link->pub.up = true;
	link->pub.peer.kind = KVP_PEER_META;
	link->cfg.up(link->cfg.arg, &link->pub);
}

void
fake_link_down(struct fake_link *link)
{
	link->pub.up = false;
	while (link->sent_count > 0) {
		link_done(link, 0, -KVP_E_CONNDOWN, NULL, 0);
	}
	link->cfg.down(link->cfg.arg, &link->pub, -KVP_E_CONNDOWN);
}

ProtobufCMessage *
fake_sent_msg(struct fake_link *link, uint16_t type)
{
	ProtobufCMessage *msg;

	assert_true(link->sent_count > 0);
	assert_int_equal(link->sent[0].req->type, type);
	msg = kvp_msg_decode(kvp_rpc_request_desc(type), link->sent[0].body, link->sent[0].len);
	assert_non_null(msg);
	return msg;
}

void
fake_answer(struct fake_link *link, int status, const ProtobufCMessage *msg)
{
	uint8_t *body = NULL;
	size_t len = 0;

	if (msg != NULL) {
		assert_int_equal(kvp_msg_encode(msg, &body, &len), 0);
	}
	link_done(link, 0, status, body, len);
	free(body);
}

void
fake_meta_join(struct fake_link *link)
{
	Kvp__JoinReply reply = KVP__JOIN_REPLY__INIT;
	ProtobufCMessage *join;

	fake_link_up(link);
	join = fake_sent_msg(link, KVP_RPC_JOIN);
	protobuf_c_message_free_unpacked(join, NULL);
	reply.snapshot = true;
	reply.heartbeat_ms = 200;
	fake_answer(link, 0, &reply.base);
	(void)fake_meta_ack(link);
}

uint64_t
fake_meta_ack(struct fake_link *link)
{
	uint64_t sequence = 0;

	while (link->sent_count > 0) {
		Kvp__AnnounceReply reply = KVP__ANNOUNCE_REPLY__INIT;
		ProtobufCMessage *msg = fake_sent_msg(link, KVP_RPC_ANNOUNCE);

		sequence = ((Kvp__Announce *)msg)->sequence;
		reply.sequence = sequence;
		protobuf_c_message_free_unpacked(msg, NULL);
		fake_answer(link, 0, &reply.base);
	}
	return sequence;
}

/* --- blocks --------------------------------------------------------------------------------------
 */

struct kvp_key
fake_key(uint32_t number)
{
	struct kvp_key key = {.len = 8};

	memcpy(key.bytes, &number, sizeof(number));
	key.bytes[4] = 'k';
	return key;
}

struct fake_call *
fake_offer_begin(struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len)
{
	Kvp__Offer msg = KVP__OFFER__INIT;
	struct kvp_offer_item *items = calloc(count, sizeof(*items));
	uint8_t *keys = malloc((size_t)count * 9);
	struct kvp_writer w = kvp_writer_over(keys, (size_t)count * 9);
	struct fake_call *call;

	assert_true(items != NULL && keys != NULL);
	for (uint32_t i = 0; i < count; i++) {
		struct kvp_key key = fake_key(first + i);

		kvp_write_key(&w, &key);
		items[i].len = len;
		items[i].parent = i == 0 ? KVP_PARENT_NONE : (int32_t)i - 1;
	}
	assert_false(w.failed);
	msg.ns = kvp_bytes(fake_ns, KVP_NS_LEN);
	msg.transport = (char *)(uintptr_t) "one";
	msg.keys = kvp_bytes(keys, (size_t)count * 9);
	msg.items = kvp_bytes(items, count * sizeof(*items));
	call = fake_call(conn, KVP_RPC_OFFER, &msg.base);
	free(items);
	free(keys);
	return call;
}

static void *
copy_of(const ProtobufCBinaryData *field)
{
	void *copy = malloc(field->len + 1);

	assert_non_null(copy);
	if (field->len > 0) {
		memcpy(copy, field->data, field->len);
	}
	return copy;
}

struct fake_offer
fake_offer_end(struct fake_call *call, uint32_t count)
{
	ProtobufCMessage *msg = fake_reply(call);
	const Kvp__OfferReply *reply = (const Kvp__OfferReply *)msg;
	struct fake_offer offer = {
		.statuses = copy_of(&reply->statuses),
		.grants = copy_of(&reply->grants),
		.locs = copy_of(&reply->locations),
		.granted = (uint32_t)(reply->grants.len / sizeof(struct kvp_grant)),
		.existing = (uint32_t)(reply->locations.len / sizeof(struct kvp_loc)),
		.retry_ms = reply->retry_ms,
		.sequence = reply->sequence,
	};

	assert_int_equal(reply->statuses.len, count * sizeof(int32_t));
	if (offer.granted > 0) {
		assert_int_equal(reply->n_write_descs, 1);
		assert_int_equal(reply->write_descs[0].len, 3);
		assert_memory_equal(reply->write_descs[0].data, "aw0", 3);
	}
	protobuf_c_message_free_unpacked(msg, NULL);
	fake_call_free(call);
	return offer;
}

struct fake_offer
fake_offer(struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len)
{
	return fake_offer_end(fake_offer_begin(conn, first, count, len), count);
}

void
fake_offer_free(struct fake_offer *offer)
{
	free(offer->statuses);
	free(offer->grants);
	free(offer->locs);
}

struct fake_call *
fake_commit(struct fake_conn *conn, const struct kvp_grant *grants, uint32_t count)
{
	Kvp__Commit msg = KVP__COMMIT__INIT;
	uint8_t *sums = malloc((size_t)count * KVP_SUM_LEN);
	struct fake_call *call;

	assert_non_null(sums);
	memset(sums, 5, (size_t)count * KVP_SUM_LEN);
	msg.grants = kvp_bytes(grants, count * sizeof(*grants));
	msg.sums = kvp_bytes(sums, (size_t)count * KVP_SUM_LEN);
	call = fake_call(conn, KVP_RPC_COMMIT, &msg.base);
	free(sums);
	return call;
}

void
fake_put(struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len)
{
	struct fake_offer offer = fake_offer(conn, first, count, len);
	struct fake_call *call;

	assert_int_equal(offer.granted, count);
	call = fake_commit(conn, offer.grants, count);
	assert_int_equal(call->status, 0);
	fake_call_free(call);
	fake_offer_free(&offer);
}
