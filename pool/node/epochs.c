// SPDX-License-Identifier: Apache-2.0
/*
 * epochs.c - the highest epoch of each family of namespaces, kept on disk so that a restarted node
 * still refuses writers of an older one.
 *
 * The store has the table; the file is a copy of it, replaced as a whole: a head, the entries, and
 * a checksum of all before. A file that cannot be read or makes no sense costs what is in it: then
 * blocks of an old epoch may be stored, where no reader of the new one looks for them.
 */
#include "hal/os/file.h"
#include "pool/node/node_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#define EPOCHS_MAGIC     0x7368636f70657670ull /* "pvepochs" */
#define EPOCHS_VERSION   1u
#define EPOCHS_COUNT_MAX 65536u
#define EPOCHS_PAUSE_NS  (100 * KVP_NS_PER_MS) /* between writes, whatever clients bring */
#define EPOCHS_RETRY_NS  KVP_NS_PER_S

struct epochs_head {
	uint64_t magic;
	uint32_t version;
	uint32_t count;
};
_Static_assert(sizeof(struct epochs_head) == 16, "disk format");

struct epochs_entry {
	uint8_t family[KVP_NS_LEN];
	uint64_t epoch;
};
_Static_assert(sizeof(struct epochs_entry) == 24, "disk format");

#define EPOCHS_LEN_MAX                                                                             \
	(sizeof(struct epochs_head) + EPOCHS_COUNT_MAX * sizeof(struct epochs_entry) + 8)

/* -KVP_E_PROTO: no file of ours. */
static int
epochs_parse(struct kvp_node *node, const uint8_t *buf, size_t len)
{
	struct epochs_head head;
	uint64_t check;

	if (len < sizeof(head) + sizeof(check)) {
		return -KVP_E_PROTO;
	}
	memcpy(&head, buf, sizeof(head));
	memcpy(&check, buf + len - sizeof(check), sizeof(check));
	if (head.magic != EPOCHS_MAGIC || head.version != EPOCHS_VERSION ||
		head.count > EPOCHS_COUNT_MAX ||
		len != sizeof(head) + head.count * sizeof(struct epochs_entry) + sizeof(check) ||
		check != XXH3_64bits(buf, len - sizeof(check))) {
		return -KVP_E_PROTO;
	}
	for (uint32_t i = 0; i < head.count; i++) {
		struct epochs_entry entry;

		memcpy(&entry, buf + sizeof(head) + i * sizeof(entry), sizeof(entry));
		(void)kvp_store_epoch_raise(node->store, entry.family, entry.epoch);
	}
	return 0;
}

int
kvp_epochs_open(struct kvp_node *node)
{
	uint8_t *buf;
	size_t len = 0;
	int err;

	if (node->cfg.epochs_path == NULL) {
		return 0;
	}
	node->epochs_path = strdup(node->cfg.epochs_path);
	buf = malloc(EPOCHS_LEN_MAX);
	if (node->epochs_path == NULL || buf == NULL) {
		free(buf);
		return -ENOMEM;
	}
	err = kvp_file_read(node->epochs_path, buf, EPOCHS_LEN_MAX, &len);
	err = err < 0 ? err : epochs_parse(node, buf, len);
	if (err < 0 && err != -ENOENT) {
		kvp_warn(node->cfg.log,
			"epochs file %s cannot be used (%s): this node has forgotten which "
			"epochs are over until it is told anew",
			node->epochs_path, kvp_err_str(err));
	}
	free(buf);
	return 0;
}

void
kvp_epochs_close(struct kvp_node *node)
{
	if (node->store != NULL) {
		(void)kvp_epochs_flush(node); /* logged */
	}
	free(node->epochs_path);
	node->epochs_path = NULL;
}

int
kvp_epochs_raise(struct kvp_node *node, const uint8_t family[KVP_NS_LEN], uint64_t epoch)
{
	int err = kvp_store_epoch_raise(node->store, family, epoch);

	if (err < 0) {
		return err;
	}
	if (err == 1) {
		node->epochs_dirty = true;
	}
	return 0;
}

int
kvp_epochs_flush(struct kvp_node *node)
{
	struct epochs_head head = {.magic = EPOCHS_MAGIC, .version = EPOCHS_VERSION};
	struct epochs_entry entry;
	uint32_t cursor = 0;
	size_t len = sizeof(head);
	uint64_t check;
	uint8_t *buf;
	int err;

	if (!node->epochs_dirty || node->epochs_path == NULL) {
		return 0;
	}
	buf = malloc(EPOCHS_LEN_MAX);
	if (buf == NULL) {
		return -ENOMEM;
	}
	while (head.count < EPOCHS_COUNT_MAX &&
		kvp_store_epoch_next(node->store, &cursor, entry.family, &entry.epoch)) {
		memcpy(buf + len, &entry, sizeof(entry));
		len += sizeof(entry);
		head.count++;
	}
	memcpy(buf, &head, sizeof(head));
	check = XXH3_64bits(buf, len);
	memcpy(buf + len, &check, sizeof(check));
	err = kvp_file_replace(node->epochs_path, buf, len + sizeof(check), 0640);
	free(buf);
	if (err < 0) {
		kvp_error(node->cfg.log,
			"epochs file %s cannot be written: %s; after a restart this node would "
			"take blocks of an epoch that is over",
			node->epochs_path, kvp_err_str(err));
		return err;
	}
	node->epochs_dirty = false;
	return 0;
}

void
kvp_epochs_tick(struct kvp_node *node, uint64_t now_ns)
{
	if (!node->epochs_dirty || now_ns < node->epochs_due_ns) {
		return;
	}
	node->epochs_due_ns =
		now_ns + (kvp_epochs_flush(node) < 0 ? EPOCHS_RETRY_NS : EPOCHS_PAUSE_NS);
}
