#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package and the frameworks on a real GPU: tests/gpu/python.sh, in a staged folder (make gpu-stage) or a build tree. Starts a
# daemon of its own and prints TAP; a framework that is not installed is skipped. PYTHON names the Python (default python3).
# tests/gpu/python.sh NAME… runs only some parts: torch, cupy, weights, examples.
# tests/gpu/python.sh speed [ROUNDS] [empty] [step] [zero] only measures PyTorch's tensors in each mode, beside PyTorch alone
# (torch_speed.py); zero measures what each part of arena mode costs a tensor without elements (torch_zero.py).
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=${top_builddir:-$(cd "$here/../.." && pwd)}
source=${top_srcdir:-$top}
python=${PYTHON:-python3}
first() { local f; for f; do [ ! -e "$f" ] || { echo "$f"; return; }; done; }
work=$(mktemp -d) n=0 bad=0 daemon=
finish() {
	[ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon"; }
	rm -rf "$work"
}
trap finish EXIT

# The client library and what it needs, and nothing else: frameworks bring libraries of their own, of other versions.
mkdir "$work/lib"
for file in "$top"/lib/libgpumem-client.so* "$top"/client/.libs/libgpumem-client.so* "$top"/lib/libgpumem-weights.so* \
	"$top"/weights/.libs/libgpumem-weights.so* "$top"/lib/libprotobuf-c.so* "$top"/lib/libjansson.so*; do
	[ ! -e "$file" ] || ln -sf "$file" "$work/lib/"
done
GPUMEM_TORCH_LIBRARY=$(first "$top/python/libgpumem-torch.so" "$top/python/.libs/libgpumem-torch.so")
GPUMEM_PRELOAD=$(first "$top/preload/.libs/libgpumem-preload.so" "$top/preload/libgpumem-preload.so")
export GPUMEM_TORCH_LIBRARY GPUMEM_PRELOAD GPUMEM_LIBRARY=$work/lib/libgpumem-client.so.0
export PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
export GPUMEM_RUN_PROGRAM
GPUMEM_RUN_PROGRAM=$(first "$top/run/.libs/gpumem-run" "$top/run/gpumem-run")

printf '[gpumemd]\nfraction = 0.95\n' >"$work/conf"
LD_LIBRARY_PATH=$top/lib:$top/client/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
	"$(first "$top/daemon/.libs/gpumemd" "$top/daemon/gpumemd")" --backend cuda --config "$work/conf" --socket "$work/socket" 2>"$work/log" &
daemon=$!
while [ ! -S "$work/socket" ]; do kill -0 "$daemon" 2>/dev/null || { echo "Bail out! gpumemd: $(cat "$work/log")"; exit 1; }; sleep 0.1; done
export GPUMEM_SOCKET=$work/socket LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

if [ "${1-}" = speed ]; then
	shift
	GPUMEM_TEST_DAEMON=$daemon "$python" "$here/torch_speed.py" "$@"
	exit
fi

# What make check runs on fake GPUs, where pytest is installed.
if [ $# = 0 ] && "$python" -c 'import pytest' 2>/dev/null; then
	(cd "$work" && GPUMEM_TEST_BACKEND=cuda GPUMEM_TEST_TAP=$work/tap timeout 200 "$python" -m pytest -q -p no:cacheprovider --basetemp="$work/pytest" \
		"$source/tests/python/test_memory.py" "$source/tests/python/test_arrays.py" >"$work/out" 2>&1) || sed 's/^/# /' "$work/out" | tail -n 60
	while IFS= read -r line; do
		case $line in
		"ok "*) n=$((n + 1)); echo "ok $n - ${line#ok * - }" ;;
		"not ok "*) n=$((n + 1)) bad=$((bad + 1)); echo "not ok $n - ${line#not ok * - }" ;;
		esac
	done <"$work/tap"
fi

# Each file prints its own TAP without numbers; "skip REASON" says that its framework is missing.
for file in "$here"/python_*.py; do
	name=${file##*/python_}
	[ $# = 0 ] || [[ " $* " = *" ${name%.py} "* ]] || continue
	timeout 300 "$python" "$file" >"$work/out" 2>"$work/err"
	status=$?
	while IFS= read -r line; do
		case $line in
		"ok "*) n=$((n + 1)); echo "ok $n - ${file##*/}: ${line#ok }" ;;
		"not ok "*) n=$((n + 1)) bad=$((bad + 1)); echo "not ok $n - ${file##*/}: ${line#not ok }" ;;
		"skip "*) n=$((n + 1)); echo "ok $n - ${file##*/} # SKIP ${line#skip }" ;;
		*) echo "# $line" ;;
		esac
	done <"$work/out"
	[ "$status" = 0 ] || { n=$((n + 1)) bad=$((bad + 1)); echo "not ok $n - ${file##*/}: exit status $status"; }
	sed 's/^/# /' "$work/err" | tail -n 60
done
grep -iE 'error|warn' "$work/log" | sed 's/^/# gpumemd: /' | tail -n 10
echo "1..$n"
[ "$bad" = 0 ]
