/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c - blocks that name themselves. The first 32 bytes are the name and its hash, the rest a
 * sequence of 64-bit words from it, cheap enough not to be what a benchmark measures.
 */
#include "bench/fill.h"

#include <string.h>

#define STEP 0x9e3779b97f4a7c15ull

static uint64_t
mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t
fill_seed(const struct kvp_fill *fill, size_t len)
{
	return mix(mix(mix(mix(fill->key + STEP) ^ fill->writer) ^ fill->number) ^ len);
}

static uint64_t
word_at(uint64_t seed, size_t idx)
{
	uint64_t x = seed + idx * STEP;

	return x ^ (x >> 29);
}

void
kvp_fill_write(void *buf, size_t len, const struct kvp_fill *fill)
{
	uint64_t seed = fill_seed(fill, len);
	uint64_t head[4] = {fill->key, fill->writer, fill->number, seed};
	unsigned char *out = (unsigned char *)buf + sizeof(head);
	size_t words = (len - sizeof(head)) / 8;
	size_t rest = (len - sizeof(head)) % 8;

	memcpy(buf, head, sizeof(head));
	for (size_t i = 0; i < words; i++) {
		uint64_t word = word_at(seed, i);

		memcpy(out + 8 * i, &word, 8);
	}
	if (rest > 0) {
		uint64_t word = word_at(seed, words);

		memcpy(out + 8 * words, &word, rest);
	}
}

/* Bytes of one word that differ. */
static size_t
bytes_wrong(uint64_t diff)
{
	size_t wrong = 0;

	for (; diff != 0; diff >>= 8) {
		wrong += (diff & 0xff) != 0;
	}
	return wrong;
}

size_t
kvp_fill_check(const void *buf, size_t len, uint64_t key, struct kvp_fill *ret_fill)
{
	const unsigned char *in = (const unsigned char *)buf + 4 * sizeof(uint64_t);
	size_t words = (len - 4 * sizeof(uint64_t)) / 8;
	size_t rest = (len - 4 * sizeof(uint64_t)) % 8;
	uint64_t head[4];
	uint64_t seed;
	uint64_t any = 0;
	size_t wrong = 0;

	memcpy(head, buf, sizeof(head));
	*ret_fill = (struct kvp_fill){.key = head[0], .writer = head[1], .number = head[2]};
	seed = fill_seed(ret_fill, len);
	if (head[0] != key || head[3] != seed) {
		return len;
	}
	for (size_t i = 0; i < words; i++) {
		uint64_t word;

		memcpy(&word, in + 8 * i, 8);
		any |= word ^ word_at(seed, i);
	}
	if (rest > 0) {
		uint64_t word = 0;
		uint64_t due = word_at(seed, words) & ((1ull << (8 * rest)) - 1);

		memcpy(&word, in + 8 * words, rest);
		wrong += bytes_wrong(word ^ due);
	}
	for (size_t i = 0; any != 0 && i < words; i++) {
		uint64_t word;

		memcpy(&word, in + 8 * i, 8);
		wrong += bytes_wrong(word ^ word_at(seed, i));
	}
	return wrong;
}
