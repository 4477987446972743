# SPDX-License-Identifier: Apache-2.0
"""Every method of every object, in every state that the object can be in: it succeeds or raises an exception of the package. It never ends
the process.

CALLS has a row for each method. A method without a row fails a test. For each state, this file runs itself as a program, which makes the
calls in processes of their own, so that a call that ends its process is a failed test."""
import asyncio
import inspect
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import public

import gpumem

SIZE = 1 << 20
HANGS_S = 60


def awaited(method):
    """A call that is awaited."""
    def call(thing, world):
        async def run():
            return await method(thing, world)

        return asyncio.run(run())

    return call


async def one_event(events, world):
    """There may be none, ever."""
    reader = asyncio.ensure_future(events.__anext__())
    for _ in range(3):
        await asyncio.sleep(0)
    reader.cancel()
    try:
        await reader
    except (asyncio.CancelledError, StopAsyncIteration):
        pass


def touch(view):
    return bytes(view[:1])


def wait_for_signal(buffer):
    try:
        buffer.signal(1)
    except gpumem.UnsupportedError:
        pass  # nor can anybody wait for one then
    buffer.wait(1)


MEMORY = {
    "read": lambda m, w: m.read(8),
    "write": lambda m, w: m.write(b"12345678"),
    "copy_from": lambda m, w: m.copy_from(b"12345678"),
    "close": lambda m, w: m.close(),
    "__enter__": lambda m, w: m.__enter__(),
    "__exit__": lambda m, w: m.__exit__(None, None, None),
}
ARRAY = {
    "view": lambda a, w: a.view("uint8", (4,)),
    "memoryview": lambda a, w: touch(a.memoryview()),
    "numpy": lambda a, w: touch(a.numpy()),
    "forget_arrays": lambda a, w: a.forget_arrays(),
    "__getitem__": lambda a, w: a[2:4],
    "__len__": lambda a, w: len(a),
    "__array__": lambda a, w: touch(a.__array__()),
    "__buffer__": lambda a, w: touch(memoryview(a)),
    "__dlpack__": lambda a, w: w.touch_foreign(gpumem.from_dlpack(a)),
    "__dlpack_device__": lambda a, w: a.__dlpack_device__(),
    "__repr__": lambda a, w: repr(a),
    # Not methods of the array, but of others that get it.
    "copy_from it": lambda a, w: w.block().copy_from(a),
    "write it": lambda a, w: w.block().write(a),
    "set stream": lambda a, w: setattr(a, "stream", None),
}
BUFFER = {
    "load_file": lambda b, w: b.load_file(__file__, size=100),
    "set tag": lambda b, w: setattr(b, "tag", "other"),
    "touch": lambda b, w: b.touch(),
    "resize": lambda b, w: b.resize(2 * SIZE),
    "ensure": lambda b, w: b.ensure(2 * SIZE),
    "set_policy": lambda b, w: b.set_policy(factor=2.0),
    "share": lambda b, w: b.share(),
    "unshare": lambda b, w: b.unshare(),
    "publish": lambda b, w: b.publish("states-buffer", replace=True),
    "metadata": lambda b, w: b.metadata(),
    "signal": lambda b, w: b.signal(1),
    "wait": lambda b, w: wait_for_signal(b),
    "lost": lambda b, w: b.lost(1),
    "pin": lambda b, w: b.pin(),
    "unpin": lambda b, w: b.unpin(),
    "evict": lambda b, w: b.evict(),
}
FIGURES = {
    "device": lambda s, w: s.device(),
    "pressure": lambda s, w: s.pressure(),
    "stats": lambda s, w: s.stats(),
    "trim": lambda s, w: s.trim(),
    "place": lambda s, w: s.place(SIZE),
    "placements": lambda s, w: s.placements(),
    "room": lambda s, w: s.room(),
    "empty": lambda s, w: s.empty((2, 2)),
    "batch": lambda s, w: s.batch([4096, 4096]),
    "region": lambda s, w: s.region("states-new", 8 * SIZE),
    "region_stats": lambda s, w: s.region_stats("states"),
    "open": lambda s, w: s.open("0" * 32),
    "unpublish": lambda s, w: s.unpublish("states-nothing"),
    "metadata": lambda s, w: s.metadata("states-nothing"),
    "on_event": lambda s, w: s.on_event(repr).close(),
    "on_pressure": lambda s, w: s.on_pressure(repr).close(),
    "on_reclaim": lambda s, w: s.on_reclaim(repr).close(),
    "on_limits": lambda s, w: s.on_limits(repr).close(),
    "close": lambda s, w: s.close(),
    "__enter__": lambda s, w: s.__enter__(),
    "__exit__": lambda s, w: s.__exit__(None, None, None),
    "__repr__": lambda s, w: repr(s),
}
CALLS = {
    "Session": dict(FIGURES, **{
        "alloc": lambda s, w: s.alloc(SIZE),
        "malloc": lambda s, w: s.malloc(SIZE),
        "pause": lambda s, w: s.pause("states"),
        "resume": lambda s, w: s.resume("states"),
        "attach": lambda s, w: s.attach("states-nothing"),
        "attach and wait": lambda s, w: s.attach("states-nothing", wait=0.001),
        "events": awaited(lambda s, w: s.events().aclose()),
    }),
    "AsyncSession": dict(FIGURES, **{
        "alloc": awaited(lambda s, w: s.alloc(SIZE)),
        "malloc": awaited(lambda s, w: s.malloc(SIZE)),
        "pause": awaited(lambda s, w: s.pause("states")),
        "resume": awaited(lambda s, w: s.resume("states")),
        "pin": awaited(lambda s, w: s.pin(w.block())),
        "load": awaited(lambda s, w: s.load(w.model, "states-weights", replace=True)),
        "attach": awaited(lambda s, w: s.attach("states-nothing")),
        "attach and wait": awaited(lambda s, w: s.attach("states-nothing", wait=0.001)),
        "events": awaited(lambda s, w: s.events().aclose()),
        "__aenter__": awaited(lambda s, w: s.__aenter__()),
        "__aexit__": awaited(lambda s, w: s.__aexit__(None, None, None)),
    }),
    "Buffer": dict(ARRAY, **MEMORY, **BUFFER),
    "Block": dict(ARRAY, **MEMORY),
    "BatchEntry": dict(ARRAY, **MEMORY),
    "View": ARRAY,
    "ForeignArray": dict(ARRAY, close=lambda a, w: a.close()),
    "Batch": {
        "close": lambda b, w: b.close(),
        "__len__": lambda b, w: len(b),
        "__getitem__": lambda b, w: b[0].read(1),
        "__iter__": lambda b, w: [entry.size for entry in b],
        "__enter__": lambda b, w: b.__enter__(),
        "__exit__": lambda b, w: b.__exit__(None, None, None),
        "__repr__": lambda b, w: repr(b),
    },
    "Region": {
        "alloc": lambda r, w: r.alloc(4096),
        "pause": lambda r, w: r.pause(),
        "resume": lambda r, w: r.resume(),
        "stats": lambda r, w: r.stats(),
        "close": lambda r, w: r.close(),
        "__enter__": lambda r, w: r.__enter__(),
        "__exit__": lambda r, w: r.__exit__(None, None, None),
        "__repr__": lambda r, w: repr(r),
    },
    "Subscription": {
        "close": lambda s, w: s.close(),
        "__enter__": lambda s, w: s.__enter__(),
        "__exit__": lambda s, w: s.__exit__(None, None, None),
    },
    "EventIterator": {
        "aclose": awaited(lambda e, w: e.aclose()),
        "__anext__": awaited(one_event),
        "__aenter__": awaited(lambda e, w: e.__aenter__()),
        "__aexit__": awaited(lambda e, w: e.__aexit__(None, None, None)),
    },
    "Weights": {
        "view": lambda t, w: w.touch_foreign(t.view("a")),
        "close": lambda t, w: t.close(),
        "__getitem__": lambda t, w: w.touch_foreign(t["a"]),
        "__iter__": lambda t, w: list(t),
        "__len__": lambda t, w: len(t),
        "__enter__": lambda t, w: t.__enter__(),
        "__exit__": lambda t, w: t.__exit__(None, None, None),
        "__repr__": lambda t, w: repr(t),
    },
    # The functions of the modules, which use the default session.
    "gpumem": {
        "alloc": lambda m, w: gpumem.alloc(SIZE).close(),
        "capturing": lambda m, w: gpumem.capturing().__enter__(),
        "default_session": lambda m, w: gpumem.default_session(),
        "from_dlpack": lambda m, w: w.touch_foreign(gpumem.from_dlpack(w.block())),
        "library_version": lambda m, w: gpumem.library_version(),
        "pause": lambda m, w: gpumem.pause("states"),
        "resume": lambda m, w: gpumem.resume("states"),
    },
    "gpumem.weights": {
        "attach": lambda m, w: gpumem.weights.attach("states-nothing", session=w.session),
        "entries": lambda m, w: gpumem.weights.entries(session=w.session),
        "load": lambda m, w: gpumem.weights.load(w.model, "states-weights", replace=True, session=w.session),
        "remove": lambda m, w: gpumem.weights.remove("states-nothing", session=w.session),
    },
}

# What an object of this state cannot do: what uses the memory, or the session.
TOUCH = {"read", "write", "copy_from", "load_file", "memoryview", "numpy", "__array__", "__buffer__", "__dlpack__", "copy_from it", "write it"}
CPU = {"memoryview", "numpy", "__array__", "__buffer__", "write it"}
# Python's own protocols ask for exceptions of Python's own: doc/python.md.
OTHERS = {"__cuda_array_interface__": AttributeError, "__buffer__": (BufferError, TypeError), "__dlpack__": BufferError}


class World:
    """What the objects of one process need."""

    def __init__(self, state, model):
        self.model, self.session = model, None
        self._alone = state == "closed"
        self._other = gpumem.Session(name="states-other", away=0)
        self._block = self._other.malloc(SIZE)
        self.on_gpu = self._block.on_gpu

    def connect(self, cls=gpumem.Session):
        """A session that nothing else has."""
        self.session = cls(name="states", away=0)
        return self.session

    def shared(self):
        """A session, which is another one for each object only if it is to be closed."""
        return self.connect() if self.session is None or self.session.closed or self._alone else self.session

    def block(self):
        """Memory to copy to, which is in no state of its own."""
        return self._block

    def touch_foreign(self, array):
        return None if array.on_gpu else touch(array.memoryview()) if array.nbytes else None


def region_block(world):
    region = world.connect().region("states", 8 * SIZE)
    block = region.alloc(SIZE)
    block.write(bytes(SIZE))
    return region, block


def evictable(world):
    buffer = world.shared().alloc(SIZE, evictable=True)
    buffer.pin()
    return buffer


def evicted(buffer, thing):
    buffer.unpin()
    buffer.evict()
    return thing


def paused(region, thing):
    region.pause()
    return thing


def events(world, session):
    async def make():
        return session.events()

    return asyncio.run(make())


def weights(world):
    session = world.shared()
    gpumem.weights.load(world.model, "states-model", replace=True, session=session)
    return gpumem.weights.attach("states-model", kind="view", session=session)


# How an object of each class is made.
MAKERS = {
    "Session": lambda w: w.connect(),
    "AsyncSession": lambda w: w.connect(gpumem.AsyncSession),
    "Buffer": lambda w: w.shared().alloc(SIZE, max_size=4 * SIZE),
    "Buffer with signals": lambda w: w.shared().alloc(SIZE, signals=True),
    "Block": lambda w: w.shared().malloc(SIZE),
    "Block of host memory": lambda w: w.shared().malloc(SIZE, "host"),
    "Block of a region": lambda w: region_block(w)[1],
    "BatchEntry": lambda w: w.shared().batch([SIZE, SIZE])[0],
    "Batch": lambda w: w.shared().batch([SIZE, SIZE]),
    "View": lambda w: w.shared().alloc(SIZE)[16:4096],
    "ForeignArray": lambda w: gpumem.from_dlpack(w.shared().alloc(SIZE)),
    "Region": lambda w: region_block(w)[0],
    "Subscription": lambda w: w.shared().on_event(repr),
    "EventIterator": lambda w: events(w, w.shared()),
    "Weights": weights,
    "gpumem": lambda w: gpumem,
    "gpumem.weights": lambda w: w.shared(),
}
PAUSED = {
    "Region": lambda w: paused(*[region_block(w)[0]] * 2),
    "Block": lambda w: paused(*region_block(w)),
    "View": lambda w: (lambda region, block: paused(region, block[16:4096]))(*region_block(w)),
    "ForeignArray": lambda w: (lambda region, block: paused(region, gpumem.from_dlpack(block)))(*region_block(w)),
    "Session": lambda w: (paused(*region_block(w)), w.session)[1],
}
EVICTED = {
    "Buffer": lambda w: (lambda buffer: evicted(buffer, buffer))(evictable(w)),
    "View": lambda w: (lambda buffer: evicted(buffer, buffer[16:4096]))(evictable(w)),
    "ForeignArray": lambda w: (lambda buffer: evicted(buffer, gpumem.from_dlpack(buffer)))(evictable(w)),
}


def freed(thing):
    (thing.base if isinstance(thing, gpumem.View) else thing).close()


# What makes the objects of a state, and what brings an object into it.
STATES = {
    "open": (MAKERS, lambda thing, world: None),
    "paused": (PAUSED, lambda thing, world: None),
    "evicted": (EVICTED, lambda thing, world: None),
    "freed": ({kind: make for kind, make in MAKERS.items() if kind not in ("Session", "AsyncSession", "EventIterator", "gpumem",
                                                                          "gpumem.weights")},
              lambda thing, world: freed(thing)),
    "closed": ({kind: make for kind, make in MAKERS.items() if kind != "gpumem"}, lambda thing, world: world.session.close()),
    "forked": (MAKERS, lambda thing, world: None),
    "away": (MAKERS, lambda thing, world: None),
}


def class_of(kind):
    return kind.split()[0]


def properties(cls):
    return [name for name in public.members(cls) if isinstance(inspect.getattr_static(cls, name), property)]


def rows(kind):
    """The calls of a kind of object, by name. Properties need no row."""
    calls = dict(CALLS[class_of(kind)])
    cls = getattr(gpumem, class_of(kind), None) or getattr(gpumem.weights, class_of(kind), None)
    if inspect.isclass(cls):
        for name in properties(cls) + (["__cuda_array_interface__"] if hasattr(cls, "view") and cls is not gpumem.weights.Weights else []):
            calls[name] = lambda thing, world, name=name: getattr(thing, name)
    if sys.version_info < (3, 12):
        calls.pop("__buffer__", None)
    return sorted(calls.items())


def outcome(name, call, thing, world):
    """What became of a call: "ok", the name of an exception of the package and its text, or what is wrong."""
    try:
        call(thing, world)
    except gpumem.GpumemError as error:
        known = type(error).__name__ in gpumem.__all__
        return "%s: %s" % (type(error).__name__ if known else "an unknown exception " + type(error).__name__, error)
    except OTHERS.get(name, ()) as error:
        return "%s: %s" % (type(error).__name__, error)
    except BaseException:
        return "wrong: " + traceback.format_exc()
    return "ok"


def must_raise(state, kind, name, on_gpu):
    """The exception that a call raises in this state, or None: any outcome will do."""
    if on_gpu and name in CPU:  # refused in any state
        return None
    if name not in TOUCH:
        return None
    return {"paused": "BusyError: region \"states\" is paused: resume it first", "evicted": "BusyError: an evictable buffer must be pinned",
            "freed": "ClosedError: ", "closed": None if kind == "ForeignArray" else "ClosedError: ",
            "forked": "ForkedError: "}.get(state)


# ---- the program


def say(*words):
    sys.stdout.write("\t".join(word.replace("\t", " ").replace("\n", " | ") for word in words) + "\n")
    sys.stdout.flush()


def in_child(function):
    """Calls a function in a forked process. Returns how that ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(HANGS_S)  # the default action ends the process
            function()
            status = 0
        except BaseException:
            say("wrong", traceback.format_exc())
        finally:
            sys.stdout.flush()
            os._exit(status)
    ended = os.waitpid(pid, 0)[1]
    return "signal %d" % os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else "" if ended == 0 else "status %d" % os.WEXITSTATUS(ended)


def make(state, kind, world):
    makers, bring = STATES[state]
    thing = makers[kind](world)
    bring(thing, world)
    return thing


def run_one(kind, name, call, thing, world):
    say("begin", kind, name, "gpu" if world.on_gpu else "cpu")
    say("end", kind, name, outcome(name, call, thing, world))


def run_kind(state, kind, model):
    world = World(state, model)
    for name, call in rows(kind):
        thing = make(state, kind, world)
        if state == "forked":
            ended = in_child(lambda: run_one(kind, name, call, thing, world))
            if ended:
                say("end", kind, name, "wrong: " + ended)
        else:
            run_one(kind, name, call, thing, world)


def end_keeper(folder):
    """The daemon that was killed has left it behind."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (folder + "/keeper").encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            pass  # the process has ended


def run_away(kind, model):
    """Makes an object for each call, ends the daemon, and then makes the calls."""
    folder = tempfile.mkdtemp(prefix="gpumem-away.")
    os.environ["GPUMEM_SOCKET"] = folder + "/socket"
    Path(folder, "conf").write_text("[gpumemd]\nmin_free = 0\n")
    daemon = Path(os.environ["GPUMEM_TEST_CTL"]).resolve().parents[1] / "daemon" / "gpumemd"
    started = subprocess.Popen([str(daemon), "--backend", os.environ.get("GPUMEM_TEST_BACKEND", "host"), "--config", folder + "/conf",
                                "--socket", folder + "/socket"], stderr=subprocess.DEVNULL)
    try:
        while b'"gpumemd": "' not in subprocess.run([os.environ["GPUMEM_TEST_CTL"], "version", "--json"], stdout=subprocess.PIPE,
                                                    stderr=subprocess.DEVNULL).stdout:
            assert started.poll() is None, "gpumemd has ended"
        world = World("away", model)
        made = [(name, call, make("away", kind, world), world.session) for name, call in rows(kind)]
        started.kill()
        started.wait()
        end_keeper(folder)  # a program that connects would wait for the next daemon
        for name, call, thing, world.session in made:
            run_one(kind, name, call, thing, world)
    finally:
        started.kill()
        end_keeper(folder)
        shutil.rmtree(folder)


def program(state, model):
    for kind in STATES[state][0]:
        ended = in_child(lambda: run_away(kind, model) if state == "away" else run_kind(state, kind, model))
        if ended:
            say("ended", kind, "", ended)


if __name__ == "__main__":
    program(*sys.argv[1:])
    sys.exit(0)

import pytest  # noqa: E402

DULL = {"__init__", "__new__", "__init_subclass__", "__class_getitem__", "__subclasshook__"}


def special(cls):
    """The methods of a class that Python calls, as far as they are the package's."""
    for base in cls.__mro__:
        if base.__module__.split(".")[0] == "gpumem":
            yield from (name for name, thing in vars(base).items()
                        if name.startswith("__") and name not in DULL and (inspect.isroutine(thing) or isinstance(thing, property)))


def classes():
    for _, name, thing in public.things():
        if inspect.isclass(thing) and not issubclass(thing, (Exception, tuple, int)) and thing is not gpumem.Memory:
            yield name, thing


def test_every_method_has_a_row():
    found = set()
    for name, cls in classes():
        kind = next((kind for kind in MAKERS if class_of(kind) == name), None)
        found |= {"%s: no objects are made" % name} if kind is None else {
            "%s.%s" % (name, member) for member in set(public.members(cls)) | set(special(cls))
            if member not in dict(rows(kind)) and not (member == "__buffer__" and sys.version_info < (3, 12))
            and callable(inspect.getattr_static(cls, member, None))}
    for module in (gpumem, gpumem.weights):
        found |= {"%s.%s" % (module.__name__, name) for name in module.__all__
                  if inspect.isfunction(getattr(module, name)) and name not in CALLS[module.__name__]}
    assert ", ".join(sorted(found)) == ""


@pytest.fixture
def no_names():
    """Nothing stays published after the test."""
    yield
    with gpumem.Session() as session:
        for name in ("states-buffer", "states-model", "states-weights"):
            try:
                session.unpublish(name)
            except gpumem.NotFoundError:
                pass


@pytest.mark.parametrize("state", STATES)
def test_every_call(state, model, no_names):
    done = subprocess.run([sys.executable, __file__, state, str(model)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    wrong, began, calls = [], None, 0
    for line in done.stdout.splitlines():
        words = line.split("\t") + [""] * 4
        kind, name, said = words[1], words[2], words[3]
        if words[0] == "begin":
            began, on_gpu, calls = "%s.%s" % (kind, name), said == "gpu", calls + 1
        elif words[0] == "end":
            expected = must_raise(state, class_of(kind), name, on_gpu)
            if said.startswith(("wrong", "an unknown")) or (expected is not None and not said.startswith(expected)):
                wrong.append("%s.%s: %s" % (kind, name, said))
            began = None
        elif words[0] == "ended":
            wrong.append("%s: %s in %s" % (kind, said, began))
        else:
            wrong.append(line)
    assert done.returncode == 0, done.stdout
    assert "\n".join(wrong) == ""
    assert calls > 20


