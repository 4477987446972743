# SPDX-License-Identifier: Apache-2.0
"""Has a framework return what it has cached when others need memory."""

import logging
import threading
import time
from typing import Any, Callable

from . import _cuda
from .errors import GpumemError

log = logging.getLogger("gpumem")

# Seconds between two times. Whoever waits for memory in vain has all clients asked once a second. A cache that is emptied as often slows its
# program down for nothing.
_REST, _LONGEST_REST = 1.0, 32.0


def _next_rest(rest: float, quiet: float) -> float:
    """How long to rest next time, if nothing was wanted for so long after the last rest."""
    return _REST if quiet > rest else min(2 * rest, _LONGEST_REST)


class SessionWants:
    """Waits until a session hears that memory is wanted."""

    def __init__(self, session: Any) -> None:
        self._wanted = threading.Event()
        self._session: Any = None
        self.listen_to(session)

    def listen_to(self, session: Any) -> None:
        """From now on it is this session."""
        if session is not self._session:
            self._session, self._subscription = session, session.on_event(self._heard, ["pressure", "reclaim"])

    def _heard(self, event: Any) -> None:
        more = event.kind == "reclaim" and event.bytes != 0  # 0: the library has returned enough
        if more or (event.kind == "pressure" and event.level in ("high", "critical")):
            self._wanted.set()

    def wait(self) -> None:
        """Returns once for all that was heard meanwhile."""
        self._wanted.wait()
        self._wanted.clear()


class Emptier:
    """Calls a function when wait() returns, on a thread of its own: the library's thread may not wait for a framework, whose allocator has
    locks of its own. The function frees only what nobody uses. Between two calls it rests, the longer the more often memory is wanted.

    Freeing is among the calls that CUDA forbids while any thread captures a graph, unless the calling thread says that it knows what it does.
    This thread says so. Otherwise the call would fail, and spoil the capture of the other thread."""

    def __init__(self, empty: Callable[[], Any], wait: Callable[[], Any], name: str) -> None:
        self._empty, self._wait, self.times = empty, wait, 0
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        relaxed, rest = False, _REST / 2
        while True:
            begin = time.monotonic()
            try:
                self._wait()
            except OSError as error:
                log.debug("%s: cannot wait any more: %s", threading.current_thread().name, error)  # the program closed all descriptors
                return
            rest = _next_rest(rest, time.monotonic() - begin)
            try:
                if not relaxed:
                    _cuda.relax_captures()  # for this thread, and for good
                    relaxed = True
                self._empty()
                self.times += 1
            except (GpumemError, RuntimeError) as error:
                log.debug("%s: nothing was returned: %s", threading.current_thread().name, error)  # next time
            time.sleep(rest)


__all__ = ["Emptier", "SessionWants"]
