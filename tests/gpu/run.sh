#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the GPU suite, or with "bench" the GPU benchmarks, on a host with an NVIDIA GPU: run.sh [bench]
# It works in a staged folder (make gpu-stage) and in a build tree. It prints the TAP of each program and a line of totals.
# RECORD=FILE run.sh also writes a file with the date, the GPU, the driver and a line for each test, such as
# tests/gpu/last-run.txt. A run that finds nothing to run fails.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export top_builddir=${top_builddir:-$here} LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv
date -u +"%Y-%m-%d %H:%M UTC"

# The programs among the files given. In a build tree, sources, objects and logs lie beside them.
programs() {
	local file
	for file; do
		case ${file##*/} in *.*) continue ;; esac
		[ ! -f "$file" ] || [ ! -x "$file" ] || echo "$file"
	done
}

if [ "${1:-}" = bench ]; then
	mapfile -t benches < <(programs "$top_builddir"/bench/gpu_*)
	[ ${#benches[@]} -gt 0 ] || { echo "run.sh: there is no benchmark in $top_builddir/bench" >&2; exit 1; }
	for program in "${benches[@]}"; do
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
log=$(mktemp)
trap 'rm -f "$log"' EXIT
test_program() { # PROGRAM [KIND]: KIND of pinned memory, as GPUMEM_TEST_PINNED
	local name=${1##*/} kind=${2:-} status skips bad
	echo "== $name $kind"
	GPUMEM_TEST_PINNED=$kind timeout 300 "$1" | tee "$log"
	status=${PIPESTATUS[0]}

	# "ok 3 - file.c:case:name: Passed" becomes "ok PROGRAM: name". A skipped test did not pass.
	{
		sed -nE "s/^(not ok|ok) [0-9]+ - ([^:]*\.c:[^:]*:)?([^:#]*).*/\1 $name${kind:+ $kind}: \3/p" "$log"
		sed -nE "s/^# (seen: .*)/\1/p" "$log"
		sed -nE "s/^ok [0-9]+ - (.*# SKIP.*)/skipped $name: \1/p" "$log"
	} >>"$record"

	skips=$(grep -c '^ok .*# SKIP' "$log")
	skipped=$((skipped + skips))
	passed=$((passed + $(grep -c '^ok ' "$log") - skips))
	bad=$(grep -c '^not ok ' "$log")
	[ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
	failed=$((failed + bad))
}

mapfile -t suite < <(programs "$top_builddir"/tests/gpu/conformance "$top_builddir"/tests/gpu/check_*)
for program in "${suite[@]}"; do
	test_program "$program"
	# Once more as on a driver that shares no pinned memory.
	[ "${program##*/}" != check_pinned ] || test_program "$program" memfd
done

echo "$passed passed, $failed failed, $skipped skipped" | tee -a "$record"
[ "$passed" -gt 0 ] || echo "run.sh: no test of $top_builddir/tests/gpu passed" >&2
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
