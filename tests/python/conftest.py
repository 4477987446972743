# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share. tests/integration/python.sh starts the daemon and runs them; with GPUMEM_TEST_TAP, results
are also written there as TAP."""
import gc
import json
import os
import struct
import sys

import pytest

import gpumem

BACKEND = os.environ.get("GPUMEM_TEST_BACKEND", "host")


@pytest.fixture
def session():
    with gpumem.Session(name="pytest") as session:
        yield session


@pytest.fixture
def on_host():
    """For tests of memory that the CPU can use."""


@pytest.fixture
def on_gpu():
    """For tests of memory that only a GPU can use."""


def pytest_collection_modifyitems(config, items):
    # What is for another backend or another Python is no test here, so it is not skipped either.
    other = "on_gpu" if BACKEND == "host" else "on_host"

    def fits(item):
        needs = item.get_closest_marker("since")
        return other not in item.fixturenames and (needs is None or sys.version_info >= needs.args)

    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = [item for item in items if fits(item)]


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy")


@pytest.fixture
def leaks_nothing():
    """After the test, this process holds no memory of the daemon's."""
    with gpumem.Session(name="pytest-leaks") as session:
        yield session
        gc.collect()
        assert session.stats().in_use == 0


def write_safetensors(path, tensors):
    """A safetensors file. tensors: name, type, shape, bytes."""
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, _, data in tensors))


@pytest.fixture
def model(tmp_path):
    """A model as a safetensors file."""
    path = tmp_path / "model.safetensors"
    write_safetensors(path, [("a", "F32", [2, 3], struct.pack("<6f", *range(6))), ("b", "I64", [], struct.pack("<q", -7)),
                             ("half", "BF16", [2], b"\x80\x3f\x00\x40"), ("none", "U8", [0, 4], b""), ("odd", "F8_E8M0", [3], b"abc")])
    return path


class Tap:
    def __init__(self, path):
        self.file, self.number = open(path, "w"), 0

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("/")[-1]
        if report.when == "call" or report.outcome != "passed":
            if report.when == "teardown" and report.outcome == "passed":
                return
            self.number += 1
            word = "not ok" if report.outcome == "failed" else "ok"
            why = ""
            if report.outcome == "skipped":
                why = " # SKIP %s" % str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "").replace("Skipped: ", "")
            print("%s %d - %s%s" % (word, self.number, name.replace("#", ""), why), file=self.file)
            if report.outcome == "failed":
                print("\n".join("# " + line for line in str(report.longrepr).splitlines()), file=self.file)
            self.file.flush()

    def pytest_sessionfinish(self, session, exitstatus):
        print("1..%d" % self.number, file=self.file)
        self.file.close()


def pytest_configure(config):
    config.addinivalue_line("markers", "since(major, minor): the first Python that has it")
    if os.environ.get("GPUMEM_TEST_TAP"):
        config.pluginmanager.register(Tap(os.environ["GPUMEM_TEST_TAP"]), "tap")
