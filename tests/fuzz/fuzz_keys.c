/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_keys.c - packed keys: counting and reading agree, and what was read packs to the same. */
#include "tests/fuzz/fuzz.h"
#include "transport/proto/wire.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t max = size > 0 ? data[0] * 64u : 0;
	int count = kvp_keys_count(data, size, max);
	struct kvp_reader r = kvp_reader_over(data, size);
	uint8_t *back = malloc(size + 1);
	struct kvp_writer w = kvp_writer_over(back, size);
	uint32_t read = 0;

	kvp_assert(back != NULL);
	while (r.left > 0 && !r.failed && read < max) {
		struct kvp_key key;

		kvp_read_key(&r, &key);
		if (!r.failed) {
			kvp_write_key(&w, &key);
			kvp_assert(!w.failed);
			read++;
		}
	}
	if (count >= 0) {
		kvp_assert(!r.failed && r.left == 0 && read == (uint32_t)count);
		kvp_assert(memcmp(back, data, size) == 0);
	} else {
		kvp_assert(r.failed || r.left > 0);
	}
	free(back);
	return 0;
}
