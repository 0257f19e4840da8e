/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - see host.h. */
#include "hal/os/host.h"

#include "hal/os/file.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int
kvp_host_id(uint8_t ret_id[KVP_ID_LEN])
{
	char text[64] = "";
	uint8_t id[KVP_ID_LEN] = {0};
	size_t len = 0;
	size_t digits = 0;
	int err = kvp_file_read("/proc/sys/kernel/random/boot_id", text, sizeof(text), &len);

	if (err < 0) {
		return err;
	}
	for (size_t i = 0; i < len && digits < 2 * KVP_ID_LEN; i++) {
		int digit = hex_digit(text[i]);

		if (digit >= 0) { /* else a dash */
			id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
			digits++;
		}
	}
	if (digits != 2 * KVP_ID_LEN) {
		return -EINVAL;
	}
	memcpy(ret_id, id, KVP_ID_LEN);
	return 0;
}
