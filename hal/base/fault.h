/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - named points at which a test wants a process to die, so that what a kill leaves behind
 * can be looked at for each of them. Nobody has a kvp_fault but a daemon started with
 * KVP_TEST_FAULT; for all others a point is one branch that is never taken.
 *
 * OWNERSHIP One kvp_fault belongs to one thread.
 */
#ifndef KVP_HAL_BASE_FAULT_H
#define KVP_HAL_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvp_fault {
	char point[32];
	uint32_t left; /* passes of that point until it acts */
	int signo;     /* that the process sends itself */
};

/* "POINT:N" or "POINT:N:kill" sends SIGKILL at the Nth pass, "POINT:N:stop" SIGSTOP. -EINVAL. */
int kvp_fault_parse(const char *text, struct kvp_fault *ret_fault);

/* One pass; may not return. */
void kvp_fault_hit(struct kvp_fault *fault, const char *point);

static inline void
kvp_fault_point(struct kvp_fault *fault, const char *point)
{
	if (__builtin_expect(fault != NULL, 0)) {
		kvp_fault_hit(fault, point);
	}
}

#endif /* KVP_HAL_BASE_FAULT_H */
