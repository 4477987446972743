# SPDX-License-Identifier: Apache-2.0
"""JAX and gpumemd. JAX lets nobody replace its allocator, so there are two ways, and they go together:

    gpumem-run --limit 8G -- python3 with_jax.py    # all memory of JAX is from gpumemd, within a limit
    python3 with_jax.py                             # arrays go to and fro through DLPack, without a copy
"""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes three quarters of the GPU at once

import gpumem  # noqa: E402
import jax  # noqa: E402

with gpumem.Session(name="with_jax.py") as session:
    buffer = session.alloc(4 << 20)
    buffer.write(b"\0\0\x20\x40" * (1 << 20))  # 2.5, a million times
    array = jax.dlpack.from_dlpack(buffer.view("float32", (1024, 1024)))
    print("the mean is %.1f" % float(array.mean()))

    # The other direction: an array of JAX becomes memory that gpumem copies, shares and publishes.
    counted = jax.numpy.arange(1024, dtype="int32")
    counted.block_until_ready()
    taken = gpumem.from_dlpack(counted)
    target = session.alloc(taken.nbytes)
    target.copy_from(taken)
    print("JAX and gpumem have the same memory; number 3 is %d" % int.from_bytes(target.read(4, 12), "little"))
    del array, taken
