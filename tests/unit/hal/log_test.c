/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_test.c - levels, the limit of a call site, lines that stay one line.
 *
 * The turn of a second is made by setting the site's second back, not by waiting. A test that
 * needs all its lines in one second and straddles a turn says so and tries again.
 */
#include "hal/base/log.h"
#include "tests/unit/hal/hal_test.h"

struct log_seen {
	unsigned count;
	enum kvp_log_level level;
	char last[2048];
};

static void
log_keep(void *arg, enum kvp_log_level level, const char *line)
{
	struct log_seen *seen = arg;

	seen->count++;
	seen->level = level;
	(void)snprintf(seen->last, sizeof(seen->last), "%s", line);
}

static void
log_levels(void **state)
{
	struct log_seen seen = {0};
	struct kvp_log log = {.level = KVP_LOG_WARN, .sink = log_keep, .arg = &seen};
	const struct kvp_log *none = NULL;

	(void)state;
	kvp_info(&log, "conn %d up", 7);
	assert_int_equal(seen.count, 0);
	kvp_error(&log, "conn %d reset: %s", 7, "flush");
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.level, KVP_LOG_ERROR);
	assert_string_equal(seen.last, "conn 7 reset: flush");
	kvp_error(none, "nobody hears this");
}

static void
log_limits_a_site(void **state)
{
	struct log_seen seen;
	struct kvp_log log = {.level = KVP_LOG_DEBUG, .sink = log_keep, .arg = &seen};
	struct kvp_log_site site;
	uint64_t first;

	(void)state;
	do {
		memset(&seen, 0, sizeof(seen));
		memset(&site, 0, sizeof(site));
		kvp_log_write(&log, &site, KVP_LOG_WARN, "slow");
		first = site.second;
		for (int i = 1; i < 25; i++) {
			kvp_log_write(&log, &site, KVP_LOG_WARN, "slow");
		}
	} while (site.second != first);
	assert_int_equal(seen.count, 10);
	assert_string_equal(seen.last, "slow");

	site.second--; /* as if they had been in the second before */
	kvp_log_write(&log, &site, KVP_LOG_WARN, "slow");
	assert_int_equal(seen.count, 11);
	assert_string_equal(seen.last, "slow (suppressed 15)");
	kvp_log_write(&log, &site, KVP_LOG_WARN, "slow");
	assert_string_equal(seen.last, "slow");
}

static void
log_lines_are_clean(void **state)
{
	struct log_seen seen = {0};
	struct kvp_log log = {.level = KVP_LOG_DEBUG, .sink = log_keep, .arg = &seen};
	struct kvp_log_site site = {0};
	char longer[4096];

	(void)state;
	kvp_log_write(&log, &site, KVP_LOG_WARN, "peer %s", "a\nerror forged\x1b[2J");
	assert_string_equal(seen.last, "peer a?error forged?[2J");

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	kvp_log_write(&log, &site, KVP_LOG_WARN, "%s", longer);
	assert_int_equal(strlen(seen.last), 1023);

	site.second--;
	site.lines = UINT32_MAX;
	kvp_log_write(&log, &site, KVP_LOG_WARN, "%s", longer);
	assert_non_null(strstr(seen.last, "(suppressed 4294967285)"));
}

/* What kvp_log_stderr writes, read back through a pipe. */
static void
log_to_stderr(void **state)
{
	int saved = dup(STDERR_FILENO);
	char text[256] = "";
	unsigned n[7];
	char level[8];
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
	kvp_log_stderr(NULL, KVP_LOG_WARN, "node a degraded");
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_int_equal(sscanf(text, "%4u-%2u-%2uT%2u:%2u:%2u.%3uZ %7s", &n[0], &n[1], &n[2],
				 &n[3], &n[4], &n[5], &n[6], level),
		8);
	assert_string_equal(level, "warn");
	assert_string_equal(strchr(text, ' '), " warn node a degraded\n");
	close(ends[0]);
	close(ends[1]);
	close(saved);
}

static void
log_survives_a_full_disk(void **state)
{
	int saved = dup(STDERR_FILENO);
	FILE *full = fopen("/dev/full", "we");

	(void)state;
	if (full == NULL) {
		close(saved);
		skip();
	}
	assert_true(dup2(fileno(full), STDERR_FILENO) >= 0);
	kvp_log_stderr(NULL, KVP_LOG_ERROR, "no room for this");
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	fclose(full);
	close(saved);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_levels),
		cmocka_unit_test(log_limits_a_site),
		cmocka_unit_test(log_lines_are_clean),
		cmocka_unit_test(log_to_stderr),
		cmocka_unit_test(log_survives_a_full_disk),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
