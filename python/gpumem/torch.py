# SPDX-License-Identifier: Apache-2.0
"""PyTorch on memory from gpumemd, in one line:

    import gpumem.torch; gpumem.torch.enable()

mode        who serves tensors            what you get                               what you give up
"arena"     gpumemd's heap, directly      quickest, best packed; memory goes back    torch.cuda.memory_stats(), compilation with
                                          to others as soon as it is free            mode="reduce-overhead", sharing tensors
"segments"  PyTorch's own cache, on       every feature of PyTorch                   speed and packing are PyTorch's; the program is
            memory from gpumemd                                                      started with gpumem-run
"""

import ctypes
import functools
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _capi, _captures, _cuda, default_session
from ._core import HOST
from ._emptier import Emptier
from ._region import Region
from ._session import Session
from .errors import BusyError, GpumemError, InvalidError, LibraryNotFoundError, UnsupportedError, needs

PLUGIN = "libgpumem-torch.so"

_lock = threading.RLock()
_mode: Optional[str] = None
_session: Optional[Session] = None
_plugin: Optional[ctypes.CDLL] = None
_plugin_path = ""
_kept: List[Any] = []  # what PyTorch uses until the process ends


def _torch() -> Any:
    torch = needs("gpumem.torch", "torch")
    if not hasattr(getattr(torch.cuda, "memory", None), "CUDAPluggableAllocator"):
        raise UnsupportedError("PyTorch %s is too old for this: version 2.1 or later is needed" % torch.__version__)
    if not torch.cuda.is_available():
        raise UnsupportedError("PyTorch sees no GPU: torch.cuda.is_available() is False")
    return torch


def plugin_path() -> str:
    """Where libgpumem-torch.so is."""
    named = os.environ.get("GPUMEM_TORCH_LIBRARY")
    folders: List[Path] = []
    for folder in _capi.library_folders("python/.libs", "python"):
        folders += [folder / "gpumemd", folder]
    for path in [Path(named)] if named else [folder / PLUGIN for folder in folders]:
        if path.exists():
            return str(path)
    raise LibraryNotFoundError("gpumem.torch needs %s, which was not found beside the client library: install gpumemd with a C++ "
                               "compiler, or name the file in GPUMEM_TORCH_LIBRARY" % (named or PLUGIN))


def _device_numbers(session: Session) -> List[int]:
    """CUDA's numbers of devices, as the daemon's."""
    numbers = _cuda.numbers(session.devices)
    return [numbers.get(number, HOST) for number in range(max(numbers) + 1)]


def _lasting_session() -> Session:
    """The default session by another object, which the program cannot close: PyTorch goes on when it closes the default one. Nobody may
    listen for events here: the C library tells them to one listener of a session."""
    session = Session.__new__(Session)
    session._begin(default_session()._core_now())
    return session


def _load_plugin() -> Tuple[ctypes.CDLL, Session]:
    """The plug-in with its session, which lasts as long as the process: PyTorch frees tensors until its very end."""
    global _plugin, _plugin_path, _session
    with _lock:
        if _plugin is None or _session is None:
            path = plugin_path()
            _capi.library()
            session = _lasting_session()
            numbers = _device_numbers(session)
            plugin = ctypes.CDLL(path)
            plugin.gpumem_torch_setup.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
            plugin.gpumem_torch_failures.restype = ctypes.c_uint64
            plugin.gpumem_torch_region_set.argtypes = [ctypes.c_uint, ctypes.c_void_p, ctypes.c_int]
            plugin.gpumem_torch_region_enter.argtypes = [ctypes.c_uint]
            plugin.gpumem_torch_region_enter.restype = ctypes.c_uint
            plugin.gpumem_torch_graph_gone.argtypes = [ctypes.c_uint64]
            plugin.gpumem_torch_graph_gone.restype = None
            core = session._core_now()
            if plugin.gpumem_torch_setup(core.pointer, (ctypes.c_uint32 * len(numbers))(*numbers), len(numbers)):
                raise UnsupportedError("this process sees too many GPUs")
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
            _kept.append(core)
            _plugin, _plugin_path, _session = plugin, path, session
        _captures.announce()
        _follow_graphs(sys.modules.get("torch"), _session)
        return _plugin, _session


def _graph_now(torch: Any, session: Session) -> int:
    """The number of the graph that PyTorch is capturing on this thread's stream; 0: none."""
    core, number = session._core_now(), ctypes.c_uint64()
    device = _cuda.numbers(session.devices).get(torch.cuda.current_device())
    if device is not None:
        core.library.gpumem_graph_of(core.pointer, device, torch.cuda.current_stream().cuda_stream, ctypes.byref(number))
    return number.value


def _graph_gone(core: Any, number: int) -> None:
    if os.getpid() == core.pid:
        core.library.gpumem_graph_gone(core.pointer, number)  # which may keep nothing for it
        if _plugin is not None:
            _plugin.gpumem_torch_graph_gone(number)  # the same for regions


def _follow_graphs(torch: Any, session: Session) -> None:
    """Memory that a graph uses stays in place, also when it was freed, until the library hears that the graph is gone."""
    graph = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    if graph is None or getattr(graph.capture_begin, "_gpumem_follows", False):
        return
    begin, end, reset = graph.capture_begin, graph.capture_end, graph.reset

    @functools.wraps(begin)
    def capture_begin(self: Any, *arguments: Any, **named: Any) -> Any:
        _graph_now(torch, session)  # the library gets ready for the device, which it must not do during a capture
        result = begin(self, *arguments, **named)
        number = _graph_now(torch, session)
        if number:
            self._gpumem_gone = weakref.finalize(self, _graph_gone, session._core_now(), number)
            self._gpumem_gone.atexit = False
        return result

    @functools.wraps(end)
    def capture_end(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return end(self, *arguments, **named)
        finally:
            _graph_now(torch, session)  # the library learns that the stream is not being captured any more

    @functools.wraps(reset)
    def reset_and_forget(self: Any, *arguments: Any, **named: Any) -> Any:
        result = reset(self, *arguments, **named)
        if getattr(self, "_gpumem_gone", None) is not None:
            self._gpumem_gone()
        return result

    setattr(capture_begin, "_gpumem_follows", True)
    graph.capture_begin, graph.capture_end, graph.reset = capture_begin, capture_end, reset_and_forget


def _address(plugin: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(plugin, name), ctypes.c_void_p).value or 0


def _under_gpumem_run() -> bool:
    if "GPUMEM_RUN" not in os.environ:
        return False
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any("libgpumem-preload" in line for line in maps)


def enable(mode: Optional[str] = None) -> str:
    """Has PyTorch take its GPU memory from gpumemd, for the rest of the process. To be called before the first tensor is made on a GPU.
    Without a mode: "segments" if the program was started by gpumem-run, else "arena". Returns the mode."""
    global _mode
    torch = _torch()
    if mode is None:
        mode = "segments" if _under_gpumem_run() else "arena"
    if mode not in ("arena", "segments"):
        raise InvalidError('the mode is "arena" or "segments", not %r' % (mode,))
    with _lock:
        if _mode is not None:
            if _mode != mode:
                raise BusyError("PyTorch is already on gpumemd in mode %r, which holds for the whole process" % _mode)
            return mode
        if mode == "segments":
            _enable_segments(torch)
        else:
            _enable_arena(torch)
        _mode = mode
    return mode


def _enable_arena(torch: Any) -> None:
    plugin, _ = _load_plugin()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_plugin_path, "gpumem_torch_alloc", "gpumem_torch_free")
    inner = allocator.allocator()
    if hasattr(inner, "set_record_stream_fn"):
        inner.set_record_stream_fn(_address(plugin, "gpumem_torch_record_stream"))
    else:
        plugin.gpumem_torch_any_stream()  # it does not tell allocators about record_stream()
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise BusyError("PyTorch has allocated GPU memory already: call gpumem.torch.enable() before the first tensor is made on a "
                        "GPU (%s)" % str(error).splitlines()[0]) from None
    _kept.append(allocator)


def _enable_segments(torch: Any) -> None:
    if not _under_gpumem_run():
        words = " ".join([os.path.basename(sys.executable or "python3")] + (sys.argv if sys.argv and sys.argv[0] else ["PROGRAM.py"]))
        raise UnsupportedError("PyTorch's own allocator is reached from below, by gpumem-run. Start the program as: gpumem-run -- " + words)
    fd = _wanted_below()
    _kept.append(Emptier(torch.cuda.empty_cache, lambda: _read_wanted(fd), "gpumem-torch"))


def _wanted_below() -> int:
    """Where to wait until memory is wanted of what PyTorch has. The session that has it is the preloaded library's, so no other one hears."""
    try:
        wanted = ctypes.CDLL(None, use_errno=True).gpumem_preload_wanted
    except AttributeError:
        raise UnsupportedError("the library that gpumem-run has preloaded is older than this package: install both from one version") from None
    fd: int = wanted()
    if fd < 0:
        raise GpumemError("no descriptor to wait at: %s" % os.strerror(ctypes.get_errno()))
    return fd


def _read_wanted(fd: int) -> None:
    if not os.read(fd, 8):
        raise BrokenPipeError("the program has closed the descriptor that the preloaded library writes to")


def mode() -> Optional[str]:
    """The mode that is enabled, or None."""
    return _mode


def memory_stats(device: Optional[int] = None) -> Dict[str, Any]:
    """How this process uses a GPU: gpumemd's figures under their own names, in both modes. device is CUDA's number."""
    session = _session or default_session()
    number = _daemon_number(session, device)
    figures: Dict[str, Any] = dict(session.stats(number)._asdict())
    info, pressure = session.device(number), session.pressure(number)
    figures.update(device=info.name, total=info.total, capacity=info.capacity, available=info.available, room=session.room(number),
                   pressure=pressure.value, level=pressure.level, mode=_mode,
                   failures=_plugin.gpumem_torch_failures() if _plugin else 0)
    return figures


def _daemon_number(session: Session, device: Optional[int]) -> int:
    numbers = _device_numbers(session)
    if device is None:
        device = needs("gpumem.torch", "torch").cuda.current_device()
    if not 0 <= device < len(numbers) or numbers[device] == HOST:
        raise UnsupportedError("gpumemd does not serve GPU %d" % device)
    return numbers[device]


def memory_summary(device: Optional[int] = None) -> str:
    """The state for people: what this process and the others have of the GPU."""
    figures = memory_stats(device)

    def size(value: float) -> str:
        return "%.1f MiB" % (value / (1 << 20)) if value < 1 << 30 else "%.2f GiB" % (value / (1 << 30))

    rows = [("PyTorch", {"arena": "its tensors are in gpumemd's heap", "segments": "its cache is on memory of gpumemd",
                         None: "not on gpumemd: gpumem.torch.enable() was not called"}[figures["mode"]])]
    if figures["mode"] != "segments":
        rows += [("in use", size(figures["in_use"])), ("peak", size(figures["peak"])), ("cached", size(figures["pooled"])),
                 ("slack", size(figures["slack"])), ("held", size(figures["allocated"])),
                 ("tensors", str(figures["active_buffers"])), ("without a message", "%.1f%%" % (100 * figures["hit_rate"])),
                 ("refused", str(figures["failures"]))]
    rows += [("could still have", size(figures["room"])),
             ("the GPU", "%s, %s of %s free, pressure %s (%.2f)" % (figures["device"], size(figures["available"]),
                                                                    size(figures["capacity"]), figures["level"],
                                                                    figures["pressure"]))]
    return "\n".join("%-18s %s" % row for row in rows)


# ---- regions

class _Made(NamedTuple):
    """A region as PyTorch uses it."""

    slot: int
    device: int  # CUDA's number
    region: Region
    pool: Any


_regions: Dict[str, _Made] = {}
_slots = set(range(16))


def _make_region(torch: Any, tag: str, max_size: Optional[int], device: int) -> _Made:
    plugin, session = _load_plugin()
    number = _daemon_number(session, device)
    if not _slots:
        raise UnsupportedError("a process has at most 16 regions")
    if _mode != "arena" and not hasattr(torch.cuda, "MemPool"):
        raise UnsupportedError("PyTorch %s has no torch.cuda.MemPool: regions need version 2.5 or later, or the mode arena" %
                               torch.__version__)
    region = session.region(tag, max_size or session.device(number).capacity, number)
    slot = _slots.pop()
    plugin.gpumem_torch_region_set(slot, region._hold_now().handle, device)
    pool = None
    if _mode != "arena":
        allocator = torch.cuda.memory.CUDAPluggableAllocator(_plugin_path, "gpumem_torch_region_alloc_%d" % slot, "gpumem_torch_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        _kept.append((allocator, pool))
    # Tensors may use it until the process ends, also when the session or the region is closed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(region._hold_now()))
    return _Made(slot, device, region, pool)


def _session_of(tag: str) -> Optional[Session]:
    """The session of a region that region() has made."""
    return _session if tag in _regions else None


@contextmanager
def region(tag: str, max_size: Optional[int] = None, device: Optional[int] = None) -> Iterator[Region]:
    """Tensors that this thread makes on the GPU meanwhile are in the region with this tag, which gpumem.pause(tag) gives to others and
    gpumem.resume(tag) gets back at the same addresses. The region is made at first use, on a GPU (CUDA's number; default: the current
    one) and with max_size bytes of addresses (default: as much as the GPU has); later uses go on with it. Tensors on other GPUs are
    not in it. Nothing may use its tensors while it is paused."""
    torch = _torch()
    with _lock:
        if tag not in _regions:
            _regions[tag] = _make_region(torch, tag, max_size, torch.cuda.current_device() if device is None else device)
        made = _regions[tag]
    if device is not None and device != made.device:
        raise InvalidError("the region %r is on GPU %d, not on GPU %d: a region is on one GPU, so give the other one a tag of its own" %
                           (tag, made.device, device))
    if made.pool is not None:
        with torch.cuda.use_mem_pool(made.pool, made.device):
            yield made.region
        return
    assert _plugin is not None
    before = _plugin.gpumem_torch_region_enter(made.slot)
    try:
        yield made.region
    finally:
        _plugin.gpumem_torch_region_enter(before)


__all__ = ["GpumemError", "enable", "memory_stats", "memory_summary", "mode", "plugin_path", "region"]
