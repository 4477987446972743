# SPDX-License-Identifier: Apache-2.0
"""Managed memory of CuPy under a limit of 1 GiB, for tests/gpu/frameworks.sh."""
import sys

import cupy

cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
array = cupy.ones(512 << 20, dtype=cupy.uint8)
if int(array.sum(dtype=cupy.uint64)) != 512 << 20:
    sys.exit("the array is wrong")
try:
    cupy.ones(768 << 20, dtype=cupy.uint8)
    sys.exit("managed memory is above the limit")
except cupy.cuda.memory.OutOfMemoryError:
    pass
except cupy.cuda.runtime.CUDARuntimeError as error:
    if "MemoryAllocation" not in str(error):
        raise
del array
cupy.ones(768 << 20, dtype=cupy.uint8)
