/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h - the shared-memory object that says what the arena and the table of a name hold, and
 * what a successor must know beside them.
 *
 *   0      struct kvp_head_info, twice, 2048 bytes apart; the whole one with the higher serial
 *          counts, so a process may die while it writes the other
 *   4096   the token of the session of each owner number of the store
 *   36864  struct kvp_store_note of each slot
 *
 * It is made last and removed first: where it is, all three are whole. Tokens are those of ended
 * processes once a successor reads them, and open nothing.
 */
#ifndef KVP_POOL_NODE_HEAD_H
#define KVP_POOL_NODE_HEAD_H

#include "hal/base/limits.h"
#include "pool/store/store.h"

#include <stddef.h>
#include <stdint.h>

#define KVP_HEAD_VERSION    1u
#define KVP_HEAD_OWNERS_MAX (2u * KVP_SESSIONS_MAX)

struct kvp_head_info {
	uint8_t magic[8];
	uint32_t version; /* of head, notes, table and the use of the arena; 8 bytes from the start
			   * in every version */
	uint32_t slots;
	uint64_t serial;
	uint64_t asked_len; /* of the arena, as configured */
	uint64_t arena_len; /* as it is: in whole pages */
	uint64_t incarnation;
	uint8_t node_id[KVP_ID_LEN];
	uint8_t boot_id[KVP_ID_LEN];
	uint64_t owner_start; /* struct kvp_process of who owns it, or owned it last */
	uint64_t owner_ns;
	uint32_t owner_pid;
	uint32_t reserved;
	uint64_t check; /* of what is before it */
};
_Static_assert(sizeof(struct kvp_head_info) == 112, "kvp_head_info is a format in shared memory");

size_t kvp_head_len(uint32_t slots);
struct kvp_store_note *kvp_head_notes(void *base);
uint8_t *kvp_head_tokens(void *base); /* KVP_TOKEN_LEN each */

/* -EINVAL: none of the two is whole. -KVP_E_VERSION with the version alone in ret_info. */
int kvp_head_read(const void *base, struct kvp_head_info *ret_info);
/* Puts magic, version, the next serial and the check to it. Whoever dies within leaves the
 * former. */
void kvp_head_write(void *base, const struct kvp_head_info *info);

#endif /* KVP_POOL_NODE_HEAD_H */
