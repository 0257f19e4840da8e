// SPDX-License-Identifier: Apache-2.0
/*
 * rpc_status.c - STATUS: names and values for people and tools; PING.
 *
 * Bounded: a few fixed rows, every metric, each meta, and the sessions that wait for a fence up to
 * STATUS_FENCES_MAX.
 */
#include "pool/node/announce.h"
#include "pool/node/session.h"
#include "pool/node/ssd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define STATUS_ROWS_FIXED 16u
#define STATUS_FENCES_MAX 64u
#define STATUS_NAME_LEN   160u
#define STATUS_VALUE_LEN  320u

struct status_row {
	Kvp__Pair pair;
	char name[STATUS_NAME_LEN];
	char value[STATUS_VALUE_LEN];
};

struct status {
	struct status_row *rows;
	Kvp__Pair **pairs;
	size_t count;
	size_t max;
};

static void __attribute__((format(printf, 3, 4)))
status_add(struct status *status, const char *name, const char *format, ...)
{
	struct status_row *row;
	va_list args;

	if (status->count == status->max) {
		return;
	}
	row = &status->rows[status->count];
	kvp__pair__init(&row->pair);
	(void)snprintf(row->name, sizeof(row->name), "%s", name);
	va_start(args, format);
	(void)vsnprintf(row->value, sizeof(row->value), format, args);
	va_end(args);
	row->pair.name = row->name;
	row->pair.value = row->value;
	status->pairs[status->count++] = &row->pair;
}

static void
status_add_identity(struct status *status, const struct kvp_node *node)
{
	char id[2 * KVP_ID_LEN + 1];

	for (size_t i = 0; i < KVP_ID_LEN; i++) {
		(void)snprintf(id + 2 * i, 3, "%02x", node->cfg.self.id[i]);
	}
	status_add(status, "kind", "node");
	status_add(status, "software", "kvpool " KVP_VERSION);
	status_add(status, "id", "%s", id);
	status_add(status, "incarnation", "%" PRIu64, node->cfg.self.incarnation);
	status_add(status, "name", "%s", node->cfg.self.name);
	status_add(status, "address", "%s", node->address);
	status_add(status, "local_address", "%s", node->local_address);
	status_add(status, "uptime_ms", "%" PRIu64,
		(uint64_t)((kvp_node_now(node) - node->opened_ns) / KVP_NS_PER_MS));
	status_add(status, "evict", "%s", node->cfg.evict->name);
	for (uint32_t i = 0; i < node->cfg.transport_count; i++) {
		char name[64];

		(void)snprintf(
			name, sizeof(name), "transport.%s", node->transports[i].xport->ops->name);
		status_add(status, name, "%s", node->transports[i].addr);
	}
}

static void
status_add_fences(struct status *status, const struct kvp_node *node)
{
	uint32_t listed = 0;

	for (uint32_t i = 0; i < node->owners_max && listed < STATUS_FENCES_MAX; i++) {
		const struct kvp_session *session = &node->sessions[i];
		char name[32];

		if (session->state != KVP_SESSION_FENCING) {
			continue;
		}
		listed++;
		(void)snprintf(name, sizeof(name), "fence.%u", session->owner);
		status_add(status, name, "%u slots for %" PRIu64 " ms",
			kvp_store_owner_slots(node->store, session->owner),
			(uint64_t)((kvp_node_now(node) - session->ended_ns) / KVP_NS_PER_MS));
	}
}

static void
status_fill(struct status *status, struct kvp_node *node)
{
	const struct kvp_metrics *metrics = node->cfg.metrics;
	const char *addr;
	char value[STATUS_VALUE_LEN];

	status_add_identity(status, node);
	for (uint32_t i = 0; kvp_announce_describe(node->announce, i, &addr, value, sizeof(value));
		i++) {
		char name[STATUS_NAME_LEN];

		(void)snprintf(name, sizeof(name), "meta.%.150s", addr);
		status_add(status, name, "%s", value);
	}
	if (node->ssd != NULL) {
		kvp_ssd_describe(node->ssd, value, sizeof(value));
		status_add(status, "ssd", "%s", value);
	}
	status_add_fences(status, node);
	if (metrics == NULL) {
		return;
	}
	kvp_node_metrics_set(node);
	for (size_t i = 0; i < metrics->count; i++) {
		status_add(status, metrics->desc[i].name, "%" PRIu64, kvp_metric_get(metrics, i));
	}
}

int
kvp_rpc_status(struct kvp_node *node, struct kvp_request *request)
{
	Kvp__StatusReply reply = KVP__STATUS_REPLY__INIT;
	struct status status = {
		.max = STATUS_ROWS_FIXED + STATUS_FENCES_MAX + node->cfg.meta_count +
		       KVP_NODE_METRIC_COUNT,
	};

	status.rows = calloc(status.max, sizeof(*status.rows));
	status.pairs = calloc(status.max, sizeof(*status.pairs));
	if (status.rows == NULL || status.pairs == NULL) {
		free(status.rows);
		free(status.pairs);
		return -ENOMEM;
	}
	status_fill(&status, node);
	reply.pairs = status.pairs;
	reply.n_pairs = status.count;
	kvp_node_reply(node, request->call, 0, &reply.base);
	free(status.rows);
	free(status.pairs);
	return 0;
}

int
kvp_rpc_ping(struct kvp_node *node, struct kvp_request *request)
{
	Kvp__PingReply reply = KVP__PING_REPLY__INIT;

	kvp_node_reply(node, request->call, 0, &reply.base);
	return 0;
}
