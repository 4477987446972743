# SPDX-License-Identifier: Apache-2.0
"""gpumem.cupy, gpumem.numba and gpumem.rmm without these frameworks: as much of each as enable() touches stands in for it, and the memory is
that of fake GPUs. tests/gpu/python_cupy.py has the real ones."""
import ctypes
import gc
import sys
import threading
import types

import pytest

import gpumem
from gpumem import _captures, _cuda

MIB = 1 << 20
TOO_MUCH = 1 << 44


@pytest.fixture
def in_use(on_gpu):
    """How many bytes of memory the process has."""
    gc.collect()
    session = gpumem.default_session()
    before = session.stats().in_use
    return lambda: session.stats().in_use - before


@pytest.fixture
def another_gpu(monkeypatch):
    """The daemon serves one more GPU, which this process does not see."""
    devices = gpumem.Session.devices.fget
    monkeypatch.setattr(gpumem.Session, "devices", property(
        lambda session: [info._replace(number=99, uuid=b"another machine!") for info in devices(session)[:1]] + devices(session)))


# ---- CuPy


class CupyMemory:
    def __init__(self, ptr, size, owner, device):
        self.ptr, self.size, self.owner, self.device = ptr, size, owner, device


class CupyPool:
    """CuPy's pool, as far as it asks for memory, keeps it, and tries again."""

    def __init__(self, allocate):
        self._allocate, self.free, self.freed = allocate, [], threading.Event()

    def malloc(self, size):
        try:
            return self._allocate(size)
        except CudaRuntimeError:
            self.free_all_blocks()
            return self._allocate(size)

    def free_all_blocks(self):
        self.free.clear()
        self.freed.set()


class CudaRuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__("cudaErrorMemoryAllocation" if status == 2 else status)


@pytest.fixture
def cupy(monkeypatch):
    import gpumem.cupy

    cupy, allocators = types.ModuleType("cupy"), []
    cupy.allocators = allocators
    cupy.cuda = types.SimpleNamespace(
        MemoryPool=CupyPool, UnownedMemory=CupyMemory, MemoryPointer=lambda memory, offset: memory, set_allocator=allocators.append,
        get_current_stream=lambda: types.SimpleNamespace(ptr=0),
        runtime=types.SimpleNamespace(getDevice=lambda: 0, CUDARuntimeError=CudaRuntimeError))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gpumem.cupy, "_pool", None)
    return cupy


def test_cupy_gets_its_memory_here(cupy, in_use, another_gpu):
    pool = gpumem.cupy.enable()
    assert gpumem.cupy.enable() is pool and cupy.allocators == [pool.malloc]
    memory = pool.malloc(4 * MIB)
    assert memory.ptr and (memory.size, memory.device) == (4 * MIB, 0) and in_use() == 4 * MIB
    del memory
    assert in_use() == 0
    empty = pool.malloc(0)
    assert empty.ptr and empty.size == 0


def test_cupy_tries_again_and_then_raises_its_own(cupy, in_use):
    pool = gpumem.cupy.enable()
    half = gpumem.default_session().room() * 6 // 10
    pool.free.append(pool.malloc(half))
    assert pool.malloc(half).size == half  # what it had cached went back
    with pytest.raises(CudaRuntimeError, match="cudaErrorMemoryAllocation") as raised:
        pool.malloc(TOO_MUCH)
    assert isinstance(raised.value.__cause__, gpumem.OutOfMemoryError)


def test_cupy_returns_what_it_has_cached_when_others_need_memory(cupy, monkeypatch, on_gpu):
    monkeypatch.setattr(_captures, "captured_by", set())
    heard, on_event = [], gpumem.Session.on_event

    def recorded(session, function, kinds=None):
        heard.append((function, kinds))
        return on_event(session, function, kinds)

    monkeypatch.setattr(gpumem.Session, "on_event", recorded)
    pool = gpumem.cupy.enable()
    ((function, kinds),) = heard
    assert sorted(kinds) == ["pressure", "reclaim"] and not pool.freed.is_set()
    function(types.SimpleNamespace(kind="pressure", level="high"))
    assert pool.freed.wait(30)


@pytest.mark.parametrize("by, emptied", [("torch", True), ("cupy", False), ("program", False)])
def test_the_pool_is_not_emptied_under_a_graph(cupy, monkeypatch, by, emptied, on_gpu):
    """A graph uses memory that looks free to the pool."""
    monkeypatch.setattr(_captures, "captured_by", set())
    pool = gpumem.cupy.enable()
    _captures._Capture(by).end()
    gpumem.cupy._empty(pool)
    assert pool.freed.is_set() is emptied


def test_a_gpu_of_cupys_that_gpumemd_does_not_serve(cupy, on_gpu):
    pool = gpumem.cupy.enable()
    cupy.cuda.runtime.getDevice = lambda: 5
    with pytest.raises(gpumem.UnsupportedError, match="GPU 5"):
        pool.malloc(MIB)


def test_cupy_on_a_daemon_without_gpus(cupy, on_host):
    with pytest.raises(gpumem.UnsupportedError, match="serves no GPU"):
        gpumem.cupy.enable()


# ---- Numba


@pytest.fixture
def numba(monkeypatch):
    class HostOnly:
        def __init__(self, context):
            self.context, self.allocations, self.initialized = context, {}, False

        def initialize(self):
            self.initialized = True

    class MemoryPointer:
        def __init__(self, context, pointer, size, finalizer):
            self.context, self.pointer, self.size, self.finalizer = context, pointer, size, finalizer

    class MemoryInfo:
        def __init__(self, free, total):
            self.free, self.total = free, total

    numba, managers = types.ModuleType("numba"), []
    numba.config = types.SimpleNamespace()
    numba.managers = managers
    numba.cuda = types.SimpleNamespace(HostOnlyCUDAMemoryManager=HostOnly, MemoryPointer=MemoryPointer, MemoryInfo=MemoryInfo,
                                       set_memory_manager=managers.append)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.delitem(sys.modules, "numba_cuda", raising=False)
    return numba


def manager_of(kind, device=0):
    manager = kind(types.SimpleNamespace(device=types.SimpleNamespace(id=device)))
    manager.initialize()
    return manager


def test_numba_gets_its_memory_here(numba, in_use, another_gpu):
    import gpumem.numba

    kind = gpumem.numba.enable()
    assert numba.managers == [kind]
    manager = manager_of(kind)
    assert manager.initialized and manager.interface_version == 1
    memory = manager.memalloc(4 * MIB)
    assert isinstance(memory.pointer, ctypes.c_uint64) and memory.pointer.value and memory.size == 4 * MIB and in_use() == 4 * MIB
    info, session = manager.get_memory_info(), gpumem.default_session()
    assert (info.free, info.total) == (session.room(0), session.device(0).capacity)
    memory.finalizer()
    memory.finalizer()
    assert in_use() == 0 and manager.allocations == {}


def test_numba_finds_its_manager_by_the_environment(numba, in_use):
    import gpumem.numba

    assert manager_of(gpumem.numba._numba_memory_manager).memalloc(MIB).size == MIB
    with pytest.raises(AttributeError):
        gpumem.numba._another_name


def test_numba_on_nvidias_bindings_has_addresses_of_theirs(numba, in_use, monkeypatch):
    import gpumem.numba

    bindings = types.ModuleType("cuda.bindings.driver")
    bindings.CUdeviceptr = lambda address: ("CUdeviceptr", address)
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings)
    numba.config.CUDA_USE_NVIDIA_BINDING = True
    memory = manager_of(gpumem.numba.enable()).memalloc(MIB)
    assert memory.pointer[0] == "CUdeviceptr" and memory.pointer[1]
    memory.finalizer()


def test_what_numba_cannot_have(numba, in_use):
    import gpumem.numba

    kind = gpumem.numba.enable()
    with pytest.raises(MemoryError):
        manager_of(kind).memalloc(TOO_MUCH)
    with pytest.raises(gpumem.UnsupportedError, match="Buffer.share"):
        manager_of(kind).get_ipc_handle(None)
    with pytest.raises(gpumem.UnsupportedError, match="GPU 3"):
        manager_of(kind, 3).memalloc(MIB)
    assert in_use() == 0


# ---- RMM


@pytest.fixture
def rmm(monkeypatch):
    rmm, resources = types.ModuleType("rmm"), {}
    rmm.resources = resources
    rmm.mr = types.SimpleNamespace(CallbackMemoryResource=lambda allocate, deallocate: (allocate, deallocate),
                                   set_per_device_resource=resources.__setitem__)
    monkeypatch.setitem(sys.modules, "rmm", rmm)
    return rmm


def test_rmm_gets_its_memory_here(rmm, in_use, another_gpu):
    import gpumem.rmm

    resource = gpumem.rmm.enable()
    assert rmm.resources == {0: resource}
    allocate, deallocate = resource
    first, second = allocate(4 * MIB), allocate(MIB, types.SimpleNamespace())
    assert first and second and first != second and in_use() == 5 * MIB
    deallocate(first, 4 * MIB, types.SimpleNamespace())
    deallocate(second, MIB)
    assert in_use() == 0
    with pytest.raises(MemoryError):  # which RMM makes its own
        allocate(TOO_MUCH)
    with pytest.raises(gpumem.UnsupportedError, match="GPU 7"):
        gpumem.rmm.enable(7)


# ---- all of them


def test_a_session_that_the_program_has_closed_is_made_again(cupy, numba, rmm, on_gpu):
    import gpumem.numba
    import gpumem.rmm

    pool, manager, (allocate, deallocate) = gpumem.cupy.enable(), manager_of(gpumem.numba.enable()), gpumem.rmm.enable()
    before = pool.malloc(MIB)
    gpumem.default_session().close()
    after, memory, pointer = pool.malloc(MIB), manager.memalloc(MIB), allocate(MIB)
    assert before.ptr and after.ptr and gpumem.default_session().stats().in_use == 3 * MIB
    assert manager.get_memory_info().total == gpumem.default_session().device(0).capacity
    memory.finalizer()
    deallocate(pointer, MIB)


def test_a_new_session_says_when_memory_is_wanted(cupy, monkeypatch, on_gpu):
    heard, on_event = [], gpumem.Session.on_event
    monkeypatch.setattr(gpumem.Session, "on_event", lambda session, function, kinds=None: (heard.append(session), on_event(
        session, function, kinds))[1])
    pool = gpumem.cupy.enable()
    pool.malloc(MIB)
    gpumem.default_session().close()
    pool.malloc(MIB)
    pool.malloc(MIB)
    assert len(heard) == 2 and heard[0].closed and heard[1] is gpumem.default_session()


def test_cudas_numbers_are_those_of_gpus_that_the_process_sees(session, another_gpu, on_gpu):
    assert len(session.devices) == 2 and _cuda.numbers(session.devices) == {0: 0}
    with pytest.raises(gpumem.UnsupportedError, match="CUDA_VISIBLE_DEVICES"):
        _cuda.numbers(session.devices[:1])


@pytest.mark.parametrize("name", ["cupy", "numba", "rmm"])
def test_without_a_daemon(name, request, monkeypatch, tmp_path):
    import importlib

    request.getfixturevalue(name)
    module = importlib.import_module("gpumem." + name)
    monkeypatch.setattr(gpumem, "_default", None)
    monkeypatch.setenv("GPUMEM_SOCKET", str(tmp_path / "socket"))
    with pytest.raises(gpumem.DisconnectedError, match="cannot reach gpumemd"):
        made = module.enable()
        manager_of(made)  # Numba needs the daemon when it uses the GPU
