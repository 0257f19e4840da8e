/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_args.c - perftest's letters, so that its users need no manual: -s 64 and -s64 become
 * --size=64, -aF becomes --all --CPU-freq. What has no letter there has none here.
 */
#include "bench/perf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct letter {
	char letter;
	bool value; /* takes one */
	const char *path;
} letters[] = {
	{'a', false, "all"},
	{'d', true, "ib-dev"},
	{'D', true, "duration"},
	{'e', false, "events"},
	{'f', true, "margin"},
	{'F', false, "CPU-freq"},
	{'h', false, "help"},
	{'H', false, "report-histogram"},
	{'l', true, "post_list"},
	{'n', true, "iters"},
	{'N', false, "noPeak"},
	{'p', true, "port"},
	{'q', true, "qp"},
	{'R', false, "rdma_cm"},
	{'s', true, "size"},
	{'t', true, "tx-depth"},
	{'U', false, "report-unsorted"},
	{'V', false, "version"},
	{'w', true, "limit_bw"},
	{'y', true, "limit_msgrate"},
};
#define LETTER_COUNT (sizeof(letters) / sizeof(letters[0]))
#define LONG_LEN_MAX 32 /* bytes of "--path=" with its NUL */

static const struct letter *
letter_find(char c)
{
	for (size_t i = 0; i < LETTER_COUNT; i++) {
		if (letters[i].letter == c) {
			return &letters[i];
		}
	}
	return NULL;
}

/* Where the new arguments go: pointers first, then the texts, all in one allocation. */
struct expansion {
	char **argv;
	int argc;
	char *pos;
};

static void
expansion_add(struct expansion *e, const char *path, const char *value)
{
	e->argv[e->argc++] = e->pos;
	e->pos += sprintf(e->pos, "--%s%s%s", path, value != NULL ? "=" : "",
			  value != NULL ? value : "") +
		  1;
}

/* One argument "-xyz"; next is the one behind it or NULL. Returns how many were taken. */
static int
letters_expand(
	struct expansion *e, const char *arg, const char *next, char *error, size_t error_cap)
{
	for (const char *c = arg + 1; *c != '\0'; c++) {
		const struct letter *letter = letter_find(*c);

		if (letter == NULL) {
			snprintf(error, error_cap,
				"-%c is not an option here; accepted: the options of --help", *c);
			return -EINVAL;
		}
		if (!letter->value) {
			expansion_add(e, letter->path, NULL);
		} else if (c[1] != '\0') {
			expansion_add(e, letter->path, c + 1);
			return 1;
		} else if (next != NULL) {
			expansion_add(e, letter->path, next);
			return 2;
		} else {
			snprintf(error, error_cap, "-%c (--%s) needs a value", *c, letter->path);
			return -EINVAL;
		}
	}
	return 1;
}

int
kvp_perf_args_expand(
	int argc, char **argv, int *ret_argc, char ***ret_argv, char *error, size_t error_cap)
{
	struct expansion e = {0};
	size_t chars = 0;
	size_t room;

	for (int i = 0; i < argc; i++) {
		chars += strlen(argv[i]) + 1;
	}
	/* At worst each character is a letter, and each letter an argument. */
	room = (chars + 1) * sizeof(char *) + chars * LONG_LEN_MAX;
	e.argv = calloc(1, room);
	if (e.argv == NULL) {
		snprintf(error, error_cap, "out of memory");
		return -ENOMEM;
	}
	e.pos = (char *)(e.argv + chars + 1);
	for (int i = 0; i < argc;) {
		int taken = 1;

		if (i > 0 && argv[i][0] == '-' && argv[i][1] != '-' && argv[i][1] != '\0') {
			taken = letters_expand(
				&e, argv[i], i + 1 < argc ? argv[i + 1] : NULL, error, error_cap);
		} else {
			e.argv[e.argc++] = argv[i];
		}
		if (taken < 0) {
			free(e.argv);
			return taken;
		}
		i += taken;
	}
	*ret_argc = e.argc;
	*ret_argv = e.argv;
	return 0;
}
