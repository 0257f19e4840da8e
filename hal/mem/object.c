/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.c - finds and removes named objects: files of /dev/shm and of hugetlbfs mounts.
 */
#include "hal/mem/arena.h"
#include "hal/mem/huge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One name of a directory; 0 also when it is not what we list. */
static int
object_visit(const char *dir, int dir_fd, size_t page_len, const char *name,
	int (*fn)(const struct kvp_mem_object *object, void *arg), void *arg)
{
	struct kvp_mem_object object = {.page_len = page_len};
	struct stat st;

	if (kvp_mem_name_check(name) < 0 || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode)) {
		return 0;
	}
	strcpy(object.name, name);
	(void)snprintf(object.path, sizeof(object.path), "%s/%s", dir, name);
	object.len = (uint64_t)st.st_size;
	object.uid = st.st_uid;
	return fn(&object, arg);
}

static int
object_list_dir(const char *dir, size_t page_len, const char *prefix,
	int (*fn)(const struct kvp_mem_object *object, void *arg), void *arg)
{
	DIR *stream = opendir(dir);
	struct dirent *entry;
	int ret = 0;

	if (stream == NULL) {
		return 0; /* no such place: nothing in it */
	}
	while (ret == 0 && (entry = readdir(stream)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
			ret = object_visit(dir, dirfd(stream), page_len, entry->d_name, fn, arg);
		}
	}
	(void)closedir(stream); /* read only */
	return ret;
}

int
kvp_mem_list(
	const char *prefix, int (*fn)(const struct kvp_mem_object *object, void *arg), void *arg)
{
	struct kvp_huge_mounts mounts;
	int ret = object_list_dir("/dev/shm", 0, prefix, fn, arg);

	kvp_huge_mounts("", 0, &mounts);
	for (unsigned i = 0; ret == 0 && i < mounts.count; i++) {
		ret = object_list_dir(mounts.dir[i], mounts.page_len[i], prefix, fn, arg);
	}
	return ret;
}

static int
object_unlink(const char *dir, const char *name, bool *gone)
{
	char path[KVP_MEM_PATH_LEN];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (unlink(path) == 0) {
		*gone = true;
		return 0;
	}
	return errno == ENOENT ? 0 : -errno;
}

int
kvp_mem_unlink(const char *name)
{
	struct kvp_huge_mounts mounts;
	bool gone = false;
	int ret = kvp_mem_name_check(name);

	if (ret < 0) {
		return ret;
	}
	ret = object_unlink("/dev/shm", name, &gone);
	kvp_huge_mounts("", 0, &mounts);
	for (unsigned i = 0; i < mounts.count; i++) {
		int err = object_unlink(mounts.dir[i], name, &gone);

		ret = ret < 0 ? ret : err;
	}
	return ret < 0 ? ret : gone ? 0 : -ENOENT;
}
