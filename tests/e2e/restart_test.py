#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""restart_test.py: servers die and come back, in any order; nobody does anything by hand."""
from cluster import Cluster, wait_for


def found(cluster, meta, node, **options):
    counts = cluster.blocks("get", meta, node, count=40, number=1, **options)
    assert counts["wrong"] == 0 and counts["old"] == 0, counts
    return counts


def main():
    with Cluster() as cluster:
        meta = cluster.meta()
        port = meta.address()
        node = cluster.node("node", [meta], ["--store.dram=64MiB"])
        cluster.blocks("put", meta, node, count=40, number=1)
        # The metadata server forgets everything and is told again.
        meta.kill()
        meta.argv = [a if not a.startswith("--listen=") else "--listen=" + port for a in meta.argv]
        counts = cluster.blocks("put", meta, node, first=1000, count=3, number=1)
        assert counts["ok"] == 3 and counts["unindexed"] > 0, counts
        meta.start()
        wait_for("the node to announce again",
                 lambda: found(cluster, meta, node)["ok"] == 40)
        counts = cluster.blocks("get", meta, node, first=1000, count=3, number=1)
        assert counts["ok"] == 3, "what was put meanwhile is found: %s" % counts
        # The node dies and comes back with all it had.
        node.kill()
        node.start()
        wait_for("the node to announce", lambda: found(cluster, meta, node)["ok"] == 40)
        assert found(cluster, meta, node, transport="ofi")["ok"] == 40
        # It is stopped and comes back empty: misses, never anything else, and it is used again.
        node.stop()
        node.start()
        counts = found(cluster, meta, node)
        assert counts["miss"] == 40, counts
        counts = cluster.blocks("put", meta, node, count=40, number=1)
        assert counts["ok"] == 40, counts
        assert found(cluster, meta, node)["ok"] == 40


main()
