/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.c - payload checksums: XXH3-128 under a seed made of namespace, key and length.
 *
 * A state belongs to whoever made it, one thread at a time. The values are wire and disk format:
 * tests/unit/transport/sum.c holds golden ones.
 */
#include "hal/base/assert.h"
#include "transport/proto/slot.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct kvp_sum_state {
	XXH3_state_t *xxh; /* owned; it wants an alignment that malloc does not promise */
};

struct kvp_sum_state *
kvp_sum_new(void)
{
	struct kvp_sum_state *state = malloc(sizeof(*state));

	if (state == NULL) {
		return NULL;
	}
	state->xxh = XXH3_createState();
	if (state->xxh == NULL) {
		free(state);
		return NULL;
	}
	/* The state comes unset; an update without begin must not read garbage. */
	(void)XXH3_128bits_reset(state->xxh);
	return state;
}

void
kvp_sum_free(struct kvp_sum_state *state)
{
	if (state != NULL) {
		(void)XXH3_freeState(state->xxh);
		free(state);
	}
}

/* Little endian, as everything; see the assertion in hal/base/bytes.h. */
static uint64_t
sum_seed(const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key, uint64_t len)
{
	uint8_t buf[KVP_NS_LEN + 1 + KVP_KEY_LEN_MAX + sizeof(len)];
	size_t used = 0;

	kvp_assert(key->len >= 1 && key->len <= KVP_KEY_LEN_MAX);
	memcpy(buf, ns, KVP_NS_LEN);
	used += KVP_NS_LEN;
	buf[used++] = key->len;
	memcpy(buf + used, key->bytes, key->len);
	used += key->len;
	memcpy(buf + used, &len, sizeof(len));
	used += sizeof(len);
	return XXH3_64bits(buf, used);
}

void
kvp_sum_begin(struct kvp_sum_state *state, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	uint64_t len)
{
	XXH_errorcode err = XXH3_128bits_reset_withSeed(state->xxh, sum_seed(ns, key, len));

	kvp_assert(err == XXH_OK);
}

void
kvp_sum_update(struct kvp_sum_state *state, const void *buf, size_t len)
{
	if (len > 0) {
		XXH_errorcode err = XXH3_128bits_update(state->xxh, buf, len);

		kvp_assert(err == XXH_OK);
	}
}

void
kvp_sum_end(struct kvp_sum_state *state, uint8_t ret_sum[KVP_SUM_LEN])
{
	XXH128_hash_t hash = XXH3_128bits_digest(state->xxh);

	if (hash.low64 == 0 && hash.high64 == 0) {
		hash.low64 = 1; /* all zero means unhashed */
	}
	memcpy(ret_sum, &hash.low64, 8);
	memcpy(ret_sum + 8, &hash.high64, 8);
}
