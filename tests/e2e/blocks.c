/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - an engine's stand-in for end-to-end tests: puts, gets or deletes numbered blocks of
 * mixed sizes through the public API, checks every byte, prints one line of JSON.
 */
#include "bench/fill.h"
#include "hal/base/opt.h"

#include <kvpool/kvpool.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH     16u
#define SIZES_MAX 16u
#define SEGS      3u

extern char **environ;

static const struct kvp_opt_desc opts_desc[] = {
	{"meta", KVP_OPT_STRING, "", NULL, "metadata servers"},
	{"node", KVP_OPT_STRING, "", NULL, "home node"},
	{"transport", KVP_OPT_STRING, "auto", NULL, "of the client"},
	{"first", KVP_OPT_UINT, "0", "0..1000000", "number of the first block"},
	{"count", KVP_OPT_UINT, "1", "1..1000000", "blocks"},
	{"sizes", KVP_OPT_STRING, "65536", NULL, "bytes, comma separated, taken in turn"},
	{"writer", KVP_OPT_UINT, "1", NULL, "put: who writes"},
	{"number", KVP_OPT_UINT, "0", NULL, "put: of this put; get: the one expected, 0: any"},
	{"deadline", KVP_OPT_TIME, "10s", NULL, "of one batch"},
};

struct counts {
	uint64_t ok, exists, miss, errors, wrong, old, local, remote, unindexed, ssd;
	int first_error;
};

struct run {
	enum kvp_opcode op;
	const struct kvp_opts *opts;
	struct kvp_client *client;
	struct kvp_namespace ns;
	uint64_t sizes[SIZES_MAX];
	uint32_t size_count;
	uint64_t size_max;
	uint8_t *buf;
	struct counts counts;
};

static uint64_t
block_len(const struct run *run, uint64_t block)
{
	return run->sizes[block % run->size_count];
}

static int
sizes_parse(struct run *run, const char *text)
{
	char *end;

	while (run->size_count < SIZES_MAX) {
		uint64_t size = strtoull(text, &end, 10);

		if (end == text || size < KVP_FILL_LEN_MIN) {
			return -1;
		}
		run->sizes[run->size_count++] = size;
		run->size_max = size > run->size_max ? size : run->size_max;
		if (*end == '\0') {
			return 0;
		}
		text = end + 1;
	}
	return -1;
}

/* Three segments of odd lengths that are contiguous here, so that checking stays simple. */
static void
segs_make(struct iovec segs[SEGS], uint8_t *buf, uint64_t len)
{
	uint64_t a = len / 3 | 1;
	uint64_t b = len / 5 | 1;

	segs[0] = (struct iovec){buf, a};
	segs[1] = (struct iovec){buf + a, b};
	segs[2] = (struct iovec){buf + a + b, len - a - b};
}

static void
item_count(struct run *run, const struct kvp_item *item, const uint8_t *buf, uint64_t block)
{
	struct counts *c = &run->counts;
	uint64_t number = kvp_opt_num(run->opts, "number");
	struct kvp_fill seen;

	if (item->status == -KVP_E_NOKEY) {
		c->miss++;
	} else if (item->status == -KVP_E_EXISTS) {
		c->exists++;
	} else if (item->status < 0) {
		c->errors++;
		c->first_error = c->first_error == 0 ? item->status : c->first_error;
	} else {
		c->ok++;
		c->local += item->local;
		c->remote += !item->local;
		c->ssd += item->medium == KVP_MEDIUM_SSD;
		if (run->op == KVP_GET) {
			c->wrong += kvp_fill_check(buf, block_len(run, block), block, &seen);
			c->old += number != 0 && seen.number != number;
		}
	}
}

static void
batch_run(struct run *run, uint64_t first, uint32_t count)
{
	struct kvp_item items[BATCH];
	struct iovec segs[BATCH][SEGS];
	char keys[BATCH][32];
	struct kvp_batch batch = {
		.op = run->op, .items = items, .item_count = count, .ns = &run->ns};
	struct kvp_completion done;
	int ret;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t *buf = run->buf + i * run->size_max;
		uint64_t len = block_len(run, first + i);

		segs_make(segs[i], buf, len);
		items[i] = (struct kvp_item){
			.key = keys[i],
			.key_len = (uint8_t)snprintf(
				keys[i], sizeof(keys[i]), "block-%" PRIu64, first + i),
			.segs = segs[i],
			.seg_count = run->op == KVP_DELETE ? 0 : SEGS,
		};
		if (run->op == KVP_PUT) {
			kvp_fill_write(buf, len,
				&(struct kvp_fill){first + i, kvp_opt_num(run->opts, "writer"),
					kvp_opt_num(run->opts, "number")});
		} else {
			memset(buf, 0xa5, len);
		}
	}
	ret = kvp_run(run->client, &batch, &done);
	run->counts.unindexed += ret == 0 && (done.flags & KVP_DONE_UNINDEXED) != 0;
	for (uint32_t i = 0; i < count; i++) {
		items[i].status = ret < 0 ? ret : items[i].status;
		item_count(run, &items[i], run->buf + i * run->size_max, first + i);
	}
}

static int
blocks_run(struct run *run)
{
	struct kvp_client_options options = {
		.struct_size = sizeof(options),
		.meta = kvp_opt_str(run->opts, "meta"),
		.node = kvp_opt_str(run->opts, "node"),
		.transport = kvp_opt_str(run->opts, "transport"),
		.name = "blocks",
		.deadline_ms = (uint32_t)kvp_opt_num(run->opts, "deadline"),
	};
	struct kvp_namespace_desc desc = {
		.struct_size = sizeof(desc), .model = "blocks", .block_tokens = 16};
	uint64_t first = kvp_opt_num(run->opts, "first");
	uint64_t count = kvp_opt_num(run->opts, "count");
	int ret = kvp_client_open(&options, &run->client);

	if (ret == 0) {
		ret = kvp_memory_register(run->client, run->buf, BATCH * run->size_max);
	}
	if (ret == 0) {
		ret = kvp_namespace_make(&desc, &run->ns);
	}
	if (ret < 0) {
		fprintf(stderr, "blocks: %s\n", kvp_strerror(ret));
		return ret;
	}
	for (uint64_t i = 0; i < count; i += BATCH) {
		batch_run(run, first + i, count - i < BATCH ? (uint32_t)(count - i) : BATCH);
	}
	kvp_client_close(run->client);
	return 0;
}

static int
op_parse(const char *text, enum kvp_opcode *ret_op)
{
	static const struct {
		const char *name;
		enum kvp_opcode op;
	} ops[] = {{"put", KVP_PUT}, {"get", KVP_GET}, {"delete", KVP_DELETE}};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(text, ops[i].name) == 0) {
			*ret_op = ops[i].op;
			return 0;
		}
	}
	return -1;
}

int
main(int argc, char **argv)
{
	struct kvp_opts opts;
	struct run run = {.opts = &opts};
	const struct counts *c = &run.counts;
	int status = 2;

	if (kvp_opts_load(&opts, opts_desc, sizeof(opts_desc) / sizeof(opts_desc[0]), argc, argv,
		    environ, NULL) < 0 ||
		opts.arg_count != 1 || op_parse(opts.args[0], &run.op) < 0 ||
		sizes_parse(&run, kvp_opt_str(&opts, "sizes")) < 0) {
		fprintf(stderr, "blocks: put|get|delete [options]: %s\n", opts.error);
	} else if ((run.buf = malloc(BATCH * run.size_max)) != NULL && blocks_run(&run) == 0) {
		printf("{\"ok\":%" PRIu64 ",\"exists\":%" PRIu64 ",\"miss\":%" PRIu64
		       ",\"errors\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"old\":%" PRIu64
		       ",\"local\":%" PRIu64 ",\"remote\":%" PRIu64 ",\"unindexed\":%" PRIu64
		       ",\"ssd\":%" PRIu64 ",\"first_error\":\"%s\"}\n",
			c->ok, c->exists, c->miss, c->errors, c->wrong, c->old, c->local, c->remote,
			c->unindexed, c->ssd, kvp_strerrorname(c->first_error));
		status = 0;
	}
	free(run.buf);
	kvp_opts_free(&opts);
	return status;
}
