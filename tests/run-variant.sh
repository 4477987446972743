#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one row of tests/variants: run-variant.sh FILE. FILE holds the row; make writes it.
# Where fake GPUs are not possible, the test skips.
set -u
. "${top_srcdir:?}/tests/namespaces.sh"
read -r _ program backend gpus size environment <"$1"
read -ra variables <<<"$environment"

command=("${top_builddir:?}/$program")
case $program in *.sh) command=(bash "${top_srcdir:?}/$program") ;; esac

[ "$backend" = - ] || export GPUMEM_TEST_BACKEND="$backend"
[ ${#variables[@]} = 0 ] || export "${variables[@]}"
[ "$gpus" != - ] || exec "${command[@]}"

# Tests give the GPUs other sizes, for which they mount.
"${top_srcdir:?}/tests/fake/with-fake-gpu" -r -n "$gpus" -s "$size" "${command[@]}"
status=$?
if [ "$status" = 77 ]; then
	echo "1..0 # SKIP $(no_namespaces)"
	exit 0
fi
exit "$status"
