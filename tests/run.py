#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [ctest options]: runs the tests of every build preset in one ctest, then checks its skips.

A skip is fine only if tests/skips.txt lists it. Exits with ctest's status, or 1 for such a skip.
"""
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
PRESETS = ["release", "debug", "tsan", "fuzz"]


def allowed_skips():
    lines = open(os.path.join(ROOT, "tests", "skips.txt"), encoding="utf-8").read().splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def main():
    built = [p for p in PRESETS if os.path.exists(os.path.join(BUILD, p, "CTestTestfile.cmake"))]
    with open(os.path.join(BUILD, "CTestTestfile.cmake"), "w", encoding="utf-8") as out:
        out.write("subdirs(%s)\n" % " ".join('"%s"' % p for p in built))
    report = os.path.join(BUILD, "tests.xml")
    status = subprocess.call(
        ["ctest", "--test-dir", BUILD, "-j2", "--output-on-failure", "--output-junit", report,
         "--no-tests=error"] + sys.argv[1:])
    skipped = {case.get("name") for case in ET.parse(report).iter("testcase")
               if case.get("status") == "notrun"}
    unlisted = sorted(skipped - allowed_skips())
    if unlisted:
        print("run.py: skipped, but not listed in tests/skips.txt: %s" % ", ".join(unlisted))
        return status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
