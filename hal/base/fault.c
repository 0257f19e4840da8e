/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - see fault.h. Nothing is cleaned up on the way out: that is the point.
 */
#include "hal/base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int
kvp_fault_parse(const char *text, struct kvp_fault *ret_fault)
{
	struct kvp_fault fault = {.signo = SIGKILL};
	size_t len = strcspn(text, ":");
	unsigned long count;
	char *end;

	if (len == 0 || len >= sizeof(fault.point) || text[len] != ':') {
		return -EINVAL;
	}
	memcpy(fault.point, text, len);
	count = strtoul(text + len + 1, &end, 10);
	if (end == text + len + 1 || count == 0 || count > UINT32_MAX) {
		return -EINVAL;
	}
	fault.left = (uint32_t)count;
	if (strcmp(end, ":stop") == 0) {
		fault.signo = SIGSTOP;
	} else if (*end != '\0' && strcmp(end, ":kill") != 0) {
		return -EINVAL;
	}
	*ret_fault = fault;
	return 0;
}

void
kvp_fault_hit(struct kvp_fault *fault, const char *point)
{
	if (fault->left > 0 && strcmp(fault->point, point) == 0 && --fault->left == 0) {
		(void)raise(fault->signo); /* fails for bad numbers only */
	}
}
