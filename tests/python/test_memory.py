# SPDX-License-Identifier: Apache-2.0
"""Sessions, buffers, blocks and batches against a real daemon."""
import gc
import os
import subprocess
import sys
import threading

import pytest

import gpumem

MIB = 1 << 20


def test_a_buffer_is_there_and_goes(session):
    with session.alloc(8 * MIB, tag="one") as buffer:
        assert buffer.size == buffer.nbytes == len(buffer) == 8 * MIB
        assert buffer.ptr and buffer.tag == "one" and buffer.device == 0
        buffer.tag = "two"
        assert buffer.tag == "two"
        assert session.stats().in_use == 8 * MIB
    assert buffer.closed and session.stats().in_use == 0
    with pytest.raises(gpumem.ClosedError):
        buffer.ptr
    buffer.close()


def test_what_python_drops_is_freed(session):
    buffer, block = session.alloc(4 * MIB), session.malloc(1 * MIB)
    assert session.stats().in_use == 5 * MIB
    del buffer, block
    assert session.stats().in_use == 0


def test_a_view_keeps_its_buffer(session):
    view = session.alloc(4 * MIB)[MIB:2 * MIB]
    assert view.nbytes == MIB and session.stats().in_use == 4 * MIB
    assert view.ptr == view.base.ptr + MIB
    del view
    assert session.stats().in_use == 0


def test_slices_have_bounds(session):
    buffer = session.alloc(MIB)
    assert buffer[10:20].shape == (10,) and buffer[20:10].shape == (0,)
    assert buffer[-16:].ptr == buffer.ptr + MIB - 16
    matrix = buffer.view("float32", (256, 256))
    assert matrix[1:3].shape == (2, 256) and matrix[1:3].ptr == buffer.ptr + 1024
    assert matrix[1:3][1:].ptr == buffer.ptr + 2048
    for wrong in (lambda: buffer[3], lambda: buffer[::2], lambda: buffer.view("float32", (1 << 40,)),
                  lambda: buffer.view("float32", (-1,)), lambda: buffer.view("nothing"), lambda: buffer.view(offset=MIB + 1)):
        with pytest.raises(gpumem.InvalidError):
            wrong()


@pytest.mark.parametrize("wrong", [
    {"size": 0}, {"size": -1}, {"size": 1 << 64}, {"size": 1.5}, {"size": "1"}, {"device": -1}, {"wait": -1.0}, {"tag": "a\0b"},
    {"tag": "x" * 64}, {"transport": "pigeon"},
], ids=str)
def test_wrong_arguments_raise(session, wrong):
    with pytest.raises(gpumem.InvalidError):
        session.alloc(**dict({"size": MIB}, **wrong))
    assert session.stats().in_use == 0


@pytest.mark.parametrize("sentence, call", [
    ("a time to wait must be a number of seconds, or gpumem.FOREVER, not 'x'", lambda s: s.alloc(MIB, wait="x")),
    ("a time to wait must be from 0 to 4294966 seconds, or gpumem.FOREVER, not nan", lambda s: s.malloc(MIB, wait=float("nan"))),
    ("a socket must be text, not 5", lambda s: gpumem.Session(5)),
    ("a name must be text, not 5", lambda s: gpumem.Session(name=5)),
    ("a time to wait must be a number of seconds, or gpumem.FOREVER, not 'x'", lambda s: gpumem.Session(timeout="x")),
    ("a tag must be text, not 5", lambda s: s.alloc(MIB, tag=5)),
    ("a tag must be text, not None", lambda s: s.region(None, MIB)),
    ("a tag must be text, not None", lambda s: s.pause(None)),
    ("a tag must be text, not None", lambda s: s.resume(None)),
    ("a tag must be text, not 5", lambda s: s.region_stats(5)),
    ("a name must be text, not None", lambda s: s.attach(None)),
    ("a name must be text, not 5", lambda s: s.unpublish(5)),
    ("a name must be text, not 5", lambda s: s.metadata(5)),
    ("a name must be text, not None", lambda s: s.alloc(MIB).publish(None)),
    ("a name has characters that UTF-8 does not have: '\\udc80'", lambda s: s.attach("\udc80")),
    ("a token must be text, not None", lambda s: s.open(None)),
    ("what is called for an event must be a function, not 5", lambda s: s.on_reclaim(5)),
    ("what is called for an event must be a function, not None", lambda s: s.on_event(None)),
    ("kinds is a list of kinds of events, such as [\"pressure\"], not 'pressure'", lambda s: s.on_event(print, "pressure")),
    ("kinds is a list of kinds of events, such as [\"pressure\"], not 5", lambda s: s.on_event(print, 5)),
    ("data must be bytes, an array, or something else with the buffer protocol, not 5", lambda s: s.malloc(MIB).write(5)),
    ("a path must be text, not 5", lambda s: s.alloc(MIB).load_file(5)),
    ("progress must be a function, not 5", lambda s: s.alloc(MIB).write(b"x", progress=5)),
    ("a factor must be a number of times the size, not 'x'", lambda s: s.alloc(MIB).set_policy(factor="x")),
    ("a batch is a list of entries, not 5", lambda s: s.batch(5)),
    ("an entry of a batch is a size, (size, tag) or a dict, not (5,)", lambda s: s.batch([(5,)])),
    ("a name must be text, not None", lambda s: gpumem.weights.attach(None, session=s)),
    ("a path must be text, not 5", lambda s: gpumem.weights.load(5, "x", session=s)),
    ("session must be a gpumem.Session, not 5", lambda s: gpumem.weights.entries(session=5)),
], ids=lambda value: "")
def test_a_wrong_argument_gets_a_sentence(session, sentence, call):
    with pytest.raises(gpumem.InvalidError) as error:
        call(session)
    assert str(error.value) == sentence and error.value.status == gpumem.Status.INVALID


def test_a_buffer_that_is_not_evictable_says_so(session):
    buffer = session.alloc(MIB)
    for use in (buffer.pin, buffer.unpin, buffer.evict):
        with pytest.raises(gpumem.UnsupportedError, match=r"this buffer is not evictable.*make one with alloc\(size, evictable=True\)"):
            use()


def test_a_name_that_is_missing_is_quoted(session):
    for use in (session.attach, session.unpublish, session.metadata):
        with pytest.raises(gpumem.NotFoundError, match='there is no such name as "pytest-nothing" for this client'):
            use("pytest-nothing")
    other = "uid:%d/pytest-nothing" % (os.getuid() + 1)
    with pytest.raises(gpumem.NotFoundError, match='no such name as "%s"' % other):
        session.attach(other)


def test_there_is_no_such_device(session):
    with pytest.raises(gpumem.NotFoundError) as error:
        session.alloc(MIB, 99)
    assert error.value.status == gpumem.Status.NOT_FOUND and isinstance(error.value, LookupError)


def test_too_much_raises_a_sentence(session):
    with pytest.raises(MemoryError) as error:
        session.alloc(1 << 40)
    assert isinstance(error.value, gpumem.OutOfMemoryError)
    assert len(str(error.value)) > 20


def test_a_closed_session_raises(session):
    buffer, batch, block = session.alloc(MIB), session.batch([MIB, MIB]), session.malloc(MIB)
    view = buffer.view("float32")
    session.close()
    for use in (lambda: buffer.ptr, lambda: view.ptr, lambda: view.memoryview(), lambda: batch[0].ptr, lambda: block.read(),
                lambda: session.alloc(MIB), session.stats, lambda: buffer.resize(1), lambda: buffer.share()):
        with pytest.raises(gpumem.ClosedError):
            use()
    session.close()


def test_data_goes_there_and_back(session):
    for memory in (session.alloc(MIB), session.malloc(MIB), session.batch([MIB])[0]):
        data = os.urandom(1000)
        assert memory.write(data, 24) == 1000
        assert memory.read(1000, 24) == data
        assert memory.write(bytearray(data)) == 1000 and memory.read(4) == data[:4]
        assert memory.write(b"") == 0 and memory.read(0) == b""
        with pytest.raises(gpumem.InvalidError):
            memory.write(data, MIB - 999)
        with pytest.raises(gpumem.InvalidError):
            memory.read(2 * MIB)


def test_a_file_is_loaded(session, tmp_path):
    data, steps = os.urandom(3 * MIB + 7), []
    (tmp_path / "weights").write_bytes(data)
    buffer = session.alloc(4 * MIB)
    assert buffer.load_file(tmp_path / "weights", 16, progress=lambda done, total: steps.append((done, total))) == len(data)
    assert buffer.read(len(data), 16) == data
    assert steps[-1] == (len(data), len(data))
    with pytest.raises(gpumem.NotFoundError, match="No such file"):
        buffer.load_file(tmp_path / "nothing")

    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        buffer.load_file(tmp_path / "weights", progress=stop)


def test_a_buffer_grows_where_it_is(session):
    buffer = session.alloc(2 * MIB, max_size=64 * MIB)
    buffer.write(b"kept")
    before = buffer.ptr
    assert buffer.max_size >= 64 * MIB
    assert buffer.resize(32 * MIB) is False
    assert (buffer.ptr, buffer.size, bytes(buffer.read(4))) == (before, 32 * MIB, b"kept")
    late = buffer[30 * MIB:]
    buffer.resize(2 * MIB)
    assert buffer.size == 2 * MIB
    with pytest.raises(gpumem.ClosedError):
        late.ptr
    buffer.set_policy(factor=2.0)
    buffer.ensure(3 * MIB)
    assert buffer.size > 3 * MIB


def test_a_batch_is_all_or_nothing(session):
    with session.batch([MIB, (2 * MIB, "second"), {"size": 4096, "alignment": 65536}], tag="whole") as batch:
        assert [entry.size for entry in batch] == [MIB, 2 * MIB, 4096]
        assert [entry.tag for entry in batch] == ["whole", "second", "whole"]
        assert batch[2].ptr % 65536 == 0
        batch[0].close()
        assert batch[0].closed and not batch.closed
    assert batch.closed and session.stats().in_use == 0
    with pytest.raises(gpumem.OutOfMemoryError):
        session.batch([MIB, 1 << 40])
    with pytest.raises(gpumem.InvalidError):
        session.batch([])
    with pytest.raises(gpumem.InvalidError):
        session.batch([{"bytes": 3}])
    assert session.stats().in_use == 0


def test_an_entry_keeps_its_batch(session):
    entry = session.batch([MIB, MIB])[1]
    entry.write(b"still here")
    assert entry.read(10) == b"still here" and session.stats().in_use == MIB
    del entry
    assert session.stats().in_use == 0


CHILD = """
import sys, gpumem
with gpumem.Session() as session:
    buffer = getattr(session, sys.argv[1])(sys.argv[2])
    print(bytes(buffer.read(5)).decode(), buffer.version, buffer.read_only)
    try:
        buffer.write(b"child")
    except gpumem.InvalidError as error:
        print(error)
    try:
        buffer.resize(1)
    except (gpumem.GpumemError, BufferError) as error:
        print(type(error).__name__)
"""


def child(*words):
    return subprocess.run([sys.executable, "-c", CHILD] + list(words), stdout=subprocess.PIPE, universal_newlines=True,
                          check=True).stdout.splitlines()


def test_another_process_opens_a_buffer(session):
    buffer = session.alloc(2 * MIB)
    buffer.write(b"hello")
    said = child("open", buffer.share())
    assert said[0] == "hello 0 False"
    assert buffer.read(5) == b"child"
    buffer.unshare()
    with pytest.raises(gpumem.InvalidError):
        session.open("nonsense")
    with pytest.raises(gpumem.NotFoundError):
        session.open("0" * 32)


def test_a_reader_cannot_write(session, on_host):
    buffer = session.alloc(2 * MIB)
    buffer.write(b"hello")
    assert child("open", buffer.share(read_only=True))[:2] == ["hello 0 True", "the memory was shared for reading only"]
    assert buffer.read(5) == b"hello"


def test_a_published_buffer_outlives_its_maker():
    with gpumem.Session() as first:
        buffer = first.alloc(2 * MIB)
        buffer.write(b"hello")
        assert buffer.publish("pytest-name", metadata=b'{"a": 1}') == 1
        assert buffer.metadata() == b'{"a": 1}'
        with pytest.raises(gpumem.BusyError):
            first.alloc(MIB).publish("pytest-name")
    with gpumem.Session() as second:
        try:
            assert second.metadata("pytest-name") == (b'{"a": 1}', 1)
            assert child("attach", "pytest-name")[0] == "hello 1 False"
            attached = second.attach("pytest-name")
            assert attached.read(5) == b"child"
            new = second.alloc(MIB)
            new.write(b"newer")
            assert new.publish("pytest-name", replace=True) == 2
            assert attached.read(5) == b"child" and second.attach("pytest-name").read(5) == b"newer"
        finally:
            second.unpublish("pytest-name")
        with pytest.raises(gpumem.NotFoundError):
            second.attach("pytest-name")


def test_signals_order_two_sessions(session, on_host):
    buffer = session.alloc(MIB, signals=True)
    with gpumem.Session() as other:
        reader = other.open(buffer.share())
        buffer.write(b"first")
        buffer.signal(1)
        reader.wait(1)
        assert reader.read(5) == b"first" and not reader.lost(2)
        reader.wait(1, timeout=0)
        with pytest.raises(gpumem.WaitTimeoutError, match="the value 2 was not signalled in time"):
            reader.wait(2, timeout=0.01)


def test_regions_are_paused_and_come_back(session):
    region = session.region("pytest-kv", 64 * MIB)
    block = region.alloc(MIB)
    block.write(b"kept")
    before = block.ptr
    region.pause(keep=True)
    assert region.stats().state == "paused" and region.stats().held == 0
    with pytest.raises(gpumem.BusyError):
        region.alloc(MIB)
    session.resume("pytest-kv")
    assert block.ptr == before and block.read(4) == b"kept"
    assert session.region_stats("pytest-kv").pauses == 1
    with pytest.raises(gpumem.NotFoundError):
        session.pause("nothing")
    region.close()
    assert block.read(4) == b"kept"
    del block, region
    with pytest.raises(gpumem.NotFoundError):
        session.region_stats("pytest-kv")


COPIES = """
import threading, gpumem
with gpumem.Session() as session:
    region, other = session.region("pytest-copies", 8 << 20), session.malloc(4 << 20)
    block, refused, ended = region.alloc(4 << 20), threading.Event(), threading.Event()
    block.write(bytes(4 << 20))

    def copy(work):
        while not ended.is_set():
            try:
                work()
            except gpumem.BusyError as error:
                assert str(error).startswith('region "pytest-copies" is '), error
                refused.set()

    threads = [threading.Thread(target=copy, args=(work,)) for work in
               (block.read, lambda: block.write(bytes(4 << 20)), lambda: other.copy_from(block))]
    for thread in threads:
        thread.start()
    for _ in range(20):
        region.pause()
        refused.clear()
        refused.wait()
        region.resume()
    ended.set()
    for thread in threads:
        thread.join()
    assert block.read() == bytes(4 << 20)
"""


def test_a_pause_waits_for_copies():
    """A copy that runs when another thread pauses the region ends first, and one that comes later is refused."""
    done = subprocess.run([sys.executable, "-c", COPIES], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_paused_block_says_which_region(session):
    region = session.region("pytest-paused", 8 * MIB)
    block = region.alloc(MIB)
    view = block[:16]
    region.pause()
    for use in (block.read, lambda: block.write(b"x"), lambda: session.malloc(MIB).copy_from(block)):
        with pytest.raises(gpumem.BusyError) as error:
            use()
        assert str(error.value) == 'region "pytest-paused" is paused: resume it first' and error.value.status == gpumem.Status.BUSY
    assert block.ptr and view.shape == (16,) and not block.closed
    region.resume()
    assert len(block.read()) == MIB


def test_a_block_of_a_region_is_closed_with_its_session():
    with gpumem.Session() as session:
        block = session.region("pytest-closed", 8 * MIB).alloc(MIB)
    assert block.closed
    with pytest.raises(gpumem.ClosedError):
        block.read()


def test_pinned_memory(session):
    block = session.malloc(MIB, "host")
    assert block.device == gpumem.HOST and not block.on_gpu
    block.memoryview()[:5] = b"hello"
    assert block.read(5) == b"hello"
    assert session.device("host").number == gpumem.HOST


def test_figures(session):
    assert session.device_count == len(session.devices) >= 1
    info = session.device(0)
    assert info.backend in ("host", "cuda") and info.total >= info.capacity > 0 and info.available > 0
    pressure = session.pressure()
    assert 0 <= pressure.value <= 1 and pressure.level in ("low", "medium", "high", "critical")
    assert session.place(MIB).device == 0
    assert session.room() > 0 and session.placements(1 << 40)[0].fit == "none"
    block = session.malloc(MIB)
    assert session.stats().peak >= MIB
    block.close()
    assert session.trim() >= 0
    while session.stats().allocated:
        session.trim()  # the device had not finished with it
    assert gpumem.library_version()


def test_threads_use_one_session(session):
    errors = []

    def work(number):
        try:
            for _ in range(50):
                with session.malloc(4096) as block, session.alloc(MIB) as buffer:
                    block.write(bytes([number]) * 4096)
                    buffer.write(bytes([number]) * 100)
                    assert block.read(1)[0] == buffer.read(1)[0] == number
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and session.stats().in_use == 0


def test_a_forked_child_leaves_its_parents_memory_alone(session):
    buffer = session.alloc(MIB)
    buffer.write(b"parent")
    buffers_on_host = not buffer.on_gpu
    pid = os.fork()
    if pid == 0:
        try:
            del buffer
            gc.collect()
            try:
                session.alloc(MIB)
            except gpumem.ForkedError:
                if buffers_on_host:  # no forked child can use CUDA
                    with gpumem.Session() as own:
                        own.alloc(MIB).write(b"child")
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert buffer.read(6) == b"parent"


NAMES = """
import json, os, subprocess
import gpumem
sessions = [gpumem.Session(), gpumem.Session(name="own")]
clients = json.loads(subprocess.check_output([os.environ["GPUMEM_TEST_CTL"], "clients", "--json"]))["clients"]
print(sorted(client["name"] for client in clients if client["pid"] == os.getpid()))
"""


def test_a_session_without_a_name_has_that_of_its_run():
    folders = os.path.dirname(os.environ["GPUMEM_LIBRARY"]) + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    done = subprocess.run([os.environ["GPUMEM_TEST_RUN"], "--quiet", "--name", "trainer", "--", sys.executable, "-c", NAMES], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, env=dict(os.environ, LD_LIBRARY_PATH=folders))
    assert (done.returncode, done.stdout) == (0, "['own', 'trainer']\n")


LIMITED = """
import json, os, subprocess
import gpumem
session = gpumem.Session(name="own")
ctl = os.environ["GPUMEM_TEST_CTL"]
limits = json.loads(subprocess.check_output([ctl, "limit", "show", "--json"]))["limits"]
print(sorted({limit["owner_name"] for limit in limits if limit["owner"].startswith("run:")}))
try:
    session.alloc(64 << 20)
except gpumem.LimitError as error:
    print(error)
"""


def test_the_limit_of_a_run_has_the_name_of_the_run():
    folders = os.path.dirname(os.environ["GPUMEM_LIBRARY"]) + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    done = subprocess.run([os.environ["GPUMEM_TEST_RUN"], "--quiet", "--limit", "32M", "--name", "trainer", "--", sys.executable, "-c", LIMITED],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=folders))
    assert done.stdout.startswith("['run:trainer']\n"), done.stdout
    assert 'run "trainer" may hold 32.0M' in done.stdout, done.stdout


def test_the_default_session():
    with gpumem.default_session() as first:
        buffer = gpumem.alloc(MIB)
        assert gpumem.default_session() is first
    assert buffer.closed
    assert gpumem.default_session() is not first
    gpumem.default_session().close()


def test_an_empty_array(session):
    array = session.empty((3, 4), "float64", tag="array")
    assert array.shape == (3, 4) and array.dtype == "float64" and array.nbytes == 96 and array.base.tag == "array"


def test_a_finalizer_comes_back_while_a_lock_is_held(session):
    """The collector may run a program's finalizer anywhere, also inside of this package."""

    class Careless:
        def __init__(self):
            self.me = self  # only the collector frees it

        def __del__(self):
            done.append(session.malloc(4096).size)

    done = []
    for _ in range(50):
        Careless()
        session.alloc(MIB)
        session.device(0)
    gc.collect()
    assert len(done) == 50


def test_what_cannot_be_freed_yet_is_tried_once_with_each_call(session):
    core, tries = session._core_now(), []

    def not_yet():
        tries.append(1)
        core.later.append(not_yet)

    core.later.append(not_yet)
    session.stats()
    assert 1 <= len(tries) <= 3
    core.later.clear()
