# SPDX-License-Identifier: Apache-2.0
"""A program that uses all of the package. test_types.py has mypy check it as it checks the programs of users, where nothing may have an
unknown type, and runs it on host memory.

    python3 every_call.py MODEL.safetensors
"""
# mypy: disallow-any-expr
import asyncio
import os
import sys
from typing import Dict, List, Optional, Tuple

import gpumem
import gpumem.cupy
import gpumem.numba
import gpumem.rmm
import gpumem.torch

MIB = 1 << 20


def figures(session: gpumem.Session) -> None:
    info: gpumem.DeviceInfo = session.device()
    assert session.device_count == len(session.devices) and session.device(gpumem.HOST).number == gpumem.HOST
    words: List[str] = [info.name, info.backend, info.transport, info.pci, info.uuid.hex()]
    sizes: List[int] = [info.number, info.total, info.capacity, info.available, session.room(), session.trim()]
    assert len(words) + len(sizes) == 11 and not info.on_gpu
    pressure: gpumem.Pressure = session.pressure("host")
    assert 0 <= pressure.value <= 1 and pressure.level in ("low", "medium", "high", "critical")
    stats: gpumem.Stats = session.stats()
    assert stats.in_use + stats.pooled + stats.slack <= stats.allocated + stats.peak
    assert stats.hits + stats.misses >= 0 and 0 <= stats.hit_rate <= 1
    assert stats.returns + stats.cpu_fallbacks + stats.active_buffers >= 0
    places: List[gpumem.Placement] = session.placements(MIB) + [session.place(MIB, at_worst="wait")]
    assert all(place.fit in ("now", "reclaim", "wait", "none") and place.room >= place.device and place.why is not None for place in places)


def parts(memory: gpumem.Memory) -> None:
    assert memory.write(b"12345678") == 8 and memory.read(4, 4) == bytearray(b"5678")
    view: gpumem.View = memory.view("uint16", (2, 2), offset=0)
    shape: Tuple[int, ...] = view.shape
    assert shape == (2, 2) and len(view) == 2 and view.dtype == "uint16" and view.nbytes == 8 and view.ptr == memory.ptr
    assert view.stream is None  # type: ignore[misc]  # of any framework
    assert view[1:].base is memory and not view.read_only and not view.closed and not view.on_gpu
    raw: memoryview = memory.memoryview()
    assert raw[0] == ord("1")
    assert memory.numpy()[1] == ord("2") and view.__array__().shape == shape  # type: ignore[misc]  # NumPy's own
    foreign: gpumem.ForeignArray = gpumem.from_dlpack(view)
    assert memory.copy_from(foreign, offset=8) == 8 and foreign.__dlpack_device__() == view.__dlpack_device__()
    foreign.close()
    memory.forget_arrays()


def buffers(session: gpumem.Session) -> None:
    def progress(done: int, total: int) -> None:
        assert done <= total

    with session.alloc(MIB, tag="all", wait=1, max_size=4 * MIB, type="weights", precision="bf16") as buffer:
        parts(buffer)
        assert buffer.load_file(__file__, size=100, progress=progress) == 100
        buffer.tag = "other"
        buffer.touch()
        moved: bool = buffer.resize(2 * MIB)
        buffer.set_policy(factor=1.5, step=MIB)
        assert not moved and not buffer.ensure(3 * MIB) and buffer.size <= buffer.max_size and buffer.tag == "other"
        assert buffer.device == 0 and buffer.backend == "host"
        token: str = buffer.share(read_only=True)
        with session.open(token) as opened:
            assert opened.read(1) == buffer.read(1)
        buffer.unshare()
        version: int = buffer.publish("every-call", metadata=b"about", replace=True)
        with session.attach("every-call", wait=1) as attached:
            assert attached.version == buffer.version == version and attached.metadata() == b"about"
        about: gpumem.Metadata = session.metadata("every-call")
        assert about.data == b"about" and about.version == version
        session.unpublish("every-call")
    with session.alloc(MIB, signals=True) as signalled:
        signalled.signal(1)
        signalled.wait(1)
        signalled.wait(1, timeout=60)
        assert not signalled.lost(1)
    with session.alloc(MIB, evictable=True) as evictable:
        where: str = evictable.pin(host_ok=True, wait=1)
        evictable.unpin()
        evictable.evict()
        assert where == "device" and evictable.location == "host"
    with gpumem.alloc(MIB, tag="default") as other:
        assert not other.closed
    assert session.empty((2, 3), "float32").shape == (2, 3)


def pieces(session: gpumem.Session) -> None:
    with session.malloc(MIB, tag="block", alignment=4096) as block:
        parts(block)
    with session.batch([4096, (8192, "second"), {"size": 4096, "tag": "third"}]) as batch:  # type: ignore[misc]  # the dict
        assert isinstance(batch, gpumem.Batch)
        second: gpumem.BatchEntry = batch[1]
        others: List[gpumem.BatchEntry] = batch[1:]
        assert second is others[0] and second.tag == "second" and len(batch) == 3 and not batch.closed
    made: gpumem.Region = session.region("every-call", 16 * MIB, initial=MIB)
    with made as region:
        piece: gpumem.Block = region.alloc(4096)
        region.pause(keep=True)
        assert region.stats().state == "paused" and region.tag == "every-call"
        region.resume(wait=1)
        session.pause("every-call")
        session.resume("every-call", wait=gpumem.FOREVER)
        stats: gpumem.RegionStats = session.region_stats("every-call")
        assert stats.allocations == 1 and stats.pauses == 2 and stats.max_size >= stats.held >= stats.in_use and stats.device == 0
        assert stats.peak + stats.needed + stats.kept >= 0
        piece.close()


def errors(session: gpumem.Session) -> None:
    known = (gpumem.BusyError, gpumem.CancelledError, gpumem.DeadlockError, gpumem.DeniedError, gpumem.DisconnectedError,
             gpumem.ForkedError, gpumem.HostMemoryError, gpumem.InvalidError, gpumem.LibraryNotFoundError, gpumem.LimitError,
             gpumem.ExportedError, gpumem.NoLoopError, gpumem.NotFoundError, gpumem.UnsupportedError, gpumem.WaitTimeoutError,
             gpumem.ClosedError)
    try:
        session.alloc(1 << 40)
    except known as error:
        raise AssertionError from error
    except gpumem.OutOfMemoryError as error:
        status: gpumem.Status = error.status
        assert status is gpumem.Status.NO_MEMORY and isinstance(error, gpumem.GpumemError)


def weights(model: str) -> None:
    version: int = gpumem.weights.load(model, name="every-call", replace=True, progress=lambda done, total: None)
    entries: List[gpumem.weights.Entry] = gpumem.weights.entries()
    assert [entry.version for entry in entries if entry.name == "every-call"] == [version]
    assert all(entry.tensors and entry.bytes and entry.device == 0 and entry.owner == os.getuid() and not entry.readers for entry in entries)
    attached: gpumem.weights.Weights = gpumem.weights.attach("every-call", version=version, wait=1)
    with attached as tensors:
        names: List[str] = list(tensors)
        one: gpumem.View = tensors.view(names[0])
        types: Dict[str, str] = tensors.dtypes
        assert len(types) == len(tensors) and tensors.version == version and tensors.device == 0 and one.nbytes
    gpumem.weights.remove("every-call")


async def waiting(model: str) -> None:
    async with gpumem.AsyncSession(name="every-call", timeout=10, away=1, peers=True, track="all") as session:
        buffer: gpumem.Buffer = await session.alloc(MIB, wait=1)
        block: gpumem.Block = await session.malloc(4096)
        region: gpumem.Region = session.region("every-call", 8 * MIB)
        await session.pause(region.tag, keep=False)
        await session.resume(region.tag, wait=1)
        where: str = await session.pin(await session.alloc(MIB, evictable=True), host_ok=True, wait=1)
        version: int = await session.load(model, "every-call", replace=True)
        attached: gpumem.Buffer = await session.attach("every-call", wait=gpumem.FOREVER)
        assert where == "device" and attached.version == version
        session.unpublish("every-call")
        async with session.events(["pressure", "limits"]) as events:
            reader: gpumem.EventIterator = events
            await reader.aclose()
            async for event in events:
                heard(event)
        assert buffer.size > block.size


def heard(event: gpumem.Event) -> None:
    level: str = event.level
    amount: Optional[int] = event.bytes
    print(event.kind, event.device, level, event.pressure, amount, event.urgent, event.text)


def listening(session: gpumem.Session) -> None:
    subscription: gpumem.Subscription = session.on_event(heard, ["goodbye"])
    subscription.close()
    for asked in (session.on_pressure(heard), session.on_reclaim(heard), session.on_limits(heard)):
        with asked as one:
            assert one is asked


def frameworks() -> None:
    """Not run here: these need a GPU."""
    mode: str = gpumem.torch.enable("arena")
    with gpumem.torch.region("kv", 64 * MIB, 0) as region:
        gpumem.pause(region.tag, keep=False)
        gpumem.resume(region.tag, wait=60)
    print(len(gpumem.torch.memory_stats(0)))  # type: ignore[misc]  # numbers and names
    print(mode == gpumem.torch.mode(), gpumem.torch.memory_summary(), gpumem.torch.plugin_path())
    gpumem.cupy.enable()
    gpumem.numba.enable()
    gpumem.rmm.enable(0)


def main() -> None:
    with gpumem.Session(os.environ.get("GPUMEM_SOCKET"), name="every-call") as session:
        figures(session)
        buffers(session)
        pieces(session)
        errors(session)
        listening(session)
    assert session.closed
    with gpumem.capturing():
        pass
    weights(sys.argv[1])
    asyncio.run(waiting(sys.argv[1]))
    with gpumem.default_session():
        print("all of gpumem", gpumem.library_version())


if __name__ == "__main__":
    main()
