#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart.sh   Builds kvpool, starts one metadata server and two pool nodes on loopback, replays
# 2,000 requests of a real trace through them and checks every byte. Leaves nothing running.
set -euo pipefail
cd "$(dirname "$0")"

./install-deps.sh
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release --target kvpoold kvpool-meta kvpool-perf kvpoolctl | tail -n 1

bin=$PWD/build/release/bin
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvpool-quickstart.XXXXXX")
tag=quickstart-$$
pids=()

stop_all() {
	local pid
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
	pids=()
}
trap 'stop_all; rm -rf "$dir"' EXIT

# start NAME PROGRAM OPTIONS...   Starts a daemon and waits for its ready file.
start() {
	local name=$1 i
	shift
	"$@" --ready-file="$dir/$name.ready" 2>"$dir/$name.log" &
	pids+=($!)
	for ((i = 0; i < 200; i++)); do
		[ ! -s "$dir/$name.ready" ] || return 0
		kill -0 "${pids[-1]}" 2>/dev/null || break
		sleep 0.05
	done
	echo "quickstart: $name did not start:" >&2
	cat "$dir/$name.log" >&2
	return 1
}
address() { awk -v what="$2" '$1 == what {print $2}' "$dir/$1.ready"; }

start meta "$bin/kvpool-meta" --listen=127.0.0.1:0 --local="$dir/meta.sock" \
	--metrics.listen=127.0.0.1:0
meta=$(address meta control)
for i in 1 2; do
	start "node$i" "$bin/kvpoold" --name="$tag-$i" --listen=127.0.0.1:0 \
		--local="$dir/node$i.sock" --shm.listen="$dir/node$i-shm.sock" \
		--ofi.listen=127.0.0.1:0 --metrics.listen=127.0.0.1:0 --data_dir="$dir/node$i" \
		--metas="$meta" --store.dram=96MiB --store.slots=24576 --store.quarantine=20ms \
		--store.keep=false
done

# The prefill client puts to node 1 by shared memory; the decode client belongs to node 2 and reads
# from node 1 over the network.
"$bin/kvpool-perf" replay --trace=bench/traces/conversation.jsonl.gz --requests=2000 \
	--block-bytes=4KiB --meta="$meta" --node="unix:$dir/node1.sock" \
	--decode-node="$(address node2 control)" --decode-transport=ofi \
	--out_json --out_json_file="$dir/replay.json"
echo
"$bin/kvpoolctl" status --meta="$meta" | head -n 12

stop_all
left=$(ls /dev/shm 2>/dev/null | grep -c "$tag" || true)
if [ "$left" != 0 ]; then
	echo "quickstart: $left shared memory objects were left behind" >&2
	exit 1
fi
cat <<'TEXT'

To go on by hand:  build/release/bin/kvpool-meta & build/release/bin/kvpoold --metas=127.0.0.1:7480 &
then link -lkvpool as README.md shows; every program tells its options with --help.
TEXT
echo "quickstart: ok, wrong bytes 0"
