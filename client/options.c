/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - a client's options: defaults, environment, checks. Every refusal is one line of the
 * log that names the option, its value, and what would be accepted.
 */
#include "client/client.h"
#include "hal/base/addr.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_META            "unix:/run/kvpool/kvpool-meta.sock"
#define OPTIONS_NODE            "unix:/run/kvpool/kvpoold.sock"
#define OPTIONS_META_PORT       7480
#define OPTIONS_NODE_PORT       7490
#define OPTIONS_DEADLINE_MS     1000u
#define OPTIONS_DEADLINE_MS_MAX (24u * 3600u * 1000u)
#define OPTIONS_SPIN_US_MAX     1000000u
#define OPTIONS_LOCATIONS       262144u
#define OPTIONS_LOCATIONS_MAX   (64u << 20)

/* The caller's struct in ours: an older one is shorter, a newer one must not use what we lack. */
static int
options_copy(const struct kvp_client_options *from, const struct kvp_log *log,
	struct kvp_client_options *ret)
{
	const uint8_t *bytes = (const uint8_t *)from;

	memset(ret, 0, sizeof(*ret));
	if (from == NULL) {
		return 0;
	}
	if (from->struct_size < offsetof(struct kvp_client_options, deadline_ms)) {
		kvp_error(log,
			"option struct_size is %zu: set it to sizeof(struct "
			"kvp_client_options), %zu",
			from->struct_size, sizeof(*from));
		return -KVP_E_CONFIG;
	}
	for (size_t i = sizeof(*from); i < from->struct_size; i++) {
		if (bytes[i] != 0) {
			kvp_error(log,
				"option struct_size is %zu: this library knows the first "
				"%zu bytes only, the rest must be zero",
				from->struct_size, sizeof(*from));
			return -KVP_E_CONFIG;
		}
	}
	memcpy(ret, from, from->struct_size < sizeof(*ret) ? from->struct_size : sizeof(*ret));
	return 0;
}

static const char *
option_text(const char *given, const char *variable, const char *dflt)
{
	const char *text = given != NULL ? given : getenv(variable);

	return text != NULL && text[0] != '\0' ? text : dflt;
}

/* One address in its full form. */
static int
option_addr(const struct kvp_log *log, const char *name, const char *text, int port,
	char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct kvp_addr addr;

	if (kvp_addr_parse(text, port, &addr) < 0 || (!addr.is_unix && addr.port == 0)) {
		kvp_error(log,
			"option %s is '%.200s': accepted are host:port, [ipv6]:port and "
			"unix:/path",
			name, text);
		return -KVP_E_CONFIG;
	}
	kvp_addr_format(&addr, ret_addr, KVP_ADDR_LEN_MAX);
	return 0;
}

static int
option_metas(const struct kvp_log *log, const char *text, struct kvp_settings *settings)
{
	while (*text != '\0') {
		size_t len = strcspn(text, ",");
		char one[KVP_ADDR_LEN_MAX];
		int err;

		if (settings->meta_count == KVP_METAS_MAX) {
			kvp_error(log, "option meta names more than %d servers", KVP_METAS_MAX);
			return -KVP_E_CONFIG;
		}
		snprintf(one, sizeof(one), "%.*s", len < sizeof(one) ? (int)len : 0, text);
		err = option_addr(
			log, "meta", one, OPTIONS_META_PORT, settings->metas[settings->meta_count]);
		if (err < 0) {
			return err;
		}
		settings->meta_count++;
		text += len + (text[len] == ',');
	}
	if (settings->meta_count == 0) {
		kvp_error(log, "option meta is empty: give at least one address");
		return -KVP_E_CONFIG;
	}
	return 0;
}

static int
option_number(const struct kvp_log *log, const char *name, uint32_t value, uint32_t max)
{
	if (value > max) {
		kvp_error(log, "option %s is %u: accepted is 0 to %u", name, value, max);
		return -KVP_E_CONFIG;
	}
	return 0;
}

static int
options_check_numbers(const struct kvp_client_options *options, const struct kvp_log *log)
{
	if (option_number(log, "deadline_ms", options->deadline_ms, OPTIONS_DEADLINE_MS_MAX) < 0 ||
		option_number(log, "spin_us", options->spin_us, OPTIONS_SPIN_US_MAX) < 0 ||
		option_number(log, "cache_locations", options->cache_locations,
			OPTIONS_LOCATIONS_MAX) < 0 ||
		option_number(log, "verify", options->verify, KVP_VERIFY_ALWAYS) < 0 ||
		option_number(log, "checksum", options->checksum, KVP_CHECKSUM_NONE) < 0) {
		return -KVP_E_CONFIG;
	}
	return 0;
}

int
kvp_settings_make(const struct kvp_client_options *options, const struct kvp_log *log,
	struct kvp_settings *ret_settings)
{
	struct kvp_client_options given;
	struct kvp_settings settings = {0};
	const char *transport;
	const char *node;
	int err = options_copy(options, log, &given);

	if (err == 0) {
		err = options_check_numbers(&given, log);
	}
	if (err == 0) {
		err = option_metas(
			log, option_text(given.meta, "KVP_META", OPTIONS_META), &settings);
	}
	if (err < 0) {
		return err;
	}
	node = option_text(given.node, "KVP_NODE", OPTIONS_NODE);
	if (strcmp(node, "none") != 0) {
		err = option_addr(log, "node", node, OPTIONS_NODE_PORT, settings.node);
		if (err < 0) {
			return err;
		}
	}
	transport = option_text(given.transport, "KVP_TRANSPORT", "auto");
	if (strcmp(transport, "auto") != 0) { /* open.c knows which there are */
		snprintf(settings.transport, sizeof(settings.transport), "%s", transport);
	}
	snprintf(settings.name, sizeof(settings.name), "%s",
		given.name != NULL ? given.name : program_invocation_short_name);
	settings.deadline_ms = given.deadline_ms != 0 ? given.deadline_ms : OPTIONS_DEADLINE_MS;
	settings.spin_us = given.spin_us;
	settings.cache_locations =
		given.cache_locations != 0 ? given.cache_locations : OPTIONS_LOCATIONS;
	settings.verify = given.verify;
	settings.checksum = given.checksum;
	*ret_settings = settings;
	return 0;
}
