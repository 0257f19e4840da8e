#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_errors.py - writes what is generated from hal/base/err.def. Run from the repository root.

client/include/kvpool/errors.h   the codes for users of the library
docs/errors.md                   the same as a table for operators
--check writes nothing and exits 1 when one of them is stale.
"""
import os
import re
import sys

TABLE = "hal/base/err.def"
ROW = re.compile(r'^KVP_ERR\((\w+), (\d+), (\w+), (\w+), "([^"]+)"\)$', re.M)

HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errors.h - the error codes of kvpool. Generated from {table}: change that.
 *
 * Functions return 0 or more on success, -errno, or a negated code from here. Numbers are never
 * reused. kvp_strerror() gives the text of any of them.
 */
#ifndef KVPOOL_ERRORS_H
#define KVPOOL_ERRORS_H

#ifndef KVP_ERR_ENUM
#define KVP_ERR_ENUM
enum kvp_err {{
{rows}
}};
#endif

#endif /* KVPOOL_ERRORS_H */
"""

PAGE = """\
# Errors

Generated from `{table}`: change that, then run `tests/gen_errors.py`.

A function returns 0 or more on success, `-errno`, or one of these numbers negated. Numbers below
4096 are errno values and mean what errno(3) says.

*Scope* is the largest thing the error says is broken: this operation, the connection, the node,
the pool, or the program itself (BUG: the caller or its configuration is wrong). *Retry* is what
the library does by itself: NEVER nothing; SAME the same call again, after a pause; RELOOKUP the
call again with a fresh location; RECONNECT the call again over a new connection.

| number | name | scope | retry | meaning |
|---|---|---|---|---|
{rows}
"""


def outputs():
    with open(TABLE, encoding="utf-8") as table:
        text = table.read()
    rows = ROW.findall(text)
    if len(rows) != len(re.findall(r"^KVP_ERR\(", text, re.M)):
        sys.exit(TABLE + ": a row is not KVP_ERR(NAME, number, SCOPE, RETRY, \"text\")")
    if len({row[0] for row in rows}) != len(rows) or len({row[1] for row in rows}) != len(rows):
        sys.exit(TABLE + ": a name or a number is used twice")
    width = max(len("KVP_E_%s = %s," % row[:2]) for row in rows)
    codes = ["\t%-*s /* %s */" % (width, "KVP_E_%s = %s," % (name, number), what)
             for name, number, _, _, what in rows]
    lines = ["| %s | `KVP_E_%s` | %s | %s | %s |" % (number, name, scope, retry, what)
             for name, number, scope, retry, what in rows]
    return {
        "client/include/kvpool/errors.h": HEADER.format(table=TABLE, rows="\n".join(codes)),
        "docs/errors.md": PAGE.format(table=TABLE, rows="\n".join(lines)),
    }


def stale():
    """The paths whose contents differ from what the table gives."""
    found = []
    for path, text in outputs().items():
        try:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    found.append(path)
        except FileNotFoundError:
            found.append(path)
    return found


def main():
    if sys.argv[1:] == ["--check"]:
        for path in stale():
            print("%s:1: stale, run tests/gen_errors.py" % path)
        return 1 if stale() else 0
    for path, text in outputs().items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
