#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how much of the code that talks to the driver the tests on fake GPUs run: make coverage-cuda, in a build that was
# configured with --enable-coverage. Prints a row per file, and the functions that no test ran. It fails if there is one.
#
#   coverage.sh SOURCE BUILD "TESTS…"
set -euo pipefail
source_dir=$(realpath "$1") build=$(realpath "$2") tests=$3
files="
	daemon/backend/backend_cuda.c
	daemon/backend/backend_pinned.c
	daemon/backend/backend_vmm.c
	daemon/backend/ipc_blocks.c
	daemon/backend/backend_nvml.c
	daemon/backend/backend_ram.c
	common/cuda/cuda.c
	common/cuda/cuda_device.c
	client/map/cuda_backend.c
	client/map/cuda_capture.c
	client/map/cuda_context.c
	client/map/cuda_event.c
	client/map/cuda_keeper.c
	client/map/cuda_ipc.c
	client/map/cuda_managed.c
	client/map/cuda_stream.c
	client/map/ipc_cache.c
	client/map/map_cuda.c
	client/map/map_pinned.c
	client/device/mapping.c
	client/memory/pinned.c
"
cd "$build"
make -s -j"$(nproc)" check TESTS= >/dev/null
find . -name '*.gcda' -delete
make -s -k check TESTS="$tests" || echo "coverage: some tests failed; see above" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo
echo "| file | lines run |"
echo "|---|---|"
for file in $files; do
	name=$(basename "$file" .c)
	# libtool puts the object's notes into .libs.
	notes=$(find "$(dirname "$file")" -name "$name.gcno" | head -n 1)
	[ -n "$notes" ] || { echo "coverage: $file was not built for it: configure with --enable-coverage" >&2; exit 1; }
	( cd "$work" && gcov -f -s "$source_dir" -o "$build/$notes" "$build/$notes" ) >"$work/out" 2>/dev/null
	awk -v file="$file" '
		/^Function / { f = $2; gsub("\047", "", f); next }
		/^File / { f = ""; here = index($0, file "\047") > 0; next }
		/^Lines executed:/ {
			split($0, a, /[:% ]+/)
			if (f != "") { if (a[3] == "0.00") print "never " f; f = "" }
			else if (here) { print "row | `" file "` | " a[3] " % of " a[5] " |"; here = 0 }
		}' "$work/out" >"$work/rows"
	sed -n 's/^row //p' "$work/rows"
	sed -n "s|^never |$file: |p" "$work/rows" >>"$work/never"
done
echo
if [ -s "$work/never" ]; then
	echo "never run:"
	cat "$work/never"
	exit 1
fi
echo "every function of these files was run"
