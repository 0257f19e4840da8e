#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf_test.py: kvpool-perf bw and lat through the pool: the transport really used, right bytes and
wrong ones, pool against raw, and nothing of it left in the pool."""
import json
import mmap
import os
import signal
import subprocess

from cluster import BIN, Cluster, wait_for

REGION = 8 << 20


class Perf:
    def __init__(self, cluster, meta, node):
        self.out = os.path.join(cluster.dir, "out.json")
        self.common = ["--meta=" + meta.address(), "--node=" + node.address(), "-F",
                       "--region=%d" % REGION, "--out_json_file=" + self.out]

    def argv(self, test, *args):
        return [os.path.join(BIN, "kvpool-perf"), test, *self.common, *args]

    def run(self, *args, expect=0):
        done = subprocess.run(self.argv(*args), capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == expect, (args, done.returncode, done.stdout, done.stderr)
        return self.root()

    def root(self):
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)


def check_left(node):
    wait_for("the blocks to be gone", lambda: node.metrics()["kvpool_node_blocks"] == 0)


def check_modes(perf, node):
    """Each operation by each transport, all bytes checked."""
    for transport in ("shm", "ofi"):
        for op in ("get", "put"):
            root = perf.run("bw", "--op=" + op, "--transport=" + transport, "-n", "400", "-t", "16",
                            "--batch=4", "--segments=3", "--data_validation")
            result, = root["results"]
            assert result["via"] == "pool" and result["transport"] == transport, result
            assert result["wrong_bytes"] == 0 and result["n_iterations"] == 400, result
            assert result["units_in_flight"] == 4 and result["BW_average"] > 0, result
            check_left(node)
    root = perf.run("lat", "--op=get", "-s", "4096", "-D", "0.4")
    result, = root["results"]
    assert result["transport"] == "shm" and result["n_iterations"] > 0, result
    assert 0 < result["t_min"] <= result["percentile_99.99"] <= result["t_max"], result
    perf.run("bw", "-e", "--op=get", "--transport=ofi", "-n", "200", "--data_validation")
    root = perf.run("bw", "--op=get", "-a", "-n", "8", "-t", "4", "--region=1MiB")
    assert [r["MsgSize"] for r in root["results"]] == [2 ** i for i in range(1, 24)], root
    check_left(node)


def check_both(perf, node):
    for op in ("get", "put"):
        root = perf.run("bw", "--op=" + op, "--via=both", "--transport=shm", "-n", "500", "-t", "8")
        assert [r["via"] for r in root["results"]] == ["raw", "pool"], root
        assert [r["n_iterations"] for r in root["results"]] == [500, 500], root
        ratio, = root["pool_to_raw"]
        assert ratio["rounds"] == 5 and 0 < ratio["low"] <= ratio["median"] <= ratio["high"], ratio
    check_left(node)


def check_wrong_bytes(perf, cluster):
    """Bytes in the arena change under gets that do not verify: the tool sees it."""
    arena, = [n for n in cluster.shared_memory() if n.endswith("-arena")]
    client = subprocess.Popen(
        perf.argv("bw", "--op=get", "-n", "1000000000", "--verify=off", "--data_validation"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open("/dev/shm/" + arena, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        def flip():
            """One bit in each 64 KiB that has something, while the client reads them."""
            for at in range(100, len(data), 65536):
                if data[at] or data[at + 1]:
                    data[at] ^= 1
            return client.poll() is not None or flips.append(1) or len(flips) > 50
        flips = []
        wait_for("some flips", flip)
    client.send_signal(signal.SIGINT)
    assert client.wait(timeout=20) == 4, client.returncode
    assert perf.root()["status"] == 4, perf.root()


def main():
    with Cluster() as cluster:
        meta = cluster.meta()
        node = cluster.node("a", [meta], ["--store.dram=64MiB", "--store.slots=8192"])
        perf = Perf(cluster, meta, node)
        check_modes(perf, node)
        check_both(perf, node)
        check_wrong_bytes(perf, cluster)
        check_left(node)
        root = perf.run("bw", "--op=get", "-s", "1MiB", "--region=128MiB",
                        expect=3)  # more than there is
        assert "--region" in root["error"] and root["results"] == [], root
        check_left(node)
        root = perf.run("bw", "--op=get", "-w", "99999999", "-n", "10", expect=1)
        assert root["status"] == 1 and len(root["results"]) == 1, root
        perf.common[:2] = ["--meta=127.0.0.1:1", "--node=127.0.0.1:1", "--deadline=300ms"]
        root = perf.run("lat", "--op=get", expect=3)
        assert root["status"] == 3 and root["error"], root


main()
