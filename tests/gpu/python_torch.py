# SPDX-License-Identifier: Apache-2.0
"""gpumem.torch on a GPU, for tests/gpu/python.sh. Each part runs in a process of its own, because a mode holds for a whole process."""
import os
import subprocess
import sys
import time

PARTS = {}


def part(function):
    PARTS[function.__name__] = function
    return function


def report(right, name):
    print("%s %s" % ("ok" if right else "not ok", name), flush=True)


def train(torch):
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(256, 1024, device="cuda")
    losses = []

    def step():
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimiser.step()
        return loss

    for _ in range(20):
        losses.append(step().item().hex())
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        step()
    torch.cuda.synchronize()
    print("figure step_us %.1f" % ((time.perf_counter() - begin) / 200 * 1e6))
    print("losses", " ".join(losses))


def empties(torch):
    """torch.empty for several sizes, in calls of the same on the CPU, which tell how fast the core is just now."""
    torch.use_deterministic_algorithms(False)  # which would fill each tensor

    def taken(count, **where):
        begin = time.perf_counter()
        for _ in range(count):
            torch.empty(dtype=torch.uint8, **where)
        return (time.perf_counter() - begin) / count

    for size in (4096, 1 << 20, 64 << 20):
        taken(200, size=(size,), device="cuda")
        best = min(taken(5000, size=(size,), device="cuda") / taken(5000, size=(4096,), device="cpu") for _ in range(5))
        print("figure empty_%d %.3f" % (size, best))


@part
def plain():
    import torch

    train(torch)
    empties(torch)


@part
def arena():
    import gpumem.torch

    assert gpumem.torch.enable("arena") == "arena" and gpumem.torch.mode() == "arena"
    import torch

    train(torch)
    empties(torch)
    stats = gpumem.torch.memory_stats()
    report(stats["in_use"] > 0 and stats["peak"] >= stats["in_use"], "arena: tensors are charged by gpumemd")
    summary = gpumem.torch.memory_summary()
    print(summary)
    report("in use" in summary and "heap" in summary, "arena: memory_summary() shows the state")
    report(gpumem.torch.enable("arena") == "arena", "arena: enabling twice is harmless")
    try:
        gpumem.torch.enable("segments")
        report(False, "arena: another mode is refused")
    except gpumem.BusyError:
        report(True, "arena: another mode is refused")
    report(torch.empty(0, device="cuda").numel() == 0, "arena: an empty tensor")


@part
def exhausted():
    import gpumem.torch

    gpumem.torch.enable("arena")
    import torch

    kept = []
    try:
        while True:
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    except RuntimeError as error:
        print(type(error).__name__, str(error).splitlines()[0])
        report(str(error).startswith("CUDA out of memory. Tried to allocate 1.00 GiB"), "arena: out of memory is an exception")
    report(len(kept) > 4, "arena: the GPU was filled")
    kept[0].fill_(7)
    report(int(kept[0][-1]) == 7, "arena: and goes on working")
    count = len(kept)
    del kept
    report(torch.ones(1 << 28, device="cuda").sum().item() == 1 << 28, "arena: memory that was freed comes back")
    report(gpumem.torch.memory_stats()["failures"] >= 1 and count > 0, "arena: refusals are counted")


@part
def streams():
    """A block that a side stream still uses is not reused, if record_stream() says so. The side stream is busy for long, and another tensor
    takes and overwrites the memory if it is free."""
    import gpumem.torch

    gpumem.torch.enable("arena")
    import torch

    side = torch.cuda.Stream()
    wrong = 0
    for size in (1 << 20, 32 << 20):
        for _ in range(20):
            tensor = torch.full((size,), 1, dtype=torch.uint8, device="cuda")
            total = torch.zeros((), dtype=torch.int64, device="cuda")
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                total.copy_(tensor.sum(dtype=torch.int64))
                tensor.record_stream(side)
                total.record_stream(side)
            pointer = tensor.data_ptr()
            del tensor
            others = [torch.full((size,), 2, dtype=torch.uint8, device="cuda") for _ in range(4)]
            reused = any(other.data_ptr() == pointer for other in others)
            side.synchronize()
            wrong += int(total) != size
            if reused and int(total) != size:
                print("reused too early")
            del others
    report(wrong == 0, "arena: record_stream keeps the memory until the side stream is done")

    # And without a second stream, memory is reused at once, in the stream's order.
    first = torch.empty(1 << 20, dtype=torch.uint8, device="cuda").data_ptr()
    report(torch.empty(1 << 20, dtype=torch.uint8, device="cuda").data_ptr() == first, "arena: a stream reuses its own memory at once")

    # A tensor of a side stream that is freed while its work runs.
    with torch.cuda.stream(side):
        mine = torch.full((8 << 20,), 3, dtype=torch.uint8, device="cuda")
        torch.cuda._sleep(20_000_000)
        result = mine.sum(dtype=torch.int64)
        del mine
    main = [torch.full((8 << 20,), 4, dtype=torch.uint8, device="cuda") for _ in range(4)]
    side.synchronize()
    report(int(result) == 3 * (8 << 20) and len(main) == 4, "arena: another stream waits for memory of a side stream")

    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(1024, 1024, device="cuda")
    with torch.cuda.graph(graph):
        result = static * 2 + 1
    static.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    report(result.sum().item() == 7 * 1024 * 1024, "arena: a graph replays")


@part
def late():
    import torch

    torch.ones(10, device="cuda")
    import gpumem.torch

    try:
        gpumem.torch.enable("arena")
        report(False, "enabling after the first tensor is refused")
    except gpumem.BusyError as error:
        report("before the first tensor" in str(error), "enabling after the first tensor is refused")
    try:
        gpumem.torch.enable("segments")
        report(False, "segments: says how to start the program")
    except gpumem.UnsupportedError as error:
        report("gpumem-run -- " in str(error), "segments: says how to start the program")


@part
def segments():
    import gpumem.torch

    assert gpumem.torch.enable() == "segments"
    import torch

    train(torch)
    empties(torch)
    report(torch.cuda.memory_stats()["allocated_bytes.all.peak"] > 0, "segments: memory_stats() works")
    print(gpumem.torch.memory_summary())


OTHER = """
import gpumem

with gpumem.Session(name="other") as session:
    with session.alloc(session.room() + (4 << 30), wait=60) as buffer:
        print(buffer.size)
"""


@part
def segments_pressed():
    """PyTorch has 8 GiB in its cache, and another process needs 4 GiB more than there are."""
    import gpumem.torch

    gpumem.torch.enable("segments")
    import torch

    torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    report(torch.cuda.memory_reserved() >= 8 << 30, "segments: PyTorch has memory in its cache")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_RUN") and name != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=plain)
    print((done.stdout + done.stderr).strip())
    report(done.returncode == 0, "segments: another process gets what PyTorch had in its cache")
    report(torch.cuda.memory_reserved() < 8 << 30, "segments: the cache was emptied")
    report(float(torch.ones(1000, device="cuda").sum()) == 1000, "segments: and PyTorch goes on")


@part
def exchange():
    """Tensors and buffers are the same memory."""
    import gpumem
    import torch

    with gpumem.Session() as session:
        with session.alloc(1 << 20) as buffer:
            tensor = torch.from_dlpack(buffer.view("float32", (512, 512)))
            tensor.fill_(2.5)
            torch.cuda.synchronize()
            report(bytes(buffer.read(4)) == b"\x00\x00\x20\x40", "PyTorch writes into a buffer through DLPack")
            other = torch.as_tensor(buffer.view("float32", (512, 512)), device="cuda")
            report(other.data_ptr() == tensor.data_ptr() and float(other.sum()) == 2.5 * 512 * 512,
                   "and reads it through __cuda_array_interface__")
            half = torch.from_dlpack(buffer.view("bfloat16"))
            report(half.dtype == torch.bfloat16 and half.numel() == 1 << 19, "bfloat16 goes through DLPack")
            source = torch.arange(1024, dtype=torch.int32, device="cuda")
            taken = gpumem.from_dlpack(source)
            report(taken.on_gpu and taken.ptr == source.data_ptr() and taken.dtype == "int32", "a tensor becomes an array here")
            buffer.copy_from(source)
            torch.cuda.synchronize()
            report(bytes(buffer.read(8)) == b"\0\0\0\0\1\0\0\0", "and is copied on the device")
            del source, taken, half, other
        report(float(tensor.sum()) != 0 and buffer.closed, "a tensor keeps the memory of a closed buffer")
        stream = torch.cuda.Stream()
        with session.alloc(64 << 20) as buffer:
            buffer.stream = stream
            with torch.cuda.stream(stream):
                torch.cuda._sleep(50_000_000)
                torch.from_dlpack(buffer).fill_(9)
            late = torch.from_dlpack(buffer)  # on the default stream, which waits for the other
            report(int(late.max()) == 9 and int(late.min()) == 9, "DLPack orders the streams")
            del late
    report(float(tensor.sum()) != 0, "and of a closed session")
    del tensor


@part
def regions():
    import gpumem
    import gpumem.torch

    if os.environ.get("REGION_MODE") == "arena":
        gpumem.torch.enable("arena")
    import torch

    name = os.environ.get("REGION_MODE", "pool")
    with gpumem.torch.region("kv", max_size=8 << 30):
        kv = torch.full((1 << 30,), 5, dtype=torch.uint8, device="cuda")
    beside = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    stats = gpumem.default_session().region_stats("kv")
    report(stats.in_use >= 1 << 30, "%s: a tensor is in the region" % name)
    pointer = kv.data_ptr()
    # A kernel that is still to write: pausing waits for it.
    kv.fill_(4)
    torch.cuda._sleep(200_000_000)
    kv.fill_(5)
    gpumem.pause("kv", keep=True)
    report(gpumem.default_session().region_stats("kv").held == 0, "%s: pausing gives the memory away" % name)
    report(float(beside.sum()) == 1000, "%s: other tensors go on" % name)
    gpumem.resume("kv", wait=60)
    report(kv.data_ptr() == pointer and int(kv.min()) == 5 and int(kv.max()) == 5, "%s: it comes back with its content, also what a kernel still had to write" % name)
    gpumem.pause("kv", keep=False)
    gpumem.resume("kv", wait=60)
    kv.fill_(6)
    report(int(kv.max()) == 6, "%s: and without" % name)


@part
def captures():
    """Before each capture, memory is freed that any stream may have used. The library's thread then records an event for all streams, which
    breaks a capture that has begun, unless it was announced. CAPTURE_MODE: "arena"; "region" (PyTorch has memory of ours in a region
    alone); "array" (it has an array of ours); "unannounced" (to see how often it happens)."""
    import gpumem
    import gpumem.torch

    mode, rounds = os.environ.get("CAPTURE_MODE", "region"), 300
    if mode == "unannounced":
        gpumem._captures.announce = lambda: None
    if mode == "arena":
        gpumem.torch.enable("arena")
    import torch

    session = gpumem.default_session()
    if mode == "arena":
        source = torch.ones(1 << 20, device="cuda")
    elif mode == "array":
        source = torch.from_dlpack(session.alloc(4 << 20).view("float32"))
    else:
        with gpumem.torch.region("captured", max_size=1 << 30):
            source = torch.ones(1 << 20, device="cuda")
    source.fill_(1)
    torch.cuda.synchronize()
    graphs, broken = [], None
    with torch.cuda.stream(torch.cuda.Stream()):
        try:
            for done in range(rounds):
                graphs.append(torch.cuda.CUDAGraph())
                with session.malloc(1 << 20) as block:
                    torch.from_dlpack(block.view("float32"))
                graphs[-1].capture_begin()
                source.add_(1)
                graphs[-1].capture_end()
        except RuntimeError as error:
            broken = "%d captures went well, then: %s" % (done, str(error).splitlines()[0])
    if mode == "unannounced":
        print("captures that are not announced:", broken or "all %d went well" % rounds, flush=True)
        os._exit(0)  # PyTorch's state is undefined after a broken capture
    if broken:
        print(broken)
    report(broken is None, "captures, %s: none of %d is broken by memory that is freed right before it" % (mode, rounds))
    graphs[0].replay()
    graphs[-1].replay()
    torch.cuda.synchronize()
    report(int(source.sum()) == 3 << 20, "captures, %s: the graphs replay" % mode)

    if mode == "arena":
        torch.cuda.synchronize()
        before, graph = session.stats().in_use, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = (source * 2 + 1) * 3
        held = session.stats().in_use - before
        del result, graph
        torch.cuda.synchronize()
        print("a graph had %.1f MiB, and %.1f MiB are left of it" % (held / (1 << 20), (session.stats().in_use - before) / (1 << 20)))
        report(held >= 12 << 20 and session.stats().in_use <= before, "captures, arena: memory of a graph goes back with the graph")

    # A buffer that others had is freed after a wait for the device, which would break a capture.
    before, graph = session.stats().in_use, torch.cuda.CUDAGraph()
    buffer = session.alloc(4 << 20)
    array = torch.from_dlpack(buffer.view("float32"))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        source.add_(1)
        del array
        buffer.close()
        graph.capture_end()
    graph.replay()
    report(int(source.sum()) == 4 << 20, "captures, %s: a buffer that is dropped during one does not break it" % mode)
    report(session.stats().in_use == before, "captures, %s: and is freed after it" % mode)


def main():
    try:
        import torch
    except ImportError:
        print("skip PyTorch is not installed")
        return 0
    print("PyTorch", torch.__version__)
    if not torch.cuda.is_available():
        print("skip PyTorch sees no GPU")
        return 0
    figures, losses = {}, {}
    runs = [(name, [], {}) for name in PARTS if not name.startswith("segments")]
    runs.append(("regions", [], {"REGION_MODE": "arena"}))
    runs += [("captures", [], {"CAPTURE_MODE": mode}) for mode in ("arena", "array", "unannounced")]
    if os.environ.get("GPUMEM_RUN_PROGRAM"):
        runs.insert(2, ("segments", [os.environ["GPUMEM_RUN_PROGRAM"], "--"], {}))
        runs.append(("segments_pressed", [os.environ["GPUMEM_RUN_PROGRAM"], "--"], {}))
    # Once more, by turns, for the figures.
    again = [run for run in runs if run[0] in ("plain", "arena", "segments")] * 2
    for i, (name, before, environment) in enumerate(runs + again):
        done = subprocess.run(before + [sys.executable, __file__, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, env=dict(os.environ, **environment), timeout=280)
        for line in done.stdout.splitlines():
            if line.startswith("figure "):
                _, figure, value = line.split()
                figures[name, figure] = min(float(value), figures.get((name, figure), float(value)))
            elif line.startswith("losses "):
                losses[name] = line
            elif i < len(runs):
                print(line)
        if done.returncode:
            print("not ok %s: exit status %d" % (name, done.returncode))
            print("\n".join("# " + line for line in done.stderr.splitlines()[-15:]))
    for mode in ("arena", "segments"):
        if mode in losses:
            report(losses[mode] == losses.get("plain"), "%s: the losses are PyTorch's own, bit for bit" % mode)
    for name, figure in sorted(figures):
        print("%s %s: %.2f, plain %.2f, ratio %.3f" % (name, figure, figures[name, figure], figures.get(("plain", figure), 0),
                                                       figures[name, figure] / figures.get(("plain", figure), 1)))
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PARTS[sys.argv[1]]()
    else:
        sys.exit(main())
