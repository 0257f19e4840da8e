#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verbs_test.sh   Runs inside.sh in a virtual machine with Soft-RoCE; again when it did not boot.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

dir=$KVP_TEST_VM_DIR
./build.sh "$dir" || exit $?
status=125
for attempt in 1 2; do
	KVP_VM_SHARE=$(mktemp -d "$dir/share.XXXXXX") || exit 1
	export KVP_VM_SHARE
	KVP_VM_TIMEOUT=195 ./guest.sh "$dir" ./inside.sh
	status=$?
	rm -rf "$KVP_VM_SHARE"
	if [ $status != 125 ]; then
		break
	fi
	echo "attempt $attempt: no guest"
done
exit $status
