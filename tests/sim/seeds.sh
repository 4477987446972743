#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the simulator with many seeds. GPUMEM_TEST_SEEDS says how many (default: 1000), GPUMEM_TEST_SEED which is the first.
set -u
first=${GPUMEM_TEST_SEED:-1} seeds=${GPUMEM_TEST_SEEDS:-1000}
said=$("${top_builddir:?}/tests/sim/sim" --seed "$first" --seeds "$seeds" 2>&1)
status=$?
sed 's/^/# /' <<<"$said"
[ "$status" = 0 ] && echo "ok 1 - $seeds seeds from $first on" || echo "not ok 1 - $seeds seeds from $first on"
echo "1..1"
exit "$status"
