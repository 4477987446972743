# SPDX-License-Identifier: Apache-2.0
"""The little of the CUDA driver that exchanging arrays needs: which CUDA device a device of the daemon is, and the order between
two streams. Without a driver, or on the host backend, nothing here is called."""

import ctypes
import threading
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_void_p
from typing import Any, Dict, Iterable, Optional

from .errors import GpumemError, LibraryNotFoundError, UnsupportedError

# As CUDA numbers the default streams, and as the array interfaces do.
LEGACY, PER_THREAD = 1, 2

_EVENT_DISABLE_TIMING = 2
_CAPTURE_RELAXED = 2

_lock = threading.RLock()  # a finalizer may run, and come here, while this thread has it
_driver: Optional[ctypes.CDLL] = None
_ordinals: Dict[bytes, int] = {}
_contexts: Dict[int, int] = {}


class CudaError(GpumemError):
    """A call of the CUDA driver failed."""


def _check(name: str, result: int) -> None:
    if result:
        text = ctypes.c_char_p()
        if _driver is not None:
            _driver.cuGetErrorName(result, byref(text))
        raise CudaError("%s failed: %s" % (name, (text.value or b"error %d" % result).decode()))


def driver() -> ctypes.CDLL:
    """The CUDA driver, initialised."""
    global _driver
    with _lock:
        if _driver is None:
            try:
                loaded = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise LibraryNotFoundError("the memory is on a GPU, and the CUDA driver cannot be loaded: %s" % error) from None
            for name, takes in (("cuDevicePrimaryCtxRetain", [c_void_p, c_int]),
                                ("cuDevicePrimaryCtxGetState", [c_int, c_void_p, c_void_p]),
                                ("cuCtxPushCurrent_v2", [c_void_p]), ("cuCtxPopCurrent_v2", [c_void_p]),
                                ("cuEventCreate", [c_void_p, c_uint]), ("cuEventRecord", [c_void_p, c_void_p]),
                                ("cuEventDestroy_v2", [c_void_p]), ("cuStreamWaitEvent", [c_void_p, c_void_p, c_uint]),
                                ("cuStreamSynchronize", [c_void_p]),
                                ("cuThreadExchangeStreamCaptureMode", [c_void_p]),
                                ("cuMemcpyAsync", [c_void_p, c_void_p, c_size_t, c_void_p])):
                function = getattr(loaded, name)
                function.argtypes, function.restype = takes, c_int
            _check("cuInit", loaded.cuInit(0))
            _driver = loaded
    return _driver


def ordinal(uuid: bytes) -> int:
    """The number by which CUDA knows the device with this UUID in this process."""
    cuda = driver()
    with _lock:
        if not _ordinals:
            count = c_int()
            _check("cuDeviceGetCount", cuda.cuDeviceGetCount(byref(count)))
            for number in range(count.value):
                handle, found = c_int(), (c_char * 16)()
                _check("cuDeviceGet", cuda.cuDeviceGet(byref(handle), number))
                _check("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(byref(found), handle))
                _ordinals[bytes(found)] = number
    try:
        return _ordinals[uuid]
    except KeyError:
        raise UnsupportedError("this process does not see that GPU: see CUDA_VISIBLE_DEVICES") from None


def numbers(devices: Iterable[Any]) -> Dict[int, int]:
    """CUDA's numbers of the GPUs that this process sees, with the daemon's. devices: what a session has, as DeviceInfo."""
    found = {}
    for info in devices:
        if info.backend == "cuda":
            try:
                found[ordinal(info.uuid)] = info.number
            except UnsupportedError:
                pass  # this process does not see it
    if not found:
        raise UnsupportedError("gpumemd serves no GPU that this process sees: see gpumemctl status and CUDA_VISIBLE_DEVICES")
    return found


class _Context:
    """Makes the primary context of a device current for a while. It is retained for the rest of the process: frameworks use the same one, and
    making it again would take long and end its streams."""

    def __init__(self, number: int) -> None:
        self._cuda = driver()
        with _lock:
            if number not in _contexts:
                context = c_void_p()
                _check("cuDevicePrimaryCtxRetain", self._cuda.cuDevicePrimaryCtxRetain(byref(context), number))
                _contexts[number] = context.value or 0
            self._context = _contexts[number]

    def __enter__(self) -> Any:
        _check("cuCtxPushCurrent", self._cuda.cuCtxPushCurrent_v2(self._context))
        return self._cuda

    def __exit__(self, *error: Any) -> None:
        self._cuda.cuCtxPopCurrent_v2(byref(c_void_p()))


def order(number: int, before: int, after: int) -> None:
    """What is launched on the stream after from now on runs after what was launched on the stream before. Does not wait."""
    if before == after:
        return
    with _Context(number) as cuda:
        event = c_void_p()
        _check("cuEventCreate", cuda.cuEventCreate(byref(event), _EVENT_DISABLE_TIMING))
        try:
            _check("cuEventRecord", cuda.cuEventRecord(event, before))
            _check("cuStreamWaitEvent", cuda.cuStreamWaitEvent(after, event, 0))
        finally:
            cuda.cuEventDestroy_v2(event)


def copy(number: int, to: int, source: int, size: int, stream: int) -> None:
    """Puts a copy on a stream. Unified addresses say which memory it is."""
    with _Context(number) as cuda:
        _check("cuMemcpyAsync", cuda.cuMemcpyAsync(to, source, size, stream))


def synchronize(number: int, stream: Optional[int] = None) -> None:
    """Waits for all work of the device's primary context, or of one stream. If the context is not active, there is none."""
    cuda, flags, active = driver(), c_uint(), c_int()
    _check("cuDevicePrimaryCtxGetState", cuda.cuDevicePrimaryCtxGetState(number, byref(flags), byref(active)))
    if not active.value:
        return
    with _Context(number):
        if stream is None:
            _check("cuCtxSynchronize", cuda.cuCtxSynchronize())
        else:
            _check("cuStreamSynchronize", cuda.cuStreamSynchronize(stream))


def relax_captures() -> None:
    """This thread may make calls from now on that CUDA forbids while another thread captures a graph."""
    _check("cuThreadExchangeStreamCaptureMode", driver().cuThreadExchangeStreamCaptureMode(byref(c_int(_CAPTURE_RELAXED))))
