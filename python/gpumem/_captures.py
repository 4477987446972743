# SPDX-License-Identifier: Apache-2.0
"""Tells the library when a stream is being captured into a graph.

The library's thread records events for all streams of a context, which break a capture. It does not see captures begin, so they are
announced. PyTorch and CuPy begin theirs by a method of Python's, which announce() wraps. Programs announce all others with capturing().
"""

import functools
import sys
import threading
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Set

from . import _capi, _cuda

_changed = threading.Condition(threading.RLock())  # a finalizer may run, and come here, while this thread has it
_captures = 0  # which were announced and have not ended
_waits = 0  # threads that wait for a device, or are about to
# How long a capture that is about to begin lets them: the device may need the capture to go on before their wait can end.
_PATIENCE = 1.0

captured_by: Set[str] = set()
"""Who has captured something in this process: "torch", "cupy", or "program"."""
after_last: List[Callable[[], None]] = []
"""What is called when the last capture has ended."""


class _Capture:
    """A capture that was announced."""

    def __init__(self, by: str) -> None:
        global _captures
        captured_by.add(by)
        self._once = threading.Lock()
        begin = _capi.call("gpumem_capture_begin")
        with _changed:
            _captures += 1
        try:
            with _changed:
                _changed.wait_for(lambda: not _waits, _PATIENCE)
        except BaseException:  # the user pressed Ctrl-C
            with _changed:
                _captures -= 1
            raise
        begin()

    def end(self) -> None:
        """To be called when it has ended, or did not begin. Harmless if it was called before."""
        global _captures
        if not self._once.acquire(blocking=False):
            return
        _capi.call("gpumem_capture_end")()
        with _changed:
            _captures -= 1
            last = not _captures
        if last:
            for function in after_last:
                function()


@contextmanager
def capturing() -> Iterator[None]:
    """Announces captures of streams into CUDA graphs: all captures that begin inside the `with` must end there. Meanwhile the library does
    nothing that would break them, in any thread. PyTorch and CuPy need no such word from the program."""
    capture = _Capture("program")
    try:
        yield
    finally:
        capture.end()


@contextmanager
def kept_out() -> Iterator[bool]:
    """For a wait that would break a capture. True: none is under way, and none begins until the wait has begun. False: do not wait."""
    global _waits
    with _changed:
        allowed = not _captures
        _waits += allowed
    try:
        yield allowed
    finally:
        if allowed:
            with _changed:
                _waits -= 1
                _changed.notify_all()


# ---- frameworks

# The captures that frameworks have begun, and what ends their announcement.
_begun: Dict[Any, Callable[[], Any]] = {}


def _wrap(by: str, owner: Any, first: str, last: str, key: Callable[[Any], Any], lasting: Callable[[Any], bool]) -> None:
    """Announces the captures of a framework, which one method begins and another one ends. key() says which capture it is. An object that
    is dropped ends its capture, unless lasting() says otherwise."""
    begin, end = getattr(owner, first), getattr(owner, last)
    if getattr(begin, "_gpumem_announces", False):
        return

    @functools.wraps(begin)
    def begin_announced(self: Any, *arguments: Any, **named: Any) -> Any:
        before = by in captured_by
        capture = _Capture(by)
        try:
            result = begin(self, *arguments, **named)
        except BaseException:
            if not before:
                captured_by.discard(by)
            capture.end()
            raise
        over: Callable[[], Any] = capture.end
        if not lasting(self):
            finalizer = over = weakref.finalize(self, capture.end)
            finalizer.atexit = False
        # One that was there before is over: its stream was destroyed, and another one is in its place.
        _begun.pop(key(self), lambda: None)()
        _begun[key(self)] = over
        return result

    @functools.wraps(end)
    def end_announced(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return end(self, *arguments, **named)
        finally:  # a capture that failed has ended, too
            _begun.pop(key(self), lambda: None)()

    setattr(begin_announced, "_gpumem_announces", True)
    setattr(owner, first, begin_announced)
    setattr(owner, last, end_announced)


def _wrap_torch(torch: Any) -> bool:
    graph = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    if not hasattr(graph, "capture_begin"):
        return False
    _wrap("torch", graph, "capture_begin", "capture_end", lambda self: ("torch", id(self)), lambda self: False)
    return True


def _cupy_key(stream: Any) -> Any:
    """One handle stands for the default stream of each thread."""
    return "cupy", stream.ptr, threading.get_ident() if stream.ptr == _cuda.PER_THREAD else 0


def _wrap_cupy(cupy: Any) -> bool:
    stream: Any = getattr(getattr(cupy, "cuda", None), "Stream", None)
    if not hasattr(stream, "begin_capture"):
        return False
    external = getattr(cupy.cuda, "ExternalStream", ())  # whose stream somebody else destroys
    for kind in (stream, external or stream):
        owner = next(base for base in kind.__mro__ if "begin_capture" in vars(base))
        _wrap("cupy", owner, "begin_capture", "end_capture", _cupy_key, lambda self: isinstance(self, external))
    return True


_seen: Dict[str, Any] = {}


def announce() -> None:
    """Has PyTorch and CuPy announce their captures, if the program has imported them. Called wherever memory on a GPU is made or given
    to others: before that there is nothing that the library would record events for."""
    for name, wrap in (("torch", _wrap_torch), ("cupy", _wrap_cupy)):
        module = sys.modules.get(name)
        if module is not None and _seen.get(name) is not module:
            with _changed:
                if wrap(module):
                    _seen[name] = module


__all__ = ["after_last", "announce", "captured_by", "capturing", "kept_out"]
