#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run.sh runs the programs of its folder, whatever the folder is called, and fails if there is nothing to run.
set -u
source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
unset top_builddir RECORD
scratch run
stage=$dir/stage-0.1
mkdir -p "$stage/bench" "$stage/tests/gpu"
cp "$source/tests/gpu/run.sh" "$stage/"

# A program of the staged folder: program PATH LINE...
program() {
	{ echo '#!/bin/sh'; printf "echo '%s'\n" "${@:2}"; } >"$stage/$1"
	chmod +x "$stage/$1"
}
run() { # NAME STATUS PATTERN [bench]: run.sh must end with STATUS and print a line that is PATTERN
	local status
	bash "$stage/run.sh" "${@:4}" >"$dir/output" 2>&1
	status=$?
	if [ "$status" = "$2" ] && grep -qxE "$3" "$dir/output"; then ok "$1"; else not_ok "$1" "status $status" "$(cat "$dir/output")"; fi
}

touch "$stage/tests/gpu/check_broker.c" "$stage/bench/gpu_lease.c"
run "a run that finds no test fails" 1 'run\.sh: no test .*'
run "and so does one that finds no benchmark" 1 'run\.sh: there is no benchmark .*' bench
program tests/gpu/check_leave "ok 1 - there is a GPU # SKIP there is none"
run "a run in which every test skips fails" 1 '0 passed, 0 failed, 1 skipped'
program tests/gpu/check_broker "ok 1 - a" "ok 2 - b"
program tests/gpu/check_pinned "ok 1 - a"
run "tests run in a folder with a dot in its path, the pinned ones twice" 0 '4 passed, 0 failed, 1 skipped'
program tests/gpu/conformance "not ok 1 - a"
run "a failed test is a failed run" 1 '4 passed, 1 failed, 1 skipped'
program bench/gpu_lease "1 us"
run "benchmarks run there, too" 0 '1 us' bench
echo "1..$n"
