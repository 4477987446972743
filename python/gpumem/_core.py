# SPDX-License-Identifier: Apache-2.0
"""Who keeps what alive.

A Hold is one piece of memory of the C library, and a Core is one session. A Hold keeps its Core. Everything that may still touch the
memory keeps the Hold: the Buffer until it is closed, and each export (an array, a memoryview, a DLPack tensor) until its consumer
drops it. So Python's own counting frees the memory exactly when the last of them has gone, on any thread, without a lock. A call into
the library that is under way has a reference of its own.
"""

import atexit
import os
import pwd
import threading
import weakref
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

from . import _capi, _captures, _cuda
from .errors import BusyError, ClosedError, ForkedError, GpumemError, InvalidError

HOST = _capi.DEVICE_HOST
FOREVER = float("inf")


class DeviceInfo(NamedTuple):
    """A device of the daemon.

    number     as the other methods take it
    name       for people
    backend    "host" or "cuda"
    uuid       16 bytes, of the GPU or MIG instance
    total      how many bytes the device has
    capacity   the most that the daemon hands out
    available  what it could hand out now
    transport  "fd" or "ipc": how buffers get to other processes, unless alloc() says otherwise
    pci        "0000:A0:00.0", or "" if the device has no PCI address
    """

    number: int
    name: str
    backend: str
    uuid: bytes
    total: int
    capacity: int
    available: int
    transport: str
    pci: str

    @property
    def on_gpu(self) -> bool:
        """Whether only the GPU can use the memory."""
        return self.backend == "cuda" and self.number != HOST


# ---- arguments


def check_int(what: str, value: Any, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """C would take any other number for a different one, without a word."""
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidError("%s must be a whole number, not %r" % (what, value)) from None
    if not least <= number <= most:
        raise InvalidError("%s must be from %d to %d, not %d" % (what, least, most, number))
    return int(number)


def check_number(what: str, value: Any, unit: str) -> float:
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise InvalidError("%s must be a number of %s, not %r" % (what, unit, value))
    return float(value)


def check_function(what: str, function: Any) -> None:
    if not callable(function):
        raise InvalidError("%s must be a function, not %r" % (what, function))


def check_path(path: Any) -> bytes:
    try:
        return os.fsencode(path)
    except TypeError:
        raise InvalidError("a path must be text, not %r" % (path,)) from None


def check_device(device: Any) -> int:
    return HOST if device == "host" else check_int("a device", device, 0, HOST)


def milliseconds(seconds: Optional[float]) -> int:
    """None: not at all."""
    if seconds is None:
        return 0
    check_number("a time to wait", seconds, "seconds, or gpumem.FOREVER")
    if seconds == FOREVER:
        return _capi.WAIT_FOREVER
    if not 0 <= seconds < 4294967:
        raise InvalidError("a time to wait must be from 0 to 4294966 seconds, or gpumem.FOREVER, not %r" % (seconds,))
    return int(seconds * 1000)


def text(what: str, value: Any, required: bool = False) -> Optional[bytes]:
    """Returns text as the C library takes it. None stays None, unless text is required."""
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise InvalidError("%s must be text, not %r" % (what, value))
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidError("%s has characters that UTF-8 does not have: %r" % (what, value)) from None
    if b"\0" in encoded:
        raise InvalidError("%r has a zero byte in it" % value)
    return encoded


def shared_name(name: Any) -> Optional[bytes]:
    """The name of a published buffer. The C library knows its owner by the number only, so "uid:alice/llama" becomes "uid:1000/llama"."""
    encoded = text("a name", name, required=True)
    owner, slash, rest = name.partition("/")
    user = owner[4:]
    if slash and owner.startswith("uid:") and user and not user.isdigit():
        try:
            return text("a name", "uid:%d/%s" % (pwd.getpwnam(user).pw_uid, rest))
        except KeyError:
            raise InvalidError("this machine has no user %r: check the name, or write the number, as in uid:1000/llama" % user) from None
    return encoded


def stream_of(stream: Any) -> int:
    """A stream as the C library takes it: of an int, None (the default stream), or an object of PyTorch, CuPy or Numba."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__
        return int((found() if callable(found) else found)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "handle"):
        handle = stream.handle
        return int(getattr(handle, "value", handle) or 0)
    return check_int("a stream", stream, 0, (1 << 64) - 1)


# ---- sessions

_cores: "weakref.WeakSet[Core]" = weakref.WeakSet()
_late: "Set[Core]" = set()  # those that have something to free later, which they must not end before
_in_callback = threading.local()


def in_callback() -> bool:
    """Whether this thread runs a function that an event has called."""
    return getattr(_in_callback, "depth", 0) > 0


def _disconnect(library: Any, pointer: int, pid: int, keep: List[Any]) -> None:
    if os.getpid() != pid:
        return  # the parent's
    if in_callback():
        # The library's own thread cannot end its session.
        threading.Thread(target=_disconnect, args=(library, pointer, pid, keep)).start()
        return
    library.gpumem_disconnect(pointer)
    keep.clear()


class Core:
    """A session of the C library. Ends when nothing keeps it any more."""

    def __init__(self, pointer: int) -> None:
        self.library = _capi.library()
        self.pointer = pointer
        self.pid = os.getpid()
        self.keep: List[Any] = []  # functions that the library may call until the session has ended
        self.later: List[Callable[[], None]] = []  # what could not be freed yet
        self.regions: "weakref.WeakValueDictionary[str, RegionUse]" = weakref.WeakValueDictionary()  # by their tags
        self._devices: Dict[int, DeviceInfo] = {}
        weakref.finalize(self, _disconnect, self.library, pointer, self.pid, self.keep).atexit = False
        _cores.add(self)

    def check_fork(self) -> None:
        """Raises ForkedError in a forked child. The memory is not mapped there, so touching it would end the process."""
        if os.getpid() != self.pid:
            raise ForkedError("this session belongs to the parent process: make another one in the child")

    def device(self, number: int, fresh: bool = False) -> DeviceInfo:
        if fresh or number not in self._devices:
            info = _capi.DeviceInfoStruct()
            _capi.check(self.library.gpumem_device_info(self.pointer, number, info))
            transport = [name for name, value in _capi.TRANSPORT.items() if value == info.transport]
            self._devices[number] = DeviceInfo(
                info.number, info.name.decode("utf-8", "replace"), info.backend.decode(), bytes(info.uuid), info.total,
                info.capacity, info.available, transport[0] if transport else "auto", info.pci.decode())
        return self._devices[number]

    def free_later(self) -> None:
        """Frees what could not be freed while a stream was being captured."""
        for _ in range(len(self.later)):  # what cannot be freed now either comes to the end of the list again
            try:
                self.later.pop(0)()
            except IndexError:
                break  # another thread was quicker
        _late.discard(self)
        if self.later:
            _late.add(self)

    def listen(self, function: Any) -> None:
        """Has the library call a C function for events, until the session ends."""
        self.keep.append(function)
        _capi.check(self.library.gpumem_on_event(self.pointer, function, None))


def _free_later() -> None:
    for core in list(_late):
        if core.pid == os.getpid():
            core.free_later()


_captures.after_last.append(_free_later)


@atexit.register
def _quiet() -> None:
    """The interpreter ends: no thread of the library may call into it any more."""
    for core in list(_cores):
        if core.keep and core.pid == os.getpid():
            core.library.gpumem_on_event(core.pointer, _capi.no_function(_capi.EVENT_FN), None)


# ---- memory


class RegionUse:
    """The copies that run in the memory of a region. A pause waits until they are done, and refuses those that begin meanwhile."""

    def __init__(self, core: Core, tag: str) -> None:
        self._core, self._tag = core, tag
        self._changed = threading.Condition(threading.RLock())  # a finalizer may run, and come here, while this thread has it
        self._copies = self._pauses = 0
        core.regions[tag] = self

    def _check(self) -> None:
        stats = _capi.RegionStatsStruct()
        _capi.check(self._core.library.gpumem_region_stats(self._core.pointer, text("a tag", self._tag), stats))
        state = _capi.REGION_STATES[stats.state]
        if state != "active":
            raise BusyError("region \"%s\" is %s: %s" % (self._tag, state if state == "paused" else "being " + state.replace("ing", "ed"),
                                                       "wait until that is done" if state == "resuming" else "resume it first"))

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Keeps the memory where it is meanwhile. Raises BusyError if the region does not have it."""
        with self._changed:
            if self._pauses:
                raise BusyError("region \"%s\" is being paused: resume it first" % self._tag)
            self._copies += 1
        try:
            self._check()
            yield
        finally:
            with self._changed:
                self._copies -= 1
                self._changed.notify_all()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Waits for the copies that are under way, and lets none begin meanwhile."""
        with self._changed:
            self._pauses += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._copies)
            yield
        finally:
            with self._changed:
                self._pauses -= 1


def pause_region(core: Core, tag: Any, keep: bool) -> None:
    encoded = text("a tag", tag, required=True)
    use = core.regions.get(tag)
    with use.pausing() if use is not None else nullcontext():
        _capi.check(core.library.gpumem_region_pause(core.pointer, encoded, int(bool(keep))))


class Export:
    """Somebody else's use of the memory: what they hold keeps this object, and this object keeps the Hold."""

    __slots__ = ("hold", "__weakref__")

    def __init__(self, hold: "Hold") -> None:
        self.hold = hold


class _Fate:
    """How a piece of memory is freed. The finalizer has it when the Hold has gone."""

    __slots__ = ("core", "free", "exported", "stream", "device", "pid")

    def __init__(self, core: Core, device: DeviceInfo, free: Callable[["_Fate"], None]) -> None:
        self.core, self.device, self.free, self.pid = core, device, free, os.getpid()
        self.exported, self.stream = False, 0

    def end(self) -> None:
        if os.getpid() == self.pid:
            self.free(self)


class Hold:
    """A piece of memory. It is freed when nothing keeps this object any more."""

    def __init__(self, core: Core, device: DeviceInfo, pointer: int, size: int, free: Callable[[_Fate], None],
                 handle: Optional[int] = None) -> None:
        self.core, self.device, self.pointer, self.size, self.handle = core, device, pointer, size, handle
        self.lock = threading.Lock()  # of resizing: no export may begin meanwhile
        self.exports: "weakref.WeakSet[Export]" = weakref.WeakSet()
        self.fate = _Fate(core, device, free)
        self.read_only = False
        self.evictable = False
        self.region: Optional[RegionUse] = None  # which can give the memory away
        weakref.finalize(self, self.fate.end).atexit = False
        if device.on_gpu:
            _captures.announce()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keeps the memory of a region where it is during a use of its address. Raises BusyError if the memory is not there: its region is
        paused, or it is evictable and not pinned."""
        if self.evictable:
            # A copy of no bytes is refused as any other copy is.
            _capi.check(self.core.library.gpumem_copy_out(self.handle, 0, None, 0, _capi.STREAM_DONE, None, None))
        with self.region.copying() if self.region is not None else nullcontext():
            yield

    def check_usable(self) -> None:
        """Raises BusyError if the memory is not there now."""
        with self.using():
            pass

    def export(self) -> Export:
        self.check_usable()
        if self.device.on_gpu:
            _captures.announce()
        with self.lock:
            self.fate.exported = True
            export = Export(self)
            self.exports.add(export)
            return export


def device_is_done(fate: _Fate) -> bool:
    """Waits for the device, if the memory was given to others: they launch work that nobody here knows of. While a stream is being
    captured, a wait would break the capture. Then this returns False, and the memory is freed later."""
    if not fate.exported or not fate.device.on_gpu:
        return True
    with _captures.kept_out() as allowed:
        try:
            if allowed:
                _cuda.synchronize(_cuda.ordinal(fate.device.uuid))
                return True
        except GpumemError:
            pass  # nobody has announced the capture
    fate.core.later.append(fate.end)
    _late.add(fate.core)  # after the append: free_later() looks in the other order
    return False


def free_buffer(handle: int) -> Callable[[_Fate], None]:
    def free(fate: _Fate) -> None:
        if device_is_done(fate):
            fate.core.library.gpumem_buffer_destroy(handle)

    return free


def free_block(pointer: int) -> Callable[[_Fate], None]:
    def free(fate: _Fate) -> None:
        stream = _capi.STREAM_ANY if fate.exported else fate.stream
        fate.core.library.gpumem_free(fate.core.pointer, pointer, stream)

    return free


def closed(what: str) -> ClosedError:
    return ClosedError("this %s is closed: its memory has gone back" % what)
