/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.c - text, name, scope and retry class of every error. Constant tables, any thread.
 */
#include "hal/base/err.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

struct err_row {
	int number;
	enum kvp_err_scope scope;
	enum kvp_err_retry retry;
	const char *name;
	const char *text;
};

static const struct err_row err_rows[] = {
#define KVP_ERR(name, number, scope, retry, text)                                                  \
	{number, KVP_SCOPE_##scope, KVP_RETRY_##retry, "KVP_E_" #name, text},
#include "hal/base/err.def"
#undef KVP_ERR
};

static const struct err_row *
err_row_find(int err)
{
	for (size_t i = 0; i < sizeof(err_rows) / sizeof(err_rows[0]); i++) {
		if (err < 0 && err_rows[i].number == -(long)err) {
			return &err_rows[i];
		}
	}
	return NULL;
}

const char *
kvp_err_str(int err)
{
	const struct err_row *row = err_row_find(err);
	const char *text;

	if (row != NULL) {
		return row->text;
	}
	if (err >= 0) {
		return "ok";
	}
	/* strerrordesc_np is thread-safe and, unlike strerror, the same in every locale. */
	text = err == INT_MIN ? NULL : strerrordesc_np(-err);
	return text != NULL ? text : "unknown error";
}

const char *
kvp_err_name(int err)
{
	const struct err_row *row = err_row_find(err);
	const char *name;

	if (row != NULL) {
		return row->name;
	}
	if (err >= 0) {
		return "ok";
	}
	name = err == INT_MIN ? NULL : strerrorname_np(-err);
	return name != NULL ? name : "unknown";
}

enum kvp_err_scope
kvp_err_scope(int err)
{
	const struct err_row *row = err_row_find(err);

	return row != NULL ? row->scope : KVP_SCOPE_OP;
}

enum kvp_err_retry
kvp_err_retry(int err)
{
	const struct err_row *row = err_row_find(err);

	return row != NULL ? row->retry : KVP_RETRY_NEVER;
}
