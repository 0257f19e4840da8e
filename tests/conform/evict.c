/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.c - what every registered eviction policy must do, whatever order it prefers: the contract
 * in pool/store/evict.h, against a model that knows which blocks are there and who is whose child.
 */
#include "pool/store/evict.h"
#include "tests/unit/store/alloc_count.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 2000u
#define OPS    300000u

struct model_block {
	bool resident;
	uint32_t parent;
	uint32_t children; /* resident ones, of this filling */
	uint64_t filling;
	uint64_t parent_filling;
};

struct model {
	const struct kvp_evict_ops *ops;
	struct kvp_evict *evict;
	struct model_block blocks[BLOCKS];
	uint32_t resident;
	uint64_t fillings;
	uint64_t now_ns;
	uint64_t random;
};

static uint32_t
model_random(struct model *model, uint32_t max)
{
	model->random = model->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((model->random >> 33) % max);
}

static struct model *
model_open(const struct kvp_evict_ops *ops)
{
	const char *text = getenv("KVP_TEST_SEED");
	struct model *model = calloc(1, sizeof(*model));

	assert_non_null(model);
	model->random = text != NULL ? strtoull(text, NULL, 0) : 20250101;
	printf("%s: KVP_TEST_SEED=%" PRIu64 "\n", ops->name, model->random);
	model->ops = ops;
	assert_int_equal(ops->open(BLOCKS, &model->evict), 0);
	assert_int_equal(ops->victim(model->evict), KVP_BLOCK_NONE);
	return model;
}

static void
model_close(struct model *model)
{
	model->ops->close(model->evict);
	free(model);
}

static struct kvp_touch
model_touch(struct model *model, uint32_t parent)
{
	model->now_ns += model_random(model, 3) * 1000000ull; /* often the same time */
	return (struct kvp_touch){
		.now_ns = model->now_ns,
		.conversation = model_random(model, 50),
		.turn = model_random(model, 20),
		.class = model_random(model, 3),
		.position = model_random(model, 100000),
		.tokens = model_random(model, 3) * 16,
		.parent = parent,
	};
}

static struct model_block *
model_parent(struct model *model, const struct model_block *block)
{
	struct model_block *parent;

	if (block->parent == KVP_BLOCK_NONE) {
		return NULL;
	}
	parent = &model->blocks[block->parent];
	return parent->resident && parent->filling == block->parent_filling ? parent : NULL;
}

static void
model_insert(struct model *model, uint32_t idx, uint32_t parent)
{
	struct model_block *block = &model->blocks[idx];
	struct kvp_touch touch = model_touch(model, parent);

	*block = (struct model_block){
		.resident = true,
		.parent = parent,
		.filling = ++model->fillings,
	};
	if (parent != KVP_BLOCK_NONE) {
		block->parent_filling = model->blocks[parent].filling;
		model->blocks[parent].children++;
	}
	model->resident++;
	model->ops->insert(model->evict, idx, &touch);
}

static void
model_remove(struct model *model, uint32_t idx)
{
	struct model_block *parent = model_parent(model, &model->blocks[idx]);

	if (parent != NULL) {
		parent->children--;
	}
	model->blocks[idx].resident = false;
	model->resident--;
	model->ops->remove(model->evict, idx);
}

static void
model_hit(struct model *model, uint32_t idx)
{
	struct kvp_touch touch = model_touch(model, KVP_BLOCK_NONE);

	model->ops->hit(model->evict, idx, &touch);
}

/* There is one whenever a block is there, it is there, and no resident block is its child. */
static uint32_t
model_victim(struct model *model)
{
	uint32_t victim = model->ops->victim(model->evict);

	if (model->resident == 0) {
		assert_int_equal(victim, KVP_BLOCK_NONE);
		return victim;
	}
	assert_true(victim < BLOCKS);
	assert_true(model->blocks[victim].resident);
	assert_int_equal(model->blocks[victim].children, 0);
	return victim;
}

static void
model_empty(struct model *model)
{
	uint32_t victim;

	while ((victim = model_victim(model)) != KVP_BLOCK_NONE) {
		model_remove(model, victim);
	}
	assert_int_equal(model->resident, 0);
}

/* One chain, parents touched after their children and before: it goes from its tail. */
static void
test_leaf_first(void **state)
{
	struct model *model = model_open(*state);

	for (uint32_t i = 0; i < 100; i++) {
		model_insert(model, i, i == 0 ? KVP_BLOCK_NONE : i - 1);
	}
	for (uint32_t i = 0; i < 100; i += 2) {
		model_hit(model, 99 - i);
	}
	for (uint32_t i = 100; i-- > 0;) {
		assert_int_equal(model_victim(model), i);
		model_remove(model, i);
	}
	model_close(model);
}

/* A tree: each branch from its tip, the stem last. */
static void
test_tree(void **state)
{
	struct model *model = model_open(*state);

	model_insert(model, 0, KVP_BLOCK_NONE);
	for (uint32_t i = 1; i < BLOCKS; i++) {
		model_insert(model, i, model_random(model, i));
	}
	for (uint32_t i = 0; i < BLOCKS - 1; i++) {
		uint32_t victim = model_victim(model);

		assert_int_not_equal(victim, 0);
		model_remove(model, victim);
	}
	assert_int_equal(model_victim(model), 0);
	model_close(model);
}

/* Asking changes nothing that matters: the same answer again, and no block is lost. */
static void
test_ask_again(void **state)
{
	struct model *model = model_open(*state);

	for (uint32_t i = 0; i < BLOCKS; i++) {
		model_insert(model, i, KVP_BLOCK_NONE);
	}
	for (uint32_t i = 0; i < 10000; i++) {
		(void)model_victim(model);
	}
	model_empty(model);
	model_close(model);
}

/* Each held block is offered once before any is offered again. (skip is also a macro of cmocka.) */
static void
test_skip(void **state)
{
	struct model *model = model_open(*state);
	bool *seen = calloc(BLOCKS, sizeof(seen[0]));

	for (uint32_t i = 0; i < BLOCKS; i++) {
		model_insert(model, i, KVP_BLOCK_NONE);
	}
	for (uint32_t round = 0; round < 2; round++) {
		memset(seen, 0, BLOCKS * sizeof(seen[0]));
		for (uint32_t i = 0; i < BLOCKS; i++) {
			uint32_t victim = model_victim(model);

			assert_false(seen[victim]);
			seen[victim] = true;
			(model->ops->skip)(model->evict, victim);
		}
	}
	model_empty(model);

	/* The only leaf of a chain: held or not, its parent may not go before it. */
	model_insert(model, 0, KVP_BLOCK_NONE);
	model_insert(model, 1, 0);
	(model->ops->skip)(model->evict, model_victim(model));
	assert_int_equal(model_victim(model), 1);
	free(seen);
	model_close(model);
}

/* A number that is filled again is another block: it has no children, and who was its child is an
 * orphan that can go at any time, before its own children excepted. */
static void
test_reuse(void **state)
{
	struct model *model = model_open(*state);

	for (uint32_t round = 0; round < 100; round++) {
		model_insert(model, 0, KVP_BLOCK_NONE);
		for (uint32_t i = 1; i < 20; i++) {
			model_insert(model, i, i < 10 ? 0 : i - 9);
		}
		model_remove(model, 0); /* deleted: nine orphans with a child each */
		model_insert(model, 0, KVP_BLOCK_NONE);
		model_insert(model, 20, 0);
		model_remove(model, 0);
		model_insert(model, 0, 20); /* now the child of its old child */
		model_empty(model);
	}
	model_close(model);
}

static uint32_t
model_some(struct model *model, bool resident)
{
	uint32_t idx = model_random(model, BLOCKS);

	while (model->blocks[idx].resident != resident) {
		idx = (idx + 1) % BLOCKS;
	}
	return idx;
}

static void
model_op(struct model *model)
{
	uint32_t what = model_random(model, 100);
	uint32_t victim;

	if (what < 36 && model->resident < BLOCKS) {
		uint32_t parent = KVP_BLOCK_NONE;

		if (model->resident > 0 && model_random(model, 8) > 0) {
			parent = model_some(model, true);
		}
		model_insert(model, model_some(model, false), parent);
	} else if (what < 60 && model->resident > 0) {
		model_hit(model, model_some(model, true));
	} else if (what < 65 && model->resident > 0) {
		model_remove(model, model_some(model, true)); /* deleted, children or not */
	} else if (what < 70 && model->resident > 0) {
		(model->ops->skip)(model->evict, model_victim(model));
	} else {
		victim = model_victim(model);
		if (victim != KVP_BLOCK_NONE) {
			model_remove(model, victim);
		}
	}
}

static void
test_random(void **state)
{
	struct model *model = model_open(*state);
	uint64_t before = allocs;

	for (uint32_t op = 0; op < OPS; op++) {
		model_op(model);
		if (op % 20000 == 10000) { /* and sometimes full */
			while (model->resident < BLOCKS) {
				model_insert(model, model_some(model, false),
					model->resident > 0 ? model_some(model, true)
							    : KVP_BLOCK_NONE);
			}
		}
	}
	model_empty(model);
	assert_int_equal(allocs, before); /* all state is made in open */
	model_close(model);
}

static void
test_registry(void **state)
{
	const struct kvp_evict_ops *ops = *state;

	assert_ptr_equal(kvp_evict_find(ops->name), ops);
	assert_null(kvp_evict_find("no such policy"));
	ops->close(NULL);
}

int
main(void)
{
	size_t count;
	const struct kvp_evict_ops *const *all = kvp_evict_all(&count);
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		void *ops = (void *)(uintptr_t)all[i];
		const struct CMUnitTest tests[] = {
			cmocka_unit_test_prestate(test_leaf_first, ops),
			cmocka_unit_test_prestate(test_tree, ops),
			cmocka_unit_test_prestate(test_ask_again, ops),
			cmocka_unit_test_prestate(test_skip, ops),
			cmocka_unit_test_prestate(test_reuse, ops),
			cmocka_unit_test_prestate(test_random, ops),
			cmocka_unit_test_prestate(test_registry, ops),
		};

		failed += cmocka_run_group_tests_name(all[i]->name, tests, NULL, NULL);
	}
	return failed;
}
