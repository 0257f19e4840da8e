#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""blocks_test.py - real daemons over verbs: two nodes, three clients that put and get one another's
blocks. Runs where inside.sh does."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from cluster import Cluster  # noqa: E402

COUNT, SIZE = 64, 16384


def check(counts, want):
    assert counts["ok"] == want and counts["wrong"] == 0 and counts["errors"] == 0, counts


def main():
    host = os.environ["KVP_TEST_HOST"]
    with Cluster() as cluster:
        meta = cluster.meta()
        options = ["--transports=verbs", "--verbs.listen=%s:0" % host, "--store.dram=64MiB"]
        nodes = [cluster.node(name, [meta], options) for name in ("node0", "node1")]
        common = {"transport": "verbs", "count": COUNT, "sizes": SIZE, "deadline": "20s"}
        for client, node in enumerate((nodes[0], nodes[1], nodes[0])):
            check(cluster.blocks("put", meta, node, first=client * COUNT, **common), COUNT)
        for client, node in enumerate((nodes[1], nodes[0], nodes[1])):
            check(cluster.blocks("get", meta, node, first=client * COUNT, **common), COUNT)
        print("blocks over verbs: %d put, %d got, wrong bytes 0" % (3 * COUNT, 3 * COUNT))


if __name__ == "__main__":
    main()
