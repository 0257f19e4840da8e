/* SPDX-License-Identifier: Apache-2.0 */
/* slab_test.c - the allocator: capacity and waste, carving back, holds, a model under random use.
 */
#include "pool/store/slab.h"

#include "tests/unit/store/store_test.h"

#define PAGE        4096u
#define MODEL_LEN   (96 * MIB + 12 * PAGE) /* the last extent is a short one */
#define MODEL_PAGES ((uint32_t)(MODEL_LEN / PAGE))
#define MODEL_OPS   1000000u
#define MODEL_LIVE  4096u

static uint64_t
fill(struct kvp_slab *slab, uint64_t len, uint64_t *offs, uint64_t offs_max)
{
	uint64_t count = 0;

	while (kvp_slab_alloc(slab, len, &offs[count]) == 0) {
		count++;
		assert_true(count < offs_max);
	}
	return count;
}

static int
compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Fills an arena with one size: as many as promised, apart, inside, little wasted; and back. */
static void
check_fill(size_t arena_len, uint64_t len, uint64_t waste_permille_max)
{
	struct kvp_slab *slab;
	uint64_t block_len = kvp_slab_block_len(len);
	uint64_t max = arena_len / block_len + 2;
	uint64_t *offs = calloc(max, sizeof(offs[0]));
	uint64_t count;
	uint64_t waste;

	assert_int_equal(kvp_slab_open(arena_len, &slab), 0);
	assert_int_equal(kvp_slab_free_bytes(slab), arena_len);
	count = fill(slab, len, offs, max);
	assert_int_equal(count, kvp_slab_capacity(slab, len));
	assert_true(kvp_slab_free_bytes(slab) < block_len); /* a last extent too short */
	waste = (arena_len - count * len) * 1000 / arena_len;
	printf("arena %llu MiB, block %" PRIu64 ": %" PRIu64 " blocks, %.2f %% wasted\n",
		arena_len / MIB, len, count,
		(double)(arena_len - count * len) * 100 / (double)arena_len);
	assert_true(waste <= waste_permille_max);
	qsort(offs, count, sizeof(offs[0]), compare_u64);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(offs[i] % PAGE, 0);
		assert_true(i == 0 || offs[i] >= offs[i - 1] + block_len);
	}
	assert_true(offs[count - 1] + block_len <= arena_len);
	for (uint64_t i = 0; i < count; i++) {
		kvp_slab_free(slab, offs[i]);
	}
	assert_int_equal(kvp_slab_free_bytes(slab), arena_len);
	assert_int_equal(fill(slab, len, offs, max), count); /* 100 % again */
	kvp_slab_close(slab);
	free(offs);
}

static void
test_fill_large(void **state)
{
	(void)state;
	check_fill(64 * GIB, 64 * KIB, 0);
	check_fill(64 * GIB, 640256, 20);
	check_fill(64 * GIB, MLA_LEN, 10);
	check_fill(64 * GIB, 2561024, 20);
	check_fill(64 * GIB, 4 * MIB, 0);
	check_fill(64 * GIB, 4497408, 30);
	check_fill(64 * GIB, 10244096, 30);
	check_fill(64 * GIB, 17989632, 30);
	check_fill(64 * GIB, 128 * MIB, 0);
	check_fill(1024 * GIB, MLA_LEN, 10);
}

static void
test_fill_small(void **state)
{
	(void)state;
	check_fill(256 * MIB, 4 * KIB, 0);
	check_fill(256 * MIB, 1, 1000);
	check_fill(256 * MIB, 64 * KIB, 0);
	check_fill(256 * MIB, MLA_LEN, 30);
	check_fill(256 * MIB, 4 * MIB, 0);
	check_fill(256 * MIB, 128 * MIB, 0); /* spans 128 extents */
	check_fill(128 * MIB, 128 * MIB, 0);
	check_fill(2 * GIB, MLA_LEN, 20);
	check_fill(2 * GIB, 128 * MIB, 0);
	check_fill(PAGE, 1, 1000); /* one short extent */
	check_fill(5 * MIB + PAGE, 64 * KIB, 13);
}

static void
test_open_refuses(void **state)
{
	struct kvp_slab *slab;

	(void)state;
	assert_int_equal(kvp_slab_open(0, &slab), -EINVAL);
	assert_int_equal(kvp_slab_open(PAGE + 1, &slab), -EINVAL);
	kvp_slab_close(NULL);
}

/* A run goes back whole with its last block, and then serves another size. */
static void
test_carve_back(void **state)
{
	struct kvp_slab *slab;
	uint64_t offs[1024];
	uint64_t off;
	uint64_t count;

	(void)state;
	assert_int_equal(kvp_slab_open(64 * MIB, &slab), 0);
	count = fill(slab, 64 * KIB, offs, 1025);
	assert_int_equal(count, 1024);
	assert_int_equal(kvp_slab_alloc(slab, 4 * KIB, &off), -ENOSPC);
	kvp_slab_free(slab, offs[0]);
	assert_int_equal(kvp_slab_alloc(slab, 4 * KIB, &off), -ENOSPC);
	for (uint32_t i = 1; i < 4; i++) { /* extents are 256 KiB here */
		kvp_slab_free(slab, offs[i]);
	}
	assert_int_equal(kvp_slab_run_at(slab, 0).block_len, 0);
	assert_int_equal(kvp_slab_alloc(slab, 4 * KIB, &off), 0);
	assert_int_equal(off, 0);
	assert_int_equal(kvp_slab_run_at(slab, 0).block_len, 4 * KIB);
	assert_int_equal(kvp_slab_run_at(slab, 0).used, 1);
	assert_int_equal(kvp_slab_alloc(slab, 64 * KIB, &off), -ENOSPC);
	kvp_slab_close(slab);
}

/* A held stretch gives out nothing, keeps what comes free for its size, and ends when carved. */
static void
test_hold(void **state)
{
	struct kvp_slab *slab;
	uint64_t offs[1024];
	uint64_t off;
	struct kvp_slab_hold hold = {.first = 2, .extents = 2, .block_len = 512 * KIB};

	(void)state;
	assert_int_equal(kvp_slab_open(64 * MIB, &slab), 0);
	assert_int_equal(fill(slab, 64 * KIB, offs, 1025), 1024);
	assert_int_equal(kvp_slab_extents_wanted(slab, 512 * KIB), 2);
	kvp_slab_hold_begin(slab, &hold);
	for (uint32_t i = 8; i < 16; i++) {
		assert_int_equal(kvp_slab_alloc(slab, 64 * KIB, &off), -ENOSPC);
		assert_int_equal(kvp_slab_alloc(slab, 512 * KIB, &off), -ENOSPC);
		kvp_slab_free(slab, offs[i]);
	}
	assert_int_equal(kvp_slab_alloc(slab, 64 * KIB, &off), -ENOSPC);
	assert_int_equal(kvp_slab_alloc(slab, 512 * KIB, &off), 0);
	assert_int_equal(off, 512 * KIB);
	assert_int_equal(kvp_slab_hold(slab).extents, 0);

	hold.first = 4;
	kvp_slab_hold_begin(slab, &hold);
	kvp_slab_free(slab, offs[16]);
	assert_int_equal(kvp_slab_alloc(slab, 64 * KIB, &off), -ENOSPC);
	kvp_slab_hold_end(slab); /* given up: its free blocks are usable again */
	assert_int_equal(kvp_slab_alloc(slab, 64 * KIB, &off), 0);
	assert_int_equal(off, offs[16]);
	kvp_slab_hold_end(slab);
	kvp_slab_close(slab);
}

struct model {
	struct kvp_slab *slab;
	uint8_t taken[MODEL_PAGES];
	struct {
		uint64_t off;
		uint64_t len;
	} live[MODEL_LIVE];
	uint32_t live_count;
	uint64_t taken_bytes;
};

static void
model_mark(struct model *model, uint64_t off, uint64_t len, uint8_t from, uint8_t to)
{
	for (uint64_t page = off / PAGE; page < (off + kvp_slab_block_len(len)) / PAGE; page++) {
		assert_true(page < MODEL_PAGES);
		assert_int_equal(model->taken[page], from);
		model->taken[page] = to;
	}
}

static void
model_alloc(struct model *model, uint64_t len)
{
	uint64_t off;

	if (model->live_count == MODEL_LIVE || kvp_slab_alloc(model->slab, len, &off) < 0) {
		return;
	}
	model_mark(model, off, len, 0, 1);
	model->live[model->live_count].off = off;
	model->live[model->live_count].len = len;
	model->live_count++;
	model->taken_bytes += kvp_slab_block_len(len);
}

static void
model_free(struct model *model, uint32_t idx)
{
	model_mark(model, model->live[idx].off, model->live[idx].len, 1, 0);
	model->taken_bytes -= kvp_slab_block_len(model->live[idx].len);
	kvp_slab_free(model->slab, model->live[idx].off);
	model->live[idx] = model->live[--model->live_count];
}

/* The runs cover the arena, hold what is taken, and account for every free byte. */
static void
model_check(const struct model *model)
{
	uint64_t taken = 0;
	uint64_t free_bytes = 0;
	uint32_t count = kvp_slab_extent_count(model->slab);
	uint32_t at = 0;

	while (at < count) {
		struct kvp_slab_run run = kvp_slab_run_at(model->slab, at);
		uint64_t span = kvp_slab_span_len(model->slab, at, run.extents);

		if (run.block_len == 0) {
			free_bytes += span;
		} else {
			assert_true(run.used > 0);
			taken += run.used * run.block_len;
			free_bytes +=
				span / run.block_len * run.block_len - run.used * run.block_len;
		}
		at += run.extents;
	}
	assert_int_equal(at, count);
	assert_int_equal(taken, model->taken_bytes);
	assert_int_equal(free_bytes, kvp_slab_free_bytes(model->slab));
}

static void
test_random(void **state)
{
	static const uint64_t lens[] = {
		1, 4096, 5000, 64 * KIB, 640256, MLA_LEN, 4 * MIB, 17989632};
	struct test_rng rng = test_rng_open("slab random");
	struct model *model = calloc(1, sizeof(*model));

	(void)state;
	assert_int_equal(kvp_slab_open(MODEL_LEN, &model->slab), 0);
	for (uint32_t op = 0; op < MODEL_OPS; op++) {
		/* Waves, so that it is often full and often nearly empty. */
		bool grow = test_rng_below(&rng, 100) < (op / 20000 % 2 == 0 ? 60u : 40u);
		uint32_t sizes = 1 + op / 50000 % 8; /* small ones only at first */

		if (grow) {
			model_alloc(model, lens[test_rng_below(&rng, sizes)]);
		} else if (model->live_count > 0) {
			model_free(model, test_rng_below(&rng, model->live_count));
		}
		if (op % 1000 == 0) {
			model_check(model);
		}
	}
	while (model->live_count > 0) {
		model_free(model, 0);
	}
	assert_int_equal(kvp_slab_free_bytes(model->slab), MODEL_LEN);
	kvp_slab_close(model->slab);
	free(model);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill_large),
		cmocka_unit_test(test_fill_small),
		cmocka_unit_test(test_open_refuses),
		cmocka_unit_test(test_carve_back),
		cmocka_unit_test(test_hold),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
