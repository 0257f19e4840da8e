/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_touch.c - blocks were of use, though nobody read them here: FIND -> TELL -> DONE.
 *
 * They join the reads that are reported to their node (reads.h), which believes what is still
 * there; like those they are dropped when there are too many. The node's session is opened for it
 * if need be, which reads do not do.
 *
 * touch_step() is the only function that changes the state.
 */
#include "client/spread.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>

enum touch_state { TOUCH_FIND, TOUCH_TELL, TOUCH_DONE };

struct touch {
	struct kvp_spread spread; /* first */
	enum touch_state state;
};

static struct kvp_loc *
touch_loc(struct kvp_oper *oper, uint32_t idx)
{
	return &((struct kvp_loc *)oper->items)[idx];
}

/* There is a session with the node: its items go with the next report. */
static void
touch_told(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct kvp_control *control = call->client->control;

	for (uint32_t i = 0; i < call->item_count; i++) {
		uint32_t idx = call->items[i];

		oper->batch.items[idx].status = call->status;
		if (call->status == 0) {
			(void)kvp_reads_add(call->peer->reads, touch_loc(oper, idx),
				oper->batch.context.conversation,
				oper->batch.context.service_class);
		}
	}
	if (call->status == 0 &&
		!atomic_exchange_explicit(&control->touch_mailed, true, memory_order_relaxed)) {
		kvp_control_mail(control, &control->touch_mail);
	}
}

/* The next slice of one node's items. */
static int
touch_tell(struct kvp_oper *oper)
{
	struct touch *touch = oper->head;
	const struct kvp_spread_item *found = &touch->spread.found[touch->spread.sent];
	uint32_t count = kvp_spread_run(&touch->spread, KVP_RPC_KEYS_MAX);
	struct kvp_oper_call what = {.to = KVP_TO_SESSION,
		.number = found->loc.node,
		.items = malloc(count * sizeof(*what.items)),
		.item_count = count,
		.done = touch_told};

	if (what.items == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		what.items[i] = found[i].item;
		*touch_loc(oper, found[i].item) = found[i].loc;
	}
	touch->spread.sent += count;
	return kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;
}

static void
touch_finish(struct kvp_oper *oper)
{
	struct touch *touch = oper->head;

	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status == KVP_ITEM_OPEN) {
			oper->batch.items[i].status = oper->end != 0 ? oper->end : -ENOMEM;
		}
	}
	kvp_spread_free(&touch->spread);
}

static void
touch_step(struct kvp_oper *oper)
{
	struct touch *touch = oper->head;
	int err;

	for (;;) {
		if (oper->end != 0) {
			touch->state = TOUCH_DONE;
		}
		switch (touch->state) {
		case TOUCH_FIND:
			err = kvp_spread_find(oper);
			if (err == -EINPROGRESS) {
				return;
			}
			touch->state = err < 0 ? TOUCH_DONE : TOUCH_TELL;
			break;
		case TOUCH_TELL:
			if (touch->spread.sent < touch->spread.count &&
				oper->calls < 2 * KVP_CALLS_MAX) {
				if (touch_tell(oper) < 0) {
					kvp_oper_end(oper, -ENOMEM);
				}
				break;
			}
			if (oper->calls > 0) {
				return;
			}
			touch->state = TOUCH_DONE;
			break;
		case TOUCH_DONE:
			touch_finish(oper);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
touch_start(struct kvp_oper *oper)
{
	struct touch *touch = oper->head;

	touch->state = TOUCH_FIND;
	touch->spread.cached = true;
}

const struct kvp_oper_ops kvp_oper_touch = {
	.head_len = sizeof(struct touch),
	.item_len = sizeof(struct kvp_loc),
	.moves_data = false,
	.start = touch_start,
	.step = touch_step,
};
