# SPDX-License-Identifier: Apache-2.0
"""RAPIDS on memory from gpumemd: gpumem becomes the memory resource of RMM, which cuDF, cuML and others use.

    python3 with_rmm.py
"""
import gpumem
import gpumem.rmm

gpumem.rmm.enable()

import rmm  # noqa: E402

buffer = rmm.DeviceBuffer(size=64 << 20)
print("RMM's memory is from gpumemd: %d MiB in use for %d MiB" % (gpumem.default_session().stats().in_use >> 20, buffer.size >> 20))
