/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr.h - addresses as users write them: host:port, 10.0.0.1:7490, [::1]:7490, unix:/path, a
 * bare /path, tcp://host:port. Pure text; nothing is resolved here.
 */
#ifndef KVP_HAL_BASE_ADDR_H
#define KVP_HAL_BASE_ADDR_H

#include "hal/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvp_addr {
	bool is_unix;
	char host[KVP_ADDR_LEN_MAX]; /* host without brackets, or the socket's path */
	uint16_t port;               /* 0 is allowed: any free port when listening */
};

/* port_default < 0: a port is required. A bare IPv6 literal takes the default port, but where its
 * last group could be a port as well (::1:7490) it is refused: brackets say what is meant.
 * -EINVAL; a unix path over 107 bytes is -ENAMETOOLONG. */
int kvp_addr_parse(const char *text, int port_default, struct kvp_addr *ret_addr);

/* "127.0.0.1:7490", "[::1]:7490", "unix:/run/kvpool/kvpoold.sock". */
void kvp_addr_format(const struct kvp_addr *addr, char *buf, size_t cap);

/* True for 0.0.0.0, ::, which cannot be advertised. */
bool kvp_addr_is_wildcard(const struct kvp_addr *addr);

#endif /* KVP_HAL_BASE_ADDR_H */
