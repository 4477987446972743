#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU suite from a staged folder (make gpu-stage) or a build tree, on a host with an NVIDIA GPU: run.sh [bench]
# Prints TAP of each program and a line of totals; with "bench", the benchmarks instead.
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
passed=0 failed=0
# The last is check_pinned again, as on a driver that shares no pinned memory.
for program in "$top_builddir"/tests/gpu/conformance "$top_builddir"/tests/gpu/check_* memfd; do
	case ${program##*/} in *.*) continue ;; esac
	pinned=
	[ "$program" != memfd ] || { pinned=memfd; program=$top_builddir/tests/gpu/check_pinned; }
	echo "== ${program##*/} $pinned"
	log=$(mktemp)
	GPUMEM_TEST_PINNED=$pinned timeout 300 "$program" | tee "$log"
	status=${PIPESTATUS[0]}
	passed=$((passed + $(grep -c '^ok ' "$log")))
	bad=$(grep -c '^not ok ' "$log")
	[ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
	failed=$((failed + bad))
	rm -f "$log"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
