# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own Python bindings of the driver, for tests/gpu/frameworks.sh: they find each function by cuGetProcAddress. The size of the GPU is
the limit, given in bytes, and so is what can be allocated."""
import sys

from cuda.bindings import driver


def call(function, *arguments):
    error, *results = function(*arguments)
    assert error == driver.CUresult.CUDA_SUCCESS, "%s: %s" % (function.__name__, error)
    return results[0] if results else None


limit = int(sys.argv[1])
call(driver.cuInit, 0)
device = call(driver.cuDeviceGet, 0)
context = call(driver.cuDevicePrimaryCtxRetain, device)
call(driver.cuCtxSetCurrent, context)
assert call(driver.cuDeviceTotalMem, device) == limit
pointer = call(driver.cuMemAlloc, limit // 2)
call(driver.cuMemsetD8, pointer, 7, limit // 2)
error, _ = driver.cuMemAlloc(limit)
assert error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, error
call(driver.cuMemFree, pointer)
