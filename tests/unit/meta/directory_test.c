/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_test.c - the directory against a model that a page of code can hold, then its limits.
 */
#include "tests/unit/meta/meta_test.h"

#include "hal/base/err.h"
#include "pool/meta/directory.h"

#include <inttypes.h>

#define MODEL_NODES 5
#define MODEL_SLOTS 64
#define MODEL_KEYS  80
#define MODEL_TIERS 2

struct model_slot {
	bool used;
	uint32_t key;
	uint64_t word;
	uint64_t off;
	uint8_t tier;
	bool restated;
};

struct model {
	struct kvp_directory *dir;
	uint64_t random;
	uint64_t counter;
	struct model_slot slots[MODEL_NODES][MODEL_SLOTS];
	bool open[MODEL_NODES];
	bool hidden[MODEL_NODES];
};

static void
digest_of(uint64_t key, uint64_t ret_digest[2])
{
	uint64_t state = key;

	/* Few different low bits, so that chains are long. */
	ret_digest[0] = test_next(&state) & ~0xffull;
	ret_digest[1] = test_next(&state);
}

static uint64_t
word_of(uint64_t counter)
{
	return kvp_word_make(7, counter, KVP_SLOT_VALID);
}

static void
model_store(struct model *m, uint16_t node, uint32_t slot)
{
	struct model_slot *to = &m->slots[node][slot];
	struct model_slot now = {.used = true,
		.key = (uint32_t)test_below(&m->random, MODEL_KEYS),
		.word = word_of(++m->counter),
		.off = test_next(&m->random),
		.tier = (uint8_t)(KVP_TIER_DRAM + test_below(&m->random, MODEL_TIERS)),
		.restated = true};
	struct kvp_place place = {.word = now.word,
		.off = now.off,
		.len = 4096 + slot,
		.slot = slot,
		.tier = now.tier};
	uint64_t digest[2];

	digest_of(now.key, digest);
	assert_int_equal(kvp_directory_store(m->dir, node, digest, &place), 0);
	for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
		struct model_slot *other = &m->slots[node][i];

		if (other->used && other->key == now.key && other->tier == now.tier) {
			other->used = false;
		}
	}
	*to = now;
}

/* States again what it has. */
static void
model_restate(struct model *m, uint16_t node, uint32_t slot)
{
	struct model_slot *to = &m->slots[node][slot];
	struct kvp_place place = {.word = to->word,
		.off = to->off,
		.len = 4096 + slot,
		.slot = slot,
		.tier = to->tier};
	uint64_t digest[2];

	if (to->used) {
		digest_of(to->key, digest);
		assert_int_equal(kvp_directory_store(m->dir, node, digest, &place), 0);
		to->restated = true;
	}
}

static void
model_remove(struct model *m, uint16_t node, uint32_t slot)
{
	struct model_slot *from = &m->slots[node][slot];
	bool right = test_below(&m->random, 4) != 0;
	int want = from->used && right ? 0 : -KVP_E_NOKEY;

	assert_int_equal(
		kvp_directory_remove(m->dir, node, slot, right ? from->word : word_of(1ull << 39)),
		want);
	if (want == 0) {
		from->used = false;
	}
}

static void
model_snapshot(struct model *m, uint16_t node)
{
	if (!m->open[node] || test_below(&m->random, 4) == 0) {
		kvp_directory_snapshot_begin(m->dir, node);
		m->open[node] = true;
		for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
			m->slots[node][i].restated = false;
		}
		return;
	}
	kvp_directory_snapshot_end(m->dir, node);
	m->open[node] = false;
	for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
		m->slots[node][i].used = m->slots[node][i].used && m->slots[node][i].restated;
	}
}

static void
model_drop(struct model *m, uint16_t node)
{
	kvp_directory_drop(m->dir, node);
	m->open[node] = false;
	for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
		m->slots[node][i].used = false;
	}
}

static void
model_step(struct model *m)
{
	uint16_t node = (uint16_t)test_below(&m->random, MODEL_NODES);
	uint32_t slot = (uint32_t)test_below(&m->random, MODEL_SLOTS);

	switch (test_below(&m->random, 64)) {
	case 0:
	case 1:
		model_snapshot(m, node);
		break;
	case 2:
		if (test_below(&m->random, 4) == 0) {
			model_drop(m, node);
		}
		break;
	case 3:
		m->hidden[node] = !m->hidden[node];
		kvp_directory_show(m->dir, node, !m->hidden[node]);
		break;
	case 4:
	case 5:
	case 6:
		(void)kvp_directory_turn(m->dir, test_below(&m->random, 40));
		break;
	default:
		switch (test_below(&m->random, 4)) {
		case 0:
			model_remove(m, node, slot);
			break;
		case 1:
			model_restate(m, node, slot);
			break;
		default:
			model_store(m, node, slot);
			break;
		}
	}
}

/* The location is one that the model has under that key; and as many are there as can be. */
static void
model_check_key(struct model *m, uint32_t key)
{
	struct kvp_loc locs[KVP_REPLICAS_MAX];
	uint64_t digest[1][2];
	uint8_t count;
	uint32_t want = 0;

	for (uint16_t node = 0; node < MODEL_NODES; node++) {
		for (uint32_t i = 0; i < MODEL_SLOTS && !m->hidden[node]; i++) {
			want += m->slots[node][i].used && m->slots[node][i].key == key;
		}
	}
	digest_of(key, digest[0]);
	assert_int_equal(kvp_directory_find(m->dir, (const uint64_t(*)[2])digest, 1,
				 KVP_REPLICAS_MAX, &count, locs),
		want < KVP_REPLICAS_MAX ? want : KVP_REPLICAS_MAX);
	for (uint8_t i = 0; i < count; i++) {
		const struct model_slot *slot = &m->slots[locs[i].node][locs[i].slot];

		assert_false(m->hidden[locs[i].node]);
		assert_true(slot->used && slot->key == key);
		assert_true(slot->word == locs[i].word && slot->off == locs[i].off);
		assert_int_equal(slot->tier, locs[i].tier);
		assert_int_equal(locs[i].len, 4096 + locs[i].slot);
		assert_true(i == 0 || locs[i - 1].tier <= locs[i].tier);
	}
}

static void
model_check(struct model *m)
{
	uint64_t blocks = 0;

	for (uint32_t key = 0; key < MODEL_KEYS; key++) {
		model_check_key(m, key);
	}
	for (uint16_t node = 0; node < MODEL_NODES; node++) {
		uint64_t used = 0;

		for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
			used += m->slots[node][i].used;
		}
		assert_int_equal(kvp_directory_node_blocks(m->dir, node), used);
		blocks += used;
	}
	assert_int_equal(kvp_directory_blocks(m->dir), blocks);
	assert_true(kvp_directory_held(m->dir) >= blocks);
}

static void
directory_model(void **state)
{
	struct model m = {.random = test_seed()};

	(void)state;
	assert_int_equal(kvp_directory_new(1024, m.random, &m.dir), 0);
	for (uint32_t step = 0; step < 100000; step++) {
		model_step(&m);
		if (step % 50 == 0) {
			model_check(&m);
		}
	}
	while (kvp_directory_turn(m.dir, 100)) {
	}
	model_check(&m);
	assert_int_equal(kvp_directory_held(m.dir), kvp_directory_blocks(m.dir));
	kvp_directory_free(m.dir);
}

/* --- single rules ---------------------------------------------------------------------------- */

static int
store(struct kvp_directory *dir, uint16_t node, uint64_t key, uint32_t slot, uint64_t word,
	uint8_t tier)
{
	struct kvp_place place = {.word = word, .len = 1, .slot = slot, .tier = tier};
	uint64_t digest[2];

	digest_of(key, digest);
	return kvp_directory_store(dir, node, digest, &place);
}

static size_t
find(const struct kvp_directory *dir, uint64_t key, uint32_t replicas_max, struct kvp_loc *ret_locs)
{
	uint64_t digest[1][2];
	uint8_t count;

	digest_of(key, digest[0]);
	return kvp_directory_find(
		dir, (const uint64_t(*)[2])digest, 1, replicas_max, &count, ret_locs);
}

static void
directory_words(void **state)
{
	struct kvp_directory *dir;
	struct kvp_loc loc;

	(void)state;
	assert_int_equal(kvp_directory_new(16, 1, &dir), 0);
	assert_int_equal(store(dir, 0, 1, 9, word_of(20), KVP_TIER_DRAM), 0);
	assert_int_equal(store(dir, 0, 2, 9, word_of(19), KVP_TIER_DRAM), -KVP_E_STALE);
	assert_int_equal(find(dir, 2, 1, &loc), 0);
	assert_int_equal(find(dir, 1, 1, &loc), 1);
	assert_true(loc.word == word_of(20));
	/* A removal of what was there before is late, and one of another slot is none. */
	assert_int_equal(kvp_directory_remove(dir, 0, 9, word_of(19)), -KVP_E_NOKEY);
	assert_int_equal(kvp_directory_remove(dir, 1, 9, word_of(20)), -KVP_E_NOKEY);
	assert_int_equal(kvp_directory_remove(dir, 0, 8, word_of(20)), -KVP_E_NOKEY);
	assert_int_equal(find(dir, 1, 1, &loc), 1);
	/* The incarnation in a word wraps: 0 follows 0xfffff. */
	assert_int_equal(
		store(dir, 0, 3, 1, kvp_word_make(0xfffff, 5, KVP_SLOT_VALID), KVP_TIER_DRAM), 0);
	assert_int_equal(
		store(dir, 0, 4, 1, kvp_word_make(0, 1, KVP_SLOT_VALID), KVP_TIER_DRAM), 0);
	assert_int_equal(find(dir, 3, 1, &loc), 0);
	assert_int_equal(find(dir, 4, 1, &loc), 1);
	/* After a drop an older word is as good as any. */
	kvp_directory_drop(dir, 0);
	assert_int_equal(store(dir, 0, 1, 9, word_of(3), KVP_TIER_DRAM), 0);
	assert_int_equal(find(dir, 1, 1, &loc), 1);
	kvp_directory_free(dir);
}

static void
directory_replicas(void **state)
{
	struct kvp_loc locs[KVP_REPLICAS_MAX];
	struct kvp_directory *dir;

	(void)state;
	assert_int_equal(kvp_directory_new(64, 1, &dir), 0);
	assert_int_equal(store(dir, 0, 1, 0, word_of(1), KVP_TIER_DRAM), 0);
	assert_int_equal(store(dir, 1, 1, 0, word_of(1), KVP_TIER_HBM), 0);
	for (uint16_t node = 2; node < 12; node++) {
		assert_int_equal(store(dir, node, 1, 0, word_of(1), KVP_TIER_SSD), 0);
	}
	assert_int_equal(find(dir, 1, 1, locs), 1);
	assert_int_equal(locs[0].tier, KVP_TIER_DRAM);
	assert_int_equal(find(dir, 1, 8, locs), 8);
	assert_int_equal(locs[0].tier, KVP_TIER_DRAM);
	assert_int_equal(locs[7].tier, KVP_TIER_SSD);
	kvp_directory_show(dir, 0, false);
	assert_int_equal(find(dir, 1, 1, locs), 1);
	assert_int_equal(locs[0].tier, KVP_TIER_SSD);
	kvp_directory_free(dir);
}

static void
directory_full(void **state)
{
	struct kvp_directory *dir;

	(void)state;
	assert_int_equal(kvp_directory_new(100, 1, &dir), 0);
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(store(dir, i % 2, i, i, word_of(1), KVP_TIER_DRAM), 0);
	}
	assert_int_equal(store(dir, 0, 1000, 1000, word_of(1), KVP_TIER_DRAM), -KVP_E_NO_SPACE);
	assert_int_equal(store(dir, 0, 1000, 0, word_of(2), KVP_TIER_DRAM), 0); /* no new one */
	/* What is gone makes room without waiting for a turn. */
	kvp_directory_drop(dir, 1);
	assert_int_equal(store(dir, 0, 1001, 1001, word_of(1), KVP_TIER_DRAM), 0);
	assert_int_equal(kvp_directory_blocks(dir), 51);
	kvp_directory_free(dir);
	assert_int_equal(kvp_directory_new(0, 1, &dir), -22);
	assert_int_equal(kvp_directory_new(KVP_DIRECTORY_BLOCKS_MAX + 1, 1, &dir), -22);
}

/* Snapshots without end and without a turn, until the stamp is what it was: stamps run out before
 * that, and what was said under the old one is not taken for new. */
static void
directory_stamps(void **state)
{
	struct kvp_directory *dir;
	struct kvp_loc loc;

	(void)state;
	assert_int_equal(kvp_directory_new(64, 1, &dir), 0);
	assert_int_equal(store(dir, 3, 7, 7, word_of(1), KVP_TIER_DRAM), 0);
	assert_int_equal(store(dir, 4, 8, 8, word_of(1), KVP_TIER_DRAM), 0);
	for (uint32_t i = 0; i < 3 * 65536; i++) {
		kvp_directory_snapshot_begin(dir, 3);
		assert_int_equal(store(dir, 3, 9, 9, word_of(2 + i), KVP_TIER_DRAM), 0);
		if (i % 7 == 0) {
			kvp_directory_drop(dir, 4);
			assert_int_equal(store(dir, 4, 8, 8, word_of(1), KVP_TIER_DRAM), 0);
		}
	}
	kvp_directory_snapshot_end(dir, 3);
	assert_int_equal(find(dir, 7, 1, &loc), 0);
	assert_int_equal(find(dir, 9, 1, &loc), 1);
	assert_int_equal(find(dir, 8, 1, &loc), 1);
	assert_int_equal(kvp_directory_blocks(dir), 2);
	kvp_directory_free(dir);
}

static void
directory_slices(void **state)
{
	struct kvp_directory *dir;
	uint64_t before = 0;
	uint32_t turns = 0;

	(void)state;
	assert_int_equal(kvp_directory_new(50000, 1, &dir), 0);
	for (uint32_t i = 0; i < 50000; i++) {
		assert_int_equal(store(dir, i % 3, i, i, word_of(1), KVP_TIER_DRAM), 0);
	}
	assert_false(kvp_directory_pending(dir));
	kvp_directory_drop(dir, 1);
	assert_int_equal(kvp_directory_node_blocks(dir, 1), 0);
	assert_int_equal(kvp_directory_held(dir), 50000);
	while (kvp_directory_turn(dir, 900)) {
		uint64_t swept = kvp_directory_swept(dir);

		assert_true(swept - before <= 100); /* collecting costs more than looking */
		before = swept;
		turns++;
	}
	assert_true(turns > 100);
	assert_true(kvp_directory_clean(dir, 1));
	assert_int_equal(kvp_directory_held(dir), kvp_directory_blocks(dir));
	kvp_directory_free(dir);
}

/* --- size and speed: printed, not judged ------------------------------------------------------ */

static uint64_t
find_all(const struct kvp_directory *dir, uint64_t keys, uint64_t lookups, uint64_t *random)
{
	uint64_t digests[KVP_FIND_KEYS_MAX][2];
	uint8_t counts[KVP_FIND_KEYS_MAX];
	struct kvp_loc locs[KVP_FIND_KEYS_MAX];
	uint64_t found = 0;

	for (uint64_t i = 0; i < lookups; i++) {
		for (uint32_t k = 0; k < KVP_FIND_KEYS_MAX; k++) {
			uint64_t state = test_below(random, keys);

			digests[k][0] = test_next(&state);
			digests[k][1] = test_next(&state);
		}
		found += kvp_directory_find(
			dir, (const uint64_t(*)[2])digests, KVP_FIND_KEYS_MAX, 1, counts, locs);
	}
	return found;
}

static void
directory_million(void **state)
{
	const struct kvp_env *env = kvp_env_real();
	struct kvp_directory *dir;
	uint64_t random = 1;
	uint64_t start_ns;
	double stored_s;
	double found_s;

	(void)state;
	assert_int_equal(kvp_directory_new(1u << 20, 1, &dir), 0);
	start_ns = kvp_now_ns(env);
	for (uint32_t i = 0; i < 1u << 20; i++) {
		struct kvp_place place = {.word = word_of(i), .len = 1, .slot = i / 8, .tier = 1};
		uint64_t key = i;
		uint64_t digest[2];

		digest[0] = test_next(&key);
		digest[1] = test_next(&key);
		assert_int_equal(kvp_directory_store(dir, i % 8, digest, &place), 0);
	}
	stored_s = (double)(kvp_now_ns(env) - start_ns) / 1e9;
	start_ns = kvp_now_ns(env);
	assert_int_equal(find_all(dir, 1u << 20, 16384, &random), 16384 * KVP_FIND_KEYS_MAX);
	found_s = (double)(kvp_now_ns(env) - start_ns) / 1e9;
	print_message("%" PRIu64 " blocks: %.1f bytes a block, %.2f M stored/s, %.2f M found/s\n",
		kvp_directory_blocks(dir), (double)kvp_directory_bytes(dir) / (1u << 20),
		(1u << 20) / stored_s / 1e6, 16384.0 * KVP_FIND_KEYS_MAX / found_s / 1e6);
	assert_true(kvp_directory_bytes(dir) < 65ull << 20);
	kvp_directory_free(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directory_words),
		cmocka_unit_test(directory_replicas),
		cmocka_unit_test(directory_full),
		cmocka_unit_test(directory_stamps),
		cmocka_unit_test(directory_slices),
		cmocka_unit_test(directory_model),
		cmocka_unit_test(directory_million),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
