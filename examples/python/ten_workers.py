# SPDX-License-Identifier: Apache-2.0
"""Ten workers on one copy of the weights.

One process loads the weights, publishes them under a name and ends. Ten workers attach to the name: each has all of the weights at once, and
the device holds them once. Something has to compute with the memory: on a GPU this example needs CuPy or PyTorch, and on the host
backend NumPy.

    pip install torch    (or cupy-cuda12x; without a GPU: numpy)
    python3 ten_workers.py [MEGABYTES]
"""
import importlib.util
import json
import subprocess
import sys

import gpumem

NAME = "ten-workers"


def array_of(view):
    """The memory as an array of whatever can use it."""
    if not view.on_gpu:
        return view.numpy()
    try:
        import cupy

        return cupy.asarray(view)
    except ImportError:
        import torch

        return torch.from_dlpack(view)


def load(megabytes):
    """Makes the weights, layer by layer. A real program would read them from a file: Buffer.load_file()."""
    with gpumem.Session(name="loader") as session:
        buffer = session.alloc(megabytes << 20, tag="weights", type="weights", precision="fp32")
        layers, rows = 4, (megabytes << 20) // 4 // 4 // 1024
        shape = [layers, rows, 1024]
        weights = array_of(buffer.view("float32", shape))
        for layer in range(layers):
            weights[layer] = layer + 1
        # Readers find the shape without opening the buffer.
        version = buffer.publish(NAME, metadata=json.dumps({"shape": shape, "dtype": "float32"}).encode(), replace=True)
        print("published %s, version %d, %d MiB" % (NAME, version, megabytes), flush=True)


def work(number):
    with gpumem.Session(name="worker-%s" % number) as session:
        about = json.loads(session.metadata(NAME).data)
        weights = array_of(session.attach(NAME).view(about["dtype"], about["shape"]))
        print("worker %s: mean %.2f" % (number, float(weights.mean())), flush=True)


def missing():
    """What this example lacks here, as a sentence; None: nothing."""
    with gpumem.Session() as session:
        device = session.device()
    modules = ["cupy", "torch"] if device.on_gpu else ["numpy"]
    if any(importlib.util.find_spec(module) for module in modules):
        return None
    if device.on_gpu:
        return "the memory is on %s, and neither CuPy nor PyTorch is here to use it: pip install torch, or cupy-cuda12x" % device.name
    return "the memory is on the host, and NumPy is not here to use it: pip install numpy"


def main():
    try:
        problem = missing()
    except gpumem.GpumemError as error:  # for example because no daemon runs
        problem = str(error)
    if problem:
        sys.exit("ten_workers: " + problem)
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    # In processes of their own, as in real life.
    subprocess.run([sys.executable, __file__, "load", str(megabytes)], check=True)
    workers = [subprocess.Popen([sys.executable, __file__, "work", str(number)]) for number in range(10)]
    failed = sum(worker.wait() != 0 for worker in workers)
    with gpumem.Session() as session:
        session.unpublish(NAME)
    print("%d workers, one copy" % (10 - failed))
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "load":
        load(int(sys.argv[2]))
    elif len(sys.argv) > 2 and sys.argv[1] == "work":
        work(sys.argv[2])
    else:
        sys.exit(main())
