# SPDX-License-Identifier: Apache-2.0
"""Events of a session, as functions that are called and as asynchronous iterators."""

import asyncio
import collections
import logging
import threading
import weakref
from typing import Any, AsyncIterator, Callable, Collection, Deque, List, NamedTuple, Optional, Set

from . import _capi
from ._core import Core, _in_callback, check_function
from .errors import InvalidError, NoLoopError

log = logging.getLogger("gpumem")
_ALL = (1 << 64) - 1


class Event(NamedTuple):
    """Something happened.

    kind       sets
    pressure   device, level ("low" to "critical") and pressure, from 0 to 1
    reclaim    device, urgent, and bytes: how many are still wanted; None: all that can be spared
    limits     device, and bytes: the new limit on what this client may hold; None: there is none
    goodbye    text: why the daemon stops
    lost       text: why the connection is lost. Memory goes on working
    restored   text: whether the daemon still knows the session
    """

    kind: str
    device: int
    level: str
    pressure: float
    bytes: Optional[int]
    urgent: bool
    text: str


def _event(raw: Any) -> Event:
    event = raw.contents
    return Event(_capi.EVENTS.get(event.kind, "unknown"), event.device, _capi.LEVELS[event.level & 3], event.pressure,
                 None if event.bytes == _ALL else event.bytes, bool(event.urgent), (event.text or b"").decode("utf-8", "replace"))


class Subscription:
    """A function that is called for events, until close() or the end of the session. A context manager."""

    def __init__(self, hub: "Hub", function: Callable[[Event], Any], kinds: Optional[Set[str]]) -> None:
        self._hub, self.function, self.kinds = hub, function, kinds

    def close(self) -> None:
        """The function is not called for any later event. A call that has begun may still run."""
        self._hub.remove(self)

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """The loop of asyncio that runs on this thread, which what needs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise NoLoopError("%s needs a running loop of asyncio, and this thread has none: call it in a coroutine, as "
                          "asyncio.run() runs it; on_event() and Session need no loop" % what) from None


class Hub:
    """Hands a session's events out to everybody who asked for them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run, and close a subscription, while this thread has it
        self._subscriptions: List[Subscription] = []
        self._listening = False
        self._ends: List[Callable[[], None]] = []

    def add(self, core: Core, function: Callable[[Event], Any], kinds: Optional[Collection[str]] = None) -> Subscription:
        check_function("what is called for an event", function)
        if kinds is not None and (isinstance(kinds, str) or not isinstance(kinds, Collection)):
            raise InvalidError("kinds is a list of kinds of events, such as [\"pressure\"], not %r" % (kinds,))
        for kind in kinds or ():
            if kind not in _capi.EVENTS.values():
                raise InvalidError("%r is no kind of event: use %s" % (kind, ", ".join(_capi.EVENTS.values())))
        subscription = Subscription(self, function, None if kinds is None else set(kinds))
        with self._lock:
            self._subscriptions = self._subscriptions + [subscription]
            if not self._listening:
                core.listen(_trampoline(weakref.ref(self)))
                self._listening = True
        return subscription

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = [other for other in self._subscriptions if other is not subscription]

    def at_end(self, function: Callable[[], None]) -> None:
        self._ends.append(function)

    def deliver(self, event: Event) -> None:
        for subscription in self._subscriptions:
            if subscription.kinds is None or event.kind in subscription.kinds:
                try:
                    subscription.function(event)
                except Exception:
                    log.exception("a function for the event %r failed", event.kind)

    def close(self) -> None:
        with self._lock:
            self._subscriptions = []
            ends, self._ends = self._ends, []
        for end in ends:
            end()


def _trampoline(hub: "weakref.ref[Hub]") -> Any:
    def deliver(user: Any, raw: Any) -> None:
        _in_callback.depth = getattr(_in_callback, "depth", 0) + 1
        try:
            found = hub()
            if found is not None:
                found.deliver(_event(raw))
            del found
        finally:
            _in_callback.depth -= 1

    return _capi.EVENT_FN(deliver)


class EventIterator(AsyncIterator[Event]):
    """async for event in session.events(): … The newest 1,000 events wait for a slow reader. Ends with the session."""

    def __init__(self, core: Core, hub: Hub, kinds: Optional[Collection[str]]) -> None:
        self._loop = running_loop("events()")
        self._events: Deque[Event] = collections.deque(maxlen=1000)
        self._some = asyncio.Event()
        self._ended = False
        self._subscription = hub.add(core, self._came, kinds)
        hub.at_end(self._end)

    def _came(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._some.set)
        except RuntimeError:
            self._subscription.close()  # the loop has ended, so nobody reads

    def _end(self) -> None:
        self._ended = True
        self._wake()

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._some.clear()
            if not self._events and not self._ended:
                await self._some.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """No further events are kept for this reader."""
        self._subscription.close()
        self._end()

    async def __aenter__(self) -> "EventIterator":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()


__all__ = ["Event", "EventIterator", "Hub", "Subscription"]
