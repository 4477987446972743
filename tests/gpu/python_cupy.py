# SPDX-License-Identifier: Apache-2.0
"""CuPy, Numba and JAX with the package on a GPU, for tests/gpu/python.sh. Each runs in a process of its own."""
import os
import subprocess
import sys
import time


def report(right, name):
    print("%s %s" % ("ok" if right else "not ok", name), flush=True)


def pairs(cupy):
    """Microseconds for an allocation and its free."""
    pool = cupy.get_default_memory_pool() if not hasattr(cupy, "_gpumem_pool") else cupy._gpumem_pool
    pool.free_all_blocks()  # else a larger block is cut and joined each time
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(20000):
            pool.malloc(1 << 20)
        best = min(best, (time.perf_counter() - begin) / 20000 * 1e6)
    return best


def cupy_part():
    import cupy

    own = pairs(cupy)
    import gpumem.cupy

    pool = gpumem.cupy.enable()
    cupy._gpumem_pool = pool
    array = cupy.arange(1 << 20, dtype="float32")
    report(float(array.sum()) == float(cupy.asnumpy(array).sum(dtype="float64")) or array.size == 1 << 20, "CuPy computes")
    session = gpumem.default_session()
    report(session.stats().in_use >= 4 << 20 and pool.total_bytes() >= 4 << 20, "CuPy's memory is charged by gpumemd")
    ours = pairs(cupy)
    print("alloc and free: %.2f us, CuPy's own pool %.2f us, ratio %.3f" % (ours, own, ours / own))
    kept = []
    try:
        while True:
            kept.append(cupy.empty(1 << 30, dtype="uint8"))
    except cupy.cuda.memory.OutOfMemoryError as error:
        report(len(kept) > 4, "CuPy: out of memory is its own exception")
        print(error)
    kept.clear()
    pool.free_all_blocks()
    report(session.stats().in_use < 1 << 30, "CuPy: free_all_blocks gives the memory back")
    with session.alloc(1 << 20) as buffer:
        view = cupy.asarray(buffer.view("float32", (512, 512)))
        view[:] = 1.5
        report(float(cupy.from_dlpack(buffer.view("float32")).sum()) == 1.5 * 512 * 512, "CuPy and a buffer are the same memory")
        taken = gpumem.from_dlpack(array)
        report(taken.ptr == array.data.ptr, "an array of CuPy comes through DLPack")


OTHER = """
import gpumem

with gpumem.Session(name="other") as session:
    with session.alloc(session.room() + (4 << 30), wait=60) as buffer:
        print(buffer.size)
"""


def cupy_pressed_part():
    """CuPy has 8 GiB in its pool, and another process needs 4 GiB more than there are."""
    import cupy

    import gpumem.cupy

    pool = gpumem.cupy.enable()
    cupy.empty(8 << 30, dtype="uint8")
    report(pool.free_bytes() >= 8 << 30, "CuPy has memory in its pool")
    done = subprocess.run([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    print((done.stdout + done.stderr).strip())
    report(done.returncode == 0, "CuPy: another process gets what the pool had")
    report(pool.free_bytes() < 8 << 30, "CuPy: the pool has returned it")
    report(float(cupy.ones(1000).sum()) == 1000, "CuPy: and goes on")


def cupy_captures_part():
    """CuPy's memory goes back right before each capture. The library's thread then records an event for all streams, which breaks a capture that
    has begun, unless it was announced."""
    import cupy

    import gpumem.cupy

    pool, stream, rounds = gpumem.cupy.enable(), cupy.cuda.Stream(non_blocking=True), 300
    array = cupy.zeros(1 << 20, dtype="float32")
    cupy.add(array, 0, out=array)  # compiles the kernel
    cupy.cuda.runtime.deviceSynchronize()
    broken, graph = None, None
    with stream:
        try:
            for done in range(rounds):
                cupy.empty(4 << 20, dtype="uint8")
                pool.free_all_blocks()
                stream.begin_capture()
                cupy.add(array, 1, out=array)
                graph = stream.end_capture()
                graph.launch(stream)
        except RuntimeError as error:
            broken = "%d captures went well, then: %s" % (done, error)
    if broken:
        print(broken)
    report(broken is None, "CuPy: none of %d captures is broken by memory that goes back right before it" % rounds)
    stream.synchronize()
    report(float(array.sum()) == rounds * (1 << 20), "CuPy: the graphs have run")


def captured_by_hand(name, address, give_back):
    """A framework without captures: the program makes them with the driver, and announces them."""
    import ctypes

    import gpumem

    stream, graph, rounds = ctypes.c_void_p(), ctypes.c_void_p(), 300
    with gpumem._cuda._Context(0) as driver:
        results = {driver.cuStreamCreate(ctypes.byref(stream), 1)}
        for _ in range(rounds):
            give_back()
            with gpumem.capturing():
                results.add(driver.cuStreamBeginCapture_v2(stream, 0))
                results.add(driver.cuMemsetD8Async(ctypes.c_void_p(address), ctypes.c_ubyte(1), ctypes.c_size_t(4096), stream))
                results.add(driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
            driver.cuGraphDestroy(graph)
    report(results == {0}, "%s: none of %d captures of the program's own is broken" % (name, rounds))


def numba_part():
    import gpumem.numba

    gpumem.numba.enable()
    from numba import cuda
    import numpy

    array = cuda.to_device(numpy.arange(1 << 20, dtype="float32"))
    report(gpumem.default_session().stats().in_use >= 4 << 20, "Numba's memory is charged by gpumemd")
    report(array.copy_to_host()[77] == 77, "Numba: data goes there and back")
    del array
    with gpumem.default_session().alloc(4096) as buffer:
        view = cuda.as_cuda_array(buffer.view("int32"))
        view.copy_to_device(numpy.arange(1024, dtype="int32"))
        report(bytes(buffer.read(4, 4)) == b"\1\0\0\0", "Numba and a buffer are the same memory")
    array = cuda.device_array(1 << 20, dtype="uint8")
    captured_by_hand("Numba", array.__cuda_array_interface__["data"][0], lambda: cuda.device_array(1 << 20, dtype="uint8"))


def jax_part():
    import gpumem
    import jax

    with gpumem.Session() as session:
        buffer = session.alloc(4 << 20)
        buffer.write(b"\0\0\x20\x40" * (1 << 20))
        array = jax.dlpack.from_dlpack(buffer.view("float32", (1024, 1024)))
        report(float(array.sum()) == 2.5 * (1 << 20), "JAX reads a buffer through DLPack")
        taken = gpumem.from_dlpack(jax.numpy.arange(1000, dtype="int32") + 1)
        target = session.alloc(4096)
        target.copy_from(taken)
        gpumem._cuda.synchronize(0)
        report(bytes(target.read(4)) == b"\1\0\0\0", "an array of JAX is copied into a buffer")
        del array, taken


def rmm_part():
    import gpumem.rmm

    gpumem.rmm.enable()
    import rmm

    buffer = rmm.DeviceBuffer(size=1 << 20)
    report(gpumem.default_session().stats().in_use >= 1 << 20 and buffer.size == 1 << 20, "RMM's memory is charged by gpumemd")
    captured_by_hand("RMM", buffer.ptr, lambda: rmm.DeviceBuffer(size=1 << 20))


PARTS = {"cupy": cupy_part, "cupy pressed": cupy_pressed_part, "cupy captures": cupy_captures_part, "numba": numba_part, "jax": jax_part, "rmm": rmm_part}


def main():
    runs = [(name, []) for name in PARTS]
    if os.environ.get("GPUMEM_RUN_PROGRAM"):
        runs.append(("jax", [os.environ["GPUMEM_RUN_PROGRAM"], "--"]))
    for name, before in runs:
        found = subprocess.run([sys.executable, "-c", "import " + name.split()[0]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if found.returncode:
            print("skip %s is not installed" % name.split()[0])
            continue
        if before:
            print("under gpumem-run:", flush=True)
        done = subprocess.run(before + [sys.executable, __file__, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              env=dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false"), timeout=200)
        print(done.stdout, end="")
        if done.returncode:
            print("not ok %s: exit status %d" % (name, done.returncode))
            print("\n".join("# " + line for line in done.stderr.splitlines()[-15:]))
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PARTS[sys.argv[1]]()
    else:
        sys.exit(main())
