/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - one client: what its queues and its loop share.
 *
 * THREADS Two sides. The loop's side (control.h, tie.h, nodes.c, metas.c) runs on the loop's thread
 *         and owns every rpc object. The queues' side (cq.h, chan.h, unit.h, op*.c) runs on
 * whatever thread is inside a call on that queue, under the queue's lock. They meet in three places
 * only: mail to the loop and answers to a queue (control.h), and the published part of the node
 * table (peers.h). LOCKS   Order: run_lock, a queue's lock, then one of: client->lock, peers' lock,
 * a port's lock, the control's mailbox. None of the last four is held while another is taken.
 */
#ifndef KVP_CLIENT_CLIENT_H
#define KVP_CLIENT_CLIENT_H

#include "client/include/kvpool/kvpool.h"
#include "client/internal.h"
#include "client/loc_cache.h"
#include "client/region.h"
#include "hal/base/list.h"
#include "hal/os/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define KVP_METAS_MAX 16

/* In the order of struct kvp_client_stats. */
enum kvp_stat {
	KVP_STAT_GETS,
	KVP_STAT_GET_HITS,
	KVP_STAT_GET_MISSES,
	KVP_STAT_GET_ERRORS,
	KVP_STAT_PUTS,
	KVP_STAT_PUT_STORED,
	KVP_STAT_PUT_EXISTS,
	KVP_STAT_PUT_ERRORS,
	KVP_STAT_BYTES_READ_LOCAL,
	KVP_STAT_BYTES_READ_REMOTE,
	KVP_STAT_BYTES_WRITTEN_LOCAL,
	KVP_STAT_BYTES_WRITTEN_REMOTE,
	KVP_STAT_STALE,
	KVP_STAT_BAD_CHECKSUMS,
	KVP_STAT_LOOKUPS,
	KVP_STAT_CACHE_HITS,
	KVP_STAT_RECONNECTS,
	KVP_STAT_UNINDEXED,
	KVP_STAT_COUNT
};

/* The options after defaults and checks. */
struct kvp_settings {
	char metas[KVP_METAS_MAX][KVP_ADDR_LEN_MAX];
	uint32_t meta_count;
	char node[KVP_ADDR_LEN_MAX];      /* empty: no home node */
	char transport[KVP_NAME_LEN_MAX]; /* empty: any */
	char name[KVP_NAME_LEN_MAX];
	uint32_t deadline_ms;
	uint32_t spin_us;
	uint32_t cache_locations;
	uint32_t verify;
	uint32_t checksum;
};

struct kvp_control;
struct kvp_leases;
struct kvp_peers;

struct kvp_client {
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct kvp_rpc *rpc;
	struct kvp_settings set;
	uint8_t host_id[KVP_ID_LEN];

	/* Parent transports: memory is registered here; each queue opens its own that share it. */
	struct kvp_xport *parents[KVP_TRANSPORTS_MAX];
	uint32_t parent_count;
	struct kvp_regions *regions;
	struct kvp_loc_cache *cache;
	struct kvp_peers *peers;
	struct kvp_leases *leases;
	struct kvp_control *control;

	_Atomic bool closing;
	const volatile uint8_t *fork_page; /* 1; zeroed by the kernel in a forked child */
	pid_t pid;                         /* for kernels that cannot do that */

	pthread_mutex_t lock; /* cqs */
	struct kvp_list cqs;

	pthread_mutex_t run_lock; /* the blocking calls take turns */
	struct kvp_cq *run_cq;    /* made by the first of them */

	_Atomic uint64_t stats[KVP_STAT_COUNT];

	/* Made by kvp_client_open() only; with internal.h they are the caller's. */
	struct kvp_thread *thread;
	struct kvp_log own_log;
	void (*user_log)(void *arg, enum kvp_log_severity severity, const char *line);
	void *user_log_arg;
};

static inline void
kvp_client_count(struct kvp_client *client, enum kvp_stat stat, uint64_t n)
{
	atomic_fetch_add_explicit(&client->stats[stat], n, memory_order_relaxed);
}

/* True in a child of the process that opened the client. */
bool kvp_client_forked(const struct kvp_client *client);

/* options.c: checks options, fills in defaults and environment. -KVP_E_CONFIG with a log line. */
int kvp_settings_make(const struct kvp_client_options *options, const struct kvp_log *log,
	struct kvp_settings *ret_settings);

#endif /* KVP_CLIENT_CLIENT_H */
