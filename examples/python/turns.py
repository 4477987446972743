# SPDX-License-Identifier: Apache-2.0
"""Training and serving in turns on one device.

Each program keeps its memory in a region. While one has its turn, the other's region is paused: its memory belongs to the one that works.
Together they need more than the device has. With PyTorch, gpumem.torch.region("train") does the same for tensors.

    python3 turns.py [MEGABYTES]
"""
import subprocess
import sys

import gpumem

TURNS = 3


def program(name, megabytes):
    """Works whenever a line comes, and answers with one."""
    with gpumem.Session(name=name) as session:
        region = session.region(name, megabytes << 20)
        block, turns = None, 0
        for _ in sys.stdin:
            if block is None:
                block = region.alloc(megabytes << 20, wait=60)
            else:
                region.resume(wait=60)
                assert block.read(8) == turns.to_bytes(8, "little"), "the content is gone"
            turns += 1
            block.write(turns.to_bytes(8, "little"))
            region.pause(keep=True)
            print("%s: turn %d" % (name, turns), flush=True)


def size_for(room, on_host):
    """Two thirds of the device for each of them, if the host has memory for the content of both. Memory comes in chunks of 2 MiB."""
    return (min(room // 3 * 2, on_host // 2) >> 21) * 2


def main():
    with gpumem.Session() as session:
        megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else size_for(session.room(), session.device("host").available)
    print("two programs with %d MiB each; every turn copies that much to the host and back" % megabytes, flush=True)
    programs = [subprocess.Popen([sys.executable, __file__, name, str(megabytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 universal_newlines=True) for name in ("train", "serve")]
    for _ in range(TURNS):
        for one in programs:
            one.stdin.write("go\n")
            one.stdin.flush()
            said = one.stdout.readline()
            if not said:
                sys.exit("turns: a program failed: it says why above")
            print(said, end="", flush=True)
    for one in programs:
        one.stdin.close()
    failed = sum(one.wait() != 0 for one in programs)
    print("%d programs took %d turns each, with %d MiB" % (2 - failed, TURNS, megabytes))
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 2:
        program(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(main())
