/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_value.c - the grammar of one value: the same for file, environment, command line and code.
 *
 * Nothing is guessed: "4K" is neither 4000 nor 4096, "010" neither 8 nor 10. No function here
 * depends on the locale, which belongs to the host program.
 */
#include "hal/base/assert.h"
#include "hal/base/err.h"
#include "hal/base/opt_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_REAL_DIGITS_MAX 15 /* as many as a double holds exactly */
#define VALUE_CANONICAL_LEN   32

struct value_unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: the canonical text takes the first that divides. */
static const struct value_unit value_size_units[] = {{"TiB", 1ull << 40}, {"GiB", 1ull << 30},
	{"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"", 1}};
static const struct value_unit value_time_units[] = {{"min", 60000}, {"s", 1000}, {"ms", 1}};
#define VALUE_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool
value_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits up to *ret_end. -EINVAL, -ERANGE. */
static int
value_digits(const char *text, uint64_t *ret_number, const char **ret_end)
{
	uint64_t number = 0;

	if (!value_is_digit(text[0]) || (text[0] == '0' && value_is_digit(text[1]))) {
		return -EINVAL;
	}
	for (; value_is_digit(*text); text++) {
		if (__builtin_mul_overflow(number, (uint64_t)10, &number) ||
			__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number)) {
			return -ERANGE;
		}
	}
	*ret_number = number;
	*ret_end = text;
	return 0;
}

static int
value_scaled(const char *text, const struct value_unit *units, size_t count, uint64_t *ret_number)
{
	uint64_t number;
	const char *end;
	int ret = value_digits(text, &number, &end);

	if (ret < 0) {
		return ret;
	}
	if (number == 0 && *end == '\0') {
		*ret_number = 0; /* the same in every unit */
		return 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (strcmp(end, units[i].name) == 0) {
			return __builtin_mul_overflow(number, units[i].factor, ret_number) ? -ERANGE
											   : 0;
		}
	}
	return -EINVAL;
}

/* -?digits[.digits]. Few enough digits that one division gives the nearest double. */
static int
value_real(const char *text, double *ret_real)
{
	bool negative = text[0] == '-';
	double divisor = 1;
	uint64_t number;
	const char *end;
	int digits;
	int ret;

	text += negative;
	ret = value_digits(text, &number, &end);
	if (ret < 0) {
		return ret;
	}
	digits = (int)(end - text);
	if (*end == '.') {
		if (!value_is_digit(end[1])) {
			return -EINVAL;
		}
		for (end++; value_is_digit(*end) && digits <= VALUE_REAL_DIGITS_MAX; end++) {
			number = number * 10 + (uint64_t)(*end - '0');
			divisor *= 10;
			digits++;
		}
	}
	if (digits > VALUE_REAL_DIGITS_MAX) {
		return -ERANGE;
	}
	if (*end != '\0') {
		return -EINVAL;
	}
	*ret_real = (negative ? -1.0 : 1.0) * ((double)number / divisor);
	return 0;
}

static int
value_number(enum kvp_opt_type type, const char *text, struct kvp_opt_value *value)
{
	const char *end;
	int ret;

	switch (type) {
	case KVP_OPT_UINT:
		ret = value_digits(text, &value->number, &end);
		return ret == 0 && *end != '\0' ? -EINVAL : ret;
	case KVP_OPT_SIZE:
		return value_scaled(
			text, value_size_units, VALUE_COUNT(value_size_units), &value->number);
	case KVP_OPT_TIME:
		return value_scaled(
			text, value_time_units, VALUE_COUNT(value_time_units), &value->number);
	case KVP_OPT_REAL:
		return value_real(text, &value->real);
	case KVP_OPT_BOOL:
		value->number = strcmp(text, "true") == 0;
		return value->number == 1 || strcmp(text, "false") == 0 ? 0 : -EINVAL;
	case KVP_OPT_STRING:
		value->number = strlen(text);
		return 0;
	case KVP_OPT_CHOICE:
		break;
	}
	return 0;
}

static bool
value_is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *pos = choices; len > 0;) {
		size_t choice_len = strcspn(pos, "|");

		if (choice_len == len && memcmp(pos, text, len) == 0) {
			return true;
		}
		if (pos[choice_len] == '\0') {
			return false;
		}
		pos += choice_len + 1;
	}
	return false;
}

/* One end of "from..to"; an empty end is open. The table is ours, so it must be readable. */
static bool
value_bound(enum kvp_opt_type type, const char *from, size_t len, struct kvp_opt_value *ret_bound)
{
	char text[VALUE_CANONICAL_LEN];
	/* The range of a text is that of its length. */
	enum kvp_opt_type bound_type = type == KVP_OPT_STRING ? KVP_OPT_UINT : type;

	kvp_assert(len < sizeof(text));
	if (len == 0) {
		return false;
	}
	memcpy(text, from, len);
	text[len] = '\0';
	kvp_assert(value_number(bound_type, text, ret_bound) == 0);
	return true;
}

static bool
value_in_range(const struct kvp_opt_desc *desc, const struct kvp_opt_value *value)
{
	struct kvp_opt_value bound = {0};
	const char *dots;

	if (desc->range == NULL || desc->type == KVP_OPT_BOOL) {
		return true;
	}
	dots = strstr(desc->range, "..");
	kvp_assert(dots != NULL);
	if (value_bound(desc->type, desc->range, (size_t)(dots - desc->range), &bound) &&
		(value->number < bound.number || value->real < bound.real)) {
		return false;
	}
	return !value_bound(desc->type, dots + 2, strlen(dots + 2), &bound) ||
	       (value->number <= bound.number && value->real <= bound.real);
}

static void
value_canonical_scaled(uint64_t number, const struct value_unit *unit, char *buf, size_t cap)
{
	while (unit->factor > 1 && (number == 0 || number % unit->factor != 0)) {
		unit++;
	}
	(void)snprintf(buf, cap, "%" PRIu64 "%s", number / unit->factor, unit->name);
}

static char *
value_canonical(enum kvp_opt_type type, const char *text, uint64_t number)
{
	char buf[VALUE_CANONICAL_LEN];

	if (type == KVP_OPT_SIZE) {
		value_canonical_scaled(number, value_size_units, buf, sizeof(buf));
		return strdup(buf);
	}
	if (type == KVP_OPT_TIME) {
		value_canonical_scaled(number, value_time_units, buf, sizeof(buf));
		return strdup(buf);
	}
	return strdup(text);
}

/* What is wrong with a text that did not parse; hint_cap bytes of buf for the hint. */
static const char *
value_problem(const struct kvp_opt_desc *desc, const char *text, int ret, char *buf, size_t cap)
{
	size_t digits = strspn(text, "0123456789");

	if (ret == -ERANGE) {
		return desc->type == KVP_OPT_REAL ? "more than 15 digits" : "does not fit 64 bits";
	}
	switch (desc->type) {
	case KVP_OPT_UINT:
		return "not a whole number";
	case KVP_OPT_SIZE:
		if (digits > 0 && text[digits] != '\0' &&
			strchr("kKmMgGtT", text[digits]) != NULL) {
			(void)snprintf(buf, cap, "not a size, say %ciB for powers of 1024",
				text[digits] & ~0x20);
			return buf;
		}
		return "not a size";
	case KVP_OPT_TIME:
		return digits > 0 && text[digits] == '\0' ? "a time without its unit"
							  : "not a time";
	case KVP_OPT_REAL:
		return "not a decimal number";
	case KVP_OPT_BOOL:
		return "neither true nor false";
	case KVP_OPT_STRING:
	case KVP_OPT_CHOICE:
		break;
	}
	return "not accepted";
}

static int
value_fail(const struct kvp_opt_desc *desc, const char *text, const char *problem, char *error,
	size_t error_cap)
{
	char quoted[KVP_OPT_QUOTED_LEN];
	char accepted[192];

	kvp_opt_quote(text, quoted);
	kvp_opt_accepted(desc, accepted, sizeof(accepted));
	(void)snprintf(error, error_cap, "%s: %s is %s; accepted: %s", desc->path, quoted, problem,
		accepted);
	return -KVP_E_CONFIG;
}

/* Of well-formed UTF-8 (RFC 3629): the bytes of the character at text, 0 if it is none. */
static size_t
value_utf8_char(const unsigned char *text, size_t len)
{
	unsigned char lead = text[0];
	unsigned char low = 0x80;
	unsigned char high = 0xbf;
	size_t need;

	if (lead < 0x80) {
		return 1;
	}
	if (lead < 0xc2 || lead > 0xf4) {
		return 0;
	}
	need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	if (lead == 0xe0) {
		low = 0xa0; /* overlong */
	} else if (lead == 0xed) {
		high = 0x9f; /* surrogates */
	} else if (lead == 0xf0) {
		low = 0x90; /* overlong */
	} else if (lead == 0xf4) {
		high = 0x8f; /* beyond U+10FFFF */
	}
	if (len < need || text[1] < low || text[1] > high) {
		return 0;
	}
	for (size_t i = 2; i < need; i++) {
		if ((text[i] & 0xc0) != 0x80) {
			return 0;
		}
	}
	return need;
}

size_t
kvp_utf8_valid_len(const char *text, size_t len)
{
	size_t pos = 0;

	while (pos < len) {
		size_t step = value_utf8_char((const unsigned char *)text + pos, len - pos);

		if (step == 0) {
			break;
		}
		pos += step;
	}
	return pos;
}

void
kvp_opt_quote(const char *text, char buf[KVP_OPT_QUOTED_LEN])
{
	size_t text_len = strlen(text);
	size_t valid_len = kvp_utf8_valid_len(text, text_len);
	size_t cut = KVP_OPT_QUOTED_LEN - sizeof("\"...\"");
	bool longer = text_len > cut;
	size_t len = 0;

	/* A cut must not split a character: step back over its continuation bytes. */
	while (longer && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) {
		cut--;
	}
	buf[len++] = '"';
	for (size_t i = 0; i < (longer ? cut : text_len); i++) {
		unsigned char c = (unsigned char)text[i];
		bool bad = c < 0x20 || c == 0x7f || (c >= 0x80 && valid_len < text_len);

		buf[len++] = (char)(bad ? '?' : c);
	}
	strcpy(buf + len, longer ? "...\"" : "\"");
}

void
kvp_opt_accepted(const struct kvp_opt_desc *desc, char *buf, size_t cap)
{
	static const char *const words[] = {
		[KVP_OPT_STRING] = "text",
		[KVP_OPT_BOOL] = "true|false",
		[KVP_OPT_UINT] = "a whole number",
		[KVP_OPT_SIZE] = "bytes as 4096, or with KiB, MiB, GiB, TiB",
		[KVP_OPT_TIME] = "a time as 100ms, 5s, 2min",
		[KVP_OPT_CHOICE] = "one of",
		[KVP_OPT_REAL] = "a decimal number as 0.5",
	};
	const char *joint = ", within ";

	if (desc->range == NULL) {
		(void)snprintf(buf, cap, "%s", words[desc->type]);
		return;
	}
	if (desc->type == KVP_OPT_CHOICE) {
		joint = " ";
	} else if (desc->type == KVP_OPT_STRING) {
		joint = ", its bytes within ";
	}
	(void)snprintf(buf, cap, "%s%s%s", words[desc->type], joint, desc->range);
}

int
kvp_opt_parse(const struct kvp_opt_desc *desc, const char *text, struct kvp_opt_value *ret_value,
	char *error, size_t error_cap)
{
	struct kvp_opt_value value = {.origin = "code"};
	size_t len = strlen(text);
	char hint[64];
	int ret;

	if (kvp_utf8_valid_len(text, len) < len) {
		return value_fail(desc, text, "not valid UTF-8", error, error_cap);
	}
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
			return value_fail(
				desc, text, "a text with control characters", error, error_cap);
		}
	}
	ret = value_number(desc->type, text, &value);
	if (ret < 0) {
		return value_fail(desc, text, value_problem(desc, text, ret, hint, sizeof(hint)),
			error, error_cap);
	}
	if (desc->type == KVP_OPT_CHOICE) {
		kvp_assert(desc->range != NULL);
		if (!value_is_choice(desc->range, text)) {
			return value_fail(desc, text, "no such choice", error, error_cap);
		}
	} else if (!value_in_range(desc, &value)) {
		return value_fail(desc, text, "out of range", error, error_cap);
	}
	value.text = value_canonical(desc->type, text, value.number);
	if (value.text == NULL) {
		return value_fail(desc, text, "too much: out of memory", error, error_cap);
	}
	*ret_value = value;
	return 0;
}
