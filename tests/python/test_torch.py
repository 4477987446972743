# SPDX-License-Identifier: Apache-2.0
"""gpumem.torch without PyTorch: the plug-in on fake GPUs, and enable() with something that stands in for PyTorch. tests/gpu/python_torch.py
has the real one."""
import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import types

import pytest

import gpumem

MIB = 1 << 20


def stand_in(**differences):
    """As much of PyTorch as enable() touches."""
    torch = types.ModuleType("torch")
    calls = []

    class Inner:
        def set_record_stream_fn(self, address):
            calls.append("record_stream")

    class Allocator:
        def __init__(self, path, alloc, free):
            calls.append((os.path.basename(path), alloc, free))

        def allocator(self):
            return Inner()

    def change(allocator):
        if differences.get("late"):
            raise RuntimeError("Can't swap an already initialized allocator")
        calls.append("changed")

    memory = types.SimpleNamespace(CUDAPluggableAllocator=Allocator, change_current_allocator=change)
    if differences.get("old"):
        memory = types.SimpleNamespace()
    torch.cuda = types.SimpleNamespace(memory=memory, is_available=lambda: not differences.get("blind"), current_device=lambda: 0)
    torch.__version__ = "2.11"
    return torch, calls


@pytest.fixture
def module(monkeypatch):
    """gpumem.torch as when it was imported first."""
    import gpumem.torch as module

    for name, value in (("_mode", None), ("_plugin", None), ("_session", None)):
        monkeypatch.setattr(module, name, value)
    return module


def with_torch(monkeypatch, **differences):
    torch, calls = stand_in(**differences)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return calls


def test_an_old_pytorch_is_named(module, monkeypatch):
    with_torch(monkeypatch, old=True)
    with pytest.raises(gpumem.UnsupportedError, match="2.11 is too old"):
        module.enable()


def test_a_pytorch_without_a_gpu_is_named(module, monkeypatch):
    with_torch(monkeypatch, blind=True)
    with pytest.raises(gpumem.UnsupportedError, match="sees no GPU"):
        module.enable()


def test_segments_say_how_to_start_the_program(module, monkeypatch):
    with_torch(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    with pytest.raises(gpumem.UnsupportedError, match=r"gpumem-run -- python\S* train.py --fast"):
        module.enable("segments")
    with pytest.raises(gpumem.InvalidError):
        module.enable("nonsense")


def test_without_the_plug_in(module, monkeypatch):
    with_torch(monkeypatch)
    monkeypatch.setenv("GPUMEM_TORCH_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(gpumem.LibraryNotFoundError, match="/nowhere/lib.so"):
        module.enable("arena")


def test_a_daemon_without_gpus_is_named(module, monkeypatch, on_host):
    with_torch(monkeypatch)
    with pytest.raises(gpumem.UnsupportedError, match="no GPU"):
        module.enable("arena")
    gpumem.default_session().close()


def test_the_arena_is_enabled_once(module, monkeypatch, on_gpu):
    calls = with_torch(monkeypatch)
    assert module.enable() == module.enable("arena") == module.mode() == "arena"
    assert calls == [("libgpumem-torch.so", "gpumem_torch_alloc", "gpumem_torch_free"), "record_stream", "changed"]
    with pytest.raises(gpumem.BusyError):
        module.enable("segments")
    assert "gpumemd's heap" in module.memory_summary() and module.memory_stats()["mode"] == "arena"


def test_the_arena_comes_too_late(module, monkeypatch, on_gpu):
    with_torch(monkeypatch, late=True)
    with pytest.raises(gpumem.BusyError, match="before the first tensor"):
        module.enable("arena")
    assert module.mode() is None


@pytest.mark.parametrize("mode", ["arena", None])
def test_captures_are_announced_to_the_library(module, monkeypatch, mode, on_gpu):
    """Also if PyTorch has memory of ours in a region alone. test_captures.py has the rest."""
    with_torch(monkeypatch)
    said, cuda = [], sys.modules["torch"].cuda

    class Graph:
        def capture_begin(self):
            said.append("begins")

        def capture_end(self):
            said.append("ends")

    cuda.CUDAGraph, cuda.MemPool, cuda.use_mem_pool = Graph, lambda allocator: "pool", lambda pool, device: contextlib.nullcontext()
    if mode:
        module.enable(mode)
    else:
        with module.region("pytest-capture", 64 * MIB):
            assert module.mode() is None
    monkeypatch.setattr(module._capi, "call", lambda name: lambda: said.append(name))
    graph = Graph()
    graph.capture_begin()
    graph.capture_end()
    assert said == ["gpumem_capture_begin", "begins", "ends", "gpumem_capture_end"]


@pytest.fixture
def plugin(module):
    library, session = module._load_plugin()
    for name in ("gpumem_torch_try_alloc", "gpumem_torch_region_alloc_0"):
        getattr(library, name).argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_void_p
    library.gpumem_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.gpumem_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.session = session
    return library


def test_the_plug_in_serves_tensors(plugin, on_gpu):
    before = plugin.session.stats().in_use
    pointer = plugin.gpumem_torch_try_alloc(MIB, 0, None)
    assert pointer and plugin.session.stats().in_use == before + MIB
    plugin.gpumem_torch_record_stream(pointer, None)
    plugin.gpumem_torch_free(pointer, MIB, 0, None)
    assert plugin.session.stats().in_use == before
    assert plugin.gpumem_torch_try_alloc(0, 0, None) is None
    plugin.gpumem_torch_free(None, 0, 0, None)
    failures = plugin.gpumem_torch_failures()
    assert plugin.gpumem_torch_try_alloc(1 << 40, 0, None) is None and plugin.gpumem_torch_failures() == failures + 1
    assert plugin.gpumem_torch_try_alloc(MIB, 77, None) is None


def test_the_plug_in_serves_regions(plugin, on_gpu):
    region = plugin.session.region("pytest-torch", 64 * MIB)
    assert plugin.gpumem_torch_region_set(0, region._hold_now().handle, 0) == 0
    assert plugin.gpumem_torch_region_set(16, None, 0) == 1
    none = plugin.gpumem_torch_region_enter(0)
    inside = plugin.gpumem_torch_try_alloc(MIB, 0, None)
    assert plugin.gpumem_torch_region_enter(none) == 0
    outside, pooled = plugin.gpumem_torch_try_alloc(MIB, 0, None), plugin.gpumem_torch_region_alloc_0(MIB, 0, None)
    assert inside and outside and pooled and region.stats().in_use == 2 * MIB
    assert plugin.gpumem_torch_region_alloc_0(1 << 40, 0, None) is None
    for pointer in (inside, outside, pooled):
        plugin.gpumem_torch_record_stream(pointer, None)
        plugin.gpumem_torch_free(pointer, MIB, 0, None)
    assert region.stats().in_use == 0


def test_a_region_has_tensors_of_its_own_gpu_only(plugin, on_gpu):
    region = plugin.session.region("pytest-torch-gpu", 64 * MIB)
    assert plugin.gpumem_torch_region_set(0, region._hold_now().handle, 1) == 0  # of a GPU that the tensor is not on
    none = plugin.gpumem_torch_region_enter(0)
    other = plugin.gpumem_torch_try_alloc(MIB, 0, None)
    plugin.gpumem_torch_region_enter(none)
    assert other and plugin.gpumem_torch_region_alloc_0(MIB, 0, None) is None
    assert region.stats().in_use == 0
    plugin.gpumem_torch_free(other, MIB, 0, None)


def test_a_region_is_on_one_gpu(module, monkeypatch, on_gpu):
    with_torch(monkeypatch)
    monkeypatch.setattr(module, "_mode", "arena")
    with module.region("pytest-one-gpu", 64 * MIB):
        pass
    with pytest.raises(gpumem.InvalidError, match="on GPU 0, not on GPU 1"):
        with module.region("pytest-one-gpu", device=1):
            pass
    with pytest.raises(gpumem.UnsupportedError, match="GPU 7"):
        with module.region("pytest-other-gpu", device=7):
            pass


class Pressed:
    """A session that says when memory is wanted."""

    def on_event(self, function, kinds):
        self.press = lambda: function(types.SimpleNamespace(kind="reclaim", level="low"))


def test_cached_blocks_are_returned_while_another_thread_captures(on_gpu):
    """Freeing is forbidden while any thread captures, and spoils the capture."""
    from gpumem import _cuda
    from gpumem._emptier import Emptier

    cuda, stream, graph, memory, freed = _cuda.driver(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), threading.Event()
    results = []

    def empty():
        with _cuda._Context(0):
            results.append(cuda.cuMemFree_v2(memory))
        freed.set()

    session = Pressed()
    with _cuda._Context(0):
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MIB)) == 0
        emptier = Emptier(empty, session, "pytest")
        assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
        session.press()
        assert freed.wait(30) and results == [0]
        assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert emptier._empty is empty


def test_what_cannot_be_returned_is_tried_again(on_gpu):
    from gpumem._emptier import Emptier

    session, times = Pressed(), [threading.Event(), threading.Event()]

    def empty():
        first = not times[0].is_set()
        times[not first].set()
        if first:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    Emptier(empty, session, "pytest")
    for event in times:
        session.press()
        assert event.wait(30)


THROWS = """
#include <cstdio>
#include <stdexcept>
#include <gpumem/gpumem.h>
extern "C" int gpumem_torch_setup(gpumem_session *, const uint32_t *, unsigned);
extern "C" void *gpumem_torch_alloc(ssize_t, int, void *);
int main()
{
    gpumem_session *session;
    uint32_t number = 0;
    if (gpumem_connect(nullptr, &session) || gpumem_torch_setup(session, &number, 1))
        return 2;
    try {
        gpumem_torch_alloc(ssize_t(1) << 40, 0, nullptr);
    } catch (const std::runtime_error &error) {
        std::puts(error.what());
        return 0;
    }
    return 1;
}
"""


def test_a_failed_allocation_throws(module, tmp_path):
    compiler = os.environ.get("GPUMEM_TEST_CXX", "c++ -std=c++17").split()
    source = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
    (tmp_path / "throws.cpp").write_text(THROWS)
    program = str(tmp_path / "throws")
    subprocess.run(compiler + ["-I", source + "/include", "-o", program, str(tmp_path / "throws.cpp"), module.plugin_path(),
                               os.environ["GPUMEM_LIBRARY"], "-Wl,-rpath," + os.path.dirname(module.plugin_path())], check=True)
    folders = os.path.dirname(os.environ["GPUMEM_LIBRARY"]) + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=folders)).stdout
    assert said.startswith("CUDA out of memory. Tried to allocate 1024.00 GiB on GPU 0. gpumemd says: ")
