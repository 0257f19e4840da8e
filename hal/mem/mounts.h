/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.h - what is mounted where, and small numbers in files of /proc and /sys.
 *
 * root is put before each path: "" for the machine, a directory with a copy of /proc and /sys for
 * tests. THREADS any; nothing is kept between calls.
 */
#ifndef KVP_HAL_MEM_MOUNTS_H
#define KVP_HAL_MEM_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_MOUNT_PATH_LEN 256

struct kvp_mount {
	char root[KVP_MOUNT_PATH_LEN]; /* the directory of the file system that is mounted */
	char path[KVP_MOUNT_PATH_LEN]; /* where; not prefixed */
	char type[32];
	char options[512]; /* of the file system */
};

/* Calls fn for each mount, in the order of the kernel, until it returns something else than 0, and
 * returns that. Lines with longer fields are passed over. -errno when the list is not readable. */
int kvp_mounts_each(
	const char *root, int (*fn)(const struct kvp_mount *mount, void *arg), void *arg);

/* One line of mountinfo; changes it. -EINVAL when it is none, -ENAMETOOLONG. */
int kvp_mount_parse(char *line, struct kvp_mount *ret_mount);

/* Whether the options have name or name=value; value is "" without one. */
bool kvp_mount_option(const struct kvp_mount *mount, const char *name, char *buf, size_t cap);

/* The number a file starts with; "max" is UINT64_MAX. -errno, -EINVAL when it is no number. */
int kvp_proc_number(const char *path, uint64_t *ret_number);

/* The number after key in a file of lines "key number"; a size in kB becomes bytes.
 * -ENOENT when there is no such key or file. */
int kvp_proc_field(const char *path, const char *key, uint64_t *ret_number);

#endif /* KVP_HAL_MEM_MOUNTS_H */
