#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ctl_test.py KVPOOLCTL - kvpoolctl without daemons: usage, addresses, what it says on errors."""
import json
import os
import socket
import subprocess
import sys
import unittest

CTL = sys.argv[1] if len(sys.argv) > 1 else "kvpoolctl"


def ctl(*args, **env):
    keep = {k: v for k, v in os.environ.items() if not k.startswith("KVP_")}
    return subprocess.run([CTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=30, check=False, env={**keep, **env})


def closed_port():
    """A socket bound to a port on which nobody listens."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, "127.0.0.1:%d" % sock.getsockname()[1]


class Ctl(unittest.TestCase):
    def test_help_and_version(self):
        self.assertRegex(ctl("--version").stdout, r"^kvpoolctl \d+\.\d+\.\d+\nlibkvpool \d+\.")
        self.assertIn("status", ctl("--help").stdout)
        for args in (["--help"], ["--version"], ["status", "--help"], ["usage", "--help"],
                     ["leases", "--help"]):
            done = ctl(*args)
            self.assertEqual((done.returncode, done.stderr), (0, ""), args)

    def test_usage(self):
        for args in ([], ["frobnicate"], ["status", "--bogus"], ["status", "--addr"],
                     ["status", "--addr", "nohost"], ["status", "--addr=[::1"],
                     ["status", "--timeout=0", "a:1"], ["status", "--timeout=-1", "a:1"],
                     ["status", "--timeout=1s", "a:1"], ["status", "--addr=a:70000"],
                     ["status", "--addr=a:0"], ["status", "--addr=unix:/" + 200 * "x"],
                     ["status", "--json=yes", "a:1"], ["status", "--addr=,"],
                     ["usage", "--purge"], ["usage", "a:1", "b:1"], ["usage", "--node=[::1"],
                     ["leases", "--purge=1"], ["leases", "--timeout=0"]):
            done = ctl(*args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), args)
            self.assertTrue(done.stderr.startswith("kvpoolctl: "), args)

    def test_unreachable(self):
        sock, addr = closed_port()
        with sock:
            done = ctl("status", "--addr", addr, "--node=unix:/nonexistent/x.sock")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(addr + ": ", done.stderr)
        self.assertIn("ECONNREFUSED", done.stderr)
        self.assertIn("unix:/nonexistent/x.sock: ", done.stderr)
        self.assertIn("ENOENT", done.stderr)
        self.assertEqual(done.stderr.count("  next: "), 2)

    def test_usage_and_leases_unreachable(self):
        sock, addr = closed_port()
        with sock:
            for args in (["usage", addr], ["leases", "--node", addr], ["leases", "--purge", addr]):
                done = ctl(*args)
                self.assertEqual((done.returncode, done.stdout), (1, ""), args)
                self.assertIn(addr + ": ", done.stderr)
                self.assertIn("  next: ", done.stderr)

    def test_json(self):
        sock, addr = closed_port()
        with sock:
            done = ctl("status", "--json", addr + "," + addr)
        self.assertEqual(done.returncode, 1)
        rows = json.loads(done.stdout)
        self.assertEqual([row["addr"] for row in rows], [addr, addr])
        self.assertEqual(rows[0]["error"], "ECONNREFUSED")
        self.assertFalse(rows[0]["ok"])
        self.assertEqual(rows[0]["status"], {})

    def test_environment(self):
        sock, addr = closed_port()
        with sock:
            done = ctl("status", KVP_META=addr, KVP_NODE="none")
            self.assertEqual(done.returncode, 1)
            self.assertIn(addr, done.stderr)
            self.assertEqual(ctl("status", KVP_META="[::1").returncode, 2)

    def test_output_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([CTL, "--help"], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
