/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the subcommands of kvpool-perf and what their exit status says. main.c has the table.
 */
#ifndef KVP_BENCH_CMD_H
#define KVP_BENCH_CMD_H

enum kvp_cmd_status {
	KVP_CMD_OK = 0,
	KVP_CMD_LIMIT = 1,     /* a limit given by the user was missed */
	KVP_CMD_USAGE = 2,     /* options, or the server refused one */
	KVP_CMD_TRANSPORT = 3, /* transport or pool errors; also files that cannot be written */
	KVP_CMD_DATA = 4,      /* wrong bytes */
};

/* argv[0] is the subcommand. They print what they have to say and return the exit status. */
int kvp_cmd_bw(int argc, char **argv);
int kvp_cmd_lat(int argc, char **argv);
int kvp_cmd_replay(int argc, char **argv);

#endif /* KVP_BENCH_CMD_H */
