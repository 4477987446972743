# SPDX-License-Identifier: Apache-2.0
"""A connection to the daemon."""

import os
import threading
import weakref
from ctypes import byref, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, TypeVar, Union

from . import _capi
from ._arrays import View, _product
from ._core import (HOST, Core, DeviceInfo, check_device, check_int, in_callback, milliseconds, pause_region, shared_name, stream_of,
                    text)
from ._dlpack import dtype_name, itemsize
from ._events import Event, EventIterator, Hub, Subscription
from ._memory import Batch, Block, Buffer, Metadata, take_metadata
from ._region import Region, RegionStats, region_stats
from .errors import BusyError, ClosedError, InvalidError

Device = Union[int, str]


class _Closable(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)
_S = TypeVar("_S", bound="Session")


class Pressure(NamedTuple):
    """How full a device is.

    value  from 0 to 1
    level  "low", "medium", "high" or "critical"
    """

    value: float
    level: str


class Stats(NamedTuple):
    """How this process uses a device. Figures are bytes, unless they count something.

    allocated       charged to this process: in use, pooled and slack
    in_use          requested by the program and not freed yet
    pooled          cached: not in use, and trim() would return it now
    peak            the highest in_use so far
    hits            how many allocations were served without a message
    misses          how many needed the daemon
    hit_rate        the share of hits, from 0 to 1
    returns         how many chunks were returned to the daemon
    cpu_fallbacks   how many buffers are in host memory, because they were made with cpu_ok
    active_buffers  how many blocks, buffers and entries of batches are not freed yet
    slack           neither in use nor pooled: rounding, and free pieces of chunks that are partly in use
    """

    allocated: int
    in_use: int
    pooled: int
    peak: int
    hits: int
    misses: int
    hit_rate: float
    returns: int
    cpu_fallbacks: int
    active_buffers: int
    slack: int


class Placement(NamedTuple):
    """How the daemon would answer a request for memory on a device.

    device  its number
    fit     "now", "reclaim" (others could return what is missing), "wait" (until others free memory) or "none"
    room    how many bytes it would grant this process at once, within its limits
    why     a sentence for people
    """

    device: int
    fit: str
    room: int
    why: str


def _placement(raw: Any) -> Placement:
    return Placement(raw.device, _capi.FITS[raw.fit], raw.room, raw.why.decode("utf-8", "replace"))


BatchItem = Union[int, Tuple[int, str], Dict[str, Any]]


def buffer_options(size: Any, tag: Optional[str], wait: Optional[float], max_size: int, type: Optional[str], precision: Optional[str],
                   transport: str, signals: bool, for_others: bool, evictable: bool, cpu_ok: bool) -> Tuple[int, Any]:
    flags = (_capi.BUFFER_SIGNALS * bool(signals) | _capi.BUFFER_FOR_OTHERS * bool(for_others) |
             _capi.BUFFER_EVICTABLE * bool(evictable) | _capi.BUFFER_CPU_OK * bool(cpu_ok))
    if transport not in _capi.TRANSPORT:
        raise InvalidError("%r is no transport: use %s" % (transport, ", ".join(_capi.TRANSPORT)))
    return check_int("a size", size, 1), _capi.BufferOptions(
        tag=text("a tag", tag), transport=_capi.TRANSPORT[transport], wait_ms=milliseconds(wait), flags=flags,
        max_size=check_int("a size", max_size), type=text("a type", type),
        precision=text("a precision", precision))


class Session:
    """A connection to the daemon, with the memory that it brought. A context manager.

    Without a socket, it is the one that GPUMEM_SOCKET names, the user's own daemon, or the system's. name is how gpumemctl shows this
    process; without one, it is that of gpumem-run --name, or else that of the program. away: how many seconds a request waits for a
    daemon that is being restarted. track: "all" or "stacks" for gpumemctl buffers. All methods may be called from any thread."""

    def __init__(self, socket: Optional[str] = None, *, name: Optional[str] = None, timeout: Optional[float] = None,
                 away: float = 30.0, peers: bool = False, track: str = "auto") -> None:
        if track not in _capi.TRACK:
            raise InvalidError("track is one of %s, not %r" % (", ".join(_capi.TRACK), track))
        self._core: Optional[Core] = None
        options = _capi.ConnectOptions(socket=text("a socket", socket), name=text("a name", name), timeout_ms=milliseconds(timeout),
                                       peers=int(bool(peers)), away_ms=milliseconds(away), track=_capi.TRACK[track])
        pointer = c_void_p()
        _capi.check(_capi.library().gpumem_connect(byref(options), byref(pointer)))
        assert pointer.value
        self._begin(Core(pointer.value))

    def _begin(self, core: Core) -> None:
        self._core = core
        self._lock = threading.RLock()  # a finalizer of the program's may run, and come here, while this thread has it
        self._known: "weakref.WeakSet[Any]" = weakref.WeakSet()  # what close() closes
        self._hub = Hub()

    def _core_now(self) -> Core:
        core = self._core
        if core is None:
            raise ClosedError("this session is closed: make another one")
        core.check_fork()
        if core.later:
            core.free_later()
        return core

    def _keep(self, thing: _C) -> _C:
        with self._lock:
            if self._core is not None:
                self._known.add(thing)
                return thing
        thing.close()
        raise ClosedError("this session was closed meanwhile")

    # ---- its end

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core is None

    def close(self) -> None:
        """Closes all memory of the session, and ends it. Arrays of others on that memory go on working: the session itself ends with the
        last of them. Harmless if it was closed before."""
        if in_callback():
            raise BusyError("a function that an event has called cannot close the session: tell another thread to")
        core = self._core
        if core is not None and core.pid != os.getpid():
            # Another thread of the parent may have had a lock at the fork, which nobody releases here.
            self._core, known = None, list(self._known)
        else:
            with self._lock:
                core, self._core = self._core, None
                known = list(self._known)
            if core is not None:
                core.free_later()
            self._hub.close()
        for thing in known:
            thing.close()

    def __enter__(self: _S) -> _S:
        self._core_now()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gpumem.%s%s>" % (type(self).__name__, ", closed" if self.closed else "")

    # ---- devices and figures

    @property
    def device_count(self) -> int:
        """How many devices the daemon serves, without pinned host memory. Their numbers begin with 0."""
        core, count = self._core_now(), c_uint32()
        _capi.check(core.library.gpumem_device_count(core.pointer, byref(count)))
        return count.value

    def device(self, device: Device = 0) -> DeviceInfo:
        """What the daemon says about a device. "host" or gpumem.HOST: pinned host memory."""
        return self._core_now().device(check_device(device), fresh=True)

    @property
    def devices(self) -> List[DeviceInfo]:
        """All devices, without pinned host memory."""
        return [self.device(number) for number in range(self.device_count)]

    def pressure(self, device: Device = 0) -> Pressure:
        """How full the device is. Sends no message."""
        core, value, level = self._core_now(), c_double(), c_int()
        _capi.check(core.library.gpumem_pressure(core.pointer, check_device(device), byref(value), byref(level)))
        return Pressure(value.value, _capi.LEVELS[level.value])

    def stats(self, device: Device = 0) -> Stats:
        """How this process uses the device."""
        core, stats = self._core_now(), _capi.StatsStruct()
        _capi.check(core.library.gpumem_stats(core.pointer, check_device(device), byref(stats)))
        return Stats(*(getattr(stats, name) for name in Stats._fields))

    def trim(self) -> int:
        """Returns all unused memory to the daemon. Returns how many bytes that were."""
        core, count = self._core_now(), c_uint64()
        _capi.check(core.library.gpumem_trim(core.pointer, byref(count)))
        return count.value

    def place(self, size: int, at_worst: str = "reclaim") -> Placement:
        """A device with room for so many bytes, for this client and its limits. It is advice: nothing is reserved."""
        if at_worst not in _capi.FITS:
            raise InvalidError("at_worst is one of %s, not %r" % (", ".join(_capi.FITS), at_worst))
        core, placement = self._core_now(), _capi.Placement()
        _capi.check(core.library.gpumem_place(core.pointer, check_int("a size", size), _capi.FITS.index(at_worst), byref(placement)))
        return _placement(placement)

    def placements(self, size: int = 1) -> List[Placement]:
        """How the daemon would answer a request for so many bytes on each device, the best device first."""
        core, found = self._core_now(), []  # type: Core, List[Placement]
        function = _capi.PLACEMENT_FN(lambda user, raw: found.append(_placement(raw.contents)))
        _capi.check(core.library.gpumem_place_each(core.pointer, check_int("a size", size), function, None))
        return found

    def room(self, device: Device = 0) -> int:
        """How many bytes the daemon would grant this client on the device at once, within its limits."""
        number = check_device(device)
        for placement in self.placements():
            if placement.device == number:
                return placement.room
        return 0

    # ---- memory

    def alloc(self, size: int, device: Device = 0, *, tag: Optional[str] = None, wait: Optional[float] = None, max_size: int = 0,
              type: Optional[str] = None, precision: Optional[str] = None, transport: str = "auto", signals: bool = False,
              for_others: bool = False, evictable: bool = False, cpu_ok: bool = False) -> Buffer:
        """A Buffer. It has a lease of its own, so that it can be resized, shared and published, and getting it takes a message.

        wait: how many seconds to wait if the device is full; gpumem.FOREVER. max_size: how far it can grow without moving. type ("weights",
        "kv") and precision ("bf16") are for gpumemctl buffers. for_others: it will be shared with other users. signals,
        evictable and cpu_ok are explained with Buffer.signal(), Buffer.evict() and Buffer.pin()."""
        core, handle = self._core_now(), c_void_p()
        size, options = buffer_options(size, tag, wait, max_size, type, precision, transport, signals, for_others, evictable, cpu_ok)
        _capi.check(core.library.gpumem_buffer_create(core.pointer, check_device(device), size, byref(options), byref(handle)))
        assert handle.value
        return self._keep(Buffer._of(core, handle.value, evictable=evictable or cpu_ok))

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "float32", device: Device = 0, **options: Any) -> View:
        """An array on a Buffer of its own. The options are those of alloc()."""
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        name = dtype_name(dtype)
        size = _product([check_int("an extent", extent, 1) for extent in extents]) * itemsize(name)
        return Session.alloc(self, size, device, **options).view(name, extents)

    def malloc(self, size: int, device: Device = 0, *, stream: Any = None, alignment: int = 0, tag: Optional[str] = None,
               wait: Optional[float] = None) -> Block:
        """A Block: quick, out of memory that this process already holds where possible. It cannot be shared or resized."""
        core, pointer, number = self._core_now(), c_void_p(), check_device(device)
        size = check_int("a size", size, 1)
        options = _capi.AllocOptions(alignment=check_int("an alignment", alignment), tag=text("a tag", tag), wait_ms=milliseconds(wait))
        if number == HOST:
            _capi.check(core.library.gpumem_host_alloc(core.pointer, size, byref(options), byref(pointer)))
        else:
            _capi.check(core.library.gpumem_alloc(core.pointer, number, size, stream_of(stream), byref(options), byref(pointer)))
        return self._keep(Block._of(core, core.device(number), pointer.value or 0, size,
                                    _capi.STREAM_ANY if number == HOST else stream_of(stream)))

    def batch(self, entries: Sequence[BatchItem], device: Device = 0, *, tag: Optional[str] = None, wait: Optional[float] = None,
              type: Optional[str] = None, precision: Optional[str] = None) -> Batch:
        """Many pieces of memory in one request: all or none. An entry is a size, (size, tag), or a dict with size, tag and alignment."""
        core, handle, number = self._core_now(), c_void_p(), check_device(device)
        if not isinstance(entries, Sequence) or isinstance(entries, str):
            raise InvalidError("a batch is a list of entries, not %r" % (entries,))
        raw = (_capi.BatchEntry * len(entries))()
        for place, entry in zip(raw, entries):
            if isinstance(entry, dict):
                unknown = set(entry) - {"size", "tag", "alignment"}
                if unknown or "size" not in entry:
                    raise InvalidError("an entry of a batch has size, tag and alignment, not %s" % ", ".join(map(str, entry)))
                size, label, alignment = entry["size"], entry.get("tag"), entry.get("alignment", 0)
            elif isinstance(entry, tuple):
                if len(entry) != 2:
                    raise InvalidError("an entry of a batch is a size, (size, tag) or a dict, not %r" % (entry,))
                size, label, alignment = entry[0], entry[1], 0
            else:
                size, label, alignment = entry, None, 0
            place.bytes, place.tag = check_int("a size", size, 1), text("a tag", label)
            place.alignment = check_int("an alignment", alignment)
        failed = c_size_t()
        options = _capi.BatchOptions(tag=text("a tag", tag), wait_ms=milliseconds(wait), type=text("a type", type),
                                     precision=text("a precision", precision))
        options.ret_failed.contents = failed
        _capi.check(core.library.gpumem_batch_create(core.pointer, number, raw, len(entries), byref(options), byref(handle)))
        assert handle.value
        batch = Batch(core, core.device(number), handle.value)
        for one in batch:
            self._keep(one)
        return batch

    def region(self, tag: str, max_size: int, device: Device = 0, *, initial: int = 0, wait: Optional[float] = None) -> Region:
        """A region, which can be paused. max_size: how many addresses it reserves."""
        return self._keep(Region(self._core_now(), check_device(device), tag, max_size, initial, wait, self._keep))

    def pause(self, tag: str, keep: bool = True) -> None:
        """Gives the memory of the region with this tag to others. See Region.pause()."""
        pause_region(self._core_now(), tag, keep)

    def resume(self, tag: str, wait: Optional[float] = None) -> None:
        """Gets the memory of a paused region back."""
        core = self._core_now()
        _capi.check(core.library.gpumem_region_resume(core.pointer, text("a tag", tag, required=True), milliseconds(wait)))

    def region_stats(self, tag: str) -> RegionStats:
        """State and figures of the region with this tag. Sends no message."""
        return region_stats(self._core_now(), tag)

    # ---- memory of others

    def open(self, token: str) -> Buffer:
        """A buffer that another process shared: Buffer.share()."""
        core, raw, handle = self._core_now(), _capi.Token(), c_void_p()
        _capi.check(core.library.gpumem_token_from_text(text("a token", token, required=True), byref(raw)))
        _capi.check(core.library.gpumem_open(core.pointer, byref(raw), byref(handle)))
        assert handle.value
        return self._keep(Buffer._of(core, handle.value, from_others=True))

    def attach(self, name: str, wait: Optional[float] = None) -> Buffer:
        """The buffer that a name means now: Buffer.publish(). "uid:1000/llama", or "uid:alice/llama", is a name of another user. wait:
        seconds, if nobody has published it yet; gpumem.FOREVER. It may take a second until the call sees the name."""
        core, handle = self._core_now(), c_void_p()
        if wait is None:
            _capi.check(core.library.gpumem_attach(core.pointer, shared_name(name), byref(handle)))
        else:
            _capi.check(_capi.call("gpumem_attach_wait")(core.pointer, shared_name(name), milliseconds(wait), byref(handle)))
        assert handle.value
        return self._keep(Buffer._of(core, handle.value, from_others=True))

    def unpublish(self, name: str) -> None:
        """Removes a name. Processes that attached keep the buffer."""
        core = self._core_now()
        _capi.check(core.library.gpumem_unpublish(core.pointer, shared_name(name)))

    def metadata(self, name: str) -> Metadata:
        """What a name was published with, and its version, without attaching to it."""
        core, data, size, version = self._core_now(), c_void_p(), c_size_t(), c_uint64()
        _capi.check(core.library.gpumem_metadata_read(core.pointer, shared_name(name), byref(data), byref(size), byref(version)))
        return Metadata(take_metadata(core, data, size), version.value)

    # ---- events

    def on_event(self, function: Callable[[Event], Any], kinds: Optional[Collection[str]] = None) -> Subscription:
        """Calls function(event) for every event, or for some kinds of them, on a thread of the library, one at a time. It may do
        everything except close the session. What it frees for a "reclaim" goes back at once."""
        return self._hub.add(self._core_now(), function, kinds)

    def on_pressure(self, function: Callable[[Event], Any]) -> Subscription:
        """Calls function(event) when the level of a device's pressure changes."""
        return self.on_event(function, ["pressure"])

    def on_reclaim(self, function: Callable[[Event], Any]) -> Subscription:
        """Calls function(event) when the daemon wants memory back."""
        return self.on_event(function, ["reclaim"])

    def on_limits(self, function: Callable[[Event], Any]) -> Subscription:
        """Calls function(event) when the limit of this client changes."""
        return self.on_event(function, ["limits"])

    def events(self, kinds: Optional[Collection[str]] = None) -> EventIterator:
        """async for event in session.events(): … In a running loop of asyncio. It has what happens from this call on, also before the first is read."""
        return EventIterator(self._core_now(), self._hub, kinds)
