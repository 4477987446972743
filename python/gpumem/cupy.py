# SPDX-License-Identifier: Apache-2.0
"""CuPy on memory from gpumemd:

    import gpumem.cupy; gpumem.cupy.enable()

CuPy keeps its own pool, which is quick, and the pool takes its memory from gpumemd. When others need memory, the pool returns what it does
not use.
"""

import functools
import threading
from typing import Any, Dict, Optional, Tuple

from . import _captures, _cuda, default_session
from ._emptier import Emptier, SessionWants
from .errors import GpumemError, OutOfMemoryError, UnsupportedError, WaitTimeoutError, needs

_lock = threading.Lock()
_pool: Optional[Any] = None
_graphs: Dict[Any, Tuple[Any, int]] = {}  # into which streams are being captured: the session's core, and the number


def _cupy() -> Any:
    return needs("gpumem.cupy", "cupy")


def _empty(pool: Any) -> None:
    """Returns what the pool does not use. A graph uses memory that looks free to the pool, so nothing is returned once the program has captured
    one. PyTorch's graphs use none of this memory."""
    if not _captures.captured_by - {"torch"}:
        pool.free_all_blocks()


def _graph_now(cupy: Any, stream: Any) -> Tuple[Any, int]:
    """The core of the default session, and the number of the graph that the stream is being captured into. 0: none, or gpumemd cannot be
    asked, which must not be in the way of a capture."""
    try:
        session = default_session()
        return session._core_now(), _captures.graph_of(session, cupy.cuda.runtime.getDevice(), stream.ptr)
    except GpumemError:
        return None, 0


def _watch_graph(stream: Any, core: Any, number: int) -> None:
    """Has the library hear when the graph that the stream is about to make is gone. CuPy's class of graphs allows no weak references. But from
    CuPy 14 on, the graph takes over its stream's list of host functions, and drops it when it has destroyed itself. A function in that
    list that nobody calls is dropped with it."""

    def unused(argument: Any) -> None:
        pass

    _captures.gone_with(unused, core, number)
    stream._graph_host_funcargs = (stream._graph_host_funcargs or []) + [(unused, None)]


def _follow_graphs(cupy: Any, owner: Any) -> None:
    """Memory that a graph uses stays in place, also when it was freed, until the library hears that the graph is gone."""
    begin, end = owner.begin_capture, owner.end_capture
    if getattr(begin, "_gpumem_follows", False):
        return

    @functools.wraps(begin)
    def begin_capture(self: Any, *arguments: Any, **named: Any) -> Any:
        _graph_now(cupy, self)  # the library gets ready for the device, which it must not do during a capture
        result = begin(self, *arguments, **named)
        _graphs[_captures.cupy_key(self)] = _graph_now(cupy, self)  # nobody can ask for it any more if the capture breaks
        return result

    @functools.wraps(end)
    def end_capture(self: Any, *arguments: Any, **named: Any) -> Any:
        core, number = _graphs.pop(_captures.cupy_key(self), (None, 0))
        if number and hasattr(self, "_graph_host_funcargs"):
            _watch_graph(self, core, number)
        try:
            return end(self, *arguments, **named)
        finally:
            _graph_now(cupy, self)  # the library learns that the stream is not being captured any more

    setattr(begin_capture, "_gpumem_follows", True)
    owner.begin_capture, owner.end_capture = begin_capture, end_capture


def enable() -> Any:
    """Has CuPy take its GPU memory from gpumemd. Returns the pool, a cupy.cuda.MemoryPool."""
    global _pool
    cupy = _cupy()
    with _lock:
        if _pool is None:
            session = default_session()
            numbers = _cuda.numbers(session.devices)
            wanted = SessionWants(session)

            def allocate(size: int) -> Any:
                device = cupy.cuda.runtime.getDevice()
                if device not in numbers:
                    raise UnsupportedError("gpumemd does not serve GPU %d" % device)
                now = default_session()  # another one, if the program has closed the last
                wanted.listen_to(now)
                try:
                    block = now.malloc(max(size, 1), numbers[device], stream=cupy.cuda.get_current_stream().ptr)
                except (OutOfMemoryError, WaitTimeoutError) as error:
                    # cudaErrorMemoryAllocation. The pool then returns what it has cached, and tries again.
                    raise cupy.cuda.runtime.CUDARuntimeError(2) from error
                # Any stream may use it, and it stays when the session is closed.
                owner = block._hold_now().export()
                return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.ptr, size, owner, device), 0)

            pool = cupy.cuda.MemoryPool(allocate)
            Emptier(lambda: _empty(pool), wanted.wait, "gpumem-cupy")
            for owner in _captures.cupy_streams(cupy):
                _follow_graphs(cupy, owner)
            cupy.cuda.set_allocator(pool.malloc)
            _pool = pool
        return _pool


__all__ = ["enable"]
