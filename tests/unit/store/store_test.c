/* SPDX-License-Identifier: Apache-2.0 */
/* store_test.c - each transition of a slot, each error, owners, fences, quarantine, low water. */
#include "pool/store/store.h"

#include "tests/unit/store/store_test.h"

#define LEN (64 * KIB)

struct expiries {
	uint32_t count;
	uint32_t owner;
	struct kvp_store *fence; /* fenced from within the callback */
};

static void
expired_count(void *arg, uint32_t owner)
{
	struct expiries *expiries = arg;

	expiries->count++;
	expiries->owner = owner;
	if (expiries->fence != NULL) {
		kvp_store_owner_fence(expiries->fence, 0, owner);
	}
}

/* 16 blocks of LEN, 16 slots and more. */
static void
open_small(struct test_store *ts)
{
	test_store_open(ts, 16 * LEN, 64, 0);
}

static void
test_put_get(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;
	struct kvp_loc again;
	struct kvp_key key = test_key(1);

	(void)state;
	open_small(&ts);
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &loc), -KVP_E_NOKEY);
	assert_int_equal(test_offer(&ts, 1, 5000, 0, &grant, &loc), 0);
	assert_int_equal(grant.len, 5000);
	assert_int_equal(grant.wdesc, 0);
	assert_int_equal(kvp_word_state(grant.word), KVP_SLOT_WRITING);
	assert_int_equal(kvp_entry_word_load(&ts.table[grant.slot]), grant.word);
	assert_int_equal(kvp_store_owner_slots(ts.store, 0), 1);

	/* Not visible before commit, by name or to a reader who guesses the location. */
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &loc), -KVP_E_NOKEY);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), -KVP_E_NOKEY);
	loc = (struct kvp_loc){kvp_word_with(grant.word, KVP_SLOT_VALID), grant.off, 5000,
		grant.slot, 0, KVP_TIER_DRAM, 0};
	assert_false(test_matches(&ts, 1, &loc));

	assert_int_equal(test_commit(&ts, 0, &grant, &again), 0);
	assert_memory_equal(&again, &loc, sizeof(loc));
	assert_true(test_matches(&ts, 1, &loc));
	assert_int_equal(ts.table[loc.slot].sum[0], 1);
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &again), 0);
	assert_memory_equal(&again, &loc, sizeof(loc));
	assert_int_equal(test_offer(&ts, 1, 9, 1, &grant, &again), -KVP_E_EXISTS);
	assert_memory_equal(&again, &loc, sizeof(loc));
	assert_int_equal(kvp_store_owner_slots(ts.store, 0), 0);
	assert_int_equal(test_stats(&ts).bytes_used, 5000);
	assert_int_equal(test_stats(&ts).bytes_free, 16 * LEN - 8192);
	assert_int_equal(test_stats(&ts).exists, 1);
	test_store_close(&ts);
}

static void
test_offer_refuses(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant = {0};
	struct kvp_loc loc;
	struct kvp_key bad = {.len = 0};
	struct kvp_key good = test_key(1);
	struct kvp_offer offer = {.ns = test_ns, .key = &good, .len = 1, .parent = &bad};

	(void)state;
	open_small(&ts);
	assert_int_equal(test_offer(&ts, 1, 0, 0, &grant, &loc), -EINVAL);
	assert_int_equal(test_offer(&ts, 1, LEN, 8, &grant, &loc), -EINVAL);
	assert_int_equal(test_offer(&ts, 1, 16 * LEN + 1, 0, &grant, &loc), -KVP_E_TOO_LARGE);
	assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), -KVP_E_KEY_LEN);
	offer.parent = NULL;
	offer.key = &bad;
	assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), -KVP_E_KEY_LEN);
	bad.len = KVP_KEY_LEN_MAX + 1;
	assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), -KVP_E_KEY_LEN);
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &bad, &loc), -KVP_E_NOKEY);
	assert_int_equal(test_offer(&ts, 1, 16 * LEN, 0, &grant, &loc), 0);
	test_store_close(&ts);

	test_store_open(&ts, 2 * GIB, 64, 0);
	assert_int_equal(
		test_offer(&ts, 1, KVP_BLOCK_LEN_MAX + 1ull, 0, &grant, &loc), -KVP_E_TOO_LARGE);
	assert_int_equal(test_offer(&ts, 1, KVP_BLOCK_LEN_MAX, 0, &grant, &loc), 0);
	test_store_close(&ts);
}

static void
test_two_owners(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_grant other;
	struct kvp_loc loc;

	(void)state;
	open_small(&ts);
	assert_int_equal(test_offer(&ts, 1, LEN, 0, &grant, &loc), 0);
	assert_int_equal(test_offer(&ts, 1, LEN, 1, &other, &loc), -KVP_E_IN_PROGRESS);
	assert_int_equal(test_offer(&ts, 1, LEN, 0, &other, &loc), -KVP_E_IN_PROGRESS);
	assert_int_equal(test_commit(&ts, 1, &grant, &loc), -KVP_E_NO_GRANT);
	assert_int_equal(kvp_store_release(ts.store, ts.now_ns, 1, &grant), -KVP_E_NO_GRANT);
	other = grant;
	other.word += 16;
	assert_int_equal(test_commit(&ts, 0, &other, &loc), -KVP_E_NO_GRANT);
	other.word = grant.word;
	other.slot = 64;
	assert_int_equal(test_commit(&ts, 0, &other, &loc), -KVP_E_NO_GRANT);
	other.slot = 5;
	assert_int_equal(test_commit(&ts, 0, &other, &loc), -KVP_E_NO_GRANT);
	assert_int_equal(test_stats(&ts).commits_refused, 4);
	assert_int_equal(test_stats(&ts).in_progress, 2);

	/* Given back: free at once, and the key may be offered again. */
	assert_int_equal(kvp_store_release(ts.store, ts.now_ns, 0, &grant), 0);
	assert_int_equal(kvp_store_release(ts.store, ts.now_ns, 0, &grant), -KVP_E_NO_GRANT);
	assert_int_equal(test_stats(&ts).bytes_free, 16 * LEN);
	assert_int_equal(test_offer(&ts, 1, LEN, 1, &other, &loc), 0);
	assert_true(other.word > grant.word);
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), -KVP_E_NO_GRANT);
	assert_int_equal(test_commit(&ts, 1, &other, &loc), 0);
	assert_int_equal(test_commit(&ts, 1, &other, &loc), -KVP_E_NO_GRANT);
	test_store_close(&ts);
}

/* Expiry -> LOST, told once -> fence -> fenced frees. The key is free for others at once. */
static void
test_expiry(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grants[3];
	struct kvp_grant other;
	struct kvp_loc loc;
	struct expiries expiries = {0};

	(void)state;
	open_small(&ts);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(test_offer(&ts, i, LEN, 3, &grants[i], &loc), 0);
		ts.now_ns += 100 * MS;
	}
	ts.now_ns += 699 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	ts.now_ns += 1 * MS;
	assert_int_equal(test_commit(&ts, 3, &grants[0], &loc), -KVP_E_NO_GRANT);
	assert_int_equal(test_offer(&ts, 0, LEN, 1, &other, &loc), -KVP_E_IN_PROGRESS);
	test_turns(&ts, expired_count, &expiries);
	assert_int_equal(expiries.count, 1);
	assert_int_equal(expiries.owner, 3);
	ts.now_ns += 100 * MS;
	test_turns(&ts, expired_count, &expiries); /* a second one: not told again */
	assert_int_equal(expiries.count, 1);
	assert_int_equal(test_stats(&ts).lost, 2);
	assert_int_equal(test_stats(&ts).granted, 1);
	assert_int_equal(kvp_store_owner_slots(ts.store, 3), 3);
	assert_int_not_equal(kvp_entry_word_load(&ts.table[grants[0].slot]), grants[0].word);

	assert_int_equal(test_offer(&ts, 0, LEN, 1, &other, &loc), 0); /* handed over */
	assert_int_not_equal(other.slot, grants[0].slot);
	assert_int_not_equal(other.off, grants[0].off);
	assert_int_equal(test_commit(&ts, 3, &grants[0], &loc), -KVP_E_NO_GRANT);
	assert_int_equal(test_commit(&ts, 1, &other, &loc), 0);

	kvp_store_owner_fence(ts.store, ts.now_ns, 3);
	assert_int_equal(test_stats(&ts).lost, 3);
	assert_int_equal(test_commit(&ts, 3, &grants[2], &loc), -KVP_E_NO_GRANT);
	assert_int_equal(test_offer(&ts, 9, LEN, 3, &other, &loc), -KVP_E_BUSY);
	assert_int_equal(kvp_store_release(ts.store, ts.now_ns, 3, &grants[1]), 0);
	assert_int_equal(test_stats(&ts).bytes_free, 13 * LEN);
	kvp_store_owner_fenced(ts.store, ts.now_ns, 3);
	assert_int_equal(kvp_store_owner_slots(ts.store, 3), 0);
	assert_int_equal(test_stats(&ts).bytes_free, 15 * LEN);
	assert_int_equal(test_stats(&ts).grants_expired, 2);
	assert_int_equal(test_matches(&ts, 0, &loc), true);

	/* A new life of the same owner number is told anew. */
	assert_int_equal(test_offer(&ts, 9, LEN, 3, &other, &loc), 0);
	ts.now_ns += 1000 * MS;
	expiries.fence = ts.store;
	test_turns(&ts, expired_count, &expiries);
	assert_int_equal(expiries.count, 2);
	kvp_store_owner_fenced(ts.store, ts.now_ns, 3);
	assert_int_equal(test_stats(&ts).lost, 0);
	test_store_close(&ts);
}

static void
test_no_space(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;
	struct expiries expiries = {0};

	(void)state;
	open_small(&ts);
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(test_offer(&ts, i, LEN, 1, &grant, &loc), 0);
	}
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_NO_SPACE);
	ts.now_ns += 1000 * MS;
	test_turns(&ts, expired_count, &expiries);
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_BUSY); /* a fence */
	kvp_store_owner_fenced(ts.store, ts.now_ns, 1);
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), 0);
	assert_int_equal(test_stats(&ts).no_space, 1);
	assert_int_equal(test_stats(&ts).busy, 1);
	test_store_close(&ts);
}

/* A full store: one eviction an offer, reuse after quarantine and not before; repeated offers in
 * between evict nothing more. */
static void
test_eviction(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc locs[16];
	struct kvp_loc loc;

	(void)state;
	open_small(&ts);
	for (uint32_t i = 0; i < 16; i++) {
		locs[i] = test_put(&ts, i, LEN);
	}
	kvp_store_touch(ts.store, locs[0].slot, locs[0].word, &(struct kvp_touch){0});
	kvp_store_touch(ts.store, locs[1].slot, locs[1].word + 16, &(struct kvp_touch){0});
	kvp_store_touch(ts.store, 64, locs[1].word, &(struct kvp_touch){0});
	assert_int_equal(test_stats(&ts).touches, 1);
	assert_int_equal(test_stats(&ts).touches_stale, 2);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_BUSY);
		assert_int_equal(test_stats(&ts).evicted, 1);
		assert_false(test_matches(&ts, 1, &locs[1])); /* 0 was read since */
		ts.now_ns += 9 * MS;
	}
	ts.now_ns += 9 * MS;
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_BUSY);
	ts.now_ns += 1 * MS;
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), 0);
	assert_int_equal(grant.off, locs[1].off);
	assert_int_equal(test_stats(&ts).evicted, 1);
	test_store_close(&ts);
}

static void
test_no_quarantine(void **state)
{
	struct test_store ts = {0};

	(void)state;
	open_small(&ts);
	kvp_store_close(ts.store);
	ts.cfg.quarantine_ns = 0;
	assert_int_equal(kvp_store_open(&ts.cfg, &ts.store), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		(void)test_put(&ts, i, LEN);
	}
	assert_int_equal(test_stats(&ts).evicted, 1000 - 16);
	test_store_close(&ts);
}

/* Slots run out before bytes do. */
static void
test_slots_run_out(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 16 * MIB, 4, 0);
	for (uint32_t i = 0; i < 4; i++) {
		(void)test_put(&ts, i, LEN);
	}
	assert_int_equal(test_offer(&ts, 9, MIB, 0, &grant, &loc), -KVP_E_BUSY);
	assert_int_equal(test_stats(&ts).evicted, 1);
	ts.now_ns += 100 * MS;
	assert_int_equal(test_offer(&ts, 9, MIB, 0, &grant, &loc), 0);
	test_store_close(&ts);
}

static void
test_delete(void **state)
{
	struct test_store ts = {0};
	struct kvp_loc loc;
	struct kvp_loc other;
	struct kvp_key key = test_key(1);

	(void)state;
	open_small(&ts);
	loc = test_put(&ts, 1, LEN);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), -KVP_E_NOKEY);
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &other), -KVP_E_NOKEY);
	assert_false(test_matches(&ts, 1, &loc));
	assert_int_equal(kvp_entry_word_load(&ts.table[loc.slot]),
		kvp_word_with(loc.word, KVP_SLOT_EVICTED));
	other = test_put(&ts, 1, LEN); /* at once, elsewhere */
	assert_int_not_equal(other.slot, loc.slot);
	assert_int_not_equal(other.off, loc.off);
	assert_int_equal(test_stats(&ts).quarantined, 1);
	ts.now_ns += 100 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).quarantined, 0);
	assert_int_equal(test_stats(&ts).bytes_free, 15 * LEN);
	test_store_close(&ts);
}

/* Held up: what is in quarantine stays there for a whole one from then on. */
static void
test_held_up(void **state)
{
	struct test_store ts = {0};
	struct kvp_key key = test_key(1);

	(void)state;
	open_small(&ts);
	(void)test_put(&ts, 1, LEN);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	ts.now_ns += 60 * MS;
	kvp_store_held_up(ts.store, ts.now_ns);
	ts.now_ns += 99 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).quarantined, 1);
	ts.now_ns += 1 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).quarantined, 0);
	test_store_close(&ts);
}

static int
put_child(struct test_store *ts, uint64_t number, uint64_t parent)
{
	struct kvp_key key = test_key(number);
	struct kvp_key parent_key = test_key(parent);
	struct kvp_offer offer = {.ns = test_ns,
		.key = &key,
		.len = LEN,
		.parent = &parent_key,
		.touch = {.now_ns = ts->now_ns}};
	struct kvp_grant grant;
	struct kvp_loc loc;
	int err = kvp_store_offer(ts->store, &offer, &grant, &loc);

	return err < 0 ? err : test_commit(ts, 0, &grant, &loc);
}

/* The tail of a chain goes first; a parent that is deleted leaves orphans, which go too. */
static void
test_chain(void **state)
{
	struct test_store ts = {0};
	struct kvp_key key = test_key(7);
	struct kvp_loc loc;
	struct kvp_grant grant;

	(void)state;
	open_small(&ts);
	(void)test_put(&ts, 0, LEN);
	for (uint32_t i = 1; i < 16; i++) {
		assert_int_equal(put_child(&ts, i, i - 1), 0);
	}
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(test_offer(&ts, 100 + i, LEN, 0, &grant, &loc), -KVP_E_BUSY);
	}
	for (uint32_t i = 0; i < 16; i++) { /* 6 became a leaf: the oldest one */
		bool gone = i == 7 || i == 6 || i == 5 || i == 4;

		key = test_key(i);
		assert_int_equal(
			kvp_store_lookup(ts.store, test_ns, &key, &loc), gone ? -KVP_E_NOKEY : 0);
	}
	test_store_close(&ts);
}

/* Evicted ahead in bounded steps, so that offers find space without waiting. */
static void
test_low_water(void **state)
{
	struct test_store ts = {0};
	uint32_t turns;

	(void)state;
	test_store_open(&ts, 1024 * LEN, 2000, 250);
	for (uint32_t i = 0; i < 1024; i++) {
		(void)test_put(&ts, i, LEN);
	}
	turns = test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(turns, 4);
	assert_int_equal(test_stats(&ts).evicted, 256);
	ts.now_ns += 100 * MS;
	turns = test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).evicted, 256);
	for (uint32_t i = 0; i < 256; i++) {
		(void)test_put(&ts, 5000 + i, LEN);
	}
	assert_int_equal(test_stats(&ts).busy, 0);
	test_store_close(&ts);

	test_store_open(&ts, 1024 * LEN, 100, 100); /* slots count as well */
	for (uint32_t i = 0; i < 100; i++) {
		(void)test_put(&ts, i, LEN);
	}
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).evicted, 10);
	test_store_close(&ts);
}

static void
test_open_refuses(void **state)
{
	struct test_store ts = {0};
	struct kvp_store *store;
	struct kvp_store_cfg cfg;

	(void)state;
	open_small(&ts);
	cfg = ts.cfg;
	cfg.arena = (char *)cfg.arena + 1;
	assert_int_equal(kvp_store_open(&cfg, &store), -EINVAL);
	cfg = ts.cfg;
	cfg.arena_len--;
	assert_int_equal(kvp_store_open(&cfg, &store), -EINVAL);
	cfg = ts.cfg;
	cfg.slots_max = 0;
	assert_int_equal(kvp_store_open(&cfg, &store), -EINVAL);
	cfg = ts.cfg;
	cfg.owners_max = 0;
	assert_int_equal(kvp_store_open(&cfg, &store), -EINVAL);
	cfg = ts.cfg;
	cfg.low_water_permille = 1001;
	assert_int_equal(kvp_store_open(&cfg, &store), -EINVAL);
	kvp_store_close(NULL);
	test_store_close(&ts);
}

/* One size fills the arena; each other size then gets in within a bounded number of tries. */
static void
test_other_size(void **state)
{
	static const uint64_t lens[] = {4 * KIB, LEN, MLA_LEN, 4 * MIB, 17989632, 128 * MIB};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	for (size_t from = 0; from < 6; from++) {
		for (size_t to = 0; to < 6; to++) {
			struct test_store ts = {0};
			uint64_t number = 0;
			uint32_t tries = 0;

			test_store_open(&ts, 512 * MIB, 140000, 0);
			while (test_offer(&ts, number, lens[from], 0, &grant, &loc) == 0) {
				assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);
				number++;
			}
			while (test_offer(&ts, ~0ull, lens[to], 0, &grant, &loc) < 0) {
				ts.now_ns += 100 * MS;
				assert_true(++tries < 1000);
			}
			/* What went for it is about its own length, not the arena. */
			assert_true(from == to ||
				    test_stats(&ts).evicted * lens[from] <=
					    32 * MIB + lens[to] + lens[to] / 4 + lens[from]);
			test_store_close(&ts);
		}
	}
}

/* A slot that was the parent's at the offer and is another block's at the commit is no parent. */
static void
test_parent_replaced(void **state)
{
	struct test_store ts = {0};
	struct kvp_key key = test_key(1);
	struct kvp_key parent = test_key(0);
	struct kvp_offer offer = {.ns = test_ns, .key = &key, .len = LEN, .parent = &parent};
	struct kvp_grant grant;
	struct kvp_loc loc;
	uint32_t slot;

	(void)state;
	open_small(&ts);
	slot = test_put(&ts, 0, LEN).slot;
	offer.touch.now_ns = ts.now_ns;
	assert_int_equal(kvp_store_offer(ts.store, &offer, &grant, &loc), 0);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &parent), 0);
	ts.now_ns += 100 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_put(&ts, 2, LEN).slot, slot);
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);
	for (uint32_t i = 3; i < 17; i++) {
		(void)test_put(&ts, i, LEN);
	}
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_BUSY);
	key = test_key(2);
	assert_int_equal(kvp_store_lookup(ts.store, test_ns, &key, &loc), -KVP_E_NOKEY);
	test_store_close(&ts);
}

/* What is emptied for a size goes to that size only, until nobody has come for it for long. */
static void
test_hold(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 4 * LEN, 100, 0);
	for (uint32_t i = 0; i < 64; i++) {
		(void)test_put(&ts, i, 4 * KIB);
	}
	assert_int_equal(test_offer(&ts, 99, LEN, 0, &grant, &loc), -KVP_E_BUSY);
	assert_int_equal(test_stats(&ts).evicted, 16);
	ts.now_ns += 100 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	assert_int_equal(test_stats(&ts).bytes_free, LEN);
	assert_int_equal(test_offer(&ts, 100, 4 * KIB, 0, &grant, &loc), -KVP_E_BUSY);
	ts.now_ns += 300 * MS;
	test_turns(&ts, test_no_expiry, NULL);
	for (uint32_t i = 0; i < 16; i++) {
		(void)test_put(&ts, 200 + i, 4 * KIB);
	}
	assert_int_equal(test_stats(&ts).evicted, 17);
	test_store_close(&ts);
}

/* However many blocks stand in the way, one call evicts so many and no more. */
static void
test_bounded(void **state)
{
	struct test_store ts = {0};
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 512 * MIB, 140000, 0);
	for (uint32_t i = 0; i < 512 * MIB / (4 * KIB); i++) {
		(void)test_put(&ts, i, 4 * KIB);
	}
	for (uint32_t i = 1; i <= 8; i++) { /* an extent has 512 of them */
		assert_int_equal(test_offer(&ts, ~0ull, LEN, 0, &grant, &loc), -KVP_E_BUSY);
		assert_int_equal(test_stats(&ts).evicted, i * 64);
	}
	assert_int_equal(test_offer(&ts, ~0ull, LEN, 0, &grant, &loc), -KVP_E_BUSY);
	assert_int_equal(test_stats(&ts).evicted, 512);
	test_store_close(&ts);
}

/* What spill() was told, and whether it wants the block. */
struct spill {
	bool wants;
	uint32_t slot;
	uint32_t commits;
	uint32_t evictions;
	bool used;
};

static bool
spill(void *arg, uint32_t slot, enum kvp_spill why, bool used)
{
	struct spill *spill = arg;

	spill->slot = slot;
	spill->used = used;
	spill->commits += why == KVP_SPILL_COMMIT;
	spill->evictions += why == KVP_SPILL_EVICT;
	return spill->wants && why == KVP_SPILL_EVICT;
}

/* A pinned slot is used again only after its unpin, and after its quarantine. */
static void
test_pinned(void **state)
{
	struct spill told = {.wants = true};
	struct test_store ts = {.cfg = {.spill = spill, .arg = &told}};
	struct kvp_key key;
	struct kvp_store_stats stats;
	struct kvp_grant grant;
	struct kvp_loc loc;

	(void)state;
	test_store_open(&ts, 64 * KIB, 16, 0);
	loc = test_put(&ts, 1, 64 * KIB);
	assert_int_equal(told.commits, 1);
	assert_int_equal(test_offer(&ts, 2, 64 * KIB, 0, &grant, &loc), -KVP_E_BUSY);
	assert_int_equal(told.evictions, 1);
	assert_false(told.used);
	for (int i = 0; i < 3; i++) {
		ts.now_ns += 100 * MS;
		(void)kvp_store_turn(ts.store, ts.now_ns, NULL, NULL);
		assert_int_equal(test_offer(&ts, 2, 64 * KIB, 0, &grant, &loc), -KVP_E_BUSY);
	}
	kvp_store_stats(ts.store, &stats);
	assert_int_equal(stats.quarantined, 1);
	kvp_store_unpin(ts.store, told.slot);
	assert_int_equal(test_offer(&ts, 2, 64 * KIB, 0, &grant, &loc), 0);
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);

	/* Unpinned before its quarantine is over. Offered again, it counts as used. */
	assert_int_equal(test_offer(&ts, 2, 64 * KIB, 0, &grant, &loc), -KVP_E_EXISTS);
	assert_int_equal(test_offer(&ts, 3, 64 * KIB, 0, &grant, &loc), -KVP_E_BUSY);
	assert_true(told.used);
	kvp_store_unpin(ts.store, told.slot);
	assert_int_equal(test_offer(&ts, 3, 64 * KIB, 0, &grant, &loc), -KVP_E_BUSY);
	ts.now_ns += 100 * MS;
	assert_int_equal(test_offer(&ts, 3, 64 * KIB, 0, &grant, &loc), 0);
	/* Deleting asks nobody. */
	assert_int_equal(test_commit(&ts, 0, &grant, &loc), 0);
	key = test_key(3);
	assert_int_equal(kvp_store_delete(ts.store, ts.now_ns, test_ns, &key), 0);
	assert_int_equal(told.evictions, 2);
	test_store_close(&ts);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_get),
		cmocka_unit_test(test_offer_refuses),
		cmocka_unit_test(test_two_owners),
		cmocka_unit_test(test_expiry),
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_no_quarantine),
		cmocka_unit_test(test_slots_run_out),
		cmocka_unit_test(test_delete),
		cmocka_unit_test(test_held_up),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_low_water),
		cmocka_unit_test(test_parent_replaced),
		cmocka_unit_test(test_hold),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_open_refuses),
		cmocka_unit_test(test_other_size),
		cmocka_unit_test(test_pinned),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
