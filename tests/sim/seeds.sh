#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the simulator with many seeds. GPUMEM_TEST_SEEDS says how many (default: 1000), GPUMEM_TEST_SEED which is the first.
# With sanitizers the default is 500: each seed takes ten times as long there, and a memory error shows in any run that
# comes to its place, whereas the model needs many runs.
set -u
seeds=1000
grep -q '^GM_CFLAGS = .*-fsanitize=' "${top_builddir:?}/Makefile" && seeds=500
first=${GPUMEM_TEST_SEED:-1} seeds=${GPUMEM_TEST_SEEDS:-$seeds}
said=$("$top_builddir/tests/sim/sim" --seed "$first" --seeds "$seeds" 2>&1)
status=$?
sed 's/^/# /' <<<"$said"
[ "$status" = 0 ] && echo "ok 1 - $seeds seeds from $first on" || echo "not ok 1 - $seeds seeds from $first on"
echo "1..1"
exit "$status"
