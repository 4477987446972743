#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one row of tests/variants: run-variant.sh FILE. FILE holds the row; make writes it.
# Where fake GPUs are not possible, the test skips.
set -u
read -r _ program backend gpus size environment <"$1"

command=("${top_builddir:?}/$program")
case $program in *.sh) command=(bash "${top_srcdir:?}/$program") ;; esac

[ "$backend" = - ] || export GPUMEM_TEST_BACKEND="$backend"
# shellcheck disable=SC2086 # each word is a variable
[ -z "$environment" ] || export $environment
[ "$gpus" != - ] || exec "${command[@]}"

[ "$backend" != cuda ] || export GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
"${top_srcdir:?}/tests/fake/with-fake-gpu" -n "$gpus" -s "$size" "${command[@]}"
status=$?
if [ "$status" = 77 ]; then
	echo "1..0 # SKIP neither root nor user namespaces: the fake driver cannot mount its devices"
	exit 0
fi
exit "$status"
