/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.c - see head.h. One process writes; nobody reads meanwhile.
 */
#include "pool/node/head.h"

#include "hal/base/err.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define HEAD_COPY_OFF   2048u
#define HEAD_TOKENS_OFF 4096u
#define HEAD_NOTES_OFF  (HEAD_TOKENS_OFF + (size_t)KVP_HEAD_OWNERS_MAX * KVP_TOKEN_LEN)

_Static_assert(HEAD_NOTES_OFF == 36864, "head.h says where the notes are");

static const uint8_t head_magic[8] = "kvphead";

size_t
kvp_head_len(uint32_t slots)
{
	return HEAD_NOTES_OFF + (size_t)slots * sizeof(struct kvp_store_note);
}

struct kvp_store_note *
kvp_head_notes(void *base)
{
	return (struct kvp_store_note *)((uint8_t *)base + HEAD_NOTES_OFF);
}

uint8_t *
kvp_head_tokens(void *base)
{
	return (uint8_t *)base + HEAD_TOKENS_OFF;
}

static uint64_t
head_check(const struct kvp_head_info *info)
{
	return XXH3_64bits(info, offsetof(struct kvp_head_info, check));
}

/* The index of the copy that counts, or -EINVAL, -KVP_E_VERSION. */
static int
head_find(const void *base, struct kvp_head_info *ret_info)
{
	int none = -EINVAL;
	int found = -1;

	for (int i = 0; i < 2; i++) {
		struct kvp_head_info info;

		memcpy(&info, (const uint8_t *)base + (size_t)i * HEAD_COPY_OFF, sizeof(info));
		if (memcmp(info.magic, head_magic, sizeof(head_magic)) != 0) {
			continue;
		}
		if (info.version != KVP_HEAD_VERSION) {
			none = -KVP_E_VERSION;
			ret_info->version = found < 0 ? info.version : ret_info->version;
		} else if (info.check == head_check(&info) &&
			   (found < 0 || info.serial > ret_info->serial)) {
			*ret_info = info;
			found = i;
		}
	}
	return found < 0 ? none : found;
}

int
kvp_head_read(const void *base, struct kvp_head_info *ret_info)
{
	int ret = head_find(base, ret_info);

	return ret < 0 ? ret : 0;
}

void
kvp_head_write(void *base, const struct kvp_head_info *info)
{
	struct kvp_head_info last = {0};
	struct kvp_head_info next = *info;
	int idx = head_find(base, &last);
	uint8_t *to = (uint8_t *)base + (idx == 0 ? HEAD_COPY_OFF : 0);

	memcpy(next.magic, head_magic, sizeof(head_magic));
	next.version = KVP_HEAD_VERSION;
	next.serial = last.serial + 1;
	next.check = head_check(&next);
	memcpy(to, &next, sizeof(next));
}
