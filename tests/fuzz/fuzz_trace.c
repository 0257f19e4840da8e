/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_trace.c - request traces, plain and gzipped. What was accepted adds up. */
#include "bench/trace.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvp_trace trace;
	char error[256] = "";
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	kvp_assert(fd >= 0);
	kvp_assert(write(fd, data, size) == (ssize_t)size);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (kvp_trace_load(path, 0, &trace, error) == 0) {
		uint64_t ids = 0;

		kvp_assert(trace.request_count > 0);
		for (uint32_t i = 0; i < trace.request_count; i++) {
			kvp_assert(trace.requests[i].ids == trace.ids + ids);
			ids += trace.requests[i].block_count;
		}
		kvp_assert(ids == trace.id_count);
		kvp_trace_free(&trace);
	} else {
		kvp_assert(error[0] != '\0' && memchr(error, '\0', sizeof(error)) != NULL);
	}
	kvp_assert(close(fd) == 0);
	return 0;
}
