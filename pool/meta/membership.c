/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership.c - joins, silence, and the waking of this meta.
 *
 * A node that this meta has not heard for H = 2 heartbeats may have gone on without it, so it is
 * then behind, whatever the state says. A closed connection is no death: the node comes back
 * and goes on where it was, or falls silent.
 */
#include "pool/meta/membership.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/os/env.h"
#include "pool/meta/meta.h"

#include <inttypes.h>
#include <string.h>

/* --- by id ----------------------------------------------------------------------------------- */

static uint16_t *
id_bucket(struct kvp_membership *ms, const uint8_t id[KVP_ID_LEN])
{
	uint64_t half[2];

	/* Whoever chooses bad ids makes a chain of KVP_NODES_MAX at worst. */
	memcpy(half, id, sizeof(half));
	return &ms->buckets[(half[0] ^ half[1]) % KVP_NODES_MAX];
}

static void
id_unlink(struct kvp_membership *ms, const struct kvp_member *member)
{
	uint16_t *link = id_bucket(ms, member->info.id);

	while (*link != kvp_member_idx(ms, member) + 1) {
		kvp_assert(*link != 0);
		link = &ms->members[*link - 1].chain_next;
	}
	*link = member->chain_next;
}

struct kvp_member *
kvp_membership_find(struct kvp_membership *ms, const uint8_t id[KVP_ID_LEN])
{
	uint16_t at = *id_bucket(ms, id);

	while (at != 0 && memcmp(ms->members[at - 1].info.id, id, KVP_ID_LEN) != 0) {
		at = ms->members[at - 1].chain_next;
	}
	return at == 0 ? NULL : &ms->members[at - 1];
}

/* --- states ---------------------------------------------------------------------------------- */

const char *
kvp_member_state_name(enum kvp_member_state state)
{
	switch (state) {
	case KVP_MEMBER_LIVE:
		return "live";
	case KVP_MEMBER_SUSPECT:
		return "suspect";
	case KVP_MEMBER_FORGOTTEN:
		return "forgotten";
	default:
		return "free";
	}
}

/* The stream's connection, if any, is not the member's any more. */
static void
member_detach(struct kvp_membership *ms, struct kvp_member *member)
{
	struct kvp_rpc_conn *conn = member->conn;

	if (conn != NULL) {
		member->conn = NULL;
		conn->ctx = NULL;
		ms->rpc->ops->conn_close(conn);
	}
}

/* Not vouched for until it joins again. */
static void
missed_add(struct kvp_membership *ms, const uint8_t id[KVP_ID_LEN])
{
	if (ms->missed_count == KVP_MEMBERS_MISSED_MAX) {
		ms->missed_count--;
		memmove(ms->missed[0], ms->missed[1], ms->missed_count * sizeof(ms->missed[0]));
	}
	memcpy(ms->missed[ms->missed_count++], id, KVP_ID_LEN);
}

static void
missed_remove(struct kvp_membership *ms, const uint8_t id[KVP_ID_LEN])
{
	for (uint16_t i = 0; i < ms->missed_count; i++) {
		if (memcmp(ms->missed[i], id, KVP_ID_LEN) == 0) {
			memcpy(ms->missed[i], ms->missed[--ms->missed_count], KVP_ID_LEN);
			return;
		}
	}
}

static void
member_forget(struct kvp_membership *ms, struct kvp_member *member)
{
	missed_add(ms, member->info.id);
	member_detach(ms, member);
	id_unlink(ms, member);
	kvp_directory_drop(ms->dir, kvp_member_idx(ms, member));
	member->state = KVP_MEMBER_FORGOTTEN;
}

/* A free place, or NULL. */
static struct kvp_member *
member_take(struct kvp_membership *ms)
{
	for (uint16_t i = 0; i < ms->high; i++) {
		if (ms->members[i].state == KVP_MEMBER_FREE) {
			return &ms->members[i];
		}
	}
	return ms->high < KVP_NODES_MAX ? &ms->members[ms->high++] : NULL;
}

static struct kvp_member *
member_new(struct kvp_membership *ms, const struct kvp_member_info *info)
{
	struct kvp_member *member = member_take(ms);
	uint16_t *bucket;

	if (member == NULL) {
		return NULL;
	}
	bucket = id_bucket(ms, info->id);
	*member = (struct kvp_member){.chain_next = *bucket};
	*bucket = (uint16_t)(kvp_member_idx(ms, member) + 1);
	return member;
}

/* --- joining --------------------------------------------------------------------------------- */

/* May this stream take the place of what is known under its id? */
static int
join_check(const struct kvp_membership *ms, const struct kvp_member *member,
	const struct kvp_member_info *info, const struct kvp_rpc_conn *conn)
{
	if (info->incarnation < member->info.incarnation) {
		kvp_metric_add(ms->metrics, KVP_META_REJECT_OLD, 1);
		kvp_warn(ms->log,
			"node %s at %s refused: incarnation %" PRIu64 " is older than %" PRIu64
			" at %s",
			info->name, conn->peer.addr, info->incarnation, member->info.incarnation,
			member->info.address);
		return -KVP_E_IN_USE;
	}
	if (info->incarnation == member->info.incarnation && member->conn != NULL &&
		member->conn != conn && member->state == KVP_MEMBER_LIVE) {
		kvp_metric_add(ms->metrics, KVP_META_REJECT_IN_USE, 1);
		kvp_error(ms->log,
			"node %s at %s (connected from %s) refused: the same identity and "
			"incarnation is live at %s (connected from %s)",
			info->name, info->address, conn->peer.addr, member->info.address,
			member->conn->peer.addr);
		return -KVP_E_IN_USE;
	}
	return 0;
}

int
kvp_membership_join(struct kvp_membership *ms, uint64_t now_ns, const struct kvp_member_info *info,
	struct kvp_rpc_conn *conn, uint64_t sequence, struct kvp_member **ret_member,
	bool *ret_snapshot)
{
	struct kvp_member *member = kvp_membership_find(ms, info->id);
	bool known = member != NULL;
	int err = known ? join_check(ms, member, info, conn) : 0;

	if (err < 0) {
		return err;
	}
	if (!known) {
		member = member_new(ms, info);
		if (member == NULL) {
			kvp_metric_add(ms->metrics, KVP_META_REJECT_NODES, 1);
			kvp_error(ms->log, "node %s at %s refused: %d nodes are known already",
				info->name, info->address, KVP_NODES_MAX);
			return -KVP_E_BUSY;
		}
	} else if (info->incarnation != member->info.incarnation) {
		kvp_directory_drop(ms->dir, kvp_member_idx(ms, member));
		known = false;
	}
	if (member->conn != conn) {
		member_detach(ms, member);
	}
	if (!known || !member->whole || member->applied != sequence) {
		member->whole = false;
		member->applied = 0;
	}
	missed_remove(ms, info->id);
	member->snapshot_open = false; /* what a lost connection began ends with it */
	member->state = KVP_MEMBER_LIVE;
	member->info = *info;
	member->conn = conn;
	conn->ctx = member;
	kvp_directory_show(ms->dir, kvp_member_idx(ms, member), true);
	kvp_membership_heard(ms, now_ns, member);
	member->vouched = false; /* what it has changed since sequence is still to come */
	*ret_member = member;
	*ret_snapshot = !member->whole;
	return 0;
}

void
kvp_membership_closed(struct kvp_membership *ms, struct kvp_rpc_conn *conn)
{
	struct kvp_member *member = conn->ctx;

	if (member != NULL) {
		kvp_assert(member->conn == conn);
		kvp_info(ms->log, "node %s at %s: stream closed", member->info.name,
			member->info.address);
		member->conn = NULL;
		conn->ctx = NULL;
	}
}

/* KVP_NS_PER_MS is unsigned long long, which PRIu64 is not everywhere. */
static uint64_t
ns_to_ms(uint64_t ns)
{
	return ns / KVP_NS_PER_MS;
}

/* --- silence --------------------------------------------------------------------------------- */

void
kvp_membership_heard(struct kvp_membership *ms, uint64_t now_ns, struct kvp_member *member)
{
	member->heard_ns = now_ns;
	/* What was queued while we slept comes right after waking and says nothing of the node's
	 * state since: only later words count. */
	if (ms->woke_ns == 0 || now_ns - ms->woke_ns >= ms->heartbeat_ns / 2) {
		member->vouched = true;
	}
	if (member->state == KVP_MEMBER_SUSPECT) {
		member->state = KVP_MEMBER_LIVE;
		kvp_directory_show(ms->dir, kvp_member_idx(ms, member), true);
		kvp_info(ms->log, "node %s at %s is live again", member->info.name,
			member->info.address);
	}
}

uint64_t
kvp_membership_period_ns(const struct kvp_membership *ms)
{
	return ms->heartbeat_ns / 2;
}

void
kvp_membership_awake(struct kvp_membership *ms, uint64_t now_ns)
{
	uint64_t late_ns = now_ns - ms->tick_ns;

	if (late_ns <= kvp_membership_period_ns(ms) + ms->heartbeat_ns) {
		return;
	}
	kvp_metric_add(ms->metrics, KVP_META_ASLEEP, 1);
	kvp_warn(ms->log, "this process stood still for %" PRIu64 " ms: nobody's silence counts",
		ns_to_ms(late_ns));
	ms->woke_ns = now_ns;
	ms->tick_ns = now_ns;
	for (uint16_t i = 0; i < ms->high; i++) {
		ms->members[i].heard_ns = now_ns;
		ms->members[i].vouched = false;
	}
}

/* Returns the state it is in afterwards. */
static enum kvp_member_state
member_judge(struct kvp_membership *ms, struct kvp_member *member, uint64_t now_ns)
{
	uint64_t silent_ns = now_ns - member->heard_ns;

	if (member->state == KVP_MEMBER_LIVE && silent_ns > ms->suspect_ns) {
		member->state = KVP_MEMBER_SUSPECT;
		kvp_directory_show(ms->dir, kvp_member_idx(ms, member), false);
		kvp_metric_add(ms->metrics, KVP_META_SUSPECTED, 1);
		kvp_warn(ms->log, "node %s at %s is suspect: silent for %" PRIu64 " ms",
			member->info.name, member->info.address, ns_to_ms(silent_ns));
	}
	if (member->state == KVP_MEMBER_SUSPECT && silent_ns > ms->forget_ns) {
		kvp_metric_add(ms->metrics, KVP_META_FORGOTTEN, 1);
		kvp_warn(ms->log,
			"node %s at %s is forgotten with its %" PRIu64
			" blocks: silent for %" PRIu64 " ms",
			member->info.name, member->info.address,
			kvp_directory_node_blocks(ms->dir, kvp_member_idx(ms, member)),
			ns_to_ms(silent_ns));
		member_forget(ms, member);
	}
	if (member->state == KVP_MEMBER_FORGOTTEN &&
		kvp_directory_clean(ms->dir, kvp_member_idx(ms, member))) {
		member->state = KVP_MEMBER_FREE;
	}
	return member->state;
}

void
kvp_membership_tick(struct kvp_membership *ms, uint64_t now_ns)
{
	uint64_t counts[KVP_MEMBER_FORGOTTEN + 1] = {0};
	uint64_t behind = 0;

	kvp_membership_awake(ms, now_ns);
	ms->tick_ns = now_ns;
	for (uint16_t i = 0; i < ms->high; i++) {
		struct kvp_member *member = &ms->members[i];
		enum kvp_member_state state = member_judge(ms, member, now_ns);

		counts[state]++;
		if ((state == KVP_MEMBER_LIVE || state == KVP_MEMBER_SUSPECT) &&
			!kvp_member_in_step(ms, member, now_ns)) {
			behind++;
		}
	}
	kvp_metric_set(ms->metrics, KVP_META_NODES_LIVE, counts[KVP_MEMBER_LIVE]);
	kvp_metric_set(ms->metrics, KVP_META_NODES_SUSPECT, counts[KVP_MEMBER_SUSPECT]);
	kvp_metric_set(ms->metrics, KVP_META_NODES_FORGOTTEN, counts[KVP_MEMBER_FORGOTTEN]);
	kvp_metric_set(ms->metrics, KVP_META_NODES_BEHIND, behind);
}

bool
kvp_member_in_step(
	const struct kvp_membership *ms, const struct kvp_member *member, uint64_t now_ns)
{
	return member->conn != NULL && member->whole && member->vouched &&
	       now_ns - member->heard_ns <= 2 * ms->heartbeat_ns;
}

bool
kvp_membership_is_young(const struct kvp_membership *ms, uint64_t now_ns)
{
	return now_ns < ms->young_ns;
}

void
kvp_membership_init(struct kvp_membership *ms, uint64_t now_ns)
{
	kvp_assert(ms->rpc != NULL && ms->dir != NULL);
	kvp_assert(ms->heartbeat_ns > 1 && ms->suspect_ns >= ms->heartbeat_ns);
	kvp_assert(ms->forget_ns >= ms->suspect_ns);
	ms->tick_ns = now_ns;
	ms->young_ns = now_ns + ms->suspect_ns;
}
