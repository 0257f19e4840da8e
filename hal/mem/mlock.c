/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlock.c - locks memory. The limit is looked at before pages are taken, so that a process that
 * may not lock learns it at once and not after minutes of clearing pages.
 */
#include "hal/mem/mlock.h"
#include "hal/mem/mounts.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MLOCK_STEP ((size_t)256 << 20)

static bool
mlock_is_privileged(void)
{
	FILE *stream = fopen("/proc/self/status", "re");
	char line[128];
	uint64_t caps = 0;

	while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
		if (sscanf(line, "CapEff: %" SCNx64, &caps) == 1) {
			break;
		}
	}
	if (stream != NULL) {
		(void)fclose(stream); /* read only */
	}
	return (caps >> CAP_IPC_LOCK & 1) != 0;
}

int
kvp_mlock_check(size_t len, struct kvp_mem_why *why)
{
	struct rlimit limit;
	uint64_t locked = 0;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
		return -errno;
	}
	if (limit.rlim_cur == RLIM_INFINITY || mlock_is_privileged()) {
		return 0;
	}
	(void)kvp_proc_field("/proc/self/status", "VmLck:", &locked);
	if (locked <= limit.rlim_cur && len <= limit.rlim_cur - locked) {
		return 0;
	}
	kvp_mem_why_add(why,
		"locked memory: limit RLIMIT_MEMLOCK %" PRIu64 " bytes, have %" PRIu64
		" locked, need %zu more, remedy: ulimit -l unlimited, LimitMEMLOCK=infinity in the "
		"unit, or CAP_IPC_LOCK",
		(uint64_t)limit.rlim_cur, locked, len);
	return limit.rlim_cur == 0 ? -EPERM : -ENOMEM;
}

int
kvp_mlock(void *base, size_t len, struct kvp_mem_why *why, bool (*stop)(void *arg), void *stop_arg)
{
	size_t off = 0;

	while (off < len) {
		size_t step = len - off < MLOCK_STEP ? len - off : MLOCK_STEP;

		if (stop != NULL && stop(stop_arg)) {
			return -EINTR;
		}
		if (mlock((char *)base + off, step) < 0) {
			int err = errno;

			kvp_mem_why_add(why,
				"locked memory: limit RLIMIT_MEMLOCK, have %zu bytes, need %zu "
				"(%s), remedy: ulimit -l unlimited or CAP_IPC_LOCK",
				off, len, strerrorname_np(err));
			(void)munlock(base, off);
			return -err;
		}
		off += step;
	}
	return 0;
}
