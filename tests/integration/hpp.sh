#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpumem.hpp against a real daemon: the cases of hpp_worker.cpp, with exceptions and without.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
backend=${GPUMEM_TEST_BACKEND:-host}
. "$source/tests/integration/functions.sh"
if [ ! -x "$build/tests/integration/hpp_worker" ]; then
	echo "1..0 # SKIP there is no compiler for C++17"
	exit 0
fi

scratch hpp
export GPUMEM_SOCKET=$dir/socket
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID CUDA_VISIBLE_DEVICES
printf '[gpumemd]\nreserve = 0\nmin_free = 0\nfraction = 1\nhost_limit = 64M\n[device 0]\nsize = 1G\n' >"$dir/conf"
"$build/daemon/gpumemd" --backend "$backend" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
daemon=$!
until "$build/ctl/gpumemctl" status >/dev/null 2>&1; do
	kill -0 "$daemon" 2>/dev/null || bail "no daemon"
done

for kind in hpp_worker hpp_worker_plain; do
	"$build/tests/integration/$kind" >"$dir/out" 2>"$dir/err"
	status=$?
	while read -r word name; do
		if [ "$word" = pass ]; then ok "$kind: $name"; else not_ok "$kind: $word $name" "$(cat "$dir/err")"; fi
	done <"$dir/out"
	if [ "$status" = 0 ] && [ "$(wc -l <"$dir/out")" -ge 8 ]; then
		ok "$kind ends well"
	else
		not_ok "$kind ends well" "status $status" "$(cat "$dir/err")" "$(tail -n 20 "$dir/log")"
	fi
done
echo "1..$n"
