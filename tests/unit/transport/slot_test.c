/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot_test.c - entries: what matches, what must not, and a reader in another process.
 */
#include "tests/unit/transport/transport_test.h"
#include "transport/proto/slot.h"
#include "transport/proto/wire.h"

#include <sys/mman.h>
#include <sys/wait.h>

static const uint8_t ns[KVP_NS_LEN] = "namespace digest";

static void
entry_make(const struct kvp_key *key, uint64_t counter, struct kvp_slot_entry *ret_entry,
	struct kvp_loc *ret_loc)
{
	memset(ret_entry, 0, sizeof(*ret_entry));
	memset(ret_loc, 0, sizeof(*ret_loc));
	memcpy(ret_entry->ns, ns, sizeof(ns));
	memcpy(ret_entry->key, key->bytes, key->len);
	ret_entry->len_klen = (uint64_t)key->len << 56 | (4096 + counter);
	ret_entry->off = counter * KVP_BLOCK_ALIGN;
	ret_entry->word = kvp_word_make(3, counter, KVP_SLOT_VALID);
	memset(ret_entry->sum, (int)(counter & 0xff), sizeof(ret_entry->sum));
	ret_loc->word = ret_entry->word;
	ret_loc->off = ret_entry->off;
	ret_loc->len = kvp_entry_len(ret_entry);
}

static void
matches_what_was_published(void **state)
{
	struct kvp_slot_entry from;
	struct kvp_slot_entry shared = {.off = 0};
	struct kvp_loc loc;
	struct kvp_key key;

	(void)state;
	for (size_t len = 1; len <= KVP_KEY_LEN_MAX; len++) {
		uint8_t bytes[KVP_KEY_LEN_MAX];

		memset(bytes, 'k', sizeof(bytes));
		assert_int_equal(kvp_key_set(&key, bytes, len), 0);
		entry_make(&key, len, &from, &loc);
		kvp_slot_publish(&shared, &from);
		assert_int_equal(shared.check, kvp_slot_check(&from));
		assert_int_equal(kvp_entry_word_load(&shared), from.word);
		assert_true(kvp_slot_matches(&shared, ns, &key, &loc));
		assert_int_equal(kvp_entry_klen(&shared), len);
	}
}

static void
any_flipped_bit_is_no_match(void **state)
{
	struct kvp_slot_entry from;
	struct kvp_slot_entry shared = {.off = 0};
	struct kvp_loc loc;
	struct kvp_key key;

	(void)state;
	assert_int_equal(kvp_key_set(&key, "some key", 8), 0);
	entry_make(&key, 77, &from, &loc);
	kvp_slot_publish(&shared, &from);
	for (size_t bit = 0; bit < 8 * sizeof(shared); bit++) {
		struct kvp_slot_entry copy = shared;

		((uint8_t *)&copy)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(kvp_slot_matches(&copy, ns, &key, &loc));
	}
	/* An entry that is whole, but another one: each field by itself, resealed. */
	for (size_t byte = 0; byte < offsetof(struct kvp_slot_entry, sum); byte++) {
		struct kvp_slot_entry copy = shared;

		((uint8_t *)&copy)[byte] ^= 1;
		copy.check = kvp_slot_check(&copy);
		assert_false(kvp_slot_matches(&copy, ns, &key, &loc));
	}
}

static void
what_the_reader_asks_is_compared(void **state)
{
	struct kvp_slot_entry from;
	struct kvp_slot_entry shared = {.off = 0};
	struct kvp_loc loc;
	struct kvp_loc other;
	struct kvp_key key;
	struct kvp_key key_other;
	uint8_t ns_other[KVP_NS_LEN] = {0};

	(void)state;
	assert_int_equal(kvp_key_set(&key, "some key", 8), 0);
	entry_make(&key, 77, &from, &loc);
	kvp_slot_publish(&shared, &from);
	assert_false(kvp_slot_matches(&shared, ns_other, &key, &loc));
	assert_int_equal(kvp_key_set(&key_other, "some key\0", 9), 0);
	assert_false(kvp_slot_matches(&shared, ns, &key_other, &loc));
	other = loc;
	other.len++;
	assert_false(kvp_slot_matches(&shared, ns, &key, &other));
	other = loc;
	other.off += KVP_BLOCK_ALIGN;
	assert_false(kvp_slot_matches(&shared, ns, &key, &other));
	other = loc;
	other.word = kvp_word_make(4, 77, KVP_SLOT_VALID);
	assert_false(kvp_slot_matches(&shared, ns, &key, &other));
}

static void
only_valid_entries_match(void **state)
{
	static const enum kvp_slot_state states[] = {
		KVP_SLOT_FREE, KVP_SLOT_WRITING, KVP_SLOT_EVICTED};
	struct kvp_slot_entry from;
	struct kvp_slot_entry shared = {.off = 0};
	struct kvp_loc loc;
	struct kvp_key key;

	(void)state;
	assert_int_equal(kvp_key_set(&key, "k", 1), 0);
	entry_make(&key, 5, &from, &loc);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		struct kvp_loc asked = loc;

		from.word = kvp_word_with(from.word, states[i]);
		kvp_slot_publish(&shared, &from);
		assert_false(kvp_slot_matches(&shared, ns, &key, &loc));
		asked.word = from.word; /* not even when a location says so */
		assert_false(kvp_slot_matches(&shared, ns, &key, &asked));
	}
	from.word = loc.word;
	kvp_slot_publish(&shared, &from);
	assert_true(kvp_slot_matches(&shared, ns, &key, &loc));
	kvp_entry_word_store(&shared, kvp_word_with(shared.word, KVP_SLOT_EVICTED));
	assert_false(kvp_slot_matches(&shared, ns, &key, &loc));
}

/* --- a reader in another process ----------------------------------------------------------------
 */
#define FILLINGS 64u
#define ROUNDS   2000000u

struct shared_slot {
	struct kvp_slot_entry entry;
	_Atomic bool stop;
	_Atomic uint64_t matched;
	_Atomic uint64_t mixed; /* matches that are no entry ever published */
};

/* The fillings differ in every field; of two neighbours only the checksum differs, as when a node
 * hashes a block that is already valid. */
static void
filling_make(uint64_t i, struct kvp_key *ret_key, struct kvp_slot_entry *ret_entry,
	struct kvp_loc *ret_loc)
{
	uint8_t bytes[KVP_KEY_LEN_MAX];

	memset(bytes, (int)('A' + i / 2), sizeof(bytes));
	(void)kvp_key_set(ret_key, bytes, 1 + i / 2 % KVP_KEY_LEN_MAX);
	entry_make(ret_key, 1 + i / 2, ret_entry, ret_loc);
	memset(ret_entry->sum, (int)i, sizeof(ret_entry->sum));
}

#define WORDS (sizeof(struct kvp_slot_entry) / sizeof(uint64_t))

/* Word by word, forwards or backwards from anywhere, with a rest somewhere in between: a network
 * card fetches in any order, and may be held up. */
static void
copy_oddly(struct kvp_slot_entry *ret_copy, const struct kvp_slot_entry *entry, uint64_t turn)
{
	const volatile uint64_t *from = (const volatile uint64_t *)entry;
	uint64_t *to = (uint64_t *)ret_copy;
	uint64_t start = turn / 2 % WORDS;
	uint64_t rest = turn / 2 / WORDS % WORDS;

	for (uint64_t i = 0; i < WORDS; i++) {
		uint64_t idx = (turn % 2 == 0 ? start + i : start + WORDS - i) % WORDS;

		to[idx] = from[idx];
		for (volatile unsigned spin = 0; i == rest && spin < 100; spin++) {
		}
	}
}

static void
reader_main(struct shared_slot *slot)
{
	struct kvp_slot_entry entries[FILLINGS];
	struct kvp_key keys[FILLINGS];
	struct kvp_loc locs[FILLINGS];

	for (uint64_t i = 0; i < FILLINGS; i++) {
		filling_make(i, &keys[i], &entries[i], &locs[i]);
	}
	for (uint64_t turn = 0; !atomic_load(&slot->stop); turn++) {
		struct kvp_slot_entry copy;
		uint64_t guess;

		if (turn % 4 == 0) {
			memcpy(&copy, &slot->entry, sizeof(copy));
		} else {
			copy_oddly(&copy, &slot->entry, turn);
		}
		guess = 2 * ((copy.word >> 4 & 0xff) - 1) % FILLINGS;
		if (kvp_slot_matches(&copy, ns, &keys[guess], &locs[guess])) {
			atomic_fetch_add(&slot->matched, 1);
			if (memcmp(&copy, &entries[guess], 120) != 0 &&
				memcmp(&copy, &entries[guess + 1], 120) != 0) {
				atomic_fetch_add(&slot->mixed, 1);
			}
		}
	}
}

static void
another_process_never_matches_a_mixture(void **state)
{
	struct shared_slot *slot = mmap(
		NULL, sizeof(*slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvp_slot_entry entries[FILLINGS];
	int status;
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(slot, MAP_FAILED);
	for (uint64_t i = 0; i < FILLINGS; i++) {
		struct kvp_loc loc;
		struct kvp_key key;

		filling_make(i, &key, &entries[i], &loc);
	}
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		reader_main(slot);
		_exit(0);
	}
	for (uint64_t i = 0; i < ROUNDS || atomic_load(&slot->matched) < 1000; i++) {
		kvp_slot_publish(&slot->entry, &entries[i % FILLINGS]);
	}
	atomic_store(&slot->stop, true);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(atomic_load(&slot->mixed), 0);
	print_message("%llu copies matched, none mixed\n",
		(unsigned long long)atomic_load(&slot->matched));
	assert_int_equal(munmap(slot, sizeof(*slot)), 0);
}

static void
words_keep_their_parts(void **state)
{
	uint64_t word = kvp_word_make(0xfffff, 0xffffffffffull, KVP_SLOT_EVICTED);

	(void)state;
	assert_int_equal(word, 0xfffffffffffffff3ull);
	assert_int_equal(kvp_word_state(word), KVP_SLOT_EVICTED);
	assert_int_equal(kvp_word_make(1, 0, KVP_SLOT_FREE), 1ull << 44);
	assert_int_equal(kvp_word_with(word, KVP_SLOT_VALID), 0xfffffffffffffff2ull);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matches_what_was_published),
		cmocka_unit_test(any_flipped_bit_is_no_match),
		cmocka_unit_test(what_the_reader_asks_is_compared),
		cmocka_unit_test(only_valid_entries_match),
		cmocka_unit_test(another_process_never_matches_a_mixture),
		cmocka_unit_test(words_keep_their_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
