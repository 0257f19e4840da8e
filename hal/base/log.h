/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - one line an event, through the caller's sink.
 *
 * Lines: lower case, object first, values without '='. error = work lost, warn = degraded,
 * info = life cycle, debug = per object. A call site that logs more than 10 lines in a second
 * is muted for the rest of it and then says "suppressed N". There is no global logger: a
 * kvp_log is passed down; NULL swallows everything. THREADS any. It never blocks on the network.
 */
#ifndef KVP_HAL_BASE_LOG_H
#define KVP_HAL_BASE_LOG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum kvp_log_level { KVP_LOG_ERROR, KVP_LOG_WARN, KVP_LOG_INFO, KVP_LOG_DEBUG };

struct kvp_log {
	enum kvp_log_level level; /* lines above it are dropped */
	void (*sink)(void *arg, enum kvp_log_level level, const char *line);
	void *arg;
};

/* One a call site: the second it counts for and how many lines it saw. */
struct kvp_log_site {
	_Atomic uint64_t second;
	_Atomic uint32_t lines;
};

void kvp_log_write(const struct kvp_log *log, struct kvp_log_site *site, enum kvp_log_level level,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The sink of the daemons: "2026-11-30T20:17:10.123Z warn text" to stderr; ignores a full disk. */
void kvp_log_stderr(void *arg, enum kvp_log_level level, const char *line);

/* The macro's parameter must not be named as a member of kvp_log: it would replace that too. */
#define KVP_LOG_AT(log, at_level, ...)                                                             \
	do {                                                                                       \
		static struct kvp_log_site kvp_log_site_;                                          \
		if ((log) != NULL && (at_level) <= (log)->level) {                                 \
			kvp_log_write((log), &kvp_log_site_, (at_level), __VA_ARGS__);             \
		}                                                                                  \
	} while (0)
#define kvp_error(log, ...) KVP_LOG_AT(log, KVP_LOG_ERROR, __VA_ARGS__)
#define kvp_warn(log, ...)  KVP_LOG_AT(log, KVP_LOG_WARN, __VA_ARGS__)
#define kvp_info(log, ...)  KVP_LOG_AT(log, KVP_LOG_INFO, __VA_ARGS__)
#define kvp_debug(log, ...) KVP_LOG_AT(log, KVP_LOG_DEBUG, __VA_ARGS__)

#endif /* KVP_HAL_BASE_LOG_H */
