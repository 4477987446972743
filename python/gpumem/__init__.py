# SPDX-License-Identifier: Apache-2.0
"""gpumem: GPU memory from gpumemd, the broker that lets processes share a GPU.

    import gpumem

    with gpumem.Session() as session:
        with session.alloc(64 << 20, tag="example") as buffer:
            ...  # cupy.asarray(buffer), torch.from_dlpack(buffer.view("float32")), on host memory buffer.numpy()

Importing the package needs no GPU, no daemon and no library. What is missing is said when it is used first. doc/python.md is the guide.
"""

import sys
import threading
from typing import TYPE_CHECKING, Optional

from ._aio import AsyncSession
from ._arrays import ForeignArray, View, from_dlpack
from ._captures import capturing
from ._core import FOREVER, HOST, DeviceInfo
from ._events import Event, EventIterator, Subscription
from ._memory import Batch, BatchEntry, Block, Buffer, Memory, Metadata
from ._region import Region, RegionStats
from ._session import Device, Placement, Pressure, Session, Stats
from .errors import (BusyError, CancelledError, ClosedError, DeadlockError, DeniedError, DisconnectedError, ExportedError, ForkedError,
                     GpumemError, HostMemoryError, InvalidError, LibraryNotFoundError, LimitError, NoLoopError, NotFoundError,
                     OutOfMemoryError, Status, UnsupportedError, WaitTimeoutError)

if TYPE_CHECKING:
    from . import weights as weights

__version__ = "0.1.0"

_lock = threading.RLock()
_default: Optional[Session] = None
_default_pid = 0


def default_session() -> Session:
    """The session of this process, for everything that names none. It is made when it is needed first, and again if it was closed, or in a
    forked child."""
    import os

    global _default, _default_pid
    with _lock:
        if _default is None or _default.closed or _default_pid != os.getpid():
            _default, _default_pid = Session(), os.getpid()
        return _default


def alloc(size: int, device: Device = 0, *, tag: Optional[str] = None, wait: Optional[float] = None, max_size: int = 0,
          type: Optional[str] = None, precision: Optional[str] = None, transport: str = "auto", signals: bool = False,
          for_others: bool = False, evictable: bool = False, cpu_ok: bool = False) -> Buffer:
    """Session.alloc() of the default session."""
    return default_session().alloc(size, device, tag=tag, wait=wait, max_size=max_size, type=type, precision=precision,
                                   transport=transport, signals=signals, for_others=for_others, evictable=evictable, cpu_ok=cpu_ok)


def _session_of(tag: str) -> Session:
    """The session that has the region with this tag. gpumem.torch has one that stays when the program closes the default session."""
    find = getattr(sys.modules.get(__name__ + ".torch"), "_session_of", None)
    session: Optional[Session] = find(tag) if find else None
    return session or default_session()


def pause(tag: str, keep: bool = True) -> None:
    """Gives the memory of the region with this tag to others. keep=False: its content is lost. See gpumem.torch.region()."""
    _session_of(tag).pause(tag, keep)


def resume(tag: str, wait: Optional[float] = None) -> None:
    """Gets the memory of a paused region back, at the same addresses. wait: seconds, if others have it; gpumem.FOREVER."""
    _session_of(tag).resume(tag, wait)


def library_version() -> str:
    """The version of the client library that is loaded."""
    from ._capi import library

    return str(library().gpumem_version().decode())


def __getattr__(name: str) -> object:
    if name == "weights":  # gpumem.weights needs no import of its own
        import importlib

        return importlib.import_module(".weights", __name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


__all__ = [
    "AsyncSession", "Batch", "BatchEntry", "Block", "Buffer", "BusyError", "CancelledError", "ClosedError", "DeadlockError",
    "DeniedError", "DeviceInfo", "DisconnectedError", "Event", "EventIterator", "ExportedError", "FOREVER", "ForeignArray",
    "ForkedError", "GpumemError", "HOST", "HostMemoryError", "InvalidError", "LibraryNotFoundError", "LimitError", "Memory", "Metadata",
    "NoLoopError", "NotFoundError", "OutOfMemoryError", "Placement", "Pressure", "Region", "RegionStats", "Session", "Stats", "Status",
    "Subscription", "UnsupportedError", "View", "WaitTimeoutError", "alloc", "capturing", "default_session", "from_dlpack",
    "library_version", "pause", "resume",
]
