/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - walks from this process's control group up to the top of what is mounted.
 *
 * A container often sees its own group as the top of the mount while /proc names the path of the
 * host: what the mount hides is cut off, and a directory that is not there is passed over.
 */
#include "hal/mem/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_PATH_LEN  (2 * KVP_MOUNT_PATH_LEN)
#define CGROUP_FULL_LEN  (4 * KVP_MOUNT_PATH_LEN)
#define CGROUP_UNLIMITED (1ull << 62) /* version 1 prints its largest number of pages */

/* The files of one version. */
struct cgroup_version {
	const char *type;       /* of the mount */
	const char *controller; /* in the options of the mount and in /proc/self/cgroup */
	const char *limits[2];
	const char *usage;
	const char *stats[2]; /* pages that can be dropped */
};

static const struct cgroup_version cgroup_versions[] = {
	{"cgroup", "memory", {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes",
		{"total_inactive_file ", "total_active_file "}},
	/* Above memory.high everything crawls, so that is a limit as well. */
	{"cgroup2", NULL, {"memory.max", "memory.high"}, "memory.current",
		{"inactive_file ", "active_file "}},
};

struct cgroup_search {
	const struct cgroup_version *version;
	struct kvp_mount mount;
};

static int
cgroup_mount_visit(const struct kvp_mount *mount, void *arg)
{
	struct cgroup_search *search = arg;
	char value[8];

	if (strcmp(mount->type, search->version->type) != 0 ||
		(search->version->controller != NULL &&
			!kvp_mount_option(
				mount, search->version->controller, value, sizeof(value)))) {
		return 0;
	}
	search->mount = *mount;
	return 1;
}

static bool
cgroup_has_controller(const char *list, size_t len, const char *name)
{
	size_t name_len = strlen(name);

	for (size_t pos = 0; pos < len;) {
		size_t end = pos + strcspn(list + pos, ",:");

		if (end - pos == name_len && memcmp(list + pos, name, name_len) == 0) {
			return true;
		}
		pos = end + 1;
	}
	return false;
}

/* The path of one line "number:controllers:path" if it is of this version. */
static const char *
cgroup_line_path(char *line, const struct cgroup_version *version)
{
	char *list = strchr(line, ':');
	char *path = list != NULL ? strchr(list + 1, ':') : NULL;
	size_t list_len;

	if (path == NULL) {
		return NULL;
	}
	list++;
	list_len = (size_t)(path - list);
	path++;
	path[strcspn(path, "\n")] = '\0';
	if (version->controller == NULL) {
		return list_len == 0 ? path : NULL;
	}
	return cgroup_has_controller(list, list_len, version->controller) ? path : NULL;
}

static int
cgroup_own_path(const char *root, const struct cgroup_version *version, char *buf, size_t cap)
{
	char file[CGROUP_FULL_LEN];
	char *line = NULL;
	size_t line_cap = 0;
	FILE *stream;
	int ret = -ENOENT;

	(void)snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
	stream = fopen(file, "re");
	if (stream == NULL) {
		return -errno;
	}
	while (ret == -ENOENT && getline(&line, &line_cap, stream) > 0) {
		const char *path = cgroup_line_path(line, version);

		if (path != NULL) {
			ret = snprintf(buf, cap, "%s", path) < (int)cap ? 0 : -ENAMETOOLONG;
		}
	}
	free(line);
	(void)fclose(stream); /* read only */
	return ret;
}

/* One level: dir relative to root. */
static void
cgroup_level(const char *root, const struct cgroup_version *version, const char *dir,
	struct kvp_cgroup *cgroup)
{
	char path[CGROUP_FULL_LEN];
	uint64_t limit = UINT64_MAX;
	uint64_t used = 0;

	for (size_t i = 0; i < 2 && version->limits[i] != NULL; i++) {
		uint64_t number;

		(void)snprintf(path, sizeof(path), "%s%s/%s", root, dir, version->limits[i]);
		if (kvp_proc_number(path, &number) < 0 || number >= CGROUP_UNLIMITED) {
			continue;
		}
		limit = number < limit ? number : limit;
		if (number < cgroup->limit) {
			cgroup->limit = number;
			(void)snprintf(cgroup->limit_file, sizeof(cgroup->limit_file), "%s",
				path + strlen(root));
		}
	}
	if (limit == UINT64_MAX) {
		return;
	}
	(void)snprintf(path, sizeof(path), "%s%s/%s", root, dir, version->usage);
	if (kvp_proc_number(path, &used) < 0) {
		used = 0;
	}
	(void)snprintf(path, sizeof(path), "%s%s/memory.stat", root, dir);
	for (size_t i = 0; i < 2; i++) {
		uint64_t number;

		if (kvp_proc_field(path, version->stats[i], &number) == 0) {
			used -= number < used ? number : used;
		}
	}
	limit -= used < limit ? used : limit;
	if (limit < cgroup->room) {
		cgroup->room = limit;
		(void)snprintf(cgroup->room_dir, sizeof(cgroup->room_dir), "%s", dir);
	}
}

/* From the group up to the top of the mount. */
static void
cgroup_walk(const char *root, const struct cgroup_version *version, const struct kvp_mount *mount,
	const char *path, struct kvp_cgroup *cgroup)
{
	char dir[CGROUP_PATH_LEN];
	size_t top = strlen(mount->path);
	size_t hidden = strcmp(mount->root, "/") == 0 ? 0 : strlen(mount->root);

	if (strncmp(path, mount->root, hidden) == 0 &&
		(path[hidden] == '/' || path[hidden] == '\0')) {
		path += hidden;
	}
	/* A path through ".." lies outside of the namespace: only the top can be seen. */
	if (strstr(path, "/..") != NULL || strcmp(path, "/") == 0) {
		path = "";
	}
	(void)snprintf(dir, sizeof(dir), "%s%s", mount->path, path);
	for (;;) {
		char *slash;

		cgroup_level(root, version, dir, cgroup);
		slash = strrchr(dir, '/');
		if (slash == NULL || slash < dir + top) {
			return;
		}
		*slash = '\0';
	}
}

void
kvp_cgroup_memory(const char *root, struct kvp_cgroup *ret_cgroup)
{
	struct kvp_cgroup cgroup = {.limit = UINT64_MAX, .room = UINT64_MAX};
	char path[KVP_MOUNT_PATH_LEN];

	for (size_t i = 0; i < sizeof(cgroup_versions) / sizeof(cgroup_versions[0]); i++) {
		struct cgroup_search search = {.version = &cgroup_versions[i]};

		if (kvp_mounts_each(root, cgroup_mount_visit, &search) == 1 &&
			cgroup_own_path(root, search.version, path, sizeof(path)) == 0) {
			cgroup_walk(root, search.version, &search.mount, path, &cgroup);
		}
	}
	*ret_cgroup = cgroup;
}
