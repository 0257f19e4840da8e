#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_config.py BIN - writes docs/config.md from the --help of the daemons in the folder BIN.

Run from the repository root, after an option has changed. --check, behind BIN, writes nothing and
exits 1 when the page is stale.
"""
import os
import re
import subprocess
import sys

PAGE = "docs/config.md"
PROGRAMS = [
    ("kvpoold", "/etc/kvpool/kvpoold.yaml"),
    ("kvpool-meta", "/etc/kvpool/kvpool-meta.yaml"),
]
OPTION = re.compile(r"^  --([a-z0-9_.-]+)=(\S+)(?:   (\S+))?   default (.*)\n      (.*)$", re.M)

HEAD = """\
# Configuration

Generated from the programs' `--help`: change the option tables, then run
`tests/gen_config.py BUILD/bin`.

An option is its dotted path. `store.dram` is

- `--store.dram=64GiB` on the command line,
- `KVP_STORE_DRAM=64GiB` in the environment (upper case, `.` and `-` become `_`),
- `store.dram: 64GiB`, or nested `store:` `dram: 64GiB`, in the YAML file of `--config FILE`.

The command line wins over the environment, the environment over the file, the file over the
default. Without `--config` the program's file below is read if it exists. `--print-config` prints
every option with its value and where it came from, as a file that `--config` takes.

Nothing is guessed: an unknown option, a key that comes twice in a file, a number out of range or
without its unit ends the program with status 2 and one line that names the source, the key, the
value and what would be accepted. A `KVP_*` variable that is no option of the program counts as
unknown too.

SIZE: bytes, `4096`, `64KiB`, `64MiB`, `64GiB`, `1TiB`. TIME: `100ms`, `5s`, `2min`. Addresses:
`host:port`, `10.0.0.1:7490`, `[::1]:7490`; port 0 takes any free one, which `ready-file` tells.
"""

TAIL = """
## The library

Options are those of `struct kvp_client_options` (`kvpool.h`). Where they are `NULL`, it takes from
the environment

| variable | meaning | default |
|---|---|---|
| `KVP_META` | metadata servers, comma separated | `unix:/run/kvpool/kvpool-meta.sock` |
| `KVP_NODE` | the home node, where puts go; `none`: no puts | `unix:/run/kvpool/kvpoold.sock` |

`kvpoolctl` takes the same two; `kvpoolctl status --help` has its options.
"""


def cell(text):
    return text.replace("|", "\\|")


def section(bin_dir, program, file):
    done = subprocess.run([os.path.join(bin_dir, program), "--help"], stdout=subprocess.PIPE,
                          text=True, check=True, env={})
    rows = OPTION.findall(done.stdout)
    if len(rows) != len(re.findall(r"^  --[a-z0-9_.-]+=", done.stdout, re.M)):
        sys.exit("%s --help: an option is not written as this script reads it" % program)
    lines = ["| `%s` | %s | %s | %s |" % (
        path, cell(kind + (" " + limits if limits else "")),
        "" if default == "empty" else "`%s`" % cell(default), cell(text))
        for path, kind, limits, default, text in rows]
    return "\n## %s\n\nReads `%s`.\n\n| option | takes | default | |\n|---|---|---|---|\n%s\n" % (
        program, file, "\n".join(lines))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text = HEAD + "".join(section(sys.argv[1], *row) for row in PROGRAMS) + TAIL
    if sys.argv[2:] == ["--check"]:
        with open(PAGE, encoding="utf-8") as file:
            if file.read() != text:
                print("%s:1: stale, run tests/gen_config.py %s" % (PAGE, sys.argv[1]))
                return 1
        return 0
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
