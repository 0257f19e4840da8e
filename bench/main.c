/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - kvpool-perf: which test, and what there is. To add one: a row in commands. */
#include "bench/cmd.h"

#include <kvpool/kvpool.h>

#include <stdio.h>
#include <string.h>

struct command {
	const char *name;
	const char *text;
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
	{"bw", "bandwidth of reads and writes, bare or through the pool", kvp_cmd_bw},
	{"lat", "their latency", kvp_cmd_lat},
	{"replay", "play a request trace against a running cluster", kvp_cmd_replay},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void
usage_print(FILE *out)
{
	fprintf(out, "usage: kvpool-perf TEST [options]\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].text);
	}
	fprintf(out,
		"kvpool-perf TEST --help tells the options of a test; --version the version.\n"
		"exit status: 0 passed; 1 limit missed; 2 usage; 3 transport; 4 wrong bytes\n");
}

static const struct command *
command_find(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(commands[i].name, name) == 0) {
			return &commands[i];
		}
	}
	return NULL;
}

static int
output_end(int status)
{
	/* A full disk or a closed pipe shows only now. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "kvpool-perf: cannot write the output\n");
		return status == KVP_CMD_OK ? KVP_CMD_TRANSPORT : status;
	}
	return status;
}

int
main(int argc, char **argv)
{
	const struct command *command = argc >= 2 ? command_find(argv[1]) : NULL;

	if (command != NULL) {
		return output_end(command->run(argc - 1, argv + 1));
	}
	if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
		printf("kvpool-perf %s\n", kvp_version());
		return output_end(KVP_CMD_OK);
	}
	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		usage_print(stdout);
		return output_end(KVP_CMD_OK);
	}
	if (argc >= 2) {
		fprintf(stderr, "kvpool-perf: no test named '%s'\n", argv[1]);
	}
	usage_print(stderr);
	return KVP_CMD_USAGE;
}
