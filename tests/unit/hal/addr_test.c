/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr_test.c - which texts are addresses, and how they are written back.
 */
#include "hal/base/addr.h"
#include "tests/unit/hal/hal_test.h"

#include <errno.h>

static void
addr_accepts(void **state)
{
	static const struct {
		const char *text;
		int port_default;
		const char *formatted;
	} rows[] = {
		{"10.0.0.1:7490", -1, "10.0.0.1:7490"},
		{"10.0.0.1", 7490, "10.0.0.1:7490"},
		{"0.0.0.0:0", -1, "0.0.0.0:0"},
		{"host-1.example_a.org:65535", -1, "host-1.example_a.org:65535"},
		{"localhost", 0, "localhost:0"},
		{"3com.example", 1, "3com.example:1"},
		{"tcp://db8:1", -1, "db8:1"},
		{"[::1]:7490", -1, "[::1]:7490"},
		{"[fe80::1%eth0]:1", -1, "[fe80::1%eth0]:1"},
		{"[::]", 7490, "[::]:7490"},
		{"tcp://[2001:db8::5]:80", -1, "[2001:db8::5]:80"},
		{"::1", 7490, "[::1]:7490"},
		{"::", 7490, "[::]:7490"},
		{"fe80::1%eth0", 7490, "[fe80::1%eth0]:7490"},
		{"1:2:3:4:5:6:7:8", 9, "[1:2:3:4:5:6:7:8]:9"},
		{"2001:db8::abcd:ef01", 9, "[2001:db8::abcd:ef01]:9"},
		{"unix:/run/kvpoold.sock", -1, "unix:/run/kvpoold.sock"},
		{"/run/kvpoold.sock", 7490, "unix:/run/kvpoold.sock"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char buf[KVP_ADDR_LEN_MAX + 16];
		struct kvp_addr addr;
		struct kvp_addr again;

		print_message("%s\n", rows[i].text);
		assert_int_equal(kvp_addr_parse(rows[i].text, rows[i].port_default, &addr), 0);
		kvp_addr_format(&addr, buf, sizeof(buf));
		assert_string_equal(buf, rows[i].formatted);
		assert_int_equal(kvp_addr_parse(buf, -1, &again), 0);
		assert_memory_equal(&addr, &again, sizeof(addr));
	}
}

static void
addr_refuses(void **state)
{
	static const char *const texts[] = {"", ":", ":7490", "host:", "host:x", "host:65536",
		"host:-1", "host: 1", "host:100000", " host:1", "ho st:1", "-host:1", "host-:1",
		"a..b:1", ".a:1", "a.:1", "h\xc3\xb6st:1", "10.0.0:1", "10.0.0.256:1", "1:1",
		"[::1", "[::1]x", "[::1]:", "[]:1", "[10.0.0.1]:1", "[::g]:1", "[fe80::1%]:1",
		"::1:7490", "2001:db8::5:6", "fe80::1:2", "1::2::3", "a:b:c", "unix:", "unix:rel",
		"tcp://", "tcp://unix:7490", "http://host:1", "*:1", "host/path:1"};
	struct kvp_addr addr = {.port = 77};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		print_message("%s\n", texts[i]);
		assert_int_equal(kvp_addr_parse(texts[i], 7490, &addr), -EINVAL);
		assert_int_equal(addr.port, 77); /* written only on success */
	}
	assert_int_equal(kvp_addr_parse("host", -1, &addr), -EINVAL);
	assert_int_equal(kvp_addr_parse("[::1]", -1, &addr), -EINVAL);
	assert_int_equal(kvp_addr_parse("::1", -1, &addr), -EINVAL);
}

static void
addr_lengths(void **state)
{
	char back[KVP_ADDR_LEN_MAX];
	struct kvp_addr addr;
	char text[400];

	(void)state;
	memset(text, 'a', sizeof(text));
	text[0] = '/';
	text[107] = '\0';
	assert_int_equal(kvp_addr_parse(text, 1, &addr), 0);
	text[107] = 'a';
	text[108] = '\0';
	assert_int_equal(kvp_addr_parse(text, 1, &addr), -ENAMETOOLONG);

	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(kvp_addr_parse(text, 1, &addr), -EINVAL);
	text[63] = '.';
	text[127] = '.';
	text[191] = '.';
	text[253] = '\0';
	assert_int_equal(kvp_addr_parse(text, 65535, &addr), 0);
	kvp_addr_format(&addr, back, sizeof(back)); /* the longest there is, and whole */
	assert_int_equal(kvp_addr_parse(back, -1, &addr), 0);
	assert_int_equal(addr.port, 65535);
	text[253] = 'a';
	text[254] = '\0';
	assert_int_equal(kvp_addr_parse(text, 1, &addr), -EINVAL);
	text[63] = 'a'; /* a label of 127 */
	text[253] = '\0';
	assert_int_equal(kvp_addr_parse(text, 1, &addr), -EINVAL);
}

static void
addr_wildcards(void **state)
{
	static const char *const wild[] = {"0.0.0.0:1", "[::]:1", "[0:0::0]:1"};
	static const char *const plain[] = {"127.0.0.1:1", "[::1]:1", "host:1", "unix:/::"};
	struct kvp_addr addr;

	(void)state;
	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		assert_int_equal(kvp_addr_parse(wild[i], -1, &addr), 0);
		assert_true(kvp_addr_is_wildcard(&addr));
	}
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		assert_int_equal(kvp_addr_parse(plain[i], -1, &addr), 0);
		assert_false(kvp_addr_is_wildcard(&addr));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addr_accepts),
		cmocka_unit_test(addr_refuses),
		cmocka_unit_test(addr_lengths),
		cmocka_unit_test(addr_wildcards),
	};

	return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
