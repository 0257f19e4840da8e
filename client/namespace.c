/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace.c - the digest of a namespace descriptor.
 *
 * CANONICAL BYTES The 18 characters "kvpool-namespace-1", then one record for each field whose
 * value is not its default ("" or 0), by ascending tag:
 *
 *     tag      1 byte    from namespace_fields below, never reused
 *     length   2 bytes   of the value, little endian
 *     value              a string's bytes without NUL, or a number, little endian, 4 or 8 bytes
 *                        as wide as its field
 *
 * The digest is the first 16 bytes of their SHA-256. Since defaults leave no record, a field that
 * is added later, and not set, changes no digest. docs/keys.md says the same for users, with
 * vectors in tests/golden/namespace.json.
 */
#include "client/include/kvpool/kvpool.h"
#include "hal/base/assert.h"
#include "hal/base/bytes.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>

#define NAMESPACE_PREFIX        "kvpool-namespace-1"
#define NAMESPACE_STRING_MAX    1023u
#define NAMESPACE_CANONICAL_MAX 8192u /* 7 strings, 11 numbers, their heads: under 7.4 KB */
#define NAMESPACE_DESC_MAX      4096u /* a struct_size over it is a mistake */

/* The size of the descriptor in the first release; no caller has a shorter one. */
#define NAMESPACE_DESC_MIN (offsetof(struct kvp_namespace_desc, epoch) + sizeof(uint64_t))

enum field_kind { FIELD_STRING, FIELD_U32, FIELD_U64 };

struct namespace_field {
	uint8_t tag;
	enum field_kind kind;
	size_t off; /* within the descriptor */
};

#define FIELD(tag, kind, name)                                                                     \
	{                                                                                          \
		(tag), (kind), offsetof(struct kvp_namespace_desc, name)                           \
	}

static const struct namespace_field namespace_fields[] = {
	FIELD(1, FIELD_STRING, model),
	FIELD(2, FIELD_STRING, revision),
	FIELD(3, FIELD_STRING, dtype),
	FIELD(4, FIELD_STRING, layout),
	FIELD(5, FIELD_STRING, adapter),
	FIELD(6, FIELD_STRING, tenant),
	FIELD(7, FIELD_STRING, hash),
	FIELD(8, FIELD_U32, block_tokens),
	FIELD(9, FIELD_U32, layer_first),
	FIELD(10, FIELD_U32, layer_count),
	FIELD(11, FIELD_U32, head_first),
	FIELD(12, FIELD_U32, head_count),
	FIELD(13, FIELD_U32, tp_size),
	FIELD(14, FIELD_U32, tp_rank),
	FIELD(15, FIELD_U32, pp_size),
	FIELD(16, FIELD_U32, pp_rank),
	FIELD(17, FIELD_U32, group),
	FIELD(18, FIELD_U64, epoch),
};

/* The length of the UTF-8 sequence at text, which ends in NUL; 0: it is none. */
static size_t
utf8_sequence_len(const unsigned char *text)
{
	unsigned char low = 0x80; /* of the second byte */
	unsigned char high = 0xbf;
	size_t len;

	if (text[0] < 0x80) {
		return 1;
	}
	if (text[0] < 0xc2 || text[0] > 0xf4) {
		return 0;
	}
	len = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
	if (text[0] == 0xe0) {
		low = 0xa0; /* else it were a longer form of a shorter one */
	} else if (text[0] == 0xed) {
		high = 0x9f; /* surrogates */
	} else if (text[0] == 0xf0) {
		low = 0x90;
	} else if (text[0] == 0xf4) {
		high = 0x8f; /* beyond U+10FFFF */
	}
	if (text[1] < low || text[1] > high) {
		return 0;
	}
	for (size_t i = 2; i < len; i++) {
		if (text[i] < 0x80 || text[i] > 0xbf) {
			return 0;
		}
	}
	return len;
}

static bool
utf8_is_valid(const char *text)
{
	const unsigned char *pos = (const unsigned char *)text;

	while (*pos != 0) {
		size_t len = utf8_sequence_len(pos);

		if (len == 0) {
			return false;
		}
		pos += len;
	}
	return true;
}

static void
write_record(struct kvp_writer *w, uint8_t tag, const void *value, size_t len)
{
	kvp_write_u8(w, tag);
	kvp_write_u16(w, (uint16_t)len);
	kvp_write_bytes(w, value, len);
}

static int
write_string(struct kvp_writer *w, uint8_t tag, const char *text)
{
	size_t len = text != NULL ? strnlen(text, NAMESPACE_STRING_MAX + 1) : 0;

	if (len > NAMESPACE_STRING_MAX || (len > 0 && !utf8_is_valid(text))) {
		return -KVP_E_NAMESPACE;
	}
	if (len > 0) {
		write_record(w, tag, text, len);
	}
	return 0;
}

static int
write_field(struct kvp_writer *w, const struct namespace_field *field, const char *value)
{
	const char *text;
	uint32_t u32;
	uint64_t u64;

	switch (field->kind) {
	case FIELD_STRING:
		memcpy(&text, value, sizeof(text));
		return write_string(w, field->tag, text);
	case FIELD_U32:
		memcpy(&u32, value, sizeof(u32));
		if (u32 != 0) {
			write_record(w, field->tag, &u32, sizeof(u32));
		}
		return 0;
	case FIELD_U64:
		memcpy(&u64, value, sizeof(u64));
		if (u64 != 0) {
			write_record(w, field->tag, &u64, sizeof(u64));
		}
		return 0;
	}
	return -KVP_E_NAMESPACE;
}

/*
 * Copies what we know of the caller's descriptor. A longer one, of a caller built with a later
 * release, will do as long as the fields that we do not know are not set.
 */
static int
desc_copy(const struct kvp_namespace_desc *desc, struct kvp_namespace_desc *ret_copy)
{
	size_t size = desc->struct_size;

	if (size < NAMESPACE_DESC_MIN || size > NAMESPACE_DESC_MAX) {
		return -KVP_E_NAMESPACE;
	}
	for (size_t i = sizeof(*desc); i < size; i++) {
		if (((const char *)desc)[i] != 0) {
			return -KVP_E_NAMESPACE;
		}
	}
	memset(ret_copy, 0, sizeof(*ret_copy));
	memcpy(ret_copy, desc, size < sizeof(*desc) ? size : sizeof(*desc));
	return 0;
}

static int
desc_digest(const struct kvp_namespace_desc *desc, uint8_t ret_digest[16])
{
	uint8_t canonical[NAMESPACE_CANONICAL_MAX];
	struct kvp_writer w = kvp_writer_over(canonical, sizeof(canonical));
	unsigned char sha[EVP_MAX_MD_SIZE];
	int err;

	kvp_write_bytes(&w, NAMESPACE_PREFIX, sizeof(NAMESPACE_PREFIX) - 1);
	for (size_t i = 0; i < sizeof(namespace_fields) / sizeof(namespace_fields[0]); i++) {
		const struct namespace_field *field = &namespace_fields[i];

		err = write_field(&w, field, (const char *)desc + field->off);
		if (err < 0) {
			return err;
		}
	}
	kvp_assert(!w.failed);
	/* Without this libcrypto leaves an exit hook in the caller's process. */
	(void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	if (EVP_Digest(canonical, sizeof(canonical) - w.left, sha, NULL, EVP_sha256(), NULL) != 1) {
		return -ENOMEM;
	}
	memcpy(ret_digest, sha, 16);
	return 0;
}

int
kvp_namespace_make(const struct kvp_namespace_desc *desc, struct kvp_namespace *ret_namespace)
{
	struct kvp_namespace ns = {0};
	struct kvp_namespace_desc copy;
	int err;

	if (desc == NULL || ret_namespace == NULL) {
		return -KVP_E_NAMESPACE;
	}
	err = desc_copy(desc, &copy);
	if (err < 0 || copy.model == NULL || copy.model[0] == 0) {
		return -KVP_E_NAMESPACE;
	}
	ns.epoch = copy.epoch;
	err = desc_digest(&copy, ns.digest);
	copy.epoch = 0;
	err = err < 0 ? err : desc_digest(&copy, ns.family);
	if (err < 0) {
		return err;
	}
	*ret_namespace = ns;
	return 0;
}
