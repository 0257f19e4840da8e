#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inside.sh   The tests over a real RDMA stack: run by root where there are RDMA devices, in the
# guest or on a machine that has one (KVP_TEST_HOST: its address). Told by its environment:
# KVP_TEST_BIN, KVP_TEST_DIR (programs, tests), KVP_TEST_BLOCKS (the engine's stand-in).
set -uo pipefail
cd "$(dirname "$0")" || exit 1

export KVP_TEST_HOST=${KVP_TEST_HOST:-10.0.0.1} KVP_TEST_SLOW=1 PYTHONDONTWRITEBYTECODE=1
bad=0

packets() { # received so far, of all Soft-RoCE devices; nothing on other hardware
	cat /sys/class/infiniband/rxe*/ports/1/hw_counters/rcvd_pkts 2>/dev/null |
		awk '{ n += $1 } END { print n + 0 }'
}

# step NAME BYTES COMMAND...: BYTES is what it moves at least; a packet carries at most 4 KiB.
step() {
	local name=$1 bytes=$2 before after start=$SECONDS
	shift 2
	before=$(packets)
	if ! "$@"; then
		echo "$name: FAILED"
		bad=1
		return
	fi
	after=$(packets)
	echo "$name: ok, $((after - before)) packets in $((SECONDS - start)) s"
	if [ "$after" != 0 ] && [ $((after - before)) -lt $((bytes / 4096)) ]; then
		echo "$name: $bytes bytes need more packets than that: they went another way"
		bad=1
	fi
}

# data_large alone writes and reads 1, 4, 16 and 16 MiB.
step conformance $((2 * 37 << 20)) "$KVP_TEST_DIR/test_conform_xport_verbs"
# blocks_test.py says itself how many bytes it has moved.
step blocks $((3 * 2 * 64 * 16384)) ./blocks_test.py
exit $bad
