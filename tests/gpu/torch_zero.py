# SPDX-License-Identifier: Apache-2.0
"""What slows torch.empty(0) down in arena mode, a call that needs no memory: tests/gpu/python.sh speed [ROUNDS] zero.

Each kind of process has one part more than the one before it:
  plain    PyTorch alone
  import   the package is imported, too
  session  a session is open as well, and with it the library's thread
  plugin   PyTorch's pluggable interface with our plug-in, but no session: PyTorch calls it for a tensor without elements, too, and notes
           the result in a table under a lock
  arena    gpumem.torch.enable("arena")

The kinds take turns in fresh processes, and each round begins with another kind. Three loops tell the call from the machine: torch.empty(0), the
same on the meta device, which has no allocator, and Python alone. If all three are slower in one kind of process, the whole process is.
The early figures are of the first 15 repeats, right after the start; the late ones are of the rest. Then come the context switches and the CPU
time of the other threads of the process and of the daemon, per second of measuring."""
import os
import statistics
import subprocess
import sys
import time

KINDS = ("plain", "import", "session", "plugin", "arena")
COUNT, EARLY, REPEATS = 2000, 15, 150


def prepare(kind, torch):
    """Makes this process one of that kind. Returns what must stay."""
    kept = None
    if kind == "import":
        import gpumem.torch
    elif kind == "session":
        import gpumem

        kept = gpumem.default_session()
    elif kind == "plugin":
        path = os.environ["GPUMEM_TORCH_LIBRARY"]
        kept = torch.cuda.memory.CUDAPluggableAllocator(path, "gpumem_torch_alloc", "gpumem_torch_free")
        torch.cuda.memory.change_current_allocator(kept)
    elif kind == "arena":
        import gpumem.torch

        gpumem.torch.enable("arena")
    torch.cuda.init()
    torch.cuda.synchronize()
    if kind != "plugin":  # which has no memory to give
        torch.empty(1, device="cuda")
    return kept


def threads(pid):
    """Of each thread but the first: its name, context switches so far, and milliseconds of CPU time."""
    found = {}
    for thread in os.listdir("/proc/%s/task" % pid):
        if thread == str(pid) and pid == os.getpid():
            continue
        folder = "/proc/%s/task/%s/" % (pid, thread)
        try:
            with open(folder + "status") as status, open(folder + "schedstat") as schedule:
                lines = dict(line.split(":", 1) for line in status if ":" in line)
                found[thread] = (lines["Name"].strip(), int(lines["voluntary_ctxt_switches"]) + int(lines["nonvoluntary_ctxt_switches"]),
                                 int(schedule.read().split()[0]) / 1e6)
        except OSError:
            pass  # it has ended meanwhile
    return found


def busy(before, after, seconds):
    """The threads that did something, as text."""
    said = {}
    for thread, (name, switches, cpu) in after.items():
        _, switches_before, cpu_before = before.get(thread, (name, 0, 0.0))
        total = said.setdefault(name, [0.0, 0.0])
        total[0] += (switches - switches_before) / seconds
        total[1] += (cpu - cpu_before) / seconds
    return ", ".join("%s %.0f/s %.1f ms/s" % (name, *total) for name, total in sorted(said.items()) if total[0] or total[1]) or "none"


def measure(kind, daemon):
    import torch

    kept = prepare(kind, torch)
    cuda, meta = torch.device("cuda"), torch.device("meta")
    loops = {"torch.empty(0)": lambda: torch.empty(0, dtype=torch.uint8, device=cuda),
             "the same, meta": lambda: torch.empty(0, dtype=torch.uint8, device=meta),
             "Python alone": lambda: len((kind, cuda))}
    values = {name: [] for name in loops}
    before, others, begin = threads(os.getpid()), threads(daemon), time.perf_counter()
    for _ in range(REPEATS):  # by turns, so that all of them meet the same moments
        for name, call in loops.items():
            start = time.perf_counter()
            for _ in range(COUNT):
                call()
            values[name].append((time.perf_counter() - start) / COUNT * 1e6)
    seconds = time.perf_counter() - begin
    for name, times in values.items():
        print("zero|%s|%s" % (name, " ".join("%.4f" % value for value in times)))
    print("threads|%s|gpumemd: %s" % (busy(before, threads(os.getpid()), seconds), busy(others, threads(daemon), seconds)))
    del kept


def cell(times):
    return "%.3f / %.3f" % (min(times), statistics.median(times)) if times else "-"


def main(rounds, daemon):
    figures, names, said = {}, [], []
    for number in range(rounds):
        first = number % len(KINDS)
        for kind in KINDS[first:] + KINDS[:first]:
            done = subprocess.run([sys.executable, __file__, kind, str(daemon)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  universal_newlines=True, timeout=280)
            for line in done.stdout.splitlines():
                what, name, numbers = (line.split("|") + ["", ""])[:3]
                if what == "threads":
                    said.append("%-8s %s; %s" % (kind, name, numbers))
                elif what == "zero":
                    times = [float(word) for word in numbers.split()]
                    for row, part in ((name + ", early", times[:EARLY]), (name + ", late", times[EARLY:])):
                        figures.setdefault((row, kind), []).extend(part)
                        if row not in names:
                            names.append(row)
            if done.returncode:
                print("not ok zero, %s: exit status %d" % (kind, done.returncode))
                print("\n".join("# " + line for line in done.stderr.splitlines()[-15:]))
    print("%-24s%s" % ("us, best / median", "".join("%17s" % kind for kind in KINDS)))
    for name in names:
        print("%-24s%s" % (name, "".join("%17s" % cell(figures.get((name, kind))) for kind in KINDS)))
    print("threads while measuring: switches and CPU time per second")
    for line in said:
        print("  " + line)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
