// SPDX-License-Identifier: Apache-2.0
/*
 * announce.c - the ring and the state of each meta; see announce.h. What goes into one message is
 * decided in meta_fill() alone.
 *
 * ROUND A meta's round number grows whenever what was sent before stops counting (dropped, snapshot
 * begun anew); answers of an older round only free their place.
 */
#include "pool/node/announce.h"

#include "hal/base/assert.h"
#include "pool/node/ssd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ANNOUNCE_RING_MIN         1024u
#define ANNOUNCE_RING_MAX         131072u /* records; about 16 MiB */
#define ANNOUNCE_RECORDS_MAX      512u    /* of one message */
#define ANNOUNCE_RECORD_LEN_MAX   (sizeof(struct kvp_announce) + KVP_KEY_LEN_MAX)
#define ANNOUNCE_FLIGHTS_MAX      4u /* messages to one meta that are not answered */
#define ANNOUNCE_HEARTBEATS       3u /* of silence, then a meta is not live */
#define ANNOUNCE_HEARTBEAT_MS_MIN 10u
#define ANNOUNCE_HEARTBEAT_MS_MAX 60000u

struct announce_record {
	uint8_t len;
	uint8_t bytes[ANNOUNCE_RECORD_LEN_MAX];
};

enum meta_state { META_DOWN, META_JOINING, META_SNAPSHOT, META_STREAMING };

struct announce_flight {
	struct kvp_rpc_req req;
	struct announce_meta *meta;
	uint32_t round;
	bool used;
	bool snapshot_end;
};

struct announce_meta {
	struct kvp_announcer *announce;
	char addr[KVP_ADDR_LEN_MAX];
	struct kvp_rpc_link *link;
	enum meta_state state;
	bool synced;    /* it applied the last snapshot begun */
	bool begin;     /* the next message begins a snapshot */
	uint8_t *fresh; /* bit by slot: stored since the snapshot began, so the ring tells it */
	uint64_t owed;  /* records that the snapshot still has to have */
	int why;        /* while down: the reason, logged when it changes */
	uint32_t cursor;
	uint64_t sent;  /* the last change sent */
	uint64_t acked; /* the last change it says it applied */
	uint64_t sent_ns;
	uint64_t join_ns; /* while down: not before */
	uint64_t hold_ns; /* until then it counts although it is not live */
	uint32_t heartbeat_ms;
	uint32_t round;
	struct announce_flight flights[ANNOUNCE_FLIGHTS_MAX];
	struct kvp_rpc_req join;
	uint32_t join_round;
	bool join_used;
};

struct kvp_announcer {
	struct kvp_node *node;
	struct announce_record *ring;
	uint32_t ring_max; /* a power of two */
	uint64_t sequence;
	struct announce_meta *metas;
	uint32_t meta_count;
	bool closing;
	uint8_t scratch[ANNOUNCE_RECORDS_MAX * ANNOUNCE_RECORD_LEN_MAX];
};

static bool
meta_is_live(const struct announce_meta *meta)
{
	return meta->state == META_STREAMING && meta->synced;
}

/* What it has will no longer be added to: for two heartbeats it may not know that, the time for
 * which it vouches for a node that it does not hear. */
static void
meta_hold(struct announce_meta *meta)
{
	struct kvp_node *node = meta->announce->node;

	if (meta_is_live(meta)) {
		meta->hold_ns = kvp_node_now(node) + 2 * meta->heartbeat_ms * KVP_NS_PER_MS;
		kvp_metric_add(node->cfg.metrics, KVP_NODE_METAS_DROPPED, 1);
	}
}

/* The reason is logged when it is a new one: joining is tried for ever. */
static void
meta_drop(struct announce_meta *meta, int why)
{
	struct kvp_node *node = meta->announce->node;

	meta_hold(meta);
	if (meta->why != why) {
		kvp_warn(node->cfg.log, "meta %s is down: %s; it is joined again by itself",
			meta->addr, kvp_err_str(why));
	}
	meta->state = META_DOWN;
	meta->why = why;
	meta->round++;
	meta->join_ns = kvp_node_now(node) + meta->heartbeat_ms * KVP_NS_PER_MS;
}

/* Slots that events may name: the store's, then the SSD tier's. */
static uint32_t
node_slots(const struct kvp_node *node)
{
	return node->cfg.slots_max + node->ssd_slots;
}

static uint64_t
node_blocks(const struct kvp_node *node)
{
	struct kvp_store_stats stats;

	kvp_store_stats(node->store, &stats);
	return stats.blocks + (node->ssd != NULL ? kvp_ssd_blocks(node->ssd) : 0);
}

/* As kvp_store_next(), of both tiers. */
static bool
node_next(const struct kvp_node *node, uint32_t *cursor, struct kvp_store_event *ret_event,
	struct kvp_key *ret_key)
{
	uint32_t slots = node->cfg.slots_max;
	uint32_t beyond;
	bool found;

	if (*cursor < slots && kvp_store_next(node->store, cursor, ret_event, ret_key)) {
		return true;
	}
	if (node->ssd == NULL) {
		return false;
	}
	beyond = *cursor - slots;
	found = kvp_ssd_next(node->ssd, &beyond, ret_event, ret_key);
	*cursor = slots + beyond;
	return found;
}

static void
meta_snapshot(struct announce_meta *meta, const char *why)
{
	struct kvp_announcer *announce = meta->announce;
	uint64_t blocks = node_blocks(announce->node);

	meta_hold(meta);
	kvp_info(announce->node->cfg.log, "meta %s gets a snapshot at %" PRIu64 ": %s", meta->addr,
		announce->sequence, why);
	kvp_metric_add(announce->node->cfg.metrics, KVP_NODE_SNAPSHOTS, 1);
	kvp_assert(blocks <= announce->sequence); /* each was stored by a change */
	meta->state = META_SNAPSHOT;
	meta->synced = false;
	meta->begin = true;
	meta->cursor = 0;
	meta->owed = blocks;
	memset(meta->fresh, 0, node_slots(announce->node) / 8 + 1);
	meta->round++;
	/* Older changes are part of what the store is now. */
	meta->sent = announce->sequence;
}

/* True when the ring still holds the change after sequence. */
static bool
ring_reaches(const struct kvp_announcer *announce, uint64_t sequence)
{
	return sequence <= announce->sequence &&
	       announce->sequence - sequence <= announce->ring_max;
}

/* Appends one change; REMOVED names the filling by its word and needs no key. */
static void
record_write(struct kvp_writer *w, const struct kvp_store_event *event)
{
	bool stored = event->kind == KVP_STORE_STORED;
	struct kvp_announce head = {
		.kind = stored ? KVP_ANNOUNCE_STORED : KVP_ANNOUNCE_REMOVED,
		.klen = stored ? event->key->len : 0,
		.tier = event->loc.tier,
		.slot = event->loc.slot,
		.word = event->loc.word,
		.off = event->loc.off,
		.len = event->loc.len,
	};

	memcpy(head.ns, event->ns, KVP_NS_LEN);
	kvp_write_announce(w, &head, stored ? event->key : NULL);
}

/* --- one message ---------------------------------------------------------------------------------
 */

/* The next block of the store that was there when the snapshot began, or, as some of those are gone
 * by now, a record that says nothing. */
static void
meta_restate(struct announce_meta *meta, struct kvp_writer *w)
{
	static const struct kvp_announce nothing = {.kind = KVP_ANNOUNCE_REMOVED};
	struct kvp_store_event event;
	struct kvp_key key;

	while (node_next(meta->announce->node, &meta->cursor, &event, &key)) {
		if ((meta->fresh[event.loc.slot / 8] & 1u << event.loc.slot % 8) == 0) {
			record_write(w, &event);
			return;
		}
	}
	kvp_write_announce(w, &nothing, NULL);
}

/* Puts what comes next into msg, its records into the scratch buffer. False: nothing to say. */
static bool
meta_fill(struct announce_meta *meta, Kvp__Announce *msg)
{
	struct kvp_announcer *announce = meta->announce;
	struct kvp_writer w = kvp_writer_over(announce->scratch, sizeof(announce->scratch));

	if (!ring_reaches(announce, meta->sent)) {
		meta_snapshot(meta, "it fell behind the ring");
	}
	for (; meta->sent < announce->sequence && msg->records_count < ANNOUNCE_RECORDS_MAX;
		msg->records_count++) {
		const struct announce_record *record =
			&announce->ring[meta->sent++ & (announce->ring_max - 1)];

		kvp_write_bytes(&w, record->bytes, record->len);
	}
	if (meta->state == META_SNAPSHOT) {
		msg->snapshot_begin = meta->begin;
		meta->begin = false;
		/* The store as it is now may only follow every change up to now. */
		for (; meta->sent == announce->sequence && meta->owed > 0 &&
			msg->records_count < ANNOUNCE_RECORDS_MAX;
			msg->records_count++) {
			meta_restate(meta, &w);
			meta->owed--;
		}
		if (meta->sent == announce->sequence && meta->owed == 0) {
			msg->snapshot_end = true;
			meta->state = META_STREAMING;
		}
	}
	kvp_assert(!w.failed);
	msg->sequence = meta->sent - meta->owed;
	msg->records = kvp_bytes(announce->scratch, sizeof(announce->scratch) - w.left);
	return msg->records_count > 0 || msg->snapshot_begin || msg->snapshot_end;
}

static void
flight_answered(struct announce_flight *flight, const Kvp__AnnounceReply *reply)
{
	struct announce_meta *meta = flight->meta;

	if (reply->sequence > meta->announce->sequence) {
		meta_drop(meta, -KVP_E_PROTO);
		return;
	}
	/* Numbers within a snapshot lag behind those of the changes in it. */
	if (reply->sequence > meta->acked && (meta->synced || flight->snapshot_end)) {
		meta->acked = reply->sequence;
	}
	if (reply->resync && !meta->synced) {
		/* A peer that takes no snapshot must not be sent one after another. */
		meta_drop(meta, -KVP_E_BEHIND);
	} else if (reply->resync) {
		meta_snapshot(meta, "it saw a gap");
	} else if (flight->snapshot_end) {
		meta->synced = true;
		kvp_info(meta->announce->node->cfg.log, "meta %s is in step at %" PRIu64,
			meta->addr, meta->acked);
	}
}

static void
flight_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct announce_flight *flight = kvp_container_of(req, struct announce_flight, req);
	struct announce_meta *meta = flight->meta;
	struct kvp_announcer *announce = meta->announce;
	ProtobufCMessage *reply;

	flight->used = false;
	if (announce->closing) {
		return;
	}
	if (flight->round == meta->round) {
		reply = status == 0
				? kvp_msg_decode(kvp_rpc_reply_desc(KVP_RPC_ANNOUNCE), body, len)
				: NULL;
		if (reply != NULL) {
			flight_answered(flight, (const Kvp__AnnounceReply *)reply);
			protobuf_c_message_free_unpacked(reply, NULL);
		} else {
			meta_drop(meta, status != 0 ? status : -KVP_E_PROTO);
		}
	}
	kvp_commit_poll(announce->node, kvp_node_now(announce->node));
	kvp_announce_flush(announce);
}

static struct announce_flight *
meta_flight(struct announce_meta *meta)
{
	for (uint32_t i = 0; i < ANNOUNCE_FLIGHTS_MAX; i++) {
		if (!meta->flights[i].used) {
			return &meta->flights[i];
		}
	}
	return NULL;
}

/* Sends one message; an empty one only if it is time for a heartbeat. False: nothing was sent. */
static bool
meta_send(struct announce_meta *meta, uint64_t now_ns)
{
	const struct kvp_rpc_ops *ops = meta->announce->node->cfg.rpc->ops;
	struct announce_flight *flight = meta_flight(meta);
	uint64_t heartbeat_ns = meta->heartbeat_ms * KVP_NS_PER_MS;
	Kvp__Announce msg = KVP__ANNOUNCE__INIT;
	uint8_t *body;
	size_t len;

	if (meta->state < META_SNAPSHOT || flight == NULL) {
		return false;
	}
	if (!meta_fill(meta, &msg) && now_ns - meta->sent_ns < heartbeat_ns) {
		return false;
	}
	if (kvp_msg_encode(&msg.base, &body, &len) < 0) {
		/* What was taken from the ring is lost to this meta. */
		meta_drop(meta, -ENOMEM);
		meta->synced = false;
		return false;
	}
	flight->used = true;
	flight->round = meta->round;
	flight->snapshot_end = msg.snapshot_end;
	flight->req = (struct kvp_rpc_req){
		.type = KVP_RPC_ANNOUNCE,
		.deadline_ns = now_ns + ANNOUNCE_HEARTBEATS * heartbeat_ns,
		.done = flight_done,
	};
	meta->sent_ns = now_ns;
	ops->call(meta->link, &flight->req, body, len);
	free(body);
	return true;
}

/* --- joining -------------------------------------------------------------------------------------
 */

static void
meta_joined(struct announce_meta *meta, const Kvp__JoinReply *reply)
{
	struct kvp_announcer *announce = meta->announce;
	uint32_t ms = reply->heartbeat_ms;

	if (ms != 0) {
		ms = ms < ANNOUNCE_HEARTBEAT_MS_MIN ? ANNOUNCE_HEARTBEAT_MS_MIN : ms;
		meta->heartbeat_ms =
			ms > ANNOUNCE_HEARTBEAT_MS_MAX ? ANNOUNCE_HEARTBEAT_MS_MAX : ms;
	}
	meta->why = 0;
	if (reply->snapshot) {
		meta_snapshot(meta, "it asked for one");
	} else if (!meta->synced || !ring_reaches(announce, meta->acked)) {
		meta_snapshot(meta, "it cannot have everything");
	} else {
		kvp_info(announce->node->cfg.log, "meta %s goes on after %" PRIu64, meta->addr,
			meta->acked);
		meta->sent = meta->acked;
		meta->state = META_STREAMING;
	}
	/* Its first heartbeat is due at once, snapshot or not. */
	meta->sent_ns = 0;
}

static void
join_done(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len)
{
	struct announce_meta *meta = kvp_container_of(req, struct announce_meta, join);
	ProtobufCMessage *reply = NULL;

	meta->join_used = false;
	if (meta->announce->closing || meta->join_round != meta->round) {
		return;
	}
	if (status == 0) {
		reply = kvp_msg_decode(kvp_rpc_reply_desc(KVP_RPC_JOIN), body, len);
	}
	if (reply == NULL) {
		meta_drop(meta, status != 0 ? status : -KVP_E_PROTO);
		return;
	}
	meta_joined(meta, (const Kvp__JoinReply *)reply);
	protobuf_c_message_free_unpacked(reply, NULL);
	kvp_announce_flush(meta->announce);
}

static void
meta_join(struct announce_meta *meta)
{
	struct kvp_node *node = meta->announce->node;
	Kvp__NodeInfo info = KVP__NODE_INFO__INIT;
	Kvp__Join msg = KVP__JOIN__INIT;
	uint64_t now_ns = kvp_node_now(node);
	uint8_t *body;
	size_t len;

	info.id = kvp_bytes(node->cfg.self.id, KVP_ID_LEN);
	info.incarnation = node->cfg.self.incarnation;
	info.name = node->cfg.self.name;
	info.address = node->address;
	info.local_address = node->local_address;
	info.host_id = kvp_bytes(node->cfg.host_id, KVP_ID_LEN);
	msg.node = &info;
	msg.sequence = meta->acked;
	if (kvp_msg_encode(&msg.base, &body, &len) < 0) {
		meta_drop(meta, -ENOMEM);
		return;
	}
	meta->state = META_JOINING;
	meta->round++;
	meta->join_round = meta->round;
	meta->join_used = true;
	meta->join = (struct kvp_rpc_req){
		.type = KVP_RPC_JOIN,
		.deadline_ns = now_ns + ANNOUNCE_HEARTBEATS * meta->heartbeat_ms * KVP_NS_PER_MS,
		.done = join_done,
	};
	node->cfg.rpc->ops->call(meta->link, &meta->join, body, len);
	free(body);
}

static void
meta_up(void *arg, struct kvp_rpc_link *link)
{
	struct announce_meta *meta = arg;

	if (link->peer.kind != KVP_PEER_META) {
		kvp_error(meta->announce->node->cfg.log,
			"meta %s is not joined: \"%s\" there is no metadata server", meta->addr,
			link->peer.name);
		meta->join_ns = UINT64_MAX;
		return;
	}
	/* At once, unless the answer to an older join is still on its way; then by the tick. */
	meta->join_ns = 0;
	if (!meta->join_used) {
		meta_join(meta);
	}
}

static void
meta_down(void *arg, struct kvp_rpc_link *link, int why)
{
	struct announce_meta *meta = arg;

	(void)link;
	if (!meta->announce->closing) {
		meta_drop(meta, why != 0 ? why : -KVP_E_CONNDOWN);
	}
}

/* --- the stream ----------------------------------------------------------------------------------
 */

int
kvp_announce_open(struct kvp_node *node, struct kvp_announcer **ret_announce)
{
	const struct kvp_node_cfg *cfg = &node->cfg;
	struct kvp_announcer *announce = calloc(1, sizeof(*announce));

	if (announce == NULL) {
		return -ENOMEM;
	}
	announce->node = node;
	/* More records than twice the slots cost more than a snapshot would. */
	announce->ring_max = ANNOUNCE_RING_MIN;
	while (announce->ring_max < 2ull * node_slots(node) &&
		announce->ring_max < ANNOUNCE_RING_MAX) {
		announce->ring_max *= 2;
	}
	announce->ring = calloc(announce->ring_max, sizeof(*announce->ring));
	announce->metas = calloc(cfg->meta_count + 1, sizeof(*announce->metas));
	if (announce->ring == NULL || announce->metas == NULL) {
		kvp_announce_close(announce);
		return -ENOMEM;
	}
	announce->meta_count = cfg->meta_count;
	for (uint32_t i = 0; i < cfg->meta_count; i++) {
		struct announce_meta *meta = &announce->metas[i];

		meta->announce = announce;
		meta->heartbeat_ms = cfg->heartbeat_ms;
		meta->fresh = calloc(node_slots(node) / 8 + 1, 1);
		if (meta->fresh == NULL) {
			kvp_announce_close(announce);
			return -ENOMEM;
		}
		(void)snprintf(meta->addr, sizeof(meta->addr), "%s", cfg->metas[i]);
		for (uint32_t j = 0; j < ANNOUNCE_FLIGHTS_MAX; j++) {
			meta->flights[j].meta = meta;
		}
	}
	*ret_announce = announce;
	return 0;
}

void
kvp_announce_close(struct kvp_announcer *announce)
{
	if (announce == NULL) {
		return;
	}
	announce->closing = true;
	for (uint32_t i = 0; i < announce->meta_count; i++) {
		if (announce->metas[i].link != NULL) {
			announce->node->cfg.rpc->ops->link_close(announce->metas[i].link);
		}
		free(announce->metas[i].fresh);
	}
	free(announce->metas);
	free(announce->ring);
	free(announce);
}

void
kvp_announce_start(struct kvp_announcer *announce)
{
	struct kvp_rpc *rpc = announce->node->cfg.rpc;

	for (uint32_t i = 0; i < announce->meta_count; i++) {
		struct announce_meta *meta = &announce->metas[i];
		struct kvp_rpc_link_cfg cfg = {
			.addr = meta->addr,
			.arg = meta,
			.up = meta_up,
			.down = meta_down,
		};
		int err = rpc->ops->link_open(rpc, &cfg, &meta->link);

		if (err < 0) {
			kvp_error(announce->node->cfg.log, "meta %s cannot be joined: %s",
				meta->addr, kvp_err_str(err));
			meta->link = NULL;
		}
	}
}

void
kvp_announce_event(void *arg, const struct kvp_store_event *event)
{
	struct kvp_node *node = arg;
	struct kvp_announcer *announce = node->announce;
	struct announce_record *record =
		&announce->ring[announce->sequence++ & (announce->ring_max - 1)];
	struct kvp_writer w = kvp_writer_over(record->bytes, sizeof(record->bytes));

	record_write(&w, event);
	kvp_assert(!w.failed);
	record->len = (uint8_t)(sizeof(record->bytes) - w.left);
	for (uint32_t i = 0; event->kind == KVP_STORE_STORED && i < announce->meta_count; i++) {
		announce->metas[i].fresh[event->loc.slot / 8] |=
			(uint8_t)(1u << event->loc.slot % 8);
	}
}

void
kvp_announce_flush(struct kvp_announcer *announce)
{
	uint64_t now_ns = kvp_node_now(announce->node);

	for (uint32_t i = 0; i < announce->meta_count; i++) {
		while (meta_send(&announce->metas[i], now_ns)) {
		}
	}
}

void
kvp_announce_tick(struct kvp_announcer *announce, uint64_t now_ns)
{
	for (uint32_t i = 0; i < announce->meta_count; i++) {
		struct announce_meta *meta = &announce->metas[i];

		if (meta->state == META_DOWN && meta->link != NULL && meta->link->up &&
			!meta->join_used && now_ns >= meta->join_ns) {
			meta_join(meta);
		}
	}
	kvp_announce_flush(announce);
}

uint64_t
kvp_announce_sequence(const struct kvp_announcer *announce)
{
	return announce->sequence;
}

enum kvp_indexed
kvp_announce_indexed(const struct kvp_announcer *announce, uint64_t sequence, uint64_t now_ns)
{
	bool waits = false;
	bool known = false;

	for (uint32_t i = 0; i < announce->meta_count; i++) {
		const struct announce_meta *meta = &announce->metas[i];

		if (meta_is_live(meta) && meta->acked >= sequence) {
			known = true;
		} else if (meta_is_live(meta) || now_ns < meta->hold_ns) {
			waits = true;
		}
	}
	if (waits) {
		return KVP_INDEXED_WAIT;
	}
	return known ? KVP_INDEXED_ALL : KVP_INDEXED_NONE;
}

uint32_t
kvp_announce_live_count(const struct kvp_announcer *announce)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < announce->meta_count; i++) {
		count += meta_is_live(&announce->metas[i]);
	}
	return count;
}

bool
kvp_announce_describe(const struct kvp_announcer *announce, uint32_t idx, const char **ret_addr,
	char *buf, size_t cap)
{
	static const char *const names[] = {"down", "joining", "snapshot", "streaming"};
	const struct announce_meta *meta;

	if (idx >= announce->meta_count) {
		return false;
	}
	meta = &announce->metas[idx];
	*ret_addr = meta->addr;
	(void)snprintf(buf, cap, "%s, %" PRIu64 " of %" PRIu64 " acknowledged%s%s",
		names[meta->state], meta->acked, announce->sequence, meta->why != 0 ? ": " : "",
		meta->why != 0 ? kvp_err_str(meta->why) : "");
	return true;
}
