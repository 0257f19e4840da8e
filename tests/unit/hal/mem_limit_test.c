/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_limit_test.c - what machines allow, read from made-up copies of /proc and /sys.
 */
#include "hal/mem/cgroup.h"
#include "hal/mem/huge.h"
#include "hal/mem/limit.h"
#include "hal/mem/numa.h"
#include "hal/os/file.h"
#include "tests/unit/hal/hal_test.h"

#include <errno.h>

#define GIB ((uint64_t)1 << 30)

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT                                                                                   \
	"31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"                              \
	"35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 master:1 - cgroup cgroup rw,memory\n"
#define HUGE_2M "sys/kernel/mm/hugepages/hugepages-2048kB/"
#define HUGE_1G "sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define NODE_2M "sys/devices/system/node/node1/hugepages/hugepages-2048kB/"
#define THP     "sys/kernel/mm/transparent_hugepage/"

/* Writes one file of the made-up machine, with the folders it needs. */
static void
fake(void **state, const char *name, const char *text)
{
	char path[512];
	char *slash;

	hal_test_path(state, name, path, sizeof(path));
	slash = strrchr(path, '/');
	*slash = '\0';
	assert_int_equal(kvp_dir_make(path, 0700), 0);
	*slash = '/';
	hal_test_write(path, text, strlen(text));
}

static const char *
fake_root(void **state)
{
	return ((const struct hal_test_dir *)*state)->path;
}

static void
fake_machine(void **state)
{
	fake(state, "proc/meminfo",
		"MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nSwapFree:        "
		"1048576 kB\nHugepagesize:       2048 kB\nHugetlb:         4194304 kB\n");
}

static void
mounts_parse(void **state)
{
	char line[] = "1 2 0:5 /a\\040b /mnt/x\\134y rw,relatime shared:1 - tmpfs none "
		      "rw,size=8k,huge=advise\n";
	char empty[] = "1 2 0:5 / /mnt rw - tmpfs  rw,size=8k\n";
	char bad[] = "no mount\n";
	struct kvp_mount mount;
	char value[16];

	(void)state;
	assert_int_equal(kvp_mount_parse(line, &mount), 0);
	assert_string_equal(mount.root, "/a b");
	assert_string_equal(mount.path, "/mnt/x\\y");
	assert_string_equal(mount.type, "tmpfs");
	assert_true(kvp_mount_option(&mount, "huge", value, sizeof(value)));
	assert_string_equal(value, "advise");
	assert_true(kvp_mount_option(&mount, "rw", value, sizeof(value)));
	assert_string_equal(value, "");
	assert_false(kvp_mount_option(&mount, "hug", value, sizeof(value)));
	assert_false(kvp_mount_option(&mount, "uge", value, sizeof(value)));
	assert_int_equal(kvp_mount_parse(empty, &mount), 0);
	assert_string_equal(mount.options, "rw,size=8k");
	assert_int_equal(kvp_mount_parse(bad, &mount), -EINVAL);
}

static void
cgroup_none(void **state)
{
	struct kvp_cgroup cgroup;

	kvp_cgroup_memory(fake_root(state), &cgroup); /* nothing at all */
	assert_true(cgroup.limit == UINT64_MAX && cgroup.room == UINT64_MAX);
	fake(state, "proc/self/mountinfo", V2_MOUNT V1_MOUNT);
	fake(state, "proc/self/cgroup", "garbage\n\n4:memory\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_true(cgroup.limit == UINT64_MAX && cgroup.room == UINT64_MAX);
}

static void
cgroup_v2_walks_up(void **state)
{
	struct kvp_cgroup cgroup;

	fake(state, "proc/self/mountinfo", V2_MOUNT);
	fake(state, "proc/self/cgroup", "0::/a/b/c\n");
	fake(state, "sys/fs/cgroup/a/b/c/memory.max", "max\n");
	fake(state, "sys/fs/cgroup/a/b/memory.max", "4294967296\n");
	fake(state, "sys/fs/cgroup/a/b/memory.current", "1073741824\n");
	fake(state, "sys/fs/cgroup/a/memory.max", "8589934592\n");
	fake(state, "sys/fs/cgroup/a/memory.current", "7516192768\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 4 * GIB);
	assert_string_equal(cgroup.limit_file, "/sys/fs/cgroup/a/b/memory.max");
	assert_int_equal(cgroup.room, GIB); /* of a, which is fuller */
	assert_string_equal(cgroup.room_dir, "/sys/fs/cgroup/a");
	/* Pages of files can be dropped. */
	fake(state, "sys/fs/cgroup/a/memory.stat",
		"anon 1\ninactive_file 536870912\nactive_file 536870912\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.room, 2 * GIB);
	/* The soft limit counts, and a level that is full leaves nothing. */
	fake(state, "sys/fs/cgroup/a/b/memory.high", "1000000\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 1000000);
	assert_int_equal(cgroup.room, 0);
}

static void
cgroup_v2_namespaces(void **state)
{
	struct kvp_cgroup cgroup;

	/* The container sees its own group as the top. */
	fake(state, "proc/self/mountinfo",
		"30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	fake(state, "proc/self/cgroup", "0::/docker/abc/inner\n");
	fake(state, "sys/fs/cgroup/memory.max", "3221225472\n");
	fake(state, "sys/fs/cgroup/inner/memory.max", "2147483648\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 2 * GIB);
	/* A path that the mount does not have, or that leads out of it. */
	fake(state, "proc/self/cgroup", "0::/elsewhere/x\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 3 * GIB);
	fake(state, "proc/self/cgroup", "0::/../../x\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 3 * GIB);
	fake(state, "proc/self/cgroup", "0::/docker/abcd\n"); /* not the same prefix */
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 3 * GIB);
}

static void
cgroup_v1(void **state)
{
	struct kvp_cgroup cgroup;

	fake(state, "proc/self/mountinfo", V1_MOUNT V2_MOUNT);
	fake(state, "proc/self/cgroup", "9:name=memory:/no\n5:cpu,memory:/job/1\n1:cpu:/\n0::/\n");
	fake(state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	fake(state, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
	fake(state, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1610612736\n");
	fake(state, "sys/fs/cgroup/memory/job/memory.stat",
		"inactive_file 7\ntotal_inactive_file 536870912\n");
	fake(state, "sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n");
	kvp_cgroup_memory(fake_root(state), &cgroup);
	assert_int_equal(cgroup.limit, 2 * GIB);
	assert_int_equal(cgroup.room, GIB);
	assert_string_equal(cgroup.limit_file, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes");
}

static void
limit_of_machine(void **state)
{
	struct kvp_mem_limit limit;

	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_OFF, 0, &limit), -ENOENT);
	fake_machine(state);
	fake(state, HUGE_2M "nr_hugepages", "2048\n");
	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_OFF, 0, &limit), 0);
	assert_int_equal(limit.machine, 12 * GIB);
	assert_true(limit.cgroup == UINT64_MAX);
	assert_int_equal(limit.pool, 4 * GIB);
	assert_int_equal(limit.bytes, 12 * GIB);
	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_PREFER, 0, &limit), 0);
	assert_int_equal(limit.bytes, 12 * GIB);
	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_REQUIRE, 0, &limit), 0);
	assert_int_equal(limit.bytes, 4 * GIB);
	assert_int_equal(
		kvp_mem_limit(fake_root(state), KVP_MEM_REQUIRE, KVP_HUGE_LEN_1G, &limit), 0);
	assert_int_equal(limit.bytes, 0);
	fake(state, "proc/self/mountinfo", V2_MOUNT);
	fake(state, "proc/self/cgroup", "0::/\n");
	fake(state, "sys/fs/cgroup/memory.max", "3221225472\n");
	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_OFF, 0, &limit), 0);
	assert_int_equal(limit.bytes, 3 * GIB);
	assert_string_equal(limit.what, "/sys/fs/cgroup/memory.max");
	assert_int_equal(kvp_mem_limit(fake_root(state), KVP_MEM_PREFER, 0, &limit), 0);
	assert_int_equal(limit.bytes, 4 * GIB);
	/* And of this machine, whatever it has. */
	assert_int_equal(kvp_mem_limit("", KVP_MEM_OFF, 0, &limit), 0);
	assert_true(limit.bytes > 0 && limit.bytes <= limit.machine);
}

static void
limit_room(void **state)
{
	struct kvp_mem_why why = {0};
	const char *root = fake_root(state);

	fake_machine(state);
	assert_int_equal(kvp_mem_room(root, -1, false, 8 * GIB, &why), 0);
	assert_int_equal(kvp_mem_room(root, -1, true, 9 * GIB, &why), 0);
	assert_int_equal(why.count, 0);
	assert_int_equal(kvp_mem_room(root, -1, false, 9 * GIB, &why), -ENOSPC);
	assert_non_null(strstr(why.line[0], "have 8589934592 bytes, need 9663676416, remedy"));
	fake(state, "sys/devices/system/node/node1/meminfo",
		"Node 1 MemTotal:        9 kB\nNode 1 MemFree:    1048576 kB\n"
		"Node 1 Inactive(file):  1048576 kB\n");
	assert_int_equal(kvp_mem_room(root, 1, false, 2 * GIB, &why), 0);
	assert_int_equal(kvp_mem_room(root, 1, false, 2 * GIB + 1, &why), -ENOSPC);
	fake(state, "proc/self/mountinfo", V2_MOUNT);
	fake(state, "proc/self/cgroup", "0::/\n");
	fake(state, "sys/fs/cgroup/memory.max", "3221225472\n");
	assert_int_equal(kvp_mem_room(root, -1, true, 4 * GIB, &why), -ENOSPC);
	assert_int_equal(why.count, 3);
	assert_non_null(strstr(why.line[2], "/sys/fs/cgroup"));
}

static void
size_parse(void **state)
{
	uint64_t len = 0;

	(void)state;
	assert_int_equal(kvp_mem_size_parse("64GiB", 0, &len), 0);
	assert_int_equal(len, 64 * GIB);
	assert_int_equal(kvp_mem_size_parse("4096", 0, &len), 0);
	assert_int_equal(len, 4096);
	assert_int_equal(kvp_mem_size_parse("0.5", 8 * GIB, &len), 0);
	assert_int_equal(len, 4 * GIB);
	assert_int_equal(kvp_mem_size_parse("1.0", 8 * GIB, &len), 0);
	assert_int_equal(len, 8 * GIB);
	assert_int_equal(kvp_mem_size_parse("0.8", 10000000000, &len), 0);
	assert_int_equal(len, 3814 * KVP_HUGE_LEN_2M);
	assert_int_equal(kvp_mem_size_parse("0.0", GIB, &len), -ERANGE);
	assert_int_equal(kvp_mem_size_parse("1.1", GIB, &len), -ERANGE);
	assert_int_equal(kvp_mem_size_parse("-0.5", GIB, &len), -ERANGE);
	assert_int_equal(kvp_mem_size_parse("0.8", 0, &len), -ERANGE); /* share of nothing */
	assert_int_equal(kvp_mem_size_parse("0.5GiB", GIB, &len), -EINVAL);
	assert_int_equal(kvp_mem_size_parse(".5", GIB, &len), -EINVAL);
	assert_int_equal(kvp_mem_size_parse("0,8", GIB, &len), -EINVAL);
	assert_int_equal(kvp_mem_size_parse("64GB", GIB, &len), -EINVAL);
	assert_int_equal(kvp_mem_size_parse("", GIB, &len), -EINVAL);
	assert_int_equal(len, 3814 * KVP_HUGE_LEN_2M);
}

static void
huge_pools(void **state)
{
	const char *root = fake_root(state);
	struct kvp_huge_pool pool;

	assert_int_equal(kvp_huge_pool(root, KVP_HUGE_LEN_2M, -1, &pool), -ENOENT);
	fake_machine(state);
	assert_int_equal(kvp_huge_choose(root, GIB, -1), KVP_HUGE_LEN_2M);
	fake(state, HUGE_2M "nr_hugepages", "100\n");
	fake(state, HUGE_2M "free_hugepages", "50\n");
	fake(state, HUGE_2M "resv_hugepages", "20\n");
	fake(state, HUGE_2M "nr_overcommit_hugepages", "7\n");
	fake(state, HUGE_2M "surplus_hugepages", "2\n");
	fake(state, NODE_2M "nr_hugepages", "40\n");
	fake(state, NODE_2M "free_hugepages", "9\n");
	assert_int_equal(kvp_huge_pool(root, KVP_HUGE_LEN_2M, -1, &pool), 0);
	assert_int_equal(pool.total, 100);
	assert_int_equal(pool.room, 35);
	assert_int_equal(kvp_huge_pool(root, KVP_HUGE_LEN_2M, 1, &pool), 0);
	assert_int_equal(pool.total, 40);
	assert_int_equal(pool.room, 9);
	assert_int_equal(kvp_huge_pool(root, KVP_HUGE_LEN_2M, 0, &pool), 0);
	assert_int_equal(pool.room, 0);
	fake(state, HUGE_1G "nr_hugepages", "2\n");
	fake(state, HUGE_1G "free_hugepages", "2\n");
	assert_int_equal(kvp_huge_choose(root, 2 * GIB, -1), KVP_HUGE_LEN_1G);
	assert_int_equal(kvp_huge_choose(root, 3 * GIB, -1), KVP_HUGE_LEN_2M);
	assert_int_equal(kvp_huge_choose(root, GIB + 4096, -1), KVP_HUGE_LEN_2M);
	assert_int_equal(kvp_huge_total(root, 0), 2 * GIB);
	assert_int_equal(kvp_huge_total(root, KVP_HUGE_LEN_2M), 200u << 20);
}

static void
huge_finds_mounts(void **state)
{
	const char *root = fake_root(state);
	struct kvp_huge_mounts mounts;

	kvp_huge_mounts(root, 0, &mounts);
	assert_int_equal(mounts.count, 0);
	fake_machine(state);
	fake(state, "proc/self/mountinfo",
		"1 2 0:1 / /dev/huge2 rw - hugetlbfs none rw,pagesize=2M\n"
		"1 2 0:2 / /dev/huge1 rw - hugetlbfs none rw,pagesize=1024M,size=4G\n"
		"1 2 0:3 / /dev/usual rw - hugetlbfs none rw\n"
		"1 2 0:3 / /dev/usual rw - hugetlbfs none rw\n"
		"1 2 0:4 / /dev/missing rw - hugetlbfs none rw,pagesize=2M\n"
		"1 2 0:5 / /dev/other rw - tmpfs none rw,pagesize=2M\n");
	fake(state, "dev/huge2/x", "");
	fake(state, "dev/huge1/x", "");
	fake(state, "dev/usual/x", "");
	fake(state, "dev/other/x", "");
	kvp_huge_mounts(root, KVP_HUGE_LEN_2M, &mounts);
	assert_int_equal(mounts.count, 2);
	assert_string_equal(mounts.dir[0], "/dev/huge2");
	assert_string_equal(mounts.dir[1], "/dev/usual");
	kvp_huge_mounts(root, KVP_HUGE_LEN_1G, &mounts);
	assert_int_equal(mounts.count, 1);
	assert_string_equal(mounts.dir[0], "/dev/huge1");
	kvp_huge_mounts(root, 0, &mounts);
	assert_int_equal(mounts.count, 3);
}

static void
huge_transparent(void **state)
{
	const char *root = fake_root(state);
	struct kvp_huge_thp thp;

	kvp_huge_thp(root, true, &thp); /* a kernel without */
	assert_false(thp.allowed);
	fake(state, THP "shmem_enabled", "always within_size [advise] never deny force\n");
	fake(state, THP "hpage_pmd_size", "33554432\n");
	fake(state, "proc/self/mountinfo", "1 2 0:1 / /dev/shm rw - tmpfs none rw,size=4k\n");
	kvp_huge_thp(root, false, &thp);
	assert_true(thp.allowed);
	assert_int_equal(thp.page_len, 32u << 20);
	kvp_huge_thp(root, true, &thp); /* the mount decides */
	assert_false(thp.allowed);
	assert_string_equal(thp.said, "/dev/shm is mounted huge=never");
	fake(state, "proc/self/mountinfo",
		"1 2 0:1 / /dev/shm rw - tmpfs none rw\n"
		"1 2 0:2 / /dev/shm rw - tmpfs none rw,huge=within_size\n");
	kvp_huge_thp(root, true, &thp);
	assert_true(thp.allowed);
	fake(state, THP "shmem_enabled", "always within_size advise never [deny] force\n");
	kvp_huge_thp(root, true, &thp);
	assert_false(thp.allowed);
	assert_non_null(strstr(thp.said, "shmem_enabled says deny"));
	fake(state, THP "shmem_enabled", "always within_size advise never deny [force]\n");
	kvp_huge_thp(root, true, &thp);
	assert_true(thp.allowed);
	fake(state, THP "shmem_enabled", "always within_size advise [never] deny force\n");
	kvp_huge_thp(root, false, &thp);
	assert_false(thp.allowed);
}

static void
numa_nodes(void **state)
{
	const char *root = fake_root(state);
	char online[16];

	kvp_numa_online(root, online, sizeof(online));
	assert_string_equal(online, "none");
	assert_false(kvp_numa_exists(root, 0));
	assert_true(kvp_numa_available(root, 1) == UINT64_MAX);
	fake(state, "sys/devices/system/node/online", "0-1\n");
	fake(state, "sys/devices/system/node/node1/meminfo", "Node 1 MemFree:  12 kB\n");
	kvp_numa_online(root, online, sizeof(online));
	assert_string_equal(online, "0-1");
	assert_true(kvp_numa_exists(root, 1));
	assert_false(kvp_numa_exists(root, 2));
	assert_false(kvp_numa_exists(root, -1));
	assert_false(kvp_numa_exists(root, KVP_NUMA_NODE_MAX + 1));
	assert_int_equal(kvp_numa_available(root, 1), 12288);
}

static void
why_lines(void **state)
{
	struct kvp_mem_why why = {0};
	char text[KVP_MEM_TEXT_LEN];

	(void)state;
	for (int i = 0; i < KVP_MEM_WHY_COUNT + 3; i++) {
		kvp_mem_why_add(&why, "%d%0400d", i, 7);
	}
	assert_int_equal(why.count, KVP_MEM_WHY_COUNT);
	assert_int_equal(strlen(why.line[0]), KVP_MEM_WHY_LEN - 1);
	assert_string_equal(kvp_mem_len_text(KVP_HUGE_LEN_2M, text), "2 MiB");
	assert_string_equal(kvp_mem_len_text(16ull << 40, text), "16384 GiB");
	assert_string_equal(kvp_mem_len_text(0, text), "0 bytes");
	assert_string_equal(kvp_mem_len_text(4097, text), "4097 bytes");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mounts_parse),
		hal_test_in_dir(cgroup_none),
		hal_test_in_dir(cgroup_v2_walks_up),
		hal_test_in_dir(cgroup_v2_namespaces),
		hal_test_in_dir(cgroup_v1),
		hal_test_in_dir(limit_of_machine),
		hal_test_in_dir(limit_room),
		cmocka_unit_test(size_parse),
		hal_test_in_dir(huge_pools),
		hal_test_in_dir(huge_finds_mounts),
		hal_test_in_dir(huge_transparent),
		hal_test_in_dir(numa_nodes),
		cmocka_unit_test(why_lines),
	};

	return cmocka_run_group_tests_name("mem_limit", tests, NULL, NULL);
}
