/* SPDX-License-Identifier: Apache-2.0 */
/* perf_machine.c - the machine that figures are of. What it does not tell is left out. */
#include "bench/perf_report.h"
#include "hal/os/file.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first cap - 1 bytes of a small file of the kernel's, as text. */
static bool
text_read(const char *path, char *buf, size_t cap)
{
	FILE *file = fopen(path, "re");
	size_t len;

	if (file == NULL) {
		return false;
	}
	len = fread(buf, 1, cap - 1, file);
	(void)fclose(file);
	buf[len] = '\0';
	return len > 0;
}

void
kvp_perf_machine_warn(void)
{
	char governor[64];
	cpu_set_t cpus;

	if (text_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
		    sizeof(governor)) &&
		strncmp(governor, "performance", 11) != 0) {
		governor[strcspn(governor, "\n")] = '\0';
		fprintf(stderr,
			"kvpool-perf: warning: CPU frequency governor is %s, figures may wander "
			"(-F: no warning)\n",
			governor);
	}
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 &&
		CPU_COUNT(&cpus) == sysconf(_SC_NPROCESSORS_ONLN) && CPU_COUNT(&cpus) > 1) {
		fprintf(stderr, "kvpool-perf: warning: not bound to a CPU, figures may wander; "
				"see taskset(1) (-F: no warning)\n");
	}
}

void
kvp_perf_machine_name(char *buf, size_t cap)
{
	static char const key[] = "model name";
	char text[4096];
	const char *model = "unknown CPU";
	struct utsname name;

	if (text_read("/proc/cpuinfo", text, sizeof(text))) {
		char *at = strstr(text, key);
		char *colon = at != NULL ? strchr(at, ':') : NULL;

		if (colon != NULL) {
			model = colon + 2;
			colon[strcspn(colon, "\n")] = '\0';
		}
	}
	(void)uname(&name); /* fails for a bad address only */
	snprintf(buf, cap, "%.64s, %ld CPUs, Linux %.48s", model, sysconf(_SC_NPROCESSORS_ONLN),
		name.release);
}

struct kvp_perf_ticks
kvp_perf_machine_ticks(void)
{
	struct kvp_perf_ticks ticks = {0};
	uint64_t t[8] = {0}; /* user nice system idle iowait irq softirq steal */
	char text[512];

	if (!text_read("/proc/stat", text, sizeof(text)) ||
		sscanf(text,
			"cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			" %" SCNu64 " %" SCNu64,
			&t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 8) {
		return ticks;
	}
	for (size_t i = 0; i < 8; i++) {
		ticks.all += t[i];
	}
	ticks.busy = ticks.all - t[3] - t[4];
	return ticks;
}
