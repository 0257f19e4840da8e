/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - how a client is put together and taken apart: with its own loop and thread, or with the
 * parts of somebody else (internal.h).
 *
 * The end goes in the order of who uses whom: queues (their operations end, their transports
 * drain), the loop (links, calls), then what both used.
 */
#include "client/cq.h"
#include "client/leases.h"
#include "client/peers.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/os/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FORK_PAGE_LEN 4096u

static void
fork_page_make(struct kvp_client *client)
{
	uint8_t *page = mmap(
		NULL, FORK_PAGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	client->pid = getpid();
	if (page == MAP_FAILED) {
		return; /* the pid is compared instead */
	}
	if (madvise(page, FORK_PAGE_LEN, MADV_WIPEONFORK) < 0) {
		munmap(page, FORK_PAGE_LEN);
		return;
	}
	*page = 1;
	client->fork_page = page;
}

bool
kvp_client_forked(const struct kvp_client *client)
{
	return client->fork_page != NULL ? *client->fork_page == 0 : getpid() != client->pid;
}

/* --- making
 * ---------------------------------------------------------------------------------------- */

static int
transport_check(const struct kvp_client *client, const struct kvp_client_parts *parts)
{
	char known[128] = "auto";
	const char *name = client->set.transport;

	if (name[0] == '\0') {
		return 0;
	}
	for (uint32_t i = 0; i < parts->xport_count; i++) {
		size_t len = strlen(known);

		if (strcmp(parts->xports[i]->name, name) == 0) {
			return 0;
		}
		snprintf(known + len, sizeof(known) - len, ", %s", parts->xports[i]->name);
	}
	kvp_error(client->log, "option transport is '%s': accepted are %s", name, known);
	return -KVP_E_CONFIG;
}

/* Opens what there is; a transport that cannot be opened here is done without. */
static void
parents_open(struct kvp_client *client, const struct kvp_client_parts *parts)
{
	const struct kvp_xport_cfg cfg = {.env = client->env, .log = client->log};

	for (uint32_t i = 0; i < parts->xport_count; i++) {
		const struct kvp_xport_ops *ops = parts->xports[i];
		int err;

		if (client->parent_count == KVP_TRANSPORTS_MAX ||
			(client->set.transport[0] != '\0' &&
				strcmp(client->set.transport, ops->name) != 0)) {
			continue;
		}
		err = ops->open(&cfg, &client->parents[client->parent_count]);
		if (err < 0) { /* bad news only for who wants just this one */
			KVP_LOG_AT(client->log,
				client->set.transport[0] != '\0' ? KVP_LOG_WARN : KVP_LOG_INFO,
				"transport %s is not usable: %s", ops->name, kvp_err_str(err));
			continue;
		}
		client->parent_count++;
	}
}

static void
parents_close(struct kvp_client *client)
{
	for (uint32_t i = 0; i < client->parent_count; i++) {
		client->parents[i]->ops->close(client->parents[i]);
	}
}

/* What is left when queues and loop have ended. */
static void
client_free(struct kvp_client *client, bool loop_closed)
{
	kvp_control_close(client->control, loop_closed);
	kvp_leases_close(client->leases);
	kvp_peers_close(client->peers);
	kvp_loc_cache_close(client->cache);
	kvp_regions_close(client->regions);
	parents_close(client);
	if (client->fork_page != NULL) {
		munmap((void *)(uintptr_t)client->fork_page, FORK_PAGE_LEN);
	}
	pthread_mutex_destroy(&client->lock);
	pthread_mutex_destroy(&client->run_lock);
	free(client);
}

static struct kvp_client *
client_new(void)
{
	struct kvp_client *client = calloc(1, sizeof(*client));

	if (client != NULL) {
		pthread_mutex_init(&client->lock, NULL);
		pthread_mutex_init(&client->run_lock, NULL);
		kvp_list_init(&client->cqs);
	}
	return client;
}

/* Everything but the thread; on failure the caller frees what was made. */
static int
client_init(struct kvp_client *client, const struct kvp_client_parts *parts)
{
	uint64_t seed;
	int err = transport_check(client, parts);

	if (err < 0) {
		return err;
	}
	client->env = parts->env;
	client->rpc = parts->rpc;
	memcpy(client->host_id, parts->host_id, KVP_ID_LEN);
	fork_page_make(client);
	parents_open(client, parts);
	parts->env->random(parts->env, &seed, sizeof(seed));
	err = kvp_regions_open(client->parents, client->parent_count, &client->regions);
	if (err == 0) {
		err = kvp_loc_cache_open(client->set.cache_locations, seed, &client->cache);
	}
	if (err == 0) {
		err = kvp_peers_open(client, &client->peers);
	}
	if (err == 0) {
		err = kvp_leases_open(client, &client->leases);
	}
	if (err == 0) {
		err = kvp_control_open(client, &client->control);
	}
	return err;
}

int
kvp_client_open_with(const struct kvp_client_options *options, const struct kvp_client_parts *parts,
	struct kvp_client **ret_client)
{
	struct kvp_client *client = client_new();
	int err;

	if (client == NULL) {
		return -ENOMEM;
	}
	client->log = parts->log;
	err = kvp_settings_make(options, client->log, &client->set);
	if (err == 0) {
		err = client_init(client, parts);
	}
	if (err < 0) {
		client_free(client, false);
		return err;
	}
	*ret_client = client;
	return 0;
}

/* --- with a loop of its own
 * ------------------------------------------------------------------------ */

static void
user_log(void *arg, enum kvp_log_level level, const char *line)
{
	struct kvp_client *client = arg;

	client->user_log(client->user_log_arg, (enum kvp_log_severity)level, line);
}

_Static_assert(
	(int)KVP_LOG_ERROR == (int)KVP_LOG_IS_ERROR && (int)KVP_LOG_DEBUG == (int)KVP_LOG_IS_DEBUG,
	"levels and severities are the same numbers");

static void
log_init(struct kvp_client *client, const struct kvp_client_options *options)
{
	client->own_log.level = KVP_LOG_WARN;
	client->own_log.sink = kvp_log_stderr;
	if (options != NULL && options->struct_size >= sizeof(*options) && options->log != NULL) {
		client->user_log = options->log;
		client->user_log_arg = options->log_arg;
		client->own_log.level = KVP_LOG_DEBUG;
		client->own_log.sink = user_log;
		client->own_log.arg = client;
	}
	client->log = &client->own_log;
}

static void
loop_run(void *arg)
{
	struct kvp_rpc *rpc = arg;

	rpc->ops->run(rpc);
}

static int
loop_open(struct kvp_client *client, struct kvp_rpc **ret_rpc)
{
	const struct kvp_env *env = kvp_env_real();
	struct kvp_rpc_cfg cfg = {.env = env, .log = client->log};

	env->random(env, cfg.self.id, sizeof(cfg.self.id));
	cfg.self.incarnation = 1; /* of an id that is new each time */
	cfg.self.kind = KVP_PEER_CLIENT;
	snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", client->set.name);
	return kvp_rpc_uv_open(&cfg, ret_rpc);
}

int
kvp_client_open(const struct kvp_client_options *options, struct kvp_client **ret_client)
{
	struct kvp_client *client = client_new();
	struct kvp_client_parts parts = {.env = kvp_env_real()};
	size_t xport_count;
	int err;

	if (client == NULL) {
		return -ENOMEM;
	}
	log_init(client, options);
	parts.log = client->log;
	parts.xports = kvp_xport_all(&xport_count);
	parts.xport_count = (uint32_t)xport_count;
	if (kvp_host_id(parts.host_id) < 0) {
		memset(parts.host_id, 0, KVP_ID_LEN); /* no node is on this host then */
	}
	err = kvp_settings_make(options, client->log, &client->set);
	if (err == 0) {
		err = loop_open(client, &parts.rpc);
	}
	if (err < 0) {
		client_free(client, false);
		return err;
	}
	err = client_init(client, &parts);
	if (err == 0) {
		err = kvp_thread_start("kvpool-loop", loop_run, parts.rpc, &client->thread);
	}
	if (err < 0) {
		if (client->control != NULL) {
			kvp_control_end(client->control);
		}
		parts.rpc->ops->close(parts.rpc);
		client_free(client, true);
		return err;
	}
	*ret_client = client;
	return 0;
}

/* --- the end
 * ------------------------------------------------------------------------------------------ */

/* Ends all queues. False: one has memory that a transport may still write. */
static bool
client_end_queues(struct kvp_client *client)
{
	struct kvp_list *node;
	bool ended = true;

	atomic_store(&client->closing, true);
	kvp_list_for_each (pos, &client->cqs) {
		struct kvp_cq *cq = kvp_container_of(pos, struct kvp_cq, link);

		pthread_mutex_lock(&cq->lock);
		kvp_cq_cancel(cq, -KVP_E_CANCELLED, true);
		pthread_mutex_unlock(&cq->lock);
	}
	while ((node = kvp_list_pop_front(&client->cqs)) != NULL) {
		ended = kvp_cq_free(kvp_container_of(node, struct kvp_cq, link)) && ended;
	}
	return ended;
}

struct client_stop {
	struct kvp_mail mail;
	struct kvp_client *client;
};

static void
client_stop(struct kvp_mail *mail)
{
	struct kvp_client *client = kvp_container_of(mail, struct client_stop, mail)->client;

	kvp_control_end(client->control);
	client->rpc->ops->stop(client->rpc);
}

void
kvp_client_close(struct kvp_client *client)
{
	struct client_stop stop = {.mail.fn = client_stop, .client = client};
	bool ended;

	if (client == NULL || kvp_client_forked(client)) {
		return;
	}
	kvp_assert(client->thread != NULL);
	ended = client_end_queues(client);
	kvp_control_mail(client->control, &stop.mail);
	kvp_thread_join(client->thread);
	client->rpc->ops->close(client->rpc);
	if (ended) {
		client_free(client, true);
	}
}

void
kvp_client_close_with(struct kvp_client *client)
{
	bool ended;

	if (client == NULL) {
		return;
	}
	ended = client_end_queues(client);
	kvp_control_drain(client->control);
	kvp_control_end(client->control);
	if (ended) {
		client_free(client, false);
	}
}
