#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of others under gpumem-run, on a real GPU: frameworks.sh, in a staged folder (make gpu-stage) or a build tree. Prints TAP.
# PyTorch with its three allocators must train to the same losses, bit for bit, with and without gpumem-run; two trainers at once have
# 40% and 20% of the GPU, one of them at its limit; expandable segments have a limit, too; two processes share a tensor; a compiled model
# replays graphs; JAX keeps to its limit with and without preallocation; NVIDIA's Python bindings and a program with a static CUDA runtime
# meet their limit, that program also under compute-sanitizer. Prints the time of a training step beside that of a plain run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=${top_builddir:-$(cd "$here/../.." && pwd)}
export LD_LIBRARY_PATH=$top/lib:$top/client/.libs:$top/client${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
first() { local f; for f; do [ ! -e "$f" ] || { echo "$f"; return; }; done; }
GPUMEM_PRELOAD=$(first "$top/preload/.libs/libgpumem-preload.so" "$top/preload/libgpumem-preload.so")
export GPUMEM_PRELOAD
run=$(first "$top/run/.libs/gpumem-run" "$top/run/gpumem-run")
work=$(mktemp -d) n=0 bad=0 daemon=
finish() {
	[ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon"; }
	rm -rf "$work"
}
trap finish EXIT
result() { # STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else bad=$((bad + 1)); echo "not ok $n - $2"; sed 's/^/# /' "$work"/*.err | tail -n 20; fi
	rm -f "$work"/*.err
}

printf '[gpumemd]\nfraction = 0.95\n' >"$work/conf"
"$top/daemon/gpumemd" --backend cuda --config "$work/conf" --socket "$work/socket" 2>"$work/log" &
daemon=$!
while [ ! -S "$work/socket" ]; do kill -0 "$daemon" 2>/dev/null || { echo "Bail out! gpumemd: $(cat "$work/log")"; exit 1; }; sleep 0.1; done
export GPUMEM_SOCKET=$work/socket

if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	export CUBLAS_WORKSPACE_CONFIG=:4096:8
	for allocator in native expandable_segments:True backend:cudaMallocAsync; do
		[ "$allocator" = native ] && unset PYTORCH_CUDA_ALLOC_CONF || export PYTORCH_CUDA_ALLOC_CONF=$allocator
		python3 "$here/torch_train.py" >"$work/plain" 2>"$work/plain.err" &&
			"$run" --report -- python3 "$here/torch_train.py" >"$work/under" 2>"$work/under.err" && cmp "$work/plain" "$work/under" >>"$work/under.err"
		status=$?
		sed -n 's/^gpumem-run: /# /p' "$work/under.err"
		result $status "PyTorch, $allocator: the same losses with and without gpumem-run"
	done
	export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
	"$run" --limit 4G --report -- python3 "$here/torch_fill.py" $((4 << 30)) >"$work/fill" 2>"$work/fill.err"
	status=$?
	sed -n 's/^gpumem-run: /# /p' "$work/fill.err"
	result $status "PyTorch, expandable segments: charged to the run's limit, and OutOfMemoryError at it"
	unset PYTORCH_CUDA_ALLOC_CONF
	"$run" --limit 8G --report -- python3 "$here/torch_share.py" >"$work/share" 2>"$work/share.err"
	status=$?
	sed -n 's/^gpumem-run: /# /p' "$work/share.err"
	result $status "PyTorch: two processes share a tensor through torch.multiprocessing"
	if python3 -c 'import triton' 2>/dev/null; then
		"$run" --limit 8G --report -- python3 "$here/torch_compile.py" >"$work/compile" 2>"$work/compile.err"
		status=$?
		sed -n 's/^gpumem-run: /# /p' "$work/compile.err"
		result $status "PyTorch: a model compiled with mode=reduce-overhead"
	else
		echo "ok $((n += 1)) - PyTorch, compiled # SKIP there is no Triton"
	fi
	for _ in 1 2 3; do
		echo "# a training step: $(python3 "$here/torch_step.py" 2>/dev/null) us, under gpumem-run $("$run" -- python3 "$here/torch_step.py" 2>/dev/null)"
	done
	"$run" --limit 40% -- python3 "$here/torch_train.py" full >"$work/full" 2>"$work/full.err" &
	full=$!
	"$run" --limit 20% -- python3 "$here/torch_train.py" >"$work/other" 2>"$work/other.err"
	status=$?
	wait "$full" && grep -q 'out of memory after' "$work/full.err" && cmp "$work/full" "$work/other" >>"$work/full.err" || status=1
	result $status "PyTorch: a trainer at its limit gets its error, goes on, and the other one never notices"
else
	echo "ok $((n += 1)) - PyTorch # SKIP it is not installed"
fi

if python3 -c 'import cupy; cupy.zeros(1)' 2>/dev/null; then
	"$run" --report -- python3 "$here/cupy_pools.py" >"$work/cupy" 2>"$work/cupy.err"
	result $? "CuPy: the statistics of an asynchronous pool"
	"$run" --limit 1G -- python3 "$here/cupy_managed.py" >"$work/managed" 2>"$work/managed.err"
	result $? "CuPy: managed memory is charged to the run"
else
	echo "ok $((n += 1)) - CuPy # SKIP it is not installed"
fi

if python3 -c 'import jax; assert jax.default_backend() == "gpu"' 2>/dev/null; then
	"$run" --limit 8G --report -- python3 -c 'import jax, jax.numpy as np
assert int(np.ones(1 << 28, np.int8).astype(np.int32).sum()) == 1 << 28
assert jax.devices()[0].memory_stats()["bytes_limit"] <= 8 << 30' >"$work/jax" 2>"$work/jax.err"
	status=$?
	sed -n 's/^gpumem-run: /# /p' "$work/jax.err"
	result $status "JAX preallocates its part of the run's limit"
	XLA_PYTHON_CLIENT_PREALLOCATE=false "$run" --limit 8G --report -- python3 -c 'import jax, jax.numpy as np
assert int(np.ones(1 << 28, np.int8).astype(np.int32).sum()) == 1 << 28
try:
    np.ones(10 << 30, np.int8).block_until_ready()
except Exception as error:
    assert "RESOURCE_EXHAUSTED" in str(error), error
else:
    raise SystemExit("10 GiB fit in 8")
assert int(np.ones(1 << 20, np.int8).astype(np.int32).sum()) == 1 << 20' >"$work/jax" 2>"$work/jax.err"
	status=$?
	sed -n 's/^gpumem-run: /# /p' "$work/jax.err"
	result $status "JAX without preallocation meets its limit, and goes on"
else
	echo "ok $((n += 1)) - JAX # SKIP it is not installed"
fi

if python3 -c 'import cuda.bindings.driver' 2>/dev/null; then
	"$run" --limit 1G -- python3 "$here/cuda_bindings.py" $((1 << 30)) >"$work/bindings" 2>"$work/bindings.err"
	result $? "NVIDIA's Python bindings meet their limit"
else
	echo "ok $((n += 1)) - cuda.bindings # SKIP it is not installed"
fi

actor=$(first "$here/cudart_actor" "$top/tests/gpu/cudart_actor")
if [ -n "$actor" ]; then
	"$run" --limit 1G --report -- "$actor" >"$work/cudart" 2>"$work/cudart.err"
	result $? "a program with a static CUDA runtime is under its limit"
	if command -v compute-sanitizer >/dev/null; then
		"$run" --limit 1G -- compute-sanitizer --report-api-errors no --error-exitcode 9 "$actor" >"$work/sanitizer.err" 2>&1
		result $? "and under compute-sanitizer, which finds nothing"
	else
		echo "ok $((n += 1)) - compute-sanitizer # SKIP it is not installed"
	fi
else
	echo "ok $((n += 1)) - static CUDA runtime # SKIP nvcc was not there when the folder was made"
fi
echo "1..$n"
[ "$bad" = 0 ]
