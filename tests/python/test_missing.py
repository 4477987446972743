# SPDX-License-Identifier: Apache-2.0
"""The package says what is missing, and never crashes, also at the end of the interpreter."""
import os
import shutil
import subprocess
import sys

import pytest

import gpumem


def python(program, **environment):
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, **environment))
    return done.returncode, done.stdout.strip(), done.stderr.strip()


SAY = """
import gpumem
try:
    gpumem.Session()
except gpumem.GpumemError as error:
    print(type(error).__name__, error)
"""


def test_without_the_library():
    status, said, wrong = python(SAY, GPUMEM_LIBRARY="/nowhere/lib.so")
    assert status == 0 and said.startswith("LibraryNotFoundError gpumem needs libgpumem-client.so.0"), wrong
    assert "Install gpumemd" in said and "GPUMEM_LIBRARY" in said


def test_a_library_that_anybody_could_have_put_there_is_not_loaded(tmp_path):
    """A package below /tmp looks for its libraries in /tmp, too."""
    anybodys, package = tmp_path / "anybodys", os.path.dirname(gpumem.__file__)
    shutil.copytree(package, str(anybodys / "mine" / "gpumem"), ignore=shutil.ignore_patterns("__pycache__"))
    (anybodys / "weights" / ".libs").mkdir(parents=True)
    program = "import gpumem._capi as c; print('\\n'.join(map(str, c.library_folders('weights/.libs'))))"

    def folders():
        status, said, wrong = python(program, PYTHONPATH=str(anybodys / "mine"))
        assert status == 0, wrong
        return said.split("\n")

    os.chmod(str(anybodys), 0o755)
    assert str(anybodys) in folders() and str(anybodys / "weights" / ".libs") in folders()
    os.chmod(str(anybodys), 0o1777)
    assert str(anybodys) not in folders()
    os.chmod(str(anybodys / "weights" / ".libs"), 0o777)
    assert str(anybodys / "weights" / ".libs") not in folders()
    if os.geteuid() == 0:
        os.chmod(str(anybodys / "weights" / ".libs"), 0o755)
        os.chown(str(anybodys / "weights" / ".libs"), 54321, 54321)
        assert str(anybodys / "weights" / ".libs") not in folders()


def test_without_a_daemon(tmp_path):
    status, said, wrong = python(SAY, GPUMEM_SOCKET=str(tmp_path / "socket"))
    assert status == 0 and said.startswith("DisconnectedError cannot reach gpumemd"), wrong


def test_the_interpreter_ends_with_everything_in_use():
    program = """
import gpumem
session = gpumem.Session()
session.on_event(print)
buffer = session.alloc(1 << 20)
view = buffer.view("float32")
block = session.malloc(4096)
capsule = None if buffer.on_gpu else view.__dlpack__()
kept = None if buffer.on_gpu else view.memoryview()
batch = session.batch([4096] * 3)
region = session.region("pytest-end", 8 << 20)
piece = region.alloc(4096)
print("end")
"""
    assert python(program) == (0, "end", "")


def test_numpy_has_a_tensor_when_the_interpreter_ends(on_host, numpy):
    program = """
import gpumem, numpy, sys
session = gpumem.Session()
view = session.alloc(1 << 20).view("float32")
view.numpy()[:] = 3
array = numpy.from_dlpack(view)
sys.kept = array  # until after the modules are gone
sys.kept_session = session
print(int(array.sum()))
"""
    assert python(program) == (0, str(3 * (1 << 18)), "")


@pytest.mark.parametrize("module", ["torch", "cupy", "numba", "rmm"])
def test_without_the_framework(module):
    program = """
import importlib, sys
sys.modules[%r] = None
module = importlib.import_module("gpumem.%s")
try:
    module.enable()
except Exception as error:
    print(type(error).__name__, error)
""" % (module, module)
    status, said, wrong = python(program)
    assert status == 0 and said.startswith("LibraryNotFoundError") and "pip install" in said, wrong
