/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - one node's memory: which block lies where, who may fill which slot, what goes first.
 *
 * Pure logic over memory it is given: no I/O, no clock, no thread, no log. Time comes in with
 * each call and never runs backwards. What happened comes out as return values and events.
 *
 * LIFE OF A SLOT
 *   FREE -> WRITING (granted) -> VALID (committed) -> EVICTED (quarantine) -> FREE
 *   WRITING -> LOST (grant ran out, or its owner is being fenced) -> FREE, only after
 *   kvp_store_owner_fenced(): a late write may still land in it until then.
 * OWNER
 *   Whoever holds grants and leases: a session of the node, by number. An owner with LOST slots
 *   must be fenced by the caller (transport), then reported fenced.
 * LEASE
 *   Keeps VALID blocks in place: neither evicted nor deleted until its deadline, its owner's end,
 *   or its release. What leases hold together is bounded.
 * NAMESPACE
 *   Each has exact counters, perhaps a quota, and perhaps a family with an epoch: raising the
 *   family's epoch drops the blocks of its older namespaces, a few a turn.
 * OWNERSHIP
 *   One kvp_store belongs to one thread. Readers in other processes see the arena and the table
 *   only.
 */
#ifndef KVP_POOL_STORE_STORE_H
#define KVP_POOL_STORE_STORE_H

#include "pool/store/evict.h"
#include "transport/proto/slot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvp_store;

enum kvp_store_event_kind { KVP_STORE_STORED, KVP_STORE_REMOVED };

struct kvp_store_event {
	enum kvp_store_event_kind kind;
	const uint8_t *ns;         /* KVP_NS_LEN bytes, valid during the call */
	const struct kvp_key *key; /* likewise */
	struct kvp_loc loc;        /* the valid word; node is 0 */
};

enum kvp_spill { KVP_SPILL_COMMIT, KVP_SPILL_EVICT };

/*
 * What a successor must know of a slot beside its entry; one a slot, in memory that outlives this
 * process as the table does. owner is set before the slot is granted and cleared after it is valid
 * or free, so an entry that somebody may write to always names who.
 */
struct kvp_store_note {
	uint64_t parent_word; /* generation of the parent's filling; state 0 */
	uint32_t parent;      /* its slot, or KVP_BLOCK_NONE */
	uint32_t owner;       /* 1 + who may write there; 0: nobody */
};
_Static_assert(sizeof(struct kvp_store_note) == 16, "kvp_store_note is a format in shared memory");

struct kvp_store_cfg {
	void *arena;                  /* page aligned; the caller's, longer-lived */
	size_t arena_len;             /* bytes, a multiple of KVP_BLOCK_ALIGN */
	struct kvp_slot_entry *table; /* slots_max of them, shared with readers; zeroed, or then
				       * kvp_store_recover() comes next */
	struct kvp_store_note *notes; /* slots_max of them, likewise; NULL: nothing is noted */
	uint32_t slots_max;
	uint32_t incarnation; /* low 20 bits go into state words */
	uint64_t seed;        /* of the index's hash */
	const struct kvp_evict_ops *evict;
	uint64_t quarantine_ns; /* how long evicted bytes stay alone */
	uint64_t grant_ns;      /* how long a grant lasts */
	uint32_t owners_max;
	uint32_t low_water_permille; /* evict ahead until so much of the arena is free or becoming
				      * so; 0: only on demand */
	/* In the order in which things happen; must not call the store. */
	void (*event)(void *arg, const struct kvp_store_event *event);
	/* A block that nothing pins was committed, or is about to be evicted for space (before the
	 * event that says so); used: it was read or offered again since its commit. True: its bytes
	 * are wanted, the slot is pinned until kvp_store_unpin(). Must not call the store. May be
	 * NULL. */
	bool (*spill)(void *arg, uint32_t slot, enum kvp_spill why, bool used);
	void *arg;
	struct kvp_fault *fault; /* points offer, publish, commit, evict, release */

	uint32_t leases_max;       /* 0: there are none */
	uint32_t lease_blocks_max; /* of all leases together, counting a block once a lease */
	uint32_t lease_permille;   /* of the arena, that leases may hold */
	uint32_t namespaces_max;   /* with blocks, or a quota of their own; 0: 1024 */
	uint32_t families_max;     /* whose epoch is remembered; 0: 1024 */
	uint64_t quota;            /* bytes of a namespace without one of its own; 0: no limit */
	bool quota_evict; /* a full namespace loses its oldest block; else it gets no more */
};

struct kvp_store_stats {
	uint64_t bytes_total; /* the arena */
	uint64_t bytes_used;  /* payload bytes of valid blocks */
	uint64_t bytes_free;  /* that no slot takes up */
	uint64_t blocks;      /* valid */
	uint64_t granted;     /* slots being written */
	uint64_t lost;        /* slots that wait for a fence */
	uint64_t quarantined;
	uint64_t puts; /* commits that succeeded */
	uint64_t exists;
	uint64_t in_progress;
	uint64_t no_space; /* offers refused with NO_SPACE */
	uint64_t busy;
	uint64_t commits_refused;
	uint64_t grants_expired;
	uint64_t evicted;
	uint64_t deleted;
	uint64_t recovered; /* blocks that were there when the store was opened */
	uint64_t corrupt;   /* of those, dropped because their bytes did not fit their checksum */
	uint64_t touches;   /* reported reads that still matched */
	uint64_t touches_stale;
	uint64_t leases;         /* held now */
	uint64_t leased_blocks;  /* by one or more of them */
	uint64_t leased_bytes;   /* that those take up */
	uint64_t leases_expired; /* ran out without having been released */
	uint64_t leases_refused; /* blocks that could not be leased for want of room */
	uint64_t namespaces;     /* in the table */
	uint64_t over_quota;     /* offers refused with NO_SPACE because of the quota */
	uint64_t old_epoch;      /* offers and commits refused with EPOCH */
	uint64_t cleared;        /* blocks dropped because of a newer epoch */
};

/* -ENOMEM, -EINVAL (geometry; nothing is checked twice above). */
int kvp_store_open(const struct kvp_store_cfg *cfg, struct kvp_store **ret_store);
/* What became of the used entries of a table. */
struct kvp_store_recovery {
	uint32_t kept;        /* blocks, valid as they were */
	uint32_t quarantined; /* had been evicted */
	uint32_t lost;        /* somebody may still write there: reserved for that owner */
	uint32_t half;        /* granted, but nobody's any more: free */
	uint32_t torn;        /* do not fit their own check */
	uint32_t misplaced;   /* no place of a block of their length, or another one's; or no room
			       * in the table of namespaces */
	uint32_t doubles;     /* of a key that is there already */
};

/*
 * Takes over what an earlier process left in table and notes: right after open, before all else.
 * Believes of each entry only what its own check covers, and drops what contradicts the rest: a
 * damaged table costs the blocks of the damaged entries and no others. Order of eviction: that of
 * granting, children before parents. Every kept block is an event STORED. Owners of lost slots are
 * being fenced from here on: the caller reports them fenced. Entries of this or a later incarnation
 * must not be there. Twice gives the same as once. -ENOMEM; then the table is as it was.
 */
int kvp_store_recover(
	struct kvp_store *store, uint64_t now_ns, struct kvp_store_recovery *ret_recovery);

/* The next recovered block that is valid, of slot *cursor or later, for who verifies their bytes;
 * *ret_entry is a copy of its entry. False: none left. */
bool kvp_store_recovered(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_slot_entry *ret_entry);
/* Its bytes are wrong: evicted and counted, if it is still there. */
void kvp_store_corrupt(struct kvp_store *store, uint64_t now_ns, uint32_t slot, uint64_t word);

void kvp_store_close(struct kvp_store *store); /* touches neither arena nor table; NULL is fine */

struct kvp_offer {
	const uint8_t *ns;
	const struct kvp_key *key;
	uint64_t len;                 /* payload bytes, 1..KVP_BLOCK_LEN_MAX */
	const struct kvp_key *parent; /* of the same namespace, NULL: none */
	struct kvp_touch touch;       /* now_ns, context; parent is filled in by the store */
	uint32_t owner;
	const uint8_t *family; /* of the namespace, KVP_NS_LEN bytes; NULL: not told */
	uint64_t epoch;        /* with family */
};

/*
 * Reserves a slot for a new block, evicting if it must. 0 with *ret_grant (wdesc 0).
 * -KVP_E_EXISTS with *ret_loc; -KVP_E_IN_PROGRESS: another grant for this key is open (nothing more
 * is told); -KVP_E_BUSY: space is on its way (quarantine, fence), try again shortly;
 * -KVP_E_NO_SPACE: nothing that could be evicted, the namespace's quota is reached, or there are
 * too many namespaces; -KVP_E_EPOCH: its family has a newer epoch; -KVP_E_TOO_LARGE: never fits;
 * -EINVAL: length 0, or the namespace is known to be of another family or epoch.
 */
int kvp_store_offer(struct kvp_store *store, const struct kvp_offer *offer,
	struct kvp_grant *ret_grant, struct kvp_loc *ret_loc);

/* Makes a granted slot visible. sum: all zero means unhashed. -KVP_E_NO_GRANT when the grant ran
 * out, is another owner's, or is no grant; then nothing changed. -KVP_E_EPOCH: its namespace became
 * old meanwhile; then the slot is free, as by release. */
int kvp_store_commit(struct kvp_store *store, uint64_t now_ns, uint32_t owner,
	const struct kvp_grant *grant, const uint8_t sum[KVP_SUM_LEN], struct kvp_loc *ret_loc);

/* The owner gives a grant (or a slot already LOST) back and writes to it no more: the slot is free
 * at once. -KVP_E_NO_GRANT as above. */
int kvp_store_release(
	struct kvp_store *store, uint64_t now_ns, uint32_t owner, const struct kvp_grant *grant);

/* 0 with *ret_loc, or -KVP_E_NOKEY. Counts as no access. */
int kvp_store_lookup(const struct kvp_store *store, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key, struct kvp_loc *ret_loc);

/* Evicts one block by name. -KVP_E_NOKEY; -KVP_E_BUSY: a lease holds it. */
int kvp_store_delete(struct kvp_store *store, uint64_t now_ns, const uint8_t ns[KVP_NS_LEN],
	const struct kvp_key *key);

/* A reported read; ignored unless the generation is still there. */
void kvp_store_touch(
	struct kvp_store *store, uint32_t slot, uint64_t word, const struct kvp_touch *touch);

/* What spill() asked for is done with: the slot of an evicted block may be used again, when its
 * quarantine is over too. */
void kvp_store_unpin(struct kvp_store *store, uint32_t slot);

/* From now on every grant of the owner is LOST: its commits are refused. Its leases end. One state
 * change. */
void kvp_store_owner_fence(struct kvp_store *store, uint64_t now_ns, uint32_t owner);
/* The owner can write no more: its LOST slots are free. */
void kvp_store_owner_fenced(struct kvp_store *store, uint64_t now_ns, uint32_t owner);
/* Slots the owner holds, WRITING and LOST. */
uint32_t kvp_store_owner_slots(const struct kvp_store *store, uint32_t owner);

/*
 * Time passes: grants run out (become LOST; expired() is told each owner once), leases end,
 * quarantine ends, what is of an old epoch goes, the low-water mark is served. Bounded work;
 * returns true when more is due at once.
 */
bool kvp_store_turn(struct kvp_store *store, uint64_t now_ns,
	void (*expired)(void *arg, uint32_t owner), void *arg);

/* The caller was held up (stopped, starved) between reading the clock and now: what it evicted
 * meanwhile was evicted later than it was told. All quarantines last from now on. To be called
 * before the next offer or turn. */
void kvp_store_held_up(struct kvp_store *store, uint64_t now_ns);

/* Walks the valid blocks: start with *cursor 0; false at the end. For snapshots; blocks stored or
 * removed meanwhile may or may not be seen. */
bool kvp_store_next(const struct kvp_store *store, uint32_t *cursor,
	struct kvp_store_event *ret_event, struct kvp_key *ret_key);

void kvp_store_stats(const struct kvp_store *store, struct kvp_store_stats *ret_stats);

/* --- leases --------------------------------------------------------------------------------------
 */

#define KVP_STORE_OWNER_ANY UINT32_MAX

struct kvp_store_lease_info {
	uint64_t lease;
	uint64_t until_ns;
	uint32_t owner;
	uint32_t blocks;
};

/* A lease that holds nothing yet; its number is not 0 and not soon another's. -KVP_E_BUSY: there
 * are too many, or the owner is being fenced. */
int kvp_store_lease_open(
	struct kvp_store *store, uint32_t owner, uint64_t until_ns, uint64_t *ret_lease);
/* It holds that filling of that slot too, and this is an access. -KVP_E_NOKEY: it is not there (any
 * more); -KVP_E_BUSY: leases hold too much; -KVP_E_TIMEOUT: the lease is over, or another's. */
int kvp_store_lease_add(struct kvp_store *store, uint64_t now_ns, uint32_t owner, uint64_t lease,
	uint32_t slot, uint64_t word);
/* It ends; one that is over, or another's, is nothing to end. */
void kvp_store_lease_end(struct kvp_store *store, uint64_t now_ns, uint32_t owner, uint64_t lease);
/* All of an owner, or of KVP_STORE_OWNER_ANY; how many. */
uint32_t kvp_store_leases_purge(struct kvp_store *store, uint64_t now_ns, uint32_t owner);
/* Walks them: start with *cursor 0; false at the end. */
bool kvp_store_lease_next(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_store_lease_info *ret_info);

/* --- namespaces ----------------------------------------------------------------------------------
 */

struct kvp_store_usage {
	uint8_t ns[KVP_NS_LEN];
	uint8_t family[KVP_NS_LEN]; /* all zero: not told */
	uint64_t epoch;
	uint64_t blocks; /* valid */
	uint64_t bytes;  /* their payload */
	uint64_t
		taken; /* bytes that count against the quota: slots valid, being written, or lost */
	uint64_t quota; /* 0: none */
	bool old;       /* its family has a newer epoch */
};

/* A quota for one namespace, whatever the default is; 0: no limit. -ENOSPC: too many. */
int kvp_store_quota_set(struct kvp_store *store, const uint8_t ns[KVP_NS_LEN], uint64_t bytes);
/* Walks them: start with *cursor 0; false at the end. */
bool kvp_store_usage_next(
	const struct kvp_store *store, uint32_t *cursor, struct kvp_store_usage *ret_usage);

/* The family has at least this epoch. 1: that is news, and older blocks will go; 0: known;
 * -KVP_E_EPOCH: it has a newer one. When families_max are remembered, the one raised longest ago
 * is forgotten: epochs are in the digest too, so that costs space, not right bytes. */
int kvp_store_epoch_raise(
	struct kvp_store *store, const uint8_t family[KVP_NS_LEN], uint64_t epoch);
/* It is known, and of an epoch that is over. What has no slot in the store is not known. */
bool kvp_store_epoch_over(const struct kvp_store *store, const uint8_t ns[KVP_NS_LEN]);
/* Walks the epochs that are remembered, in no order. */
bool kvp_store_epoch_next(const struct kvp_store *store, uint32_t *cursor,
	uint8_t ret_family[KVP_NS_LEN], uint64_t *ret_epoch);

#endif /* KVP_POOL_STORE_STORE_H */
