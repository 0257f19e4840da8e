/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_addr.c - addresses: what is accepted is written in a form that means the same. */
#include "hal/base/addr.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char back[KVP_ADDR_LEN_MAX + 16];
	struct kvp_addr addr;
	struct kvp_addr again;
	char *text;

	if (size < 1) {
		return 0;
	}
	text = malloc(size);
	kvp_assert(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (kvp_addr_parse(text, (data[0] & 1) != 0 ? -1 : 7490, &addr) == 0) {
		(void)kvp_addr_is_wildcard(&addr);
		kvp_addr_format(&addr, back, sizeof(back));
		kvp_assert(kvp_addr_parse(back, -1, &again) == 0);
		kvp_assert(again.is_unix == addr.is_unix && again.port == addr.port);
		kvp_assert(strcmp(again.host, addr.host) == 0);
		kvp_addr_format(&addr, back, size % sizeof(back)); /* any length will do */
	}
	free(text);
	return 0;
}
