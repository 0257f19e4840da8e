// SPDX-License-Identifier: Apache-2.0
/*
 * quotas.c - see quotas.h. A digest is 32 hexadecimal digits, as kvpoolctl usage prints it.
 */
#include "pool/node/quotas.h"

#include "hal/base/err.h"
#include "hal/base/opt.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTA_TEXT_MAX 64u

static int
quota_parse(const char *text, size_t len, struct kvp_node_quota *ret_quota)
{
	static const struct kvp_opt_desc size = {
		"store.quotas", KVP_OPT_SIZE, "0", "0..1024TiB", ""};
	struct kvp_opt_value value;
	char copy[QUOTA_TEXT_MAX];
	char why[128];

	if (len >= sizeof(copy) || len < 2 * KVP_NS_LEN + 2 || text[2 * KVP_NS_LEN] != '=') {
		return -KVP_E_CONFIG;
	}
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < KVP_NS_LEN; i++) {
		char digits[3] = {copy[2 * i], copy[2 * i + 1], '\0'};

		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1])) {
			return -KVP_E_CONFIG;
		}
		ret_quota->ns[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	if (kvp_opt_parse(&size, copy + 2 * KVP_NS_LEN + 1, &value, why, sizeof(why)) < 0) {
		return -KVP_E_CONFIG;
	}
	ret_quota->bytes = value.number;
	free(value.text);
	return 0;
}

int
kvp_quotas_parse(const char *text, const struct kvp_log *log,
	struct kvp_node_quota ret_quotas[KVP_QUOTAS_MAX], uint32_t *ret_count)
{
	uint32_t count = 0;

	while (*text != '\0') {
		size_t len = strcspn(text, ",");

		if (count == KVP_QUOTAS_MAX || quota_parse(text, len, &ret_quotas[count]) < 0) {
			kvp_error(log,
				"option store.quotas: \"%.*s\" is not DIGEST=SIZE (32 hexadecimal "
				"digits, as kvpoolctl usage prints them), or one more than %u",
				(int)len, text, KVP_QUOTAS_MAX);
			return -KVP_E_CONFIG;
		}
		count++;
		text += len + (text[len] == ',');
	}
	*ret_count = count;
	return 0;
}
