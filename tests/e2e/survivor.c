/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survivor.c - an engine that lives through the deaths of its servers. It keeps one client open and
 * does what its standard input says, a line a command, one line of JSON an answer:
 *
 *   load         puts new numbered blocks and gets some of the last ones, until a line comes
 *   pause        ends that
 *   acked FILE   writes the numbers of all blocks whose put was acknowledged, one a line
 *   check FILE   gets the blocks of FILE and compares every byte
 */
#include "bench/fill.h"
#include "hal/base/opt.h"
#include "hal/os/env.h"

#include <kvpool/kvpool.h>

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH      8u
#define SIZES_MAX  8u
#define BLOCKS_MAX 4000000u
#define RECENT     256u /* blocks of which load gets some */

extern char **environ;

static const struct kvp_opt_desc opts_desc[] = {
	{"meta", KVP_OPT_STRING, "", NULL, "metadata servers"},
	{"node", KVP_OPT_STRING, "", NULL, "home node"},
	{"transport", KVP_OPT_STRING, "auto", NULL, "of the client"},
	{"first", KVP_OPT_UINT, "0", "0..3000000", "number of the first block"},
	{"sizes", KVP_OPT_STRING, "65536", NULL, "bytes, comma separated, taken in turn"},
	{"deadline", KVP_OPT_TIME, "500ms", NULL, "of one batch"},
};

struct survivor {
	const struct kvp_opts *opts;
	struct kvp_client *client;
	struct kvp_namespace ns;
	uint64_t sizes[SIZES_MAX];
	uint32_t size_count;
	uint64_t size_max;
	uint8_t *buf;
	bool *acked; /* BLOCKS_MAX */
	uint64_t first;
	uint64_t next;
	uint64_t puts, gets, misses, errors, wrong;
};

static uint64_t
block_len(const struct survivor *s, uint64_t block)
{
	return s->sizes[block % s->size_count];
}

static int
sizes_parse(struct survivor *s, const char *text)
{
	char *end;

	while (s->size_count < SIZES_MAX) {
		uint64_t size = strtoull(text, &end, 10);

		if (end == text || size < KVP_FILL_LEN_MIN) {
			return -1;
		}
		s->sizes[s->size_count++] = size;
		s->size_max = size > s->size_max ? size : s->size_max;
		if (*end == '\0') {
			return 0;
		}
		text = end + 1;
	}
	return -1;
}

/* Runs one batch; items keep their status, the bytes are in buf. */
static void
batch_run(struct survivor *s, enum kvp_opcode op, const uint64_t *blocks, uint32_t count,
	struct kvp_item items[BATCH])
{
	struct iovec segs[BATCH];
	char keys[BATCH][32];
	struct kvp_batch batch = {.op = op, .items = items, .item_count = count, .ns = &s->ns};
	struct kvp_completion done;
	int ret;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t *buf = s->buf + i * s->size_max;
		uint64_t len = block_len(s, blocks[i]);

		segs[i] = (struct iovec){buf, len};
		items[i] = (struct kvp_item){
			.key = keys[i],
			.key_len = (uint8_t)snprintf(
				keys[i], sizeof(keys[i]), "block-%" PRIu64, blocks[i]),
			.segs = &segs[i],
			.seg_count = 1,
		};
		if (op == KVP_PUT) {
			kvp_fill_write(buf, len, &(struct kvp_fill){blocks[i], 1, 1});
		} else {
			memset(buf, 0xa5, len);
		}
	}
	ret = kvp_run(s->client, &batch, &done);
	for (uint32_t i = 0; i < count; i++) {
		items[i].status = ret < 0 ? ret : items[i].status;
	}
}

/* True when the bytes are right. */
static bool
bytes_right(const struct survivor *s, uint32_t idx, uint64_t block)
{
	struct kvp_fill seen;

	return kvp_fill_check(s->buf + idx * s->size_max, block_len(s, block), block, &seen) == 0;
}

static void
load_put(struct survivor *s)
{
	struct kvp_item items[BATCH];
	uint64_t blocks[BATCH];

	for (uint32_t i = 0; i < BATCH; i++) {
		blocks[i] = s->next++;
	}
	batch_run(s, KVP_PUT, blocks, BATCH, items);
	for (uint32_t i = 0; i < BATCH; i++) {
		bool ok = items[i].status >= 0 || items[i].status == -KVP_E_EXISTS;

		s->acked[blocks[i]] = ok;
		s->puts += ok;
		s->errors += !ok;
	}
}

static void
load_get(struct survivor *s)
{
	uint64_t recent = s->next - s->first < RECENT ? s->next - s->first : RECENT;
	struct kvp_item items[BATCH];
	uint64_t blocks[BATCH];

	for (uint32_t i = 0; i < BATCH; i++) {
		uint64_t number;

		kvp_env_real()->random(kvp_env_real(), &number, sizeof(number));
		blocks[i] = s->next - 1 - number % recent;
	}
	batch_run(s, KVP_GET, blocks, BATCH, items);
	for (uint32_t i = 0; i < BATCH; i++) {
		if (items[i].status >= 0) {
			s->gets++;
			s->wrong += !bytes_right(s, i, blocks[i]);
		} else if (items[i].status == -KVP_E_NOKEY) {
			s->misses++;
		} else {
			s->errors++;
		}
	}
}

static bool
line_waits(void)
{
	struct pollfd event = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&event, 1, 0) != 0;
}

static void
load(struct survivor *s)
{
	do {
		load_put(s);
		load_get(s);
	} while (!line_waits() && s->next < BLOCKS_MAX - BATCH);
}

static void
report(const struct survivor *s)
{
	printf("{\"puts\":%" PRIu64 ",\"gets\":%" PRIu64 ",\"misses\":%" PRIu64
	       ",\"errors\":%" PRIu64 ",\"wrong\":%" PRIu64 "}\n",
		s->puts, s->gets, s->misses, s->errors, s->wrong);
}

static void
acked_write(const struct survivor *s, const char *path)
{
	FILE *out = fopen(path, "w");

	for (uint64_t i = s->first; out != NULL && i < s->next; i++) {
		if (s->acked[i]) {
			(void)fprintf(out, "%" PRIu64 "\n", i);
		}
	}
	printf("{\"ok\":%s}\n", out != NULL && fclose(out) == 0 ? "true" : "false");
}

struct check {
	uint64_t hit, miss, errors, wrong, remote;
	uint64_t first_hit_ns;
	int first_error;
};

static void
check_batch(struct survivor *s, const uint64_t *blocks, uint32_t count, struct check *check)
{
	struct kvp_item items[BATCH];

	batch_run(s, KVP_GET, blocks, count, items);
	for (uint32_t i = 0; i < count; i++) {
		if (items[i].status == -KVP_E_NOKEY) {
			check->miss++;
		} else if (items[i].status < 0) {
			check->errors++;
			check->first_error = items[i].status;
		} else {
			check->hit++;
			check->remote += !items[i].local;
			check->wrong += !bytes_right(s, i, blocks[i]);
			if (check->first_hit_ns == 0) {
				check->first_hit_ns = kvp_now_ns(kvp_env_real());
			}
		}
	}
}

static void
check_file(struct survivor *s, const char *path)
{
	FILE *in = fopen(path, "r");
	uint64_t blocks[BATCH];
	struct check check = {0};
	uint32_t count = 0;

	while (in != NULL && fscanf(in, "%" SCNu64, &blocks[count]) == 1) {
		if (++count == BATCH) {
			check_batch(s, blocks, count, &check);
			count = 0;
		}
	}
	if (count > 0) {
		check_batch(s, blocks, count, &check);
	}
	if (in != NULL) {
		(void)fclose(in); /* read only */
	}
	printf("{\"hit\":%" PRIu64 ",\"miss\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"wrong\":%" PRIu64
	       ",\"remote\":%" PRIu64 ",\"first_hit\":%.6f,\"first_error\":\"%s\"}\n",
		check.hit, check.miss, check.errors, check.wrong, check.remote,
		(double)check.first_hit_ns / 1e9, kvp_strerrorname(check.first_error));
}

static void
serve(struct survivor *s)
{
	char line[512];

	while (fgets(line, sizeof(line), stdin) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "load") == 0) {
			load(s);
		} else if (strncmp(line, "acked ", 6) == 0) {
			acked_write(s, line + 6);
		} else if (strncmp(line, "check ", 6) == 0) {
			check_file(s, line + 6);
		} else {
			report(s);
		}
	}
}

static int
client_open(struct survivor *s)
{
	struct kvp_client_options options = {
		.struct_size = sizeof(options),
		.meta = kvp_opt_str(s->opts, "meta"),
		.node = kvp_opt_str(s->opts, "node"),
		.transport = kvp_opt_str(s->opts, "transport"),
		.name = "survivor",
		.deadline_ms = (uint32_t)kvp_opt_num(s->opts, "deadline"),
	};
	struct kvp_namespace_desc desc = {
		.struct_size = sizeof(desc), .model = "blocks", .block_tokens = 16};
	int ret = kvp_client_open(&options, &s->client);

	if (ret == 0) {
		ret = kvp_memory_register(s->client, s->buf, BATCH * s->size_max);
	}
	if (ret == 0) {
		ret = kvp_namespace_make(&desc, &s->ns);
	}
	if (ret < 0) {
		fprintf(stderr, "survivor: %s\n", kvp_strerror(ret));
	}
	return ret;
}

int
main(int argc, char **argv)
{
	struct kvp_opts opts;
	struct survivor s = {.opts = &opts};
	int status = 2;

	(void)setvbuf(stdin, NULL, _IONBF, 0); /* so that poll sees what is left */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (kvp_opts_load(&opts, opts_desc, sizeof(opts_desc) / sizeof(opts_desc[0]), argc, argv,
		    environ, NULL) < 0 ||
		sizes_parse(&s, kvp_opt_str(&opts, "sizes")) < 0) {
		fprintf(stderr, "survivor: [options]: %s\n", opts.error);
		kvp_opts_free(&opts);
		return status;
	}
	s.first = kvp_opt_num(&opts, "first");
	s.next = s.first;
	s.buf = malloc(BATCH * s.size_max);
	s.acked = calloc(BLOCKS_MAX, sizeof(s.acked[0]));
	if (s.buf != NULL && s.acked != NULL && client_open(&s) == 0) {
		serve(&s);
		kvp_client_close(s.client);
		status = 0;
	}
	free(s.acked);
	free(s.buf);
	kvp_opts_free(&opts);
	return status;
}
