# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each carries the library's sentence, which names the cause and the remedy, and its status."""

import enum
import importlib
from typing import Any, Dict, Type


class Status(enum.IntEnum):
    """The outcomes of the C library (gpumem/status.h)."""

    OK = 0
    INVALID = 1
    DISCONNECTED = 2
    DENIED = 3
    LIMIT = 4
    NO_MEMORY = 5
    NOT_FOUND = 6
    PROTOCOL = 7
    VERSION = 8
    UNSUPPORTED = 9
    TIMEOUT = 10
    BUSY = 11
    SYSTEM = 12
    HOST_MEMORY = 13
    FORKED = 14
    DEADLOCK = 15
    CANCELLED = 16


class GpumemError(Exception):
    """Something failed. str() is a sentence for people; status says the same to programs."""

    status: Status = Status.SYSTEM


class InvalidError(GpumemError, ValueError):
    """An argument is wrong."""

    status = Status.INVALID


class ClosedError(InvalidError):
    """The session, buffer or region was closed before."""


class DisconnectedError(GpumemError, ConnectionError):
    """The daemon cannot be reached."""

    status = Status.DISCONNECTED


class DeniedError(GpumemError, PermissionError):
    """This process may not do that."""

    status = Status.DENIED


class OutOfMemoryError(GpumemError, MemoryError):
    """The device does not have that much memory free."""

    status = Status.NO_MEMORY


class LimitError(OutOfMemoryError):
    """A limit of this process, its user, group, unit or container is in the way."""

    status = Status.LIMIT


class DeadlockError(OutOfMemoryError):
    """Everybody who holds memory waits for more."""

    status = Status.DEADLOCK


class WaitTimeoutError(GpumemError, TimeoutError):
    """No memory came, or no name was published, in the time that the request was given, or the daemon did not answer."""

    status = Status.TIMEOUT


class HostMemoryError(GpumemError, MemoryError):
    """This process is out of host memory."""

    status = Status.HOST_MEMORY


class NotFoundError(GpumemError, LookupError):
    """There is no such device, name, token or region."""

    status = Status.NOT_FOUND


class UnsupportedError(GpumemError, NotImplementedError):
    """The device, its driver or the daemon cannot do that."""

    status = Status.UNSUPPORTED


class BusyError(GpumemError):
    """It is in use, or its memory is not there now: a paused region, an evictable buffer that is not pinned."""

    status = Status.BUSY


class CancelledError(GpumemError):
    """The transfer or the wait was cancelled."""

    status = Status.CANCELLED


class ForkedError(GpumemError):
    """The session belongs to the parent process. A forked child makes its own."""

    status = Status.FORKED


class LibraryNotFoundError(GpumemError, ModuleNotFoundError):
    """A shared library or a module of Python is missing or too old. The sentence names it."""

    status = Status.UNSUPPORTED


class NoLoopError(InvalidError, RuntimeError):
    """This is for coroutines: no loop of asyncio runs on this thread."""


class ExportedError(BusyError, BufferError):
    """Arrays of others are on the memory."""


_PACKAGES = {"torch": ("PyTorch", "torch"), "cupy": ("CuPy", "cupy-cuda12x"), "numpy": ("NumPy", "numpy"), "rmm": ("RMM", "rmm-cu12"),
             "numba": ("Numba", "numba")}


def needs(whose: str, module: str) -> Any:
    """A module of others, which whose cannot do without."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LibraryNotFoundError("%s needs %s, which cannot be imported (%s): pip install %s" %
                                   (whose, _PACKAGES[module][0], error, _PACKAGES[module][1])) from None


_classes: Dict[int, Type[GpumemError]] = {
    cls.status: cls
    for cls in (InvalidError, DisconnectedError, DeniedError, OutOfMemoryError, LimitError, DeadlockError, WaitTimeoutError,
                HostMemoryError, NotFoundError, UnsupportedError, BusyError, CancelledError, ForkedError)
}


def error_for(status: int, sentence: str) -> GpumemError:
    """The exception for a status of the C library."""
    error = _classes.get(status, GpumemError)(sentence)
    try:
        error.status = Status(status)
    except ValueError:  # of a newer library
        pass
    return error
