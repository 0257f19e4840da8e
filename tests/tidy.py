#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py - the rules of the style guide that no compiler checks.

    tests/tidy.py [ROOT]        ROOT: the repository, the current folder by default

Checks who includes whom, lengths, calls that only one layer may make, mutable globals, licence
lines, a README in each folder, generated files that are stale, that each header compiles alone
(the public ones as C++ too), and the form (clang-format, where it is installed).
Prints FILE:LINE: MESSAGE for each breach; exits 1 if there is one.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # a check leaves nothing behind in the tree
import gen_errors  # noqa: E402

# A file under a prefix may include its own folder and what is listed: a folder with all in it, or
# one header. The first prefix that fits counts, so longer ones come first. "*" is one name.
LAYERS = [
    ("hal/base", []),
    ("hal/os", ["hal/base"]),
    ("hal/mem", ["hal/base", "hal/os"]),
    ("hal/*", ["hal/base", "hal/os", "hal/mem"]),
    ("transport/proto", ["hal"]),
    ("transport/rpc", ["hal", "transport/xport.h", "transport/proto"]),
    ("transport/http", ["hal"]),
    ("transport/*", ["hal", "transport/xport.h"]),  # a provider: never another one
    ("transport", ["hal", "transport"]),
    ("pool/store", ["hal", "transport/proto/slot.h"]),
    ("pool/node", ["hal", "transport", "pool/store", "pool/daemon.h"]),
    ("pool/meta", ["hal", "transport", "pool/daemon.h"]),
    ("pool/embed", ["hal", "transport", "pool", "client/include"]),
    ("pool", ["hal", "transport"]),
    ("client/include", []),
    ("client/ctl", ["client/include", "hal/base"]),
    ("client", ["hal", "transport", "client"]),
    ("bench", ["hal", "client/include", "transport/xport.h", "pool/store/evict.h"]),
    ("tests", ["hal", "transport", "pool", "client", "bench", "tests"]),
]
ROOTS = sorted({prefix.split("/")[0] for prefix, _ in LAYERS} | {"cmake"})
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 1000
README_LINES_MAX = 40
COLUMNS_MAX = 100
TAB = 8
SPDX = "SPDX-License-Identifier: Apache-2.0"
SOURCES = (".c", ".h", ".def", ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt")
README_FREE = {"client/include/kvpool", "cmake"}  # the first is installed as it is
CLANG_FORMAT_MAJOR = 14  # other versions format differently

INCLUDE = re.compile(r'#include (?:"([^"]+)"|<(kvpool/[^>]+)>)')
# Time, randomness and threads, so that simulation owns them; not x->random(), which is a hook.
HAL_ONLY = re.compile(r"(?<![\w.>])(clock_gettime|gettimeofday|time|s?rand|random|getrandom"
                      r"|pthread_create|sleep|usleep|nanosleep)\(")
SOCKETS = re.compile(r"(?<![\w.>])(socket|bind)\(")
STATIC = re.compile(r"\s*static\s+(?!inline\b)[^()]*?[\w\]]\s*(=|;|\{)")
GLOBAL = re.compile(r"(?!static\b|typedef\b|extern\b|return\b|goto\b)[A-Za-z_][\w\s*]*[\s*]\w+"
                    r"(\[[^\]]*\])*\s*(=[^=]|;)")
FORWARD = re.compile(r"(struct|union|enum)\s+\w+;")
NOT_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.S)


def fits(prefix, folder):
    """Is folder at or under prefix?"""
    want, have = prefix.split("/"), folder.split("/")
    return len(have) >= len(want) and all(w in ("*", h) for w, h in zip(want, have))


def may_include(folder, header):
    if os.path.dirname(header) == folder:
        return True
    for prefix, may in LAYERS:
        if fits(prefix, folder):
            own = "/".join(folder.split("/")[:prefix.count("/") + 1])
            return any(header == m or header.startswith(m + "/")
                       for m in may + ([own] if "/" in prefix else []))
    return True


def blank(match):
    """Texts and comments give way to nothing, line for line; an include's path stays."""
    text = match.group(0)
    return '""' if text[0] == '"' else "\n" * text.count("\n")


def check_includes(folder, lines):
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        header = found and (found.group(1) or "client/include/" + found.group(2))
        if header and not may_include(folder, header):
            yield number, "%s may not include %s" % (folder, header)
        if line.startswith("#include <assert.h>") and not folder.startswith("tests"):
            yield number, "assert() goes away in release: use hal/base/assert.h"


def check_calls(folder, code):
    for number, line in enumerate(code, 1):
        if not folder.startswith(("hal", "tests")) and HAL_ONLY.search(line):
            yield number, "only hal/ may call this: use hal/os"
        if not folder.startswith(("transport", "tests")) and SOCKETS.search(line):
            yield number, "only transport/ may open sockets"


def check_globals(path, folder, code):
    # A foreign library loaded at run time is a process's, not an instance's: *_lib.c keeps it.
    if folder.startswith("tests") or path.endswith("_lib.c"):
        return
    for number, line in enumerate(code, 1):
        if line.endswith("\\") or re.search(r"\bconst\b", line) or FORWARD.match(line):
            continue
        if STATIC.match(line) or GLOBAL.match(line):
            yield number, "a mutable global: several nodes and clients live in one process"


def check_functions(code):
    start = None
    for number, line in enumerate(code, 1):
        if line == "{":
            start = number
        elif line.startswith("}") and start is not None:
            if number - start - 1 > FUNCTION_LINES_MAX:
                yield start, "function body has %d lines, the limit is %d" % (
                    number - start - 1, FUNCTION_LINES_MAX)
            start = None


def check_form(lines):
    first = 1 if lines and lines[0].startswith("#!") else 0
    if SPDX not in (lines[first] if len(lines) > first else ""):
        yield first + 1, "the first line must be " + SPDX
    if len(lines) > FILE_LINES_MAX:
        yield 1, "file has %d lines, the limit is %d" % (len(lines), FILE_LINES_MAX)
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(TAB)) > COLUMNS_MAX:
            yield number, "line has more than %d columns" % COLUMNS_MAX


def check_file(path):
    folder = os.path.dirname(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    yield from check_form(lines)
    if path.endswith((".c", ".h", ".def")):
        code = NOT_CODE.sub(blank, text).splitlines()
        yield from check_includes(folder, lines)
        yield from check_calls(folder, code)
        yield from check_globals(path, folder, code)
        yield from check_functions(code)


def check_readme(folder):
    # One for a folder of tests may stand in the folder above it.
    places = [folder] + ([os.path.dirname(folder)] if folder.count("/") > 1 else [])
    for place in places if folder.startswith("tests") else [folder]:
        path = os.path.join(place, "README.md")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                count = len(file.read().splitlines())
            if count > README_LINES_MAX:
                yield path, "README has %d lines, the limit is %d" % (count, README_LINES_MAX)
            return
    yield os.path.join(folder, "README.md"), "missing: what is here, how to add one, its tests"


def run(command):
    """The lines a tool prints when it fails, else nothing."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    return done.stdout.splitlines() if done.returncode != 0 else []


def include_flags(generated):
    flags = ["-I.", "-Iclient/include", "-isystem", generated]
    if shutil.which("protoc-c") and os.path.exists("transport/proto/kvpool.proto"):
        out = os.path.join(generated, "transport/proto")
        os.makedirs(out)
        subprocess.run(["protoc-c", "--c_out=" + out, "-I", "transport/proto",
                        "transport/proto/kvpool.proto"], check=True)
    return flags


def check_headers(paths):
    """Each header compiles alone, those for users also as C++."""
    headers = [p for p in paths if p.endswith(".h")]
    public = [p for p in headers if p.startswith("client/include/")]
    warn = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    with tempfile.TemporaryDirectory() as generated:
        flags = include_flags(generated) + warn
        if headers:
            yield from run(["cc", "-std=gnu11", "-D_GNU_SOURCE", *flags, "-x", "c", *headers])
        if public and shutil.which("g++"):
            yield from run(["g++", "-std=c++11", *flags, "-x", "c++", *public])
        elif public:
            print("skipped: public headers as C++, g++ is not installed")


def check_clang_format(paths):
    found = ""
    if shutil.which("clang-format"):
        found = subprocess.run(["clang-format", "--version"], stdout=subprocess.PIPE, text=True,
                               check=False).stdout
    major = re.search(r"version (\d+)", found)
    if not major or int(major.group(1)) != CLANG_FORMAT_MAJOR:
        print("skipped: form, clang-format %d is not installed" % CLANG_FORMAT_MAJOR)
        return
    wrong = run(["clang-format", "--dry-run", "-Werror", *paths]) if paths else []
    for path in sorted({line.split(":")[0] for line in wrong if ": error:" in line}):
        yield "%s:1: not formatted, run clang-format -i" % path


def sources():
    found = [name for name in ("CMakeLists.txt",) if os.path.exists(name)]
    for root in ROOTS:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
            found += [os.path.join(folder, n) for n in sorted(names) if n.endswith(SOURCES)]
    return found


def breaches():
    paths = sources()
    for path in paths:
        for number, message in check_file(path):
            yield "%s:%d: %s" % (path, number, message)
    folders = {os.path.dirname(p) for p in paths if not p.endswith((".cmake", "CMakeLists.txt"))}
    for folder in sorted(folders - README_FREE):
        for path, message in check_readme(folder):
            yield "%s:1: %s" % (path, message)
    if os.path.exists(gen_errors.TABLE):
        for path in gen_errors.stale():
            yield "%s:1: stale, run tests/gen_errors.py" % path
    yield from check_headers(paths)
    yield from check_clang_format([p for p in paths if p.endswith((".c", ".h"))])


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    bad = 0
    for breach in breaches():
        print(breach)
        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
