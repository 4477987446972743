# SPDX-License-Identifier: Apache-2.0
"""RAPIDS (cuDF, cuML and others) on memory from gpumemd, through RMM:

    import gpumem.rmm; gpumem.rmm.enable()
"""

from typing import Any, Dict

from . import _capi, _cuda, default_session
from .errors import UnsupportedError, needs


def enable(device: int = 0) -> Any:
    """Makes gpumemd the memory resource of RMM for a GPU. Returns the resource, an rmm.mr.CallbackMemoryResource."""
    rmm = needs("gpumem.rmm", "rmm")
    numbers = _cuda.numbers(default_session().devices)
    if device not in numbers:
        raise UnsupportedError("gpumemd does not serve GPU %d" % device)
    blocks: Dict[int, Any] = {}  # without a lock: a finalizer may call deallocate() at any time, on any thread

    def allocate(size: int, stream: Any = None) -> int:
        # An exception becomes RMM's own. Any stream may use the memory, and it stays when the session is closed.
        # The session is another one if the program has closed the last.
        block = default_session().malloc(max(int(size), 1), numbers[device], stream=_capi.STREAM_ANY)
        export = block._hold_now().export()
        blocks[block.ptr] = export
        return block.ptr

    def deallocate(pointer: int, size: int, stream: Any = None) -> None:
        blocks.pop(pointer, None)

    resource = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    rmm.mr.set_per_device_resource(device, resource)
    return resource


__all__ = ["enable"]
