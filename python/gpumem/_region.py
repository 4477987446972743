# SPDX-License-Identifier: Apache-2.0
"""Regions: memory that a program gives away for a while and gets back at the same addresses."""

from ctypes import byref, c_void_p
from typing import Any, Callable, NamedTuple, Optional

from . import _capi
from ._core import Core, Hold, RegionUse, check_int, closed, milliseconds, pause_region, stream_of, text
from ._memory import Block


class RegionStats(NamedTuple):
    """State and figures of a region. Figures are bytes, unless they count something.

    state        "active", "pausing", "paused" or "resuming"
    device       the number of its device
    max_size     how many addresses it has
    held         device memory that it has now; 0 while it is paused
    in_use       allocated and not freed, paused or not
    peak         the highest in_use so far
    needed       device memory for the resume of a paused region, at most
    kept         content in host memory, while it is paused
    allocations  how many are not freed yet
    pauses       how many succeeded
    """

    state: str
    device: int
    max_size: int
    held: int
    in_use: int
    peak: int
    needed: int
    kept: int
    allocations: int
    pauses: int


def region_stats(core: Core, tag: str) -> RegionStats:
    stats = _capi.RegionStatsStruct()
    _capi.check(core.library.gpumem_region_stats(core.pointer, text("a tag", tag, required=True), byref(stats)))
    return RegionStats(_capi.REGION_STATES[stats.state], *(getattr(stats, name) for name in RegionStats._fields[1:]))


class Region:
    """A range of addresses with memory of its own. Blocks are carved out of it; pause() gives the memory of all of them to others, and
    resume() gets it back, at the same addresses. While it is paused, using a block raises BusyError. Arrays that others made of its blocks
    before are not refused: a kernel that touches them then fails, and on the host backend so does the program."""

    def __init__(self, core: Core, device: int, tag: str, max_size: int, initial: int, wait: Optional[float],
                 keep: Callable[[Block], Block]) -> None:
        handle = c_void_p()
        options = _capi.RegionOptions(initial=check_int("a size", initial), wait_ms=milliseconds(wait))
        _capi.check(core.library.gpumem_region_create(
            core.pointer, device, text("a tag", tag, required=True), check_int("a size", max_size, 1), byref(options), byref(handle)))
        pointer = handle.value

        def destroy(fate: Any) -> None:
            fate.core.library.gpumem_region_destroy(pointer)

        self.tag, self._keep = tag, keep
        # Blocks keep it, so that it ends after the last of them.
        self._hold: Optional[Hold] = Hold(core, core.device(device), 0, 0, destroy, pointer)
        self._hold.region = RegionUse(core, tag)

    def _hold_now(self) -> Hold:
        hold = self._hold
        if hold is None:
            raise closed("region")
        hold.core.check_fork()
        return hold

    def alloc(self, size: int, *, stream: Any = None, wait: Optional[float] = None) -> Block:
        """A Block of the region. wait: seconds, if the device is full."""
        hold, pointer = self._hold_now(), c_void_p()
        options = _capi.AllocOptions(wait_ms=milliseconds(wait))
        _capi.check(hold.core.library.gpumem_region_alloc(
            hold.handle, check_int("a size", size, 1), stream_of(stream), byref(options), byref(pointer)))
        address = pointer.value or 0

        def free(fate: Any) -> None:
            fate.core.library.gpumem_region_free(hold.handle, address, _capi.STREAM_ANY if fate.exported else fate.stream)

        piece = Hold(hold.core, hold.device, address, size, free)
        piece.fate.stream, piece.region = stream_of(stream), hold.region
        return self._keep(Block(piece))

    def pause(self, keep: bool = True) -> None:
        """Gives the memory to others. keep: the content goes to pinned host memory, and comes back. Waits for the device's work."""
        pause_region(self._hold_now().core, self.tag, keep)

    def resume(self, wait: Optional[float] = None) -> None:
        """Gets the memory back. wait: seconds, if others have it."""
        hold = self._hold_now()
        _capi.check(hold.core.library.gpumem_region_resume(hold.core.pointer, text("a tag", self.tag), milliseconds(wait)))

    def stats(self) -> RegionStats:
        """Its state and figures. Sends no message."""
        return region_stats(self._hold_now().core, self.tag)

    def close(self) -> None:
        """Ends the region when the last of its blocks has gone."""
        self._hold = None

    def __enter__(self) -> "Region":
        self._hold_now()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<gpumem.Region %r%s>" % (self.tag, "" if self._hold else ", closed")
