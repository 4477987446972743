# SPDX-License-Identifier: Apache-2.0
"""Memory as other people's arrays: NumPy, the buffer protocol, __cuda_array_interface__ and DLPack, without a copy."""

import builtins
import ctypes
import sys
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple, Union

from . import _cuda, _dlpack
from ._core import Export, Hold, check_int, closed, stream_of
from .errors import ForkedError, InvalidError, UnsupportedError, needs

if TYPE_CHECKING:
    import numpy as np

_FORMATS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
            "float32": "f", "float64": "d", "bool": "?"}


def _product(shape: Sequence[int]) -> int:
    result = 1
    for extent in shape:
        result *= extent
    return result


def _bytes_at(address: int, size: int, export: Export) -> Any:
    """Memory as something with the buffer protocol, which keeps the export."""
    array: Any = (ctypes.c_ubyte * size).from_address(address)
    array._export = export
    return array


class ArrayLike:
    """Memory with a shape and a type. Subclasses say where it is."""

    _kind = "array"
    _lent: Optional[Export] = None
    stream: Optional[Any] = None
    """The stream whose work writes to the memory, if there is one. Consumers on other streams then wait for it."""

    def _hold_now(self) -> Any:
        raise NotImplementedError

    def _offset(self) -> int:
        return 0

    @property
    def shape(self) -> Tuple[int, ...]:
        """How many elements there are in each dimension."""
        raise NotImplementedError

    @property
    def dtype(self) -> str:
        """The name of the type of the elements, such as "float32"."""
        return "uint8"

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return _product(self.shape) * _dlpack.itemsize(self.dtype)

    @property
    def ptr(self) -> int:
        """The address. It means nothing any more when the memory is closed: exchange arrays instead, where you can."""
        hold: Hold = self._hold_now()
        return hold.pointer + self._offset()

    @property
    def read_only(self) -> bool:
        """Whether writing is impossible: the memory was shared for reading only."""
        return bool(self._hold_now().read_only)

    @property
    def on_gpu(self) -> bool:
        """Whether only a GPU can use the memory. Otherwise the CPU can."""
        return bool(self._hold_now().device.on_gpu)

    @property
    def closed(self) -> bool:
        """Whether the memory was given back, or will be when the last array on it has gone."""
        try:
            self._hold_now()
        except InvalidError:
            return True
        except ForkedError:
            pass  # the parent has it
        return False

    # ---- parts

    def view(self, dtype: Any = "uint8", shape: Union[int, Sequence[int], None] = None, offset: int = 0) -> "View":
        """The same memory, or a part of it, with another type and shape. offset is in bytes. Without a shape, the rest of the memory as
        one dimension."""
        name = _dlpack.dtype_name(dtype)
        self._hold_now()
        offset = check_int("an offset", offset, 0, self.nbytes)
        if shape is None:
            shape = [(self.nbytes - offset) // _dlpack.itemsize(name)]
        elif not isinstance(shape, (tuple, list)):
            shape = [shape]  # type: ignore[list-item]
        extents = tuple(check_int("an extent", extent) for extent in shape)
        if offset + _product(extents) * _dlpack.itemsize(name) > self.nbytes:
            raise InvalidError("an array of %s of shape %s at byte %d does not fit into %d bytes" %
                               (name, extents, offset, self.nbytes))
        return View(self, offset, extents, name)

    def __getitem__(self, index: Any) -> "View":
        """A part of the memory: a slice along the first dimension, without a step."""
        if not isinstance(index, slice):
            raise InvalidError("only slices, such as [a:b], are parts of memory here; array() or view() has elements")
        if not self.shape:
            raise InvalidError("memory without dimensions has no slices")
        start, stop, step = index.indices(self.shape[0])
        if step != 1:
            raise InvalidError("a slice of memory has no step")
        row = _product(self.shape[1:])
        extents = (max(0, stop - start),) + self.shape[1:]
        return self.view(self.dtype, extents, start * row * _dlpack.itemsize(self.dtype))

    def __len__(self) -> int:
        return self.shape[0]

    # ---- the CPU

    def _for_cpu(self) -> Hold:
        hold: Hold = self._hold_now()
        if hold.device.on_gpu:
            raise UnsupportedError("the memory is on %s, which the CPU cannot use: exchange it with CuPy or PyTorch, or copy it "
                                   "with read() and write()" % hold.device.name)
        hold.check_usable()
        return hold

    def memoryview(self) -> builtins.memoryview:
        """The memory as a memoryview, where the CPU can use it. The memory stays as long as the memoryview does."""
        hold = self._for_cpu()
        view = memoryview(_bytes_at(hold.pointer + self._offset(), self.nbytes, hold.export())).cast("B")
        if hold.read_only:
            view = view.toreadonly()
        if self.dtype != "uint8" or len(self.shape) != 1:
            if self.dtype not in _FORMATS:
                raise UnsupportedError("a memoryview cannot have elements of %s" % self.dtype)
            view = view.cast(_FORMATS[self.dtype], list(self.shape))
        return view

    if sys.version_info >= (3, 12):

        def __buffer__(self, flags: int) -> builtins.memoryview:
            if flags & 1 and self.read_only:
                raise BufferError("the memory was shared for reading only")
            try:
                return self.memoryview()
            except UnsupportedError as error:
                raise BufferError(str(error)) from None

    def numpy(self) -> "np.ndarray[Any, Any]":
        """The memory as a NumPy array, where the CPU can use it. The memory stays as long as the array does."""
        hold = self._for_cpu()
        needs("numpy()", "numpy")
        import numpy

        if self.dtype not in _dlpack.TYPESTRS:
            raise UnsupportedError("NumPy has no %s: use view() with a type of the same size" % self.dtype)
        dtype = numpy.dtype(_dlpack.TYPESTRS[self.dtype])
        if not self.nbytes:
            return numpy.empty(self.shape, dtype)
        result = numpy.frombuffer(_bytes_at(hold.pointer + self._offset(), self.nbytes, hold.export()), dtype).reshape(self.shape)
        if hold.read_only:
            result.flags.writeable = False
        return result

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "np.ndarray[Any, Any]":
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError("another type needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    # ---- GPUs

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """For CuPy, PyTorch, Numba and others (version 3). They keep this object, and this object then keeps the memory, also when it is
        closed: until it is dropped itself, or forget_arrays() is called. A view() that is given away has no such end to think of."""
        hold: Hold = self._hold_now()
        if not hold.device.on_gpu:
            raise AttributeError("the memory is not on a GPU: it has no __cuda_array_interface__")
        if self.dtype not in _dlpack.TYPESTRS:
            raise AttributeError("__cuda_array_interface__ has no code for %s: use DLPack" % self.dtype)
        hold.check_usable()
        if self._lent is None or self._lent.hold is not hold:
            self._lent = hold.export()
        stream = None if self.stream is None else stream_of(self.stream) or _cuda.LEGACY
        return {"shape": self.shape, "typestr": _dlpack.TYPESTRS[self.dtype], "version": 3, "strides": None, "stream": stream,
                "data": (hold.pointer + self._offset() if self.nbytes else 0, hold.read_only)}

    def forget_arrays(self) -> None:
        """Says that no array is left that others made from this very object through __cuda_array_interface__. This object cannot see them
        go. Until then it keeps its memory from going back and from moving. Arrays of views and of DLPack need no such word."""
        self._lent = None

    # ---- DLPack

    def __dlpack_device__(self) -> Tuple[int, int]:
        hold: Hold = self._hold_now()
        if not hold.device.on_gpu:
            return (_dlpack.CPU, 0)
        return (_dlpack.CUDA, _cuda.ordinal(hold.device.uuid))

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A DLPack capsule, for from_dlpack() of any library. stream is the consumer's: it waits for the work on self.stream."""
        hold: Hold = self._hold_now()
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(int(number) for number in dl_device) != device:
            raise BufferError("the memory is on DLPack's device %s, and no copy is made to %s" % (device, tuple(dl_device)))
        if copy:
            raise BufferError("no copy is made: copy the result, if you need one")
        if hold.device.on_gpu and self.stream is not None and stream != -1:
            _cuda.order(device[1], stream_of(self.stream), _cuda.LEGACY if stream is None else stream_of(stream))
        return _dlpack.export(hold.export(), hold.pointer + self._offset(), self.shape, self.dtype, device, hold.read_only,
                              max_version)


class View(ArrayLike):
    """A part of a Buffer, or all of it, with a type and a shape. It keeps the Buffer. When the Buffer is closed, it is closed, too."""

    def __init__(self, base: ArrayLike, offset: int, shape: Tuple[int, ...], dtype: str) -> None:
        self._base: ArrayLike = base._base if isinstance(base, View) else base
        self._at = offset + base._offset()
        self._shape, self._dtype = shape, dtype

    def _hold_now(self) -> Any:
        hold = self._base._hold_now()
        if self._at + self.nbytes > hold.size:
            raise closed("part of a buffer that became smaller")
        return hold

    def _offset(self) -> int:
        return self._at

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def base(self) -> ArrayLike:
        """The Buffer, Block or other memory that this is a part of."""
        return self._base

    @property
    def stream(self) -> Any:
        """The stream whose work writes to the memory, as the memory itself has it."""
        return self._base.stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._base.stream = stream

    def __repr__(self) -> str:
        return "<gpumem.View %s %s of %r>" % (self._dtype, list(self._shape), self._base)


class _ForeignDevice:
    """Memory of somebody else, as far as a DeviceInfo says it."""

    def __init__(self, device: Tuple[int, int]) -> None:
        self.on_gpu = device[0] == _dlpack.CUDA
        self.name = "CUDA device %d" % device[1]


class _ForeignHold:
    def __init__(self, tensor: _dlpack.Foreign) -> None:
        self.tensor, self.pointer, self.read_only = tensor, tensor.pointer, tensor.read_only
        self.size = _product(tensor.shape) * _dlpack.itemsize(tensor.dtype)
        self.device = _ForeignDevice(tensor.device)
        keep = tensor.keep and tensor.keep()
        self._origin: Optional[Hold] = keep.hold if isinstance(keep, Export) else None
        weakref.finalize(self, tensor.delete).atexit = False

    def check_fork(self) -> None:
        if isinstance(self._origin, _ForeignHold):
            self._origin.check_fork()
        elif self._origin is not None:
            self._origin.core.check_fork()

    def using(self) -> Any:
        return nullcontext() if self._origin is None else self._origin.using()

    def check_usable(self) -> None:
        with self.using():
            pass

    def export(self) -> Any:
        self.check_usable()
        return Export(self)  # type: ignore[arg-type]


class ForeignArray(ArrayLike):
    """An array of another library, without a copy. See from_dlpack()."""

    def __init__(self, tensor: _dlpack.Foreign) -> None:
        self._hold: Optional[_ForeignHold] = _ForeignHold(tensor)
        self._shape, self._dtype, self._device = tensor.shape, tensor.dtype, tensor.device

    def _hold_now(self) -> Any:
        hold = self._hold
        if hold is None:
            raise closed("array")
        hold.check_fork()
        return hold

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._dtype

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._device

    def close(self) -> None:
        """Drops the array. Its owner frees the memory when nobody else uses it."""
        self._hold, self._lent = None, None

    def __repr__(self) -> str:
        return "<gpumem.ForeignArray %s %s>" % (self._dtype, list(self._shape))


def from_dlpack(source: Any, *, stream: Any = None) -> ForeignArray:
    """An array of NumPy, CuPy, PyTorch, JAX or any library with DLPack, as memory that this package can copy and pass on. Nothing is
    copied; the owner keeps the memory until the result is dropped. stream: the one on which the array will be used."""
    if not hasattr(source, "__dlpack__"):
        raise InvalidError("%s has no __dlpack__()" % type(source).__name__)
    options: Dict[str, Any] = {}
    kind = int(source.__dlpack_device__()[0])
    _dlpack.check_device(kind)
    if kind == _dlpack.CUDA:
        options["stream"] = stream_of(stream) or _cuda.LEGACY
    try:
        capsule = source.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # of a producer before DLPack 1.0
        capsule = source.__dlpack__(**options)
    result = ForeignArray(_dlpack.take(capsule))
    if stream is not None:
        result.stream = stream
    return result
