/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - formats a line, limits each call site, hands the line to the sink.
 *
 * Two threads that meet at the turn of a second may let a line too many through or miscount the
 * suppressed ones by a few; neither is worth a lock.
 */
#include "hal/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_LEN_MAX         1024
#define LOG_LINES_PER_SECOND_MAX 10u

/* Counts a line. False: the site is muted. *ret_suppressed: what the seconds before swallowed. */
static bool
log_site_admit(struct kvp_log_site *site, uint32_t *ret_suppressed)
{
	struct timespec now;
	uint64_t second;
	uint64_t seen = atomic_load_explicit(&site->second, memory_order_relaxed);
	uint32_t lines;

	*ret_suppressed = 0;
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock */
	second = (uint64_t)now.tv_sec + 1;          /* 0 is a site never used */
	if (seen != second && atomic_compare_exchange_strong(&site->second, &seen, second)) {
		lines = atomic_exchange_explicit(&site->lines, 0, memory_order_relaxed);
		if (lines > LOG_LINES_PER_SECOND_MAX) {
			*ret_suppressed = lines - LOG_LINES_PER_SECOND_MAX;
		}
	}
	lines = atomic_fetch_add_explicit(&site->lines, 1, memory_order_relaxed);
	return lines < LOG_LINES_PER_SECOND_MAX;
}

/* Texts of peers and users end up in lines: they must not start lines of their own. */
static void
log_line_clean(char *line)
{
	for (; *line != '\0'; line++) {
		if ((unsigned char)*line < 0x20 || *line == 0x7f) {
			*line = '?';
		}
	}
}

void
kvp_log_write(const struct kvp_log *log, struct kvp_log_site *site, enum kvp_log_level level,
	const char *format, ...)
{
	char line[LOG_LINE_LEN_MAX];
	uint32_t suppressed;
	va_list args;
	size_t len;

	if (log == NULL || log->sink == NULL || level > log->level ||
		!log_site_admit(site, &suppressed)) {
		return;
	}
	va_start(args, format);
	if (vsnprintf(line, sizeof(line), format, args) < 0) {
		line[0] = '\0';
	}
	va_end(args);
	log_line_clean(line);
	if (suppressed > 0) {
		/* Room for the count first: the tail of an overlong line matters less. */
		len = strnlen(line, sizeof(line) - sizeof(" (suppressed 4294967295)"));
		(void)snprintf(
			line + len, sizeof(line) - len, " (suppressed %" PRIu32 ")", suppressed);
	}
	log->sink(log->arg, level, line);
}

void
kvp_log_stderr(void *arg, enum kvp_log_level level, const char *line)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	char text[LOG_LINE_LEN_MAX + 64];
	struct timespec now;
	struct tm utc;
	ssize_t written;
	int len;

	(void)arg;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &utc) == NULL) {
		memset(&utc, 0, sizeof(utc));
	}
	len = snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s\n",
		utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
		utc.tm_sec, now.tv_nsec / 1000000, names[level], line);
	if (len < 0) {
		return;
	}
	if ((size_t)len >= sizeof(text)) {
		len = sizeof(text) - 1;
		text[len - 1] = '\n';
	}
	/* One write, so that lines of threads do not mix. A full or closed log stops nobody. */
	written = write(STDERR_FILENO, text, (size_t)len);
	(void)written;
}
