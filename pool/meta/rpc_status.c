/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_status.c - STATUS: what an operator asks for, as pairs of name and value.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "pool/meta/meta_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define GENERAL_PAIRS 8u
#define NODE_PAIRS    7u /* of each node */

struct pair_text {
	char name[96];
	char value[KVP_ADDR_LEN_MAX];
};

struct pairs {
	size_t count;
	size_t max;
	struct pair_text *texts;
	Kvp__Pair *pairs;
	Kvp__Pair **refs;
};

static int
pairs_init(struct pairs *pairs, size_t max)
{
	*pairs = (struct pairs){.max = max};
	pairs->texts = calloc(max, sizeof(*pairs->texts));
	pairs->pairs = calloc(max, sizeof(*pairs->pairs));
	pairs->refs = calloc(max, sizeof(*pairs->refs));
	return pairs->texts == NULL || pairs->pairs == NULL || pairs->refs == NULL ? -ENOMEM : 0;
}

static void
pairs_fini(struct pairs *pairs)
{
	free(pairs->texts);
	free(pairs->pairs);
	free(pairs->refs);
}

/* The place of a value under this name. */
static char *
pairs_next(struct pairs *pairs, const char *prefix, const char *name)
{
	Kvp__Pair *pair = &pairs->pairs[pairs->count];
	struct pair_text *text = &pairs->texts[pairs->count];

	kvp_assert(pairs->count < pairs->max);
	(void)snprintf(text->name, sizeof(text->name), "%s%s", prefix, name);
	kvp__pair__init(pair);
	pair->name = text->name;
	pair->value = text->value;
	pairs->refs[pairs->count++] = pair;
	return text->value;
}

static void
pairs_add_text(struct pairs *pairs, const char *prefix, const char *name, const char *value)
{
	(void)snprintf(pairs_next(pairs, prefix, name), KVP_ADDR_LEN_MAX, "%s", value);
}

static void
pairs_add_number(struct pairs *pairs, const char *prefix, const char *name, uint64_t value)
{
	(void)snprintf(pairs_next(pairs, prefix, name), KVP_ADDR_LEN_MAX, "%" PRIu64, value);
}

static void
pairs_add_id(struct pairs *pairs, const char *prefix, const uint8_t id[KVP_ID_LEN])
{
	char *value = pairs_next(pairs, prefix, "id");

	for (size_t i = 0; i < KVP_ID_LEN; i++) {
		(void)snprintf(value + 2 * i, 3, "%02x", id[i]);
	}
}

static void
status_general(struct kvp_meta *meta, uint64_t now_ns, uint64_t node_count, struct pairs *pairs)
{
	const struct kvp_ident *self = &meta->cfg.self;

	pairs_add_text(pairs, "", "name", self->name);
	pairs_add_id(pairs, "", self->id);
	pairs_add_number(pairs, "", "incarnation", self->incarnation);
	pairs_add_text(pairs, "", "version", KVP_VERSION);
	pairs_add_number(pairs, "", "uptime_s", (now_ns - meta->opened_ns) / KVP_NS_PER_S);
	pairs_add_number(pairs, "", "nodes", node_count);
	pairs_add_number(pairs, "", "blocks", kvp_directory_blocks(meta->dir));
	pairs_add_number(pairs, "", "blocks_max", meta->cfg.blocks_max);
}

static void
status_node(struct kvp_meta *meta, uint64_t now_ns, const struct kvp_member *member, uint64_t at,
	struct pairs *pairs)
{
	bool in_step = kvp_member_in_step(&meta->ms, member, now_ns);
	char prefix[32];

	(void)snprintf(prefix, sizeof(prefix), "node.%" PRIu64 ".", at);
	pairs_add_text(pairs, prefix, "name", member->info.name);
	pairs_add_id(pairs, prefix, member->info.id);
	pairs_add_number(pairs, prefix, "incarnation", member->info.incarnation);
	pairs_add_text(pairs, prefix, "address", member->info.address);
	(void)snprintf(pairs_next(pairs, prefix, "state"), KVP_ADDR_LEN_MAX, "%s%s",
		kvp_member_state_name(member->state), in_step ? "" : " behind");
	pairs_add_number(pairs, prefix, "blocks",
		kvp_directory_node_blocks(meta->dir, kvp_member_idx(&meta->ms, member)));
	pairs_add_number(pairs, prefix, "sequence", member->applied);
}

static bool
member_listed(const struct kvp_member *member)
{
	return member->state == KVP_MEMBER_LIVE || member->state == KVP_MEMBER_SUSPECT;
}

void
meta_rpc_status(struct kvp_meta *meta, struct kvp_rpc_call *call, const Kvp__Status *req)
{
	Kvp__StatusReply reply = KVP__STATUS_REPLY__INIT;
	const struct kvp_membership *ms = &meta->ms;
	uint64_t now_ns = kvp_now_ns(meta->cfg.env);
	uint64_t node_count = 0;
	struct pairs pairs;

	(void)req;
	for (uint16_t i = 0; i < ms->high; i++) {
		node_count += member_listed(&ms->members[i]);
	}
	if (pairs_init(&pairs, GENERAL_PAIRS + node_count * NODE_PAIRS + meta->cfg.metrics->count) <
		0) {
		pairs_fini(&pairs);
		meta_refuse(meta, call, -ENOMEM, KVP_META_REJECT_MEMORY);
		return;
	}
	status_general(meta, now_ns, node_count, &pairs);
	node_count = 0;
	for (uint16_t i = 0; i < ms->high; i++) {
		if (member_listed(&ms->members[i])) {
			status_node(meta, now_ns, &ms->members[i], node_count++, &pairs);
		}
	}
	for (size_t i = 0; i < meta->cfg.metrics->count; i++) {
		pairs_add_number(&pairs, "", meta->cfg.metrics->desc[i].name,
			kvp_metric_get(meta->cfg.metrics, i));
	}
	reply.n_pairs = pairs.count;
	reply.pairs = pairs.refs;
	meta_reply(meta, call, &reply.base);
	pairs_fini(&pairs);
}
