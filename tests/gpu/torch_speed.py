# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tensors cost on gpumemd, beside PyTorch alone: tests/gpu/python.sh speed [ROUNDS] [empty] [step] [zero]. zero
is torch_zero.py: which part of arena mode slows a call down that needs no memory.

Each row is measured in fresh processes that take turns: plain, arena and segments, ROUNDS times each. A cell is the best and the median,
over all its processes, of microseconds per tensor (made and dropped) or per step. The floor is the same call without an allocation, so
that Python's and PyTorch's own parts can be told from the allocator's. In arena mode the floor on a GPU has a little more in it: PyTorch
calls a pluggable allocator for a tensor without elements, too.

A core may be half as fast for seconds, when its sibling is busy, and a process may stay there. So each time in Python is taken beside that
of torch.empty on the CPU, the yardstick, and told as if that had taken as long as it did at best in all processes."""
import os
import random
import statistics
import subprocess
import sys
import time

MODES = ("plain", "arena", "segments")
SIZES = (4096, 1 << 20, 64 << 20)
CPP = """
#include <torch/extension.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
static double since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t).count();
}
double empties(int64_t size, int64_t count) {
  auto options = torch::TensorOptions().dtype(torch::kUInt8).device(torch::kCUDA, 0);
  auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; i++) at::empty({size}, options);
  return since(begin) / count;
}
double held(int64_t size, int64_t count) {
  auto *allocator = c10::cuda::CUDACachingAllocator::get();
  std::vector<c10::DataPtr> all(count);
  auto begin = std::chrono::steady_clock::now();
  for (auto &one : all) one = allocator->allocate(size);
  for (auto &one : all) one.clear();
  return since(begin) / count;
}
double raws(int64_t size, int64_t count) {
  auto *allocator = c10::cuda::CUDACachingAllocator::get();
  auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; i++) allocator->allocate(size);
  return since(begin) / count;
}
"""


def figure(name, values, unit="figure"):
    print("%s %s %s" % (unit, name, " ".join("%.4f" % value for value in values)), flush=True)


def in_yardsticks(name, values):
    """Values of timed()."""
    figure(name, values, "yards")


def yardstick(count=1000):
    """Microseconds of a call that gpumemd has no part in."""
    import torch

    begin = time.perf_counter()
    for _ in range(count):
        torch.empty(4096, dtype=torch.uint8)
    return (time.perf_counter() - begin) / count * 1e6


def timed(work, count, repeats=15):
    """How long each of the count calls that work() makes takes, in yardsticks, several times over."""
    work()
    values, before = [], yardstick()
    for _ in range(4 * repeats):
        begin = time.perf_counter()
        work()
        taken, after = (time.perf_counter() - begin) / count * 1e6, yardstick()
        if max(before, after) < 1.1 * min(before, after):  # else the core changed its pace meanwhile
            values.append(taken / ((before + after) / 2))
        if len(values) == repeats:
            break
        before = after
    return values


def loop(make, count=2000):
    def work():
        for _ in range(count):
            make()

    return timed(work, count)


def held(make, count=1000):
    """All are made, then all are dropped, oldest first."""

    def work():
        tensors = [make() for _ in range(count)]
        tensors.reverse()
        while tensors:
            tensors.pop()

    return timed(work, count)


def churn(make_sized, count=2000, live=1000):
    """A thousand tensors live, of sizes between 512 bytes and 4 MiB; each new one takes the place of a random old one."""
    dice = random.Random(1)
    sizes = [int(2 ** dice.uniform(9, 22)) for _ in range(live + count)]
    places = [dice.randrange(live) for _ in range(count)]
    tensors = [make_sized(size) for size in sizes[:live]]

    def work():
        for place, size in zip(places, sizes[live:]):
            tensors[place] = make_sized(size)

    return timed(work, count)


def measure_empty():
    import torch

    cuda, meta = torch.device("cuda"), torch.device("meta")
    torch.empty(1, device=cuda)

    figure("yardstick", [yardstick() for _ in range(20)])
    # What stands for no allocation: the same Python, the same dispatch.
    in_yardsticks("floor, Python's call", loop(lambda: torch.empty(0, dtype=torch.uint8, device=cuda)))
    in_yardsticks("floor, meta device", loop(lambda: torch.empty(4096, dtype=torch.uint8, device=meta)))
    in_yardsticks("floor, held", held(lambda: torch.empty(0, dtype=torch.uint8, device=cuda)))
    in_yardsticks("floor, churn", churn(lambda size: torch.empty(0, dtype=torch.uint8, device=cuda)))

    # The first thousand calls of a process, whose memory is not there yet.
    begin = time.perf_counter()
    kept = [torch.empty(4096, dtype=torch.uint8, device=cuda) for _ in range(1000)]
    figure("first thousand, 4096", [(time.perf_counter() - begin) * 1e3])
    del kept

    for size in SIZES:
        in_yardsticks("loop, %d" % size, loop(lambda: torch.empty(size, dtype=torch.uint8, device=cuda)))
    in_yardsticks('loop, float32, device="cuda"', loop(lambda: torch.empty(1 << 18, device="cuda")))
    for size in (512,) + SIZES[:1] + (65536,) + SIZES[1:2]:
        in_yardsticks("held, %d" % size, held(lambda: torch.empty(size, dtype=torch.uint8, device=cuda)))
    in_yardsticks("held, %d, 100 of them" % SIZES[2], held(lambda: torch.empty(SIZES[2], dtype=torch.uint8, device=cuda), 100))
    in_yardsticks("churn, 512 to 4 MiB", churn(lambda size: torch.empty(size, dtype=torch.uint8, device=cuda)))

    # Below torch.empty: the allocator through one thin call.
    take, give = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    stream = torch.cuda.current_stream().cuda_stream
    for size in SIZES:
        in_yardsticks("allocator from Python, %d" % size, loop(lambda: give(take(size, stream))))

    # A side stream.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        in_yardsticks("loop on a side stream, 1048576", loop(lambda: torch.empty(1 << 20, dtype=torch.uint8, device=cuda)))

    # Without Python, if the machine can compile.
    if os.environ.get("GPUMEM_SPEED_CPP"):
        sys.path.insert(0, os.environ["GPUMEM_SPEED_CPP"])
        import gpumem_speed as cpp

        figure("floor, C++, at::empty", [cpp.empties(0, 20000) for _ in range(15)])
        for size in SIZES:
            figure("C++, at::empty, %d" % size, [cpp.empties(size, 20000) for _ in range(15)])
        for size in SIZES:
            figure("C++, the allocator, %d" % size, [cpp.raws(size, 20000) for _ in range(15)])
        for size in SIZES[:2]:
            figure("C++, the allocator, held, %d" % size, [cpp.held(size, 1000) for _ in range(30)])


def compile_cpp():
    """The loops without Python, for the other processes."""
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")  # which nothing is compiled for, but which is looked at
    import torch
    from torch.utils.cpp_extension import load_inline

    load_inline("gpumem_speed", CPP, functions=["empties", "held", "raws"], build_directory=sys.argv[2], with_cuda=False,
                extra_include_paths=cuda_includes(),
                extra_ldflags=["-L" + os.path.join(os.path.dirname(torch.__file__), "lib"), "-lc10_cuda", "-ltorch_cuda"])


def cuda_includes():
    """PyTorch's headers want CUDA's, which come with a toolkit or with NVIDIA's packages for Python."""
    found = ["/usr/local/cuda/include"]
    for folder in sys.path:
        for name in ("cuda_runtime", "cu13", "cu12"):
            found.append(os.path.join(folder, "nvidia", name, "include"))
    return [folder for folder in found if os.path.exists(os.path.join(folder, "cuda_runtime_api.h"))][:1]


def measure_step():
    """A model whose steps are long enough for the GPU to be the limit, and one of many small kernels, where Python is."""
    import torch

    for name, width, batch, layers, count in (("large", 2048, 2048, 4, 60), ("small", 256, 32, 12, 200)):
        torch.manual_seed(1)
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                                          torch.nn.Linear(4 * width, width)) for _ in range(layers)]).cuda()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        data = torch.randn(batch, width, device="cuda")
        times = []
        for i in range(count + 40):
            begin = time.perf_counter()
            optimiser.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data), data)
            loss.backward()
            optimiser.step()
            torch.cuda.synchronize()
            if i >= 40:
                times.append((time.perf_counter() - begin) * 1e6)
        figure("training step, %s" % name, [statistics.median(times)])


def main(rounds, what):
    import tempfile

    runner = os.environ.get("GPUMEM_RUN_PROGRAM")
    figures, notes, names, in_yards = {}, [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        if "empty" in what:
            done = subprocess.run([sys.executable, __file__, "compile", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True)
            if done.returncode == 0:
                os.environ["GPUMEM_SPEED_CPP"] = folder
            else:
                errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
                notes.append("note: no loops without Python, which need a compiler: %s" % " | ".join(errors[:3] or ["no reason"]))
        for number in range(rounds):
            first = number % len(MODES)
            for part in what:
                for mode in MODES[first:] + MODES[:first]:  # each round begins with another one
                    if mode == "segments" and not runner:
                        continue
                    before = [str(runner), "--"] if mode == "segments" else []
                    done = subprocess.run(before + [sys.executable, __file__, "measure", part, mode], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, universal_newlines=True, timeout=280)
                    for line in done.stdout.splitlines():
                        if line.startswith(("figure ", "yards ")):
                            words = line.split()
                            numbers = [word for word in words[1:] if word.replace(".", "").isdigit() and "." in word]
                            name = " ".join(words[1:len(words) - len(numbers)])
                            if name not in names:
                                names.append(name)
                            if words[0] == "yards":
                                in_yards.add(name)
                            figures.setdefault((name, mode), []).extend(float(number) for number in numbers)
                    if done.returncode:
                        print("not ok %s, %s: exit status %d" % (part, mode, done.returncode))
                        print("\n".join("# " + line for line in done.stderr.splitlines()[-15:]))
    yard = min([min(values) for (name, _), values in figures.items() if name == "yardstick"], default=1.0)
    for note in notes:
        print(note)
    print("%-34s %s" % ("us, best / median", "".join("%20s" % mode for mode in MODES)) + "   arena/plain  segments/plain")
    for name in names:
        cells, ratios, scale = "", "", yard if name in in_yards else 1.0
        plain = [value * scale for value in figures.get((name, "plain"), [])]
        for mode in MODES:
            values = [value * scale for value in figures.get((name, mode), [])]
            cells += "%20s" % ("%.3f / %.3f" % (min(values), statistics.median(values)) if values else "-")
            if mode != "plain" and values and plain:
                ratios += "   %.3f / %.3f" % (min(values) / min(plain), statistics.median(values) / statistics.median(plain))
        print("%-34s %s%s" % (name, cells, ratios), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["compile"]:
        compile_cpp()
    elif sys.argv[1:2] == ["measure"]:
        if sys.argv[3] != "plain":
            import gpumem.torch

            assert gpumem.torch.enable(sys.argv[3]) == sys.argv[3]
        {"empty": measure_empty, "step": measure_step}[sys.argv[2]]()
    else:
        try:
            import torch
        except ImportError:
            print("skip PyTorch is not installed")
            sys.exit(0)
        print("PyTorch %s, %s" % (torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"))
        given = sys.argv[1:]
        counted = int(given.pop(0)) if given and given[0].isdigit() else 3
        if "zero" in given:
            import torch_zero

            given.remove("zero")
            torch_zero.main(counted, int(os.environ["GPUMEM_TEST_DAEMON"]))
            if not given:
                sys.exit(0)
        sys.exit(main(counted, given or ["empty", "step"]))
