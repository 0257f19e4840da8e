/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_print.c - options as YAML that --config accepts again, and as help.
 */
#include "hal/base/assert.h"
#include "hal/base/opt_impl.h"

#include <stdio.h>
#include <string.h>

/* Texts of which YAML sees nothing but text. Everything else is quoted. */
static bool
print_is_plain(const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_./-";

	return text[0] != '\0' && text[0] != '-' && strspn(text, plain) == strlen(text);
}

/* Values hold no control characters (kvp_opt_parse), so two escapes are enough. */
static void
print_value(const char *text)
{
	if (print_is_plain(text)) {
		(void)fputs(text, stdout);
		return;
	}
	(void)putchar('"');
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\') {
			(void)putchar('\\');
		}
		(void)putchar(*text);
	}
	(void)putchar('"');
}

/* A file name may hold anything, a comment ends at the line. */
static void
print_comment(const char *text)
{
	for (; *text != '\0'; text++) {
		(void)putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
	}
}

void
kvp_opts_print(const struct kvp_opts *opts)
{
	for (size_t i = 0; i < opts->count; i++) {
		(void)printf("%s: ", opts->desc[i].path);
		print_value(opts->values[i].text);
		(void)fputs(" # ", stdout);
		print_comment(opts->values[i].origin);
		(void)putchar('\n');
	}
	(void)fflush(stdout);
}

static const char *
print_type_name(enum kvp_opt_type type)
{
	static const char *const names[] = {
		[KVP_OPT_STRING] = "TEXT",
		[KVP_OPT_BOOL] = "true|false",
		[KVP_OPT_UINT] = "NUMBER",
		[KVP_OPT_SIZE] = "SIZE",
		[KVP_OPT_TIME] = "TIME",
		[KVP_OPT_CHOICE] = "",
		[KVP_OPT_REAL] = "NUMBER",
	};

	kvp_assert((size_t)type < sizeof(names) / sizeof(names[0]));
	return names[type];
}

void
kvp_opts_help(const struct kvp_opt_desc *desc, size_t count, const char *usage)
{
	(void)printf(
		"usage: %s\n\n"
		"  --config FILE    read options from a YAML file (environment: KVP_CONFIG)\n"
		"  --print-config   print every option, its value and where it came from\n"
		"  --version        print the version\n"
		"  --help           print this\n\n"
		"Options. --store.dram=64GiB is store.dram: 64GiB in the file and KVP_STORE_DRAM "
		"in the\nenvironment; the command line wins over the environment, the environment "
		"over the file.\nSizes: 4096, 64KiB, 64MiB, 64GiB, 1TiB. Times: 100ms, 5s, "
		"2min.\n\n",
		usage);
	for (size_t i = 0; i < count; i++) {
		const char *dflt = desc[i].dflt != NULL ? desc[i].dflt : "";
		bool choice = desc[i].type == KVP_OPT_CHOICE;

		(void)printf("  --%s=%s", desc[i].path,
			choice ? desc[i].range : print_type_name(desc[i].type));
		if (!choice && desc[i].range != NULL) {
			(void)printf("   %s", desc[i].range);
		}
		(void)printf("   default %s\n      %s\n", dflt[0] != '\0' ? dflt : "empty",
			desc[i].help);
	}
	(void)fflush(stdout);
}
