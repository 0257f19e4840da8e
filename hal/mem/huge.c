/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge.c - reads what the kernel tells of huge pages.
 *
 * Two switches rule transparent huge pages in shared memory. For memfd it is
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled. For a file in /dev/shm it is the huge= option
 * of that mount, unless the switch says deny or force. What was got is read from smaps in the end,
 * because a kernel may have more switches than these.
 */
#include "hal/mem/huge.h"
#include "hal/mem/mounts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUGE_PATH_LEN (KVP_MOUNT_PATH_LEN * 2)
#define HUGE_THP_DIR  "/sys/kernel/mm/transparent_hugepage"

/* One number of a pool; 0 where this kernel has none. */
static uint64_t
huge_number(const char *root, const char *dir, const char *name)
{
	char path[HUGE_PATH_LEN];
	uint64_t number = 0;

	(void)snprintf(path, sizeof(path), "%s%s/%s", root, dir, name);
	return kvp_proc_number(path, &number) == 0 ? number : 0;
}

int
kvp_huge_pool(const char *root, size_t page_len, int node, struct kvp_huge_pool *ret_pool)
{
	struct kvp_huge_pool pool = {.page_len = page_len};
	char dir[96];
	char path[HUGE_PATH_LEN];
	uint64_t surplus_max;
	uint64_t surplus;
	uint64_t promised;

	(void)snprintf(
		dir, sizeof(dir), "/sys/kernel/mm/hugepages/hugepages-%zukB", page_len >> 10);
	(void)snprintf(path, sizeof(path), "%s%s", root, dir);
	if (access(path, F_OK) < 0) {
		return -ENOENT;
	}
	pool.total = huge_number(root, dir, "nr_hugepages");
	pool.room = huge_number(root, dir, "free_hugepages");
	promised = huge_number(root, dir, "resv_hugepages");
	pool.room -= promised < pool.room ? promised : pool.room;
	surplus_max = huge_number(root, dir, "nr_overcommit_hugepages");
	surplus = huge_number(root, dir, "surplus_hugepages");
	if (surplus_max > surplus) {
		pool.room += surplus_max - surplus;
	}
	if (node >= 0) {
		uint64_t node_free;

		(void)snprintf(dir, sizeof(dir),
			"/sys/devices/system/node/node%d/hugepages/hugepages-%zukB", node,
			page_len >> 10);
		pool.total = huge_number(root, dir, "nr_hugepages");
		node_free = huge_number(root, dir, "free_hugepages");
		pool.room = node_free < pool.room ? node_free : pool.room;
	}
	(void)snprintf(pool.file, sizeof(pool.file), "%s/nr_hugepages", dir);
	*ret_pool = pool;
	return 0;
}

uint64_t
kvp_huge_total(const char *root, size_t page_len)
{
	const size_t lens[] = {KVP_HUGE_LEN_2M, KVP_HUGE_LEN_1G};
	struct kvp_huge_pool pool;
	uint64_t most = 0;

	if (page_len != 0) {
		return kvp_huge_pool(root, page_len, -1, &pool) == 0 ? pool.total * page_len : 0;
	}
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		if (kvp_huge_pool(root, lens[i], -1, &pool) == 0 && pool.total * lens[i] > most) {
			most = pool.total * lens[i];
		}
	}
	return most;
}

size_t
kvp_huge_choose(const char *root, size_t len, int node)
{
	struct kvp_huge_pool pool;
	char path[HUGE_PATH_LEN];
	uint64_t usual = 0;

	if (len % KVP_HUGE_LEN_1G == 0 && kvp_huge_pool(root, KVP_HUGE_LEN_1G, node, &pool) == 0 &&
		pool.room >= len / KVP_HUGE_LEN_1G) {
		return KVP_HUGE_LEN_1G;
	}
	if (kvp_huge_pool(root, KVP_HUGE_LEN_2M, node, &pool) == 0) {
		return KVP_HUGE_LEN_2M;
	}
	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	return kvp_proc_field(path, "Hugepagesize:", &usual) == 0 && usual > 0 ? (size_t)usual
									       : KVP_HUGE_LEN_2M;
}

/* "2M" or "1024M" as the kernel prints it, else the usual size. */
static size_t
huge_mount_page_len(const char *root, const struct kvp_mount *mount)
{
	char path[HUGE_PATH_LEN];
	char text[32];
	char *end;
	uint64_t len = 0;

	if (!kvp_mount_option(mount, "pagesize", text, sizeof(text))) {
		(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
		return kvp_proc_field(path, "Hugepagesize:", &len) == 0 ? (size_t)len : 0;
	}
	len = strtoull(text, &end, 10);
	switch (*end) {
	case 'G':
		return (size_t)len << 30;
	case 'M':
		return (size_t)len << 20;
	case 'K':
	case 'k':
		return (size_t)len << 10;
	default:
		return (size_t)len;
	}
}

struct huge_search {
	const char *root;
	size_t page_len;
	struct kvp_huge_mounts *mounts;
};

static int
huge_mount_visit(const struct kvp_mount *mount, void *arg)
{
	const struct huge_search *search = arg;
	struct kvp_huge_mounts *mounts = search->mounts;
	char path[HUGE_PATH_LEN];
	size_t page_len;

	if (strcmp(mount->type, "hugetlbfs") != 0 || strlen(mount->path) >= KVP_HUGE_DIR_LEN) {
		return 0;
	}
	page_len = huge_mount_page_len(search->root, mount);
	(void)snprintf(path, sizeof(path), "%s%s", search->root, mount->path);
	if (page_len == 0 || (search->page_len != 0 && search->page_len != page_len) ||
		access(path, W_OK | X_OK) < 0) {
		return 0;
	}
	for (unsigned i = 0; i < mounts->count; i++) {
		if (strcmp(mounts->dir[i], mount->path) == 0) { /* mounted twice */
			return 0;
		}
	}
	strcpy(mounts->dir[mounts->count], mount->path);
	mounts->page_len[mounts->count] = page_len;
	mounts->count++;
	return mounts->count == KVP_HUGE_MOUNT_COUNT ? 1 : 0;
}

void
kvp_huge_mounts(const char *root, size_t page_len, struct kvp_huge_mounts *ret_mounts)
{
	struct huge_search search = {.root = root, .page_len = page_len, .mounts = ret_mounts};

	ret_mounts->count = 0;
	/* An unreadable list is no mount. */
	(void)kvp_mounts_each(root, huge_mount_visit, &search);
}

/* The last /dev/shm of the list is the one that is seen. */
static int
huge_shm_visit(const struct kvp_mount *mount, void *arg)
{
	if (strcmp(mount->path, "/dev/shm") == 0 && strcmp(mount->type, "tmpfs") == 0) {
		*(struct kvp_mount *)arg = *mount;
	}
	return 0;
}

/* The word in [brackets] of a switch; "deny" when this kernel has none. */
static void
huge_switch(const char *root, char *buf, size_t cap)
{
	char path[HUGE_PATH_LEN];
	char line[128] = "";
	FILE *stream;
	const char *begin;

	(void)snprintf(path, sizeof(path), "%s" HUGE_THP_DIR "/shmem_enabled", root);
	(void)snprintf(buf, cap, "deny");
	stream = fopen(path, "re");
	if (stream == NULL) {
		return;
	}
	begin = fgets(line, sizeof(line), stream) != NULL ? strchr(line, '[') : NULL;
	if (begin != NULL) {
		(void)snprintf(buf, cap, "%.*s", (int)strcspn(begin + 1, "]"), begin + 1);
	}
	(void)fclose(stream); /* read only */
}

static bool
huge_word_allows(const char *word)
{
	return strcmp(word, "always") == 0 || strcmp(word, "within_size") == 0 ||
	       strcmp(word, "advise") == 0;
}

void
kvp_huge_thp(const char *root, bool named, struct kvp_huge_thp *ret_thp)
{
	struct kvp_huge_thp thp = {.page_len = KVP_HUGE_LEN_2M};
	struct kvp_mount shm = {.type = ""};
	char path[HUGE_PATH_LEN];
	char word[32];
	char huge[32] = "never";
	uint64_t len;

	(void)snprintf(path, sizeof(path), "%s" HUGE_THP_DIR "/hpage_pmd_size", root);
	if (kvp_proc_number(path, &len) == 0 && len > 0) {
		thp.page_len = (size_t)len;
	}
	huge_switch(root, word, sizeof(word));
	if (!named || strcmp(word, "deny") == 0 || strcmp(word, "force") == 0) {
		thp.allowed = strcmp(word, "force") == 0 || (!named && huge_word_allows(word));
		(void)snprintf(
			thp.said, sizeof(thp.said), HUGE_THP_DIR "/shmem_enabled says %s", word);
		(void)snprintf(thp.remedy, sizeof(thp.remedy),
			"echo advise > " HUGE_THP_DIR "/shmem_enabled");
	} else {
		(void)kvp_mounts_each(root, huge_shm_visit, &shm);
		(void)kvp_mount_option(&shm, "huge", huge, sizeof(huge));
		thp.allowed = huge_word_allows(huge);
		(void)snprintf(thp.said, sizeof(thp.said), "/dev/shm is mounted huge=%s", huge);
		(void)snprintf(
			thp.remedy, sizeof(thp.remedy), "mount -o remount,huge=advise /dev/shm");
	}
	*ret_thp = thp;
}

uint64_t
kvp_huge_thp_mapped(const void *base, size_t len)
{
	uintptr_t from = (uintptr_t)base;
	FILE *stream = fopen("/proc/self/smaps", "re");
	char line[512];
	uint64_t sum = 0;
	uint64_t kib;
	uintptr_t begin;
	uintptr_t end;
	bool inside = false;

	while (stream != NULL && fgets(line, sizeof(line), stream) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
			inside = begin >= from && end <= from + len;
		} else if (inside && (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
					     sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1)) {
			sum += kib * 1024;
		}
	}
	if (stream != NULL) {
		(void)fclose(stream); /* read only */
	}
	return sum;
}
