#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay_test.py: kvpool-perf replay against a real cluster: its hit ratio is the trace's own, its
JSON is whole, its exit status tells."""
import gzip
import json
import os
import subprocess

from cluster import BIN, Cluster

TRACE = "bench/traces/conversation.jsonl.gz"
REQUESTS = 500


def replay(cluster, *options, expect=0):
    argv = [os.path.join(BIN, "kvpool-perf"), "replay", "--trace=" + TRACE,
            "--requests=%d" % REQUESTS] + list(options)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, (argv, done.returncode, done.stdout, done.stderr)
    return done


def infinite_hit_ratio():
    """What a cache without limit hits: longest known prefix, in tokens."""
    seen, hit, total = set(), 0, 0
    with gzip.open(TRACE, "rt") as lines:
        for _, line in zip(range(REQUESTS), lines):
            row = json.loads(line)
            blocks = 0
            for block in row["hash_ids"]:
                if block not in seen:
                    break
                blocks += 1
            seen.update(row["hash_ids"])
            hit += min(512 * blocks, row["input_length"])
            total += row["input_length"]
    return hit / total


def main():
    with Cluster() as cluster:
        meta = cluster.meta()
        nodes = [cluster.node(n, [meta], ["--store.dram=96MiB", "--store.slots=24576",
                                         "--index_wait=10s"])
                 for n in ("a", "b")]
        out = os.path.join(cluster.dir, "out.json")
        common = ["--meta=" + meta.address(), "--node=" + nodes[0].address()]
        replay(cluster, "--decode-node=" + nodes[1].address(), "--decode-transport=ofi",
               "--out_json", "--out_json_file=" + out, *common)
        results = json.load(open(out, encoding="utf-8"))["results"]
        assert results["requests"] == REQUESTS and results["wrong_bytes"] == 0, results
        assert abs(results["hit_token_ratio"] - infinite_hit_ratio()) < 1e-9, (
            results["hit_token_ratio"], infinite_hit_ratio())
        blocks = results["blocks"]
        assert blocks["decode_missed"] == 0 and blocks["decode_hit"] > 0, blocks
        assert results["read"]["remote"]["blocks"] == blocks["decode_hit"], results
        assert results["read"]["local"]["blocks"] == blocks["hit"], results
        # Again, all of it is there; two clients at a time.
        replay(cluster, "--clients=2", "--out_json", "--out_json_file=" + out, *common)
        results = json.load(open(out, encoding="utf-8"))["results"]
        assert results["blocks"]["put"] == 0 and results["hit_token_ratio"] == 1, results
        # A cluster that is not there: an error with a reason, not a hit rate of zero.
        done = replay(cluster, "--requests=1", "--deadline=200ms", "--meta=127.0.0.1:1",
                      "--node=127.0.0.1:1", expect=3)
        assert "metadata server" in done.stdout, done.stdout
    done = subprocess.run([os.path.join(BIN, "kvpool-perf"), "replay", "--trase=x"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "trase" in done.stderr, done


main()
