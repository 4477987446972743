# SPDX-License-Identifier: Apache-2.0
"""asyncio and events."""
import asyncio
import os
import subprocess
import threading

import pytest

import gpumem

MIB = 1 << 20


def test_alloc_is_awaited():
    async def main():
        async with gpumem.AsyncSession(name="pytest-async") as session:
            buffers = await asyncio.gather(*(session.alloc(MIB, tag=str(i)) for i in range(40)))
            assert sorted(int(buffer.tag) for buffer in buffers) == list(range(40))
            blocks = await asyncio.gather(*(session.malloc(MIB) for _ in range(40)))
            buffers[0].write(b"one")
            blocks[0].write(b"two")
            assert session.stats().in_use == 80 * MIB
            with pytest.raises(gpumem.OutOfMemoryError):
                await session.alloc(1 << 40)
            with pytest.raises(gpumem.InvalidError):
                await session.alloc(0)
        assert buffers[0].closed
        with pytest.raises(gpumem.ClosedError):
            await session.alloc(MIB)

    asyncio.run(main())


def test_without_a_loop(session):
    """The exception says what to do, and is still the one that asyncio would raise."""
    with pytest.raises(gpumem.NoLoopError, match="call it in a coroutine") as raised:
        session.events()
    assert isinstance(raised.value, RuntimeError) and raised.value.status == gpumem.Status.INVALID
    with gpumem.AsyncSession() as other:
        for waits in (other.alloc(MIB), other.malloc(MIB), other.pause("x"), other.resume("x"), other.load("x", "y"), other.attach("x"),
                      other.attach("x", wait=1)):
            with pytest.raises(gpumem.NoLoopError, match="needs a running loop of asyncio"):
                waits.send(None)  # as another library of coroutines would drive it
        assert other.stats().in_use == 0


def fill(session):
    """Everything that the device has for this client, but for less than 2 MiB."""
    kept, size = [], 256 * MIB
    while size >= 2 * MIB:
        try:
            kept.append(session.alloc(size))
        except gpumem.OutOfMemoryError:
            size //= 2
    return kept


def test_the_loop_goes_on_while_a_request_waits():
    async def main():
        with gpumem.Session() as other:
            kept = fill(other)
            async with gpumem.AsyncSession() as session:
                task = asyncio.ensure_future(session.alloc(8 * MIB, wait=20))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not task.done()
                kept.clear()
                other.trim()
                assert (await task).size == 8 * MIB

    asyncio.run(main())


def test_cancelling_ends_the_request():
    async def main():
        with gpumem.Session() as other:
            kept = fill(other)
            async with gpumem.AsyncSession() as session:
                tasks = [asyncio.ensure_future(session.alloc(8 * MIB, wait=20)) for _ in range(5)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with pytest.raises(asyncio.CancelledError):
                        await task
                assert not session._requests._waiting and not session._requests._loops
                kept.clear()
                other.trim()
                assert (await session.alloc(8 * MIB, wait=20)).size == 8 * MIB

    asyncio.run(main())


def test_closing_ends_what_waits():
    async def main():
        with gpumem.Session() as other:
            kept = fill(other)
            session = gpumem.AsyncSession()
            task = asyncio.ensure_future(session.alloc(8 * MIB, wait=20))
            await asyncio.sleep(0)
            session.close()
            with pytest.raises(gpumem.ClosedError):
                await task
            assert kept

    asyncio.run(main())


def test_pause_and_resume_are_awaited():
    """Also while the region waits for memory that others have."""
    async def main():
        async with gpumem.AsyncSession() as session:
            region = session.region("pytest-async", 64 * MIB)
            block = region.alloc(16 * MIB)
            block.write(b"kept")
            await session.pause("pytest-async")
            with pytest.raises(gpumem.BusyError):
                block.read(4)
            with gpumem.Session() as other:
                kept = fill(other)
                task = asyncio.ensure_future(session.resume("pytest-async", wait=60))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not task.done() and session.region_stats("pytest-async").state in ("paused", "resuming")
                kept.clear()
                other.trim()
                await task
            assert block.read(4) == b"kept"
            for wrong in (session.pause("nothing"), session.resume("nothing")):
                with pytest.raises(gpumem.NotFoundError):
                    await wrong

    asyncio.run(main())


def test_pin_is_awaited():
    async def main():
        async with gpumem.AsyncSession() as session:
            buffer = await session.alloc(16 * MIB, evictable=True)
            assert await session.pin(buffer) == "device"
            buffer.write(b"kept")
            buffer.unpin()
            buffer.evict()
            with gpumem.Session() as other:
                kept = fill(other)
                task = asyncio.ensure_future(session.pin(buffer, wait=60))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not task.done()
                kept.clear()
                other.trim()
                assert await task == "device"
            assert buffer.read(4) == b"kept"
            with pytest.raises(gpumem.InvalidError, match="only a gpumem.Buffer can be pinned"):
                await session.pin(5)
            with pytest.raises(gpumem.UnsupportedError, match="not evictable"):
                await session.pin(await session.alloc(MIB))

    asyncio.run(main())


def test_a_pin_whose_task_was_cancelled_does_not_stay():
    async def main():
        async with gpumem.AsyncSession() as session:
            buffer = await session.alloc(16 * MIB, evictable=True)
            buffer.pin()
            buffer.unpin()
            buffer.evict()
            with gpumem.Session() as other:
                kept = fill(other)
                task = asyncio.ensure_future(session.pin(buffer, wait=60))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                kept.clear()
                other.trim()
                while buffer.location != "device":
                    await asyncio.sleep(0.01)
                while True:  # as soon as it is not pinned
                    try:
                        buffer.evict()
                        break
                    except gpumem.BusyError:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_pin_whose_task_was_cancelled_at_its_end_does_not_stay(monkeypatch):
    """The future has its result, and the task was cancelled before it saw that."""
    async def main():
        async with gpumem.AsyncSession() as session:
            buffer = await session.alloc(MIB, evictable=True)
            loop = asyncio.get_running_loop()
            create = loop.create_future

            def create_and_cancel():
                future = create()
                future.add_done_callback(lambda done: task.cancel())  # before the task adds its own
                return future

            monkeypatch.setattr(loop, "create_future", create_and_cancel)
            task = asyncio.ensure_future(session.pin(buffer))
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.undo()
            buffer.evict()

    asyncio.run(main())


def test_load_and_attach_are_awaited(model):
    async def main():
        async with gpumem.AsyncSession() as session:
            steps = []
            tasks = [asyncio.ensure_future(session.attach("pytest-later", wait=60)) for _ in range(100)]
            with pytest.raises(gpumem.WaitTimeoutError, match='no such name as "pytest-later" for this client within 0.01 s'):
                await session.attach("pytest-later", wait=0.01)
            with pytest.raises(gpumem.NotFoundError, match='no such name as "pytest-later"'):
                await session.attach("pytest-later")
            assert not any(task.done() for task in tasks)
            tasks[0].cancel()
            version = await session.load(model, "pytest-later", progress=lambda done, total: steps.append(total))
            try:
                for task in tasks[1:]:
                    assert (await task).version == version
                with pytest.raises(asyncio.CancelledError):
                    await tasks[0]
                assert steps
                with pytest.raises(gpumem.BusyError):
                    await session.load(model, "pytest-later")
            finally:
                session.unpublish("pytest-later")
            late = asyncio.ensure_future(session.attach("pytest-later", wait=gpumem.FOREVER))
            await asyncio.sleep(0)
        with pytest.raises(gpumem.ClosedError):
            await late

    asyncio.run(main())


def test_attach_waits_without_a_loop(session):
    with pytest.raises(gpumem.WaitTimeoutError, match='no such name as "pytest-waits" for this client within 10ms') as error:
        session.attach("pytest-waits", wait=0.01)
    assert isinstance(error.value, TimeoutError) and error.value.status == gpumem.Status.TIMEOUT
    found = []
    with gpumem.Session() as other:
        thread = threading.Thread(target=lambda: found.append(other.attach("pytest-waits", wait=gpumem.FOREVER).size))
        thread.start()
        session.alloc(MIB).publish("pytest-waits", until_unread=False)
        thread.join()
    session.unpublish("pytest-waits")
    assert found == [MIB]


def test_two_loops_share_a_session():
    with gpumem.AsyncSession() as session:
        errors = []

        async def work():
            for _ in range(20):
                async def one():
                    (await session.alloc(MIB)).close()

                await asyncio.gather(*(one() for _ in range(4)))

        def run():
            try:
                asyncio.run(work())
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors


def press(session):
    """Makes the device full and empty again, until everybody who listens was told that its level rose. The daemon tells no level twice, and
    the tests before this one had the memory, so that once may not be enough."""
    full = threading.Event()
    with session.on_pressure(lambda event: full.set() if event.level in ("high", "critical") else None):
        for _ in range(60):
            kept = fill(session)
            assert kept
            if full.wait(1):
                break
            del kept
            session.trim()
            full.wait(1)
        assert full.is_set()
    del kept
    session.trim()


def test_pressure_is_told_to_a_function(session):
    told, levels = threading.Event(), []

    def function(event):
        levels.append((event.kind, event.device, event.level))
        if event.level == "low" and len(levels) > 1:
            told.set()

    def wrong(event):
        raise RuntimeError("this is logged, and the others are called")

    with session.on_pressure(wrong), session.on_pressure(function):
        press(session)
        assert told.wait(20)
    assert all(kind == "pressure" and device == 0 for kind, device, level in levels)
    assert {"high", "critical"} & {level for _, _, level in levels}
    with pytest.raises(gpumem.InvalidError):
        session.on_event(function, ["weather"])


def test_reclaim_gets_memory_back():
    with gpumem.Session() as idle:
        cached, freed = idle.alloc(256 * MIB), threading.Event()

        def give(event):
            nonlocal cached
            cached = None
            freed.set()

        idle.on_reclaim(give)
        with gpumem.Session() as other:
            wanted = other.device().available + 128 * MIB
            buffer = other.alloc(wanted, wait=20)
            assert freed.is_set() and buffer.size == wanted


def test_a_limit_is_told(session):
    told, limits = threading.Event(), []

    def function(event):
        limits.append(event.bytes)
        told.set()

    control = [os.environ["GPUMEM_TEST_CTL"], "limit"]
    owner = "uid:%d" % os.getuid()
    with session.on_limits(function):
        done = subprocess.run(control + ["set", owner, "max=100M"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        assert done.returncode == 0, done.stdout
        try:
            assert told.wait(20)
            with pytest.raises(gpumem.LimitError) as error:
                session.alloc(200 * MIB)
            assert error.value.status == gpumem.Status.LIMIT
        finally:
            subprocess.run(control + ["reset", owner], check=True, stdout=subprocess.DEVNULL)


def test_events_are_iterated():
    async def main():
        async with gpumem.AsyncSession() as session:
            events = session.events(["pressure"])
            loop = asyncio.get_running_loop()
            with gpumem.Session() as other:
                await loop.run_in_executor(None, press, other)
                seen = []

                async def look():
                    # What the tests before had may have made it medium and low again before.
                    async for event in events:
                        seen.append(event.level)
                        if event.level == "low" and {"high", "critical"} & set(seen):
                            break

                await asyncio.wait_for(look(), 60)
            rest = session.events()
        async for event in rest:
            pass  # it ends with the session

    asyncio.run(main())


def test_a_function_cannot_close_its_session(session):
    told, errors = threading.Event(), []

    def function(event):
        try:
            session.close()
        except gpumem.BusyError as error:
            errors.append(error)
        told.set()

    session.on_event(function)
    press(session)
    assert told.wait(20)
    assert errors and not session.closed


def test_a_session_that_ends_in_its_own_function_ends():
    import weakref

    sessions, told, ended = [gpumem.Session()], threading.Event(), threading.Event()
    weakref.finalize(sessions[0]._core, ended.set)

    def function(event):
        sessions.clear()
        told.set()

    sessions[0].on_event(function)
    with gpumem.Session() as other:
        press(other)
        assert told.wait(20) and ended.wait(20)


def test_a_finalizer_may_close_a_subscription_at_any_time(session):
    """The garbage collector may run a finalizer inside of on_event(), on the same thread."""
    from gpumem._events import Hub

    hub, done = Hub(), threading.Event()

    class Core:
        def listen(self, function):
            hub.remove(None)  # as a finalizer would

    def add():
        hub.add(Core(), print)
        done.set()

    threading.Thread(target=add, daemon=True).start()
    assert done.wait(30)
