#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""badinput_test.py: bad input gets a clear error, and nothing is lost: options, ports, unreachable
servers, garbage and truncated frames on every control port."""
import os
import random
import socket
import struct
import subprocess
import time

from cluster import BIN, Cluster, wait_for


def refuse(program, *options, words, status):
    done = subprocess.run([os.path.join(BIN, program)] + list(options), capture_output=True,
                          text=True, timeout=10, check=False)
    assert done.returncode == status, (program, options, done)
    reason = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in reason, "%s %s: no '%s' in: %s" % (program, options, word, done.stderr)


def test_options(cluster):
    path = os.path.join(cluster.dir, "bad.yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write("name: x\nstore:\n  dramm: 64GiB\n")
    for program in ("kvpoold", "kvpool-meta"):
        refuse(program, "--no.such=1", words=["no.such"], status=2)
        refuse(program, "--config=" + path, words=[path + ":3", "store.dramm"], status=2)
        refuse(program, "--config=/nonexistent.yaml", words=["/nonexistent.yaml"], status=2)
    refuse("kvpoold", "--store.dram=64G", words=["store.dram", "64G"], status=2)
    refuse("kvpoold", "--store.dram=12", words=["store.dram", "12"], status=2)


def test_ports(cluster, meta, node):
    refuse("kvpool-meta", "--listen=" + meta.address(), "--local=", "--metrics.listen=",
           words=[meta.address(), "control", "in use"], status=1)
    common = ["--name=%s-x" % cluster.tag, "--local=", "--data_dir=%s/x" % cluster.dir,
              "--shm.listen=%s/x.sock" % cluster.dir, "--store.dram=16MiB"]
    refuse("kvpoold", "--listen=" + node.address(), "--ofi.listen=127.0.0.1:0",
           "--metrics.listen=", *common, words=[node.address(), "control", "in use"], status=1)
    refuse("kvpoold", "--listen=127.0.0.1:0", "--metrics.listen=" + node.address("metrics"),
           "--ofi.listen=127.0.0.1:0", *common,
           words=[node.address("metrics"), "metrics", "in use"], status=1)
    # A second owner of the same folder is refused by name.
    refuse("kvpoold", "--listen=127.0.0.1:0", "--metrics.listen=", "--ofi.listen=127.0.0.1:0",
           "--name=%s-y" % cluster.tag, "--local=", "--store.dram=16MiB",
           "--shm.listen=%s/y.sock" % cluster.dir, "--data_dir=%s/node" % cluster.dir,
           words=["%s/node" % cluster.dir, str(node.process.pid)], status=1)


def test_unreachable(cluster, node):
    """Nobody listens, and somebody listens who never answers: by the deadline, with a reason."""
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(8)
    nobody = socket.socket()
    nobody.bind(("127.0.0.1", 0))  # bound, not listening: refused

    class Fake:
        def __init__(self, sock):
            self.sock = sock

        def address(self):
            return "127.0.0.1:%d" % self.sock.getsockname()[1]

    for sock in (silent, nobody):
        start = time.monotonic()
        counts = cluster.blocks("get", Fake(sock), node, count=1, deadline="500ms")
        took = time.monotonic() - start
        assert counts["errors"] == 1 and counts["first_error"] == "KVP_E_META_DOWN", counts
        assert took < 2.0, "%.1f s" % took
    silent.close()
    nobody.close()


def attack(address, data, half_close=False):
    """Sends bytes; returns once the daemon closed the connection, or after a second."""
    sock = socket.socket(socket.AF_UNIX if "/" in address else socket.AF_INET)
    sock.settimeout(1)
    try:
        if "/" in address:
            sock.connect(address.replace("unix:", ""))
        else:
            host, port = address.rsplit(":", 1)
            sock.connect((host, int(port)))
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
        return "closed"
    except socket.timeout:
        return "open"
    except OSError:  # reset, broken pipe, no longer connected: by how far we came
        return "closed"
    finally:
        sock.close()


def frames(dice):
    """What somebody might send instead of a hello."""
    yield b""
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\x00" * 16
    yield b"\xff" * 64
    yield struct.pack("<IHBBIi", 0xffffffff, 1, 1, 0, 1, 0)
    yield struct.pack("<IHBBIi", 100, 1, 1, 0, 1, 0) + b"\x08"
    yield struct.pack("<IHBBIi", 4, 11, 1, 0, 1, 0) + b"\x08\x01\x10\x01"
    yield struct.pack("<IHBBIi", 4, 1, 1, 0, 1, 0) + b"\xff\xff\xff\xff"
    for _ in range(40):
        yield bytes(dice.getrandbits(8) for _ in range(dice.randrange(1, 400)))


def test_garbage(cluster, meta, node):
    dice = random.Random(20261130)
    cluster.blocks("put", meta, node, count=50, number=1)
    for daemon in (meta, node):
        before = daemon.metrics()
        rejects = [k for k in before if k.startswith("kvpool_rpc_rejects_total")]
        for what in ("control", "local"):
            for data in frames(dice):
                assert attack(daemon.address(what), data, half_close=True) == "closed", data
        after = daemon.metrics()
        grown = sum(after[k] - before[k] for k in rejects)
        assert grown >= 60, "rejects grew by %d only" % grown
        wait_for("connections to be gone", lambda d=daemon, b=before: d.metrics()[
            "kvpool_rpc_connections"] <= b["kvpool_rpc_connections"])
    counts = cluster.blocks("get", meta, node, count=50, number=1)
    assert counts["ok"] == 50 and counts["wrong"] == 0, counts


def test_data_ports(cluster, meta, node):
    """Garbage on the data ports harms nobody either."""
    dice = random.Random(7)
    for what in ("ofi", "shm"):
        for data in frames(dice):
            attack(node.address(what).replace("ofi://", ""), data, half_close=True)
    for transport in ("ofi", "shm"):
        counts = cluster.blocks("get", meta, node, count=50, number=1, transport=transport)
        assert counts["ok"] == 50 and counts["wrong"] == 0, counts


def main():
    with Cluster() as cluster:
        test_options(cluster)
        meta = cluster.meta()
        node = cluster.node("node", [meta], ["--store.dram=64MiB"])
        test_ports(cluster, meta, node)
        test_unreachable(cluster, node)
        test_garbage(cluster, meta, node)
        test_data_ports(cluster, meta, node)


main()
