# SPDX-License-Identifier: Apache-2.0
"""Memory on asyncio: requests wait in the library, and the loop goes on meanwhile."""

import asyncio
import itertools
import os
import random
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar, Union

from . import _capi
from ._core import FOREVER, Core, check_device, check_int, milliseconds, stream_of, text
from ._events import running_loop
from ._memory import Block, Buffer
from ._session import Device, Session, buffer_options
from .errors import ClosedError, GpumemError, HostMemoryError, InvalidError, NotFoundError, WaitTimeoutError


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


_R = TypeVar("_R")


async def _threaded(call: Callable[[], _R], undo: Optional[Callable[[], None]] = None) -> _R:
    """Awaits a call of the library, which runs on a thread of its own. If the task is cancelled, the call goes on. If it succeeds then,
    undo() is called, and the result is dropped."""
    loop = running_loop("AsyncSession")
    future: "asyncio.Future[_R]" = loop.create_future()

    def drop(error: Optional[BaseException]) -> None:
        if error is None and undo is not None:
            try:
                undo()
            except GpumemError:
                pass  # it was closed meanwhile

    def settle(future: "asyncio.Future[_R]", result: Any, error: Optional[BaseException]) -> None:
        if future.cancelled():
            drop(error)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run(future: "asyncio.Future[_R]") -> None:
        try:
            outcome: Tuple[Any, Optional[BaseException]] = call(), None
        except BaseException as raised:
            outcome = None, raised
        try:
            loop.call_soon_threadsafe(settle, future, *outcome)
        except RuntimeError:
            drop(outcome[1])  # the loop has ended
        finally:
            # An exception has this frame, which would keep the exception, and the session, until the collector runs.
            del future, outcome

    # The interpreter does not wait for the thread at its end.
    thread = threading.Thread(target=run, args=(future,), name="gpumem-call", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise HostMemoryError("this process cannot start another thread (%s): wait for other calls first" % error) from None
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled():  # the call had ended before, but the task did not run in between
            drop(future.exception())
        raise
    finally:
        del future  # likewise


# How often attach() asks for a name that is not there: as gpumem_attach_wait() does.
_FIRST_DELAY, _LONGEST_DELAY = 0.04, 1.0
# How many of a session's tasks ask at the same time.
_ASKERS = 8


class AsyncSession(Session):
    """A Session for asyncio: alloc(), malloc(), pause(), resume(), pin(), load() and attach() are awaited, and the loop goes on meanwhile.
    Everything else is as in Session.

        async with gpumem.AsyncSession() as session:
            buffer = await session.alloc(1 << 30, wait=60)

    Cancelling a task cancels its alloc(), malloc() or attach(). The others go on, and their result is dropped."""

    _requests: Optional[_Requests] = None
    _askers: "Optional[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]]" = None

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

    async def pause(self, tag: str, keep: bool = True) -> None:  # type: ignore[override]
        """Gives the memory of the region with this tag to others, as Session.pause() does."""
        await _threaded(lambda: Session.pause(self, tag, keep))

    async def resume(self, tag: str, wait: Optional[float] = None) -> None:  # type: ignore[override]
        """Gets the memory of a paused region back, as Session.resume() does."""
        await _threaded(lambda: Session.resume(self, tag, wait))

    async def pin(self, buffer: Buffer, *, host_ok: bool = False, wait: Optional[float] = None) -> str:
        """Brings an evictable buffer back and keeps it where it is, as Buffer.pin() does. Returns "device" or "host"."""
        if not isinstance(buffer, Buffer):
            raise InvalidError("only a gpumem.Buffer can be pinned, not %r" % (buffer,))
        return await _threaded(lambda: buffer.pin(host_ok=host_ok, wait=wait), lambda: buffer.unpin(stream=_capi.STREAM_DONE))

    async def load(self, path: Union[str, "os.PathLike[str]"], name: str, device: Device = 0, *, replace: bool = False,
                   progress: Union[bool, Callable[[int, int], Any], None] = None, wait: Optional[float] = None,
                   expires: Optional[int] = None, uid: Optional[int] = None, gid: Optional[int] = None,
                   readers_can_write: bool = False) -> int:
        """Loads a model and publishes it under a name, as gpumem.weights.load() does. Returns the version. progress is called on another
        thread."""
        from . import weights

        return await _threaded(lambda: weights.load(
            path, name, device, replace=replace, progress=progress, wait=wait, expires=expires, uid=uid, gid=gid,
            readers_can_write=readers_can_write, session=self))

    async def _ask(self, name: str, end: float = FOREVER) -> Buffer:
        """Attaches, in turn with other tasks, but does not wait for its turn beyond this time of the loop."""
        loop = running_loop("AsyncSession")
        self._core_now()
        with self._lock:
            if self._askers is None:
                self._askers = weakref.WeakKeyDictionary()
            asker = self._askers.setdefault(loop, asyncio.Semaphore(_ASKERS))
        late = loop.time() >= end
        if late and asker.locked():
            raise NotFoundError("too late")
        async with asker:
            if not late and loop.time() >= end:
                raise NotFoundError("too late")
            return await _threaded(lambda: Session.attach(self, name))

    async def attach(self, name: str, wait: Optional[float] = None) -> Buffer:  # type: ignore[override]
        """The buffer that a name means, as Session.attach() maps it."""
        if not milliseconds(wait):
            return await self._ask(name)
        loop, delay = running_loop("AsyncSession"), _FIRST_DELAY
        end, asked = loop.time() + float(wait or 0), False
        while True:
            last = loop.time() >= end
            try:
                return await self._ask(name, end if asked else FOREVER)
            except NotFoundError:
                asked = True
                if last:
                    raise WaitTimeoutError("there was no such name as \"%s\" for this client within %g s: nobody has published it, or it "
                                           "is meant for somebody else; see gpumemctl shares" % (name, wait or 0)) from None
            await asyncio.sleep(max(0, min(delay * random.uniform(0.5, 1), end - loop.time())))
            delay = min(2 * delay, _LONGEST_DELAY)

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
