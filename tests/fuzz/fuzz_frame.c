/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_frame.c - the header of a frame: what is accepted keeps the rules and encodes back. */
#include "tests/fuzz/fuzz.h"
#include "transport/proto/wire.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t back[KVP_FRAME_HEADER_LEN];
	struct kvp_frame frame;
	uint32_t len_max;

	if (size < KVP_FRAME_HEADER_LEN + sizeof(len_max)) {
		return 0;
	}
	memcpy(&len_max, data + KVP_FRAME_HEADER_LEN, sizeof(len_max));
	len_max %= KVP_FRAME_LEN_MAX + 1;
	if (kvp_frame_decode(data, len_max, &frame) < 0) {
		return 0;
	}
	kvp_assert(frame.body_len <= len_max && frame.status <= 0);
	kvp_assert(frame.kind == KVP_FRAME_REPLY || frame.status == 0);
	kvp_frame_encode(&frame, back);
	kvp_assert(memcmp(back, data, sizeof(back)) == 0);
	kvp_assert(kvp_rpc_name(frame.type) != NULL);
	return 0;
}
