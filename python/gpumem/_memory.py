# SPDX-License-Identifier: Apache-2.0
"""What a program holds: buffers, blocks, and the entries of batches."""

import ctypes
import os
from contextlib import nullcontext
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union, overload

from . import _capi, _cuda, _dlpack
from ._arrays import ArrayLike, View, from_dlpack
from ._core import (Core, DeviceInfo, Hold, check_function, check_int, check_number, check_path, closed, free_block, free_buffer,
                    milliseconds, stream_of, text)
from .errors import ExportedError, InvalidError, UnsupportedError

Progress = Callable[[int, int], Any]
_M = TypeVar("_M", bound="Memory")


def _host_source(data: Any) -> Tuple[Any, int, int]:
    """What the CPU can read, as (what keeps it, address, bytes)."""
    if isinstance(data, ArrayLike):
        if data.on_gpu:
            raise UnsupportedError("the source is on a GPU: copy it with copy_from()")
        data = data.memoryview()
    try:
        view = memoryview(data)
    except TypeError:
        raise InvalidError("data must be bytes, an array, or something else with the buffer protocol, not %r" % (data,)) from None
    if not view.contiguous:
        view = memoryview(view.tobytes())
    view = view.cast("B") if view.nbytes else memoryview(b"")
    if not view.nbytes:
        return view, 0, 0
    if view.readonly:
        # ctypes gives the address of a read-only buffer through the C API alone.
        return _address_of_read_only(view)
    array = (ctypes.c_ubyte * view.nbytes).from_buffer(view)
    return array, ctypes.addressof(array), view.nbytes


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", c_int), ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


def _address_of_read_only(view: memoryview) -> Tuple[Any, int, int]:
    raw = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), byref(raw), 0)
    address = raw.buf or 0
    ctypes.pythonapi.PyBuffer_Release(byref(raw))
    return view, address, view.nbytes  # the view keeps the memory where it is


class Memory(ArrayLike):
    """Memory of a session: bytes on a device. A context manager: at its end the memory is closed.

    close() gives the memory back, or, while arrays of others still use it, has it go back with the last of them. The same happens when
    the object is dropped, or the session is closed."""

    _kind = "memory"

    def __init__(self, hold: Hold) -> None:
        self._hold: Optional[Hold] = hold

    def _hold_now(self) -> Hold:
        hold = self._hold
        if hold is None:
            raise closed(self._kind)
        hold.core.check_fork()
        return hold

    @property
    def shape(self) -> Tuple[int, ...]:
        return (self._hold_now().size,)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._hold_now().size

    @property
    def device(self) -> int:
        """The number of the device; gpumem.HOST for pinned host memory."""
        return self._hold_now().device.number

    @property
    def backend(self) -> str:
        """ "host" or "cuda"."""
        return self._hold_now().device.backend

    def close(self) -> None:
        """Gives the memory back. Harmless if it was closed before."""
        self._hold = None
        # A consumer of __cuda_array_interface__ keeps this object, so _lent stays until that one has gone.

    def __enter__(self: _M) -> _M:
        self._hold_now()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # ---- copies

    def _copy(self, hold: Hold, to: int, source: int, size: int, stream: int) -> None:
        with hold.using():
            if not hold.device.on_gpu:
                ctypes.memmove(to, source, size)
                return
            number = _cuda.ordinal(hold.device.uuid)
            _cuda.copy(number, to, source, size, stream)
            _cuda.synchronize(number, stream)

    def _copy_in(self, hold: Hold, offset: int, address: int, size: int, stream: int, progress: Optional[Progress]) -> None:
        self._copy(hold, hold.pointer + offset, address, size, stream)

    def _copy_out(self, hold: Hold, offset: int, address: int, size: int, stream: int, progress: Optional[Progress]) -> None:
        self._copy(hold, address, hold.pointer + offset, size, stream)

    def write(self, data: Any, offset: int = 0, *, stream: Any = None, progress: Optional[Progress] = None) -> int:
        """Copies host memory (bytes, NumPy arrays, anything with the buffer protocol) to the device, after the work that was launched on
        the stream before. Waits for the copy. Returns the number of bytes."""
        hold = self._hold_now()
        if hold.read_only:
            raise InvalidError("the memory was shared for reading only")
        with data._hold_now().using() if isinstance(data, ArrayLike) else nullcontext():
            keep, address, size = _host_source(data)
            offset = check_int("an offset", offset, 0, hold.size)
            if offset + size > hold.size:
                raise InvalidError("%d bytes at offset %d do not fit into %d bytes" % (size, offset, hold.size))
            if size:
                self._copy_in(hold, offset, address, size, stream_of(stream), progress)
            del keep
        return size

    def read(self, size: Optional[int] = None, offset: int = 0, *, stream: Any = None,
             progress: Optional[Progress] = None) -> bytearray:
        """Copies bytes from the device, after the work that was launched on the stream before, and waits for them."""
        hold = self._hold_now()
        offset = check_int("an offset", offset, 0, hold.size)
        size = hold.size - offset if size is None else check_int("a size", size)
        if offset + size > hold.size:
            raise InvalidError("%d bytes at offset %d are not inside %d bytes" % (size, offset, hold.size))
        result = bytearray(size)
        if size:
            array = (ctypes.c_ubyte * size).from_buffer(result)
            self._copy_out(hold, offset, ctypes.addressof(array), size, stream_of(stream), progress)
            del array
        return result

    def copy_from(self, source: Any, offset: int = 0, *, stream: Any = None) -> int:
        """Copies an array of any library: from the CPU as write() does, from a GPU on the stream, and then without waiting."""
        if not isinstance(source, ArrayLike) and hasattr(source, "__dlpack__") and source.__dlpack_device__()[0] != _dlpack.CPU:
            source = from_dlpack(source, stream=stream)
        if not isinstance(source, ArrayLike) or not source.on_gpu:
            return self.write(source, offset, stream=stream)
        hold = self._hold_now()
        if hold.read_only:
            raise InvalidError("the memory was shared for reading only")
        size, offset = source.nbytes, check_int("an offset", offset, 0, hold.size)
        if offset + size > hold.size:
            raise InvalidError("%d bytes at offset %d do not fit into %d bytes" % (size, offset, hold.size))
        number = source.__dlpack_device__()[1]
        with hold.using(), source._hold_now().using():
            if source.stream is not None:
                _cuda.order(number, stream_of(source.stream), stream_of(stream))
            _cuda.copy(number, hold.pointer + offset, source.ptr, size, stream_of(stream))
        hold.fate.exported = True  # the copy may still run when the memory is closed
        fate = getattr(source._hold_now(), "fate", None)
        if fate is not None:
            fate.exported = True  # on either side
        if fate is None or not hold.device.on_gpu:  # memory of somebody else may be gone on return
            _cuda.synchronize(number, stream_of(stream))
        return size

    def __repr__(self) -> str:
        hold = self._hold
        if hold is None:
            return "<gpumem.%s, closed>" % type(self).__name__
        return "<gpumem.%s of %d bytes on %s at 0x%x>" % (type(self).__name__, hold.size, hold.device.name, hold.pointer)


class Block(Memory):
    """Memory carved out of what the process already holds: quick to get, but it cannot be shared, published or resized."""

    _kind = "block"

    @classmethod
    def _of(cls, core: Core, device: DeviceInfo, pointer: int, size: int, stream: int) -> "Block":
        hold = Hold(core, device, pointer, size, free_block(pointer))
        hold.fate.stream = stream
        return cls(hold)


class Metadata(NamedTuple):
    """What a name was published with: data, as the publisher gave it, and version: 1 for a new name, and one more with each replacement."""

    data: bytes
    version: int


class Buffer(Memory):
    """Memory with a lease of its own, which can be resized, shared with other processes and published under a name."""

    _kind = "buffer"

    @classmethod
    def _of(cls, core: Core, handle: int, from_others: bool = False, evictable: bool = False) -> "Buffer":
        library = core.library
        device = core.device(library.gpumem_buffer_device(handle))
        pointer, size = library.gpumem_buffer_ptr(handle) or 0, library.gpumem_buffer_size(handle)
        hold = Hold(core, device, pointer, size, free_buffer(handle), handle)
        hold.evictable = evictable
        if from_others and not device.on_gpu:
            hold.read_only = not _writable(pointer)
        return cls(hold)

    def _copy_in(self, hold: Hold, offset: int, address: int, size: int, stream: int, progress: Optional[Progress]) -> None:
        with _transfer(progress) as options:
            _capi.check(hold.core.library.gpumem_copy_in(hold.handle, offset, address, size, stream, options, None))

    def _copy_out(self, hold: Hold, offset: int, address: int, size: int, stream: int, progress: Optional[Progress]) -> None:
        with _transfer(progress) as options:
            _capi.check(hold.core.library.gpumem_copy_out(hold.handle, offset, address, size, stream, options, None))

    def load_file(self, path: Union[str, "os.PathLike[str]"], offset: int = 0, *, file_offset: int = 0, size: Optional[int] = None,
                  stream: Any = None, progress: Optional[Progress] = None) -> int:
        """Loads a file, or a part of it, into the buffer with several threads. progress(done, total) is called meanwhile; an exception
        from it ends the transfer. Returns the number of bytes."""
        hold = self._hold_now()
        if hold.read_only:
            raise InvalidError("the memory was shared for reading only")
        name = check_path(path)
        part = _capi.CopyFile(path=name, fd=-1, offset=check_int("an offset", file_offset),
                              bytes=_capi.COPY_REST if size is None else check_int("a size", size))
        result = _capi.CopyResult()
        with _transfer(progress) as options:
            _capi.check(hold.core.library.gpumem_copy_file_in(
                hold.handle, check_int("an offset", offset), byref(part), stream_of(stream), options, byref(result)))
        return int(result.bytes)

    # ---- what it is

    @property
    def tag(self) -> str:
        """How gpumemctl buffers shows it."""
        hold = self._hold_now()
        return (hold.core.library.gpumem_buffer_tag(hold.handle) or b"").decode("utf-8", "replace")

    @tag.setter
    def tag(self, tag: str) -> None:
        hold = self._hold_now()
        _capi.check(hold.core.library.gpumem_buffer_set_tag(hold.handle, text("a tag", tag, required=True)))

    @property
    def version(self) -> int:
        """The version that it was published or attached as; 0: neither."""
        hold = self._hold_now()
        return int(hold.core.library.gpumem_buffer_version(hold.handle))

    def touch(self) -> None:
        """Says that the buffer is being used now, for gpumemctl buffers."""
        hold = self._hold_now()
        _capi.check(hold.core.library.gpumem_buffer_touch(hold.handle))

    # ---- resizing

    @property
    def max_size(self) -> int:
        """How far it can grow without moving."""
        hold = self._hold_now()
        return int(hold.core.library.gpumem_buffer_max_size(hold.handle))

    def resize(self, size: int, *, stream: Any = None) -> bool:
        """Makes the buffer larger or smaller; the content stays. True: it has moved. While arrays of others are on the buffer, it can
        only grow in place: ExportedError otherwise."""
        size = check_int("a size", size, 1)
        return self._change("gpumem_buffer_resize", size, stream)

    def ensure(self, size: int, *, stream: Any = None) -> bool:
        """Makes the buffer larger, as its policy says, if it has fewer bytes than that. True: it has moved."""
        size = check_int("a size", size, 1)
        if size <= self.size:
            return False
        return self._change("gpumem_buffer_ensure", size, stream)

    def set_policy(self, *, factor: float = 0.0, step: int = 0, ceiling: int = 0) -> None:
        """How ensure() grows the buffer: to so many times its size, by multiples of step, and never beyond ceiling."""
        hold = self._hold_now()
        policy = _capi.BufferPolicy(factor=check_number("a factor", factor, "times the size"), step=check_int("a step", step), ceiling=check_int("a ceiling", ceiling))
        _capi.check(hold.core.library.gpumem_buffer_set_policy(hold.handle, byref(policy)))

    def _change(self, name: str, size: int, stream: Any) -> bool:
        hold, moved = self._hold_now(), c_int()
        library = hold.core.library
        _dlpack.sweep()
        with hold.lock:
            if len(hold.exports) and not hold.size <= size <= library.gpumem_buffer_max_size(hold.handle):
                raise ExportedError("arrays of others are on the buffer: it cannot shrink or move before they are gone%s" %
                                    ("; forget_arrays() says that those of __cuda_array_interface__ are" if self._lent else ""))
            _capi.check(getattr(library, name)(hold.handle, size, stream_of(stream), byref(moved)))
            hold.pointer = library.gpumem_buffer_ptr(hold.handle) or 0
            hold.size = library.gpumem_buffer_size(hold.handle)
        return bool(moved.value)

    # ---- sharing

    def share(self, *, uid: Optional[int] = None, gid: Optional[int] = None, read_only: bool = False,
              readers_can_write: bool = False) -> str:
        """Makes a token, a text of 32 digits, with which other processes open the buffer: Session.open(). Without uid and gid, those of
        the same user, in the same container. On a GPU nobody can be kept from writing: sharing there with other users needs
        readers_can_write."""
        hold, token = self._hold_now(), _capi.Token()
        audience, number = _audience(uid, gid)
        options = _capi.ShareOptions(audience=audience, id=number, mode=int(bool(read_only)), flags=int(bool(readers_can_write)))
        _capi.check(hold.core.library.gpumem_share(hold.handle, byref(options), byref(token)))
        written = ctypes.create_string_buffer(_capi.TOKEN_TEXT_BYTES)
        hold.core.library.gpumem_token_to_text(byref(token), written)
        return written.value.decode()

    def unshare(self) -> None:
        """Ends every token of the buffer. Processes that have opened it keep it."""
        hold = self._hold_now()
        _capi.check(hold.core.library.gpumem_unshare(hold.handle))

    def publish(self, name: str, *, metadata: Optional[bytes] = None, replace: bool = False, until_unread: bool = False,
                expires: Optional[int] = None, uid: Optional[int] = None, gid: Optional[int] = None, read_only: bool = False,
                readers_can_write: bool = False, stream: Any = None) -> int:
        """Puts the buffer under a name, where other processes find it (Session.attach()), also when this one has ended. Waits for the
        work on the stream first. replace: the name may exist, and then means this buffer. expires: seconds. Returns the
        version."""
        hold, version = self._hold_now(), c_uint64()
        audience, number = _audience(uid, gid)
        options = _capi.PublishOptions(
            audience=audience, id=number, mode=int(bool(read_only)), flags=int(bool(readers_can_write)), replace=int(bool(replace)),
            until_unread=int(bool(until_unread)), expires_s=check_int("a time", expires or 0, 0, 0xFFFFFFFF))
        keep = None
        if metadata:
            keep, options.metadata, options.metadata_size = _host_source(metadata)
        _capi.check(hold.core.library.gpumem_publish(hold.handle, text("a name", name, required=True), byref(options), stream_of(stream),
                                                     byref(version)))
        del keep
        return version.value

    def metadata(self) -> bytes:
        """What the buffer was published with."""
        hold = self._hold_now()
        data, size = c_void_p(), c_size_t()
        _capi.check(hold.core.library.gpumem_buffer_metadata(hold.handle, byref(data), byref(size)))
        return take_metadata(hold.core, data, size)

    # ---- order between processes

    def signal(self, value: int, *, stream: Any = None) -> None:
        """Signals a value when the work is done that was launched on the stream before. The buffer is made with signals=True."""
        hold = self._hold_now()
        _capi.check(hold.core.library.gpumem_buffer_signal(hold.handle, stream_of(stream), check_int("a value", value, 1)))

    def wait(self, value: int, *, stream: Any = None, timeout: Optional[float] = None) -> None:
        """Makes what is launched on the stream from now on wait for a value. On the host backend, waits.

        With a timeout, in seconds, waits itself on every backend, and raises WaitTimeoutError if the value was not signalled in time.
        """
        hold = self._hold_now()
        most = _capi.WAIT_FOREVER if timeout is None else milliseconds(timeout)
        _capi.check(hold.core.library.gpumem_buffer_wait(hold.handle, stream_of(stream), check_int("a value", value, 1), most))

    def lost(self, value: int) -> bool:
        """Whether a wait for the value was lost, because the process that made the buffer has ended without signalling it."""
        from .errors import CancelledError

        hold = self._hold_now()
        try:
            _capi.check(hold.core.library.gpumem_buffer_lost(hold.handle, check_int("a value", value, 1)))
        except CancelledError:
            return True
        return False

    # ---- evictable buffers

    def _evictable_now(self) -> Hold:
        hold = self._hold_now()
        if not hold.evictable:
            raise UnsupportedError("this buffer is not evictable, so it needs no pin(), and cannot be evicted: make one with "
                                   "alloc(size, evictable=True)")
        return hold

    def pin(self, *, host_ok: bool = False, wait: Optional[float] = None) -> str:
        """Brings an evictable buffer back and keeps it where it is, until unpin(). Returns "device" or "host"."""
        hold, where = self._evictable_now(), c_int()
        options = _capi.PinOptions(flags=_capi.PIN_HOST_OK if host_ok else 0, wait_ms=milliseconds(wait))
        _capi.check(hold.core.library.gpumem_buffer_pin(hold.handle, byref(options), byref(where)))
        return _capi.LOCATIONS[where.value]

    def unpin(self, *, stream: Any = None) -> None:
        """The buffer is not used any more, but for the work that was launched on the stream before."""
        hold = self._evictable_now()
        _capi.check(hold.core.library.gpumem_buffer_unpin(hold.handle, stream_of(stream)))

    def evict(self) -> None:
        """Moves an evictable buffer to host memory now."""
        hold = self._evictable_now()
        _capi.check(hold.core.library.gpumem_buffer_evict(hold.handle))

    @property
    def location(self) -> str:
        """Where an evictable buffer is: "device" or "host"."""
        hold = self._hold_now()
        return _capi.LOCATIONS[hold.core.library.gpumem_buffer_location(hold.handle)]


def _audience(uid: Optional[int], gid: Optional[int]) -> Tuple[int, int]:
    if uid is not None and gid is not None:
        raise InvalidError("share with a user or with a group, not with both")
    if uid is not None:
        return _capi.AUDIENCE_UID, check_int("a uid", uid, 0, 0xFFFFFFFF)
    if gid is not None:
        return _capi.AUDIENCE_GID, check_int("a gid", gid, 0, 0xFFFFFFFF)
    return _capi.AUDIENCE_DOMAIN, 0


def _writable(pointer: int) -> bool:
    """Whether this process may write there. The library does not say how it mapped a buffer."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            place, access = line.split(" ", 2)[:2]
            start, end = (int(number, 16) for number in place.split("-"))
            if start <= pointer < end:
                return "w" in access
    return True


def take_metadata(core: Core, data: c_void_p, size: c_size_t) -> bytes:
    result = ctypes.string_at(data, size.value) if data.value else b""
    core.library.gpumem_metadata_free(data)
    return result


class _transfer:
    """The options of a transfer. An exception of progress() ends the transfer, and is raised here."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress, self._error = progress, None  # type: Optional[Progress], Optional[BaseException]

    def __enter__(self) -> Any:
        if self._progress is None:
            return None
        check_function("progress", self._progress)
        self._function = _capi.COPY_FN(self._step)
        self._options = _capi.CopyOptions(progress=ctypes.cast(self._function, c_void_p))
        return byref(self._options)

    def _step(self, user: Any, done: int, total: int) -> int:
        assert self._progress is not None
        try:
            self._progress(done, total)
        except BaseException as error:  # KeyboardInterrupt, too
            self._error = error
            return 1
        return 0

    def __exit__(self, *error: Any) -> None:
        if self._error is not None:
            raise self._error from None


class BatchEntry(Memory):
    """One piece of a batch."""

    _kind = "entry of a batch"

    def __init__(self, hold: Hold, tag: str) -> None:
        super().__init__(hold)
        self.tag = tag


class Batch(Sequence[BatchEntry]):
    """Pieces of memory that came in one request. The memory goes back as a whole, when the last entry and the batch are closed."""

    def __init__(self, core: Core, device: DeviceInfo, handle: int) -> None:
        library = core.library

        def destroy(fate: Any) -> None:
            fate.core.library.gpumem_batch_destroy(handle)

        whole = Hold(core, device, 0, 0, destroy, handle)
        self._entries: List[BatchEntry] = []
        for index in range(library.gpumem_batch_count(handle)):
            pointer, size = library.gpumem_batch_ptr(handle, index), library.gpumem_batch_size(handle, index)
            hold = Hold(core, device, pointer, size, _free_entry(whole, index))
            self._entries.append(BatchEntry(hold, (library.gpumem_batch_tag(handle, index) or b"").decode()))

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> BatchEntry: ...

    @overload
    def __getitem__(self, index: slice) -> List[BatchEntry]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[BatchEntry, List[BatchEntry]]:
        return self._entries[index]

    def __iter__(self) -> Iterator[BatchEntry]:
        return iter(self._entries)

    def close(self) -> None:
        """Gives all entries back that are left, as Memory.close() does."""
        for entry in self._entries:
            entry.close()

    @property
    def closed(self) -> bool:
        """Whether all entries are closed."""
        return all(entry.closed for entry in self._entries)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gpumem.Batch of %d entries>" % len(self._entries)


def _free_entry(whole: Hold, index: int) -> Callable[[Any], None]:
    def free(fate: Any) -> None:
        # The batch goes with its last entry, because each of them keeps it.
        fate.core.library.gpumem_batch_free_entry(whole.handle, index, _capi.STREAM_ANY)

    return free


__all__ = ["Batch", "BatchEntry", "Block", "Buffer", "Memory", "Metadata", "View"]
