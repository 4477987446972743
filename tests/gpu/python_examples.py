# SPDX-License-Identifier: Apache-2.0
"""The examples on a GPU, for tests/gpu/python.sh: each with the size that its user would give it, in whatever framework is installed."""
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
RUNS = [
    (["worker"], ["in use now: 0 bytes"], None),
    (["idle_notebook", "4096"], ["cell 1: 4096 MiB in use", "idle: 0 MiB in use", "cell 2: the table says forty-two"], None),
    (["turns", "8192"], ["2 programs took 3 turns each, with 8192 MiB"], None),
    (["limits"], ["3 programs had their share"], None),
    (["ten_workers", "2048"], ["10 workers, one copy"] + ["worker %d: mean 2.50" % i for i in range(10)], ("cupy", "torch")),
    (["with_cupy"], ["CuPy's memory is from gpumemd"], ("cupy",)),
    (["with_jax"], ["JAX and gpumem have the same memory"], ("jax",)),
    (["with_numba"], ["Numba's memory is from gpumemd"], ("numba.cuda",)),
    (["with_rmm"], ["RMM's memory is from gpumemd"], ("rmm",)),
]


def installed(module):
    return subprocess.run([sys.executable, "-c", "import " + module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main():
    for words, lines, needs in RUNS:
        if needs and not any(installed(module) for module in needs):
            print("skip %s: %s is not installed" % (words[0], " or ".join(needs)))
            continue
        done = subprocess.run([sys.executable, str(FOLDER / (words[0] + ".py"))] + words[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=120, env=dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false"))
        missing = [line for line in lines if line not in done.stdout]
        print("%s examples: %s" % ("not ok" if done.returncode or missing else "ok", " ".join(words)), flush=True)
        if done.returncode or missing:
            print("\n".join("# " + line for line in done.stdout.splitlines()[-15:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
