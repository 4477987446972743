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

    class OldInner:
        pass

    class Inner:
        def set_record_stream_fn(self, address):
            calls.append("record_stream")

    class Allocator:
        def __init__(self, path, alloc, free):
            calls.append((os.path.basename(path), alloc, free))

        def allocator(self):
            return OldInner() if differences.get("deaf") else Inner()

    def change(allocator):
        if differences.get("late"):
            raise RuntimeError("Can't swap an already initialized allocator")
        calls.append("changed")

    memory = types.SimpleNamespace(CUDAPluggableAllocator=Allocator, change_current_allocator=change)
    if differences.get("old"):
        memory = types.SimpleNamespace()
    torch.cuda = types.SimpleNamespace(memory=memory, is_available=lambda: not differences.get("blind"), current_device=lambda: 0,
                                       empty_cache=lambda: calls.append("emptied"))
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


def test_without_a_daemon(module, monkeypatch, tmp_path):
    with_torch(monkeypatch)
    monkeypatch.setattr(gpumem, "_default", None)
    monkeypatch.setenv("GPUMEM_SOCKET", str(tmp_path / "socket"))
    with pytest.raises(gpumem.DisconnectedError, match="cannot reach gpumemd"):
        module.enable("arena")
    assert module.mode() is None


def test_a_pytorch_that_says_nothing_of_record_stream(module, monkeypatch, on_gpu):
    """Then any stream may have used any memory."""
    calls = with_torch(monkeypatch, deaf=True)
    library, _ = module._load_plugin()
    library.gpumem_torch_any_stream = lambda: calls.append("any stream")  # the real one holds for the process
    module.enable("arena")
    assert calls[1:] == ["any stream", "changed"]


PROGRAM = """
import ctypes
import sys
import torch

cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()


def empty_cache():
    if memory.value:
        assert cuda.cuCtxPushCurrent_v2(context) == 0 and cuda.cuMemFree_v2(memory) == 0
        memory.value = 0


torch.cuda.empty_cache = empty_cache
import gpumem.torch

print(gpumem.torch.enable())
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0  # as PyTorch's own allocator does
summary = gpumem.torch.memory_summary()
assert "its cache is on memory of gpumemd" in summary and "tensors" not in summary
try:
    gpumem.torch.enable("arena")
except gpumem.BusyError as error:
    assert "'segments'" in str(error)
print("ready", flush=True)
sys.stdin.readline()
"""
STAND_IN = """
import types

cuda = types.SimpleNamespace(memory=types.SimpleNamespace(CUDAPluggableAllocator=None), is_available=lambda: True, current_device=lambda: 0)
"""


@pytest.fixture
def segments(tmp_path, on_gpu):
    """A program that gpumem-run has started, with 64 MiB in a cache that stands in for PyTorch's."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    folders = os.path.dirname(os.environ["GPUMEM_LIBRARY"]) + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    program = subprocess.Popen([os.environ["GPUMEM_TEST_RUN"], "--report", "--", sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                               env=dict(os.environ, PYTHONPATH=path, LD_LIBRARY_PATH=folders))
    with program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["segments\n", "ready\n"]
        yield program
        program.kill()


def test_a_program_that_gpumem_run_has_started(segments):
    out, errors = segments.communicate("\n", timeout=60)
    assert (segments.returncode, out) == (0, ""), errors
    assert "1 allocation from gpumemd, 64.0M in all" in errors


def test_segments_return_what_pytorch_has_cached(segments):
    """When another process waits for memory, although the GPU is under no pressure."""
    with gpumem.Session(name="other") as session:
        assert session.pressure().level in ("low", "medium")
        with session.alloc(session.room() + 32 * MIB, wait=60) as buffer:
            assert buffer.size > 32 * MIB
    out, errors = segments.communicate("\n", timeout=60)
    assert (segments.returncode, out) == (0, ""), errors


def test_a_program_that_closes_the_default_session(module, monkeypatch, on_gpu):
    """PyTorch's tensors stay, and it gets more."""
    with_torch(monkeypatch)
    module.enable("arena")
    library = declared(module._load_plugin()[0])
    before, first = module.memory_stats()["in_use"], library.gpumem_torch_try_alloc(MIB, 0, None)
    gpumem.default_session().close()
    second = library.gpumem_torch_try_alloc(MIB, 0, None)
    assert first and second and module.memory_stats()["in_use"] == before + 2 * MIB and "gpumemd's heap" in module.memory_summary()
    with module.region("pytest-closed", 64 * MIB) as region:
        assert region.stats().state == "active"
    gpumem.pause("pytest-closed")
    assert region.stats().state == "paused"
    gpumem.resume("pytest-closed", wait=60)
    assert region.stats().state == "active"
    with pytest.raises(gpumem.NotFoundError):
        gpumem.pause("pytest-never-made")
    for pointer in (first, second):
        library.gpumem_torch_free(pointer, MIB, 0, None)


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

        def reset(self):
            pass

    cuda.current_stream = lambda: types.SimpleNamespace(cuda_stream=0)
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


def declared(library):
    for name in ("gpumem_torch_try_alloc", "gpumem_torch_region_alloc_0"):
        getattr(library, name).argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_void_p
    library.gpumem_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.gpumem_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


@pytest.fixture
def plugin(module):
    library, session = module._load_plugin()
    library.session = session
    return declared(library)


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


def is_reused(library, recorded):
    """Whether memory that was freed while a side stream is busy is used again at once."""
    from gpumem import _cuda

    gate, side = threading.Event(), ctypes.c_void_p()
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda unused: gate.wait(60))
    with _cuda._Context(0) as cuda:
        assert cuda.cuStreamCreate(ctypes.byref(side), 1) == 0 and cuda.cuLaunchHostFunc(side, wait, None) == 0
        try:
            first = library.gpumem_torch_try_alloc(MIB, 0, None)
            if recorded:
                library.gpumem_torch_record_stream(first, side)
            library.gpumem_torch_free(first, MIB, 0, None)
            second = library.gpumem_torch_try_alloc(MIB, 0, None)
        finally:
            gate.set()
        assert first and second and cuda.cuStreamSynchronize(side) == 0 and cuda.cuStreamDestroy_v2(side) == 0
        library.gpumem_torch_free(second, MIB, 0, None)
    return first == second


def test_memory_that_a_side_stream_uses_is_not_used_again_too_early(plugin, on_gpu):
    assert is_reused(plugin, recorded=False)  # in the order of its own stream
    assert not is_reused(plugin, recorded=True)


def test_without_record_stream_all_memory_counts_as_used_by_all_streams(on_gpu):
    program = ("import test_torch; import gpumem.torch\n"
               "library = test_torch.declared(gpumem.torch._load_plugin()[0])\n"
               "print(test_torch.is_reused(library, recorded=False))\n"
               "library.gpumem_torch_any_stream()\n"
               "print(test_torch.is_reused(library, recorded=False))\n")
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ["PYTHONPATH"]])
    said = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, PYTHONPATH=path)).stdout
    assert said == "True\nFalse\n"


class Capturing:
    """A stream, and a torch.cuda.CUDAGraph that captures it. ending says how the graph ends: "reset", "dropped", or "broken"."""

    def __init__(self, torch, cuda, ending):
        self.cuda, self.ending, self.stream, captured = cuda, ending, ctypes.c_void_p(), ctypes.c_void_p()
        stream = self.stream

        class Graph:
            def capture_begin(self):
                assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0

            def capture_end(self):
                if ending == "broken":
                    assert cuda.cuStreamSynchronize(stream) != 0
                if cuda.cuStreamEndCapture(stream, ctypes.byref(captured)):
                    raise RuntimeError("the capture was broken")

            def reset(self):
                if captured:
                    assert cuda.cuGraphDestroy(captured) == 0

        torch.cuda.CUDAGraph = Graph
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        torch.cuda.current_stream = lambda: types.SimpleNamespace(cuda_stream=stream.value)
        self.graph = Graph()

    def begin(self):
        self.graph.capture_begin()

    def end(self):
        if self.ending == "broken":
            with pytest.raises(RuntimeError):
                self.graph.capture_end()
        else:
            self.graph.capture_end()

    def go(self):
        """The graph will not be launched any more."""
        if self.ending == "reset":
            self.graph.reset()
        else:
            del self.graph


@pytest.mark.parametrize("ending", ["reset", "dropped", "broken"])
def test_memory_of_a_graph_is_free_when_the_graph_is_gone(module, monkeypatch, ending, on_gpu):
    from gpumem import _cuda

    with_torch(monkeypatch)
    with _cuda._Context(0) as cuda:
        capture = Capturing(sys.modules["torch"], cuda, ending)
        module.enable("arena")
        library, stream = declared(module._load_plugin()[0]), capture.stream
        before = module.memory_stats()["in_use"]
        capture.begin()
        freed, held = (library.gpumem_torch_try_alloc(MIB, 0, stream) for _ in range(2))
        library.gpumem_torch_free(freed, MIB, 0, stream)
        capture.end()
        assert freed and held and module.memory_stats()["in_use"] == before + 2 * MIB  # each launch uses it again
        capture.go()
        assert module.memory_stats()["in_use"] == before + MIB
        library.gpumem_torch_free(held, MIB, 0, stream)
        assert module.memory_stats()["in_use"] == before and cuda.cuStreamDestroy_v2(stream) == 0


@pytest.mark.parametrize("mode", ["arena", None])
@pytest.mark.parametrize("ending", ["reset", "dropped", "broken"])
def test_memory_of_a_region_that_is_freed_during_a_capture_is_free_when_the_graph_is_gone(module, monkeypatch, ending, mode, on_gpu):
    from gpumem import _cuda

    with_torch(monkeypatch)
    with _cuda._Context(0) as cuda:
        capture = Capturing(sys.modules["torch"], cuda, ending)
        if mode:
            module.enable(mode)
        library, session = module._load_plugin()
        stream, region = capture.stream, session.region("pytest-%s-%s" % (ending, mode), 64 * MIB)
        assert declared(library).gpumem_torch_region_set(0, region._hold_now().handle, 0) == 0
        early, late, after = (library.gpumem_torch_region_alloc_0(MIB, 0, stream) for _ in range(3))
        assert early and late and after and region.stats().in_use == 3 * MIB
        capture.begin()
        library.gpumem_torch_free(early, MIB, 0, stream)
        library.gpumem_torch_free(late, MIB, 0, stream)
        assert library.gpumem_torch_region_alloc_0(MIB, 0, stream) is None
        capture.end()
        library.gpumem_torch_free(after, MIB, 0, stream)
        assert region.stats().in_use == 2 * MIB  # each launch of the graph may use what was freed while it was captured
        library.gpumem_torch_graph_gone(0)
        assert region.stats().in_use == 2 * MIB
        capture.go()
        assert region.stats().in_use == 0 and region.stats().allocations == 0
        again = library.gpumem_torch_region_alloc_0(MIB, 0, stream)
        library.gpumem_torch_free(again, MIB, 0, stream)
        assert again and region.stats().in_use == 0 and cuda.cuStreamDestroy_v2(stream) == 0


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


def test_a_region_is_paused_and_resumed_by_its_tag(plugin, module, monkeypatch, on_gpu):
    from gpumem import _cuda

    with_torch(monkeypatch)
    monkeypatch.setattr(module, "_mode", "arena")
    with module.region("pytest-turns", 64 * MIB) as region:
        pointer = plugin.gpumem_torch_try_alloc(MIB, 0, None)
    there, back = ctypes.create_string_buffer(b"kept"), ctypes.create_string_buffer(5)
    _cuda.copy(0, pointer, ctypes.addressof(there), 4, 0)
    gpumem.pause("pytest-turns", keep=True)
    assert region.stats().state == "paused" and region.stats().held == 0
    gpumem.resume("pytest-turns", wait=60)
    _cuda.copy(0, ctypes.addressof(back), pointer, 4, 0)
    _cuda.synchronize(0)
    assert back.value == b"kept"
    gpumem.pause("pytest-turns", keep=False)
    gpumem.resume("pytest-turns", wait=60)
    assert region.stats().state == "active" and region.stats().in_use == MIB
    with module.region("pytest-turns") as again:
        assert again is region
    plugin.gpumem_torch_free(pointer, MIB, 0, None)


def test_regions_that_cannot_be(module, monkeypatch, on_gpu):
    with_torch(monkeypatch)
    with pytest.raises(gpumem.UnsupportedError, match="no torch.cuda.MemPool: regions need version 2.5 or later, or the mode arena"):
        with module.region("pytest-no-pool"):
            pass
    monkeypatch.setattr(module, "_mode", "arena")
    monkeypatch.setattr(module, "_slots", set())
    with pytest.raises(gpumem.UnsupportedError, match="at most 16 regions"):
        with module.region("pytest-one-more"):
            pass


class Pressed:
    """A session that says when memory is wanted."""

    def on_event(self, function, kinds):
        self.press = lambda size=None: function(types.SimpleNamespace(kind="reclaim", level="low", bytes=size))


def test_cached_blocks_are_returned_while_another_thread_captures(on_gpu):
    """Freeing is forbidden while any thread captures, and spoils the capture."""
    from gpumem import _cuda
    from gpumem._emptier import Emptier, SessionWants

    cuda, stream, graph, memory, freed = _cuda.driver(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), threading.Event()
    results = []

    def empty():
        with _cuda._Context(0):
            results.append(cuda.cuMemFree_v2(memory))
        freed.set()

    session = Pressed()
    with _cuda._Context(0):
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MIB)) == 0
        emptier = Emptier(empty, SessionWants(session).wait, "pytest")
        assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
        session.press()
        assert freed.wait(30) and results == [0]
        assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert emptier._empty is empty


def test_what_cannot_be_returned_is_tried_again(on_gpu):
    from gpumem._emptier import Emptier, SessionWants

    session, times = Pressed(), [threading.Event(), threading.Event()]

    def empty():
        first = not times[0].is_set()
        times[not first].set()
        if first:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    Emptier(empty, SessionWants(session).wait, "pytest")
    for event in times:
        session.press()
        assert event.wait(30)


def test_a_cache_is_not_emptied_again_and_again(monkeypatch, on_gpu):
    """Somebody who waits in vain has all clients asked once a second."""
    from gpumem import _emptier

    session, rests, rested, go_on = Pressed(), [], threading.Semaphore(0), threading.Semaphore(0)

    def sleep(seconds):
        rests.append(seconds)
        rested.release()
        go_on.acquire()

    monkeypatch.setattr(_emptier, "time", types.SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    wanted = _emptier.SessionWants(session)
    session.press(0)
    assert not wanted._wanted.is_set()  # the library had enough
    emptier = _emptier.Emptier(lambda: None, wanted.wait, "pytest")
    for _ in range(7):
        session.press()
        assert rested.acquire(timeout=30)
        session.press()  # is heard after the rest
        go_on.release()
        assert rested.acquire(timeout=30)
        go_on.release()
    assert rests[:8] == [1, 2, 4, 8, 16, 32, 32, 32] and emptier.times >= 14
    assert _emptier._next_rest(32.0, 33.0) == 1


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
