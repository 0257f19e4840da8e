/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - see view.h. A view has mappings of its own, of the block and of its slot's entry, so
 * that it stays readable whatever becomes of queue, connection and node. Whether it still shows the
 * block is what the entry's state word says: it is the first thing to change when a block goes, and
 * no other filling ever has the same.
 *
 * THREADS any, one view from one thread at a time.
 */
#include "client/view.h"

#include "client/leases.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kvp_view {
	struct kvp_client *client;
	const struct kvp_xport_ops *ops;
	struct kvp_xport_view data;
	struct kvp_xport_view entry;
	uint64_t len;
	uint64_t word;
	uint64_t lease; /* 0: none */
};

static const struct kvp_slot_entry *
view_entry(const struct kvp_view *view)
{
	return view->entry.addr;
}

void
kvp_view_free(struct kvp_view *view)
{
	if (view->data.base != NULL) {
		view->ops->unmap(&view->data);
	}
	if (view->entry.base != NULL) {
		view->ops->unmap(&view->entry);
	}
	free(view);
}

int
kvp_view_make(struct kvp_chan *chan, const uint8_t ns[KVP_NS_LEN], const struct kvp_key *key,
	const struct kvp_loc *loc, struct kvp_view **ret_view)
{
	const struct kvp_session_transport *remote = chan->remote;
	const struct kvp_xport_ops *ops = kvp_chan_xport(chan)->xport->ops;
	struct kvp_slot_entry copy;
	struct kvp_view *view;
	int err;

	if (ops->map == NULL) {
		return -KVP_E_NO_PROVIDER;
	}
	view = calloc(1, sizeof(*view));
	if (view == NULL) {
		return -ENOMEM;
	}
	view->client = chan->cq->client;
	view->ops = ops;
	view->len = loc->len;
	view->word = loc->word;
	err = ops->map(chan->conn, &remote->arena_read, loc->off, loc->len, &view->data);
	err = err < 0 ? err
		      : ops->map(chan->conn, &remote->table_read,
				(uint64_t)loc->slot * sizeof(copy), sizeof(copy), &view->entry);
	if (err < 0) {
		kvp_view_free(view);
		return err == -ENOMEM ? err : -KVP_E_NOKEY;
	}
	memcpy(&copy, view->entry.addr, sizeof(copy)); /* torn ones fail the check */
	if (!kvp_slot_matches(&copy, ns, key, loc)) {
		kvp_view_free(view);
		return -KVP_E_NOKEY;
	}
	*ret_view = view;
	return 0;
}

void
kvp_view_set_lease(struct kvp_view *view, uint64_t lease)
{
	view->lease = lease;
}

const void *
kvp_view_data(const struct kvp_view *view, uint64_t *ret_len)
{
	if (ret_len != NULL) {
		*ret_len = view->len;
	}
	return view->data.addr;
}

int
kvp_view_valid(const struct kvp_view *view)
{
	__sync_synchronize(); /* what was read of the data comes before the word */
	return kvp_entry_word_load(view_entry(view)) == view->word;
}

void
kvp_view_release(struct kvp_view *view)
{
	if (view == NULL) {
		return;
	}
	if (view->lease != 0 && !kvp_client_forked(view->client)) {
		kvp_leases_unview(view->client->leases, view->lease);
	}
	kvp_view_free(view);
}
