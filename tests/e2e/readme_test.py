#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_test.py: the README's C example builds against the installed library and works."""
import os
import re
import subprocess

from cluster import BIN, Cluster


def main():
    text = open("README.md", encoding="utf-8").read()
    (example,) = re.findall(r"```c\n(.*?)```", text, re.S)
    with Cluster() as cluster:
        meta = cluster.meta()
        node = cluster.node("node", [meta], ["--store.dram=64MiB"])
        prefix = os.path.join(cluster.dir, "prefix")
        subprocess.run(["cmake", "--install", os.path.dirname(BIN), "--prefix", prefix],
                       check=True, capture_output=True)
        source = os.path.join(cluster.dir, "example.c")
        with open(source, "w", encoding="utf-8") as out:
            out.write(example)
        pc = [os.path.join(root, "") for root, _, names in os.walk(prefix)
              if "kvpool.pc" in names]
        env = dict(os.environ, PKG_CONFIG_PATH=":".join(pc))
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "kvpool"], env=env, check=True,
                               capture_output=True, text=True).stdout.split()
        program = os.path.join(cluster.dir, "example")
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program, source]
                       + flags, check=True)
        libs = [os.path.dirname(os.path.join(root, n)) for root, _, names in os.walk(prefix)
                for n in names if n.startswith("libkvpool.so")]
        env = dict(os.environ, LD_LIBRARY_PATH=libs[0], KVP_META=meta.address(),
                   KVP_NODE=node.address())
        done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=20,
                              check=False)
        assert done.returncode == 0, done
        assert "16 of 16" in done.stdout, done.stdout


main()
