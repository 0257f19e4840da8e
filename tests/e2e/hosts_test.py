#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hosts_test.py: three hosts in network namespaces joined by veth. 2,000 blocks of mixed sizes put
on A are read on B and C over libfabric, and on A through shared memory; every byte is checked."""
import os
import subprocess

from cluster import Cluster, Host, skip

SIZES = "65536,65536,65536,1124352,65536,65536,1124352,65536,65536,4194304"
BLOCKS, ROUND = 2000, 200


def ip(*args):
    subprocess.run(["ip"] + list(args), check=True, capture_output=True)


class NsHost(Host):
    """A namespace whose loopback has the host's own address, as a routed host would."""

    def __init__(self, name, number):
        self.ns = "kvp-%d-%s" % (os.getpid(), name)
        self.number = number
        ip("netns", "add", self.ns)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", self.addr() + "/32", "dev", "lo")

    def prefix(self):
        return ["ip", "netns", "exec", self.ns]

    def addr(self):
        return "10.77.0.%d" % self.number

    def run(self, *argv):
        return subprocess.run(self.prefix() + list(argv), check=True, capture_output=True,
                              text=True).stdout

    def fetch(self, url):
        return self.run("curl", "-sf", url)

    def join(self, other):
        """A wire between the two, and a route to each other's address."""
        wire = "10.77.%d." % other.number
        a, b = "kvp%da" % other.number, "kvp%db" % other.number
        ip("-n", self.ns, "link", "add", a, "type", "veth", "peer", "name", b, "netns", other.ns)
        for host, device, mine, peer in ((self, a, "1", "2"), (other, b, "2", "1")):
            host.run("ip", "addr", "add", wire + mine + "/24", "dev", device)
            host.run("ip", "link", "set", device, "up")
        self.run("ip", "route", "add", other.addr(), "via", wire + "2", "src", self.addr())
        other.run("ip", "route", "add", "10.77.0.0/24", "via", wire + "1", "src", other.addr())

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.ns], check=False)


def check(counts, blocks, medium):
    assert counts["ok"] == blocks, counts
    assert counts["wrong"] == 0 and counts["old"] == 0 and counts["unindexed"] == 0, counts
    assert counts[medium] == blocks, counts


def play(cluster, hosts):
    a, b, c = hosts
    # As on a real machine, a node's shared memory is for its own host only.
    meta = cluster.meta(host=a)
    # A slow machine must not make a put UNINDEXED: then a get need not find it yet.
    options = ["--store.dram=320MiB", "--store.quarantine=20ms", "--index_wait=10s"]
    nodes = [cluster.node(n, [meta], options, host=h)
             for n, h in (("a", a), ("b", b), ("c", c))]
    total = dict(ok=0, remote=0, local=0)
    for first in range(0, BLOCKS, ROUND):
        common = dict(first=first, count=ROUND, sizes=SIZES)
        put = cluster.blocks("put", meta, nodes[0], host=a, number=1, transport="shm", **common)
        check(put, ROUND, "local")
        for host, node, transport, medium in (
                (b, nodes[1], "ofi", "remote"), (c, nodes[2], "ofi", "remote"),
                (a, nodes[0], "shm", "local")):
            got = cluster.blocks("get", meta, node, host=host, number=1, transport=transport,
                                 **common)
            check(got, ROUND, medium)
            for key in total:
                total[key] += got[key]
    assert total == dict(ok=3 * BLOCKS, remote=2 * BLOCKS, local=BLOCKS), total
    # The writer over the wire, too, and a version that must not be taken for the older one.
    common = dict(first=BLOCKS - ROUND, count=ROUND, sizes=SIZES)
    cluster.blocks("delete", meta, nodes[1], host=b, **common)
    check(cluster.blocks("put", meta, nodes[0].address(), host=b, number=2, writer=2,
                         transport="ofi", **common), ROUND, "remote")
    check(cluster.blocks("get", meta, nodes[2], host=c, number=2, transport="ofi", **common),
          ROUND, "remote")
    seen = nodes[0].metrics()
    assert seen["kvpool_node_evicted_total"] > 0, "the arena was meant to be too small"
    print("%(ok)d gets right: %(remote)d over ofi, %(local)d by shm; wrong bytes 0" % total)


def main():
    if os.geteuid() != 0:
        skip("needs root, to make network namespaces")
    hosts = []
    try:
        for number, name in enumerate("abc", 1):
            hosts.append(NsHost(name, number))
        hosts[0].run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        hosts[0].join(hosts[1])
        hosts[0].join(hosts[2])
        with Cluster() as cluster:
            play(cluster, hosts)
    finally:
        for host in hosts:
            host.remove()


main()
