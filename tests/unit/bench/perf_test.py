#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf_test.py KVPOOL_PERF - kvpool-perf bw and lat against servers of their own: the bytes of the
tables, the JSON, the exit status of each way to end."""
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PERF = sys.argv.pop(1) if len(sys.argv) > 1 else "kvpool-perf"
ENV = {k: v for k, v in os.environ.items() if not k.startswith("KVP_")}
# perftest's rows, field by field with their blanks.
BW_ROW = re.compile(r"^ (\d+) *    (\d+) *       (\d+\.\d\d) *            (\d+\.\d\d) *\t\t"
                    r"     (\d+\.\d{6})$", re.M)
LAT_ROW = re.compile(r"^ (\d+) * (\d+)          (\d+\.\d\d) *        (\d+\.\d\d) *      "
                     r"(\d+\.\d\d) *  \t       (\d+\.\d\d) *     \t(\d+\.\d\d) *\t\t(\d+\.\d\d) *"
                     r" \t\t(\d+\.\d\d) *$", re.M)
LAT_TIME_ROW = re.compile(r"^ (\d+) *       (\d+)            (\d+\.\d\d) *        (\d+\.\d\d) *$",
                          re.M)
DEADLINE_S = 20


def perf(*args, expect=0, stdin=None):
    done = subprocess.run([PERF, *args], input=stdin, capture_output=True, text=True, timeout=60,
                          check=False, env=ENV)
    assert done.returncode == expect, (args, done.returncode, done.stdout, done.stderr)
    return done


def awk(program, text):
    return subprocess.run(["awk", program], input=text, capture_output=True, text=True,
                          check=True).stdout.split()


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("waited %d s for %s" % (DEADLINE_S, what))


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="kvpool-perf-test.")
        self.out = os.path.join(self.dir.name, "out.json")
        self.addCleanup(self.dir.cleanup)

    def results(self):
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)

    def server(self, *args):
        """A server and its ticket."""
        ticket = os.path.join(self.dir.name, "ticket")
        server = subprocess.Popen([PERF, "bw", "--server", "--port=0", "--ticket-file=" + ticket,
                                   *args], stdout=subprocess.DEVNULL, env=ENV)
        self.addCleanup(lambda: (server.kill(), server.wait()))
        wait_for("the ticket", lambda: os.path.exists(ticket))
        return server, ticket


class Tables(Case):
    def test_bw(self):
        done = perf("bw", "-F", "-n", "200", "-s", "4096", "--transport=ofi", "-t", "8")
        self.assertIn("\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   "
                      "MsgRate[Mpps]\n 4096       200        ", done.stdout)
        row = BW_ROW.search(done.stdout)
        self.assertTrue(row, done.stdout)
        # The line that scripts have for ib_read_bw.
        rate = awk("/^ [0-9]/ {print $4, $5}", done.stdout)
        self.assertEqual(rate, [row.group(4), row.group(5)])
        self.assertAlmostEqual(float(row.group(4)), float(row.group(5)) * 4096 * 1e6 / 2 ** 20,
                               delta=float(row.group(4)) * 0.01 + 0.1)
        self.assertGreaterEqual(float(row.group(3)), float(row.group(4)))
        self.assertIn("Transport type : ofi", done.stdout)
        self.assertRegex(done.stdout, r"\n raw   ofi +4096 +\d")
        self.assertEqual(done.stderr, "")

    def test_bw_gbits_and_one_number(self):
        done = perf("bw", "-FN", "-n", "50", "--report_gbits", "--cpu_util")
        self.assertIn("BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]    CPU_Util[%]\n",
                      done.stdout)
        self.assertRegex(done.stdout, r"\n 65536      50               0\.00 .*\t    \d+\.\d\d\n")
        done = perf("bw", "-n", "50", "--output=bandwidth")
        self.assertRegex(done.stdout, r"^\d+\.\d+\n$")

    def test_lat(self):
        done = perf("lat", "-F", "-n", "300", "-s", "64", "--transport=shm")
        self.assertIn("\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
                      "t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% "
                      "percentile[usec] \n 64      300          ", done.stdout)
        row = LAT_ROW.search(done.stdout)
        self.assertTrue(row, done.stdout)
        self.assertEqual(awk("/^ [0-9]/ {print $1, $5, $8, $9}", done.stdout),
                         [row.group(1), row.group(5), row.group(8), row.group(9)])
        low, high, typical, mean = (float(row.group(i)) for i in (3, 4, 5, 6))
        self.assertTrue(low <= typical <= high and low <= mean <= high, row.groups())

    def test_lat_for_a_time(self):
        perf("lat", "-F", "-D", "0.2", "-s", "64", "--out_json_file=" + self.out)
        done = perf("lat", "-F", "-D", "0.2", "-s", "64")
        row = LAT_TIME_ROW.search(done.stdout)
        self.assertTrue(row, done.stdout)
        self.assertEqual(awk("/^ [0-9]/ {print $4}", done.stdout), [row.group(4)])
        result, = self.results()["results"]
        self.assertGreater(result["percentile_99.99"], 0)  # with percentiles all the same
        self.assertLessEqual(result["percentile_99.99"], result["t_max"])

    def test_histogram(self):
        done = perf("lat", "-FH", "-n", "20")
        listed = [float(v) for v in re.findall(r"^\d+, (\S+)$", done.stdout, re.M)]
        self.assertEqual(len(listed), 20)
        self.assertEqual(listed, sorted(listed))

    def test_sweep(self):
        done = perf("bw", "-aF", "-n", "5", "-t", "4", "--region=1MiB",
                    "--out_json_file=" + self.out)
        due = [2 ** i for i in range(1, 24)]
        self.assertEqual([int(r[0]) for r in BW_ROW.findall(done.stdout)], due)
        self.assertEqual([r["MsgSize"] for r in self.results()["results"]], due)


class Json(Case):
    def test_all_of_it(self):
        for test in ("bw", "lat"):
            perf(test, "-F", "-n", "100", "-s", "1000", "--transport=ofi", "--op=write", "-q", "2",
                 "--segments=3", "--batch=2", "-t", "8", "--data_validation",
                 "--out_json_file=" + self.out)
            root = self.results()
            self.assertEqual(set(root), {"test_info", "results", "pool_to_raw", "status", "error",
                                         "interrupted"})
            self.assertEqual((root["status"], root["error"]), (0, None))
            self.assertEqual(root["test_info"]["TX_depth"], 8)
            self.assertEqual(root["test_info"]["Number_of_qps"], 2)
            result, = root["results"]
            self.assertEqual(result["MsgSize"], 1000)
            self.assertEqual(result["n_iterations"], 100)
            self.assertEqual(result["transport"], "ofi")
            self.assertEqual(result["wrong_bytes"], 0)
            order = [result[k] for k in ("t_min", "percentile_50", "percentile_90",
                                         "percentile_99", "percentile_99.9", "percentile_99.99",
                                         "t_max")]
            self.assertEqual(order[1:], sorted(order[1:]))
            self.assertGreater(order[0], 0)
            self.assertGreaterEqual(result["BW_peak"], result["BW_average"])
            for key in ("MsgRate", "t_avg", "t_stdev", "cpu_s_per_GB", "server_cpu_s_per_GB"):
                self.assertGreaterEqual(result[key], 0)

    def test_on_errors(self):
        perf("bw", "-F", "--ticket=" + self.out + ".none", "--out_json_file=" + self.out, expect=3)
        root = self.results()
        self.assertEqual((root["status"], root["results"]), (3, []))
        self.assertIn("ticket", root["error"])
        perf("bw", "-F", "-n", "50", "-w", "1000000000", "--out_json_file=" + self.out, expect=1)
        self.assertEqual((self.results()["status"], len(self.results()["results"])), (1, 1))
        perf("bw", "-F", "-n", "5", "--out_json_file=" + self.dir.name + "/none/x", expect=3)


class Status(Case):
    def test_limits(self):
        self.assertIn("limit_bw", perf("bw", "-F", "-n", "50", "-w", "99999999", expect=1).stderr)
        self.assertIn("limit_msgrate", perf("bw", "-F", "-n", "50", "-y", "9999", expect=1).stderr)
        self.assertIn("limit_p99", perf("lat", "-F", "-n", "50", "--limit_p99=0.0001",
                                        expect=1).stderr)
        perf("bw", "-F", "-n", "50", "-w", "0.001", "-y", "0.0000001", "--limit_p99=60000000")

    def test_usage(self):
        for args, said in ((["--foo"], "foo"), (["-Z"], "-Z"), (["-s"], "--size"),
                           (["host"], "host"), (["--transport=x"], "accepted"),
                           (["-D", "2", "-f", "1"], "margin"),
                           (["--via=pool", "-q", "2"], "--qp"),
                           (["-s", "2", "--segments=3"], "--segments"),
                           (["--server", "--via=pool"], "--server"),
                           (["--output=latency"], "--output"), (["--op=move"], "op"),
                           (["--listen=0.0.0.0", "--server", "--transport=ofi"], "--listen"),
                           (["-q", "100", "-F"], "cannot comply with --qp")):
            self.assertIn(said, perf("bw", *args, expect=2).stderr)
        perf("bw", "--help")
        self.assertRegex(perf("lat", "-V").stdout, r"^kvpool-perf \d+\.\d+")

    def test_ticket(self):
        for ticket in ("kvpool-perf-1,ofi,127.0.0.1:1,00,00,00", "kvpool-perf-9,x", "",
                       "kvpool-perf-1,ofi,127.0.0.1:1,%s,00,00" % ("00" * 16),
                       "kvpool-perf-1,none,127.0.0.1:1,%s,00,00" % ("00" * 16)):
            if ticket:
                perf("bw", "-F", "--ticket=" + ticket, expect=3)
        perf("bw", "-F", "--ticket", "-", expect=3, stdin="nothing\n")

    def test_server(self):
        for transport in ("shm", "ofi"):
            server, ticket = self.server("--transport=" + transport)
            self.assertEqual(os.stat(ticket).st_mode & 0o777, 0o600)
            other = "ofi" if transport == "shm" else "shm"
            done = perf("bw", "-F", "--ticket=" + ticket, "--transport=" + other, expect=2)
            self.assertIn("--transport", done.stderr)
            with open(ticket, encoding="utf-8") as file:
                text = file.read()
            done = perf("bw", "-F", "--ticket=-", "-n", "20", stdin=text)
            self.assertIn("Transport type : " + transport, done.stdout)
            self.assertEqual(server.wait(timeout=DEADLINE_S), 0)  # with its client
            os.unlink(ticket)

    def test_server_told_to_stop(self):
        server, _ = self.server("--transport=shm")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=DEADLINE_S), 0)

    def test_server_dies(self):
        server, ticket = self.server("--transport=ofi")
        client = subprocess.Popen([PERF, "bw", "-F", "-D", "60", "--ticket=" + ticket,
                                   "--out_json_file=" + self.out], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, env=ENV)
        self.addCleanup(lambda: (client.kill(), client.wait()))
        wait_for("the data region", lambda: regions(server.pid, 64 << 20))
        server.kill()
        self.assertEqual(client.wait(timeout=DEADLINE_S), 3)
        self.assertEqual(self.results()["status"], 3)

    def test_interrupted(self):
        client = subprocess.Popen([PERF, "bw", "-F", "-n", "1000000000", "--transport=ofi",
                                   "--out_json_file=" + self.out], stdout=subprocess.PIPE,
                                  text=True, env=ENV)
        self.addCleanup(lambda: (client.kill(), client.wait()))
        # It computes: what it has used since it had its region is spent on measuring.
        wait_for("some work", lambda: cpu_ticks(client.pid) > 30)
        client.send_signal(signal.SIGINT)
        out, _ = client.communicate(timeout=DEADLINE_S)
        self.assertEqual(client.returncode, 0)
        self.assertTrue(BW_ROW.search(out), out)
        self.assertTrue(self.results()["interrupted"])


def cpu_ticks(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def regions(pid, length):
    """Descriptors of shared memory of this length that a process has."""
    found = []
    for name in os.listdir("/proc/%d/fd" % pid):
        path = "/proc/%d/fd/%s" % (pid, name)
        try:
            if "memfd:" in os.readlink(path) and os.stat(path).st_size == length:
                found.append(path)
        except OSError:
            pass
    return found


class Validation(Case):
    def test_flipped_bytes(self):
        """Reads of memory that somebody else changes meanwhile."""
        length = 1 << 20
        server, ticket = self.server("--transport=shm")
        client = subprocess.Popen(
            [PERF, "bw", "-F", "-n", "1000000000", "--data_validation", "--region=1MiB",
             "--ticket=" + ticket, "--out_json_file=" + self.out],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV)
        self.addCleanup(lambda: (client.kill(), client.wait()))
        path = wait_for("the data region", lambda: regions(server.pid, length))[0]
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), length) as data:
            wait_for("the server's bytes", lambda: data[length - 1] != 0)
            data[length // 2 + 77] ^= 0x10
            before = cpu_ticks(client.pid)
            wait_for("some work", lambda: cpu_ticks(client.pid) > before + 10)
        client.send_signal(signal.SIGINT)
        self.assertEqual(client.wait(timeout=DEADLINE_S), 4)
        self.assertEqual(server.wait(timeout=DEADLINE_S), 0)
        root = self.results()
        self.assertEqual(root["status"], 4)
        self.assertGreater(root["results"][0]["wrong_bytes"], 0)

    def test_right_bytes(self):
        for op in ("read", "write"):
            for transport in ("shm", "ofi"):
                done = perf("bw", "-F", "--op=" + op, "--transport=" + transport, "-n", "100",
                            "-s", "5000", "-t", "8", "--segments=7", "--data_validation")
                self.assertIn("check raw        5000 bytes: 0 wrong", done.stdout)
        perf("lat", "-F", "--data_validation", "-s", "2", "-n", "50", "--op=write")
        for transport in ("shm", "ofi"):
            perf("bw", "-eF", "--data_validation", "--transport=" + transport, "-n", "100")


if __name__ == "__main__":
    unittest.main()
