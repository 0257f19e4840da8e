/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - reads JSON lines (jansson), through zlib, which reads plain files too. */
#include "bench/trace.h"

#include "hal/base/err.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LINE_LEN_MAX (4u << 20)
#define REQUESTS_MAX (64u << 20)

struct loader {
	struct kvp_trace *trace;
	uint32_t request_cap;
	uint64_t id_cap;
	const char *what; /* why a line was refused */
};

static int
number_get(
	struct loader *ld, const json_t *row, const char *name, uint64_t max, uint64_t *ret_value)
{
	const json_t *field = json_object_get(row, name);

	if (!json_is_integer(field) || json_integer_value(field) < 0 ||
		(uint64_t)json_integer_value(field) > max) {
		ld->what = name;
		return -EINVAL;
	}
	*ret_value = (uint64_t)json_integer_value(field);
	return 0;
}

static int
room_make(struct loader *ld, uint64_t ids)
{
	struct kvp_trace *trace = ld->trace;

	if (trace->request_count == ld->request_cap) {
		uint32_t cap = ld->request_cap == 0 ? 4096 : 2 * ld->request_cap;
		void *grown = realloc(trace->requests, cap * sizeof(trace->requests[0]));

		if (grown == NULL || cap > REQUESTS_MAX) {
			return -ENOMEM;
		}
		trace->requests = grown;
		ld->request_cap = cap;
	}
	while (trace->id_count + ids > ld->id_cap) {
		uint64_t cap = ld->id_cap == 0 ? 65536 : 2 * ld->id_cap;
		void *grown = realloc(trace->ids, cap * sizeof(trace->ids[0]));

		if (grown == NULL) {
			return -ENOMEM;
		}
		trace->ids = grown;
		ld->id_cap = cap;
	}
	return 0;
}

static int
ids_add(struct loader *ld, const json_t *ids)
{
	struct kvp_trace *trace = ld->trace;
	size_t idx;
	json_t *id;

	json_array_foreach(ids, idx, id)
	{
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
			json_integer_value(id) > UINT32_MAX) {
			ld->what = "hash_ids";
			return -EINVAL;
		}
		trace->ids[trace->id_count++] = (uint32_t)json_integer_value(id);
	}
	return 0;
}

/* Sessions are names or numbers; only equality matters. */
static uint64_t
session_of(const json_t *row)
{
	const json_t *field = json_object_get(row, "session_id");
	uint64_t hash = 0xcbf29ce484222325ull;

	if (json_is_integer(field)) {
		return (uint64_t)json_integer_value(field) + 1;
	}
	if (!json_is_string(field)) {
		return 0;
	}
	for (const char *c = json_string_value(field); *c != '\0'; c++) {
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
	}
	return hash | 1;
}

static int
row_add(struct loader *ld, const json_t *row)
{
	struct kvp_trace_request *request;
	const json_t *ids = json_object_get(row, "hash_ids");
	uint64_t time_ms, input, output;
	int ret;

	if (!json_is_array(ids)) {
		ld->what = "hash_ids";
		return -EINVAL;
	}
	if ((ret = number_get(ld, row, "timestamp", UINT64_MAX >> 1, &time_ms)) < 0 ||
		(ret = number_get(ld, row, "input_length", UINT32_MAX, &input)) < 0 ||
		(ret = number_get(ld, row, "output_length", UINT32_MAX, &output)) < 0 ||
		(ret = room_make(ld, json_array_size(ids))) < 0) {
		return ret;
	}
	request = &ld->trace->requests[ld->trace->request_count];
	*request = (struct kvp_trace_request){.time_ms = time_ms,
		.input_tokens = (uint32_t)input,
		.output_tokens = (uint32_t)output,
		.conversation = session_of(row),
		.block_count = (uint32_t)json_array_size(ids)};
	ret = ids_add(ld, ids);
	ld->trace->request_count += ret == 0;
	return ret;
}

/* The pool of ids moved while it grew: point the requests into it once it stands. */
static void
ids_point(struct kvp_trace *trace)
{
	uint64_t pos = 0;

	for (uint32_t i = 0; i < trace->request_count; i++) {
		trace->requests[i].ids = trace->ids + pos;
		pos += trace->requests[i].block_count;
	}
}

static int
lines_read(struct loader *ld, gzFile file, char *line, uint32_t requests_max, char error[256],
	const char *path)
{
	for (uint32_t number = 1; requests_max == 0 || number <= requests_max; number++) {
		json_error_t why;
		json_t *row;
		int ret;

		if (gzgets(file, line, LINE_LEN_MAX) == NULL) {
			int zerr;
			const char *text = gzerror(file, &zerr);

			if (zerr != Z_OK && zerr != Z_STREAM_END) {
				snprintf(error, 256, "%.150s: %.60s after line %u", path, text,
					number - 1);
				return -EIO;
			}
			return 0;
		}
		row = json_loads(line, 0, &why);
		ld->what = row == NULL ? why.text : "";
		ret = row == NULL ? -EINVAL : row_add(ld, row);
		json_decref(row);
		if (ret < 0) {
			snprintf(error, 256, "%.120s:%u: %s: %.80s", path, number,
				ret == -ENOMEM ? "out of memory" : "missing or bad", ld->what);
			return ret;
		}
	}
	return 0;
}

int
kvp_trace_load(
	const char *path, uint32_t requests_max, struct kvp_trace *ret_trace, char error[256])
{
	struct kvp_trace trace = {0};
	struct loader ld = {.trace = &trace};
	char *line = malloc(LINE_LEN_MAX);
	gzFile file = gzopen(path, "rb");
	int ret;

	if (line == NULL || file == NULL) {
		ret = file == NULL && errno != 0 ? -errno : -ENOMEM;
		snprintf(error, 256, "%.180s: %s", path, kvp_err_str(ret));
	} else {
		ret = lines_read(&ld, file, line, requests_max, error, path);
	}
	if (ret == 0 && trace.request_count == 0) {
		snprintf(error, 256, "%.180s: no request in it", path);
		ret = -EINVAL;
	}
	if (file != NULL) {
		gzclose_r(file);
	}
	free(line);
	if (ret < 0) {
		kvp_trace_free(&trace);
		return ret;
	}
	ids_point(&trace);
	*ret_trace = trace;
	return 0;
}

void
kvp_trace_free(struct kvp_trace *trace)
{
	free(trace->requests);
	free(trace->ids);
	*trace = (struct kvp_trace){0};
}
