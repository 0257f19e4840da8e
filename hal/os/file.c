/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - small state files, directories, owner locks.
 */
#include "hal/os/file.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LOCK_TRIES_MAX 16

static int
file_write_all(int fd, const void *buf, size_t len)
{
	const char *pos = buf;

	while (len > 0) {
		ssize_t written = write(fd, pos, len);

		if (written < 0 && errno == EINTR) {
			continue;
		}
		if (written <= 0) {
			return written < 0 ? -errno : -EIO;
		}
		pos += written;
		len -= (size_t)written;
	}
	return 0;
}

/* Makes a rename in the directory of path last. */
static int
file_sync_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX] = ".";
	int ret = 0;
	int fd;

	if (slash != NULL) {
		/* The slash stays for "/name", whose directory is "/". */
		size_t len = slash == path ? 1 : (size_t)(slash - path);

		kvp_assert(len < sizeof(dir));
		memcpy(dir, path, len);
		dir[len] = '\0';
	}
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	/* EINVAL: a file system whose directories need no sync. */
	if (fsync(fd) < 0 && errno != EINVAL) {
		ret = -errno;
	}
	(void)close(fd); /* nothing written through it */
	return ret;
}

/* A whole, synced file of these bytes. On failure it may exist half-made. */
static int
file_write_new(const char *path, const void *buf, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
	int ret;

	if (fd < 0) {
		return -errno;
	}
	ret = file_write_all(fd, buf, len);
	if (ret == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0)) {
		ret = -errno;
	}
	if (close(fd) < 0 && ret == 0) {
		ret = -errno;
	}
	return ret;
}

int
kvp_file_replace(const char *path, const void *buf, size_t len, mode_t mode)
{
	char tmp[PATH_MAX];
	int tmp_len = snprintf(tmp, sizeof(tmp), "%s.tmp-%ld", path, (long)getpid());
	int ret;

	kvp_assert(tmp_len > 0);
	if ((size_t)tmp_len >= sizeof(tmp)) {
		return -ENAMETOOLONG;
	}
	ret = file_write_new(tmp, buf, len, mode);
	if (ret == 0 && rename(tmp, path) < 0) {
		ret = -errno;
	}
	if (ret < 0) {
		(void)unlink(tmp); /* it may not exist; the first error is the one to tell */
		return ret;
	}
	return file_sync_dir(path);
}

int
kvp_file_read(const char *path, void *buf, size_t cap, size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char extra;
	size_t len = 0;
	int ret = 0;

	if (fd < 0) {
		return -errno;
	}
	/* Not by the size of stat: the file may grow, and those of /proc have none. */
	for (;;) {
		bool full = len == cap;
		ssize_t got = read(fd, full ? &extra : (char *)buf + len, full ? 1 : cap - len);

		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got < 0) {
			ret = -errno;
		} else if (got > 0 && full) {
			ret = -EFBIG;
		} else if (got > 0) {
			len += (size_t)got;
			continue;
		}
		break;
	}
	(void)close(fd); /* read only */
	if (ret == 0) {
		*ret_len = len;
	}
	return ret;
}

/* One level. */
static int
dir_make_one(const char *path, mode_t mode)
{
	struct stat st;
	int err;

	if (mkdir(path, mode) == 0) {
		return 0;
	}
	err = errno;
	/* Also where the parent is read-only: what counts is that it is there. */
	if (stat(path, &st) < 0) {
		return -err;
	}
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int
kvp_dir_make(const char *path, mode_t mode)
{
	char copy[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0) {
		return -ENOENT;
	}
	if (len >= sizeof(copy)) {
		return -ENAMETOOLONG;
	}
	memcpy(copy, path, len + 1);
	for (char *pos = copy + 1; *pos != '\0'; pos++) {
		int ret;

		if (*pos != '/') {
			continue;
		}
		*pos = '\0';
		ret = dir_make_one(copy, mode);
		*pos = '/';
		if (ret < 0) {
			return ret;
		}
	}
	return dir_make_one(copy, mode);
}

/* The pid in a lock file, 0 when there is none (its owner is about to write it). */
static pid_t
lock_read_pid(int fd)
{
	char text[32];
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
	long pid;

	if (len <= 0) {
		return 0;
	}
	text[len] = '\0';
	pid = strtol(text, NULL, 10);
	return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

/* Does path still name what fd is? Else somebody removed it, and others lock another file. */
static bool
lock_is_current(const char *path, int fd)
{
	struct stat by_fd;
	struct stat by_path;

	return fstat(fd, &by_fd) == 0 && stat(path, &by_path) == 0 &&
	       by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino;
}

static int
lock_write_pid(int fd)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

	kvp_assert(len > 0 && (size_t)len < sizeof(text));
	if (ftruncate(fd, 0) < 0) {
		return -errno;
	}
	return file_write_all(fd, text, (size_t)len);
}

/* flock binds the lock to the open file description: unlike fcntl's, it holds against a second
 * instance in the same process, and no close elsewhere drops it. */
int
kvp_file_lock(const char *path, int *ret_fd, pid_t *ret_pid)
{
	int ret;

	for (int tries = 0; tries < FILE_LOCK_TRIES_MAX; tries++) {
		int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

		if (fd < 0) {
			return -errno;
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			ret = errno == EWOULDBLOCK ? -KVP_E_IN_USE : -errno;
			if (ret == -KVP_E_IN_USE) {
				*ret_pid = lock_read_pid(fd);
			}
			(void)close(fd);
			return ret;
		}
		if (lock_is_current(path, fd)) {
			ret = lock_write_pid(fd);
			if (ret < 0) {
				(void)close(fd);
				return ret;
			}
			*ret_fd = fd;
			return 0;
		}
		(void)close(fd);
	}
	return -EAGAIN;
}
