#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpumem-run --limit where the GPUs differ in size.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
scratch sizes
export GPUMEM_SOCKET=$dir/socket GPUMEM_PRELOAD=$build/preload/.libs/libgpumem-preload.so build dir

# Runs on the fake GPUs. Prints the status and the words of each use.
# shellcheck disable=SC2016 # The shell on the fake GPUs expands it.
uses='
	"$build/daemon/gpumemd" --backend cuda --config /dev/null --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
	until "$build/ctl/gpumemctl" version --json 2>/dev/null | grep -q "\"gpumemd\": \""; do kill -0 $! || exit 1; done
	for words in "--limit 1536M" "--limit 3G" "--limit 90%" "--device 1 --limit 90%" "--device 1 --limit 2G"; do
		# shellcheck disable=SC2086
		said=$("$build/run/gpumem-run" $words -- true 2>&1)
		echo "$words: $? $said"
	done
	kill $!
	wait'
told=$(top_builddir=$build "$source/tests/fake/with-fake-gpu" -n 2 -s 2g,1g bash -c "$uses")
status=$?
says() { # NAME LINE
	if [ $status = 77 ]; then
		ok "$1 # SKIP $(no_namespaces)"
	elif grep -qxF -e "$2" <<<"$told"; then
		ok "$1"
	else
		not_ok "$1" "$told"
	fi
}
says "a limit may be what only the larger GPU has" "--limit 1536M: 0 "
says "but not more" "--limit 3G: 2 gpumem-run: --limit: 3G is more than the largest GPU has, which is 2.0G"
says "a part of GPUs that differ in size means nothing" \
	"--limit 90%: 2 gpumem-run: --limit: the GPUs differ in size, and 90% is a part of one: give a size, or choose a GPU with --device"
says "a part of one of them does" "--device 1 --limit 90%: 0 "
says "and that one bounds it" "--device 1 --limit 2G: 2 gpumem-run: --limit: 2G is more than the GPU has, which is 1.0G"
echo "1..$n"
