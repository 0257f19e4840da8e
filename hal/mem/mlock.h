/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlock.h - keeps pages out of swap, as far as this process may.
 */
#ifndef KVP_HAL_MEM_MLOCK_H
#define KVP_HAL_MEM_MLOCK_H

#include "hal/mem/why.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether len more bytes may be locked: 0, or -EPERM or -ENOMEM with a line in why. */
int kvp_mlock_check(size_t len, struct kvp_mem_why *why);

/* Locks them, in steps between which stop (may be NULL) is asked; true ends it with -EINTR.
 * Unmapping unlocks. -errno with a line in why. */
int kvp_mlock(
	void *base, size_t len, struct kvp_mem_why *why, bool (*stop)(void *arg), void *stop_arg);

#endif /* KVP_HAL_MEM_MLOCK_H */
