/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.c - reads mountinfo and the one-number files of /proc and /sys.
 */
#include "hal/mem/mounts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Undoes \040 and the like, in place. */
static void
mount_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from != '\0'; from++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
			from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
			*to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

static int
mount_field(char **pos, char *buf, size_t cap)
{
	char *field = strsep(pos, " ");

	if (field == NULL || field[0] == '\0') {
		return -EINVAL;
	}
	mount_unescape(field);
	if (strlen(field) >= cap) {
		return -ENAMETOOLONG;
	}
	strcpy(buf, field);
	return 0;
}

int
kvp_mount_parse(char *line, struct kvp_mount *ret_mount)
{
	struct kvp_mount mount;
	char *rest = strstr(line, " - "); /* ends the optional fields */
	int ret;

	if (rest == NULL) {
		return -EINVAL;
	}
	*rest = '\0';
	rest += strlen(" - ");
	rest[strcspn(rest, "\n")] = '\0';
	for (int i = 0; i < 3; i++) { /* mount, parent, device */
		(void)strsep(&line, " ");
	}
	ret = mount_field(&line, mount.root, sizeof(mount.root));
	if (ret == 0) {
		ret = mount_field(&line, mount.path, sizeof(mount.path));
	}
	if (ret == 0) {
		ret = mount_field(&rest, mount.type, sizeof(mount.type));
	}
	(void)strsep(&rest, " "); /* the device, which may be empty */
	if (ret == 0) {
		ret = mount_field(&rest, mount.options, sizeof(mount.options));
	}
	if (ret == 0) {
		*ret_mount = mount;
	}
	return ret;
}

int
kvp_mounts_each(const char *root, int (*fn)(const struct kvp_mount *mount, void *arg), void *arg)
{
	char path[KVP_MOUNT_PATH_LEN + 32];
	struct kvp_mount mount;
	FILE *stream;
	char *line = NULL;
	size_t cap = 0;
	int ret = 0;

	(void)snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	stream = fopen(path, "re");
	if (stream == NULL) {
		return -errno;
	}
	while (ret == 0 && getline(&line, &cap, stream) > 0) {
		if (kvp_mount_parse(line, &mount) == 0) {
			ret = fn(&mount, arg);
		}
	}
	free(line);
	(void)fclose(stream); /* read only */
	return ret;
}

bool
kvp_mount_option(const struct kvp_mount *mount, const char *name, char *buf, size_t cap)
{
	size_t name_len = strlen(name);

	for (const char *pos = mount->options; *pos != '\0';) {
		size_t len = strcspn(pos, ",");

		if (len >= name_len && memcmp(pos, name, name_len) == 0 &&
			(len == name_len || pos[name_len] == '=')) {
			size_t skip = len == name_len ? len : name_len + 1;

			(void)snprintf(buf, cap, "%.*s", (int)(len - skip), pos + skip);
			return true;
		}
		pos += len + (pos[len] == ',');
	}
	return false;
}

int
kvp_proc_number(const char *path, uint64_t *ret_number)
{
	FILE *stream = fopen(path, "re");
	char text[32] = "";
	int ret = 0;

	if (stream == NULL) {
		return -errno;
	}
	if (fgets(text, sizeof(text), stream) == NULL) {
		ret = -EINVAL;
	} else if (strncmp(text, "max", 3) == 0) {
		*ret_number = UINT64_MAX;
	} else if (sscanf(text, "%" SCNu64, ret_number) != 1) {
		ret = -EINVAL;
	}
	(void)fclose(stream); /* read only */
	return ret;
}

int
kvp_proc_field(const char *path, const char *key, uint64_t *ret_number)
{
	FILE *stream = fopen(path, "re");
	size_t key_len = strlen(key);
	char line[256];
	char unit[4];
	uint64_t number;
	int found = 0;

	if (stream == NULL) {
		return -ENOENT;
	}
	while (found == 0 && fgets(line, sizeof(line), stream) != NULL) {
		if (strncmp(line, key, key_len) == 0) {
			found = sscanf(line + key_len, " %" SCNu64 " %3s", &number, unit);
		}
	}
	(void)fclose(stream); /* read only */
	if (found <= 0) {
		return -ENOENT;
	}
	*ret_number = found == 2 && strcmp(unit, "kB") == 0 ? number * 1024 : number;
	return 0;
}
