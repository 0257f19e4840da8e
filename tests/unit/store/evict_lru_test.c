/* SPDX-License-Identifier: Apache-2.0 */
/* evict_lru_test.c - the order that lru promises, beyond what every policy must do. */
#include "tests/unit/store/store_test.h"

#define BLOCKS 8u

static void
insert(const struct kvp_evict_ops *ops, struct kvp_evict *evict, uint32_t block, uint32_t parent)
{
	ops->insert(evict, block, &(struct kvp_touch){.parent = parent});
}

static void
expect(const struct kvp_evict_ops *ops, struct kvp_evict *evict, const uint32_t *order,
	uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(ops->victim(evict), order[i]);
		ops->remove(evict, order[i]);
	}
	assert_int_equal(ops->victim(evict), KVP_BLOCK_NONE);
}

/* By last touch, hits counted. */
static void
test_order(void **state)
{
	const struct kvp_evict_ops *ops = kvp_evict_find("lru");
	struct kvp_evict *evict;

	(void)state;
	assert_int_equal(ops->open(BLOCKS, &evict), 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		insert(ops, evict, i, KVP_BLOCK_NONE);
	}
	ops->hit(evict, 0, &(struct kvp_touch){0});
	ops->hit(evict, 3, &(struct kvp_touch){0});
	ops->hit(evict, 0, &(struct kvp_touch){0});
	(ops->skip)(evict, 1);
	expect(ops, evict, (uint32_t[]){2, 4, 5, 6, 7, 3, 0, 1}, BLOCKS);
	ops->close(evict);
}

/* A parent that becomes a leaf has the place of its own last touch. */
static void
test_parent_again(void **state)
{
	const struct kvp_evict_ops *ops = kvp_evict_find("lru");
	struct kvp_evict *evict;

	(void)state;
	assert_int_equal(ops->open(BLOCKS, &evict), 0);
	insert(ops, evict, 0, KVP_BLOCK_NONE);
	insert(ops, evict, 1, KVP_BLOCK_NONE);
	insert(ops, evict, 2, 0);
	insert(ops, evict, 3, 1);
	insert(ops, evict, 4, KVP_BLOCK_NONE);
	assert_int_equal(ops->victim(evict), 2); /* 0 and 1 are older, but parents */
	ops->hit(evict, 1, &(struct kvp_touch){0});
	expect(ops, evict, (uint32_t[]){2, 0, 3, 4, 1}, 5);
	ops->close(evict);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_parent_again),
	};

	return cmocka_run_group_tests_name("evict_lru", tests, NULL, NULL);
}
