/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl.h - what the files of kvpoolctl share. One file a command; main.c knows them all.
 */
#ifndef KVP_CTL_H
#define KVP_CTL_H

enum ctl_exit {
	CTL_OK = 0,
	CTL_UNREACHABLE = 1, /* a daemon did not answer, or the output could not be written */
	CTL_USAGE = 2,
};

/* A command: argv[0] is its name. Returns an enum ctl_exit. */
int ctl_status(int argc, char **argv);
void ctl_status_help(void);
int ctl_usage(int argc, char **argv);
void ctl_usage_help(void);
int ctl_leases(int argc, char **argv);
void ctl_leases_help(void);

/* "kvpoolctl: text" to stderr. */
void ctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* KVP_CTL_H */
