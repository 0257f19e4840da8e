/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.h - what stands around a node under test: an rpc loop on virtual time, a transport whose
 * fences take as many polls as the test says, and metas that the test answers for.
 */
#ifndef KVP_TESTS_UNIT_NODE_FAKE_H
#define KVP_TESTS_UNIT_NODE_FAKE_H

#include "pool/node/node_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FAKE_TIMERS_MAX 8
#define FAKE_LINKS_MAX  4
#define FAKE_SENT_MAX   64
#define FAKE_TOKENS_MAX 64

/* A call that the node sent to a meta and that is not answered yet. */
struct fake_sent {
	struct kvp_rpc_req *req;
	uint8_t *body;
	size_t len;
};

struct fake_link {
	struct kvp_rpc_link pub;
	struct kvp_rpc_link_cfg cfg;
	char addr[KVP_ADDR_LEN_MAX];
	struct fake_sent sent[FAKE_SENT_MAX]; /* oldest first */
	int sent_count;
};

/* A control connection of a client. */
struct fake_conn {
	struct kvp_rpc_conn pub;
	const struct kvp_rpc_service *service;
	struct kvp_list link;
	struct kvp_list calls; /* struct fake_call, so long as they are not replied to */
	bool closing;          /* conn_close() was called */
	bool closed;
};

struct fake_call {
	struct kvp_rpc_call pub;
	struct kvp_list link;
	bool replied;
	int status;
	uint8_t *request;
	uint8_t *body;
	size_t len;
};

struct fake_xport {
	struct kvp_xport pub;
	uint8_t tokens[FAKE_TOKENS_MAX][KVP_TOKEN_LEN]; /* admitted, not fenced */
	int token_count;
	int fence_polls; /* so often a fence is still in progress */
	int polls_left;  /* of the fence under way; -1: none */
	int fence_begun; /* first polls */
	int admit_err;
};

struct fake {
	struct kvp_env env;
	struct kvp_rpc rpc;
	uint64_t now_ns;
	uint64_t look_ns; /* passes with each look at the clock: a process that is held up */
	uint64_t seed;
	struct kvp_rpc_timer *timers[FAKE_TIMERS_MAX];
	uint64_t timers_ns[FAKE_TIMERS_MAX];
	struct fake_link links[FAKE_LINKS_MAX];
	int link_count;
	struct kvp_list conns;
	struct fake_xport xports[2];
	struct kvp_metrics metrics;
	void *arena;
	struct kvp_slot_entry *table;
	struct kvp_store_note *notes;
	uint8_t *tokens;
	struct kvp_node_transport transports[2];
	struct kvp_node_cfg cfg;
	struct kvp_node *node;
};

/* Fills cfg: 256 KiB of arena, 64 slots, quarantine 100 ms, grants 1 s, two transports "one" and
 * "two". The test may change cfg, then calls fake_open(). */
void fake_init(struct fake *fake);
void fake_open(struct fake *fake);
/* The node is killed, its clients' connections fall, and the next one finds table, notes and tokens
 * as they were. Transport "one" forgets its sessions, "two" knows who may still write. */
void fake_restart(struct fake *fake);
/* Closes node and connections, checks that nothing is left. */
void fake_close(struct fake *fake);

/* Lets time pass: timers, deadlines of calls, closed connections. */
void fake_run_ms(struct fake *fake, uint64_t ms);

struct fake_conn *fake_connect(struct fake *fake);
/* The peer goes. */
void fake_disconnect(struct fake *fake, struct fake_conn *conn);
/* The call is the test's; give it to fake_call_free(). */
struct fake_call *fake_call_bytes(
	struct fake_conn *conn, uint16_t type, const void *body, size_t len);
struct fake_call *fake_call(struct fake_conn *conn, uint16_t type, const ProtobufCMessage *msg);
void fake_call_free(struct fake_call *call);
/* The reply's message, which must be there with status 0. */
ProtobufCMessage *fake_reply(const struct fake_call *call);
/* Calls and expects a reply at once: its status. */
int fake_ask(struct fake_conn *conn, uint16_t type, const ProtobufCMessage *msg);
int fake_ask_bytes(struct fake_conn *conn, uint16_t type, const void *body, size_t len);

/* A client with an open session. */
struct fake_conn *fake_session(struct fake *fake);

/* --- metas ---------------------------------------------------------------------------------------
 */
void fake_link_up(struct fake_link *link);
void fake_link_down(struct fake_link *link);
/* The oldest call that waits on the link, decoded; it must be of this type. Freed by the test. */
ProtobufCMessage *fake_sent_msg(struct fake_link *link, uint16_t type);
/* Answers the oldest. */
void fake_answer(struct fake_link *link, int status, const ProtobufCMessage *msg);
/* Up, joined, its snapshot applied. */
void fake_meta_join(struct fake_link *link);
/* Answers every announcement that waits; the last sequence seen, 0 if there was none. */
uint64_t fake_meta_ack(struct fake_link *link);

/* --- blocks --------------------------------------------------------------------------------------
 */
extern const uint8_t fake_ns[KVP_NS_LEN];
struct kvp_key fake_key(uint32_t number);

struct fake_offer {
	int32_t *statuses;
	struct kvp_grant *grants;
	struct kvp_loc *locs;
	uint32_t granted;
	uint32_t existing;
	uint32_t retry_ms;
	uint64_t sequence;
};
/* Offers keys first..first+count-1 of len bytes, a chain, over transport "one". */
struct fake_call *fake_offer_begin(
	struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len);
struct fake_offer fake_offer_end(struct fake_call *call, uint32_t count);
struct fake_offer fake_offer(struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len);
void fake_offer_free(struct fake_offer *offer);
struct fake_call *fake_commit(
	struct fake_conn *conn, const struct kvp_grant *grants, uint32_t count);
/* Offers and commits; everything must work at once. */
void fake_put(struct fake_conn *conn, uint32_t first, uint32_t count, uint64_t len);

#endif /* KVP_TESTS_UNIT_NODE_FAKE_H */
