#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that make check runs every test program there is: by its own name, or by a row of tests/variants.
set -euo pipefail
src=${top_srcdir:-.} build=${top_builddir:-.}
. "$src/tests/report.sh"

rows_of() { sed -e '/^#/d' -e '/^[[:space:]]*$/d' "$@"; }
rows=$(rows_of "$src/tests/variants" "$src/tests/variants-all")
report "$(awk 'NF < 5 || $1 !~ /^tests\/.*\.variant$/' <<<"$rows")" "each row of tests/variants and tests/variants-all has a name, a program, a backend, GPUs and their size"
report "$(awk 'seen[$1]++ { print $1 }' <<<"$rows")" "each name is there once"
report "$(awk '{ print $2 }' <<<"$rows" | while read -r program; do
	[ -x "$build/$program" ] || [ -f "$src/$program" ] || echo "$program"
done)" "each program is there"

# Those that compare with NVIDIA's headers run where these are installed.
run=$(env -u MAKEFLAGS -u MAKELEVEL make -s -C "$build" print-tests | tr ' ' '\n'
	rows_of "$src/tests/variants" | awk '{ print $2 }'
	echo tests/unit/cuda/check_cuda_abi{,_nvml,_signatures} | tr ' ' '\n')
report "$(cd "$src" && find tests -name 'check_*.c' | sed 's/\.c$//' | grep -vxFf <(echo "$run") || true)" "make check runs each check_*.c"
echo "1..$tests"
