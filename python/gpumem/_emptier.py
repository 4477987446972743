# SPDX-License-Identifier: Apache-2.0
"""Has a framework return what it has cached when others need memory."""

import logging
import threading
from typing import Any, Callable

from . import _cuda
from .errors import GpumemError

log = logging.getLogger("gpumem")


class Emptier:
    """Calls a function under pressure, on a thread of its own: the library's thread may not wait for a framework, whose allocator has
    locks of its own. The function frees only what nobody uses.

    Freeing is among the calls that CUDA forbids while any thread captures a graph, unless the calling thread says that it knows what it does.
    This thread says so. Otherwise the call would fail, and spoil the capture of the other thread."""

    def __init__(self, empty: Callable[[], Any], session: Any, name: str) -> None:
        self._empty, self._wanted, self.times = empty, threading.Event(), 0
        self._session: Any = None
        threading.Thread(target=self._run, name=name, daemon=True).start()
        self.listen_to(session)

    def listen_to(self, session: Any) -> None:
        """Hears from this session when memory is wanted."""
        if session is not self._session:
            self._session, self._subscription = session, session.on_event(self._heard, ["pressure", "reclaim"])

    def _heard(self, event: Any) -> None:
        if event.kind == "reclaim" or event.level in ("high", "critical"):
            self._wanted.set()

    def _run(self) -> None:
        relaxed = False
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                if not relaxed:
                    _cuda.relax_captures()  # for this thread, and for good
                    relaxed = True
                self._empty()
                self.times += 1
            except (GpumemError, RuntimeError) as error:
                log.debug("%s: nothing was returned: %s", threading.current_thread().name, error)  # next time


__all__ = ["Emptier"]
