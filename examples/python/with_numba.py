# SPDX-License-Identifier: Apache-2.0
"""Numba on memory from gpumemd: gpumem becomes its external memory manager.

    python3 with_numba.py
"""
import gpumem
import gpumem.numba

gpumem.numba.enable()

import numpy  # noqa: E402
from numba import cuda  # noqa: E402

array = cuda.to_device(numpy.arange(1 << 20, dtype="float32"))
print("Numba's memory is from gpumemd: %d MiB in use" % (gpumem.default_session().stats().in_use >> 20))
print("element 77 is %.0f" % array.copy_to_host()[77])

# A buffer of gpumemd as an array of Numba, without a copy.
with gpumem.default_session().alloc(4096) as buffer:
    same = cuda.as_cuda_array(buffer.view("int32"))
    same.copy_to_device(numpy.arange(1024, dtype="int32"))
    print("the buffer's second number is %d" % int.from_bytes(buffer.read(4, 4), "little"))
