#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package against a real daemon: pytest runs tests/python, and its results become TAP. GPUMEM_TEST_BACKEND says on which
# backend; tests/variants runs it again on fake GPUs.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
skip() { echo "1..0 # SKIP $1"; exit 0; }
python=$(sed -n 's/^PYTHON = //p' "$build/Makefile" 2>/dev/null)
[ -n "$python" ] && [ "$python" != : ] || skip "there is no Python 3.9 or later: install python3"
"$python" -c 'import pytest' 2>/dev/null || skip "$python has no pytest: install python3-pytest"
# Python itself has no sanitizers, so it cannot load a library that has. Then only what needs no library is tested.
grep -q '^GM_CFLAGS = .*-fsanitize=' "$build/Makefile" && set -- -k 'without_the_library or without_the_framework'

scratch python
export GPUMEM_TEST_BACKEND=${GPUMEM_TEST_BACKEND:-host}
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID CUDA_VISIBLE_DEVICES
export GPUMEM_SOCKET=$dir/socket GPUMEM_LIBRARY=$build/client/.libs/libgpumem-client.so.0
export PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 GPUMEM_TEST_TAP=$dir/tap
export GPUMEM_TEST_CTL=$build/ctl/gpumemctl GPUMEM_TEST_RUN=$build/run/gpumem-run GPUMEM_PRELOAD=$build/preload/.libs/libgpumem-preload.so
[ ! -e "$build/python/.libs/libgpumem-torch.so" ] || export GPUMEM_TORCH_LIBRARY=$build/python/.libs/libgpumem-torch.so
printf '[gpumemd]\nmin_free = 0\n' >"$dir/conf"
[ "$GPUMEM_TEST_BACKEND" = cuda ] || printf '[device 0]\nsize = 512M\n' >>"$dir/conf"
"$build/daemon/gpumemd" --backend "$GPUMEM_TEST_BACKEND" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
daemon=$!
until "$build/ctl/gpumemctl" version --json 2>/dev/null | grep -q '"gpumemd": "'; do
	kill -0 "$daemon" 2>/dev/null || bail "no daemon"
done
cd "$dir" || exit
"$python" -m pytest -q -p no:cacheprovider --basetemp="$dir/pytest" "$source/tests/python" "$@" >"$dir/output" 2>&1
status=$?
[ -s "$dir/tap" ] || bail "pytest: $(cat "$dir/output")"
cat "$dir/tap"
sed 's/^/# /' "$dir/output"
[ "$status" = 0 ] || sed 's/^/# gpumemd: /' "$dir/log"
exit "$status"
