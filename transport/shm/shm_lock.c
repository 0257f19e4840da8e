/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_lock.c - the lock file of a session: whoever holds a shared lock on it may still write.
 *
 * With a prefix they have names, so that they outlive a target that was killed: its successor
 * looks up the token of a session of which it knows nothing else. The name is a digest of the
 * token. It tells 64 of its 128 bits to who may list the folder, and the rest cannot be guessed.
 */
#include "transport/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define LOCK_NAME_LEN 16u /* digits behind the prefix */

static void
lock_path(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], char path[SHM_LOCK_PATH_LEN])
{
	(void)snprintf(path, SHM_LOCK_PATH_LEN, "%s%016" PRIx64, prefix,
		(uint64_t)XXH3_64bits(token, KVP_TOKEN_LEN));
}

int
shm_lock_new(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], int *ret_fd)
{
	char path[SHM_LOCK_PATH_LEN];
	int fd;

	if (prefix[0] == '\0') {
		fd = memfd_create("kvpool-session", MFD_CLOEXEC);
	} else {
		lock_path(prefix, token, path);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	}
	if (fd < 0) {
		return -errno;
	}
	*ret_fd = fd;
	return 0;
}

int
shm_lock_share(int lock_fd, int *ret_fd)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", lock_fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
		int err = errno;

		(void)close(fd);
		return -err;
	}
	*ret_fd = fd;
	return 0;
}

bool
shm_lock_end(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], int lock_fd)
{
	char path[SHM_LOCK_PATH_LEN];

	if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
		return false;
	}
	if (prefix[0] != '\0') {
		lock_path(prefix, token, path);
		(void)unlink(path); /* gone already is as good */
	}
	return true;
}

int
shm_lock_fence(const char *prefix, const uint8_t token[KVP_TOKEN_LEN])
{
	char path[SHM_LOCK_PATH_LEN];
	bool ended;
	int fd;

	if (prefix[0] == '\0') {
		return 0;
	}
	lock_path(prefix, token, path);
	fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		return errno == ENOENT ? 0 : -errno;
	}
	ended = shm_lock_end(prefix, token, fd);
	(void)close(fd);
	return ended ? 0 : -EINPROGRESS;
}

/* One file of the folder; true when somebody holds it. */
static bool
sweep_one(const char *path)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	bool held;

	if (fd < 0) {
		return false;
	}
	held = flock(fd, LOCK_EX | LOCK_NB) != 0;
	if (!held) {
		(void)unlink(path);
	}
	(void)close(fd);
	return held;
}

uint32_t
shm_lock_sweep(const char *prefix, bool (*used)(void *arg, const char *path), void *arg)
{
	char path[SHM_LOCK_PATH_LEN];
	const char *base = strrchr(prefix, '/');
	struct dirent *entry;
	uint32_t held = 0;
	DIR *dir;

	if (base == NULL) {
		return 0;
	}
	base++;
	(void)snprintf(path, sizeof(path), "%.*s", (int)(base - prefix), prefix);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const char *digits = entry->d_name + strlen(base);

		if (strncmp(entry->d_name, base, strlen(base)) != 0 ||
			strspn(digits, "0123456789abcdef") != LOCK_NAME_LEN ||
			digits[LOCK_NAME_LEN] != '\0') {
			continue;
		}
		(void)snprintf(path, sizeof(path), "%s%s", prefix, digits);
		held += !used(arg, path) && sweep_one(path);
	}
	if (dir != NULL) {
		(void)closedir(dir); /* read only */
	}
	return held;
}

bool
shm_lock_is(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], const char *path)
{
	char own[SHM_LOCK_PATH_LEN];

	lock_path(prefix, token, own);
	return strcmp(own, path) == 0;
}
