#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh [ctest options]   Installs what the tests need, builds, and runs everything. What cannot
# run here skips with its reason; a skip that tests/skips.txt does not list is a failure.
set -uo pipefail
cd "$(dirname "$0")"

./install-deps.sh test || exit 1
for preset in release debug tsan fuzz; do
	cmake --preset $preset >/dev/null || exit 1 # again: a package may have come meanwhile
	cmake --build --preset $preset | tail -n 1 || exit 1
done

exec tests/run.py "$@"
