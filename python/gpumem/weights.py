# SPDX-License-Identifier: Apache-2.0
"""Weights of models that are loaded once, and stay on their device for every process that attaches.

    gpumem.weights.load("model.safetensors", name="llama")   # once; a folder with shards will do, too
    tensors = gpumem.weights.attach("llama")                 # in any process of the user, within milliseconds

This module calls libgpumem-weights, which reads the files and checks them: gpumem_weights_load(3)."""

import ctypes
import importlib.util
import os
import sys
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _capi, _dlpack
from ._arrays import View
from ._core import Core, Hold, check_device, check_int, check_path, device_is_done, milliseconds, shared_name, text
from ._memory import Buffer, _writable
from ._session import Session
from .errors import InvalidError, LibraryNotFoundError, needs

SONAME = "libgpumem-weights.so.0"

# ---- the library


class TensorStruct(Structure):
    c_name = "gpumem_weights_tensor"
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(c_uint64)), ("bytes", c_uint64), ("ptr", c_void_p),
                ("ndim", c_uint32), ("bits", c_uint32)]


class EntryStruct(Structure):
    c_name = "gpumem_weights_entry"
    _fields_ = [("name", c_char_p), ("version", c_uint64), ("tensors", c_uint64), ("bytes", c_uint64), ("device", c_uint32),
                ("owner", c_uint32), ("readers", c_uint32)]


PROGRESS_FN = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class LoadOptions(Structure):
    c_name = "gpumem_weights_options"
    _fields_ = [("size", c_size_t), ("progress", PROGRESS_FN), ("user", c_void_p), ("cancel", POINTER(c_uint32)),
                ("replace", c_uint32), ("wait_ms", c_uint32), ("audience", c_int), ("id", c_uint32), ("mode", c_int),
                ("flags", c_uint32), ("expires_s", c_uint32)]


_P = c_void_p
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "gpumem_weights_load": (c_int, [_P, c_uint32, c_char_p, c_char_p, POINTER(LoadOptions), POINTER(_P)]),
    "gpumem_weights_attach": (c_int, [_P, c_char_p, c_uint64, POINTER(_P)]),
    "gpumem_weights_detach": (None, [_P]),
    "gpumem_weights_count": (c_size_t, [_P]),
    "gpumem_weights_at": (POINTER(TensorStruct), [_P, c_size_t]),
    "gpumem_weights_version": (c_uint64, [_P]),
    "gpumem_weights_buffer": (_P, [_P]),
    "gpumem_weights_list": (c_int, [_P, POINTER(POINTER(EntryStruct)), POINTER(c_size_t)]),
    "gpumem_weights_list_free": (None, [POINTER(EntryStruct)]),
    "gpumem_weights_remove": (c_int, [_P, c_char_p]),
}

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def _load_library() -> ctypes.CDLL:
    _capi.library()  # which it needs; the linker then finds the one that is loaded
    folders = _capi.folders_beside_named("weights/.libs") + _capi.library_folders("weights/.libs")
    tried = []
    for candidate in [str(f / SONAME) for f in folders if (f / SONAME).exists()] + [SONAME]:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    raise LibraryNotFoundError("gpumem.weights needs %s, which comes with gpumemd, and cannot load it (%s). Install gpumemd." %
                               (SONAME, "; ".join(tried)))


def library() -> Any:
    """libgpumem-weights. Loads it when it is called first."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                loaded = _load_library()
                for name, (returns, takes) in FUNCTIONS.items():
                    function = getattr(loaded, name)
                    function.restype, function.argtypes = returns, takes
                _library = loaded
    return _library


def _session(session: Optional[Session]) -> Session:
    if session is not None:
        if not isinstance(session, Session):
            raise InvalidError("session must be a gpumem.Session, not %r" % (session,))
        return session
    from . import default_session

    return default_session()


# ---- loading

Progress = Callable[[int, int], Any]


def _bar(done: int, total: int) -> None:
    """One line of fewer than 80 columns on the terminal."""
    share = done / total if total else 1.0
    end = "\r\033[K" if done == total else ""
    sys.stderr.write("\r[%-30s] %3d%%  %.1f of %.1f GiB\033[K%s" % ("#" * int(share * 30), share * 100, done / 2**30, total / 2**30, end))
    sys.stderr.flush()


def load(path: Union[str, "os.PathLike[str]"], name: str, device: Union[int, str] = 0, *, replace: bool = False,
         progress: Union[bool, Progress, None] = None, wait: Optional[float] = None, expires: Optional[int] = None,
         uid: Optional[int] = None, gid: Optional[int] = None, readers_can_write: bool = False,
         session: Optional[Session] = None) -> int:
    """Loads a safetensors file, or a folder with one or with shards and their index, and publishes it under a name. Returns the version.

    The weights stay on the device when this process has ended, until remove(). Without replace, a name that is taken is a BusyError.
    progress: a function of the bytes that have arrived and of all, an exception from which ends the load; True: a bar on stderr;
    None: a bar if that is a terminal. A damaged file is an InvalidError with the place in it; nothing is published then. uid, gid: who
    else may attach, as with Buffer.publish()."""
    if uid is not None and gid is not None:
        raise InvalidError("weights are for a uid or for a gid, not for both")
    if progress is None:
        progress = sys.stderr.isatty()
    function: Optional[Progress] = progress if callable(progress) else _bar if progress else None
    raised: List[BaseException] = []

    def hear(user: Any, done: int, total: int) -> int:
        try:
            assert function is not None
            function(done, total)
        except BaseException as error:  # of the caller's function; it goes on where it was called from
            raised.append(error)
        return len(raised)

    audience = _capi.AUDIENCE_UID if uid is not None else _capi.AUDIENCE_GID if gid is not None else _capi.AUDIENCE_DOMAIN
    options = LoadOptions(
        size=ctypes.sizeof(LoadOptions), progress=PROGRESS_FN(hear) if function else _capi.no_function(PROGRESS_FN), replace=int(bool(replace)),
        wait_ms=milliseconds(wait), audience=audience, id=check_int("a gid" if uid is None else "a uid", gid or 0 if uid is None else uid, 0, 0xFFFFFFFF), mode=_capi.SHARE_READ_ONLY,
        flags=_capi.READERS_CAN_WRITE * bool(readers_can_write), expires_s=check_int("a time", expires or 0, 0, 0xFFFFFFFF))
    core, weights, called = _session(session)._core_now(), c_void_p(), library()
    status = called.gpumem_weights_load(core.pointer, check_device(device), check_path(path), text("a name", name, required=True), byref(options),
                                        byref(weights))
    if raised:
        if not status:
            called.gpumem_weights_detach(weights)
        raise raised[0]
    _capi.check(status)
    version = int(called.gpumem_weights_version(weights))
    called.gpumem_weights_detach(weights)
    return version


# ---- attaching

_NAMES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16",
          "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
          "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def _free(weights: int) -> Callable[[Any], None]:
    """Detaches when the last array has gone."""

    def free(fate: Any) -> None:
        if device_is_done(fate):
            library().gpumem_weights_detach(weights)

    return free


class Weights(Mapping[str, Any]):
    """The tensors of a model, by name. A context manager. Arrays that others made of them go on working after close()."""

    def __init__(self, core: Core, session: Session, weights: int, kind: str) -> None:
        called = library()
        handle = called.gpumem_weights_buffer(weights)
        device = core.device(core.library.gpumem_buffer_device(handle))
        pointer = core.library.gpumem_buffer_ptr(handle) or 0
        hold = Hold(core, device, pointer, core.library.gpumem_buffer_size(handle), _free(weights), handle)
        if not device.on_gpu:
            hold.read_only = not _writable(pointer)
        self.version = int(called.gpumem_weights_version(weights))
        self.dtypes: Dict[str, str] = {}
        """The types, as the file has them: "BF16"."""
        self._kind = kind
        self._buffer: Buffer = session._keep(Buffer(hold))
        self._views: Dict[str, View] = {}
        for index in range(called.gpumem_weights_count(weights)):
            self._take(called.gpumem_weights_at(weights, index).contents, pointer)

    def _take(self, raw: Any, base: int) -> None:
        name, dtype = raw.name.decode(), raw.dtype.decode()
        shape = tuple(raw.shape[d] for d in range(raw.ndim))
        known = _NAMES.get(dtype)
        if known is None or known not in _dlpack.DTYPES:
            known, shape = "uint8", (raw.bytes,)  # a type of other sizes than bytes, or a new one: as it is in the file
        self.dtypes[name] = dtype
        self._views[name] = self._buffer.view(known, shape, (raw.ptr or base) - base)

    def __getitem__(self, name: str) -> Any:
        return _convert(self._views[name], self._kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    @property
    def device(self) -> int:
        """The number of the device."""
        return self._buffer.device

    def view(self, name: str) -> View:
        """A tensor as a View of this package, whatever the others are."""
        return self._views[name]

    def close(self) -> None:
        """Ends the use of the weights. They stay for others."""
        self._buffer.close()

    def __enter__(self) -> "Weights":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gpumem.weights.Weights of %d tensor%s, version %d>" % (len(self), "" if len(self) == 1 else "s", self.version)


def _convert(view: View, kind: str) -> Any:
    if kind == "view":
        return view
    if kind == "torch":
        return _to_torch(view)
    if view.dtype not in _dlpack.TYPESTRS:  # bfloat16 and the like, as the bits that they are
        view = view.view("uint16" if _dlpack.itemsize(view.dtype) == 2 else "uint8", view.shape)
    if kind == "numpy":
        return view.numpy()
    return needs("kind=\"cupy\"", "cupy").asarray(view)


def _to_torch(view: View) -> Any:
    import warnings

    torch = needs("kind=\"torch\"", "torch")
    dtype = getattr(torch, view.dtype)
    on = "cuda:%d" % view.__dlpack_device__()[1] if view.on_gpu else "cpu"
    if not view.nbytes:
        return torch.empty(view.shape, dtype=dtype, device=on)
    flat = view.view("uint8", (view.nbytes,))
    if view.on_gpu:
        return torch.from_dlpack(flat).view(dtype).reshape(view.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the memory is read-only, and PyTorch knows no such tensors
        return torch.from_numpy(flat.numpy()).view(dtype).reshape(view.shape)


def attach(name: str, *, version: int = 0, kind: Optional[str] = None, wait: Optional[float] = None,
           session: Optional[Session] = None) -> Weights:
    """Maps the weights that a name means, without a copy: a mapping from the names of the tensors to arrays.

    kind: "torch", "cupy", "numpy", or "view" for this package's own. Without it: on a GPU the one of PyTorch and CuPy that the program
    has imported, on the host NumPy, and otherwise views. Types that NumPy and CuPy do not have come as unsigned numbers. Do not write
    to the tensors: everybody sees the same. version: it must be this one. wait: seconds, if nobody has loaded them yet, as in
    Session.attach(). A name of another user is "uid:1000/llama" or "uid:alice/llama"."""
    if kind not in (None, "torch", "cupy", "numpy", "view"):
        raise InvalidError("kind is torch, cupy, numpy or view, not %r" % (kind,))
    if kind in ("torch", "cupy", "numpy"):
        needs("kind=\"%s\"" % kind, kind)  # before anything is attached
    given, weights = _session(session), c_void_p()
    core, number = given._core_now(), check_int("a version", version)
    # Kept until the weights are attached, so that they cannot end in between because nobody reads them.
    waited = None if wait is None else Session.attach(given, name, wait)
    _capi.check(library().gpumem_weights_attach(core.pointer, shared_name(name), number, byref(weights)))
    assert weights.value
    if waited is not None:
        waited.close()
    if kind is None:
        on_gpu = core.device(core.library.gpumem_buffer_device(library().gpumem_weights_buffer(weights))).on_gpu
        found = [module for module in ("torch", "cupy") if module in sys.modules]
        if not on_gpu:
            found = ["numpy"] if importlib.util.find_spec("numpy") else []
        kind = (found + ["view"])[0]
    return Weights(core, given, weights.value, kind)


# ---- what there is


class Entry(NamedTuple):
    """Weights under a name.

    name     as attach() takes it
    version  1 for a new name, and one more with each replacement
    tensors  how many there are; 0: not known
    bytes    of all tensors
    device   the number of the device
    owner    the uid
    readers  how often they are attached now
    """

    name: str
    version: int
    tensors: int
    bytes: int
    device: int
    owner: int
    readers: int


def entries(session: Optional[Session] = None) -> List[Entry]:
    """The weights of this user, and those of others that this process may attach to."""
    core, found, count = _session(session)._core_now(), POINTER(EntryStruct)(), c_size_t()
    _capi.check(library().gpumem_weights_list(core.pointer, byref(found), byref(count)))
    try:
        return [Entry(raw.name.decode("utf-8", "replace"), raw.version, raw.tensors, raw.bytes, raw.device, raw.owner, raw.readers)
                for raw in (found[i] for i in range(count.value))]
    finally:
        library().gpumem_weights_list_free(found)


def remove(name: str, session: Optional[Session] = None) -> None:
    """Removes a name. Processes that attached keep the weights."""
    core = _session(session)._core_now()
    _capi.check(library().gpumem_weights_remove(core.pointer, shared_name(name)))


__all__ = ["Entry", "Weights", "attach", "entries", "load", "remove"]
