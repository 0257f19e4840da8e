/* SPDX-License-Identifier: Apache-2.0 */
/* perf_ticket.c - tickets as text: "kvpool-perf-1,TRANSPORT,ADDRESS,TOKEN,READ,WRITE", hex. */
#include "bench/perf_page.h"

#include "hal/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICKET_KIND   "kvpool-perf-"
#define TICKET_PREFIX TICKET_KIND "1,"
_Static_assert(KVP_PERF_PAGE_VERSION == 1, "the prefix has the version");

static void
hex_format(const uint8_t *bytes, size_t len, char *buf)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		buf[2 * i] = digits[bytes[i] >> 4];
		buf[2 * i + 1] = digits[bytes[i] & 15];
	}
	buf[2 * len] = '\0';
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the number of bytes, or -EINVAL. */
static int
hex_parse(const char *text, uint8_t *bytes, size_t cap)
{
	size_t len = strlen(text);

	if (len % 2 != 0 || len / 2 > cap) {
		return -EINVAL;
	}
	for (size_t i = 0; i < len / 2; i++) {
		int high = hex_digit(text[2 * i]);
		int low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0) {
			return -EINVAL;
		}
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return (int)(len / 2);
}

void
kvp_perf_ticket_format(const struct kvp_perf_ticket *ticket, char buf[KVP_PERF_TICKET_LEN])
{
	char token[2 * KVP_TOKEN_LEN + 1];
	char read_desc[2 * KVP_RDESC_LEN_MAX + 1];
	char write_desc[2 * KVP_RDESC_LEN_MAX + 1];

	hex_format(ticket->token, KVP_TOKEN_LEN, token);
	hex_format(ticket->read_desc.bytes, ticket->read_desc.len, read_desc);
	hex_format(ticket->write_desc.bytes, ticket->write_desc.len, write_desc);
	snprintf(buf, KVP_PERF_TICKET_LEN, TICKET_PREFIX "%s,%s,%s,%s,%s", ticket->transport,
		ticket->addr, token, read_desc, write_desc);
}

static int
rdesc_parse(const char *text, struct kvp_rdesc *ret_rdesc)
{
	int len = hex_parse(text, ret_rdesc->bytes, sizeof(ret_rdesc->bytes));

	if (len <= 0) {
		return -EINVAL;
	}
	ret_rdesc->len = (uint8_t)len;
	return 0;
}

int
kvp_perf_ticket_parse(const char *text, struct kvp_perf_ticket *ret_ticket)
{
	char copy[KVP_PERF_TICKET_LEN];
	char *fields[5];
	char *rest = copy;

	if (strncmp(text, TICKET_PREFIX, sizeof(TICKET_PREFIX) - 1) != 0) {
		return strncmp(text, TICKET_KIND, sizeof(TICKET_KIND) - 1) == 0 ? -KVP_E_VERSION
										: -EINVAL;
	}
	if (strlen(text) >= sizeof(copy)) {
		return -EINVAL;
	}
	strcpy(copy, text + sizeof(TICKET_PREFIX) - 1);
	copy[strcspn(copy, "\r\n")] = '\0';
	for (size_t i = 0; i < 5; i++) {
		fields[i] = strsep(&rest, ",");
		if (fields[i] == NULL || *fields[i] == '\0') {
			return -EINVAL;
		}
	}
	if (rest != NULL || strlen(fields[0]) >= sizeof(ret_ticket->transport) ||
		strlen(fields[1]) >= sizeof(ret_ticket->addr)) {
		return -EINVAL;
	}
	memset(ret_ticket, 0, sizeof(*ret_ticket));
	strcpy(ret_ticket->transport, fields[0]);
	strcpy(ret_ticket->addr, fields[1]);
	if (hex_parse(fields[2], ret_ticket->token, KVP_TOKEN_LEN) != KVP_TOKEN_LEN) {
		return -EINVAL;
	}
	if (rdesc_parse(fields[3], &ret_ticket->read_desc) < 0) {
		return -EINVAL;
	}
	return rdesc_parse(fields[4], &ret_ticket->write_desc);
}

int
kvp_perf_ticket_load(const char *text, struct kvp_perf_ticket *ret_ticket)
{
	char line[KVP_PERF_TICKET_LEN];
	int ret = -EINVAL;
	FILE *file;

	if (strncmp(text, TICKET_KIND, sizeof(TICKET_KIND) - 1) == 0) {
		return kvp_perf_ticket_parse(text, ret_ticket);
	}
	file = strcmp(text, "-") == 0 ? stdin : fopen(text, "re");
	if (file == NULL) {
		return -errno;
	}
	while (ret == -EINVAL && fgets(line, sizeof(line), file) != NULL) {
		ret = kvp_perf_ticket_parse(line, ret_ticket);
	}
	if (file != stdin) {
		(void)fclose(file);
	}
	return ret;
}
