# SPDX-License-Identifier: Apache-2.0
"""A worker in Python: it takes memory from gpumemd, uses it, and gives it back."""
import gpumem

with gpumem.Session(name="worker.py") as session:
    with session.alloc(64 << 20, tag="example") as buffer:
        buffer.write(b"hello")
        print("%d MiB on %s, which begin with %s" % (buffer.size >> 20, session.device().name, bytes(buffer.read(5)).decode()))
        # On a GPU: cupy.asarray(buffer), torch.from_dlpack(buffer.view("float32")). On host memory: buffer.numpy().
    print("in use now: %d bytes" % session.stats().in_use)
