# SPDX-License-Identifier: Apache-2.0
"""CuPy on memory from gpumemd:

    import gpumem.cupy; gpumem.cupy.enable()

CuPy keeps its own pool, which is quick, and the pool takes its memory from gpumemd. When others need memory, the pool returns what it does
not use.
"""

import threading
from typing import Any, Optional

from . import _captures, _cuda, default_session
from ._emptier import Emptier, SessionWants
from .errors import OutOfMemoryError, UnsupportedError, WaitTimeoutError, needs

_lock = threading.Lock()
_pool: Optional[Any] = None


def _cupy() -> Any:
    return needs("gpumem.cupy", "cupy")


def _empty(pool: Any) -> None:
    """Returns what the pool does not use. A graph uses memory that looks free to the pool, so nothing is returned once the program has captured
    one. PyTorch's graphs use none of this memory."""
    if not _captures.captured_by - {"torch"}:
        pool.free_all_blocks()


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
            cupy.cuda.set_allocator(pool.malloc)
            _pool = pool
        return _pool


__all__ = ["enable"]
