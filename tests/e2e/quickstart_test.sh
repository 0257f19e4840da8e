#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart_test.sh: the README's first command, as a user runs it a second time.
set -euo pipefail
out=$(./quickstart.sh 2>&1) || { echo "$out"; exit 1; }
echo "$out"
[ "$(tail -n 1 <<<"$out")" = "quickstart: ok, wrong bytes 0" ]
! ls /dev/shm | grep -q kvpool-quickstart
