#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# report.sh [--update] [BUILD_DIR]   Measures the transports alone and through the pool, in turns,
# against a cluster of its own, and prints the tables of docs/bench.md; --update puts them there.
# Takes about two minutes and 512 MiB of shared memory. BUILD_DIR: build/release.
set -euo pipefail
cd "$(dirname "$0")/.."

update=0
if [ "${1:-}" = --update ]; then
	update=1
	shift
fi
bin=${1:-build/release}/bin
[ -x "$bin/kvpool-perf" ] || { echo "report.sh: no $bin/kvpool-perf: build first" >&2; exit 2; }

dir=$(mktemp -d /tmp/kvpool-report.XXXXXX)
pids=()
end() {
	for pid in ${pids[@]+"${pids[@]}"}; do
		kill "$pid" 2>/dev/null && wait "$pid" || true
	done
	rm -rf "$dir"
}
trap end EXIT

# daemon NAME PROGRAM OPTION...: starts it and waits until it serves.
daemon() {
	local name=$1 program=$2
	shift 2
	"$bin/$program" --ready-file="$dir/$name.ready" --listen=127.0.0.1:0 \
		--metrics.listen=127.0.0.1:0 --local="$dir/$name.sock" "$@" 2>"$dir/$name.log" &
	pids+=($!)
	for _ in $(seq 200); do
		[ -s "$dir/$name.ready" ] && return
		sleep 0.05
	done
	echo "report.sh: $program did not start:" >&2
	cat "$dir/$name.log" >&2
	exit 3
}
control() {
	awk '$1 == "control" {print $2}' "$dir/$1.ready"
}

daemon meta kvpool-meta
daemon node kvpoold --name="report-$$" --ofi.listen=127.0.0.1:0 \
	--shm.listen="$dir/shm.sock" --data_dir="$dir/node" --store.dram=384MiB --store.keep=false \
	--metas="$(control meta)"
export KVP_META KVP_NODE
KVP_META=$(control meta)
KVP_NODE=$(control node)

# measure TEST OPTION...: one run, its JSON with the options beside it.
runs=0
measure() {
	runs=$((runs + 1))
	echo "report.sh: $*" >&2
	echo "$*" >"$dir/$(printf %03d $runs).args"
	"$bin/kvpool-perf" "$@" -eF --via=both --rounds=7 \
		--out_json_file="$dir/$(printf %03d $runs).json" >/dev/null
}

cut -d' ' -f1-3 /proc/loadavg >"$dir/load.before"
for transport in shm ofi; do
	for size in 64KiB 1MiB; do
		count=$([ $size = 64KiB ] && echo 7000 || echo 700)
		common="--transport=$transport -s $size -n $count -t 32 --batch=8"
		for verify in off sampled always; do
			measure bw --op=get $common --verify=$verify
		done
		for checksum in none client; do
			measure bw --op=put $common --checksum=$checksum
		done
	done
done
for transport in shm ofi; do
	for size in 4KiB 64KiB 1MiB; do
		measure lat --op=get --transport=$transport -s $size -n 2100 --verify=off
	done
done
cut -d' ' -f1-3 /proc/loadavg >"$dir/load.after"

python3 - "$dir" "$update" <<'PYTHON'
import datetime
import glob
import json
import sys

folder, update = sys.argv[1], sys.argv[2] == "1"


def read(name):
    with open("%s/%s" % (folder, name), encoding="utf-8") as file:
        return file.read().strip()


runs = []
for path in sorted(glob.glob(folder + "/*.json")):
    name = path.rsplit("/", 1)[1][:-5]
    runs.append((read(name + ".args"), json.loads(read(name + ".json"))))


def option(args, name):
    return next((a.split("=")[1] for a in args.split() if a.startswith("--%s=" % name)), "")


def size_of(row):
    return "%d KiB" % (row["MsgSize"] >> 10)


lines = ["Made by `bench/report.sh --update` on %s." % datetime.date.today().isoformat(), "",
         "Machine: %s; load average %s before, %s after." % (
             runs[0][1]["test_info"]["machine"], read("load.before"), read("load.after")), "",
         "`kvpool-perf bw -eF --via=both --rounds=7 --transport=T --op=OP -s SIZE -n N -t 32 "
         "--batch=8 --verify=V --checksum=C`, N operations of 448 MiB in all, raw and pool in "
         "turns:", "",
         "| transport | op | size | checksums | raw MiB/s | pool MiB/s | pool/raw (low to high) "
         "| best by best | raw CPU s/GB | pool CPU s/GB |",
         "|---" * 10 + "|"]
for args, root in runs:
    if not args.startswith("bw"):
        continue
    raw, pool = root["results"]
    ratio, = root["pool_to_raw"]
    lines.append("| %s | %s | %s | %s | %.0f | %.0f | %.2f (%.2f to %.2f) | %.2f | %.3f "
                 "| %.3f |" % (
        pool["transport"], option(args, "op"), size_of(raw),
        option(args, "verify") or option(args, "checksum"), raw["BW_average"],
        pool["BW_average"], ratio["median"], ratio["low"], ratio["high"], ratio["best"],
        raw["cpu_s_per_GB"], pool["cpu_s_per_GB"]))
lines += ["", "`kvpool-perf lat -eF --via=both --rounds=7 --transport=T --op=get -s SIZE -n 2100 "
          "--verify=off`, one at a time:", "",
          "| transport | size | raw p50 us | pool p50 us | raw p99 us | pool p99 us |",
          "|---|---|---|---|---|---|"]
for args, root in runs:
    if args.startswith("lat"):
        raw, pool = root["results"]
        lines.append("| %s | %s | %.2f | %.2f | %.2f | %.2f |" % (
            pool["transport"], size_of(raw), raw["t_typical"], pool["t_typical"],
            raw["percentile_99"], pool["percentile_99"]))
text = "\n".join(lines)
print(text)
if update:
    with open("docs/bench.md", encoding="utf-8") as file:
        page = file.read()
    head, rest = page.split("<!-- report -->\n")
    tail = rest.split("<!-- end of report -->\n")[1]
    with open("docs/bench.md", "w", encoding="utf-8") as file:
        file.write(head + "<!-- report -->\n" + text + "\n<!-- end of report -->\n" + tail)
PYTHON
