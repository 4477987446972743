# SPDX-License-Identifier: Apache-2.0
"""Two trainers and a server on one device, each with its share.

The server's requests wait for nobody: what it needs is there, because the trainers ask for no more than their shares. An administrator sets
the shares; here each program asks the daemon how much it may have, and lives with the answer.

    gpumemctl limit set client:trainer-1 max=40%
    python3 limits.py
"""
import subprocess
import sys

import gpumem


def trainer(name):
    """Takes batches as large as it may, and goes on with smaller ones when it meets its limit."""
    with gpumem.Session(name=name) as session:
        size, steps = session.device().capacity // 2, 0
        while steps < 5:
            try:
                with session.malloc(size) as batch:
                    batch.write(b"data")
                    steps += 1
            except gpumem.LimitError:
                size //= 2  # the limit: a smaller batch fits
            except gpumem.OutOfMemoryError:
                size //= 2  # the others have the rest
        print("%s: 5 steps with batches of %d MiB" % (name, size >> 20), flush=True)


def server(name):
    """Keeps what it needs for the whole time."""
    with gpumem.Session(name=name) as session:
        with session.alloc(session.device().capacity // 8, tag="model", wait=60) as model:
            for _ in range(5):
                with session.malloc(1 << 20, wait=60) as request:
                    request.write(b"question")
            print("%s: answered 5 requests, with a model of %d MiB" % (name, model.size >> 20), flush=True)


def main():
    names = ["trainer-1", "trainer-2", "server"]
    programs = [subprocess.Popen([sys.executable, __file__, name]) for name in names]
    failed = sum(one.wait() != 0 for one in programs)
    print("%d programs had their share" % (3 - failed))
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        (server if sys.argv[1] == "server" else trainer)(sys.argv[1])
    else:
        sys.exit(main())
