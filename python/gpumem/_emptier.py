# SPDX-License-Identifier: Apache-2.0
"""Has a framework return what it has cached when others need memory."""

import logging
import threading
from typing import Any, Callable

from . import _cuda
from .errors import GpumemError

log = logging.getLogger("gpumem")


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
        if event.kind == "reclaim" or event.level in ("high", "critical"):
            self._wanted.set()

    def wait(self) -> None:
        """Returns once for all that was heard meanwhile."""
        self._wanted.wait()
        self._wanted.clear()


class Emptier:
    """Calls a function whenever wait() returns, on a thread of its own: the library's thread may not wait for a framework, whose allocator has
    locks of its own. The function frees only what nobody uses.

    Freeing is among the calls that CUDA forbids while any thread captures a graph, unless the calling thread says that it knows what it does.
    This thread says so. Otherwise the call would fail, and spoil the capture of the other thread."""

    def __init__(self, empty: Callable[[], Any], wait: Callable[[], Any], name: str) -> None:
        self._empty, self._wait, self.times = empty, wait, 0
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        relaxed = False
        while True:
            self._wait()
            try:
                if not relaxed:
                    _cuda.relax_captures()  # for this thread, and for good
                    relaxed = True
                self._empty()
                self.times += 1
            except (GpumemError, RuntimeError) as error:
                log.debug("%s: nothing was returned: %s", threading.current_thread().name, error)  # next time


__all__ = ["Emptier", "SessionWants"]
