#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py - golden vectors of namespaces and chain keys (docs/keys.md), by hashlib alone.

Writes namespace.json and chain.json beside itself. --check writes nothing and exits 1 when one
of them is stale. It shares nothing with client/namespace.c and client/chain.c on purpose: the
vectors are what those are held against, so when this script and they disagree, one is wrong.
"""
import hashlib
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Tag and width of each field: 0 is a string, else the bytes of a number.
FIELDS = [
    (1, "model", 0), (2, "revision", 0), (3, "dtype", 0), (4, "layout", 0), (5, "adapter", 0),
    (6, "tenant", 0), (7, "hash", 0), (8, "block_tokens", 4), (9, "layer_first", 4),
    (10, "layer_count", 4), (11, "head_first", 4), (12, "head_count", 4), (13, "tp_size", 4),
    (14, "tp_rank", 4), (15, "pp_size", 4), (16, "pp_rank", 4), (17, "group", 4),
    (18, "epoch", 8),
]


def canonical(desc):
    """The bytes that are hashed for a descriptor."""
    out = b"kvpool-namespace-1"
    for tag, name, width in FIELDS:
        value = desc.get(name)
        if not value:
            continue
        raw = value.to_bytes(width, "little") if width else value.encode("utf-8")
        out += struct.pack("<BH", tag, len(raw)) + raw
    return out


def digest(desc):
    return hashlib.sha256(canonical(desc)).digest()[:16]


def chain(namespace, parent, tokens, block_tokens):
    """Keys of the full blocks of tokens."""
    keys = []
    key = parent or bytes(16)
    for first in range(0, len(tokens) - block_tokens + 1, block_tokens):
        block = tokens[first:first + block_tokens]
        packed = struct.pack("<%dI" % block_tokens, *block)
        key = hashlib.sha256(b"kvpool-chain-1" + namespace + key + packed).digest()[:16]
        keys.append(key)
    return keys


LLAMA = {
    "model": "meta-llama/Llama-3.1-8B-Instruct", "revision": "0e9e39f", "dtype": "bfloat16",
    "layout": "vllm-nhd-2", "hash": "kvpool-chain-1", "block_tokens": 16, "layer_count": 32,
    "head_count": 8, "tp_size": 1, "pp_size": 1,
}

DESCRIPTORS = {
    "model only": {"model": "m"},
    "llama": LLAMA,
    "llama, epoch 1": dict(LLAMA, epoch=1),
    "llama, tp rank 1 of 2": dict(LLAMA, tp_size=2, tp_rank=1, head_first=4, head_count=4),
    "llama, adapter": dict(LLAMA, adapter="sql-lora-3"),
    "llama, tenant": dict(LLAMA, tenant="acme"),
    # The same characters in another field are another namespace.
    "revision": {"model": "m", "revision": "ab"},
    "dtype": {"model": "m", "dtype": "ab"},
    # Where one string ends and the next begins counts.
    "split 1": {"model": "ab", "revision": "c"},
    "split 2": {"model": "a", "revision": "bc"},
    # Composed and decomposed characters stay what they are.
    "composed": {"model": "mod\u00e8le/\u6a21\u578b/\U0001f999"},
    "decomposed": {"model": "mode\u0300le/\u6a21\u578b/\U0001f999"},
    "every field": {
        "model": "model", "revision": "revision", "dtype": "fp8_e4m3", "layout": "layout",
        "adapter": "adapter", "tenant": "tenant", "hash": "hash", "block_tokens": 64,
        "layer_first": 1, "layer_count": 2, "head_first": 3, "head_count": 4, "tp_size": 5,
        "tp_rank": 6, "pp_size": 7, "pp_rank": 8, "group": 9, "epoch": 10,
    },
    "largest": {
        "model": "m" * 1023, "revision": "r" * 1023, "dtype": "d" * 1023, "layout": "l" * 1023,
        "adapter": "a" * 1023, "tenant": "t" * 1023, "hash": "\u00e9" * 511,
        "block_tokens": 2**32 - 1, "layer_first": 2**32 - 1, "layer_count": 2**32 - 1,
        "head_first": 2**32 - 1, "head_count": 2**32 - 1, "tp_size": 2**32 - 1,
        "tp_rank": 2**32 - 1, "pp_size": 2**32 - 1, "pp_rank": 2**32 - 1, "group": 2**32 - 1,
        "epoch": 2**64 - 1,
    },
}

# Name, descriptor, parent, tokens, tokens a block.
CHAINS = [
    ("one block", {"model": "m"}, None, list(range(16)), 16),
    ("four blocks and a part", LLAMA, None, [128000] + list(range(7, 7 + 72)), 16),
    ("goes on after the second of those", LLAMA, "four blocks and a part",
     ([128000] + list(range(7, 7 + 72)))[32:], 16),
    ("the same tokens, epoch 1", dict(LLAMA, epoch=1), None,
     [128000] + list(range(7, 7 + 72)), 16),
    ("blocks of one token", {"model": "m"}, None, [0, 0, 1, 2**32 - 1], 1),
    ("less than a block", {"model": "m"}, None, [1, 2, 3], 4),
    ("blocks of 256", {"model": "m"}, None, [i * 2654435761 % 2**32 for i in range(512)], 256),
]


def namespaces():
    rows = []
    for name, desc in DESCRIPTORS.items():
        # Numbers beyond 63 bits go as text: not every JSON reader takes them.
        shown = {k: str(v) if k == "epoch" else v for k, v in desc.items()}
        rows.append({"name": name, "desc": shown,
                     "canonical": canonical(desc).hex() if len(canonical(desc)) < 512 else None,
                     "digest": digest(desc).hex(),
                     "family": digest(dict(desc, epoch=0)).hex()})
    return {"about": "see docs/keys.md; written by make.py", "vectors": rows}


def chains():
    rows = []
    keys_of = {}
    for name, desc, after, tokens, block_tokens in CHAINS:
        parent = keys_of[after][1] if after else None
        keys_of[name] = chain(digest(desc), parent, tokens, block_tokens)
        rows.append({"name": name, "namespace": digest(desc).hex(),
                     "parent": parent.hex() if parent else None, "block_tokens": block_tokens,
                     "tokens": tokens, "keys": [key.hex() for key in keys_of[name]]})
    return {"about": "see docs/keys.md; written by make.py", "vectors": rows}


def render(table):
    """One line a vector, so that a changed one shows as one changed line."""
    lines = ",\n".join("  " + json.dumps(row) for row in table["vectors"])
    return '{\n "about": %s,\n "vectors": [\n%s\n ]\n}\n' % (json.dumps(table["about"]), lines)


def main():
    stale = 0
    for name, table in (("namespace.json", namespaces()), ("chain.json", chains())):
        path = os.path.join(HERE, name)
        text = render(table)
        if sys.argv[1:] == ["--check"]:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    print("%s:1: stale, run tests/golden/make.py" % path)
                    stale = 1
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
