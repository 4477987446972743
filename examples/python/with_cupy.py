# SPDX-License-Identifier: Apache-2.0
"""CuPy on memory from gpumemd: one line, and the rest of the program stays as it is.

    python3 with_cupy.py
"""
import gpumem
import gpumem.cupy

pool = gpumem.cupy.enable()

import cupy  # noqa: E402

array = cupy.arange(1 << 20, dtype="float32")
print("the mean is %.1f" % float(array.mean()))
print("CuPy's memory is from gpumemd: %d MiB in use" % (gpumem.default_session().stats().in_use >> 20))

# CuPy's own pool stays, and returns what it does not use when others need memory. By hand:
del array
pool.free_all_blocks()

# A buffer of gpumemd as an array of CuPy, without a copy.
with gpumem.default_session().alloc(1 << 20) as buffer:
    same = cupy.asarray(buffer.view("float32", (512, 512)))
    same[:] = 2
    print("the buffer begins with %r" % bytes(buffer.read(4)))
