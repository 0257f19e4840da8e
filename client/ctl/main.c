/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - kvpoolctl: which command, and what there is. To add one: a row in ctl_commands.
 */
#include "client/ctl/ctl.h"
#include "client/include/kvpool/kvpool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ctl_command {
	const char *name;
	const char *text;
	int (*run)(int argc, char **argv);
	void (*help)(void);
};

static const struct ctl_command ctl_commands[] = {
	{"status", "what daemons say about themselves", ctl_status, ctl_status_help},
	{"usage", "what a node holds, for which namespaces", ctl_usage, ctl_usage_help},
	{"leases", "who keeps blocks of a node in place", ctl_leases, ctl_leases_help},
};

#define CTL_COMMAND_COUNT (sizeof(ctl_commands) / sizeof(ctl_commands[0]))

static const struct ctl_command *
command_find(const char *name)
{
	for (size_t i = 0; i < CTL_COMMAND_COUNT; i++) {
		if (strcmp(ctl_commands[i].name, name) == 0) {
			return &ctl_commands[i];
		}
	}
	return NULL;
}

static void
help_print(void)
{
	printf("usage: kvpoolctl COMMAND [OPTION]...\n"
	       "Asks and tells the daemons of a kvpool.\n\ncommands:\n");
	for (size_t i = 0; i < CTL_COMMAND_COUNT; i++) {
		printf("  %-10s %s\n", ctl_commands[i].name, ctl_commands[i].text);
	}
	printf("\nkvpoolctl COMMAND --help     what a command takes\n"
	       "kvpoolctl --version          versions of this program and its library\n"
	       "\nexit status: 0 done; 1 a daemon did not answer; 2 wrong usage\n");
}

static int
output_end(int status)
{
	/* A full disk or a closed pipe shows only now. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		ctl_complain("cannot write the output");
		return status == CTL_OK ? CTL_UNREACHABLE : status;
	}
	return status;
}

static int
command_run(int argc, char **argv)
{
	const struct ctl_command *command = command_find(argv[0]);

	if (command == NULL) {
		ctl_complain("unknown command '%s'; kvpoolctl --help lists them", argv[0]);
		return CTL_USAGE;
	}
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			command->help();
			return output_end(CTL_OK);
		}
	}
	return output_end(command->run(argc, argv));
}

void
ctl_complain(const char *format, ...)
{
	va_list args;

	fputs("kvpoolctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int
main(int argc, char **argv)
{
	/* One write for nearly any output, so that "| head" does not end us half way. */
	(void)setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (argc < 2) {
		ctl_complain("no command; kvpoolctl --help lists them");
		return CTL_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0) {
		help_print();
		return output_end(CTL_OK);
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("kvpoolctl %s\nlibkvpool %s\n", KVP_VERSION, kvp_version());
		return output_end(CTL_OK);
	}
	return command_run(argc - 1, argv + 1);
}
