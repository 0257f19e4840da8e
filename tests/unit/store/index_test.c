/* SPDX-License-Identifier: Apache-2.0 */
/* index_test.c - the index against a model, in batches, and with hashes made to collide. */
#include "pool/store/index.h"

#include "tests/unit/store/store_test.h"

#define SLOTS 3000u
#define KEYS  8192u
#define OPS   400000u

struct model {
	struct kvp_index *index;
	struct kvp_slot_entry *table;
	uint32_t slot_of[KEYS];
	uint32_t free_slots[SLOTS];
	uint32_t free_count;
	uint64_t hash_mask; /* weakens the hash */
};

static void
model_open(struct model *model, uint64_t hash_mask)
{
	model->table = calloc(SLOTS, sizeof(model->table[0]));
	assert_non_null(model->table);
	assert_int_equal(kvp_index_open(model->table, SLOTS, 1, &model->index), 0);
	memset(model->slot_of, 0xff, sizeof(model->slot_of));
	model->hash_mask = hash_mask;
	model->free_count = SLOTS;
	for (uint32_t i = 0; i < SLOTS; i++) {
		model->free_slots[i] = i;
	}
}

static void
model_close(struct model *model)
{
	kvp_index_close(model->index);
	free(model->table);
}

static uint64_t
model_hash(const struct model *model, const struct kvp_key *key)
{
	return kvp_index_hash(model->index, test_ns, key) & model->hash_mask;
}

static uint32_t
model_find(const struct model *model, uint32_t number)
{
	struct kvp_key key = test_key(number);

	return kvp_index_find(model->index, model_hash(model, &key), test_ns, &key);
}

static void
model_insert(struct model *model, uint32_t number)
{
	struct kvp_key key = test_key(number);
	uint32_t slot = model->free_slots[--model->free_count];
	struct kvp_slot_entry *entry = &model->table[slot];

	memcpy(entry->ns, test_ns, sizeof(entry->ns));
	memcpy(entry->key, key.bytes, sizeof(entry->key));
	entry->len_klen = 1 | (uint64_t)key.len << 56;
	assert_int_equal(kvp_index_hash_slot(model->index, slot),
		kvp_index_hash(model->index, test_ns, &key));
	kvp_index_insert(model->index, model_hash(model, &key), slot);
	model->slot_of[number] = slot;
}

static void
model_remove(struct model *model, uint32_t number)
{
	struct kvp_key key = test_key(number);
	uint32_t slot = model->slot_of[number];

	kvp_index_remove(model->index, model_hash(model, &key), slot);
	model->free_slots[model->free_count++] = slot;
	model->slot_of[number] = KVP_INDEX_NONE;
}

static void
model_check(const struct model *model, uint32_t keys)
{
	for (uint32_t i = 0; i < keys; i++) {
		assert_int_equal(model_find(model, i), model->slot_of[i]);
	}
}

static void
model_run(struct model *model, struct test_rng *rng, uint32_t keys, uint32_t ops)
{
	for (uint32_t op = 0; op < ops; op++) {
		uint32_t number = test_rng_below(rng, keys);

		assert_int_equal(model_find(model, number), model->slot_of[number]);
		if (model->slot_of[number] != KVP_INDEX_NONE) {
			model_remove(model, number);
		} else if (model->free_count > 0) {
			model_insert(model, number);
		}
		if (op % (ops / 16) == 0) {
			model_check(model, keys);
		}
	}
	model_check(model, keys);
}

static void
test_random(void **state)
{
	struct test_rng rng = test_rng_open("index random");
	struct model *model = calloc(1, sizeof(*model));

	(void)state;
	model_open(model, UINT64_MAX);
	model_run(model, &rng, KEYS, OPS);
	model_close(model);
	free(model);
}

/* 300 keys with one hash, then with few hashes that lie side by side at the table's end. */
static void
test_equal_hashes(void **state)
{
	struct test_rng rng = test_rng_open("index equal hashes");
	struct model *model = calloc(1, sizeof(*model));

	(void)state;
	model_open(model, 0);
	model_run(model, &rng, 300, 20000);
	model_close(model);
	memset(model, 0, sizeof(*model));
	model_open(model, 7);
	model_run(model, &rng, 600, 20000);
	model_close(model);
	free(model);
}

static void
test_wraps_around(void **state)
{
	struct model *model = calloc(1, sizeof(*model));

	(void)state;
	model_open(model, UINT64_MAX);
	for (uint32_t i = 0; i < 8; i++) { /* all at the last cell: 0xffffffff */
		struct kvp_key key = test_key(i);

		memcpy(model->table[i].ns, test_ns, sizeof(test_ns));
		memcpy(model->table[i].key, key.bytes, sizeof(key.bytes));
		model->table[i].len_klen = 1 | (uint64_t)key.len << 56;
		kvp_index_insert(model->index, UINT32_MAX, i);
	}
	for (uint32_t gone = 0; gone < 8; gone++) {
		kvp_index_remove(model->index, UINT32_MAX, gone);
		for (uint32_t i = 0; i < 8; i++) {
			struct kvp_key key = test_key(i);

			assert_int_equal(kvp_index_find(model->index, UINT32_MAX, test_ns, &key),
				i > gone ? i : KVP_INDEX_NONE);
		}
	}
	model_close(model);
	free(model);
}

/* Full, and every key asked: a batch says what single lookups say. */
static void
test_batch(void **state)
{
	static const uint32_t counts[] = {0, 1, 31, 32, 33, 1000, KEYS};
	struct model *model = calloc(1, sizeof(*model));
	struct kvp_key *keys = calloc(KEYS, sizeof(keys[0]));
	uint32_t *slots = calloc(KEYS + 1, sizeof(slots[0]));

	(void)state;
	model_open(model, UINT64_MAX);
	for (uint32_t i = 0; i < KEYS; i++) {
		keys[i] = test_key(i);
		if (i % 3 != 0 && model->free_count > 0) {
			model_insert(model, i);
		}
	}
	assert_int_equal(model->free_count, 0);
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		memset(slots, 0xee, (KEYS + 1) * sizeof(slots[0]));
		kvp_index_find_batch(model->index, test_ns, keys, counts[c], slots);
		for (uint32_t i = 0; i < counts[c]; i++) {
			assert_int_equal(slots[i], model->slot_of[i]);
		}
		assert_int_equal(slots[counts[c]], 0xeeeeeeee);
	}
	model_close(model);
	free(slots);
	free(keys);
	free(model);
}

/* Keys that differ in length only, or in namespace only, are different. */
static void
test_whole_keys(void **state)
{
	struct model *model = calloc(1, sizeof(*model));
	struct kvp_key key = {.len = 8};
	struct kvp_key longer = {.len = 9};
	uint8_t other[KVP_NS_LEN] = {0};

	(void)state;
	model_open(model, UINT64_MAX);
	memcpy(model->table[5].ns, test_ns, sizeof(test_ns));
	model->table[5].len_klen = 1 | 8ull << 56;
	kvp_index_insert(model->index, 99, 5);
	assert_int_equal(kvp_index_find(model->index, 99, test_ns, &key), 5);
	assert_int_equal(kvp_index_find(model->index, 99, test_ns, &longer), KVP_INDEX_NONE);
	assert_int_equal(kvp_index_find(model->index, 99, other, &key), KVP_INDEX_NONE);
	assert_int_not_equal(kvp_index_hash(model->index, test_ns, &key),
		kvp_index_hash(model->index, test_ns, &longer));
	assert_int_not_equal(kvp_index_hash(model->index, test_ns, &key),
		kvp_index_hash(model->index, other, &key));
	model_close(model);
	free(model);
}

static void
test_open_refuses(void **state)
{
	struct kvp_slot_entry entry = {0};
	struct kvp_index *index;

	(void)state;
	assert_int_equal(kvp_index_open(&entry, 0, 1, &index), -EINVAL);
	assert_int_equal(kvp_index_open(&entry, KVP_INDEX_SLOTS_MAX + 1, 1, &index), -EINVAL);
	kvp_index_close(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_equal_hashes),
		cmocka_unit_test(test_wraps_around),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_whole_keys),
		cmocka_unit_test(test_open_refuses),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
