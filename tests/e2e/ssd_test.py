#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ssd_test.py: more blocks than memory holds; they come back from the SSD tier, also after a crash,
damaged files cost their own blocks only, and a full disk costs no service."""
import os
import subprocess
import tempfile
from cluster import Cluster, wait_for

MIB = 1 << 20
COUNT = 240  # of 128 KiB on average: 30 MiB, in 8 MiB of memory
SIZES = "65536,131072,196608"


def options(path, extra=()):
    return ["--store.dram=8MiB", "--ssd.path=" + path, "--ssd.size=64MiB",
            "--ssd.segment=8MiB", "--ssd.inflight=16MiB", "--ssd.free_floor=0",
            "--ssd.flush_interval=50ms",
            "--store.quarantine=20ms"] + list(extra)


def metric(node, name):
    return node.metrics()["kvpool_node_ssd_" + name]


def quiet(node):
    """Nothing is on its way to the disk any more."""
    wait_for("writes to end", lambda: metric(node, "queued_bytes") == 0)


def get(cluster, meta, node, **more):
    counts = cluster.blocks("get", meta, node, count=COUNT, number=1, sizes=SIZES, **more)
    assert counts["wrong"] == 0 and counts["old"] == 0, counts
    return counts


def put(cluster, meta, node, **more):
    counts = cluster.blocks("put", meta, node, count=COUNT, number=1, sizes=SIZES, **more)
    assert counts["errors"] == 0 and counts["ok"] + counts["exists"] == COUNT, counts


def test_tier(cluster, meta, engine):
    path = os.path.join(cluster.dir, "ssd-" + engine)
    node = cluster.node("node-" + engine, [meta], options(path, ["--ssd.engine=" + engine]))
    wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
    put(cluster, meta, node)
    quiet(node)
    lost = sum(v for k, v in node.metrics().items() if k.startswith("kvpool_node_ssd_dropped"))
    assert lost == 0, node.metrics()
    counts = get(cluster, meta, node)
    assert counts["ok"] == COUNT and counts["ssd"] > COUNT / 2, counts
    # By another transport too: the block comes out of memory, as always.
    counts = get(cluster, meta, node, transport="ofi")
    assert counts["ok"] == COUNT and counts["ssd"] > COUNT / 2, counts
    assert metric(node, "bad_checksums_total") == 0
    assert metric(node, "written_bytes_total") > 18 * MIB
    used = sum(os.stat(os.path.join(path, n)).st_blocks * 512 for n in os.listdir(path))
    total = metric(node, "bytes_total")
    assert abs(used - total) <= total / 20, (used, total)
    # Nothing is put twice: what the SSD has is not written again.
    written = metric(node, "writes_total")
    get(cluster, meta, node)
    quiet(node)
    assert metric(node, "writes_total") <= written + COUNT / 4, (written, node.metrics())
    return node, path


def test_crash(cluster, meta, node):
    blocks = metric(node, "blocks")
    node.kill()
    node.start()
    wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
    assert metric(node, "recovered_total") >= blocks - 1, (blocks, node.log())
    counts = wait_for("the metas to know", lambda: (
        lambda c: c if c["ok"] >= blocks - 1 else None)(get(cluster, meta, node)))
    assert counts["ssd"] >= blocks / 2 and counts["errors"] == 0, counts
    # A good stop keeps it as well.
    node.stop()
    node.start()
    wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
    wait_for("the metas to know", lambda: get(cluster, meta, node)["ok"] >= blocks - 1)


def test_crash_busy(cluster, meta, node):
    """Killed in the middle of puts, evictions and writes: what is left is right."""
    for first in range(20000, 20000 + 3 * COUNT, COUNT):
        before = metric(node, "writes_total")
        writer = subprocess.Popen(
            [os.environ["KVP_TEST_BLOCKS"], "put", "--meta=" + meta.address(),
             "--node=unix:%s/%s.sock" % (cluster.dir, node.name), "--first=%d" % first,
             "--count=%d" % COUNT, "--sizes=" + SIZES, "--number=1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("blocks to be written",
                 lambda b=before: metric(node, "writes_total") > b + 20)
        blocks = metric(node, "blocks")
        node.kill()
        node.start()
        wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
        assert metric(node, "recovered_total") >= blocks - 40, (blocks, node.log())
        writer.wait(timeout=60)
        quiet(node)
        counts = cluster.blocks("get", meta, node, first=first, count=COUNT, number=1, sizes=SIZES)
        assert counts["wrong"] == 0 and counts["old"] == 0 and counts["errors"] == 0, counts
        assert metric(node, "bad_checksums_total") == 0


def test_delete(cluster, meta, node):
    counts = cluster.blocks("delete", meta, node, count=10)
    assert counts["ok"] >= 9, counts
    counts = get(cluster, meta, node)
    assert counts["miss"] >= 10, counts
    node.kill()
    node.start()
    wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
    counts = cluster.blocks("get", meta, node, count=10, sizes=SIZES)
    assert counts["miss"] == 10, "deleted blocks do not come back: %s" % counts


def test_damage(cluster, meta, node, path):
    """One file of each kind of damage; the start never fails and no wrong byte comes."""
    before = metric(node, "blocks")
    node.stop()
    names = sorted(n for n in os.listdir(path) if n.startswith("segment"))
    with open(os.path.join(path, names[0]), "r+b") as file:  # flipped in the table
        file.seek(4096 + 40)
        byte = file.read(1)
        file.seek(4096 + 40)
        file.write(bytes([byte[0] ^ 1]))
    with open(os.path.join(path, names[1]), "r+b") as file:  # flipped all over the data
        for offset in range(MIB, 8 * MIB, 65536):
            file.seek(offset)
            file.write(b"\x5a" * 16)
    os.truncate(os.path.join(path, names[2]), 3 * MIB)
    with open(os.path.join(path, names[3]), "r+b") as file:  # foreign
        file.write(os.urandom(8192))
    os.unlink(os.path.join(path, names[4]))
    node.start()
    wait_for("the tier to serve", lambda: metric(node, "serving") == 1)
    assert metric(node, "damaged_total") >= 1, node.log()
    assert 0 < metric(node, "blocks") < before
    counts = get(cluster, meta, node)
    assert counts["errors"] == 0 and 0 < counts["ok"] < COUNT, counts
    assert metric(node, "bad_checksums_total") > 0
    put(cluster, meta, node)
    quiet(node)
    wait_for("everything to be there again", lambda: get(cluster, meta, node)["ok"] == COUNT)


def test_full_disk(cluster, meta):
    """A file system without room: the tier is off, the service goes on; then there is room."""
    path = tempfile.mkdtemp(dir=cluster.dir)
    if os.geteuid() != 0 or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "kvpool-e2e", path],
            capture_output=True, check=False).returncode != 0:
        print("skipped: a full disk needs a file system that only root can mount")
        return
    try:
        with open(os.path.join(path, "filler"), "wb") as file:
            file.write(bytes(60 * MIB))
        node = cluster.node("full", [meta], [
            "--store.dram=16MiB", "--ssd.path=" + path, "--ssd.size=32MiB",
            "--ssd.segment=8MiB", "--ssd.free_floor=8MiB"])
        assert metric(node, "serving") == 0
        put(cluster, meta, node, first=5000)
        counts = cluster.blocks("get", meta, node, first=5000, count=COUNT, sizes=SIZES)
        assert counts["wrong"] == 0 and counts["errors"] == 0 and counts["ok"] > 0, counts
        assert metric(node, "dropped_total{reason=\"off\"}") > 0
        os.unlink(os.path.join(path, "filler"))
        wait_for("the tier to come back", lambda: metric(node, "serving") == 1)
        put(cluster, meta, node, first=6000)
        quiet(node)
        assert metric(node, "writes_total") > 0
        node.stop()
    finally:
        subprocess.run(["umount", path], check=True)


def main():
    with Cluster() as cluster:
        meta = cluster.meta()
        node, path = test_tier(cluster, meta, "uring")
        node.stop()
        node, path = test_tier(cluster, meta, "threads")
        test_crash(cluster, meta, node)
        test_delete(cluster, meta, node)
        put(cluster, meta, node)
        quiet(node)
        test_damage(cluster, meta, node, path)
        test_crash_busy(cluster, meta, node)
        test_full_disk(cluster, meta)


main()
