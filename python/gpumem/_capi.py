# SPDX-License-Identifier: Apache-2.0
"""libgpumem-client through ctypes: where it is, its structs, constants and functions.

This module knows C and nothing of Python's objects. The library is loaded when it is needed first, so that importing
the package needs none. tests/python/test_capi.py compares everything here with the C headers.
"""

import ctypes
import os
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint32, c_uint64,
                    c_void_p)
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .errors import LibraryNotFoundError

SONAME = "libgpumem-client.so.0"

# ---- constants

DEVICE_HOST = 0xFFFFFFFF
WAIT_FOREVER = 0xFFFFFFFF
NO_WAIT = 0xFFFFFFFE
STREAM_ANY = ctypes.c_void_p(-1).value or 0
STREAM_DONE = ctypes.c_void_p(-2).value or 0

BUFFER_FOR_OTHERS = 1
BUFFER_SIGNALS = 2
BUFFER_EVICTABLE = 4
BUFFER_CPU_OK = 8
READERS_CAN_WRITE = 1
PIN_HOST_OK = 1
COPY_REST = 0xFFFFFFFFFFFFFFFF
BATCH_MOST = 1024
BATCH_NO_ENTRY = c_size_t(-1).value
TOKEN_TEXT_BYTES = 33
METADATA_MOST = 16 * 1024 * 1024

TRACK = {"auto": 0, "all": 1, "stacks": 2}
TRANSPORT = {"auto": 0, "fd": 1, "ipc": 2}
LEVELS = ("low", "medium", "high", "critical")
EVENTS = {1: "pressure", 2: "reclaim", 3: "limits", 4: "goodbye", 5: "lost", 6: "restored"}
AUDIENCE_DOMAIN, AUDIENCE_UID, AUDIENCE_GID = 0, 1, 2
SHARE_READ_WRITE, SHARE_READ_ONLY = 0, 1
REGION_DROP, REGION_KEEP = 0, 1
REGION_STATES = ("active", "pausing", "paused", "resuming")
REQUEST_PENDING, REQUEST_READY, REQUEST_FAILED = 0, 1, 2
FITS = ("now", "reclaim", "wait", "none")
COPY_STRATEGIES = {"auto": 0, "sync": 1, "async": 2, "staged": 3, "managed": 4}
LOCATIONS = ("device", "host")

# C names of the constants above, for the test that compares them.
CONSTANTS: Dict[str, int] = {
    "GPUMEM_DEVICE_HOST": DEVICE_HOST, "GPUMEM_WAIT_FOREVER": WAIT_FOREVER, "GPUMEM_NO_WAIT": NO_WAIT,
    "GPUMEM_BUFFER_FOR_OTHERS": BUFFER_FOR_OTHERS,
    "GPUMEM_BUFFER_SIGNALS": BUFFER_SIGNALS, "GPUMEM_BUFFER_EVICTABLE": BUFFER_EVICTABLE,
    "GPUMEM_BUFFER_CPU_OK": BUFFER_CPU_OK, "GPUMEM_READERS_CAN_WRITE": READERS_CAN_WRITE,
    "GPUMEM_PIN_HOST_OK": PIN_HOST_OK, "GPUMEM_COPY_REST": COPY_REST, "GPUMEM_BATCH_MOST": BATCH_MOST,
    "GPUMEM_BATCH_NO_ENTRY": BATCH_NO_ENTRY, "GPUMEM_TOKEN_TEXT_BYTES": TOKEN_TEXT_BYTES,
    "GPUMEM_METADATA_MOST": METADATA_MOST, "(uintptr_t)GPUMEM_STREAM_ANY": STREAM_ANY,
    "(uintptr_t)GPUMEM_STREAM_DONE": STREAM_DONE, "GPUMEM_AUDIENCE_DOMAIN": AUDIENCE_DOMAIN,
    "GPUMEM_AUDIENCE_UID": AUDIENCE_UID, "GPUMEM_AUDIENCE_GID": AUDIENCE_GID,
    "GPUMEM_SHARE_READ_WRITE": SHARE_READ_WRITE, "GPUMEM_SHARE_READ_ONLY": SHARE_READ_ONLY,
    "GPUMEM_REGION_DROP": REGION_DROP, "GPUMEM_REGION_KEEP": REGION_KEEP, "GPUMEM_REQUEST_PENDING": REQUEST_PENDING,
    "GPUMEM_REQUEST_READY": REQUEST_READY, "GPUMEM_REQUEST_FAILED": REQUEST_FAILED,
}
for _prefix, _table in (("TRACK", TRACK), ("TRANSPORT", TRANSPORT), ("COPY", COPY_STRATEGIES)):
    CONSTANTS.update({"GPUMEM_%s_%s" % (_prefix, name.upper()): value for name, value in _table.items()})
CONSTANTS.update({"GPUMEM_EVENT_%s" % name.upper(): value for value, name in EVENTS.items()})
for _prefix, _names in (("LEVEL", LEVELS), ("REGION", REGION_STATES), ("FIT", FITS), ("LOCATION", LOCATIONS)):
    CONSTANTS.update({"GPUMEM_%s_%s" % (_prefix, name.upper()): value for value, name in enumerate(_names)})

# ---- structs


class Sized(Structure):
    """A struct whose first member says how large the program believes it to be."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **values)


class ConnectOptions(Sized):
    c_name = "gpumem_connect_options"
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("name", c_char_p), ("timeout_ms", c_uint32), ("peers", c_uint32),
                ("away_ms", c_uint32), ("track", c_int), ("host_will_do", c_uint32)]


class DeviceInfoStruct(Sized):
    c_name = "gpumem_device_info_t"
    _fields_ = [("size", c_size_t), ("number", c_uint32), ("name", c_char * 64), ("backend", c_char * 16),
                ("uuid", c_uint8 * 16), ("total", c_uint64), ("capacity", c_uint64), ("available", c_uint64),
                ("transports", c_uint32), ("transport", c_int), ("pci", c_char * 32), ("visibility", c_int)]


class EventStruct(Sized):
    c_name = "gpumem_event"
    _fields_ = [("size", c_size_t), ("kind", c_int), ("device", c_uint32), ("level", c_int), ("pressure", c_double),
                ("bytes", c_uint64), ("urgent", c_int), ("text", c_char_p)]


class StatsStruct(Sized):
    c_name = "gpumem_stats_t"
    _fields_ = [("size", c_size_t), ("allocated", c_uint64), ("in_use", c_uint64), ("pooled", c_uint64), ("peak", c_uint64),
                ("hits", c_uint64), ("misses", c_uint64), ("hit_rate", c_double), ("returns", c_uint64),
                ("cpu_fallbacks", c_uint64), ("active_buffers", c_uint64), ("slack", c_uint64)]


class AllocOptions(Sized):
    c_name = "gpumem_alloc_options"
    _fields_ = [("size", c_size_t), ("alignment", c_size_t), ("tag", c_char_p), ("wait_ms", c_uint32)]


class BufferOptions(Sized):
    c_name = "gpumem_buffer_options"
    _fields_ = [("size", c_size_t), ("tag", c_char_p), ("transport", c_int), ("wait_ms", c_uint32), ("flags", c_uint32),
                ("max_size", c_size_t), ("type", c_char_p), ("precision", c_char_p)]


class BufferPolicy(Sized):
    c_name = "gpumem_buffer_policy"
    _fields_ = [("size", c_size_t), ("factor", c_double), ("step", c_size_t), ("ceiling", c_size_t)]


class Token(Structure):
    c_name = "gpumem_token"
    _fields_ = [("bytes", c_uint8 * 16)]


class ShareOptions(Sized):
    c_name = "gpumem_share_options"
    _fields_ = [("size", c_size_t), ("audience", c_int), ("id", c_uint32), ("mode", c_int), ("flags", c_uint32)]


class PublishOptions(Sized):
    c_name = "gpumem_publish_options"
    _fields_ = [("size", c_size_t), ("audience", c_int), ("id", c_uint32), ("mode", c_int), ("flags", c_uint32),
                ("replace", c_uint32), ("until_unread", c_uint32), ("expires_s", c_uint32), ("metadata", c_void_p),
                ("metadata_size", c_size_t)]


class BatchEntry(Structure):
    c_name = "gpumem_batch_entry"
    _fields_ = [("bytes", c_size_t), ("alignment", c_size_t), ("tag", c_char_p)]


class BatchOptions(Sized):
    c_name = "gpumem_batch_options"
    _fields_ = [("size", c_size_t), ("tag", c_char_p), ("transport", c_int), ("wait_ms", c_uint32),
                ("ret_failed", POINTER(c_size_t)), ("type", c_char_p), ("precision", c_char_p)]


class CopyOptions(Sized):
    c_name = "gpumem_copy_options"
    _fields_ = [("size", c_size_t), ("strategy", c_int), ("progress", c_void_p), ("user", c_void_p),
                ("cancel", POINTER(c_uint32)), ("threads", c_uint32), ("slots", c_uint32), ("slot_bytes", c_size_t)]


class CopyResult(Sized):
    c_name = "gpumem_copy_result"
    _fields_ = [("size", c_size_t), ("bytes", c_uint64), ("strategy", c_int), ("threads", c_uint32), ("slots", c_uint32),
                ("slot_bytes", c_size_t), ("ring_status", c_int)]


class CopyFile(Sized):
    c_name = "gpumem_copy_file"
    _fields_ = [("size", c_size_t), ("path", c_char_p), ("fd", c_int), ("offset", c_uint64), ("bytes", c_uint64)]


class PinOptions(Sized):
    c_name = "gpumem_pin_options"
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("wait_ms", c_uint32)]


class Placement(Sized):
    c_name = "gpumem_placement"
    _fields_ = [("size", c_size_t), ("device", c_uint32), ("fit", c_int), ("room", c_uint64), ("why", c_char * 256)]


class RegionOptions(Sized):
    c_name = "gpumem_region_options"
    _fields_ = [("size", c_size_t), ("initial", c_size_t), ("wait_ms", c_uint32)]


class RegionStatsStruct(Sized):
    c_name = "gpumem_region_stats_t"
    _fields_ = [("size", c_size_t), ("state", c_int), ("device", c_uint32), ("max_size", c_uint64), ("held", c_uint64),
                ("in_use", c_uint64), ("peak", c_uint64), ("needed", c_uint64), ("kept", c_uint64),
                ("allocations", c_uint64), ("pauses", c_uint64)]


STRUCTS: List[Any] = [
    ConnectOptions, DeviceInfoStruct, EventStruct, StatsStruct, AllocOptions, BufferOptions, BufferPolicy, Token,
    ShareOptions, PublishOptions, BatchEntry, BatchOptions, CopyOptions, CopyResult, CopyFile, PinOptions, Placement,
    RegionOptions, RegionStatsStruct,
]

# ---- functions

EVENT_FN = CFUNCTYPE(None, c_void_p, POINTER(EventStruct))
REQUEST_FN = CFUNCTYPE(None, c_void_p, c_void_p)
PLACEMENT_FN = CFUNCTYPE(None, c_void_p, POINTER(Placement))
COPY_FN = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)

# What the library's functions return and take. Handles (gpumem_session *, …) and addresses are c_void_p.
_P = c_void_p
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "gpumem_status_text": (c_char_p, [c_int]),
    "gpumem_error_detail": (c_char_p, []),
    "gpumem_version": (c_char_p, []),
    "gpumem_connect": (c_int, [POINTER(ConnectOptions), POINTER(_P)]),
    "gpumem_disconnect": (None, [_P]),
    "gpumem_device_count": (c_int, [_P, POINTER(c_uint32)]),
    "gpumem_device_info": (c_int, [_P, c_uint32, POINTER(DeviceInfoStruct)]),
    "gpumem_pressure": (c_int, [_P, c_uint32, POINTER(c_double), POINTER(c_int)]),
    "gpumem_on_event": (c_int, [_P, EVENT_FN, _P]),
    "gpumem_stats": (c_int, [_P, c_uint32, POINTER(StatsStruct)]),
    "gpumem_trim": (c_int, [_P, POINTER(c_uint64)]),
    "gpumem_capture_begin": (None, []),
    "gpumem_capture_end": (None, []),
    "gpumem_capture_keep_out": (c_int, []),
    "gpumem_capture_let_in": (None, []),
    "gpumem_graph_of": (c_int, [_P, c_uint32, _P, POINTER(c_uint64)]),
    "gpumem_graph_gone": (c_int, [_P, c_uint64]),
    "gpumem_alloc": (c_int, [_P, c_uint32, c_size_t, _P, POINTER(AllocOptions), POINTER(_P)]),
    "gpumem_free": (c_int, [_P, _P, _P]),
    "gpumem_host_alloc": (c_int, [_P, c_size_t, POINTER(AllocOptions), POINTER(_P)]),
    "gpumem_host_free": (c_int, [_P, _P]),
    "gpumem_alloc_begin": (c_int, [_P, c_uint32, c_size_t, _P, POINTER(AllocOptions), POINTER(_P)]),
    "gpumem_alloc_take": (c_int, [_P, POINTER(_P)]),
    "gpumem_request_ready": (c_int, [_P]),
    "gpumem_request_wait": (c_int, [_P, c_uint32]),
    "gpumem_request_cancel": (None, [_P]),
    "gpumem_request_on_done": (c_int, [_P, REQUEST_FN, _P]),
    "gpumem_dispatch": (c_int, [_P, POINTER(c_uint32)]),
    "gpumem_session_fd": (c_int, [_P, POINTER(c_int)]),
    "gpumem_buffer_create": (c_int, [_P, c_uint32, c_size_t, POINTER(BufferOptions), POINTER(_P)]),
    "gpumem_buffer_create_begin": (c_int, [_P, c_uint32, c_size_t, POINTER(BufferOptions), POINTER(_P)]),
    "gpumem_buffer_take": (c_int, [_P, POINTER(_P)]),
    "gpumem_buffer_destroy": (None, [_P]),
    "gpumem_buffer_ptr": (_P, [_P]),
    "gpumem_buffer_size": (c_size_t, [_P]),
    "gpumem_buffer_device": (c_uint32, [_P]),
    "gpumem_buffer_tag": (c_char_p, [_P]),
    "gpumem_buffer_transport": (c_int, [_P]),
    "gpumem_buffer_set_tag": (c_int, [_P, c_char_p]),
    "gpumem_buffer_touch": (c_int, [_P]),
    "gpumem_buffer_resize": (c_int, [_P, c_size_t, _P, POINTER(c_int)]),
    "gpumem_buffer_max_size": (c_size_t, [_P]),
    "gpumem_buffer_set_policy": (c_int, [_P, POINTER(BufferPolicy)]),
    "gpumem_buffer_ensure": (c_int, [_P, c_size_t, _P, POINTER(c_int)]),
    "gpumem_token_to_text": (None, [POINTER(Token), c_char_p]),
    "gpumem_token_from_text": (c_int, [c_char_p, POINTER(Token)]),
    "gpumem_share": (c_int, [_P, POINTER(ShareOptions), POINTER(Token)]),
    "gpumem_open": (c_int, [_P, POINTER(Token), POINTER(_P)]),
    "gpumem_unshare": (c_int, [_P]),
    "gpumem_publish": (c_int, [_P, c_char_p, POINTER(PublishOptions), _P, POINTER(c_uint64)]),
    "gpumem_attach": (c_int, [_P, c_char_p, POINTER(_P)]),
    "gpumem_attach_wait": (c_int, [_P, c_char_p, c_uint32, POINTER(_P)]),
    "gpumem_unpublish": (c_int, [_P, c_char_p]),
    "gpumem_metadata_read": (c_int, [_P, c_char_p, POINTER(_P), POINTER(c_size_t), POINTER(c_uint64)]),
    "gpumem_buffer_metadata": (c_int, [_P, POINTER(_P), POINTER(c_size_t)]),
    "gpumem_metadata_free": (None, [_P]),
    "gpumem_buffer_version": (c_uint64, [_P]),
    "gpumem_buffer_signal": (c_int, [_P, _P, c_uint64]),
    "gpumem_buffer_wait": (c_int, [_P, _P, c_uint64, c_uint32]),
    "gpumem_buffer_lost": (c_int, [_P, c_uint64]),
    "gpumem_batch_create": (c_int, [_P, c_uint32, POINTER(BatchEntry), c_size_t, POINTER(BatchOptions), POINTER(_P)]),
    "gpumem_batch_destroy": (None, [_P]),
    "gpumem_batch_free_entry": (c_int, [_P, c_size_t, _P]),
    "gpumem_batch_count": (c_size_t, [_P]),
    "gpumem_batch_ptr": (_P, [_P, c_size_t]),
    "gpumem_batch_size": (c_size_t, [_P, c_size_t]),
    "gpumem_batch_tag": (c_char_p, [_P, c_size_t]),
    "gpumem_copy_in": (c_int, [_P, c_size_t, _P, c_size_t, _P, POINTER(CopyOptions), POINTER(CopyResult)]),
    "gpumem_copy_out": (c_int, [_P, c_size_t, _P, c_size_t, _P, POINTER(CopyOptions), POINTER(CopyResult)]),
    "gpumem_copy_file_in": (c_int, [_P, c_size_t, POINTER(CopyFile), _P, POINTER(CopyOptions), POINTER(CopyResult)]),
    "gpumem_buffer_pin": (c_int, [_P, POINTER(PinOptions), POINTER(c_int)]),
    "gpumem_buffer_unpin": (c_int, [_P, _P]),
    "gpumem_buffer_location": (c_int, [_P]),
    "gpumem_buffer_evict": (c_int, [_P]),
    "gpumem_place": (c_int, [_P, c_uint64, c_int, POINTER(Placement)]),
    "gpumem_place_each": (c_int, [_P, c_uint64, PLACEMENT_FN, _P]),
    "gpumem_region_create": (c_int, [_P, c_uint32, c_char_p, c_size_t, POINTER(RegionOptions), POINTER(_P)]),
    "gpumem_region_destroy": (None, [_P]),
    "gpumem_region_alloc": (c_int, [_P, c_size_t, _P, POINTER(AllocOptions), POINTER(_P)]),
    "gpumem_region_free": (c_int, [_P, _P, _P]),
    "gpumem_region_pause": (c_int, [_P, c_char_p, c_int]),
    "gpumem_region_resume": (c_int, [_P, c_char_p, c_uint32]),
    "gpumem_region_stats": (c_int, [_P, c_char_p, POINTER(RegionStatsStruct)]),
}



def no_function(kind: Any) -> Any:
    """NULL in place of a function of this kind."""
    return kind()


# ---- the library

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def _is_safe(folder: Path, owners: Set[int], groups: Set[int]) -> bool:
    """Whether nobody else could have put something there."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid in owners and not found.st_mode & 0o002 and (not found.st_mode & 0o020 or found.st_gid in groups)


def _safe_folders(folders: List[Path], code: Path, owner: int) -> List[Path]:
    """Those of the folders in which nobody else could have put a library. They may lie below /tmp, where anybody can, or below a folder
    that a group shares. code: a folder with code that runs here anyway. So its group, the owner of that code, and whoever can rename a
    folder above it are trusted. The result has the real paths, because others could change a link after this look at it."""
    owners: Set[int] = {0, os.geteuid(), owner}
    groups: Set[int] = set()
    if code.exists():
        found = code.stat()
        owners.add(found.st_uid)
        if found.st_mode & 0o020:
            groups.add(found.st_gid)
    safe = []
    for folder in (folder.resolve() for folder in folders):
        elsewhere = [parent for parent in folder.parents if parent != code and parent not in code.parents]
        if all(_is_safe(one, owners, groups) for one in [folder] + elsewhere):
            safe.append(folder)
    return safe


def folders_beside_named(built: str) -> List[Path]:
    """Folders that may hold a library that comes with the client library, if GPUMEM_LIBRARY names that by a whole path: beside it, and
    the folder of the build tree. A name without a folder says nothing about where it is."""
    named = Path(os.environ.get("GPUMEM_LIBRARY", ""))
    if not named.is_absolute() or not named.exists():
        return []
    real = named.resolve().parent
    folders = [named.parent, real] + ([real.parent.parent / built] if real.parts[-2:] == ("client", ".libs") else [])
    return _safe_folders(folders, real, named.stat().st_uid)


def library_folders(*built: str) -> List[Path]:
    """Folders that may hold a library beside those of the dynamic linker: near this package, as make install and the build tree have
    them. built: folders of the build tree that may hold it."""
    package = Path(__file__).resolve().parent
    folders = [package.parent.parent / name for name in built] + [package.parent.parent / "lib"]
    for parent in list(package.parents)[1:5]:  # Python 3.9 has no slices of parents
        folders += [parent, parent / "lib", parent / "lib64"]
    return _safe_folders(folders, package, os.geteuid())


def _load() -> ctypes.CDLL:
    tried = []
    named = os.environ.get("GPUMEM_LIBRARY")
    found = [folder / SONAME for folder in library_folders("client/.libs")]
    candidates = [named] if named else [SONAME] + [str(path) for path in found if path.exists()]
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    raise LibraryNotFoundError(
        "gpumem needs %s, the client library of gpumemd, and cannot load it (%s). Install gpumemd, or name the library "
        "in the environment variable GPUMEM_LIBRARY." % (SONAME, "; ".join(tried)))


def library() -> ctypes.CDLL:
    """The client library. Loads it when it is called first, and raises LibraryNotFoundError if there is none."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                loaded = _load()
                for name, (returns, takes) in FUNCTIONS.items():
                    try:
                        function = getattr(loaded, name)
                    except AttributeError:
                        continue  # an older library: calling it says so
                    function.restype, function.argtypes = returns, takes
                _library = loaded
    return _library


def call(name: str) -> Callable[..., Any]:
    """A function of the library."""
    try:
        return getattr(library(), name)  # type: ignore[no-any-return]
    except AttributeError:
        raise LibraryNotFoundError("the installed %s is too old: it has no %s(). Install the gpumemd that this package came "
                                   "with." % (SONAME, name)) from None


def check(status: int) -> None:
    """Raises the exception for a status other than GPUMEM_OK, with the library's sentence. To be called on the thread of the failed
    call, before its next one."""
    if status:
        from .errors import error_for

        sentence = library().gpumem_error_detail() or b""
        if not sentence:
            sentence = library().gpumem_status_text(status)
        raise error_for(status, sentence.decode("utf-8", "replace"))
