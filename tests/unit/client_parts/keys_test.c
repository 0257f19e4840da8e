/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys_test.c - namespaces and chain keys against the golden vectors of tests/golden, which a
 * script that shares no code with the library made; and what is refused.
 */
#include "client/include/kvpool/kvpool.h"
#include "hal/os/env.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *
golden_load(const char *name)
{
	char path[PATH_MAX];
	json_error_t error;
	json_t *root;

	snprintf(path, sizeof(path), "%s/%s", KVP_GOLDEN_DIR, name);
	root = json_load_file(path, 0, &error);
	if (root == NULL) {
		fail_msg("%s:%d: %s", path, error.line, error.text);
	}
	return root;
}

/* Text of 16 bytes in hexadecimal digits. */
static const char *
hex_of(const uint8_t bytes[16])
{
	static char text[33];

	for (int i = 0; i < 16; i++) {
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	}
	return text;
}

static void
hex_parse(const char *text, uint8_t ret_bytes[16])
{
	assert_int_equal(strlen(text), 32);
	for (int i = 0; i < 16; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], 0};

		ret_bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
}

static uint32_t
number_of(const json_t *desc, const char *name)
{
	return (uint32_t)json_integer_value(json_object_get(desc, name));
}

static struct kvp_namespace_desc
desc_of(const json_t *desc)
{
	const char *epoch = json_string_value(json_object_get(desc, "epoch"));

	return (struct kvp_namespace_desc){
		.struct_size = sizeof(struct kvp_namespace_desc),
		.model = json_string_value(json_object_get(desc, "model")),
		.revision = json_string_value(json_object_get(desc, "revision")),
		.dtype = json_string_value(json_object_get(desc, "dtype")),
		.layout = json_string_value(json_object_get(desc, "layout")),
		.adapter = json_string_value(json_object_get(desc, "adapter")),
		.tenant = json_string_value(json_object_get(desc, "tenant")),
		.hash = json_string_value(json_object_get(desc, "hash")),
		.block_tokens = number_of(desc, "block_tokens"),
		.layer_first = number_of(desc, "layer_first"),
		.layer_count = number_of(desc, "layer_count"),
		.head_first = number_of(desc, "head_first"),
		.head_count = number_of(desc, "head_count"),
		.tp_size = number_of(desc, "tp_size"),
		.tp_rank = number_of(desc, "tp_rank"),
		.pp_size = number_of(desc, "pp_size"),
		.pp_rank = number_of(desc, "pp_rank"),
		.group = number_of(desc, "group"),
		.epoch = epoch != NULL ? strtoull(epoch, NULL, 10) : 0,
	};
}

static void
test_namespace_golden(void **state)
{
	json_t *root = golden_load("namespace.json");
	json_t *vector;
	size_t i;

	(void)state;
	assert_true(json_array_size(json_object_get(root, "vectors")) >= 10);
	json_array_foreach(json_object_get(root, "vectors"), i, vector)
	{
		struct kvp_namespace_desc desc = desc_of(json_object_get(vector, "desc"));
		struct kvp_namespace ns;

		assert_int_equal(kvp_namespace_make(&desc, &ns), 0);
		assert_string_equal(
			hex_of(ns.digest), json_string_value(json_object_get(vector, "digest")));
		assert_string_equal(
			hex_of(ns.family), json_string_value(json_object_get(vector, "family")));
		assert_int_equal(ns.epoch, desc.epoch);
	}
	json_decref(root);
}

static void
chain_vector_check(const json_t *vector)
{
	const json_t *tokens_in = json_object_get(vector, "tokens");
	const json_t *keys_in = json_object_get(vector, "keys");
	const char *parent_in = json_string_value(json_object_get(vector, "parent"));
	size_t token_count = json_array_size(tokens_in);
	uint32_t *tokens = calloc(token_count, sizeof(*tokens));
	uint8_t(*keys)[KVP_CHAIN_KEY_LEN] = calloc(token_count, sizeof(*keys));
	struct kvp_namespace ns = {.epoch = 0};
	uint8_t parent[KVP_CHAIN_KEY_LEN];
	int count;

	hex_parse(json_string_value(json_object_get(vector, "namespace")), ns.digest);
	if (parent_in != NULL) {
		hex_parse(parent_in, parent);
	}
	for (size_t i = 0; i < token_count; i++) {
		tokens[i] = (uint32_t)json_integer_value(json_array_get(tokens_in, i));
	}
	count = kvp_chain_keys(&ns, parent_in != NULL ? parent : NULL, tokens, token_count,
		number_of(vector, "block_tokens"), keys);
	assert_int_equal(count, json_array_size(keys_in));
	for (int i = 0; i < count; i++) {
		assert_string_equal(
			hex_of(keys[i]), json_string_value(json_array_get(keys_in, (size_t)i)));
	}
	free(keys);
	free(tokens);
}

static void
test_chain_golden(void **state)
{
	json_t *root = golden_load("chain.json");
	json_t *vector;
	size_t i;

	(void)state;
	assert_true(json_array_size(json_object_get(root, "vectors")) >= 5);
	json_array_foreach(json_object_get(root, "vectors"), i, vector)
	{
		chain_vector_check(vector);
	}
	json_decref(root);
}

static int
make_model(const char *model)
{
	struct kvp_namespace_desc desc = {.struct_size = sizeof(desc), .model = model};
	struct kvp_namespace ns;

	return kvp_namespace_make(&desc, &ns);
}

static void
test_namespace_refused(void **state)
{
	static const char *const bad_utf8[] = {"\x80", "a\xff", "\xc3", "\xc0\xaf", "\xe0\x80\xaf",
		"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x8f\xbf\xbf", "\xe6\xa8", "\xf0\x9f\xa6",
		"\xf5\x80\x80\x80", "\xc3("};
	char text[1025];

	(void)state;
	assert_int_equal(make_model(NULL), -KVP_E_NAMESPACE);
	assert_int_equal(make_model(""), -KVP_E_NAMESPACE);
	assert_int_equal(kvp_namespace_make(NULL, NULL), -KVP_E_NAMESPACE);
	memset(text, 'm', sizeof(text));
	text[1024] = 0;
	assert_int_equal(make_model(text), -KVP_E_NAMESPACE);
	text[1023] = 0;
	assert_int_equal(make_model(text), 0);
	for (size_t i = 0; i < sizeof(bad_utf8) / sizeof(bad_utf8[0]); i++) {
		assert_int_equal(make_model(bad_utf8[i]), -KVP_E_NAMESPACE);
	}
	assert_int_equal(make_model("\xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf \xc2\x80"), 0);
}

static void
test_namespace_struct_size(void **state)
{
	struct {
		struct kvp_namespace_desc desc;
		uint64_t later[2]; /* what a later release might add */
	} longer = {.desc = {.struct_size = sizeof(longer), .model = "m"}};
	struct kvp_namespace_desc desc = {.struct_size = sizeof(desc), .model = "m"};
	struct kvp_namespace plain;
	struct kvp_namespace ns;

	(void)state;
	assert_int_equal(kvp_namespace_make(&desc, &plain), 0);
	assert_int_equal(kvp_namespace_make(&longer.desc, &ns), 0);
	assert_memory_equal(ns.digest, plain.digest, sizeof(ns.digest));
	longer.later[1] = 1;
	assert_int_equal(kvp_namespace_make(&longer.desc, &ns), -KVP_E_NAMESPACE);
	desc.struct_size = sizeof(desc) - 1;
	assert_int_equal(kvp_namespace_make(&desc, &ns), -KVP_E_NAMESPACE);
	desc.struct_size = 0;
	assert_int_equal(kvp_namespace_make(&desc, &ns), -KVP_E_NAMESPACE);
	desc.struct_size = SIZE_MAX;
	assert_int_equal(kvp_namespace_make(&desc, &ns), -KVP_E_NAMESPACE);
}

static void
test_chain_refused(void **state)
{
	struct kvp_namespace ns = {.epoch = 0};
	uint32_t tokens[4] = {1, 2, 3, 4};
	uint8_t keys[4][KVP_CHAIN_KEY_LEN];

	(void)state;
	assert_int_equal(kvp_chain_keys(NULL, NULL, tokens, 4, 4, keys), -EINVAL);
	assert_int_equal(kvp_chain_keys(&ns, NULL, NULL, 4, 4, keys), -EINVAL);
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, 4, 4, NULL), -EINVAL);
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, 4, 0, keys), -EINVAL);
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, SIZE_MAX, 1, keys), -EINVAL);
	assert_int_equal(kvp_chain_keys(&ns, NULL, NULL, 0, 4, NULL), 0);
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, 3, 4, keys), 0);
}

/* A key may stand where its own parent stood, and a prompt may come in parts. */
static void
test_chain_in_parts(void **state)
{
	enum { TOKENS = 100, BLOCK = 10 };
	struct kvp_namespace ns = {.digest = {5}};
	uint8_t whole[TOKENS / BLOCK][KVP_CHAIN_KEY_LEN];
	uint8_t part[1][KVP_CHAIN_KEY_LEN];
	uint32_t tokens[TOKENS];

	(void)state;
	for (uint32_t i = 0; i < TOKENS; i++) {
		tokens[i] = i * i;
	}
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, TOKENS, BLOCK, whole), 10);
	for (uint32_t i = 0; i < TOKENS / BLOCK; i++) {
		assert_int_equal(kvp_chain_keys(&ns, i > 0 ? part[0] : NULL, tokens + i * BLOCK,
					 BLOCK, BLOCK, part),
			1);
		assert_memory_equal(part[0], whole[i], KVP_CHAIN_KEY_LEN);
	}
}

static void
test_chain_speed(void **state)
{
	enum { TOKENS = 100000, BLOCK = 16 };
	struct kvp_namespace ns = {.digest = {6}};
	uint32_t *tokens = calloc(TOKENS, sizeof(*tokens));
	uint8_t(*keys)[KVP_CHAIN_KEY_LEN] = calloc(TOKENS / BLOCK, sizeof(*keys));
	uint64_t start = kvp_now_ns(kvp_env_real());

	(void)state;
	assert_int_equal(kvp_chain_keys(&ns, NULL, tokens, TOKENS, BLOCK, keys), TOKENS / BLOCK);
	print_message("%d tokens, %d a block: %.2f ms\n", TOKENS, BLOCK,
		(double)(kvp_now_ns(kvp_env_real()) - start) / 1e6);
	free(keys);
	free(tokens);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_namespace_golden),
		cmocka_unit_test(test_chain_golden),
		cmocka_unit_test(test_namespace_refused),
		cmocka_unit_test(test_namespace_struct_size),
		cmocka_unit_test(test_chain_refused),
		cmocka_unit_test(test_chain_in_parts),
		cmocka_unit_test(test_chain_speed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
