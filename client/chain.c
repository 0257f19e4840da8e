/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - keys of the blocks of a prompt. docs/keys.md has the formula and vectors.
 *
 * HOT a prompt of 128k tokens has 8192 blocks: one digest context serves them all, fed from one
 * buffer that holds everything but the tokens.
 */
#include "client/include/kvpool/kvpool.h"
#include "hal/base/bytes.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#define CHAIN_PREFIX     "kvpool-chain-1"
#define CHAIN_PREFIX_LEN (sizeof(CHAIN_PREFIX) - 1)

/* What is hashed before the tokens. */
struct chain_head {
	uint8_t prefix[CHAIN_PREFIX_LEN];
	uint8_t ns[sizeof(((struct kvp_namespace *)NULL)->digest)];
	uint8_t parent[KVP_CHAIN_KEY_LEN]; /* zero at the start of a prompt */
};
_Static_assert(sizeof(struct chain_head) == CHAIN_PREFIX_LEN + 32, "hashed as it stands");

/* Key of the block of these tokens. The tokens of this machine are little endian (bytes.h). */
static int
chain_key(EVP_MD_CTX *ctx, const struct chain_head *head, const uint32_t *tokens, size_t len,
	uint8_t ret_key[KVP_CHAIN_KEY_LEN])
{
	unsigned char sha[EVP_MAX_MD_SIZE];

	if (EVP_DigestInit_ex2(ctx, NULL, NULL) != 1 ||
		EVP_DigestUpdate(ctx, head, sizeof(*head)) != 1 ||
		EVP_DigestUpdate(ctx, tokens, len) != 1 ||
		EVP_DigestFinal_ex(ctx, sha, NULL) != 1) {
		return -ENOMEM;
	}
	memcpy(ret_key, sha, KVP_CHAIN_KEY_LEN); /* may be head->parent: it is done with */
	return 0;
}

int
kvp_chain_keys(const struct kvp_namespace *ns, const uint8_t *parent, const uint32_t *tokens,
	size_t token_count, uint32_t block_tokens, uint8_t (*ret_keys)[KVP_CHAIN_KEY_LEN])
{
	struct chain_head head;
	EVP_MD_CTX *ctx;
	size_t count;
	int err = 0;

	if (ns == NULL || block_tokens == 0 || token_count / block_tokens > INT_MAX) {
		return -EINVAL;
	}
	count = token_count / block_tokens;
	if (count == 0) {
		return 0;
	}
	if (tokens == NULL || ret_keys == NULL) {
		return -EINVAL;
	}
	memcpy(head.prefix, CHAIN_PREFIX, sizeof(head.prefix));
	memcpy(head.ns, ns->digest, sizeof(head.ns));
	memset(head.parent, 0, sizeof(head.parent));
	if (parent != NULL) {
		memcpy(head.parent, parent, sizeof(head.parent));
	}
	/* Without this libcrypto leaves an exit hook in the caller's process. */
	(void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	ctx = EVP_MD_CTX_new();
	if (ctx == NULL) {
		return -ENOMEM;
	}
	if (EVP_DigestInit_ex2(ctx, EVP_sha256(), NULL) != 1) {
		err = -ENOMEM;
	}
	for (size_t i = 0; i < count && err == 0; i++) {
		err = chain_key(ctx, &head, tokens + i * block_tokens,
			block_tokens * sizeof(*tokens), head.parent);
		memcpy(ret_keys[i], head.parent, sizeof(head.parent));
	}
	EVP_MD_CTX_free(ctx);
	return err < 0 ? err : (int)count;
}
