#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abi.py - what users of the library rely on. One check a run; exits 77 when it cannot run here.

    symbols   the library exports what the map names and the headers declare KVP_API, no more
    headers   each public header compiles alone, as pedantic C11 and C++17
    structs   a struct that carries its size carries it first, and says so in every release
    install   installed to an empty prefix, a program built through pkg-config runs
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
PROGRAM = """\
#include <kvpool/admin.h>
#include <kvpool/kvpool.h>
#include <stdio.h>

int
main(void)
{
	struct kvp_namespace_desc desc = {.struct_size = sizeof(desc), .model = "m"};
	struct kvp_namespace ns;

	if (kvp_namespace_make(&desc, &ns) != 0) {
		return 1;
	}
	return printf("%s\\n", kvp_version()) < 0;
}
"""


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def need(program):
    if not shutil.which(program):
        skip(program + " is not installed")


def run(command, **more):
    """Stdout of a command that must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)
    if done.returncode != 0:
        sys.exit("%s\nexit status %d:\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def headers(args):
    found = sorted(glob.glob(os.path.join(args.source, "client/include/kvpool/*.h")))
    if not found:
        sys.exit("no public headers")
    return found


def code_of(path):
    """A file without its comments."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.S)


def declared(args):
    names = set()
    for path in headers(args):
        names |= set(re.findall(r"^KVP_API\b[^;(]*?\b(kvp_\w+)\s*\(", code_of(path), re.M))
    return names


def mapped(args):
    """Names of the map's global parts. Its local part must be everything else."""
    text = re.sub(r"#[^\n]*", "", code_of(os.path.join(args.source, "client/libkvpool.map")))
    if not re.search(r"\blocal:\s*\*;", text):
        sys.exit("client/libkvpool.map: no 'local: *;'")
    return set(re.findall(r"^\s*(?:global:\s*)?(kvp_\w+);", text, re.M))


def exported(args):
    need("nm")
    names = set()
    for line in run(["nm", "-D", "--defined-only", args.library]).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version's own name
            names.add(name.split("@")[0])
    return names


def differ(one, what_one, other, what_other):
    for name in sorted(one - other):
        print("%s: in %s, not in %s" % (name, what_one, what_other))
    for name in sorted(other - one):
        print("%s: in %s, not in %s" % (name, what_other, what_one))
    return one != other


def check_symbols(args):
    in_map = mapped(args)
    bad = differ(declared(args), "the headers", in_map, "the map")
    bad |= differ(exported(args), "the library", in_map, "the map")
    if len(in_map) < 5:
        sys.exit("only %d names found: is the map still read right?" % len(in_map))
    return bad


def check_headers(args):
    flags = ["-I" + os.path.join(args.source, "client/include"), "-fsyntax-only"] + STRICT
    for path in headers(args):
        run([args.cc, "-std=c11", *flags, "-x", "c", path])
    if not shutil.which("g++"):
        print("without C++: g++ is not installed")
        return False
    for path in headers(args):
        run(["g++", "-std=c++17", *flags, "-x", "c++", path])
    return False


def check_structs(args):
    bad = False
    sized = 0
    for path in headers(args):
        for name, body in re.findall(r"struct (kvp_\w+) \{(.*?)\n\};", code_of(path), re.S):
            fields = [field.strip() for field in body.split(";") if field.strip()]
            if not any(re.search(r"\bstruct_size$", field) for field in fields):
                if name.endswith(("_options", "_desc", "_stats")):
                    print("struct %s: may grow, and has no struct_size" % name)
                    bad = True
                continue
            sized += 1
            if not re.fullmatch(r"size_t\s+struct_size", fields[0]):
                print("struct %s: struct_size must be a size_t and come first" % name)
                bad = True
    if sized == 0:
        sys.exit("no struct with a struct_size found: are the headers still read right?")
    return bad


def check_install(args):
    need("pkg-config")
    with tempfile.TemporaryDirectory() as prefix:
        run([args.cmake, "--install", args.build, "--prefix", prefix])
        found = glob.glob(prefix + "/**/pkgconfig/*.pc", recursive=True)
        if len(found) != 1:
            sys.exit("expected one .pc file, got %s" % found)
        module = os.path.basename(found[0])[:-3]
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(found[0]))
        flags = run(["pkg-config", "--cflags", "--libs", module], env=env).split()
        if not any(flag.startswith("-I" + prefix) for flag in flags):
            sys.exit("the headers are not found under the prefix: %s" % flags)
        source = os.path.join(prefix, "program.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        program = os.path.join(prefix, "program")
        run([args.cc, "-std=c11", *STRICT, source, "-o", program, *flags])
        libdir = os.path.dirname(os.path.dirname(found[0]))
        said = run([program], env=dict(os.environ, LD_LIBRARY_PATH=libdir)).strip()
        version = run(["pkg-config", "--modversion", module], env=env).strip()
        if said != version:
            sys.exit("kvp_version() says '%s', pkg-config '%s'" % (said, version))
        for name in ("kvpoold", "kvpool-meta", "kvpoolctl"):
            path = os.path.join(prefix, "bin", name)
            if not os.path.exists(path):
                sys.exit("not installed: bin/" + name)
            if version not in run([path, "--version"], env=dict(os.environ,
                                                                LD_LIBRARY_PATH=libdir)):
                sys.exit("%s --version does not say %s" % (name, version))
    return False


CHECKS = {"symbols": check_symbols, "headers": check_headers, "structs": check_structs,
          "install": check_install}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("check", choices=sorted(CHECKS))
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--library", required=True, help="libkvpool.so")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cmake", default="cmake")
    args = parser.parse_args()
    return 1 if CHECKS[args.check](args) else 0


if __name__ == "__main__":
    sys.exit(main())
