#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A test that is run by hand with tests/fake/with-fake-gpu finds the GPUs that make check gives it.
set -u
source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
export top_builddir=${top_builddir:-.}
unset GPUMEM_TEST_BACKEND GPUMEM_FAKE_INIT_BYTES GPUMEM_FAKE_CONTEXT_BYTES

# shellcheck disable=SC2016 # The shell on the fake GPU expands it.
tell='echo "${GPUMEM_FAKE_INIT_BYTES-unset} ${GPUMEM_FAKE_CONTEXT_BYTES-unset}"'
finds() { # NAME EXPECTED [VARIABLE=VALUE...]
	local told status
	told=$(env "${@:3}" "$source/tests/fake/with-fake-gpu" -s 8m bash -c "$tell")
	status=$?
	if [ $status = 77 ]; then
		ok "$1 # SKIP neither root nor user namespaces"
	elif [ "$told" = "$2" ]; then
		ok "$1"
	else
		not_ok "$1" "the driver and a context take: $told, not $2"
	fi
}

finds "to a test of both backends, the driver takes no memory" "0 0" GPUMEM_TEST_BACKEND=cuda
finds "unless it is told how much" "1M 0" GPUMEM_TEST_BACKEND=cuda GPUMEM_FAKE_INIT_BYTES=1M
finds "to any other, it takes what it takes by default" "unset unset"
echo "1..$n"
