/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - a store from inside: for the files of this folder only.
 *
 * A slot is its entry in the shared table plus a struct kvp_slot here. What is here is what the
 * store believes; of the shared entry it reads only the key, which nobody else can write.
 * Every slot that takes up space is on its run's list; one that an owner may write to (WRITING,
 * LOST) on that owner's list as well. Its state decides on which third list it is. VALID ones that
 * no lease holds are on their namespace's list, in the order of use.
 */
#ifndef KVP_POOL_STORE_STATE_H
#define KVP_POOL_STORE_STATE_H

#include "pool/store/index.h"
#include "pool/store/slab.h"
#include "pool/store/store.h"

#include <stdbool.h>
#include <stdint.h>

#define KVP_SLOT_NONE      UINT32_MAX
#define KVP_STORE_STEP_MAX 64u   /* evictions, expiries or quarantine ends in one go */
#define KVP_STORE_CLAIMS   8192u /* a power of two */

enum kvp_slots_state {
	KVP_SLOTS_FREE,    /* on list free */
	KVP_SLOTS_WRITING, /* on list grants, by deadline; in the index */
	KVP_SLOTS_LOST,    /* on no third list; not in the index */
	KVP_SLOTS_VALID,   /* on no third list, but in the policy; in the index */
	KVP_SLOTS_EVICTED, /* on list quarantine, by end, unless ripe; not in the index */
};

enum kvp_slots_link { KVP_LINK_STATE, KVP_LINK_OWNER, KVP_LINK_RUN, KVP_LINK_NS, KVP_LINK_COUNT };

struct kvp_slot_list {
	uint32_t first;
	uint32_t last;
	uint32_t count;
};

struct kvp_slot {
	uint64_t word;
	uint64_t off;           /* of its block; unless FREE */
	uint64_t due_ns;        /* WRITING: deadline, EVICTED: end of quarantine */
	uint64_t parent_word;   /* WRITING: generation of the slot in touch.parent */
	struct kvp_touch touch; /* WRITING: what the offer told */
	struct {
		uint32_t prev;
		uint32_t next;
	} link[KVP_LINK_COUNT];
	uint32_t len; /* payload bytes */
	uint32_t owner;
	uint32_t state;  /* enum kvp_slots_state */
	uint32_t ns;     /* in store->namespaces; WRITING, LOST and VALID ones */
	uint32_t leases; /* that hold it; VALID only */
	bool used;       /* since it was granted: read, or offered again */
	bool pinned;     /* whoever spill() told reads its bytes */
	bool ripe;       /* EVICTED: only the pin keeps it, off its third list */
};

struct kvp_store_owner {
	struct kvp_slot_list slots;
	uint32_t lost;
	bool fencing; /* since kvp_store_owner_fence: gets no grants */
	bool told;    /* expired() was called */
};

/* Of a run's first extent. */
struct kvp_store_run {
	struct kvp_slot_list slots; /* VALID ones that no lease holds first */
	uint32_t pinned;            /* the others but EVICTED ones: no eviction frees them */
	uint64_t touched_ns;        /* last commit or reported read of any */
};

/* An offer that was told BUSY and for which a block has been evicted: repeated before that one is
 * out of quarantine, it evicts no other. Lossy: a slot taken by another key costs one eviction. */
struct kvp_store_claim {
	uint64_t hash;
	uint64_t until_ns;
};

struct kvp_store_lease {
	uint64_t until_ns;
	uint32_t owner;
	uint32_t seq;   /* high half of its number; the low half is its index */
	uint32_t first; /* in lease_blocks */
	uint32_t blocks;
	uint32_t pos;  /* in lease_heap */
	uint32_t prev; /* of the owner's leases; next also of those that are free */
	uint32_t next;
	bool open;
};

struct kvp_store_lease_block {
	uint32_t slot;
	uint32_t next;
};

/* See lease.c. */
struct kvp_store_leases {
	struct kvp_store_lease *leases;
	struct kvp_store_lease_block *blocks;
	uint32_t *heap;  /* leases by until_ns, the first to end on top */
	uint32_t *owned; /* each owner's first lease */
	uint32_t count;
	uint32_t free; /* lease */
	uint32_t block_free;
	uint32_t seq;
};

/* See namespaces.c. */
struct kvp_store_ns {
	struct kvp_slot_list order; /* VALID slots that no lease holds, in the order of use */
	struct kvp_store_usage use;
	uint32_t slots; /* WRITING, LOST and VALID */
	uint32_t next;  /* in its bucket, or of those that are free */
	bool used;
	bool kept; /* it has a quota of its own */
};

struct kvp_store_family {
	uint8_t family[KVP_NS_LEN];
	uint64_t epoch;
	uint64_t stamp; /* grows with each raise; 0: unused */
};

struct kvp_store_namespaces {
	struct kvp_store_ns *list;
	uint32_t *buckets; /* as many as the power of two above max */
	uint32_t mask;
	uint32_t max;
	uint32_t free;
	uint32_t clearing; /* where the dropping of old blocks goes on; max: there are none */
	struct kvp_store_family *families;
	uint32_t family_max;
	uint64_t stamp;
};

struct kvp_store {
	struct kvp_store_cfg cfg;
	struct kvp_slab *slab;
	struct kvp_index *index;
	struct kvp_evict *evict;
	struct kvp_slot *slots;
	struct kvp_store_owner *owners;
	struct kvp_store_run *runs;
	struct kvp_store_claim *claims;
	struct kvp_store_leases leases;
	struct kvp_store_namespaces namespaces;
	struct kvp_slot_list free;
	struct kvp_slot_list grants;
	struct kvp_slot_list quarantine;
	uint64_t quarantine_bytes;    /* taken up by slots in quarantine */
	uint64_t taken_bytes;         /* by all slots */
	uint64_t counter;             /* of the last state word */
	uint64_t hold_until_ns;       /* reclaim.c: when the slab's hold is given up */
	struct kvp_store_stats stats; /* its gauges of bytes are filled in by kvp_store_stats */
};

/* slots.c: the transitions of a slot. Nothing else changes state, lists or gauges. */
void kvp_slots_init(struct kvp_store *store);
/* FREE -> WRITING, of the first free slot, which must be there. */
uint32_t kvp_slots_grant(struct kvp_store *store, const struct kvp_offer *offer, uint64_t off,
	uint64_t hash, uint32_t ns);
void kvp_slots_commit(struct kvp_store *store, uint64_t now_ns, uint32_t slot,
	const uint8_t sum[KVP_SUM_LEN]);                     /* WRITING -> VALID */
void kvp_slots_lose(struct kvp_store *store, uint32_t slot); /* WRITING -> LOST */
void kvp_slots_evict(
	struct kvp_store *store, uint64_t now_ns, uint32_t slot); /* VALID -> EVICTED */
/* EVICTED, pinned and through with quarantine: it waits for its unpin alone. */
void kvp_slots_ripen(struct kvp_store *store, uint32_t slot);
void kvp_slots_free(struct kvp_store *store, uint32_t slot); /* not VALID, not FREE -> FREE */
/* Asks whether a valid block's bytes are wanted elsewhere. */
void kvp_slots_spill(struct kvp_store *store, uint32_t slot, enum kvp_spill why);
/* FREE -> VALID, LOST or EVICTED, as its entry in the table says; its place is taken in the slab.
 * A VALID one is not known to the policy yet, and nobody is told. */
void kvp_slots_restore(struct kvp_store *store, uint64_t now_ns, uint32_t slot,
	enum kvp_slots_state state, uint32_t owner, uint32_t ns);
/* A restored VALID one takes its place in the order of eviction, behind those before; the event. */
void kvp_slots_rejoin(struct kvp_store *store, uint64_t now_ns, uint32_t slot);
struct kvp_loc kvp_slots_loc(const struct kvp_store *store, uint32_t slot); /* VALID */
/* VALID: it was used; one lease more, or less, holds it. */
void kvp_slots_use(struct kvp_store *store, uint32_t slot, const struct kvp_touch *touch);
void kvp_slots_hold(struct kvp_store *store, uint32_t slot);
void kvp_slots_unhold(struct kvp_store *store, uint64_t now_ns, uint32_t slot);
void kvp_slots_list_init(struct kvp_slot_list *list);

/* reclaim.c: space. */
/* Frees what is through with quarantine; true when the step was too short for all of it. */
bool kvp_reclaim_ripen(struct kvp_store *store, uint64_t now_ns);
/* One step towards space for a block of len, for the key of this hash. */
void kvp_reclaim_room(struct kvp_store *store, uint64_t now_ns, uint64_t len, uint64_t hash);
/* Goes on with what is under way and evicts ahead; true when more is due at once. */
bool kvp_reclaim_turn(struct kvp_store *store, uint64_t now_ns);

/* lease.c */
int kvp_leases_init(struct kvp_store *store);
void kvp_leases_fini(struct kvp_store *store);
/* Ends those whose time is over; true when the step was too short for all of them. */
bool kvp_leases_turn(struct kvp_store *store, uint64_t now_ns);

/* namespaces.c */
int kvp_namespaces_init(struct kvp_store *store);
void kvp_namespaces_fini(struct kvp_store *store);
/* The namespace of an offer, with room for its block: its index, to be left after the offer; or an
 * error as of kvp_store_offer(). */
int kvp_namespaces_admit(struct kvp_store *store, const struct kvp_offer *offer, uint32_t *ret_ns);
void kvp_namespaces_leave(struct kvp_store *store, uint32_t ns);
/* The entry of a recovered slot's namespace, whose family nobody knows until it is offered again;
 * KVP_BLOCK_NONE: the table is full. */
uint32_t kvp_namespaces_rejoin(struct kvp_store *store, const uint8_t digest[KVP_NS_LEN]);
/* A slot takes up space of it, or no longer does. */
void kvp_namespaces_take(struct kvp_store *store, uint32_t ns, uint64_t block_len);
void kvp_namespaces_give(struct kvp_store *store, uint32_t ns, uint64_t block_len);
bool kvp_namespaces_turn(struct kvp_store *store, uint64_t now_ns); /* as kvp_leases_turn */

#endif /* KVP_POOL_STORE_STATE_H */
