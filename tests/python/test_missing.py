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


@pytest.fixture
def copy(tmp_path):
    """A copy of the package in a folder of its own, beside a folder for libraries."""
    package = os.path.dirname(gpumem.__file__)
    shutil.copytree(package, str(tmp_path / "copy" / "mine" / "gpumem"), ignore=shutil.ignore_patterns("__pycache__"))
    libraries = tmp_path / "copy" / "weights" / ".libs"
    libraries.mkdir(parents=True)
    for folder in (tmp_path / "copy", tmp_path / "copy" / "mine" / "gpumem", libraries.parent, libraries):
        os.chmod(str(folder), 0o755)
    return tmp_path / "copy"


def folders(copy):
    """Where this copy of the package looks for its libraries."""
    program = "import gpumem._capi as c; print('\\n'.join(map(str, c.library_folders('weights/.libs'))))"
    status, said, wrong = python(program, PYTHONPATH=str(copy / "mine"))
    assert status == 0, wrong
    return said.split("\n")


def test_a_library_that_anybody_could_have_put_there_is_not_loaded(copy):
    """A package below /tmp looks for its libraries in /tmp, too."""
    libraries = copy / "weights" / ".libs"
    assert str(copy) in folders(copy) and str(libraries) in folders(copy)
    os.chmod(str(copy), 0o1777)
    assert str(copy) not in folders(copy)
    os.chmod(str(libraries), 0o777)
    assert str(libraries) not in folders(copy)


def test_folders_beside_a_library_that_is_named(tmp_path, monkeypatch):
    """libgpumem-weights may be beside it. Nobody else may put one where it is looked for."""
    from gpumem import _capi

    built, plain, weights = tmp_path / "client" / ".libs", tmp_path / "x" / "lib", tmp_path / "weights" / ".libs"
    for folder in (built, plain, weights):
        folder.mkdir(parents=True)
        os.chmod(str(folder), 0o755)
        os.chmod(str(folder.parent), 0o755)
        (folder / "libgpumem-client.so.0").touch()

    def beside(named):
        monkeypatch.setenv("GPUMEM_LIBRARY", str(named))
        return set(_capi.folders_beside_named("weights/.libs"))

    assert beside(built / "libgpumem-client.so.0") == {built, weights}
    assert beside(plain / "libgpumem-client.so.0") == {plain}  # and not what is two folders above
    os.chmod(str(weights), 0o777)
    os.chmod(str(plain), 0o1777)
    assert beside(built / "libgpumem-client.so.0") == {built} and beside(plain / "libgpumem-client.so.0") == set()
    # The linker finds it, and not in the current folder.
    monkeypatch.chdir(str(tmp_path))
    assert beside("libgpumem-client.so.0") == beside("client/.libs/libgpumem-client.so.0") == set()


def test_a_library_that_a_group_could_have_put_there_is_not_loaded(copy):
    """As in a folder that the members of a project share, in which nobody may rename what is another member's."""
    os.chmod(str(copy), 0o1775)
    assert str(copy) not in folders(copy) and str(copy / "weights" / ".libs") in folders(copy)
    # Who builds with umask 002 has such folders everywhere. Whoever can write to the package need not be kept out.
    os.chmod(str(copy / "mine" / "gpumem"), 0o775)
    assert str(copy) in folders(copy)


def test_a_link_is_followed_before_it_is_judged(copy):
    """Its owner could change it afterwards."""
    (copy / "lib").symlink_to(copy / "weights")
    assert str(copy / "weights") in folders(copy) and str(copy / "lib") not in folders(copy)
    # Who can write to a folder on its way could exchange what is behind it.
    (copy / "weights" / "lib").mkdir(mode=0o755)
    (copy / "lib64").symlink_to(copy / "weights" / "lib")
    assert str(copy / "weights" / "lib") in folders(copy)
    os.chmod(str(copy / "weights"), 0o777)
    assert not any(folder.startswith(str(copy / "weights")) for folder in folders(copy))


def test_a_library_in_a_folder_of_another_user_is_not_loaded(copy):
    libraries = copy / "weights" / ".libs"
    assert str(libraries) in folders(copy)
    try:
        os.chown(str(libraries), 54321, 54321)
    except OSError:  # not root, or root of a namespace that knows one user only
        pytest.skip("needs root, for folders of several users")
    assert str(libraries) not in folders(copy)


def test_without_a_daemon(tmp_path):
    status, said, wrong = python(SAY, GPUMEM_SOCKET=str(tmp_path / "socket"))
    assert status == 0 and said.startswith("DisconnectedError cannot reach gpumemd"), wrong


def test_without_a_driver(on_gpu):
    """As in a container that has the daemon's socket, but not the GPU."""
    program = """
import gpumem
with gpumem.Session() as session:
    for call in (lambda: session.alloc(1 << 20), lambda: session.malloc(1 << 20), lambda: session.region("pytest-none", 1 << 24)):
        try:
            call()
        except gpumem.GpumemError as error:
            print(type(error).__name__, error)
"""
    status, said, wrong = python(program, LD_LIBRARY_PATH="")
    assert status == 0, wrong
    lines = said.splitlines()
    assert len(lines) == 3 and all(line.startswith("UnsupportedError device 0 ") and "cannot be used: " in line for line in lines), said


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


@pytest.mark.parametrize("module", ["torch", "cupy", "numpy"])
def test_weights_without_the_framework(module):
    """The program learns it from attach(), before it has anything; it may expect the exception of import, too."""
    program = """
import sys
sys.modules[%r] = None
import gpumem
try:
    gpumem.weights.attach("llama", kind=%r)
except gpumem.GpumemError as error:
    print(isinstance(error, ModuleNotFoundError), error)
""" % (module, module)
    status, said, wrong = python(program)
    assert status == 0 and said.startswith('True kind="%s" needs ' % module) and "pip install " in said, wrong


def test_numpy_without_numpy(on_host):
    program = """
import sys
sys.modules["numpy"] = None
import gpumem
with gpumem.Session() as session:
    try:
        session.alloc(4096).numpy()
    except gpumem.LibraryNotFoundError as error:
        print(error)
"""
    status, said, wrong = python(program)
    assert status == 0 and said.startswith("numpy() needs NumPy") and "pip install numpy" in said, wrong


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
