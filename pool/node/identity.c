// SPDX-License-Identifier: Apache-2.0
/*
 * identity.c - see identity.h. A bad file must never keep a node from starting.
 */
#include "pool/node/identity.h"

#include "hal/base/err.h"
#include "hal/os/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define IDENTITY_VERSION "kvpool-identity 1"
#define IDENTITY_LEN_MAX 256u

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	return -1;
}

/* 16 bytes from 32 digits; dashes between them are passed over. -EINVAL. */
static int
hex_id(const char *text, uint8_t ret_id[KVP_ID_LEN])
{
	size_t digits = 0;

	for (; digits < 2 * KVP_ID_LEN; text++) {
		int digit = hex_digit(*text);

		if (*text == '-') {
			continue;
		}
		if (digit < 0) {
			return -EINVAL;
		}
		ret_id[digits / 2] = (uint8_t)(ret_id[digits / 2] << 4 | digit);
		digits++;
	}
	return 0;
}

static size_t
identity_format(const struct kvp_identity *identity, char buf[IDENTITY_LEN_MAX])
{
	char id[2 * KVP_ID_LEN + 1];
	int len;

	for (size_t i = 0; i < KVP_ID_LEN; i++) {
		(void)snprintf(id + 2 * i, 3, "%02x", identity->id[i]);
	}
	len = snprintf(buf, IDENTITY_LEN_MAX, IDENTITY_VERSION "\nid %s\nincarnation %" PRIu64 "\n",
		id, identity->incarnation);
	return (size_t)len + (size_t)snprintf(buf + len, IDENTITY_LEN_MAX - (size_t)len,
				     "check %016" PRIx64 "\n", XXH3_64bits(buf, (size_t)len));
}

/* Good is what this version would have written, byte for byte. -EINVAL. */
static int
identity_parse(const char *text, size_t len, struct kvp_identity *ret_identity)
{
	char again[IDENTITY_LEN_MAX];
	char id[2 * KVP_ID_LEN + 1];

	if (sscanf(text, IDENTITY_VERSION "\nid %32s\nincarnation %" SCNu64 "\n", id,
		    &ret_identity->incarnation) != 2 ||
		strlen(id) != 2 * KVP_ID_LEN || hex_id(id, ret_identity->id) < 0 ||
		ret_identity->incarnation == UINT64_MAX) {
		return -EINVAL;
	}
	if (identity_format(ret_identity, again) != len || memcmp(again, text, len) != 0) {
		return -EINVAL;
	}
	return 0;
}

/* Puts a file nobody can use out of the way, where an operator finds it. */
static int
identity_set_aside(const char *path, int why, const struct kvp_log *log)
{
	char bad[PATH_MAX];

	(void)snprintf(bad, sizeof(bad), "%s.bad", path);
	if (rename(path, bad) < 0) {
		int err = -errno;

		kvp_error(log, "identity file %s cannot be used (%s) nor renamed: %s; remove it",
			path, kvp_err_str(why), kvp_err_str(err));
		return err;
	}
	kvp_warn(log, "identity file %s cannot be used (%s): kept as %s, this node gets a new id",
		path, kvp_err_str(why), bad);
	return 0;
}

static int
identity_load(const char *path, const struct kvp_env *env, const struct kvp_log *log,
	struct kvp_identity *identity)
{
	char text[IDENTITY_LEN_MAX] = "";
	size_t len = 0;
	int err = kvp_file_read(path, text, sizeof(text) - 1, &len);

	if (err == 0) {
		text[len] = '\0';
		err = identity_parse(text, len, identity);
	}
	if (err < 0 && err != -ENOENT) {
		err = identity_set_aside(path, err, log);
		if (err < 0) {
			return err;
		}
		err = -ENOENT;
	}
	if (err < 0) {
		env->random(env, identity->id, KVP_ID_LEN);
		identity->incarnation = 0;
	}
	return 0;
}

static int
identity_lock(const char *dir, const struct kvp_log *log, int *ret_fd)
{
	char path[PATH_MAX];
	pid_t pid = 0;
	int err = kvp_dir_make(dir, 0750);

	if (err == 0) {
		(void)snprintf(path, sizeof(path), "%s/lock", dir);
		err = kvp_file_lock(path, ret_fd, &pid);
	}
	if (err == -KVP_E_IN_USE) {
		kvp_error(log, "data_dir %s is in use by process %d: give each kvpoold its own",
			dir, (int)pid);
	} else if (err < 0) {
		kvp_error(log, "data_dir %s cannot be used: %s", dir, kvp_err_str(err));
	}
	return err;
}

int
kvp_identity_open(const char *dir, const struct kvp_env *env, const struct kvp_log *log,
	struct kvp_identity *ret_identity)
{
	struct kvp_identity identity = {.lock_fd = -1};
	char path[PATH_MAX - 8]; /* room for .bad */
	char text[IDENTITY_LEN_MAX];
	size_t len;
	int err;

	if (strlen(dir) + sizeof("/identity") > sizeof(path)) {
		kvp_error(log, "data_dir is longer than a path can be");
		return -ENAMETOOLONG;
	}
	err = identity_lock(dir, log, &identity.lock_fd);
	if (err < 0) {
		return err;
	}
	(void)snprintf(path, sizeof(path), "%s/identity", dir);
	err = identity_load(path, env, log, &identity);
	if (err < 0) {
		goto err_unlock;
	}
	identity.incarnation++;
	len = identity_format(&identity, text);
	err = kvp_file_replace(path, text, len, 0640);
	if (err < 0) {
		kvp_error(log, "identity file %s cannot be written: %s", path, kvp_err_str(err));
		goto err_unlock;
	}
	*ret_identity = identity;
	return 0;

err_unlock:
	kvp_identity_close(&identity);
	return err;
}

void
kvp_identity_close(struct kvp_identity *identity)
{
	if (identity->lock_fd >= 0) {
		(void)close(identity->lock_fd); /* nothing was written through it that matters */
		identity->lock_fd = -1;
	}
}
