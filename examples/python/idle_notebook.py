# SPDX-License-Identifier: Apache-2.0
"""A notebook that gives its memory back while nobody uses it.

The notebook keeps its tables in a region. Between two cells it pauses the region: the memory goes to others, the content to pinned host memory,
and the addresses stay. The next cell resumes it, and finds everything where it was. Here another program has its turn meanwhile, and
needs most of the device.

    python3 idle_notebook.py [MEGABYTES]
"""
import contextlib
import sys

import gpumem


class Notebook:
    def __init__(self, session, megabytes):
        self.session = session
        self.region = session.region("notebook", 2 * megabytes << 20)
        self.table = self.region.alloc(megabytes << 20)

    @contextlib.contextmanager
    def cell(self):
        """What runs inside has the memory."""
        if self.region.stats().state == "paused":
            self.region.resume(wait=60)
        try:
            yield self
        finally:
            self.region.pause(keep=True)


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    with gpumem.Session(name="notebook") as session:
        notebook = Notebook(session, megabytes)
        with notebook.cell():
            notebook.table.write(b"forty-two")
            print("cell 1: %d MiB in use" % (notebook.region.stats().held >> 20))
        print("idle: %d MiB in use" % (notebook.region.stats().held >> 20))

        with gpumem.Session(name="other") as other:
            room = other.room()
            with other.alloc(room - (16 << 20)):
                print("meanwhile another program had the room of all of it")

        with notebook.cell():
            print("cell 2: the table says %s" % bytes(notebook.table.read(9)).decode())


if __name__ == "__main__":
    main()
