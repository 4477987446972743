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
		ok "$1 # SKIP $(no_namespaces)"
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
		ok "$1 # SKIP $(no_namespaces)"
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

# Runs a command in a folder that has all of the root folder and is no mount point.
scratch with-fake-gpu
# shellcheck disable=SC2016 # The inner shell expands it.
in_chroot() {
	unshare "${own_mounts[@]}" bash -c '
		mount -t tmpfs tmpfs "$1" && mkdir "$1/root" || exit
		for entry in /*; do
			if [ -L "$entry" ]; then
				cp -P "$entry" "$1/root/"
			elif [ -d "$entry" ]; then
				mkdir "$1/root$entry" && mount --rbind "$entry" "$1/root$entry"
			fi || exit
		done
		cd / && PATH=$PATH:/usr/sbin:/sbin exec chroot "$1/root" "${@:2}"' bash "$dir" "$@"
}
name="in a chroot, it says that this is one, and the remedy"
if why=$(no_namespaces); then
	ok "$name # SKIP $why"
else
	told=$(in_chroot env top_builddir="$(realpath "$top_builddir")" "$source/tests/fake/with-fake-gpu" true 2>&1)
	if [ $? = 77 ] && [[ $told == "with-fake-gpu: needs namespaces: this is a chroot whose folder is not a mount point; run 'mount --bind "* ]]; then
		ok "$name"
	else
		not_ok "$name" "$told"
	fi
fi

told=$(top_builddir=/nowhere "$source/tests/fake/with-fake-gpu" true 2>&1)
if [ $? = 2 ] && grep -q "no fake driver in /nowhere.*run 'make " <<<"$told"; then
	ok "where the driver is not built, it says how to build it"
else
	not_ok "where the driver is not built, it says how to build it" "$told"
fi
echo "1..$n"
