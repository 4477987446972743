#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fake/with-fake-gpu by hand: a test finds the GPUs that make check gives it, and a stranger learns how to use it.
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
# shellcheck disable=SC2016 # The shell on the fake GPU expands it.
runs_as() { # NAME EXPECTED [OPTION...]
	local told status
	told=$("$source/tests/fake/with-fake-gpu" -s 8m "${@:3}" bash -c 'echo "$(id -u) $(id -g)"')
	status=$?
	if [ $status = 77 ]; then
		ok "$1 # SKIP neither root nor user namespaces"
	elif [ "$told" = "$2" ]; then
		ok "$1"
	else
		not_ok "$1" "its uid and gid are $told, not $2"
	fi
}

runs_as "the command runs as the user who started it" "$(id -u) $(id -g)"
runs_as "or as root, if it is to mount" "0 0" -r
explains() { # NAME STATUS WORDS [ARGUMENT...]
	local told status
	told=$("$source/tests/fake/with-fake-gpu" "${@:4}" 2>&1)
	status=$?
	if [ $status = "$2" ] && grep -qF -e "$3" <<<"$told" && grep -qF "usage: with-fake-gpu" <<<"$told" && grep -q "^Example" <<<"$told"; then
		ok "$1"
	else
		not_ok "$1" "exit status $status: $told"
	fi
}

explains "-h explains it, with an example" 0 "-n DEVICES" -h
explains "so does a call without a command" 2 "name the command to run"
explains "and a wrong option" 2 "there is no option -x" -x true
explains "and an option without its value" 2 "option -s needs a value" -s
explains "and a number of devices that makes no sense" 2 "not many" -n many true
explains "and a size that makes no sense" 2 "not 512m,5x" -s 512m,5x true

told=$(top_builddir=/nowhere "$source/tests/fake/with-fake-gpu" true 2>&1)
if [ $? = 2 ] && grep -q "no fake driver in /nowhere.*run 'make " <<<"$told"; then
	ok "where the driver is not built, it says how to build it"
else
	not_ok "where the driver is not built, it says how to build it" "$told"
fi
echo "1..$n"
