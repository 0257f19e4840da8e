/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocking.c - the calls that wait: one queue of the client's own, one caller at a time.
 */
#include "client/op.h"
#include "hal/base/err.h"
#include "hal/base/limits.h"

#include <errno.h>
#include <stdlib.h>

#define RUN_DEPTH   1u
#define RUN_WAIT_MS 1000u /* each round; the batch's deadline ends it */

/* Under run_lock. */
static int
run_batch(struct kvp_client *client, const struct kvp_batch *batch, struct kvp_completion *ret_done)
{
	int count = 0;
	int err = 0;

	if (client->run_cq == NULL) {
		err = kvp_cq_open(client, RUN_DEPTH, &client->run_cq);
	}
	if (err == 0) {
		err = kvp_submit(client->run_cq, batch);
	}
	while (err == 0 && count == 0) {
		count = kvp_cq_wait(client->run_cq, ret_done, 1, RUN_WAIT_MS);
		err = count < 0 ? count : 0;
	}
	return err;
}

int
kvp_run(struct kvp_client *client, const struct kvp_batch *batch, struct kvp_completion *ret_done)
{
	struct kvp_completion done;
	int err;

	if (kvp_client_forked(client)) {
		return -EPERM;
	}
	if (client->thread == NULL) {
		return -EINVAL; /* nobody would run its loop meanwhile */
	}
	pthread_mutex_lock(&client->run_lock);
	err = run_batch(client, batch, &done);
	pthread_mutex_unlock(&client->run_lock);
	if (err < 0) {
		return err;
	}
	if (ret_done != NULL) {
		*ret_done = done;
	}
	return done.status;
}

static int
run_one(struct kvp_client *client, enum kvp_opcode op, const struct kvp_namespace *ns,
	struct kvp_item *item, size_t key_len)
{
	const struct kvp_batch batch = {.op = op, .item_count = 1, .items = item, .ns = ns};
	int err;

	if (key_len == 0 || key_len > KVP_KEY_LEN_MAX) {
		return -KVP_E_KEY_LEN;
	}
	item->key_len = (uint8_t)key_len;
	err = kvp_run(client, &batch, NULL);
	return err < 0 ? err : item->status;
}

int
kvp_get(struct kvp_client *client, const struct kvp_namespace *ns, const void *key, size_t key_len,
	void *buf, size_t len)
{
	const struct iovec seg = {.iov_base = buf, .iov_len = len};
	struct kvp_item item = {.key = key, .segs = &seg, .seg_count = 1};

	return run_one(client, KVP_GET, ns, &item, key_len);
}

int
kvp_put(struct kvp_client *client, const struct kvp_namespace *ns, const void *key, size_t key_len,
	const void *buf, size_t len)
{
	const struct iovec seg = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	struct kvp_item item = {.key = key, .segs = &seg, .seg_count = 1};

	return run_one(client, KVP_PUT, ns, &item, key_len);
}

int
kvp_delete(
	struct kvp_client *client, const struct kvp_namespace *ns, const void *key, size_t key_len)
{
	struct kvp_item item = {.key = key};

	return run_one(client, KVP_DELETE, ns, &item, key_len);
}

int
kvp_clear(struct kvp_client *client, const struct kvp_namespace *ns, uint32_t timeout_ms)
{
	struct kvp_item item = {.key = "", .key_len = 1};
	const struct kvp_batch batch = {.op = (enum kvp_opcode)KVP_OP_CLEAR,
		.item_count = 1,
		.items = &item,
		.ns = ns,
		.deadline_ms = timeout_ms};
	int err;

	if (ns == NULL || ns->epoch == 0) {
		return -KVP_E_NAMESPACE;
	}
	err = kvp_run(client, &batch, NULL);
	return err < 0 ? err : item.status;
}

int
kvp_match(struct kvp_client *client, const struct kvp_namespace *ns, const void *keys,
	size_t key_len, uint32_t key_count)
{
	struct kvp_batch batch = {.op = KVP_MATCH, .item_count = key_count, .ns = ns};
	struct kvp_completion done;
	int err;

	if (key_len == 0 || key_len > KVP_KEY_LEN_MAX) {
		return -KVP_E_KEY_LEN;
	}
	if (key_count == 0) {
		return 0;
	}
	if (keys == NULL || key_count > KVP_BATCH_KEYS_MAX) {
		return -EINVAL;
	}
	batch.items = calloc(key_count, sizeof(*batch.items));
	if (batch.items == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < key_count; i++) {
		batch.items[i].key = (const uint8_t *)keys + i * key_len;
		batch.items[i].key_len = (uint8_t)key_len;
	}
	err = kvp_run(client, &batch, &done);
	if (err == 0 && done.prefix == 0 && batch.items[0].status != -KVP_E_NOKEY) {
		err = batch.items[0].status;
	}
	free(batch.items);
	return err < 0 ? err : (int)done.prefix;
}
