/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_announce.c - a node's stream of changes: what is accepted is sound and packs to the same. */
#include "tests/fuzz/fuzz.h"
#include "transport/proto/wire.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvp_reader r = kvp_reader_over(data, size);

	while (r.left > 0 && !r.failed) {
		uint8_t back[sizeof(struct kvp_announce) + KVP_KEY_LEN_MAX];
		struct kvp_writer w = kvp_writer_over(back, sizeof(back));
		const uint8_t *start = r.pos;
		struct kvp_announce head;
		struct kvp_key key;

		kvp_read_announce(&r, &head, &key);
		if (r.failed) {
			kvp_assert(head.kind == 0 && key.len == 0);
			break;
		}
		kvp_assert(head.kind == KVP_ANNOUNCE_STORED || head.kind == KVP_ANNOUNCE_REMOVED);
		kvp_assert(head.klen == key.len && head.tier <= KVP_TIER_SSD);
		kvp_write_announce(&w, &head, &key);
		kvp_assert(!w.failed);
		kvp_assert((size_t)(r.pos - start) == sizeof(back) - w.left);
		kvp_assert(memcmp(back, start, sizeof(back) - w.left) == 0);
	}
	return 0;
}
