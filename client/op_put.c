/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_put.c - the whole life of a put: RUN -> DONE, or RUN -> DRAIN -> DONE.
 *
 * Items go through queues: OFFER (to be offered to the home node), WRITE (granted: write the
 * payload into the slot), COMMIT (written), and LATER (to be offered again when its time comes).
 * A grant holds for the session and the connection it was given for: when that connection ends,
 * grants not written yet are released and their items offered again. A commit is sent only after
 * the write's completion, which says that the bytes are visible at the node. A grant whose write
 * failed is not released: the session is ended, so that the node fences it and frees slot and key.
 *
 * put_step() is the only function that changes the state. Answers move items between queues and
 * let it be stepped.
 */
#include "client/op_put.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PUT_SLICE_BYTES   (64u << 20)  /* offered in one message, or one item */
#define PUT_GRANTED_BYTES (256u << 20) /* granted and not committed, or one item */
#define PUT_COMMIT_ITEMS  64u          /* a commit goes out while writes go on */
#define PUT_PAUSE_NS      (10 * KVP_NS_PER_MS)
#define PUT_OFFERS_MAX    6u /* of one key that another writer is storing */

/* --- items
 * ---------------------------------------------------------------------------------------- */

void
kvp_put_finish(struct kvp_oper *oper, uint32_t idx, int status)
{
	struct put *put = oper->head;

	kvp_assert(oper->batch.items[idx].status == KVP_ITEM_OPEN && put->left > 0);
	put_item(oper, idx)->phase = PUT_ITEM_DONE;
	oper->batch.items[idx].status = status;
	put->left--;
}

/* It holds its grant no more, whatever became of it. */
static void
put_ungrant(struct kvp_oper *oper, uint32_t idx)
{
	struct put *put = oper->head;

	kvp_assert(put->granted >= oper->lens[idx]);
	put->granted -= oper->lens[idx];
	put_item(oper, idx)->phase = PUT_ITEM_OPEN;
}

void
kvp_put_later(struct kvp_oper *oper, uint32_t idx, int why, uint64_t pause_ns)
{
	struct put *put = oper->head;
	uint64_t at = kvp_now_ns(oper->cq->client->env) + pause_ns;

	put_item(oper, idx)->phase = PUT_ITEM_OPEN;
	put_item(oper, idx)->last = why;
	kvp_fifo_push(oper, &put->later, idx);
	put->later_ns = at < put->later_ns ? at : put->later_ns;
	kvp_oper_wake_at(oper, at);
}

/* Its grant was lost: offer it again, a few times. */
static void
put_lost(struct kvp_oper *oper, uint32_t idx, int why)
{
	struct put_item *item = put_item(oper, idx);

	item->tries++;
	if (item->tries < KVP_TRIES_MAX) {
		kvp_put_later(oper, idx, why, PUT_PAUSE_NS);
	} else {
		kvp_put_finish(oper, idx, why);
	}
}

/* May a request that failed so be made again? */
static bool
put_may_retry(int status)
{
	enum kvp_err_retry retry = kvp_err_retry(status);

	if (status > -4096) { /* a link's errno: refused, reset */
		return status != -EINVAL && status != -ENOMEM && status != -EPERM;
	}
	return retry == KVP_RETRY_RECONNECT || retry == KVP_RETRY_SAME || status == -KVP_E_NODEDOWN;
}

/* Gives the grants of all items of a phase back: nothing writes to them now, or ever will. */
static void
put_release_phase(struct kvp_oper *oper, struct kvp_fifo *fifo)
{
	struct put *put = oper->head;
	struct kvp_grant *grants;
	uint32_t count = 0;

	if (fifo->count == 0) {
		return;
	}
	grants = malloc(fifo->count * sizeof(*grants));
	for (uint32_t i = fifo->head; i != KVP_FIFO_END; i = oper->nexts[i]) {
		if (grants != NULL) { /* else they run out by themselves */
			grants[count] = put_item(oper, i)->grant;
			count++;
		}
	}
	kvp_put_release(oper->cq->client, put->home, put->session_seq, grants, count);
	free(grants);
}

/* --- offers
 * ------------------------------------------------------------------------------------------ */

/* What one key's answer says. */
static void
put_offered_one(struct kvp_oper *oper, uint32_t idx, struct kvp_offer_reader *reader,
	const struct kvp_call *call)
{
	struct put *put = oper->head;
	struct put_item *item = put_item(oper, idx);
	struct kvp_loc loc;
	int status = kvp_offer_next(reader, oper->lens[idx], &item->grant, &loc);

	switch (status) {
	case 0:
		item->desc = put->desc_base + item->grant.wdesc;
		item->end_ns = call->sent_ns + put->grant_ms * KVP_NS_PER_MS;
		item->phase = PUT_ITEM_GRANTED;
		put->granted += oper->lens[idx];
		put->grants_end_ns =
			item->end_ns < put->grants_end_ns ? item->end_ns : put->grants_end_ns;
		kvp_oper_wake_at(oper, item->end_ns);
		kvp_fifo_push(oper, &put->write, idx);
		return;
	case -KVP_E_EXISTS:
		if (loc.word != 0) {
			kvp_put_cache(oper, idx, &loc);
		}
		kvp_put_finish(oper, idx, status);
		return;
	case -KVP_E_IN_PROGRESS:
		item->offers++;
		if (item->offers < PUT_OFFERS_MAX) {
			kvp_put_later(oper, idx, status, PUT_PAUSE_NS << item->offers);
		} else {
			kvp_put_finish(oper, idx, status);
		}
		return;
	case -KVP_E_BUSY:
		kvp_put_later(oper, idx, status, reader->retry_ns);
		return;
	default:
		kvp_put_finish(oper, idx, status);
	}
}

static void
put_offered(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct put *put = oper->head;
	struct kvp_offer_reader reader;
	int err = call->status;

	put->offering = false;
	if (err == 0) {
		err = kvp_offer_begin(call, &reader);
	}
	if (err == 0) {
		err = kvp_put_add_descs(oper, &reader);
		if (err < 0) {
			kvp_offer_end(&reader);
		}
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		uint32_t idx = call->items[i];

		put_item(oper, idx)->phase = PUT_ITEM_OPEN;
		if (err == 0) {
			put_offered_one(oper, idx, &reader, call);
		} else if (put_may_retry(err)) {
			kvp_put_later(oper, idx, err, PUT_PAUSE_NS);
		} else {
			kvp_put_finish(oper, idx, err);
		}
	}
	if (err == 0) {
		kvp_offer_end(&reader);
	}
}

/* Offers the next slice, if there is room for more grants. */
static void
put_offer(struct kvp_oper *oper, struct kvp_chan *chan)
{
	struct put *put = oper->head;
	struct kvp_offer offer = {.keys_max = chan->session.keys_max,
		.bytes_max = PUT_SLICE_BYTES,
		.transport = kvp_chan_xport(chan)->xport->ops->name,
		.done = put_offered};

	if (put->offering || put->offer.count == 0 || put->granted >= PUT_GRANTED_BYTES) {
		return;
	}
	put->grant_ms = chan->session.grant_ms;
	put->offering = true;
	if (kvp_offer_post(oper, &offer) < 0) {
		put->offering = false;
		kvp_oper_end(oper, -ENOMEM);
	}
}

/* --- writes
 * ------------------------------------------------------------------------------------------- */

/* Hashes an item while its bytes travel. */
static void
put_hash(struct kvp_oper *oper, uint32_t idx)
{
	const struct kvp_item *from = &oper->batch.items[idx];
	struct kvp_sum_state *state = oper->cq->sum;
	struct kvp_key key;

	if (oper->cq->client->set.checksum != KVP_CHECKSUM_CLIENT) {
		return;
	}
	kvp_oper_key(oper, idx, &key);
	kvp_sum_begin(state, oper->ns.digest, &key, oper->lens[idx]);
	for (uint32_t i = 0; i < from->seg_count; i++) {
		kvp_sum_update(state, from->segs[i].iov_base, from->segs[i].iov_len);
	}
	kvp_sum_end(state, put_item(oper, idx)->sum);
}

static void
put_write(struct kvp_oper *oper, struct kvp_chan *chan)
{
	struct put *put = oper->head;
	uint64_t now = kvp_now_ns(oper->cq->client->env);
	uint32_t quantum = KVP_QUANTUM;

	while (put->write.count > 0) {
		uint32_t idx = kvp_fifo_pop(oper, &put->write);
		struct put_item *item = put_item(oper, idx);
		struct kvp_unit *unit;

		if (now >= item->end_ns) { /* the node takes it back by itself */
			put_ungrant(oper, idx);
			put_lost(oper, idx, -KVP_E_NO_GRANT);
			continue;
		}
		unit = kvp_unit_take(oper, idx, chan);
		if (unit == NULL) {
			kvp_fifo_push_front(oper, &put->write, idx);
			return;
		}
		item->phase = PUT_ITEM_WRITING;
		kvp_unit_write(unit, &put->descs[item->desc], item->grant.off);
		put_hash(oper, idx);
		quantum--;
		if (quantum == 0) {
			kvp_oper_run(oper); /* behind the others */
			return;
		}
	}
	kvp_unit_unwant(oper);
}

static void
put_land(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	struct kvp_list *node;

	while ((node = kvp_list_pop_front(&oper->landed)) != NULL) {
		struct kvp_unit *unit = kvp_container_of(node, struct kvp_unit, link);
		uint32_t idx = unit->item;
		int status = unit->status;

		oper->batch.items[idx].local = unit->local;
		kvp_unit_give(unit);
		if (status < 0) {
			kvp_put_renew(oper->cq->client, put->home, put->session_seq);
		}
		if (oper->end != 0) {
			if (status == 0) { /* written, too late to commit: nothing can land now */
				kvp_put_release(oper->cq->client, put->home, put->session_seq,
					&put_item(oper, idx)->grant, 1);
			}
			put_ungrant(oper, idx);
			kvp_put_finish(oper, idx, oper->end);
		} else if (status < 0) {
			put_ungrant(oper, idx);
			put_lost(oper, idx, -KVP_E_NODEDOWN);
		} else {
			put_item(oper, idx)->phase = PUT_ITEM_WRITTEN;
			kvp_fifo_push(oper, &put->commit, idx);
		}
	}
}

/* A write that is still out when its grant ends must not land later: end its connection. */
static void
put_check_grants(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	struct kvp_cq *cq = oper->cq;
	uint64_t now = kvp_now_ns(cq->client->env);

	if (now < put->grants_end_ns) {
		return;
	}
	put->grants_end_ns = UINT64_MAX;
	for (uint32_t i = 0; i < KVP_UNITS_MAX; i++) {
		struct kvp_unit *unit = &cq->units[i];
		uint64_t end;

		if (unit->oper != oper || unit->landed) {
			continue;
		}
		end = put_item(oper, unit->item)->end_ns;
		if (now >= end && unit->epoch == unit->chan->epoch) {
			kvp_chan_break(unit->chan, -KVP_E_NO_GRANT);
		} else if (end < put->grants_end_ns) {
			put->grants_end_ns = end;
			kvp_oper_wake_at(oper, end);
		}
	}
}

/* --- commits
 * ---------------------------------------------------------------------------------------------- */

static void
put_committed_one(struct kvp_oper *oper, uint32_t idx, int status, const struct kvp_loc *loc)
{
	put_ungrant(oper, idx);
	if (status == 0) {
		kvp_put_cache(oper, idx, loc);
		kvp_put_finish(oper, idx, 0);
	} else if (status == -KVP_E_NO_GRANT || put_may_retry(status)) {
		put_lost(oper, idx, status); /* it may be stored all the same: then it EXISTS */
	} else {
		kvp_put_finish(oper, idx, status);
	}
}

static void
put_committed(struct kvp_call *call)
{
	struct kvp_oper *oper = call->owner;
	struct put *put = oper->head;
	struct kvp_commit_reader reader;
	uint64_t stored = 0;
	int err = call->status;

	put->committing--;
	if (err == 0) {
		err = kvp_commit_begin(call, &reader);
	}
	for (uint32_t i = 0; i < call->item_count; i++) {
		struct kvp_loc loc = {0};
		int status = err == 0 ? kvp_commit_next(&reader, &loc) : err;

		stored += status == 0;
		put_committed_one(oper, call->items[i], status, &loc);
	}
	if (err == 0) {
		if (reader.unindexed && stored > 0) {
			oper->done_flags |= KVP_DONE_UNINDEXED;
			kvp_client_count(oper->cq->client, KVP_STAT_UNINDEXED, stored);
		}
		kvp_commit_end(&reader);
	}
}

/* Commits what is written: all of it at the end of a burst, or enough of it meanwhile. */
static void
put_commit(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	bool burst_over = oper->units == 0 && put->write.count == 0;

	if (put->commit.count == 0 || put->committing >= KVP_CALLS_MAX ||
		(!burst_over && put->commit.count < PUT_COMMIT_ITEMS)) {
		return;
	}
	put->committing++;
	if (kvp_commit_post(oper, put_committed) < 0) {
		put->committing--;
		kvp_oper_end(oper, -ENOMEM);
	}
}

/* --- the home node
 * ------------------------------------------------------------------------------------- */

static void
put_home_found(struct kvp_call *call)
{
	struct put *put = ((struct kvp_oper *)call->owner)->head;

	put->asking = false;
	if (call->status == 0) {
		put->home = call->number;
		put->home_known = true;
	} else if (call->status == -KVP_E_NODEDOWN || call->status == -KVP_E_CANCELLED) {
		put->homeless = true; /* there is none, or the deadline is here */
	}
}

static void
put_ask_home(struct kvp_oper *oper)
{
	const struct kvp_oper_call what = {.to = KVP_TO_HOME, .done = put_home_found};
	struct put *put = oper->head;

	put->home_known = false;
	if (!put->asking) {
		put->asking = kvp_oper_call(oper, &what) != NULL;
		if (!put->asking) {
			kvp_oper_end(oper, -ENOMEM);
		}
	}
}

/* Grants are void outside the connection they were given for. */
static void
put_new_connection(struct kvp_oper *oper, const struct kvp_chan *chan)
{
	struct put *put = oper->head;
	uint32_t idx;

	put_release_phase(oper, &put->write);
	while ((idx = kvp_fifo_pop(oper, &put->write)) != KVP_FIFO_END) {
		put_ungrant(oper, idx);
		kvp_fifo_push(oper, &put->offer, idx);
	}
	put->epoch = chan->epoch;
	put->session_seq = chan->session_seq;
}

static void
put_fail_offers(struct kvp_oper *oper, int status)
{
	struct put *put = oper->head;
	uint32_t idx;

	kvp_fifo_splice(oper, &put->later, &put->offer);
	while ((idx = kvp_fifo_pop(oper, &put->offer)) != KVP_FIFO_END) {
		kvp_put_finish(oper, idx, status);
	}
}

/* The connection to the home node under its present session; NULL: not now, the operation is
 * stepped again when that changes. */
static struct kvp_chan *
put_connection(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	struct kvp_chan *chan;
	uint32_t seq;
	int err;

	if (put->homeless) {
		put_fail_offers(oper, -KVP_E_NODEDOWN);
		return NULL;
	}
	if (!put->home_known) {
		put_ask_home(oper);
		return NULL;
	}
	err = kvp_chan_want(oper->cq, put->home, &chan);
	if (err == -KVP_E_NO_PROVIDER) {
		put_fail_offers(oper, err);
		return NULL;
	}
	if (err == -KVP_E_NODEDOWN) {
		chan = kvp_chan_find(oper->cq, put->home);
		if (chan == NULL || atomic_load(&chan->peer->gone)) {
			put_ask_home(oper);
		} else {
			kvp_oper_wake_at(oper, chan->retry_ns);
		}
		return NULL;
	}
	if (err < 0) {
		return NULL; /* on its way */
	}
	seq = kvp_peer_session_seq(chan->peer);
	if (seq == 0) {
		put_ask_home(oper); /* waits for the session */
		return NULL;
	}
	if (seq != chan->session_seq) {
		kvp_oper_run(oper); /* it changed just now: the connection must be made anew */
		return NULL;
	}
	if (chan->epoch != put->epoch || seq != put->session_seq) {
		put_new_connection(oper, chan);
	}
	return chan;
}

/* --- the steps
 * --------------------------------------------------------------------------------------------- */

/* The deadline came, or it is cancelled: everything that is not in a unit ends now. */
static void
put_give_up(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	int status = oper->end;

	if (status == -KVP_E_TIMEOUT && !put->home_known) {
		status = -KVP_E_NODEDOWN;
	}
	put_release_phase(oper, &put->write);
	put_release_phase(oper, &put->commit);
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		struct put_item *item = put_item(oper, i);

		if (oper->batch.items[i].status != KVP_ITEM_OPEN ||
			item->phase == PUT_ITEM_WRITING) {
			continue;
		}
		if (item->phase == PUT_ITEM_OPEN && item->last == -KVP_E_BUSY &&
			oper->end == -KVP_E_TIMEOUT) {
			kvp_put_finish(oper, i, -KVP_E_BUSY);
		} else {
			kvp_put_finish(oper, i, status);
		}
	}
	kvp_fifo_init(&put->offer);
	kvp_fifo_init(&put->later);
	kvp_fifo_init(&put->write);
	kvp_fifo_init(&put->commit);
}

static void
put_run(struct kvp_oper *oper)
{
	struct put *put = oper->head;
	struct kvp_chan *chan = NULL;

	oper->unparked = false;
	put_land(oper);
	if (kvp_now_ns(oper->cq->client->env) >= put->later_ns) {
		put->later_ns = UINT64_MAX;
		kvp_fifo_splice(oper, &put->later, &put->offer);
	}
	put_check_grants(oper);
	if (put->write.count > 0 || put->offer.count > 0) {
		chan = put_connection(oper);
	}
	if (chan != NULL) {
		put_write(oper, chan);
		put_offer(oper, chan);
	}
	put_commit(oper);
}

static void
put_step(struct kvp_oper *oper)
{
	struct put *put = oper->head;

	for (;;) {
		if (oper->end != 0 && put->state < PUT_DRAIN) {
			put_give_up(oper);
			put->state = PUT_DRAIN;
		}
		switch (put->state) {
		case PUT_RUN:
			put_run(oper);
			if (put->left > 0 && oper->end == 0) {
				return;
			}
			put->state = put->left > 0 ? PUT_RUN : PUT_DRAIN;
			break;
		case PUT_DRAIN:
			put_land(oper);
			if (oper->units > 0) {
				return;
			}
			put->state = PUT_DONE;
			break;
		case PUT_DONE:
			/* What was asked for nothing: where home is. */
			kvp_oper_abandon(oper);
			kvp_assert(put->left == 0);
			free(put->descs);
			kvp_oper_complete(oper);
			return;
		}
	}
}

static void
put_start(struct kvp_oper *oper)
{
	struct put *put = oper->head;

	kvp_fifo_init(&put->offer);
	kvp_fifo_init(&put->write);
	kvp_fifo_init(&put->commit);
	kvp_fifo_init(&put->later);
	put->later_ns = UINT64_MAX;
	put->grants_end_ns = UINT64_MAX;
	put->epoch = UINT32_MAX;
	for (uint32_t i = 0; i < oper->batch.item_count; i++) {
		if (oper->batch.items[i].status == KVP_ITEM_OPEN) {
			kvp_fifo_push(oper, &put->offer, i);
			put->left++;
		}
	}
	put->state = PUT_RUN;
}

const struct kvp_oper_ops kvp_oper_put = {
	.head_len = sizeof(struct put),
	.item_len = sizeof(struct put_item),
	.moves_data = true,
	.start = put_start,
	.step = put_step,
};
