/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - which machine this is, for "is that process on my host?". Any thread.
 */
#ifndef KVP_HAL_OS_HOST_H
#define KVP_HAL_OS_HOST_H

#include "hal/base/limits.h"

#include <stdint.h>

/* The boot id: equal in all processes and containers of one host until it boots again, and on no
 * other host. -ENOENT and so on, or -EINVAL, when it cannot be read. */
int kvp_host_id(uint8_t ret_id[KVP_ID_LEN]);

#endif /* KVP_HAL_OS_HOST_H */
