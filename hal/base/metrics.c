/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c - the values of a table of metrics and their Prometheus text.
 */
#include "hal/base/metrics.h"
#include "hal/base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that may outgrow its buffer; len counts on, as snprintf does. */
struct metrics_text {
	char *buf;
	size_t cap;
	size_t len;
};

static void __attribute__((format(printf, 2, 3)))
metrics_text_add(struct metrics_text *text, const char *format, ...)
{
	size_t left = text->len < text->cap ? text->cap - text->len : 0;
	va_list args;
	int added;

	va_start(args, format);
	added = vsnprintf(left > 0 ? text->buf + text->len : NULL, left, format, args);
	va_end(args);
	kvp_assert(added >= 0);
	text->len += (size_t)added;
}

/* Bytes of a name before its labels. */
static size_t
metrics_family_len(const char *name)
{
	return strcspn(name, "{");
}

static bool
metrics_same_family(const char *a, const char *b)
{
	size_t len = metrics_family_len(a);

	return len == metrics_family_len(b) && memcmp(a, b, len) == 0;
}

int
kvp_metrics_init(struct kvp_metrics *metrics, const struct kvp_metric_desc *desc, size_t count)
{
	/* One too many, so that an empty table is no special case of calloc. */
	_Atomic uint64_t *values = calloc(count + 1, sizeof(*values));

	if (values == NULL) {
		return -ENOMEM;
	}
	*metrics = (struct kvp_metrics){.desc = desc, .count = count, .values = values};
	return 0;
}

void
kvp_metrics_fini(struct kvp_metrics *metrics)
{
	if (metrics != NULL) {
		free(metrics->values);
		*metrics = (struct kvp_metrics){0};
	}
}

size_t
kvp_metrics_render(const struct kvp_metrics *metrics, char *buf, size_t cap)
{
	struct metrics_text text = {.buf = buf, .cap = cap};

	if (cap > 0) {
		buf[0] = '\0';
	}
	for (size_t i = 0; i < metrics->count; i++) {
		const struct kvp_metric_desc *row = &metrics->desc[i];
		int family = (int)metrics_family_len(row->name);

		if (i == 0 || !metrics_same_family(row->name, metrics->desc[i - 1].name)) {
			metrics_text_add(&text, "# HELP %.*s %s\n# TYPE %.*s %s\n", family,
				row->name, row->help, family, row->name,
				row->kind == KVP_METRIC_COUNTER ? "counter" : "gauge");
		}
		metrics_text_add(&text, "%s %" PRIu64 "\n", row->name, kvp_metric_get(metrics, i));
	}
	return text.len;
}
