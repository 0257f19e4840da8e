#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill_test.py: kvpoold is killed hard under load, half of the time at a chosen place in its code,
and started again; a client process lives through all of it. Every block whose put was acknowledged
and that was not evicted is a hit with the right bytes. Who may still write keeps its slots."""
import json
import os
import random
import signal
import struct
import subprocess
import time

from cluster import BIN, Cluster, wait_for

NIGHTLY = os.environ.get("KVP_TEST_NIGHTLY") == "1"
KILLS = 200 if NIGHTLY else 40
POINTS = ["offer", "publish", "commit", "evict", "release"]
SEED = int(os.environ.get("KVP_TEST_SEED", "20250101"))
FREE, WRITING, VALID, EVICTED = range(4)


class Survivor:
    def __init__(self, cluster, meta, node, name, **options):
        self.cluster, self.name = cluster, name
        argv = [os.environ["KVP_TEST_SURVIVOR"], "--meta=" + meta.address(),
                "--node=" + node.address("local")]
        argv += ["--%s=%s" % (k, v) for k, v in options.items()]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def send(self, line):
        self.process.stdin.write(line + "\n")

    def ask(self, line):
        self.send(line)
        answer = self.process.stdout.readline()
        assert answer, "the survivor ended with %s" % self.process.poll()
        return json.loads(answer)

    def pause(self):
        counts = self.ask("pause")
        assert counts["wrong"] == 0, counts
        return counts

    def acked(self):
        path = os.path.join(self.cluster.dir, self.name + ".acked")
        assert self.ask("acked " + path)["ok"]
        return {int(line) for line in open(path, encoding="ascii")}

    def check(self, numbers, in_step=True):
        """All of them must be hits; errors only for as long as it has no connection, misses only
        while the node tells its meta what it has."""
        path = os.path.join(self.cluster.dir, self.name + ".check")
        with open(path, "w", encoding="ascii") as out:
            out.write("".join("%d\n" % n for n in sorted(numbers)))
        end = time.monotonic() + 20
        while True:
            got = self.ask("check " + path)
            assert got["wrong"] == 0, got
            assert got["miss"] == 0 or not in_step, "%s of %d" % (got, len(numbers))
            if got["errors"] == 0 and got["miss"] == 0:
                assert got["hit"] == len(numbers), got
                return got
            assert time.monotonic() < end, got

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0


def object_path(cluster, node, what):
    return "/dev/shm/kvpool-%s-%s-%s" % (cluster.tag, node.name, what)


def entries(cluster, node):
    """The slot table as it is: (number of the block, length, offset, word)."""
    table = open(object_path(cluster, node, "table"), "rb").read()
    for at in range(0, len(table), 128):
        key, lens, off, word = struct.unpack_from("<16x64sQQQ", table, at)
        if word & 15 != FREE and key.startswith(b"block-"):
            yield int(key.rstrip(b"\0")[6:]), lens & (1 << 56) - 1, off, word


def valid(cluster, node):
    return {number for number, _, _, word in entries(cluster, node) if word & 15 == VALID}


def in_step(node):
    wait_for("the meta to be in step", lambda: node.metrics()["kvpool_node_metas_live"] == 1)


def restart(node, env=None):
    begin = time.monotonic()
    node.start(env)
    in_step(node)
    return begin


def commits(node):
    return node.metrics()["kvpool_node_commits_total"]


def kill_under_load(node, rng):
    start, some = commits(node), rng.randint(1, 200)
    wait_for("puts", lambda: commits(node) >= start + some)
    time.sleep(rng.random() / 100)
    node.kill()


def kill_at_point(node, survivor, point, count):
    node.kill()
    node.start({"KVP_TEST_FAULT": "%s:%d" % (point, count)})
    survivor.send("load")
    wait_for("the death at %s" % point, lambda: node.process.poll() is not None)
    assert node.process.returncode == -signal.SIGKILL, node.process.returncode


def test_kills(cluster, meta, options, kills, evicting):
    rng = random.Random(SEED)
    name = "evicting" if evicting else "roomy"
    node = cluster.node(name, [meta], options)
    survivor = Survivor(cluster, meta, node, name,
                        sizes="4096,65536,100000,300000" if evicting else "4096,20000")
    # The same over the network, which only reads.
    reader = None if evicting else Survivor(
        cluster, meta, node, name + "-ofi", transport="ofi", sizes="4096,20000", deadline="3s")
    kept, at_points, slowest = 0, 0, 0
    for i in range(kills):
        if i % 2 == 0:
            survivor.send("load")
            kill_under_load(node, rng)
        else:
            point = POINTS[i // 2 % len(POINTS)] if evicting else POINTS[i // 2 % 3]
            kill_at_point(node, survivor, point, rng.randint(1, 40))
            at_points += 1
        survivor.pause()
        must = survivor.acked()
        if evicting:
            must &= valid(cluster, node)
        begin = restart(node)
        if must:
            slowest = max(slowest, survivor.check(must)["first_hit"] - begin)
        if must and reader:
            reader.check(rng.sample(sorted(must), min(len(must), 100)))
        kept += len(must)
    counts = survivor.pause()
    assert counts["puts"] > 0 and counts["gets"] > 0, counts
    if evicting:
        assert counts["misses"] > 0, "nothing was evicted: %s" % counts
    print("%s: %d kills, %d of them at points; %d of %d blocks checked were hits; "
          "first hit after start at most %.3f s; %s" % (
              name, kills, at_points, kept, kept, slowest, counts))
    survivor.close()
    if reader:
        reader.close()
    node.stop()


def overlaps(cluster, node, held):
    """Blocks that lie, or will lie, where a frozen writer may write."""
    return [e for e in entries(cluster, node) if e[3] & 15 in (WRITING, VALID) and any(
        e[2] < off + length and off < e[2] + e[1] for _, length, off, _ in held)]


def freeze_midway(cluster, node, writer):
    """Stops the writer while it holds grants; returns those."""
    writer.send("load")
    for _ in range(2000):
        time.sleep(0.01)
        writer.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)  # what it has sent arrives and is answered
        held = [e for e in entries(cluster, node) if e[3] & 15 == WRITING]
        if held:
            return held
        writer.process.send_signal(signal.SIGCONT)
    raise AssertionError("never stopped with a grant")


def test_frozen_writer(cluster, meta):
    node = cluster.node("frozen", [meta], [
        "--store.dram=128MiB", "--transports=shm", "--store.quarantine=20ms"])
    writer = Survivor(cluster, meta, node, "writer", sizes=4 << 20, deadline="5s")
    other = Survivor(cluster, meta, node, "other", sizes="65536,300000", first=1000000)
    held = freeze_midway(cluster, node, writer)
    for _ in range(2):
        node.kill()
        restart(node)
        assert node.metrics()["kvpool_node_slots_lost"] == len(held)
        other.send("load")
        wait_for("evictions", lambda: node.metrics()["kvpool_node_evicted_total"] > 500)
        other.pause()
        assert not overlaps(cluster, node, held), "a frozen writer's slot was given away"
        assert node.metrics()["kvpool_node_slots_lost"] == len(held)
    writer.process.send_signal(signal.SIGCONT)
    writer.pause()
    wait_for("the slots to return", lambda: node.metrics()["kvpool_node_slots_lost"] == 0)
    words = {word >> 4 for _, _, _, word in held}
    assert not [e for e in entries(cluster, node) if e[3] >> 4 in words and e[3] & 15 == VALID], \
        "a commit was accepted that was begun before the restart"
    for survivor in (writer, other):
        survivor.check(survivor.acked() & valid(cluster, node))
    print("frozen writer: %d slots stayed reserved over two restarts" % len(held))
    writer.close()
    other.close()
    locks = [n for n in os.listdir("/dev/shm") if "%s-frozen-session" % cluster.tag in n]
    wait_for("locks to go", lambda: not [n for n in locks if os.path.exists("/dev/shm/" + n)])
    node.stop()


def test_many_slots(cluster, meta):
    slots = 1000000 if NIGHTLY else 100000
    count = 60000
    node = cluster.node("many", [meta], [
        "--store.dram=250MiB", "--store.slots=%d" % slots, "--transports=shm"])
    cluster.blocks("put", meta, node, count=count, sizes=4096, number=1)
    survivor = Survivor(cluster, meta, node, "many", sizes=4096)
    survivor.check(range(100))
    node.kill()
    begin = time.monotonic()
    node.start()
    got = survivor.check(range(count - 100, count), in_step=False)
    took = got["first_hit"] - begin
    print("%d slots, %d blocks: 100 of 100 are hits %.3f s after the start of the process" % (
        slots, count, took))
    assert took < 1, took
    in_step(node)
    survivor.check(range(0, count, 7))
    survivor.close()
    node.stop()


def damage(path, offsets):
    with open(path, "r+b") as file:
        for offset in offsets:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 0xff]))


def test_swap_and_damage(cluster, meta):
    """A binary is swapped: SIGTERM and a start. Then each file is damaged in turn: at most what
    was damaged is lost, with one line, and the node starts and serves."""
    count = 200
    options = ["--store.dram=32MiB", "--transports=shm", "--store.keep=true"]
    node = cluster.node("swap", [meta], options)
    argv = list(node.argv)
    survivor = Survivor(cluster, meta, node, "swap")

    def put():
        got = cluster.blocks("put", meta, node, count=count, number=1)
        assert got["ok"] + got["exists"] == count, got

    def dropped(words):
        said = node.log()[len(before):]
        assert [line for line in said.splitlines() if "dropped: " + words in line], said
        assert node.metrics()["kvpool_node_blocks_recovered"] == 0
        put()

    put()
    node.stop()
    restart(node)
    survivor.check(range(count))
    # A second owner is refused by name, and disturbs nothing.
    twin = subprocess.run(
        [a for a in argv if not a.startswith(("--data_dir", "--ready"))] +
        ["--data_dir=%s/twin" % cluster.dir], stderr=subprocess.PIPE, text=True, check=False)
    assert twin.returncode == 1 and "process %d" % node.process.pid in twin.stderr, twin.stderr
    survivor.check(range(count))
    # Entries of the table: those blocks and no others.
    node.kill()
    slots = range(10)
    assert len(valid(cluster, node)) == count
    damage(object_path(cluster, node, "table"), [slot * 128 + 20 for slot in slots])
    restart(node)
    assert node.metrics()["kvpool_node_blocks_recovered"] == count - len(slots)
    survivor.check(valid(cluster, node))
    put()
    # A payload: found by the scrub.
    node.kill()
    number, _, off, _ = next(e for e in entries(cluster, node) if e[3] & 15 == VALID)
    damage(object_path(cluster, node, "arena"), [off + 1000])
    restart(node)
    wait_for("the scrub", lambda: node.metrics()["kvpool_node_corrupt_total"] == 1)
    survivor.check(set(range(count)) - {number})
    put()
    # One copy of the head: nothing is lost. Both, other versions and sizes: all of it.
    for where, offsets in (("head", [0, 2048]), ("head", [8, 2056])):
        before = node.log()
        node.kill()
        damage(object_path(cluster, node, where), offsets[:1])
        restart(node)
        assert node.metrics()["kvpool_node_blocks_recovered"] in (0, count)
        put()
        before = node.log()
        node.kill()
        damage(object_path(cluster, node, where), offsets)
        restart(node)
        dropped("their format" if offsets[0] == 8 else "")
    for what in ("table", "arena", "head"):
        before = node.log()
        node.kill()
        os.truncate(object_path(cluster, node, what), 4096)
        restart(node)
        dropped("")
    before = node.log()
    node.kill()
    os.unlink(object_path(cluster, node, "table"))
    restart(node)
    dropped("")
    for change, words in ((["--store.dram=16MiB"], "store.dram"), ([], "store.dram"),
                          (["--data_dir=%s/elsewhere" % cluster.dir], "they are another node's")):
        before = node.log()
        node.stop()
        node.argv = argv + change
        restart(node)
        dropped(words)
    survivor.close()
    node.argv = argv + ["--store.keep=false"]
    node.stop()
    node.start()
    node.stop()


def main():
    assert os.path.exists(os.path.join(BIN, "kvpoold"))
    print("KVP_TEST_SEED=%d" % SEED)
    with Cluster() as cluster:
        meta = cluster.meta()
        test_swap_and_damage(cluster, meta)
        test_frozen_writer(cluster, meta)
        test_many_slots(cluster, meta)
        test_kills(cluster, meta, ["--store.dram=250MiB", "--store.slots=40000",
                                   "--transports=shm,ofi"], KILLS // 4, False)
        test_kills(cluster, meta, ["--store.dram=16MiB", "--transports=shm", "--store.low_water=0",
                                   "--store.quarantine=20ms"], KILLS - KILLS // 4, True)


if __name__ == "__main__":
    main()
