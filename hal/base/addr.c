/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr.c - reads and writes addresses. Pure text: inet_pton checks literals, nothing is resolved.
 *
 * A bare IPv6 literal takes the default port, but only where it can be read in one way: in
 * "::1:7490" the last group may be a port, so it is refused and the user writes brackets.
 */
#include "hal/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#define ADDR_UNIX_PATH_LEN_MAX 107u /* sun_path holds 108 bytes with the NUL */
#define ADDR_LABEL_LEN_MAX     63u
#define ADDR_HOST_LEN_MAX      253u

/* Not <ctype.h>: its answers depend on the locale of the host program. */
static bool
addr_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
addr_is_name_char(char c)
{
	return addr_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
	       c == '_';
}

static int
addr_port_parse(const char *text, uint16_t *ret_port)
{
	uint32_t port = 0;
	size_t len = strlen(text);

	if (len == 0 || len > 5) {
		return -EINVAL;
	}
	for (; *text != '\0'; text++) {
		if (!addr_is_digit(*text)) {
			return -EINVAL;
		}
		port = port * 10 + (uint32_t)(*text - '0');
	}
	if (port > UINT16_MAX) {
		return -EINVAL;
	}
	*ret_port = (uint16_t)port;
	return 0;
}

/* An IPv6 literal, with a zone ("fe80::1%eth0") or without. */
static bool
addr_is_ipv6(const char *host)
{
	char literal[INET6_ADDRSTRLEN];
	const char *zone = strchr(host, '%');
	size_t len = zone != NULL ? (size_t)(zone - host) : strlen(host);
	struct in6_addr ignored;

	if (len >= sizeof(literal)) {
		return false;
	}
	memcpy(literal, host, len);
	literal[len] = '\0';
	if (inet_pton(AF_INET6, literal, &ignored) != 1) {
		return false;
	}
	if (zone == NULL) {
		return true;
	}
	len = strlen(zone + 1);
	if (len == 0 || len >= IF_NAMESIZE) {
		return false;
	}
	for (zone++; *zone != '\0'; zone++) {
		if (!addr_is_name_char(*zone) && *zone != '.') {
			return false;
		}
	}
	return true;
}

/* A host name or an IPv4 literal. What ends in a number must be a literal: 10.0.0 and 1.2.3.999
 * are slips, which a resolver would read in its own way. */
static bool
addr_is_name(const char *host)
{
	const char *label = host;
	struct in_addr ignored;
	bool digits = true;

	if (strlen(host) > ADDR_HOST_LEN_MAX || strcmp(host, "unix") == 0) {
		return false; /* "unix:7490" cannot be told from a path */
	}
	for (const char *pos = host;; pos++) {
		if (*pos != '.' && *pos != '\0') {
			digits = digits && addr_is_digit(*pos);
			if (!addr_is_name_char(*pos)) {
				return false;
			}
			continue;
		}
		if (pos == label || (size_t)(pos - label) > ADDR_LABEL_LEN_MAX || *label == '-' ||
			pos[-1] == '-') {
			return false;
		}
		if (*pos == '\0') {
			break;
		}
		label = pos + 1;
		digits = true;
	}
	return !digits || inet_pton(AF_INET, host, &ignored) == 1;
}

static int
addr_unix_parse(const char *path, struct kvp_addr *ret_addr)
{
	size_t len = strlen(path);

	if (path[0] != '/') {
		return -EINVAL;
	}
	if (len > ADDR_UNIX_PATH_LEN_MAX) {
		return -ENAMETOOLONG;
	}
	*ret_addr = (struct kvp_addr){.is_unix = true};
	memcpy(ret_addr->host, path, len + 1);
	return 0;
}

/* More than one colon and no brackets. */
static int
addr_bare_ipv6_check(const char *host)
{
	char prefix[KVP_ADDR_LEN_MAX];
	const char *colon = strrchr(host, ':');
	uint16_t ignored;

	if (!addr_is_ipv6(host)) {
		return -EINVAL;
	}
	memcpy(prefix, host, (size_t)(colon - host));
	prefix[colon - host] = '\0';
	/* Would also be an address with a port. */
	return addr_is_ipv6(prefix) && addr_port_parse(colon + 1, &ignored) == 0 ? -EINVAL : 0;
}

/* Splits text, which the caller owns, at its port. *ret_port is NULL when there is none. */
static int
addr_split(char *text, char **ret_host, char **ret_port)
{
	char *colon = strchr(text, ':');
	char *end;

	*ret_host = text;
	*ret_port = NULL;
	if (text[0] == '[') {
		end = strchr(text, ']');
		if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
			return -EINVAL;
		}
		*ret_host = text + 1;
		*ret_port = end[1] == ':' ? end + 2 : NULL;
		*end = '\0';
		return addr_is_ipv6(*ret_host) ? 0 : -EINVAL;
	}
	if (colon != NULL && strchr(colon + 1, ':') != NULL) {
		return addr_bare_ipv6_check(text);
	}
	if (colon != NULL) {
		*ret_port = colon + 1;
		*colon = '\0';
	}
	return addr_is_name(text) ? 0 : -EINVAL;
}

int
kvp_addr_parse(const char *text, int port_default, struct kvp_addr *ret_addr)
{
	struct kvp_addr addr = {0};
	char copy[KVP_ADDR_LEN_MAX];
	char *host;
	char *port;
	int ret;

	if (text[0] == '/') {
		return addr_unix_parse(text, ret_addr);
	}
	if (strncmp(text, "unix:", 5) == 0) {
		return addr_unix_parse(text + 5, ret_addr);
	}
	if (strncmp(text, "tcp://", 6) == 0) {
		text += 6;
	}
	if (strnlen(text, sizeof(copy)) == sizeof(copy)) {
		return -EINVAL;
	}
	strcpy(copy, text);
	ret = addr_split(copy, &host, &port);
	if (ret < 0) {
		return ret;
	}
	if (port != NULL) {
		ret = addr_port_parse(port, &addr.port);
		if (ret < 0) {
			return ret;
		}
	} else if (port_default < 0 || port_default > UINT16_MAX) {
		return -EINVAL;
	} else {
		addr.port = (uint16_t)port_default;
	}
	strcpy(addr.host, host);
	*ret_addr = addr;
	return 0;
}

void
kvp_addr_format(const struct kvp_addr *addr, char *buf, size_t cap)
{
	if (addr->is_unix) {
		(void)snprintf(buf, cap, "unix:%s", addr->host);
	} else if (strchr(addr->host, ':') != NULL) {
		(void)snprintf(buf, cap, "[%s]:%u", addr->host, addr->port);
	} else {
		(void)snprintf(buf, cap, "%s:%u", addr->host, addr->port);
	}
}

bool
kvp_addr_is_wildcard(const struct kvp_addr *addr)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (addr->is_unix) {
		return false;
	}
	if (inet_pton(AF_INET, addr->host, &v4) == 1) {
		return v4.s_addr == INADDR_ANY;
	}
	return inet_pton(AF_INET6, addr->host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
