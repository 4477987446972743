# SPDX-License-Identifier: Apache-2.0
"""Captures of streams into graphs are announced to the library, which would break them otherwise: by the program, and by what stands in for
PyTorch and CuPy here. tests/gpu/python_torch.py and python_cupy.py have the real ones."""
import ctypes
import gc
import sys
import threading
import types

import pytest

import gpumem
from gpumem import _capi, _captures, _cuda

MIB = 1 << 20


@pytest.fixture
def said(monkeypatch):
    """What the library hears: + for a capture that begins, - for one that has ended."""
    said, call = [], _capi.call

    def recorded(name):
        function = call(name)
        if name not in ("gpumem_capture_begin", "gpumem_capture_end"):
            return function
        return lambda: (said.append("+" if name.endswith("begin") else "-"), function())

    monkeypatch.setattr(_capi, "call", recorded)
    return said


def give_memory_away():
    with gpumem.Session() as session, session.malloc(MIB) as block:
        assert block.view("float32").__cuda_array_interface__


# ---- programs


def test_a_program_announces_its_captures(said):
    with gpumem.capturing():
        assert said == ["+"]
        with pytest.raises(ZeroDivisionError), gpumem.capturing():
            raise ZeroDivisionError
        assert said == ["+", "+", "-"]
    assert said == ["+", "+", "-", "-"]


class Captured:
    """A stream of the driver's that is being captured, in the strictest mode."""

    def __init__(self):
        self.context, self.stream, self.graph = _cuda._Context(0), ctypes.c_void_p(), ctypes.c_void_p()

    def __enter__(self):
        cuda = self.context.__enter__()
        assert cuda.cuStreamCreate(ctypes.byref(self.stream), 1) == 0
        assert cuda.cuStreamBeginCapture_v2(self.stream, 0) == 0
        return self

    def __exit__(self, *error):
        cuda = _cuda.driver()
        self.result = cuda.cuStreamEndCapture(self.stream, ctypes.byref(self.graph))
        assert cuda.cuStreamDestroy_v2(self.stream) == 0
        self.context.__exit__(*error)


def test_memory_that_is_dropped_during_a_capture_is_freed_after_it(session, on_gpu):
    """To wait for the device would break the capture."""
    buffer = session.alloc(4 * MIB)
    array = gpumem.from_dlpack(buffer.view("float32"))
    before = session.stats().in_use
    with gpumem.capturing():
        with Captured() as captured:
            del array
            buffer.close()
            assert session.stats().in_use == before  # which uses the session, too
        assert captured.result == 0
    assert session.stats().in_use == before - 4 * MIB


def test_an_array_that_outlives_its_session_is_freed_before_the_session_ends(monkeypatch, on_gpu):
    """The end of a session unmaps its buffers without a wait for the device."""
    order, session = [], gpumem.Session()
    library = session._core_now().library
    for name in ("gpumem_buffer_destroy", "gpumem_disconnect"):
        call = getattr(library, name)
        monkeypatch.setattr(library, name, lambda *given, name=name, call=call: (order.append(name), call(*given)))
    array = gpumem.from_dlpack(session.alloc(4 * MIB).view("float32"))
    session.close()
    with gpumem.capturing():
        del array
        gc.collect()
        assert order == []
    gc.collect()
    assert order == ["gpumem_buffer_destroy", "gpumem_disconnect"]


def test_an_interrupted_announcement_counts_for_nothing(monkeypatch, said):
    def interrupted(predicate, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(_captures._changed, "wait_for", interrupted)
    with pytest.raises(KeyboardInterrupt), gpumem.capturing():
        pass
    with _captures.kept_out() as allowed:
        assert allowed
    assert said == []


def test_weights_that_are_dropped_during_a_capture(session, model, on_gpu):
    gpumem.weights.load(str(model), name="pytest-capture", session=session)
    weights = gpumem.weights.attach("pytest-capture", session=session, kind="view")
    array = gpumem.from_dlpack(weights["a"])
    with gpumem.capturing(), Captured() as captured:
        del array
        weights.close()
    assert captured.result == 0
    gpumem.weights.remove("pytest-capture", session=session)


def test_a_capture_waits_until_a_wait_has_ended(monkeypatch):
    """Whoever was about to wait for the device when the capture began would break it."""
    order, changed = [], _captures._changed
    wait_for = changed.wait_for

    def waits(predicate, seconds):
        assert not predicate() and seconds > 0
        with pytest.raises(StopIteration), _captures.kept_out() as allowed:
            order.append(("another wait", allowed))
            raise StopIteration
        outer.__exit__(None, None, None)
        assert wait_for(predicate, seconds)
        order.append("begins")

    outer = _captures.kept_out()
    assert outer.__enter__()
    monkeypatch.setattr(changed, "wait_for", waits)
    with gpumem.capturing():
        pass
    assert order == [("another wait", False), "begins"]


# ---- PyTorch


def torch_module(said):
    class Graph:
        def capture_begin(self, pool=None, capture_error_mode="global"):
            said.append(capture_error_mode)
            if pool:
                raise RuntimeError("no capture")

        def capture_end(self):
            said.append("ended")
            raise RuntimeError("the capture was broken")

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(CUDAGraph=Graph)
    return torch


def test_pytorch_announces_its_captures(said, monkeypatch, on_gpu):
    """It need not even be on gpumemd: it may have an array of ours."""
    torch = torch_module(said)
    monkeypatch.setitem(sys.modules, "torch", torch)
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    assert said == ["global"]  # as long as there is no memory of ours
    said.clear()
    give_memory_away()
    give_memory_away()  # which announces nothing twice
    graph.capture_begin(capture_error_mode="relaxed")
    with pytest.raises(RuntimeError, match="broken"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.capture_begin(1)
    with pytest.raises(RuntimeError, match="broken"):
        graph.capture_end()  # of nothing
    graph.capture_begin()
    del graph  # while it captures
    gc.collect()
    assert said == ["+", "relaxed", "ended", "-", "+", "global", "-", "ended", "+", "global", "-"]


def test_pytorch_that_is_imported_after_the_memory_was_made(said, monkeypatch, session, on_gpu):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))  # which is still being imported
    block = session.malloc(MIB)
    torch = torch_module(said)
    monkeypatch.setitem(sys.modules, "torch", torch)
    capsule = block.__dlpack__()
    torch.cuda.CUDAGraph().capture_begin()
    gc.collect()
    assert said == ["+", "global", "-"] and capsule


# ---- CuPy


@pytest.fixture
def cupy(said, monkeypatch):
    """CuPy's streams."""
    module = types.ModuleType("cupy")

    class BaseStream:
        def __init__(self, ptr):
            self.ptr = ptr

        def __eq__(self, other):
            return self.ptr == other.ptr

        def __hash__(self):
            return self.ptr

        def begin_capture(self, mode=None):
            if self.ptr == 0:
                raise RuntimeError("cannot capture on the default (legacy) stream")
            said.append("begin %d" % self.ptr)

        def end_capture(self):
            said.append("end %d" % self.ptr)
            return "graph"

    class Stream(BaseStream):
        pass

    class ExternalStream(BaseStream):
        pass

    module.cuda = types.SimpleNamespace(Stream=Stream, ExternalStream=ExternalStream)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_cupy_announces_its_captures(said, cupy, on_gpu):
    give_memory_away()
    stream = cupy.cuda.Stream(7)
    _captures.captured_by.discard("cupy")
    stream.begin_capture()
    assert "cupy" in _captures.captured_by
    assert stream.end_capture() == "graph"
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.Stream(0).begin_capture()
    stream.begin_capture(mode=1)
    del stream  # while it captures
    gc.collect()
    assert said == ["+", "begin 7", "end 7", "-", "+", "-", "+", "begin 7", "-"]


def test_each_thread_has_a_default_stream_of_its_own(said, cupy, on_gpu):
    give_memory_away()
    stream = cupy.cuda.ExternalStream(_cuda.PER_THREAD)
    stream.begin_capture()
    other = threading.Thread(target=stream.begin_capture)
    other.start()
    other.join()
    assert said == ["+", "begin 2", "+", "begin 2"]
    stream.end_capture()
    assert said[4:] == ["end 2", "-"]
    for announced in [key for key in _captures._begun if key[1] == _cuda.PER_THREAD]:
        _captures._begun.pop(announced)()  # the other thread has ended
    assert said[6:] == ["-"]


def test_a_capture_that_did_not_begin_is_none(said, cupy, on_gpu):
    give_memory_away()
    _captures.captured_by.discard("cupy")
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.Stream(0).begin_capture()
    assert "cupy" not in _captures.captured_by


def test_a_stream_of_somebody_else_has_many_objects(said, cupy, on_gpu):
    """CuPy destroys no such stream, so its capture goes on when the object is dropped, and another object ends it."""
    give_memory_away()
    cupy.cuda.ExternalStream(8).begin_capture()
    gc.collect()
    assert said == ["+", "begin 8"]
    cupy.cuda.ExternalStream(8).end_capture()
    assert said[2:] == ["end 8", "-"]
    cupy.cuda.ExternalStream(9).begin_capture()
    cupy.cuda.ExternalStream(9).begin_capture()  # a new stream: its owner has destroyed the other one
    cupy.cuda.ExternalStream(9).end_capture()
    assert said[4:] == ["+", "begin 9", "+", "begin 9", "-", "end 9", "-"]
