/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.c - lines about shortfalls, for the caller's log.
 */
#include "hal/mem/why.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void
kvp_mem_why_add(struct kvp_mem_why *why, const char *format, ...)
{
	va_list args;

	if (why->count >= KVP_MEM_WHY_COUNT) {
		return;
	}
	va_start(args, format);
	(void)vsnprintf(why->line[why->count], KVP_MEM_WHY_LEN, format, args);
	va_end(args);
	why->count++;
}

const char *
kvp_mem_len_text(uint64_t len, char buf[KVP_MEM_TEXT_LEN])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
	size_t i = 0;

	while (i < 3 && len >= 1024 && len % 1024 == 0) {
		len /= 1024;
		i++;
	}
	(void)snprintf(buf, KVP_MEM_TEXT_LEN, "%" PRIu64 " %s", len, units[i]);
	return buf;
}
