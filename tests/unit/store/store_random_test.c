/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_random_test.c - random operations on virtual time against a shadow model that knows, for
 * each page of the arena, who may use it: no two grants or blocks overlap, nothing is reused within
 * its quarantine or before its owner is fenced, no state word comes twice, the events alone give
 * the set of blocks, what is leased stays until its lease ends, and the counters add up. Restarts,
 * between operations and in the middle of one, give back just what was committed and not evicted,
 * and whatever may still be written to stays reserved; leases end with them.
 */
#include "tests/unit/store/alloc_count.h"
#include "tests/unit/store/store_test.h"

#include <signal.h>

#define PAGE           4096u
#define ARENA_LEN      (64 * MIB)
#define PAGES          ((uint32_t)(ARENA_LEN / PAGE))
#define SLOTS          6000u
#define KEYS           9000u
#define OWNERS         8u
#define GRANTS         256u
#define LEASES         64u
#define LEASED_MAX     16u
#define OPS            300000u
#define PROGRESS       1500u
#define PROGRESS_ARENA (512 * MIB)

struct model_block {
	bool stored;
	struct kvp_loc loc;
};

struct model_grant {
	struct kvp_grant grant;
	uint32_t number;
	uint32_t owner;
	uint64_t due_ns;
	bool forgotten; /* its writer never comes back */
	bool dead;      /* ran out, or its owner is being fenced: not free before it is fenced */
};

struct model_lease {
	uint64_t lease;
	uint64_t until_ns;
	uint32_t owner;
	uint32_t count;
	uint32_t numbers[LEASED_MAX];
};

struct model {
	struct test_store ts;
	struct test_rng rng;
	struct model_block blocks[KEYS];
	struct model_grant grants[GRANTS];
	uint32_t grant_count;
	struct model_lease leases[LEASES];
	uint32_t lease_count;
	uint32_t held[KEYS];           /* by so many leases */
	uint64_t leased;               /* blocks, by one or more */
	uint64_t page_until_ns[PAGES]; /* free from then on; UINT64_MAX: taken */
	uint64_t counter;              /* of the last word granted */
	uint32_t tells[OWNERS];        /* since it was last fenced */
	bool fencing[OWNERS];
	uint64_t stored;
	uint64_t removed;
	uint64_t block_count;
	uint64_t payload_bytes;
	uint64_t allocs_before;
	uint32_t restart_ops; /* restarts come so many operations apart; 0: never */
	struct kvp_fault fault;
	struct kvp_store_recovery total;
	uint32_t restarts;
	uint32_t restarts_midway;
};

static void
model_pages(struct model *model, uint64_t off, uint64_t len, uint64_t until_ns)
{
	assert_int_equal(off % PAGE, 0);
	for (uint64_t page = off / PAGE; page < (off + len + PAGE - 1) / PAGE; page++) {
		assert_true(page < PAGES);
		if (until_ns == UINT64_MAX) {
			assert_true(model->page_until_ns[page] <= model->ts.now_ns);
		} else {
			assert_true(model->page_until_ns[page] == UINT64_MAX);
		}
		model->page_until_ns[page] = until_ns;
	}
}

static void
model_event(void *arg, const struct kvp_store_event *event)
{
	struct model *model = arg;
	struct kvp_key key;
	uint64_t number;
	struct model_block *block;

	memcpy(&number, event->key->bytes, sizeof(number));
	key = test_key(number);
	assert_memory_equal(&key, event->key, sizeof(key));
	assert_memory_equal(event->ns, test_ns, sizeof(test_ns));
	assert_true(number < KEYS);
	assert_int_equal(kvp_word_state(event->loc.word), KVP_SLOT_VALID);
	block = &model->blocks[number];
	if (event->kind == KVP_STORE_STORED) {
		assert_false(block->stored);
		assert_true(test_matches(&model->ts, number, &event->loc));
		block->stored = true;
		block->loc = event->loc;
		model->stored++;
		model->block_count++;
		model->payload_bytes += event->loc.len;
		return;
	}
	assert_true(block->stored);
	assert_int_equal(model->held[number], 0);
	assert_memory_equal(&block->loc, &event->loc, sizeof(block->loc));
	assert_false(test_matches(&model->ts, number, &event->loc));
	block->stored = false;
	model->removed++;
	model->block_count--;
	model->payload_bytes -= event->loc.len;
	model_pages(model, event->loc.off, event->loc.len,
		model->ts.now_ns + model->ts.cfg.quarantine_ns);
}

static void
model_expired(void *arg, uint32_t owner)
{
	struct model *model = arg;

	assert_int_equal(model->tells[owner]++, 0);
	assert_false(model->fencing[owner]);
}

static void
grant_drop(struct model *model, uint32_t idx)
{
	const struct kvp_grant *grant = &model->grants[idx].grant;

	model_pages(model, grant->off, grant->len, model->ts.now_ns);
	model->grants[idx] = model->grants[--model->grant_count];
}

static struct model_grant *
grant_of(struct model *model, uint32_t number)
{
	for (uint32_t i = 0; i < model->grant_count; i++) {
		if (model->grants[i].number == number && !model->grants[i].dead) {
			return &model->grants[i];
		}
	}
	return NULL;
}

static void
op_offer(struct model *model)
{
	static const uint32_t lens[] = {
		1, 4096, 9000, 65536, 65536, 65536, 300000, 1124352, 4194304};
	uint32_t number = test_rng_below(&model->rng, KEYS);
	uint32_t owner = test_rng_below(&model->rng, OWNERS);
	uint64_t len = lens[test_rng_below(&model->rng, 9)];
	struct kvp_key key = test_key(number);
	struct kvp_key parent = test_key(number - number % 16 > 0 ? number - 1 : number + 1);
	struct kvp_offer offer = {
		.ns = test_ns,
		.key = &key,
		.len = len,
		.parent = number % 3 == 0 ? NULL : &parent,
		.touch = {.now_ns = model->ts.now_ns},
		.owner = owner,
	};
	struct model_grant grant = {.number = number, .owner = owner};
	struct kvp_loc loc;
	int err;

	if (model->grant_count == GRANTS) {
		return;
	}
	err = kvp_store_offer(model->ts.store, &offer, &grant.grant, &loc);
	if (err == -KVP_E_EXISTS) {
		assert_true(model->blocks[number].stored);
		assert_memory_equal(&loc, &model->blocks[number].loc, sizeof(loc));
		return;
	}
	assert_false(err == 0 && model->blocks[number].stored);
	assert_int_equal(err == -KVP_E_IN_PROGRESS, grant_of(model, number) != NULL);
	if (err < 0) {
		assert_true(
			err == -KVP_E_BUSY || err == -KVP_E_NO_SPACE || err == -KVP_E_IN_PROGRESS);
		return;
	}
	assert_false(model->fencing[owner]);
	assert_int_equal(grant.grant.len, len);
	assert_true(grant.grant.word >> 4 > model->counter);
	model->counter = grant.grant.word >> 4;
	assert_int_equal(kvp_entry_word_load(&model->ts.table[grant.grant.slot]), grant.grant.word);
	model_pages(model, grant.grant.off, len, UINT64_MAX);
	grant.due_ns = model->ts.now_ns + model->ts.cfg.grant_ns;
	grant.forgotten = test_rng_below(&model->rng, 30) == 0;
	model->grants[model->grant_count++] = grant;
}

static void
op_commit(struct model *model)
{
	struct model_grant grant;
	struct kvp_loc loc;
	uint32_t idx;
	uint32_t owner;
	int err;

	if (model->grant_count == 0) {
		return;
	}
	idx = test_rng_below(&model->rng, model->grant_count);
	grant = model->grants[idx];
	if (grant.forgotten && !grant.dead) {
		return;
	}
	owner = test_rng_below(&model->rng, 20) == 0 ? (grant.owner + 1) % OWNERS : grant.owner;
	err = test_commit(&model->ts, owner, &grant.grant, &loc);
	if (owner != grant.owner || grant.dead || model->ts.now_ns >= grant.due_ns) {
		assert_int_equal(err, -KVP_E_NO_GRANT);
		return;
	}
	assert_int_equal(err, 0);
	assert_int_equal(loc.off, grant.grant.off);
	assert_int_equal(loc.word, kvp_word_with(grant.grant.word, KVP_SLOT_VALID));
	assert_true(model->blocks[grant.number].stored);
	assert_memory_equal(&model->blocks[grant.number].loc, &loc, sizeof(loc));
	model->grants[idx] = model->grants[--model->grant_count];
}

static void
op_release(struct model *model)
{
	uint32_t idx;

	if (model->grant_count == 0) {
		return;
	}
	idx = test_rng_below(&model->rng, model->grant_count);
	if (model->grants[idx].forgotten && test_rng_below(&model->rng, 8) > 0) {
		return;
	}
	assert_int_equal(kvp_store_release(model->ts.store, model->ts.now_ns,
				 model->grants[idx].owner, &model->grants[idx].grant),
		0);
	grant_drop(model, idx);
	for (uint32_t owner = 0; owner < OWNERS; owner++) {
		bool lost = model->fencing[owner];

		for (uint32_t i = 0; i < model->grant_count; i++) {
			lost = lost || (model->grants[i].owner == owner && model->grants[i].dead);
		}
		if (!lost) {
			model->tells[owner] = 0; /* nothing left to fence for */
		}
	}
}

static void
op_delete(struct model *model)
{
	uint32_t number = test_rng_below(&model->rng, KEYS);
	struct kvp_key key = test_key(number);
	bool stored = model->blocks[number].stored;
	bool held = model->held[number] > 0;
	int err = kvp_store_delete(model->ts.store, model->ts.now_ns, test_ns, &key);

	assert_int_equal(err, held ? -KVP_E_BUSY : stored ? 0 : -KVP_E_NOKEY);
	assert_int_equal(model->blocks[number].stored, held);
}

/* Before the store drops it, so that an event finds it free. */
static void
lease_drop(struct model *model, uint32_t idx)
{
	struct model_lease *lease = &model->leases[idx];

	for (uint32_t i = 0; i < lease->count; i++) {
		assert_true(model->held[lease->numbers[i]] > 0);
		model->held[lease->numbers[i]]--;
		model->leased -= model->held[lease->numbers[i]] == 0;
	}
	*lease = model->leases[--model->lease_count];
}

static void
lease_drop_owner(struct model *model, uint32_t owner)
{
	for (uint32_t i = 0; i < model->lease_count;) {
		if (model->leases[i].owner == owner) {
			lease_drop(model, i);
		} else {
			i++;
		}
	}
}

static void
op_lease(struct model *model)
{
	uint32_t first = test_rng_below(&model->rng, KEYS);
	struct model_lease lease = {.owner = test_rng_below(&model->rng, OWNERS)};
	int err;

	lease.until_ns = model->ts.now_ns + test_rng_below(&model->rng, 400 * MS);
	err = kvp_store_lease_open(model->ts.store, lease.owner, lease.until_ns, &lease.lease);
	assert_int_equal(err < 0, model->fencing[lease.owner] || model->lease_count == LEASES);
	for (uint32_t i = 0; err == 0 && i < LEASED_MAX; i++) {
		uint32_t number = (first + i) % KEYS;
		const struct model_block *block = &model->blocks[number];
		int add = kvp_store_lease_add(model->ts.store, model->ts.now_ns, lease.owner,
			lease.lease, block->loc.slot, block->loc.word);

		if (lease.until_ns == model->ts.now_ns) {
			assert_int_equal(add, -KVP_E_TIMEOUT);
		} else if (add == -KVP_E_BUSY) {
			assert_true(block->stored && model->held[number] == 0);
		} else {
			assert_int_equal(add, block->stored ? 0 : -KVP_E_NOKEY);
		}
		if (add == 0) {
			model->leased += model->held[number] == 0;
			model->held[number]++;
			lease.numbers[lease.count++] = number;
		}
	}
	if (err == 0) {
		model->leases[model->lease_count++] = lease;
	}
}

static void
op_lease_end(struct model *model)
{
	uint32_t idx;
	struct model_lease lease;

	if (model->lease_count == 0) {
		return;
	}
	idx = test_rng_below(&model->rng, model->lease_count);
	lease = model->leases[idx];
	kvp_store_lease_end(model->ts.store, model->ts.now_ns, (lease.owner + 1) % OWNERS,
		lease.lease); /* another's: nothing */
	lease_drop(model, idx);
	kvp_store_lease_end(model->ts.store, model->ts.now_ns, lease.owner, lease.lease);
	kvp_store_lease_end(model->ts.store, model->ts.now_ns, lease.owner, lease.lease);
}

static void
op_read(struct model *model)
{
	uint32_t number = test_rng_below(&model->rng, KEYS);
	const struct model_block *block = &model->blocks[number];
	struct kvp_key key = test_key(number);
	struct kvp_touch touch = {.now_ns = model->ts.now_ns};
	struct kvp_loc loc;
	int err = kvp_store_lookup(model->ts.store, test_ns, &key, &loc);

	assert_int_equal(err, block->stored ? 0 : -KVP_E_NOKEY);
	if (block->stored) {
		assert_memory_equal(&loc, &block->loc, sizeof(loc));
		assert_true(test_matches(&model->ts, number, &loc));
	}
	kvp_store_touch(model->ts.store, block->loc.slot, block->loc.word, &touch);
}

static void
op_fence(struct model *model)
{
	uint32_t owner = test_rng_below(&model->rng, OWNERS);

	if (!model->fencing[owner]) {
		lease_drop_owner(model, owner);
		kvp_store_owner_fence(model->ts.store, model->ts.now_ns, owner);
		model->fencing[owner] = true;
		for (uint32_t i = 0; i < model->grant_count; i++) {
			if (model->grants[i].owner == owner) {
				model->grants[i].dead = true;
			}
		}
		return;
	}
	kvp_store_owner_fenced(model->ts.store, model->ts.now_ns, owner);
	model->fencing[owner] = false;
	model->tells[owner] = 0;
	for (uint32_t i = 0; i < model->grant_count;) {
		if (model->grants[i].owner == owner) {
			grant_drop(model, i);
		} else {
			i++;
		}
	}
	assert_int_equal(kvp_store_owner_slots(model->ts.store, owner), 0);
}

static void
op_turn(struct model *model)
{
	for (uint32_t i = 0; i < model->lease_count;) {
		if (model->leases[i].until_ns <= model->ts.now_ns) {
			lease_drop(model, i);
		} else {
			i++;
		}
	}
	test_turns(&model->ts, model_expired, model);
	for (uint32_t i = 0; i < model->grant_count; i++) {
		if (model->ts.now_ns >= model->grants[i].due_ns && !model->grants[i].dead) {
			model->grants[i].dead = true;
			assert_true(model->tells[model->grants[i].owner] > 0);
		}
	}
}

static void
op_any(struct model *model)
{
	uint32_t what = test_rng_below(&model->rng, 1000);

	if (what < 350) {
		op_offer(model);
	} else if (what < 650) {
		op_commit(model);
	} else if (what < 670) {
		op_release(model);
	} else if (what < 710) {
		op_delete(model);
	} else if (what < 890) {
		op_read(model);
	} else if (what < 894) {
		op_fence(model);
	} else if (what < 950) {
		op_turn(model);
	} else if (what < 960) {
		op_lease(model);
	} else if (what < 963) {
		op_lease_end(model);
	} else {
		model->ts.now_ns += test_rng_below(&model->rng, 60 * MS);
	}
}

/* The walk gives what the events gave, and the counters add up. */
static void
model_check(const struct model *model)
{
	struct kvp_store_stats stats = test_stats(&model->ts);
	struct kvp_store_event event;
	struct kvp_store_usage usage = {0};
	struct kvp_key key;
	uint32_t cursor = 0;
	uint64_t count = 0;
	uint64_t slots = 0;

	while (kvp_store_next(model->ts.store, &cursor, &event, &key)) {
		uint64_t number;

		memcpy(&number, event.key->bytes, sizeof(number));
		assert_true(number < KEYS && model->blocks[number].stored);
		assert_memory_equal(&event.loc, &model->blocks[number].loc, sizeof(event.loc));
		assert_true(test_matches(&model->ts, number, &event.loc));
		count++;
	}
	assert_int_equal(count, model->block_count);
	assert_int_equal(stats.blocks, count);
	assert_int_equal(stats.puts + stats.recovered, model->stored);
	assert_int_equal(
		stats.puts + stats.recovered, stats.blocks + stats.evicted + stats.deleted);
	assert_int_equal(stats.bytes_used, model->payload_bytes);
	assert_int_equal(stats.bytes_total, ARENA_LEN);
	assert_true(stats.bytes_used + stats.bytes_free <= stats.bytes_total);
	assert_int_equal(stats.granted + stats.lost, model->grant_count);
	assert_int_equal(stats.leases, model->lease_count);
	assert_int_equal(stats.leased_blocks, model->leased);
	assert_true(stats.leased_bytes <= ARENA_LEN / 1000 * model->ts.cfg.lease_permille);
	for (uint32_t owner = 0; owner < OWNERS; owner++) {
		slots += kvp_store_owner_slots(model->ts.store, owner);
	}
	assert_int_equal(slots, model->grant_count);
	cursor = 0;
	(void)kvp_store_usage_next(model->ts.store, &cursor, &usage);
	assert_false(kvp_store_usage_next(model->ts.store, &cursor, &usage));
	assert_int_equal(usage.blocks, stats.blocks);
	assert_int_equal(usage.bytes, stats.bytes_used);
	assert_true(usage.taken + stats.bytes_free <= stats.bytes_total);
}

/* --- restarts ------------------------------------------------------------------------------------
 */

static sigjmp_buf died;

static void
die(int signo)
{
	siglongjmp(died, signo);
}

static void
grants_number(struct model *model, const struct kvp_grant *grant, uint32_t owner)
{
	const struct kvp_slot_entry *entry = &model->ts.table[grant->slot];
	struct model_grant *add = &model->grants[model->grant_count++];
	uint64_t number;

	assert_true(model->grant_count <= GRANTS);
	memcpy(&number, entry->key, sizeof(number));
	*add = (struct model_grant){.grant = *grant, .number = (uint32_t)number, .owner = owner};
	model_pages(model, grant->off, grant->len, UINT64_MAX);
}

/* What is reserved now must be what was granted; one more or less if a call was cut short. */
static uint32_t
restart_grants(struct model *model, const struct model_block *before)
{
	uint32_t odd = 0;

	for (uint32_t i = 0; i < model->grant_count;) {
		struct model_grant *grant = &model->grants[i];
		const struct kvp_store_note *note = &model->ts.notes[grant->grant.slot];
		uint64_t word = model->ts.table[grant->grant.slot].word;

		if (note->owner == grant->owner + 1 && word >> 4 == grant->grant.word >> 4) {
			grant->dead = true;
			i++;
			continue;
		}
		odd++;
		if (model->blocks[grant->number].stored && !before[grant->number].stored) {
			model->grants[i] = model->grants[--model->grant_count]; /* it was valid */
		} else {
			grant_drop(model, i);
		}
	}
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		const struct kvp_slot_entry *entry = &model->ts.table[slot];
		struct kvp_grant grant = {
			.word = kvp_word_with(entry->word, KVP_SLOT_WRITING),
			.off = entry->off,
			.len = kvp_entry_len(entry),
			.slot = slot,
		};
		bool known = model->ts.notes[slot].owner == 0;

		for (uint32_t i = 0; i < model->grant_count && !known; i++) {
			known = model->grants[i].grant.slot == slot;
		}
		if (!known) {
			odd++;
			grants_number(model, &grant, model->ts.notes[slot].owner - 1);
			model->grants[model->grant_count - 1].dead = true;
		}
	}
	return odd;
}

static uint32_t
restart_blocks(struct model *model, const struct model_block *before)
{
	uint32_t odd = 0;

	for (uint32_t number = 0; number < KEYS; number++) {
		const struct model_block *was = &before[number];
		const struct model_block *is = &model->blocks[number];

		if (was->stored && is->stored) {
			assert_memory_equal(&was->loc, &is->loc, sizeof(was->loc));
		} else if (was->stored) {
			assert_int_not_equal(model->ts.table[was->loc.slot].word, was->loc.word);
			model_pages(model, was->loc.off, was->loc.len,
				model->ts.now_ns + model->ts.cfg.quarantine_ns);
			odd++;
		} else if (is->stored) {
			odd++;
		}
	}
	return odd;
}

static void
restart(struct model *model, bool midway)
{
	struct model_block *before = malloc(sizeof(model->blocks));
	struct kvp_store_recovery recovery;
	uint32_t odd;

	assert_non_null(before);
	memcpy(before, model->blocks, sizeof(model->blocks));
	memset(model->blocks, 0, sizeof(model->blocks));
	model->stored = 0;
	model->block_count = 0;
	model->payload_bytes = 0;
	model->fault.left = 0;
	while (model->lease_count > 0) {
		lease_drop(model, 0);
	}
	recovery = test_store_restart(&model->ts);
	assert_int_equal(recovery.kept, model->block_count);
	odd = restart_blocks(model, before);
	/* A commit cut short is a block more as well as a grant less. */
	odd += restart_grants(model, before);
	if (strcmp(model->fault.point, "release") != 0) { /* a fence frees many in one call */
		assert_true(odd <= (midway ? 2 : 0));
	}
	assert_true(recovery.torn <= (midway ? 1 : 0));
	assert_int_equal(recovery.misplaced + recovery.doubles + recovery.half, 0);
	assert_int_equal(recovery.lost, model->grant_count);
	memset(model->tells, 0, sizeof(model->tells));
	for (uint32_t owner = 0; owner < OWNERS; owner++) {
		model->fencing[owner] = kvp_store_owner_slots(model->ts.store, owner) > 0;
	}
	free(before);
	model->total.kept += recovery.kept;
	model->total.lost += recovery.lost;
	model->total.torn += recovery.torn;
	model->total.quarantined += recovery.quarantined;
	model->restarts++;
	model->restarts_midway += midway;
	model->allocs_before = allocs;
}

static void
run_ops(struct model *model)
{
	static const char *const points[] = {"offer", "publish", "commit", "evict", "release"};

	for (volatile uint32_t op = 0; op < OPS; op++) {
		if (model->restart_ops != 0 && op % model->restart_ops == model->restart_ops - 1) {
			const char *point = points[test_rng_below(&model->rng, 5)];

			(void)snprintf(model->fault.point, sizeof(model->fault.point), "%s", point);
			model->fault.signo = SIGUSR1;
			model->fault.left = test_rng_below(&model->rng, 40);
			if (model->fault.left == 0) {
				restart(model, false);
			}
		}
		if (sigsetjmp(died, 1) == 0) {
			op_any(model);
		} else {
			restart(model, true);
		}
		if (op % 500 == 0) {
			model_check(model);
		}
	}
	model->fault.left = 0;
}

/* When everybody is fenced and everything deleted, all of the arena is there again. */
static void
drain(struct model *model)
{
	struct kvp_grant grant;
	struct kvp_loc loc;

	for (uint32_t owner = 0; owner < OWNERS; owner++) {
		if (!model->fencing[owner]) {
			kvp_store_owner_fence(model->ts.store, model->ts.now_ns, owner);
		}
		kvp_store_owner_fenced(model->ts.store, model->ts.now_ns, owner);
	}
	for (uint32_t number = 0; number < KEYS; number++) {
		struct kvp_key key = test_key(number);

		(void)kvp_store_delete(model->ts.store, model->ts.now_ns, test_ns, &key);
	}
	for (int i = 0; i < 2; i++) { /* and then a stretch that was held is given up */
		model->ts.now_ns += 10 * model->ts.cfg.quarantine_ns;
		test_turns(&model->ts, test_no_expiry, NULL);
	}
	assert_int_equal(test_stats(&model->ts).bytes_free, ARENA_LEN);
	assert_int_equal(test_offer(&model->ts, KEYS, ARENA_LEN, 0, &grant, &loc), 0);
}

static void
run_model(const char *what, uint32_t permille, uint32_t restart_ops)
{
	struct model *model = calloc(1, sizeof(*model));
	struct kvp_store_stats stats;

	assert_non_null(model);
	model->rng = test_rng_open(what);
	model->ts.cfg.event = model_event;
	model->ts.cfg.arg = model;
	model->ts.cfg.fault = restart_ops != 0 ? &model->fault : NULL;
	model->restart_ops = restart_ops;
	model->ts.cfg.leases_max = LEASES;
	model->ts.cfg.lease_blocks_max = LEASES * LEASED_MAX / 2;
	model->ts.cfg.lease_permille = 100;
	test_store_open(&model->ts, ARENA_LEN, SLOTS, permille);
	model->allocs_before = allocs;
	run_ops(model);
	assert_int_equal(allocs, model->allocs_before); /* nothing allocates after open */
	model_check(model);
	if (restart_ops != 0) {
		printf("restarts %u, %u of them midway; kept %u lost %u torn %u quarantined %u\n",
			model->restarts, model->restarts_midway, model->total.kept,
			model->total.lost, model->total.torn, model->total.quarantined);
		assert_true(model->restarts > 100 && model->restarts_midway > 100);
		assert_true(model->total.kept > 10000 && model->total.lost > 100);
		assert_true(model->total.torn > 0 && model->total.quarantined > 0);
		drain(model);
		test_store_close(&model->ts);
		free(model);
		return;
	}
	stats = test_stats(&model->ts);
	printf("puts %" PRIu64 " evicted %" PRIu64 " deleted %" PRIu64 " busy %" PRIu64
	       " expired %" PRIu64 " refused %" PRIu64 " leases expired %" PRIu64
	       " refused %" PRIu64 "\n",
		stats.puts, stats.evicted, stats.deleted, stats.busy, stats.grants_expired,
		stats.commits_refused, stats.leases_expired, stats.leases_refused);
	assert_true(stats.leases_expired > 100 && stats.leases_refused > 100);
	assert_true(stats.evicted > 100 && stats.deleted > 100 && stats.busy > 100);
	assert_true(stats.grants_expired > 100 && stats.touches > 100);
	test_store_close(&model->ts);
	free(model);
}

static void
test_on_demand(void **state)
{
	(void)state;
	run_model("store random, on demand", 0, 0);
}

static void
test_ahead(void **state)
{
	(void)state;
	run_model("store random, ahead", 100, 0);
}

static void
test_restarts(void **state)
{
	struct sigaction action = {.sa_handler = die};

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	run_model("store random, restarts", 0, 700);
	run_model("store random, restarts, ahead", 100, 700);
}

/* All blocks can go, so an offer that is repeated each quarantine gets in before long. */
static void
test_progress(void **state)
{
	static const uint64_t lens[] = {
		4 * KIB, 64 * KIB, 640256, MLA_LEN, 4 * MIB, 17989632, 128 * MIB};
	struct test_store ts = {0};
	struct test_rng rng = test_rng_open("store progress");
	struct kvp_grant grant;
	struct kvp_loc loc;
	uint32_t most = 0;
	uint64_t sum = 0;

	(void)state;
	test_store_open(&ts, PROGRESS_ARENA, 140000, 0);
	for (uint64_t number = 0; number < 100 * PROGRESS; number++) {
		uint64_t len =
			lens[number % 100 == 0 ? test_rng_below(&rng, 7) : test_rng_below(&rng, 2)];
		uint32_t tries = 0;

		while (test_offer(&ts, number, len, 0, &grant, &loc) < 0) {
			ts.now_ns += ts.cfg.quarantine_ns;
			tries++;
			/* Of 4 KiB blocks, the whole arena in steps of 64, and some to wait. */
			assert_true(tries < PROGRESS_ARENA / (4 * KIB) / 64 + 16);
		}
		assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);
		most = tries > most ? tries : most;
		sum += tries;
	}
	printf("tries: %u at most, %.3f on average\n", most, (double)sum / (100.0 * PROGRESS));
	test_store_close(&ts);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_on_demand),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_restarts),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests_name("store random", tests, NULL, NULL);
}
