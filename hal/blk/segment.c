/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - opens one segment file: a regular file whose space is reserved on the disk.
 *
 * Space first, O_DIRECT after: where a file system has no fallocate, libc writes single bytes,
 * which a direct descriptor refuses. A write into reserved space cannot run out of it later.
 */
#include "hal/base/assert.h"
#include "hal/blk/blk_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_RESERVE_STEP (64u << 20) /* bytes a call: a signal repeats only this much */

/* why, once, and the error back. */
static int
segment_fail(char why[KVP_BLK_WHY_LEN], const char *path, const char *what, int err)
{
	(void)snprintf(why, KVP_BLK_WHY_LEN, "%s: %s: %s", path, what, strerror(-err));
	return err;
}

static int
segment_reserve(int fd, uint64_t bytes)
{
	uint64_t off = 0;

	while (off < bytes) {
		uint64_t left = bytes - off;
		uint64_t step = left < SEGMENT_RESERVE_STEP ? left : SEGMENT_RESERVE_STEP;
		int err = posix_fallocate(fd, (off_t)off, (off_t)step);

		if (err == 0) {
			off += step;
		} else if (err != EINTR) {
			return -err;
		}
	}
	return 0;
}

/* Makes the name of a new file last. */
static int
segment_sync_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX] = ".";
	int ret = 0;
	int fd;

	if (slash != NULL) {
		size_t len = slash == path ? 1 : (size_t)(slash - path);

		if (len >= sizeof(dir)) {
			return -ENAMETOOLONG;
		}
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

/* Reserves all of it. On failure the file is as long as before. */
static int
segment_fill(int fd, const struct kvp_blk_file *file, bool is_new, char why[KVP_BLK_WHY_LEN])
{
	int ret = segment_reserve(fd, file->bytes);
	char what[64];

	if (ret < 0) {
		if (!is_new && file->ret_found < file->bytes &&
			ftruncate(fd, (off_t)file->ret_found) < 0) {
			return segment_fail(why, file->path, "cannot give space back", -errno);
		}
		(void)snprintf(what, sizeof(what), "cannot reserve %" PRIu64 " bytes", file->bytes);
		return segment_fail(why, file->path, what, ret);
	}
	if (fsync(fd) < 0) {
		return segment_fail(why, file->path, "sync", -errno);
	}
	ret = is_new ? segment_sync_dir(file->path) : 0;
	return ret < 0 ? segment_fail(why, file->path, "sync of its directory", ret) : 0;
}

static int
segment_verify(const struct stat *st, const struct kvp_blk_file *file, char why[KVP_BLK_WHY_LEN])
{
	if ((uint64_t)st->st_size < file->bytes) {
		(void)snprintf(why, KVP_BLK_WHY_LEN, "%s: %" PRIu64 " bytes long, not %" PRIu64,
			file->path, (uint64_t)st->st_size, file->bytes);
		return -EINVAL;
	}
	if ((uint64_t)st->st_blocks * 512 < file->bytes) {
		(void)snprintf(why, KVP_BLK_WHY_LEN, "%s: sparse", file->path);
		return -EINVAL;
	}
	return 0;
}

/* Some file systems take the flag and refuse the i/o, so one read tells. Its other errors are
 * those of the first real i/o too, and come up there. */
static bool
segment_go_direct(int fd)
{
	_Alignas(KVP_BLK_ALIGN) char probe[KVP_BLK_ALIGN];
	int flags = fcntl(fd, F_GETFL);

	kvp_assert(flags >= 0);
	if (fcntl(fd, F_SETFL, flags | O_DIRECT) < 0) {
		return false;
	}
	if (pread(fd, probe, sizeof(probe), 0) < 0 && errno == EINVAL) {
		kvp_assert(fcntl(fd, F_SETFL, flags) == 0);
		return false;
	}
	return true;
}

int
kvp_blk_segment_open(struct kvp_blk_file *file, bool create, int *ret_fd, bool *ret_direct,
	char why[KVP_BLK_WHY_LEN])
{
	const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC;
	bool is_new = false;
	struct stat st;
	int ret = 0;
	int fd;

	fd = open(file->path, flags);
	if (fd < 0 && errno == ENOENT && create) {
		fd = open(file->path, flags | O_CREAT | O_EXCL, 0600);
		is_new = fd >= 0;
	}
	if (fd < 0) {
		return segment_fail(why, file->path, "cannot open", -errno);
	}
	if (fstat(fd, &st) < 0) {
		ret = segment_fail(why, file->path, "stat", -errno);
	} else if (!S_ISREG(st.st_mode)) {
		ret = segment_fail(why, file->path, "not a regular file", -EINVAL);
	}
	if (ret == 0) {
		file->ret_found = (uint64_t)st.st_size;
		ret = create ? segment_fill(fd, file, is_new, why) : segment_verify(&st, file, why);
	}
	if (ret < 0) {
		if (is_new) {
			(void)unlink(file->path); /* the first error is the one to tell */
		}
		(void)close(fd);
		return ret;
	}
	*ret_direct = segment_go_direct(fd);
	*ret_fd = fd;
	return 0;
}
