/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_clear.c - every node that is known is told that a namespace has a newer epoch: ASK -> TELL ->
 * DONE. Only kvp_clear() makes this operation; its one item stands for the whole.
 *
 * clear_step() is the only function that changes the state.
 */
#include "client/lookup.h"
#include "hal/base/err.h"
#include "transport/proto/kvpool.pb-c.h"

#include <errno.h>
#include <stdlib.h>

enum clear_state { CLEAR_ASK, CLEAR_WAIT, CLEAR_TELL, CLEAR_DONE };

struct clear {
	enum clear_state state;
	bool answered;
	int status;
	uint16_t *numbers; /* of nodes, owned */
	uint32_t count;
	uint32_t told;
};

static void
clear_answered(struct kvp_call *call)
{
	struct clear *clear = ((struct kvp_oper *)call->owner)->head;
	struct kvp_lookup_reader reader;

	clear->answered = true;
	clear->status = call->status;
	if (clear->status == 0) {
		clear->status = kvp_lookup_begin(call, &reader);
	}
	if (clear->status == 0) {
		clear->count = reader.node_count;
		clear->numbers = reader.numbers;
		reader.numbers = NULL;
		kvp_lookup_end(&reader);
	}
}

/* Who is there? */
static int
clear_ask(struct kvp_oper *oper)
{
	Kvp__Lookup msg = KVP__LOOKUP__INIT;
	const struct kvp_oper_call what = {.to = KVP_TO_META,
		.type = KVP_RPC_LOOKUP,
		.msg = &msg.base,
		.done = clear_answered};

	msg.ns = kvp_bytes(oper->ns.digest, KVP_NS_LEN);
	msg.all_nodes = true;
	return kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;
}

static void
clear_told(struct kvp_call *call)
{
	struct clear *clear = ((struct kvp_oper *)call->owner)->head;

	if (call->status < 0 && clear->status == 0) {
		clear->status = call->status == -KVP_E_TIMEOUT ? -KVP_E_NODEDOWN : call->status;
	}
}

static int
clear_tell(struct kvp_oper *oper)
{
	struct clear *clear = oper->head;
	Kvp__Clear msg = KVP__CLEAR__INIT;
	const struct kvp_oper_call what = {.to = KVP_TO_NODE,
		.type = KVP_RPC_CLEAR,
		.number = clear->numbers[clear->told],
		.msg = &msg.base,
		.done = clear_told};

	clear->told++;
	if (what.number == UINT16_MAX) {
		clear->status = -KVP_E_NODEDOWN; /* our table is full */
		return 0;
	}
	msg.family = kvp_bytes(oper->ns.family, KVP_NS_LEN);
	msg.epoch = oper->ns.epoch;
	return kvp_oper_call(oper, &what) != NULL ? 0 : -ENOMEM;
}

/* True: the state is to be looked at again. */
static bool
clear_step_tell(struct kvp_oper *oper)
{
	struct clear *clear = oper->head;

	if (clear->told < clear->count && oper->calls < 4 * KVP_CALLS_MAX) {
		if (clear_tell(oper) < 0) {
			kvp_oper_end(oper, -ENOMEM);
		}
		return true;
	}
	if (oper->calls > 0) {
		return false;
	}
	clear->state = CLEAR_DONE;
	return true;
}

static void
clear_step(struct kvp_oper *oper)
{
	struct clear *clear = oper->head;

	for (;;) {
		if (oper->end != 0) {
			bool no_meta = oper->end == -KVP_E_TIMEOUT && !clear->answered;

			clear->status = no_meta ? -KVP_E_META_DOWN : oper->end;
			clear->state = CLEAR_DONE;
		}
		switch (clear->state) {
		case CLEAR_ASK:
			clear->state = CLEAR_WAIT;
			if (clear_ask(oper) < 0) {
				kvp_oper_end(oper, -ENOMEM);
			}
			break;
		case CLEAR_WAIT:
			if (!clear->answered) {
				return;
			}
			clear->state = clear->status == 0 ? CLEAR_TELL : CLEAR_DONE;
			break;
		case CLEAR_TELL:
			if (!clear_step_tell(oper)) {
				return;
			}
			break;
		case CLEAR_DONE:
			oper->batch.items[0].status = clear->status;
			free(clear->numbers);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
clear_start(struct kvp_oper *oper)
{
	struct clear *clear = oper->head;

	clear->state = CLEAR_ASK;
}

const struct kvp_oper_ops kvp_oper_clear = {
	.head_len = sizeof(struct clear),
	.item_len = 0,
	.moves_data = false,
	.start = clear_start,
	.step = clear_step,
};
