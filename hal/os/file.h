/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - small state files: read whole, replaced atomically; directories; owner locks.
 */
#ifndef KVP_HAL_OS_FILE_H
#define KVP_HAL_OS_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Writes path.tmp-PID, fsyncs it, renames it over path, fsyncs the directory. -errno on failure,
 * then path is as before. May block on the disk. */
int kvp_file_replace(const char *path, const void *buf, size_t len, mode_t mode);

/* Reads at most cap bytes; *ret_len is the file's length. -EFBIG when it is larger than cap. */
int kvp_file_read(const char *path, void *buf, size_t cap, size_t *ret_len);

/* mkdir -p with this mode for what is new. */
int kvp_dir_make(const char *path, mode_t mode);

/* Takes an exclusive lock on path (made if missing, mode 0600, CLOEXEC) and writes the owner's
 * pid into it. -KVP_E_IN_USE when another process holds it; then *ret_pid is that process.
 * The lock is held until the descriptor is closed. */
int kvp_file_lock(const char *path, int *ret_fd, pid_t *ret_pid);

#endif /* KVP_HAL_OS_FILE_H */
