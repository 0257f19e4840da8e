/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c - see process.h.
 */
#include "hal/os/process.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_START_FIELD 20 /* of those behind the name, which may hold anything */

static int
process_start(uint32_t pid, uint64_t *ret_start)
{
	char path[32];
	char text[1024];
	FILE *stream;
	size_t len;
	char *at;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	stream = fopen(path, "re");
	if (stream == NULL) {
		return -errno;
	}
	len = fread(text, 1, sizeof(text) - 1, stream);
	(void)fclose(stream); /* read only */
	text[len] = '\0';
	at = strrchr(text, ')');
	for (int field = 0; at != NULL && field < STAT_START_FIELD; field++) {
		at = strchr(at + 1, ' ');
	}
	if (at == NULL) {
		return -ESRCH; /* it went while we read */
	}
	return sscanf(at, " %" SCNu64, ret_start) == 1 ? 0 : -EINVAL;
}

static int
process_ns(uint64_t *ret_ns)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0) {
		return -errno;
	}
	*ret_ns = st.st_ino;
	return 0;
}

int
kvp_process_self(struct kvp_process *ret_process)
{
	struct kvp_process self = {.pid = (uint32_t)getpid()};
	int err = process_start(self.pid, &self.start);

	err = err < 0 ? err : process_ns(&self.ns);
	if (err == 0) {
		*ret_process = self;
	}
	return err;
}

int
kvp_process_wait(const struct kvp_process *process, uint32_t timeout_ms)
{
	struct pollfd event = {.events = POLLIN};
	uint64_t start = 0;
	uint64_t ns;
	int ret = process_ns(&ns);

	if (ret < 0) {
		return ret;
	}
	if (ns != process->ns) {
		return -EXDEV;
	}
	event.fd = (int)syscall(SYS_pidfd_open, (pid_t)process->pid, 0);
	if (event.fd < 0) {
		return errno == ESRCH ? 0 : -errno;
	}
	/* The descriptor is of whoever has the pid now, and of nobody later. */
	ret = process_start(process->pid, &start);
	if (ret == 0 && start == process->start) {
		ret = poll(&event, 1, (int)timeout_ms);
		ret = ret < 0 ? -errno : ret == 0 ? -ETIMEDOUT : 0;
	} else {
		ret = 0;
	}
	(void)close(event.fd);
	return ret;
}
