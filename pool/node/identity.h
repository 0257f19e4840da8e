/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - who this node is: an id for its life and a number for this start, both in
 * DIR/identity, and the lock that keeps a second process out of DIR.
 *
 * The file is text: "kvpool-identity 1", "id HEX", "incarnation N", "check HEX" over what stands
 * before. One that is damaged or of another version is kept as identity.bad and a new id is made;
 * then what an earlier start left in memory or on the SSD is another node's, and dropped.
 */
#ifndef KVP_POOL_NODE_IDENTITY_H
#define KVP_POOL_NODE_IDENTITY_H

#include "hal/base/limits.h"
#include "hal/base/log.h"
#include "hal/os/env.h"

#include <stdint.h>

struct kvp_identity {
	uint8_t id[KVP_ID_LEN];
	uint64_t incarnation;
	int lock_fd;
};

/*
 * Makes dir if it is missing, locks it, counts this start; on disk before it returns.
 * -KVP_E_IN_USE: another process has it. -errno: dir cannot be used. Both are logged with the path.
 */
int kvp_identity_open(const char *dir, const struct kvp_env *env, const struct kvp_log *log,
	struct kvp_identity *ret_identity);
void kvp_identity_close(struct kvp_identity *identity); /* lets the lock go */

#endif /* KVP_POOL_NODE_IDENTITY_H */
