/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads.h - reads the node did not see, to be reported to it: a bounded table a session
 * {slot, generation, count, conversation, class}. Lossy: what does not fit is dropped.
 *
 * THREADS any: one lock.
 */
#ifndef KVP_CLIENT_READS_H
#define KVP_CLIENT_READS_H

#include "transport/proto/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define KVP_READS_MAX 1024 /* entries of a table */

struct kvp_reads;

int kvp_reads_open(struct kvp_reads **ret_reads);
void kvp_reads_close(struct kvp_reads *reads);

/* Returns true when the table is half full: report soon. */
bool kvp_reads_add(struct kvp_reads *reads, const struct kvp_loc *loc, uint64_t conversation,
	uint32_t service_class);
/* Takes everything out; the number. */
uint32_t kvp_reads_take(struct kvp_reads *reads, struct kvp_touch_item ret_items[KVP_READS_MAX]);

#endif /* KVP_CLIENT_READS_H */
