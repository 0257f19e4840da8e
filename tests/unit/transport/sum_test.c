/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_test.c - payload checksums: their values are a format, and segments do not matter.
 */
#include "tests/unit/transport/transport_test.h"
#include "transport/proto/slot.h"
#include "transport/proto/wire.h"

static const uint8_t ns[KVP_NS_LEN] = "namespace digest";

static void
sum_of(const uint8_t *space, const char *key_text, uint64_t len, const uint8_t *buf, size_t buf_len,
	size_t segment, uint8_t ret_sum[KVP_SUM_LEN])
{
	struct kvp_sum_state *sum = kvp_sum_new();
	struct kvp_key key;

	assert_non_null(sum);
	assert_int_equal(kvp_key_set(&key, key_text, strlen(key_text)), 0);
	kvp_sum_begin(sum, space, &key, len);
	for (size_t off = 0; off < buf_len; off += segment) {
		size_t part = buf_len - off < segment ? buf_len - off : segment;

		kvp_sum_update(sum, buf + off, part);
		kvp_sum_update(sum, NULL, 0);
	}
	kvp_sum_end(sum, ret_sum);
	kvp_sum_free(sum);
}

static void
fill(uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		buf[i] = (uint8_t)(i * 7 + i / 251);
	}
}

static void
segments_do_not_matter(void **state)
{
	static const size_t segments[] = {1, 3, 64, 255, 256, 1000, 4096, 65536};
	uint8_t buf[10000];
	uint8_t whole[KVP_SUM_LEN];

	(void)state;
	fill(buf, sizeof(buf));
	sum_of(ns, "key", sizeof(buf), buf, sizeof(buf), sizeof(buf), whole);
	for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++) {
		uint8_t sum[KVP_SUM_LEN];

		sum_of(ns, "key", sizeof(buf), buf, sizeof(buf), segments[i], sum);
		assert_memory_equal(sum, whole, KVP_SUM_LEN);
	}
}

static void
name_and_length_are_part_of_it(void **state)
{
	static const uint8_t other_ns[KVP_NS_LEN] = "Namespace digest";
	uint8_t buf[1000];
	uint8_t sums[5][KVP_SUM_LEN];

	(void)state;
	fill(buf, sizeof(buf));
	sum_of(ns, "key", sizeof(buf), buf, sizeof(buf), 100, sums[0]);
	sum_of(other_ns, "key", sizeof(buf), buf, sizeof(buf), 100, sums[1]);
	sum_of(ns, "kez", sizeof(buf), buf, sizeof(buf), 100, sums[2]);
	sum_of(ns, "key", sizeof(buf) + 1, buf, sizeof(buf), 100, sums[3]);
	buf[500] ^= 0x10;
	sum_of(ns, "key", sizeof(buf), buf, sizeof(buf), 100, sums[4]);
	for (size_t i = 0; i < 5; i++) {
		for (size_t j = i + 1; j < 5; j++) {
			assert_memory_not_equal(sums[i], sums[j], KVP_SUM_LEN);
		}
	}
}

/* Stored in slot tables and on disks: a change here makes them unreadable. */
static void
golden(void **state)
{
	static const uint8_t want[KVP_SUM_LEN] = {0xfb, 0x6c, 0x3e, 0xbd, 0xcc, 0xaf, 0xa6, 0xb5,
		0x79, 0xbb, 0xe3, 0x18, 0xa5, 0x31, 0x3a, 0xd7};
	static const uint64_t want_digest[2] = {0x3e16a2b55af8d330ull, 0xfee079410168fb6eull};
	uint8_t buf[3000];
	uint8_t sum[KVP_SUM_LEN];
	uint64_t digest[2];
	struct kvp_key key;

	(void)state;
	fill(buf, sizeof(buf));
	sum_of(ns, "golden", sizeof(buf), buf, sizeof(buf), 512, sum);
	assert_memory_equal(sum, want, KVP_SUM_LEN);
	assert_int_equal(kvp_key_set(&key, "golden", 6), 0);
	kvp_key_digest(42, ns, &key, digest);
	assert_int_equal(digest[0], want_digest[0]);
	assert_int_equal(digest[1], want_digest[1]);
}

static void
digests_depend_on_the_seed(void **state)
{
	uint64_t a[2];
	uint64_t b[2];
	struct kvp_key key;

	(void)state;
	assert_int_equal(kvp_key_set(&key, "key", 3), 0);
	kvp_key_digest(1, ns, &key, a);
	kvp_key_digest(2, ns, &key, b);
	assert_true(a[0] != b[0] && a[1] != b[1]);
	/* "key" and "key\0" are two keys. */
	assert_int_equal(kvp_key_set(&key, "key\0", 4), 0);
	kvp_key_digest(1, ns, &key, b);
	assert_true(a[0] != b[0] && a[1] != b[1]);
}

static void
an_empty_state_and_none(void **state)
{
	uint8_t sum[KVP_SUM_LEN];
	static const uint8_t zero[KVP_SUM_LEN];

	(void)state;
	sum_of(ns, "k", 0, NULL, 0, 1, sum);
	assert_memory_not_equal(sum, zero, KVP_SUM_LEN);
	kvp_sum_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_do_not_matter),
		cmocka_unit_test(name_and_length_are_part_of_it),
		cmocka_unit_test(golden),
		cmocka_unit_test(digests_depend_on_the_seed),
		cmocka_unit_test(an_empty_state_and_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
