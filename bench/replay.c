/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - workers take requests in order from one counter; each has clients of its own, as an
 * engine process would. Time spent making and checking bytes is not counted.
 */
#include "bench/replay.h"

#include "bench/fill.h"
#include "hal/os/env.h"
#include "hal/os/thread.h"

#include <kvpool/kvpool.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define WINDOW_LEN (32u << 20) /* bytes of blocks in memory at a time, per worker */

struct replay {
	const struct kvp_replay_cfg *cfg;
	const struct kvp_trace *trace;
	struct kvp_namespace ns;
	_Atomic uint32_t next; /* request */
	_Atomic uint32_t done; /* requests */
	_Atomic uint32_t workers_left;
	_Atomic bool stop;
	int done_fd; /* eventfd: the last worker ended */
};

struct worker {
	struct replay *replay;
	struct kvp_thread *thread;
	uint32_t number;
	struct kvp_client *prefill;
	struct kvp_client *decode; /* NULL: none */
	uint8_t *buf;
	size_t buf_len;
	uint32_t window; /* blocks that fit */
	uint8_t (*keys)[KVP_CHAIN_KEY_LEN];
	struct iovec *segs;
	struct kvp_item *items;
	uint64_t puts;
	int status;
	struct kvp_replay_stats stats;
};

static uint64_t
now_ns(void)
{
	return kvp_now_ns(kvp_env_real());
}

static uint64_t
key_number(const uint8_t key[KVP_CHAIN_KEY_LEN])
{
	uint64_t number;

	memcpy(&number, key, sizeof(number));
	return number;
}

static void
error_count(struct worker *w, int status)
{
	w->stats.errors++;
	if (w->stats.first_error == 0) {
		w->stats.first_error = status;
	}
}

/* Items [first, first+count) of the request at hand; segments are the window, in order. */
static void
items_make(struct worker *w, uint32_t first, uint32_t count, bool data)
{
	const struct kvp_replay_cfg *cfg = w->replay->cfg;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t block = first + i;

		w->segs[i] = (struct iovec){
			.iov_base = w->buf + (size_t)i * cfg->block_bytes,
			.iov_len = cfg->block_bytes,
		};
		w->items[i] = (struct kvp_item){
			.key = w->keys[block],
			.key_len = KVP_CHAIN_KEY_LEN,
			.segs = data ? &w->segs[i] : NULL,
			.seg_count = data ? 1 : 0,
			.parent = block > 0 ? w->keys[block - 1] : NULL,
			.parent_len = block > 0 ? KVP_CHAIN_KEY_LEN : 0,
			.position = block * cfg->block_tokens,
			.tokens = cfg->block_tokens,
		};
	}
}

/* Runs one batch over the items made; returns the completion, and the time it took. */
static struct kvp_completion
batch_run(struct worker *w, struct kvp_client *client, enum kvp_opcode op, uint32_t count,
	uint32_t flags, const struct kvp_trace_request *request, uint64_t *ret_ns)
{
	struct kvp_batch batch = {
		.op = op,
		.item_count = count,
		.items = w->items,
		.ns = &w->replay->ns,
		.context = {.conversation = request->conversation},
		.flags = flags,
	};
	struct kvp_completion completion = {0};
	uint64_t start = now_ns();
	int ret = kvp_run(client, &batch, &completion);

	*ret_ns = now_ns() - start;
	if (ret < 0 && completion.status == 0) {
		completion.status = ret;
	}
	if (completion.status < 0) {
		error_count(w, completion.status);
	}
	return completion;
}

static void
flow_add(struct kvp_replay_flow flow[KVP_REPLAY_MEDIA], const uint64_t blocks[KVP_REPLAY_MEDIA],
	uint64_t block_bytes, uint64_t ns)
{
	uint64_t all = blocks[0] + blocks[1];

	for (int m = 0; m < KVP_REPLAY_MEDIA && all > 0; m++) {
		flow[m].blocks += blocks[m];
		flow[m].bytes += blocks[m] * block_bytes;
		flow[m].busy_ns += ns * blocks[m] / all;
	}
}

/* Checks every byte of what a get delivered. Returns how many items hit. */
static uint32_t
get_check(struct worker *w, uint32_t first, uint32_t count, uint64_t ns)
{
	uint64_t block_bytes = w->replay->cfg->block_bytes;
	uint64_t blocks[KVP_REPLAY_MEDIA] = {0};
	uint32_t hits = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_item *item = &w->items[i];
		struct kvp_fill fill;

		if (item->status == 0) {
			hits++;
			blocks[item->local ? KVP_REPLAY_LOCAL : KVP_REPLAY_REMOTE]++;
			w->stats.wrong_bytes += kvp_fill_check(w->segs[i].iov_base, block_bytes,
				key_number(w->keys[first + i]), &fill);
		} else if (item->status != -KVP_E_NOKEY) {
			error_count(w, item->status);
		}
	}
	flow_add(w->stats.read, blocks, block_bytes, ns);
	return hits;
}

/* Gets blocks [0, count); with prefix it stops at the first miss. Returns how many hit. */
static uint32_t
chain_get(struct worker *w, struct kvp_client *client, const struct kvp_trace_request *request,
	uint32_t count, bool prefix, uint64_t *io_ns)
{
	uint32_t hits = 0;

	for (uint32_t first = 0; first < count; first += w->window) {
		uint32_t n = count - first < w->window ? count - first : w->window;
		struct kvp_completion completion;
		uint64_t ns;

		items_make(w, first, n, true);
		/* A get that says 0 without having written is to be seen. */
		memset(w->buf, 0xa5, (size_t)n * w->replay->cfg->block_bytes);
		completion = batch_run(
			w, client, KVP_GET, n, prefix ? KVP_BATCH_PREFIX : 0, request, &ns);
		*io_ns += ns;
		if (completion.status < 0) {
			break;
		}
		get_check(w, first, n, ns);
		hits += prefix ? completion.prefix : completion.ok_count;
		if (prefix && completion.prefix < n) {
			break;
		}
	}
	return hits;
}

static void
put_count(struct worker *w, uint32_t count, uint64_t ns)
{
	uint64_t blocks[KVP_REPLAY_MEDIA] = {0};

	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_item *item = &w->items[i];

		switch (item->status) {
		case 0:
			w->stats.blocks_put++;
			blocks[item->local ? KVP_REPLAY_LOCAL : KVP_REPLAY_REMOTE]++;
			break;
		case -KVP_E_EXISTS:
		case -KVP_E_IN_PROGRESS:
			w->stats.blocks_exist++;
			break;
		case -KVP_E_NO_SPACE:
		case -KVP_E_BUSY:
			w->stats.blocks_refused++;
			break;
		default:
			error_count(w, item->status);
			break;
		}
	}
	flow_add(w->stats.written, blocks, w->replay->cfg->block_bytes, ns);
}

static void
chain_put(struct worker *w, const struct kvp_trace_request *request, uint32_t first_block,
	uint64_t *io_ns)
{
	uint64_t block_bytes = w->replay->cfg->block_bytes;

	for (uint32_t first = first_block; first < request->block_count; first += w->window) {
		uint32_t left = request->block_count - first;
		uint32_t n = left < w->window ? left : w->window;
		struct kvp_completion completion;
		uint64_t ns;

		items_make(w, first, n, true);
		for (uint32_t i = 0; i < n; i++) {
			struct kvp_fill fill = {.key = key_number(w->keys[first + i]),
				.writer = w->number + 1,
				.number = ++w->puts};

			kvp_fill_write(w->segs[i].iov_base, block_bytes, &fill);
		}
		completion = batch_run(w, w->prefill, KVP_PUT, n, 0, request, &ns);
		*io_ns += ns;
		if (completion.status < 0) {
			break;
		}
		w->stats.unindexed += (completion.flags & KVP_DONE_UNINDEXED) != 0;
		put_count(w, n, ns);
	}
}

static uint32_t
chain_match(struct worker *w, const struct kvp_trace_request *request, uint64_t *io_ns)
{
	struct kvp_completion completion;
	uint64_t ns;

	items_make(w, 0, request->block_count, false);
	completion = batch_run(w, w->prefill, KVP_MATCH, request->block_count, 0, request, &ns);
	*io_ns += ns;
	return completion.status < 0 ? 0 : completion.prefix;
}

static void
request_play(struct worker *w, const struct kvp_trace_request *request)
{
	struct kvp_replay_stats *stats = &w->stats;
	uint32_t count = request->block_count;
	uint64_t io_ns = 0;
	uint64_t decode_ns = 0;
	uint64_t hit_tokens;
	uint32_t hits;

	if (count == 0) {
		return;
	}
	/* An id stands for its block and everything before it; as one-token blocks ids chain. */
	kvp_chain_keys(&w->replay->ns, NULL, request->ids, count, 1, w->keys);
	hits = chain_match(w, request, &io_ns);
	stats->blocks_matched += hits;
	hits = hits > 0 ? chain_get(w, w->prefill, request, hits, true, &io_ns) : 0;
	stats->blocks_hit += hits;
	if (hits < count) {
		chain_put(w, request, hits, &io_ns);
	}
	hit_tokens = (uint64_t)hits * w->replay->cfg->block_tokens;
	stats->hit_tokens +=
		hit_tokens < request->input_tokens ? hit_tokens : request->input_tokens;
	stats->input_tokens += request->input_tokens;
	stats->requests++;
	kvp_hist_add(&stats->request_ns, io_ns);
	if (w->decode != NULL) {
		hits = chain_get(w, w->decode, request, count, false, &decode_ns);
		stats->decode_hits += hits;
		stats->decode_misses += count - hits;
		kvp_hist_add(&stats->decode_ns, decode_ns);
	}
}

static void
worker_main(void *arg)
{
	struct worker *w = arg;
	struct replay *replay = w->replay;

	while (!atomic_load(&replay->stop)) {
		uint32_t idx = atomic_fetch_add(&replay->next, 1);

		if (idx >= replay->trace->request_count) {
			break;
		}
		request_play(w, &replay->trace->requests[idx]);
		atomic_fetch_add(&replay->done, 1);
	}
	if (atomic_fetch_sub(&replay->workers_left, 1) == 1) {
		(void)!write(replay->done_fd, &(uint64_t){1}, 8); /* an eventfd takes it */
	}
}

static int
client_start(struct worker *w, const char *role, const char *node, const char *transport,
	struct kvp_client **ret_client)
{
	const struct kvp_replay_cfg *cfg = w->replay->cfg;
	char name[32];
	struct kvp_client_options options = {
		.struct_size = sizeof(options),
		.meta = cfg->meta,
		.node = node,
		.transport = transport,
		.name = name,
		.deadline_ms = cfg->deadline_ms,
		.verify = cfg->verify,
	};
	int ret;

	snprintf(name, sizeof(name), "replay-%s-%u", role, w->number);
	ret = kvp_client_open(&options, ret_client);
	if (ret == 0) {
		ret = kvp_memory_register(*ret_client, w->buf, w->buf_len);
	}
	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: client %s: %s\n", name, kvp_strerror(ret));
	}
	return ret;
}

static uint32_t
blocks_max(const struct kvp_trace *trace)
{
	uint32_t max = 1;

	for (uint32_t i = 0; i < trace->request_count; i++) {
		max = trace->requests[i].block_count > max ? trace->requests[i].block_count : max;
	}
	return max;
}

static int
worker_open(struct worker *w, struct replay *replay, uint32_t number)
{
	const struct kvp_replay_cfg *cfg = replay->cfg;
	uint32_t chain = blocks_max(replay->trace);
	uint64_t window = WINDOW_LEN / cfg->block_bytes;
	int ret;

	w->replay = replay;
	w->number = number;
	window = window < 1 ? 1 : window;
	w->window = window < chain ? (uint32_t)window : chain;
	w->buf_len = (size_t)w->window * cfg->block_bytes;
	w->keys = calloc(chain, sizeof(*w->keys));
	w->segs = calloc(chain, sizeof(*w->segs));
	w->items = calloc(chain, sizeof(*w->items));
	w->buf = mmap(NULL, w->buf_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->buf == MAP_FAILED) {
		w->buf = NULL;
	}
	if (w->keys == NULL || w->segs == NULL || w->items == NULL || w->buf == NULL) {
		fprintf(stderr, "kvpool-perf: out of memory for worker %u\n", number);
		return -ENOMEM;
	}
	ret = client_start(w, "prefill", cfg->node, cfg->transport, &w->prefill);
	if (ret == 0 && cfg->decode_node != NULL) {
		ret = client_start(
			w, "decode", cfg->decode_node, cfg->decode_transport, &w->decode);
	}
	return ret;
}

static void
worker_close(struct worker *w)
{
	kvp_thread_join(w->thread);
	kvp_client_close(w->prefill);
	kvp_client_close(w->decode);
	free(w->keys);
	free(w->segs);
	free(w->items);
	if (w->buf != NULL) {
		munmap(w->buf, w->buf_len);
	}
}

/* Waits for the workers, with a line a second; a signal makes them stop after their request. */
static void
progress_watch(struct replay *replay, uint64_t start)
{
	struct pollfd fds[2] = {{.fd = replay->done_fd, .events = POLLIN}};
	sigset_t signals;
	sigset_t before;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	fds[1] = (struct pollfd){.fd = signalfd(-1, &signals, SFD_CLOEXEC), .events = POLLIN};
	while (poll(fds, 2, 1000) >= 0 && fds[0].revents == 0) {
		uint32_t done = atomic_load(&replay->done);
		double seconds = (double)(now_ns() - start) / 1e9;

		if (fds[1].revents != 0) {
			atomic_store(&replay->stop, true);
			fds[1].fd = -1; /* once is enough */
		}
		fprintf(stderr, "replay: %u of %u requests, %.1f s, %.0f requests/s\n", done,
			replay->trace->request_count, seconds, (double)done / seconds);
	}
	close(fds[1].fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int
workers_run(struct replay *replay, struct worker *workers, struct kvp_replay_stats *ret_stats,
	uint64_t *ret_wall_ns)
{
	uint32_t count = replay->cfg->clients;
	uint64_t start;
	int ret = 0;

	for (uint32_t i = 0; i < count && ret == 0; i++) {
		ret = worker_open(&workers[i], replay, i);
	}
	start = now_ns();
	replay->workers_left = count;
	for (uint32_t i = 0; i < count && ret == 0; i++) {
		ret = kvp_thread_start("replay", worker_main, &workers[i], &workers[i].thread);
		if (ret < 0) {
			/* Those that run must see the count go to zero, so that they can be waited
			 * for. */
			atomic_store(&replay->stop, true);
			fprintf(stderr, "kvpool-perf: thread: %s\n", kvp_strerror(ret));
		}
	}
	if (ret == 0) {
		progress_watch(replay, start);
		*ret_wall_ns = now_ns() - start;
	}
	for (uint32_t i = 0; i < count; i++) {
		worker_close(&workers[i]);
		kvp_replay_stats_add(ret_stats, &workers[i].stats);
	}
	return ret;
}

int
kvp_replay_run(
	const struct kvp_replay_cfg *cfg, struct kvp_replay_stats *ret_stats, uint64_t *ret_wall_ns)
{
	struct kvp_namespace_desc desc = {.struct_size = sizeof(desc),
		.model = "kvpool-perf-replay",
		.layout = "fill-1",
		.block_tokens = cfg->block_tokens,
		.epoch = cfg->block_bytes};
	struct kvp_trace trace;
	struct replay replay = {.cfg = cfg, .trace = &trace};
	struct worker *workers = NULL;
	char error[256];
	int ret = kvp_trace_load(cfg->trace_path, cfg->requests, &trace, error);

	if (ret < 0) {
		fprintf(stderr, "kvpool-perf: trace %s\n", error);
		return ret;
	}
	ret = kvp_namespace_make(&desc, &replay.ns);
	replay.done_fd = eventfd(0, EFD_CLOEXEC);
	workers = calloc(cfg->clients, sizeof(*workers));
	memset(ret_stats, 0, sizeof(*ret_stats));
	if (ret == 0 && (replay.done_fd < 0 || workers == NULL)) {
		ret = -ENOMEM;
	}
	if (ret == 0) {
		ret = workers_run(&replay, workers, ret_stats, ret_wall_ns);
	}
	free(workers);
	close(replay.done_fd);
	kvp_trace_free(&trace);
	return ret;
}
