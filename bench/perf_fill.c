/* SPDX-License-Identifier: Apache-2.0 */
/* perf_fill.c - fill.h for blocks of any length: a short one is the start of a longer one. */
#include "bench/fill.h"
#include "bench/perf.h"

#include <string.h>

#define FILL_WRITER 1 /* what both sides write is the same, so it does not matter who did */

static struct kvp_fill
fill_of(uint32_t block)
{
	return (struct kvp_fill){.key = block + 1ull, .writer = FILL_WRITER, .number = 1};
}

void
kvp_perf_fill(void *buf, size_t len, uint32_t block)
{
	struct kvp_fill fill = fill_of(block);
	unsigned char whole[KVP_FILL_LEN_MIN];

	if (len >= sizeof(whole)) {
		kvp_fill_write(buf, len, &fill);
		return;
	}
	kvp_fill_write(whole, sizeof(whole), &fill);
	memcpy(buf, whole, len);
}

size_t
kvp_perf_wrong(const void *buf, size_t len, uint32_t block)
{
	struct kvp_fill fill = fill_of(block);
	unsigned char whole[KVP_FILL_LEN_MIN];
	const unsigned char *in = buf;
	size_t wrong = 0;

	if (len >= sizeof(whole)) {
		return kvp_fill_check(buf, len, fill.key, &fill);
	}
	kvp_fill_write(whole, sizeof(whole), &fill);
	for (size_t i = 0; i < len; i++) {
		wrong += in[i] != whole[i];
	}
	return wrong;
}
