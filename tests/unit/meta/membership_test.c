/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership_test.c - who is live, suspect, forgotten, behind, refused; on a clock of our own.
 */
#include "tests/unit/meta/meta_test.h"

#include "hal/base/err.h"
#include "pool/meta/membership.h"
#include "pool/meta/meta.h"

#define HEARTBEAT (100 * KVP_NS_PER_MS)
#define SUSPECT   (300 * KVP_NS_PER_MS)
#define FORGET    (1000 * KVP_NS_PER_MS)

struct fixture {
	struct test_rpc rpc;
	struct kvp_metrics metrics;
	struct kvp_log log;
	char last_line[1024];
	struct kvp_membership ms;
};

static void
log_keep(void *arg, enum kvp_log_level level, const char *line)
{
	struct fixture *fx = arg;

	(void)level;
	(void)snprintf(fx->last_line, sizeof(fx->last_line), "%s", line);
}

static int
setup(void **state)
{
	struct fixture *fx = calloc(1, sizeof(*fx));

	assert_non_null(fx);
	test_rpc_init(&fx->rpc);
	assert_int_equal(
		kvp_metrics_init(&fx->metrics, kvp_meta_metrics, KVP_META_METRIC_COUNT), 0);
	fx->log = (struct kvp_log){.level = KVP_LOG_DEBUG, .sink = log_keep, .arg = fx};
	fx->ms.rpc = &fx->rpc.rpc;
	fx->ms.log = &fx->log;
	fx->ms.metrics = &fx->metrics;
	fx->ms.heartbeat_ns = HEARTBEAT;
	fx->ms.suspect_ns = SUSPECT;
	fx->ms.forget_ns = FORGET;
	assert_int_equal(kvp_directory_new(4096, 1, &fx->ms.dir), 0);
	kvp_membership_init(&fx->ms, fx->rpc.env.now_ns);
	*state = fx;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *fx = *state;

	kvp_directory_free(fx->ms.dir);
	kvp_metrics_fini(&fx->metrics);
	free(fx);
	return 0;
}

static uint64_t
now(const struct fixture *fx)
{
	return fx->rpc.env.now_ns;
}

static struct kvp_rpc_conn
conn_make(struct fixture *fx, const char *addr)
{
	struct kvp_rpc_conn conn = {.rpc = &fx->rpc.rpc};

	(void)snprintf(conn.peer.addr, sizeof(conn.peer.addr), "%s", addr);
	return conn;
}

static int
join(struct fixture *fx, uint32_t id, uint64_t incarnation, struct kvp_rpc_conn *conn,
	uint64_t sequence, struct kvp_member **ret_member, bool *ret_snapshot)
{
	struct kvp_member_info info = {.incarnation = incarnation};

	memcpy(info.id, &id, sizeof(id));
	(void)snprintf(info.name, sizeof(info.name), "n%u", id);
	(void)snprintf(info.address, sizeof(info.address), "10.0.0.%u:7490", id);
	return kvp_membership_join(
		&fx->ms, now(fx), &info, conn, sequence, ret_member, ret_snapshot);
}

/* Time passes with ticks, and the member is heard or not. */
static void
pass(struct fixture *fx, uint64_t for_ns, struct kvp_member *heard)
{
	for (uint64_t ns = 0; ns < for_ns; ns += HEARTBEAT / 2) {
		fx->rpc.env.now_ns += HEARTBEAT / 2;
		kvp_membership_tick(&fx->ms, now(fx));
		if (heard != NULL) {
			kvp_membership_heard(&fx->ms, now(fx), heard);
		}
	}
}

static void
put_block(struct fixture *fx, const struct kvp_member *member, uint64_t key)
{
	struct kvp_place place = {
		.word = kvp_word_make(1, 1, KVP_SLOT_VALID), .slot = (uint32_t)key, .tier = 1};
	const uint64_t digest[2] = {key, key};

	assert_int_equal(
		kvp_directory_store(fx->ms.dir, kvp_member_idx(&fx->ms, member), digest, &place),
		0);
}

static size_t
found(struct fixture *fx, uint64_t key)
{
	const uint64_t digest[1][2] = {{key, key}};
	struct kvp_loc loc;
	uint8_t count;

	return kvp_directory_find(fx->ms.dir, digest, 1, 1, &count, &loc);
}

static void
member_life(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn conn = conn_make(fx, "a");
	struct kvp_member *member;
	bool snapshot;

	assert_int_equal(join(fx, 1, 1, &conn, 5, &member, &snapshot), 0);
	assert_true(snapshot && conn.ctx == member && member->state == KVP_MEMBER_LIVE);
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx)));
	member->whole = true;
	put_block(fx, member, 1);
	pass(fx, 2 * FORGET, member);
	assert_true(kvp_member_in_step(&fx->ms, member, now(fx)));
	assert_int_equal(member->state, KVP_MEMBER_LIVE);

	pass(fx, SUSPECT, NULL);
	assert_int_equal(member->state, KVP_MEMBER_LIVE);
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx))); /* that, sooner */
	assert_int_equal(found(fx, 1), 1);
	pass(fx, HEARTBEAT, NULL);
	assert_int_equal(member->state, KVP_MEMBER_SUSPECT);
	assert_int_equal(found(fx, 1), 0);
	assert_int_equal(kvp_metric_get(&fx->metrics, KVP_META_NODES_SUSPECT), 1);

	kvp_membership_heard(&fx->ms, now(fx), member);
	assert_int_equal(member->state, KVP_MEMBER_LIVE);
	assert_int_equal(found(fx, 1), 1);

	pass(fx, FORGET + HEARTBEAT, NULL);
	assert_int_equal(member->state, KVP_MEMBER_FORGOTTEN);
	assert_int_equal(found(fx, 1), 0);
	assert_null(conn.ctx); /* its stream is cut */
	assert_true(fx->rpc.closed_count == 1 && fx->rpc.closed[0] == &conn);
	assert_null(kvp_membership_find(&fx->ms, member->info.id));
}

static void
member_reuse(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn a = conn_make(fx, "a");
	struct kvp_rpc_conn b = conn_make(fx, "b");
	struct kvp_member *old;
	struct kvp_member *member;
	bool snapshot;

	assert_int_equal(join(fx, 1, 1, &a, 0, &old, &snapshot), 0);
	put_block(fx, old, 1);
	pass(fx, FORGET + HEARTBEAT, NULL);
	assert_int_equal(old->state, KVP_MEMBER_FORGOTTEN);
	/* The old one's entries are still in memory: the same node gets another place. */
	assert_int_equal(join(fx, 1, 1, &b, 0, &member, &snapshot), 0);
	assert_true(snapshot && member != old);
	assert_int_equal(kvp_directory_held(fx->ms.dir), 1);
	while (kvp_directory_turn(fx->ms.dir, 100)) {
	}
	pass(fx, HEARTBEAT, member);
	assert_int_equal(old->state, KVP_MEMBER_FREE);
	assert_int_equal(join(fx, 2, 1, &a, 0, &member, &snapshot), 0);
	assert_ptr_equal(member, old);
	assert_int_equal(found(fx, 1), 0);
}

static void
member_twice(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn a = conn_make(fx, "10.9.9.1:1111");
	struct kvp_rpc_conn b = conn_make(fx, "10.9.9.2:2222");
	struct kvp_member *member;
	bool snapshot;

	assert_int_equal(join(fx, 1, 3, &a, 0, &member, &snapshot), 0);
	member->whole = true;
	put_block(fx, member, 1);
	assert_int_equal(join(fx, 1, 3, &b, 0, &member, &snapshot), -KVP_E_IN_USE);
	assert_non_null(strstr(fx->last_line, "10.9.9.1:1111"));
	assert_non_null(strstr(fx->last_line, "10.9.9.2:2222"));
	assert_true(member->conn == &a && fx->rpc.closed_count == 0);
	/* Once it is silent it may be the same node on a new connection. */
	pass(fx, SUSPECT + HEARTBEAT, NULL);
	assert_int_equal(join(fx, 1, 3, &b, 0, &member, &snapshot), 0);
	assert_false(snapshot);
	assert_true(member->conn == &b && a.ctx == NULL);
	assert_true(fx->rpc.closed_count == 1 && fx->rpc.closed[0] == &a);
	assert_int_equal(found(fx, 1), 1);
	/* What it changed while it was away is not here before its first message. */
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx)));
	kvp_membership_heard(&fx->ms, now(fx), member);
	assert_true(kvp_member_in_step(&fx->ms, member, now(fx)));
	/* A closed connection is not a dead node, but nobody to be in step with. */
	kvp_membership_closed(&fx->ms, &b);
	assert_int_equal(found(fx, 1), 1);
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx)));
	/* Other sequence: something is missing. */
	assert_int_equal(join(fx, 1, 3, &a, 1, &member, &snapshot), 0);
	assert_true(snapshot);
}

static void
member_incarnations(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn a = conn_make(fx, "a");
	struct kvp_rpc_conn b = conn_make(fx, "b");
	struct kvp_member *member;
	bool snapshot;

	assert_int_equal(join(fx, 1, 3, &a, 0, &member, &snapshot), 0);
	member->whole = true;
	put_block(fx, member, 1);
	assert_int_equal(join(fx, 1, 4, &b, 0, &member, &snapshot), 0);
	assert_true(snapshot && member->conn == &b && fx->rpc.closed_count == 1);
	assert_int_equal(found(fx, 1), 0);
	kvp_membership_closed(&fx->ms, &a); /* the old one's: no effect */
	assert_ptr_equal(member->conn, &b);
	assert_int_equal(join(fx, 1, 3, &a, 0, &member, &snapshot), -KVP_E_IN_USE);
	assert_int_equal(kvp_metric_get(&fx->metrics, KVP_META_REJECT_OLD), 1);
}

static void
meta_asleep(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn conn = conn_make(fx, "a");
	struct kvp_member *member;
	bool snapshot;

	assert_int_equal(join(fx, 1, 1, &conn, 0, &member, &snapshot), 0);
	member->whole = true;
	put_block(fx, member, 1);
	pass(fx, HEARTBEAT, member);
	assert_true(kvp_member_in_step(&fx->ms, member, now(fx)));

	fx->rpc.env.now_ns += 100 * FORGET;
	kvp_membership_awake(&fx->ms, now(fx)); /* a message is served before the tick */
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx)));
	kvp_membership_tick(&fx->ms, now(fx));
	assert_int_equal(member->state, KVP_MEMBER_LIVE);
	assert_int_equal(found(fx, 1), 1);
	assert_int_equal(kvp_metric_get(&fx->metrics, KVP_META_ASLEEP), 1);
	/* What was queued meanwhile is old. */
	kvp_membership_heard(&fx->ms, now(fx), member);
	assert_false(kvp_member_in_step(&fx->ms, member, now(fx)));
	pass(fx, HEARTBEAT, member);
	assert_true(kvp_member_in_step(&fx->ms, member, now(fx)));
	/* And silence from now on counts again. */
	pass(fx, SUSPECT + HEARTBEAT, NULL);
	assert_int_equal(member->state, KVP_MEMBER_SUSPECT);
}

static void
members_many(void **state)
{
	struct fixture *fx = *state;
	struct kvp_rpc_conn *conns = calloc(KVP_NODES_MAX + 1, sizeof(*conns));
	struct kvp_member *member;
	bool snapshot;

	assert_non_null(conns);
	for (uint32_t i = 0; i <= KVP_NODES_MAX; i++) {
		conns[i] = conn_make(fx, "many");
		assert_int_equal(join(fx, i, 1, &conns[i], 0, &member, &snapshot),
			i < KVP_NODES_MAX ? 0 : -KVP_E_BUSY);
	}
	for (uint32_t i = 0; i < KVP_NODES_MAX; i++) {
		uint8_t id[KVP_ID_LEN] = {0};

		memcpy(id, &i, sizeof(i));
		assert_ptr_equal(kvp_membership_find(&fx->ms, id), conns[i].ctx);
	}
	assert_int_equal(kvp_metric_get(&fx->metrics, KVP_META_REJECT_NODES), 1);
	free(conns);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(member_life, setup, teardown),
		cmocka_unit_test_setup_teardown(member_reuse, setup, teardown),
		cmocka_unit_test_setup_teardown(member_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(member_incarnations, setup, teardown),
		cmocka_unit_test_setup_teardown(meta_asleep, setup, teardown),
		cmocka_unit_test_setup_teardown(members_many, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
