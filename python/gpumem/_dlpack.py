# SPDX-License-Identifier: Apache-2.0
"""DLPack without a compiler: capsules that others import, and capsules of others.

A consumer may call the deleter of a tensor at any time, from any thread, and even when the interpreter has ended: the static
destructors of a framework do. A Python function cannot be called then. So the struct is in memory of malloc(), and when the
interpreter begins to end, every deleter that is left becomes a C function that does nothing. What it would have freed, the end of
the process frees.

A capsule that nobody took has no destructor that frees its tensor: Python destroys objects also while an exception is on its way, and
a Python function that is called then loses the exception. So this module keeps each capsule until its tensor was taken, and drops
those that nobody else has: with the next capsule, and with each run of the garbage collector.
"""

import atexit
import ctypes
import gc
import sys
import threading
import weakref
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from .errors import HostMemoryError, InvalidError, UnsupportedError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_OTHERS = {4: "an OpenCL device", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "an AMD GPU (ROCm)", 11: "an AMD GPU (ROCm)", 14: "oneAPI",
           15: "WebGPU", 16: "Hexagon", 17: "MAIA", 18: "Trainium"}


class _Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _DType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(Structure):
    """DLManagedTensor. The shape and the strides lie behind it, in the same piece of memory."""

    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(Structure):
    """DLManagedTensorVersioned, of DLPack 1."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
                ("tensor", _Tensor)]


READ_ONLY = 1

# Python's name of a type: DLPack's code and bits. NumPy's codes come through its name, too.
DTYPES: Dict[str, Tuple[int, int]] = {
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
    "complex64": (5, 64), "complex128": (5, 128), "bool": (6, 8),
    "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
}
_names = {code: name for name, code in DTYPES.items()}
# As in the array interfaces of NumPy and CUDA, which have no codes for the others.
TYPESTRS: Dict[str, str] = {
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "|u1", "uint16": "<u2", "uint32": "<u4",
    "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16", "bool": "|b1",
}


def dtype_name(dtype: Any) -> str:
    """The name of a type: "float32" for "float32", numpy.float32, numpy.dtype("f4"), torch.float32, a typestr, float."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    for name, typestr in TYPESTRS.items():
        if dtype == typestr:
            return name
    if dtype in (float, int, bool):
        return {float: "float64", int: "int64", bool: "bool"}[dtype]
    name = str(getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or dtype).replace("torch.", "")
    if name == "bool_":
        name = "bool"
    if name not in DTYPES:
        raise InvalidError("%r is not a type that arrays can have here: use one of %s" % (dtype, ", ".join(DTYPES)))
    return name


def itemsize(name: str) -> int:
    return DTYPES[name][1] // 8


# ---- what the interpreter and the C library are needed for

_api = ctypes.pythonapi
_capsule_new = _api.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
_capsule_pointer = _api.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_capsule_is = _api.PyCapsule_IsValid
_capsule_is.restype, _capsule_is.argtypes = ctypes.c_int, [ctypes.py_object, c_char_p]
_capsule_rename = _api.PyCapsule_SetName
_capsule_rename.restype, _capsule_rename.argtypes = ctypes.c_int, [ctypes.py_object, c_char_p]
_libc = ctypes.CDLL(None)
_malloc, _free = _libc.malloc, _libc.free
_malloc.restype, _malloc.argtypes = c_void_p, [c_size_t]
_free.restype, _free.argtypes = None, [c_void_p]
# A function that may be called with any argument and does nothing.
_nothing = ctypes.cast(_libc.getppid, c_void_p).value

# PyCapsule keeps the pointer to its name.
_NAME, _USED = c_char_p(b"dltensor"), c_char_p(b"used_dltensor")
_NAME1, _USED1 = c_char_p(b"dltensor_versioned"), c_char_p(b"used_dltensor_versioned")

# What consumers still have: the address of the struct, what keeps the memory, and where its deleter is.
_live: Dict[int, Tuple[Any, Any]] = {}
# Capsules whose tensor was not taken yet, as far as is known, with the address of the struct.
_waiting: Dict[int, Tuple[Any]] = {}
_ending = False
_DELETER = CFUNCTYPE(None, c_void_p)


# The defaults keep what these need: the names of a module may be gone before its functions are called for the last time.
def _delete(address: int, live: Any = _live, free: Any = _free) -> None:
    if live.pop(address, None) is not None:
        free(address)


def _references(entry: Tuple[Any], count: Any = sys.getrefcount) -> int:
    return count(entry[0])  # type: ignore[no-any-return]


_ALONE = _references((object(),))


def sweep(phase: str = "stop", info: Any = None, waiting: Any = _waiting, names: Any = (_NAME, _NAME1), valid: Any = _capsule_is,
          references: Any = _references, alone: int = _ALONE, delete: Any = _delete) -> None:
    """Frees the tensors of capsules that were dropped before anybody took them. Also called by the garbage collector."""
    if phase != "stop":
        return
    for address, entry in list(waiting.items()):
        if not any(valid(entry[0], name) for name in names):
            waiting.pop(address, None)  # the consumer has renamed it, and deletes the tensor itself
        elif references(entry) <= alone and waiting.pop(address, None) is entry:
            delete(address)


_delete_c = _DELETER(_delete)
_api.Py_IncRef(ctypes.py_object(_delete_c))  # its machine code stays when this module goes
_delete_address = ctypes.cast(_delete_c, c_void_p).value
gc.callbacks.append(sweep)


def _end() -> None:
    global _ending
    _ending = True
    if sweep in gc.callbacks:
        gc.callbacks.remove(sweep)
    for _, managed in list(_live.values()):
        managed.deleter = _nothing


atexit.register(_end)


# ---- out


def export(keep: Any, pointer: int, shape: Sequence[int], dtype: str, device: Tuple[int, int], read_only: bool,
           max_version: Optional[Tuple[int, int]]) -> Any:
    """A capsule for a contiguous array. keep stays alive until the consumer has deleted it."""
    sweep()
    versioned = max_version is not None and max_version[0] >= 1
    if read_only and not versioned:
        raise BufferError("the array is read-only, which only consumers of DLPack 1.0 understand")
    kind: Any = _Versioned if versioned else _Managed
    count = len(shape)
    address = _malloc(ctypes.sizeof(kind) + 16 * count)
    if not address:
        raise HostMemoryError("this process is out of host memory")
    managed = kind.from_address(address)
    extents = (c_int64 * (2 * count)).from_address(address + ctypes.sizeof(kind))
    stride = 1
    for i in reversed(range(count)):
        extents[i], extents[count + i] = shape[i], stride
        stride *= shape[i]
    tensor = managed.tensor
    tensor.data, tensor.device.type, tensor.device.id = pointer, device[0], device[1]
    tensor.ndim, tensor.byte_offset = count, 0
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = DTYPES[dtype][0], DTYPES[dtype][1], 1
    start = ctypes.addressof(extents)
    tensor.shape = ctypes.cast(start, POINTER(c_int64))
    tensor.strides = ctypes.cast(start + 8 * count, POINTER(c_int64))
    managed.context, managed.deleter = None, _nothing if _ending else _delete_address
    if versioned:
        managed.major, managed.minor, managed.flags = 1, 0, READ_ONLY if read_only else 0
    _live[address] = (keep, managed)
    capsule = _capsule_new(address, _NAME1 if versioned else _NAME, None)
    _waiting[address] = (capsule,)
    return capsule


# ---- in


def check_device(kind: int) -> None:
    """Memory of other makers' devices has addresses that mean something else here, or nothing."""
    if kind not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise UnsupportedError("the array is on %s, and only memory of the CPU and of CUDA can be used here: copy it there first" %
                               _OTHERS.get(kind, "a device of DLPack's kind %d" % kind))


class Foreign(NamedTuple):
    """A tensor of somebody else."""

    pointer: int
    shape: Tuple[int, ...]
    dtype: str
    device: Tuple[int, int]
    read_only: bool
    delete: Any  # to be called once, when nobody uses the memory any more
    keep: Any  # a weak reference to what export() was given, if this package made the capsule; else None


def take(capsule: Any) -> Foreign:
    """Takes the tensor out of a capsule. Only contiguous ones are accepted; the others stay in their capsule."""
    versioned = bool(_capsule_is(capsule, _NAME1))
    if not versioned and not _capsule_is(capsule, _NAME):
        raise InvalidError("this is no DLPack capsule, or its tensor was taken before")
    address = _capsule_pointer(capsule, _NAME1 if versioned else _NAME)
    kind: Any = _Versioned if versioned else _Managed
    managed = kind.from_address(address)
    if versioned and managed.major != 1:
        raise UnsupportedError("the tensor is of DLPack %d, and only versions up to 1 are known here" % managed.major)

    tensor = managed.tensor
    check_device(tensor.device.type)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        stride = 1
        for i in reversed(range(tensor.ndim)):
            if shape[i] != 1 and tensor.strides[i] != stride and 0 not in shape:
                raise UnsupportedError("the tensor is not contiguous: make a contiguous copy first")
            stride *= shape[i]
    name = _names.get((tensor.dtype.code, tensor.dtype.bits))
    if name is None or tensor.dtype.lanes != 1:
        raise UnsupportedError("the tensor's numbers (DLPack code %d, %d bits, %d lanes) are not known here" %
                               (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes))

    _capsule_rename(capsule, _USED1 if versioned else _USED)
    deleter = managed.deleter
    once = threading.Lock()

    def delete() -> None:
        if deleter and once.acquire(blocking=False):
            _DELETER(deleter)(address)

    return Foreign((tensor.data or 0) + tensor.byte_offset, shape, name, (tensor.device.type, tensor.device.id),
                   bool(versioned and managed.flags & READ_ONLY), delete,
                   weakref.ref(_live[address][0]) if address in _live else None)
