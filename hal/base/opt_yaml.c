/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_yaml.c - reads the options of a YAML file through libyaml's events.
 *
 * Only what a configuration needs is taken: one document, maps and single values. Lists, aliases,
 * anchors and tags are refused by name. libyaml checks the form, this file the meaning; values go
 * through kvp_opt_parse like those of every other source.
 */
#include "hal/base/err.h"
#include "hal/base/opt_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define YAML_FILE_LEN_MAX (1u << 20)
#define YAML_PATH_LEN_MAX 256
#define YAML_DEPTH_MAX    8
#define YAML_WHERE_LEN    320 /* an error keeps room for what is wrong */

struct yaml_walk {
	struct kvp_opts *opts;
	const char *file;
	unsigned long line; /* of the event in hand, from 1 */
	size_t documents;
	size_t depth;                    /* maps that are open */
	size_t base_len[YAML_DEPTH_MAX]; /* bytes of path that belong to the map's own key */
	bool have_key;                   /* a key waits for its value */
	char path[YAML_PATH_LEN_MAX];    /* the key in hand, dotted */
	unsigned long *set_line;         /* one a row: where the file set it, 0 if not */
};

static int __attribute__((format(printf, 2, 3)))
yaml_fail(struct yaml_walk *walk, const char *format, ...)
{
	char where[YAML_WHERE_LEN];
	char what[sizeof(walk->opts->error)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	(void)snprintf(where, sizeof(where), "%.280s:%lu", walk->file, walk->line);
	return kvp_opts_fail(walk->opts, where, "%s", what);
}

/* Makes path the key in hand: that of the open map, and this. */
static int
yaml_take_key(struct yaml_walk *walk, const char *key, size_t key_len)
{
	size_t len = walk->base_len[walk->depth - 1];

	if (key_len == 0 || memchr(key, '\0', key_len) != NULL ||
		len + 1 + key_len >= sizeof(walk->path)) {
		return yaml_fail(walk,
			"a key that is empty, too long or binary; accepted: the options of --help");
	}
	if (len > 0) {
		walk->path[len++] = '.';
	}
	memcpy(walk->path + len, key, key_len);
	walk->path[len + key_len] = '\0';
	walk->have_key = true;
	return 0;
}

static int
yaml_take_value(struct yaml_walk *walk, const yaml_event_t *event)
{
	const char *value = (const char *)event->data.scalar.value;
	char where[YAML_WHERE_LEN];
	char origin[YAML_WHERE_LEN + sizeof("file ")];
	const struct kvp_opt_source source = {.where = where, .origin = origin};
	char accepted[192];
	int idx = kvp_opts_find(walk->opts, walk->path);

	walk->have_key = false;
	(void)snprintf(where, sizeof(where), "%.280s:%lu", walk->file, walk->line);
	(void)snprintf(origin, sizeof(origin), "file %s", where);
	if (idx < 0) {
		return kvp_opts_fail_unknown(walk->opts, where, walk->path);
	}
	if (walk->set_line[idx] != 0) {
		return yaml_fail(walk,
			"%s: \"%.40s\" is a second value, line %lu has one; "
			"accepted: each key once",
			walk->path, value, walk->set_line[idx]);
	}
	walk->set_line[idx] = walk->line;
	kvp_opt_accepted(&walk->opts->desc[idx], accepted, sizeof(accepted));
	if (event->data.scalar.length == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
		return yaml_fail(walk,
			"%s has no value (an empty text is written \"\"); accepted: %s", walk->path,
			accepted);
	}
	if (strlen(value) != event->data.scalar.length) {
		return yaml_fail(
			walk, "%s: the value holds a NUL byte; accepted: %s", walk->path, accepted);
	}
	return kvp_opts_set(walk->opts, idx, value, &source);
}

static int
yaml_take_scalar(struct yaml_walk *walk, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;

	if (event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL) {
		return yaml_fail(walk,
			"%s: anchors and tags are not supported; accepted: plain values",
			walk->have_key ? walk->path : text);
	}
	if (walk->depth == 0 && event->data.scalar.length == 0) {
		return 0; /* "---" and nothing: an empty document */
	}
	if (walk->depth == 0) {
		char quoted[KVP_OPT_QUOTED_LEN];

		kvp_opt_quote(text, quoted);
		return yaml_fail(
			walk, "%s stands alone; accepted: lines of \"option: value\"", quoted);
	}
	return walk->have_key ? yaml_take_value(walk, event)
			      : yaml_take_key(walk, text, event->data.scalar.length);
}

static int
yaml_open_map(struct yaml_walk *walk, const yaml_event_t *event)
{
	if (event->data.mapping_start.anchor != NULL || event->data.mapping_start.tag != NULL) {
		return yaml_fail(walk,
			"%s: anchors and tags are not supported; accepted: plain maps", walk->path);
	}
	if (walk->depth > 0 && !walk->have_key) {
		return yaml_fail(
			walk, "a map stands where a key is due; accepted: an option's path");
	}
	if (walk->depth > 0 && kvp_opts_find(walk->opts, walk->path) >= 0) {
		return yaml_fail(walk, "%s: a map stands where a single value is due", walk->path);
	}
	if (walk->depth == YAML_DEPTH_MAX) {
		return yaml_fail(
			walk, "%s: maps are nested more than %d deep", walk->path, YAML_DEPTH_MAX);
	}
	walk->base_len[walk->depth] = walk->depth > 0 ? strlen(walk->path) : 0;
	walk->depth++;
	walk->have_key = false;
	return 0;
}

/* *ret_end: the last event has come. */
static int
yaml_take_event(struct yaml_walk *walk, const yaml_event_t *event, bool *ret_end)
{
	walk->line = event->start_mark.line + 1;
	*ret_end = event->type == YAML_STREAM_END_EVENT;
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		return walk->documents++ == 0
			       ? 0
			       : yaml_fail(walk, "a second document starts; accepted: one");
	case YAML_SCALAR_EVENT:
		return yaml_take_scalar(walk, event);
	case YAML_MAPPING_START_EVENT:
		return yaml_open_map(walk, event);
	case YAML_MAPPING_END_EVENT:
		walk->depth--;
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		return yaml_fail(walk, "%s: a list stands where a single value is due",
			walk->have_key ? walk->path : "the file");
	case YAML_ALIAS_EVENT:
		return yaml_fail(walk, "%s: aliases are not supported; accepted: plain values",
			walk->have_key ? walk->path : "a key");
	default:
		return 0;
	}
}

static unsigned long
yaml_line_at(const char *text, size_t off)
{
	unsigned long line = 1;

	for (size_t i = 0; i < off; i++) {
		line += text[i] == '\n';
	}
	return line;
}

/* Encoding and tabs, which libyaml would take in several ways or report without a line. */
static int
yaml_check_text(struct yaml_walk *walk, const char *text, size_t len)
{
	size_t valid_len = kvp_utf8_valid_len(text, len);
	bool indent = true;

	if (valid_len < len) {
		walk->line = yaml_line_at(text, valid_len);
		return yaml_fail(walk, "byte 0x%02x is not valid UTF-8; accepted: UTF-8",
			(unsigned char)text[valid_len]);
	}
	for (size_t i = 0; i < len; i++) {
		if (indent && text[i] == '\t') {
			walk->line = yaml_line_at(text, i);
			return yaml_fail(walk, "a tab indents the line; accepted: spaces");
		}
		indent = text[i] == '\n' || (indent && text[i] == ' ');
	}
	return 0;
}

static int
yaml_parse(struct yaml_walk *walk, const char *text, size_t len)
{
	yaml_parser_t parser;
	yaml_event_t event;
	bool end = false;
	int ret = 0;

	if (yaml_parser_initialize(&parser) == 0) {
		return yaml_fail(walk, "out of memory");
	}
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	while (ret == 0 && !end) {
		if (yaml_parser_parse(&parser, &event) == 0) {
			walk->line = parser.error == YAML_READER_ERROR
					     ? yaml_line_at(text, parser.problem_offset)
					     : parser.problem_mark.line + 1;
			ret = yaml_fail(walk,
				"not YAML: %s%s%s; accepted: lines of \"option: value\"",
				parser.problem != NULL ? parser.problem : "out of memory",
				parser.context != NULL ? ", " : "",
				parser.context != NULL ? parser.context : "");
			break;
		}
		ret = yaml_take_event(walk, &event, &end);
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	return ret;
}

/* The file's bytes, which the caller frees. -errno; -EFBIG. */
static int
yaml_read(const char *file, char **ret_text, size_t *ret_len)
{
	FILE *stream = fopen(file, "re");
	char *text;
	int ret = 0;

	if (stream == NULL) {
		return -errno;
	}
	text = malloc(YAML_FILE_LEN_MAX);
	if (text == NULL) {
		ret = -ENOMEM;
		goto err_close;
	}
	*ret_len = fread(text, 1, YAML_FILE_LEN_MAX, stream);
	if (ferror(stream)) {
		ret = errno != 0 ? -errno : -EIO;
	} else if (*ret_len == YAML_FILE_LEN_MAX) {
		ret = -EFBIG;
	}
	if (ret < 0) {
		free(text);
		goto err_close;
	}
	*ret_text = text;
err_close:
	(void)fclose(stream); /* read only: nothing can be lost */
	return ret;
}

int
kvp_opts_read_file(struct kvp_opts *opts, const char *file, bool must_exist)
{
	struct yaml_walk walk = {.opts = opts, .file = file, .line = 1};
	char *text = NULL;
	size_t len = 0;
	int ret = yaml_read(file, &text, &len);

	if (ret == -ENOENT && !must_exist) {
		return 0;
	}
	if (ret < 0) {
		return kvp_opts_fail(opts, "configuration",
			"the file \"%.280s\" cannot be read: %s", file, kvp_err_str(ret));
	}
	walk.set_line = calloc(opts->count + 1, sizeof(*walk.set_line));
	if (walk.set_line == NULL) {
		ret = yaml_fail(&walk, "out of memory");
		goto out_free;
	}
	ret = yaml_check_text(&walk, text, len);
	if (ret == 0) {
		ret = yaml_parse(&walk, text, len);
	}
out_free:
	free(walk.set_line);
	free(text);
	return ret;
}
