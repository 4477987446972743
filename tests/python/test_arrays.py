# SPDX-License-Identifier: Apache-2.0
"""Zero-copy exchange: the memory is the same on both sides, and stays as long as either side uses it."""
import ctypes
import gc
import sys

import pytest

import gpumem
from gpumem import _dlpack

MIB = 1 << 20


def test_numpy_sees_the_memory(session, on_host, numpy):
    buffer = session.alloc(MIB)
    array = numpy.asarray(buffer.view("float32", (256, 1024)))
    assert array.shape == (256, 1024) and array.dtype == numpy.float32
    assert array.__array_interface__["data"][0] == buffer.ptr
    array[1, 1] = 7
    assert buffer.view("float32", (256, 1024)).numpy()[1, 1] == 7
    for dtype in ("int8", "uint16", "int64", "float16", "float64", "complex64", "complex128", "bool"):
        assert buffer.view(dtype).numpy().dtype == numpy.dtype(dtype)
        assert buffer.view(numpy.dtype(dtype)).dtype == buffer.view(numpy.dtype(dtype).type).dtype == dtype
    with pytest.raises(gpumem.UnsupportedError):
        buffer.view("bfloat16").numpy()
    assert buffer[5:5].numpy().size == 0


def test_an_array_outlives_everything(leaks_nothing, on_host, numpy):
    with gpumem.Session() as session:
        with session.alloc(MIB) as buffer:
            array, view = buffer.view("int32").numpy(), buffer.memoryview()
            tensor = numpy.from_dlpack(buffer.view("int32"))
        array[:] = range(MIB // 4)
        assert session.stats().in_use == MIB and buffer.closed
    with pytest.raises(gpumem.ClosedError):
        buffer.numpy()
    # The session has been closed, and the memory is still there for its arrays.
    assert tensor[1000] == 1000 and view[4000:4004] == (1000).to_bytes(4, sys.byteorder)
    part = array[10:20]
    del array, view, tensor
    gc.collect()
    assert list(part) == list(range(10, 20))


def test_the_session_ends_with_the_last_array(on_host, numpy):
    ended = []
    session = gpumem.Session()
    library, pointer = session._core.library, session._core.pointer
    import weakref

    weakref.finalize(session._core, ended.append, 1)
    array = session.alloc(MIB).numpy()
    session.close()
    assert not ended
    array[:] = 1
    del array
    assert ended and library and pointer


def test_a_memoryview(session, on_host):
    buffer = session.alloc(MIB)
    view = buffer.view("uint16", (4, 2)).memoryview()
    view[1, 1] = 513
    assert view.shape == (4, 2) and buffer.read(2, 6) == (513).to_bytes(2, sys.byteorder)
    with pytest.raises(gpumem.UnsupportedError):
        buffer.view("bfloat16").memoryview()


@pytest.mark.since(3, 12)
def test_the_buffer_protocol(session, on_host):
    buffer = session.alloc(MIB)
    memoryview(buffer)[:5] = b"hello"
    assert bytes(buffer[:5]) == b"hello"


def test_an_exported_buffer_does_not_move(session, on_host):
    buffer = session.alloc(2 * MIB, max_size=16 * MIB)
    view = buffer.memoryview()
    assert buffer.resize(8 * MIB) is False
    for size in (MIB, 64 * MIB):
        with pytest.raises(gpumem.ExportedError) as raised:
            buffer.resize(size)
        assert isinstance(raised.value, BufferError)
    view.release()
    del view
    buffer.resize(MIB)


def test_a_read_only_array(session, on_host, numpy):
    token = session.alloc(MIB).share(read_only=True)
    kept = session.alloc(MIB)
    token = kept.share(read_only=True)
    with gpumem.Session() as other:
        reader = other.open(token)
        assert reader.read_only and not reader.numpy().flags.writeable and reader.memoryview().readonly
        with pytest.raises(BufferError):
            reader.__dlpack__()
        assert reader.__dlpack__(max_version=(1, 0))


def test_numpy_takes_dlpack(session, on_host, numpy):
    source = session.alloc(MIB).view("float32", (4, 8))
    array = numpy.from_dlpack(source)  # NumPy 1 makes it read-only
    source.numpy()[:] = 5
    assert array.shape == (4, 8) and array.sum() == 160
    assert source.__dlpack_device__() == (1, 0)


def test_dlpack_of_others(numpy):
    array = numpy.arange(12, dtype="int64").reshape(3, 4)
    before = sys.getrefcount(array)
    taken = gpumem.from_dlpack(array)
    assert taken.shape == (3, 4) and taken.dtype == "int64" and not taken.on_gpu
    assert taken.ptr == array.__array_interface__["data"][0]
    taken.numpy()[0, 0] = 99
    assert array[0, 0] == 99
    again = numpy.from_dlpack(taken)
    taken.close()
    with pytest.raises(gpumem.ClosedError):
        taken.ptr
    array[0, 1] = 98
    assert again[0, 1] == 98
    del again, taken
    gc.collect()
    assert sys.getrefcount(array) == before
    with pytest.raises(gpumem.UnsupportedError, match="contiguous"):
        gpumem.from_dlpack(array.T)
    with pytest.raises(gpumem.InvalidError):
        gpumem.from_dlpack(3)


def test_a_capsule_that_nobody_takes_is_freed(session):
    before = len(_dlpack._live)
    for version in (None, (1, 0)):
        capsule = session.alloc(MIB).view("float32").__dlpack__(max_version=version)
        gc.collect()
        assert session.stats().in_use == MIB
        del capsule
        gc.collect()
        assert session.stats().in_use == 0
    assert len(_dlpack._live) == before


def test_a_capsule_that_goes_with_an_exception(session):
    """C code that fails drops what it has while the exception is set, as list() does here with what it has iterated over."""
    before = len(_dlpack._live)

    class Fails:
        def __init__(self):
            self.left = 1

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise KeyError("the program's own")
            self.left = 0
            return session.alloc(MIB).__dlpack__()

    with pytest.raises(KeyError, match="the program's own"):
        list(Fails())
    gc.collect()
    assert session.stats().in_use == 0 and len(_dlpack._live) == before


def test_memory_of_other_makers_is_refused():
    class Foreign:
        def __init__(self, kind):
            self.kind = kind

        def __dlpack_device__(self):
            return (self.kind, 0)

        def __dlpack__(self, **options):
            raise AssertionError("nobody may ask for it")

    for kind, name in ((10, "AMD"), (8, "Metal"), (99, "kind 99")):
        with pytest.raises(gpumem.UnsupportedError, match=name):
            gpumem.from_dlpack(Foreign(kind))


def test_a_capsule_of_other_makers_is_left_alone(session):
    capsule = session.alloc(MIB).__dlpack__()
    address = _dlpack._capsule_pointer(capsule, b"dltensor")
    _dlpack._Managed.from_address(address).tensor.device.type = 10
    with pytest.raises(gpumem.UnsupportedError, match="AMD"):
        _dlpack.take(capsule)
    assert _dlpack._capsule_is(capsule, b"dltensor")


def test_a_capsule_is_taken_once(session):
    gc.collect()
    buffer, before = session.alloc(MIB), len(_dlpack._live)
    for version in (None, (1, 0)):
        capsule = buffer.__dlpack__(max_version=version)
        tensor = _dlpack.take(capsule)
        assert tensor.pointer == buffer.ptr and tensor.shape == (MIB,) and tensor.dtype == "uint8"
        with pytest.raises(gpumem.InvalidError):
            _dlpack.take(capsule)
        del capsule
        assert len(_dlpack._live) == before + 1
        tensor.delete()
        tensor.delete()
        assert len(_dlpack._live) == before


def test_a_deleter_from_another_thread(session):
    import threading

    tensor = _dlpack.take(session.alloc(MIB).__dlpack__())
    thread = threading.Thread(target=tensor.delete)
    thread.start()
    thread.join()
    assert session.stats().in_use == 0


def test_dlpack_refuses_another_device_and_a_copy(session):
    buffer = session.alloc(MIB)
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(10, 0))
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    buffer.__dlpack__(dl_device=buffer.__dlpack_device__(), copy=False)


def test_host_memory_has_no_cuda_array_interface(session, on_host):
    assert not hasattr(session.alloc(MIB), "__cuda_array_interface__")


def test_a_gpu_has_a_cuda_array_interface(session, on_gpu):
    buffer = session.alloc(MIB)
    view = buffer.view("float32", (16, 4))
    interface = view.__cuda_array_interface__
    assert interface["version"] == 3 and interface["shape"] == (16, 4) and interface["typestr"] == "<f4"
    assert interface["data"] == (buffer.ptr, False) and interface["stream"] is None
    buffer.stream = 0
    assert view.__cuda_array_interface__["stream"] == 1
    assert buffer.__dlpack_device__()[0] == 2
    with pytest.raises(gpumem.UnsupportedError, match="read"):
        buffer.memoryview()
    with pytest.raises(gpumem.UnsupportedError):
        buffer.numpy()


def test_what_has_the_interface_keeps_the_memory(session, on_gpu):
    buffer = session.alloc(MIB)
    view = buffer.view("float32")
    interface = view.__cuda_array_interface__
    buffer.close()
    with pytest.raises(gpumem.ClosedError):
        view.ptr
    assert interface and session.stats().in_use == MIB  # a consumer has the view
    del view
    assert session.stats().in_use == 0


def test_arrays_of_a_buffer_itself_are_forgotten(session, on_gpu):
    buffer = session.alloc(8 * MIB)
    assert buffer.__cuda_array_interface__["data"][0] == buffer.ptr
    with pytest.raises(gpumem.ExportedError, match="forget_arrays"):
        buffer.resize(4 * MIB)
    buffer.forget_arrays()
    buffer.resize(4 * MIB)
    assert buffer.__cuda_array_interface__["shape"] == (4 * MIB,)
    buffer.close()
    assert session.stats().in_use == 4 * MIB  # a consumer may have it
    buffer.forget_arrays()
    assert session.stats().in_use == 0


def test_streams_are_ordered(session, on_gpu):
    cuda = gpumem._cuda.driver()
    one, two = ctypes.c_void_p(), ctypes.c_void_p()
    with gpumem._cuda._Context(0):
        assert cuda.cuStreamCreate(ctypes.byref(one), 0) == 0 and cuda.cuStreamCreate(ctypes.byref(two), 0) == 0
    buffer = session.alloc(MIB)
    buffer.stream = one.value
    orders = []
    real, gpumem._cuda.order = gpumem._cuda.order, lambda *words: (orders.append(words), real(*words))
    try:
        buffer.__dlpack__(stream=two.value)
        buffer.__dlpack__(stream=-1)
        buffer.__dlpack__()
    finally:
        gpumem._cuda.order = real
    assert orders == [(0, one.value, two.value), (0, one.value, 1)]
    assert buffer.__cuda_array_interface__["stream"] == one.value


def test_a_copy_from_a_gpu(session, on_gpu):
    source, target = session.alloc(MIB), session.malloc(MIB)
    source.write(b"there")
    assert target.copy_from(source[:5], 3) == 5
    assert target.read(5, 3) == b"there"
    assert target.copy_from(b"host") == 4 and target.read(4) == b"host"
