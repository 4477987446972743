# SPDX-License-Identifier: Apache-2.0
"""Memory on asyncio: requests wait in the library, and the loop goes on meanwhile."""

import asyncio
import itertools
import os
import threading
from ctypes import byref, c_int, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional

from . import _capi
from ._core import Core, check_device, check_int, milliseconds, stream_of, text
from ._events import running_loop
from ._memory import Block, Buffer
from ._session import Device, Session, buffer_options
from .errors import ClosedError


class _Waiting(NamedTuple):
    request: c_void_p
    future: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop


class _Requests:
    """The requests of a session that somebody waits for. Each belongs to whoever takes it out of the table."""

    def __init__(self, core: Core) -> None:
        self.core, self.fd = core, -1
        self._lock = threading.RLock()  # no request may be ended while its function runs
        self._waiting: Dict[int, _Waiting] = {}
        self._loops: Dict[asyncio.AbstractEventLoop, int] = {}
        self._keys = itertools.count(1)
        done: List[int] = []
        self._done, self._function = done, _capi.REQUEST_FN(lambda user, request: done.append(user))
        core.keep.append(self._function)  # so it may not know the core, which would then keep itself
        fd = c_int()
        _capi.check(core.library.gpumem_session_fd(core.pointer, byref(fd)))
        self.fd = fd.value

    async def wait(self, request: c_void_p) -> c_void_p:
        """Returns when the request is ready or failed. If the waiting ends otherwise, the request has ended, too."""
        loop = asyncio.get_running_loop()
        key, waiting = next(self._keys), _Waiting(request, loop.create_future(), loop)
        with self._lock:
            self._waiting[key] = waiting
            if not self._loops.get(loop):
                loop.add_reader(self.fd, self._dispatch)
            self._loops[loop] = self._loops.get(loop, 0) + 1
            # With the lock, so that close() cannot end the request before.
            self.core.library.gpumem_request_on_done(request, self._function, key)
        try:
            await waiting.future
        except BaseException:
            with self._lock:
                if self._waiting.pop(key, None) is not None:
                    self.core.library.gpumem_request_cancel(request)
            raise
        finally:
            with self._lock:
                self._loops[loop] -= 1
                if not self._loops[loop]:
                    del self._loops[loop]
                    loop.remove_reader(self.fd)
        with self._lock:
            if self._waiting.pop(key, None) is None:
                raise ClosedError("this session was closed meanwhile")
        return request

    def _dispatch(self) -> None:
        with self._lock:
            self.core.library.gpumem_dispatch(self.core.pointer, None)
            ready = [self._waiting[key] for key in self._done if key in self._waiting]
            self._done.clear()
        for waiting in ready:
            waiting.loop.call_soon_threadsafe(_set, waiting.future)

    def close(self) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            for one in waiting:
                self.core.library.gpumem_request_cancel(one.request)
        for one in waiting:
            try:
                one.loop.call_soon_threadsafe(_set, one.future)
            except RuntimeError:
                pass  # its loop has ended


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class AsyncSession(Session):
    """A Session for asyncio: alloc() and malloc() are awaited, and the loop goes on meanwhile. Everything else is as in Session.

        async with gpumem.AsyncSession() as session:
            buffer = await session.alloc(1 << 30, wait=60)
    """

    _requests: Optional[_Requests] = None

    def _requests_now(self) -> _Requests:
        running_loop("AsyncSession")
        core = self._core_now()
        with self._lock:
            if self._requests is None:
                self._requests = _Requests(core)
            return self._requests

    async def alloc(self, size: int, device: Device = 0, *, tag: Optional[str] = None,  # type: ignore[override]
                    wait: Optional[float] = None, max_size: int = 0, type: Optional[str] = None, precision: Optional[str] = None, transport: str = "auto",
                    signals: bool = False, for_others: bool = False, evictable: bool = False, cpu_ok: bool = False) -> Buffer:
        """A Buffer, as Session.alloc() makes it. Cancelling the task cancels the request."""
        core, request, requests = self._core_now(), c_void_p(), self._requests_now()
        size, options = buffer_options(size, tag, wait, max_size, type, precision, transport, signals, for_others, evictable, cpu_ok)
        _capi.check(core.library.gpumem_buffer_create_begin(
            core.pointer, check_device(device), size, byref(options), byref(request)))
        await requests.wait(request)
        handle = c_void_p()
        _capi.check(core.library.gpumem_buffer_take(request, byref(handle)))
        assert handle.value
        return self._keep(Buffer._of(core, handle.value, evictable=evictable or cpu_ok))

    async def malloc(self, size: int, device: Device = 0, *, stream: Any = None, alignment: int = 0,  # type: ignore[override]
                     tag: Optional[str] = None, wait: Optional[float] = None) -> Block:
        """A Block, as Session.malloc() makes it. Cancelling the task cancels the request."""
        core, request, requests = self._core_now(), c_void_p(), self._requests_now()
        number, size = check_device(device), check_int("a size", size, 1)
        options = _capi.AllocOptions(alignment=check_int("an alignment", alignment), tag=text("a tag", tag), wait_ms=milliseconds(wait))
        _capi.check(core.library.gpumem_alloc_begin(
            core.pointer, number, size, stream_of(stream), byref(options), byref(request)))
        await requests.wait(request)
        pointer = c_void_p()
        _capi.check(core.library.gpumem_alloc_take(request, byref(pointer)))
        return self._keep(Block._of(core, core.device(number), pointer.value or 0, size, stream_of(stream)))

    def close(self) -> None:
        requests = self._requests
        super().close()
        self._requests = None
        if requests is not None and requests.core.pid == os.getpid():  # else they are the parent's
            requests.close()

    async def __aenter__(self) -> "AsyncSession":
        self._core_now()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.close()
