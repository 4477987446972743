#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU suite from a staged folder (make gpu-stage) or a build tree, on a host with an NVIDIA GPU: run.sh [bench]
# Prints TAP of each program and a line of totals; with "bench", the benchmarks instead. RECORD=FILE run.sh also writes a file with the date,
# the GPU, the driver and a line for each test: tests/gpu/last-run.txt is such a file.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export top_builddir=${top_builddir:-$here} LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv
date -u +"%Y-%m-%d %H:%M UTC"
if [ "${1:-}" = bench ]; then
	for program in "$top_builddir"/bench/gpu_*; do
		case $program in *.*) continue ;; esac
		echo "== ${program##*/}"
		"$program" || exit 1
	done
	exit 0
fi
record=${RECORD:-/dev/null}
{
	date -u +"%Y-%m-%d %H:%M UTC"
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
	[ ! -f "$here/commit" ] || echo "commit $(cat "$here/commit")"
} >"$record"
passed=0 failed=0 skipped=0
# The last is check_pinned again, as on a driver that shares no pinned memory.
for program in "$top_builddir"/tests/gpu/conformance "$top_builddir"/tests/gpu/check_* memfd; do
	case ${program##*/} in *.*) continue ;; esac
	pinned=
	[ "$program" != memfd ] || { pinned=memfd; program=$top_builddir/tests/gpu/check_pinned; }
	echo "== ${program##*/} $pinned"
	log=$(mktemp)
	GPUMEM_TEST_PINNED=$pinned timeout 300 "$program" | tee "$log"
	status=${PIPESTATUS[0]}
	# "ok 3 - file.c:case:name: Passed" is "ok name" here, and what is left out is not passed.
	sed -nE "s/^(not ok|ok) [0-9]+ - ([^:]*\.c:[^:]*:)?([^:#]*).*/\1 ${program##*/}${pinned:+ $pinned}: \3/p" "$log" >>"$record"
	sed -nE "s/^# (seen: .*)/\1/p" "$log" >>"$record"
	skips=$(grep -c '^ok .*# SKIP' "$log")
	[ "$skips" = 0 ] || sed -nE "s/^ok [0-9]+ - (.*# SKIP.*)/skipped ${program##*/}: \1/p" "$log" >>"$record"
	skipped=$((skipped + skips))
	passed=$((passed + $(grep -c '^ok ' "$log") - skips))
	bad=$(grep -c '^not ok ' "$log")
	[ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
	failed=$((failed + bad))
	rm -f "$log"
done
echo "$passed passed, $failed failed, $skipped skipped" | tee -a "$record"
[ "$failed" = 0 ]
