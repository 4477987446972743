# SPDX-License-Identifier: Apache-2.0
"""Pools of CuPy, for tests/gpu/frameworks.sh: what is allocated is counted, and what is trimmed is given back."""
import sys

import cupy

PIECE = 64 << 20


def check(what, right):
    if not right:
        sys.exit(what)


pool = cupy.cuda.MemoryAsyncPool()
cupy.cuda.set_allocator(pool.malloc)
array = cupy.ones(PIECE, dtype=cupy.uint8)
cupy.cuda.Device().synchronize()
check(f"used_bytes() is {pool.used_bytes()}", pool.used_bytes() >= PIECE)
check(f"total_bytes() is {pool.total_bytes()}", pool.total_bytes() >= pool.used_bytes())
check("the array is wrong", int(array.sum(dtype=cupy.uint64)) == PIECE)
del array
cupy.cuda.Device().synchronize()
check(f"used_bytes() is {pool.used_bytes()} in the end", pool.used_bytes() < PIECE)
pool.free_all_blocks()
check(f"total_bytes() is {pool.total_bytes()} in the end", pool.total_bytes() < PIECE)
