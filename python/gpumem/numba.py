# SPDX-License-Identifier: Apache-2.0
"""Numba on memory from gpumemd, as its external memory manager:

    import gpumem.numba; gpumem.numba.enable()

The environment variable NUMBA_CUDA_MEMORY_MANAGER=gpumem.numba does the same without a change of the program.
"""

import ctypes
import sys
from typing import Any

from . import _capi, _cuda, default_session
from .errors import LibraryNotFoundError, UnsupportedError


def _manager() -> Any:
    try:
        from numba import cuda
    except ImportError as error:
        raise LibraryNotFoundError("gpumem.numba needs Numba, which cannot be imported (%s): pip install numba" % error) from None

    class GpumemManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Device memory from gpumemd; pinned and mapped host memory as Numba makes it."""

        def initialize(self) -> None:
            super().initialize()
            self._numbers = _cuda.numbers(default_session().devices)

        def _number(self) -> int:
            device = int(self.context.device.id)
            if device not in self._numbers:
                raise UnsupportedError("gpumemd does not serve GPU %d" % device)
            return self._numbers[device]

        def memalloc(self, size: int) -> Any:
            # The session is another one if the program has closed the last.
            block = default_session().malloc(max(int(size), 1), self._number(), stream=_capi.STREAM_ANY)
            address, allocations = block.ptr, self.allocations
            # Any stream may use it, and it stays when the session is closed.
            allocations[address] = block._hold_now().export()

            def finalizer() -> None:
                allocations.pop(address, None)

            return cuda.MemoryPointer(self.context, _pointer(address), size, finalizer=finalizer)

        def get_ipc_handle(self, memory: Any) -> Any:
            raise UnsupportedError("memory from gpumemd is shared with Buffer.share(), not with Numba's IPC handles")

        def get_memory_info(self) -> Any:
            number, session = self._number(), default_session()
            return cuda.MemoryInfo(free=session.room(number), total=session.device(number).capacity)

        @property
        def interface_version(self) -> int:
            return 1

    return GpumemManager


def _pointer(address: int) -> Any:
    """An address as Numba has it: numba-cuda, which took the place of Numba's own numba.cuda, uses NVIDIA's bindings."""
    from numba import config

    if "numba_cuda" not in sys.modules and not getattr(config, "CUDA_USE_NVIDIA_BINDING", False):
        return ctypes.c_uint64(address)
    try:
        from cuda.bindings.driver import CUdeviceptr
    except ImportError:
        from cuda.cuda import CUdeviceptr
    return CUdeviceptr(address)


def enable() -> Any:
    """Has Numba take its device memory from gpumemd. To be called before Numba's first use of a GPU. Returns the memory manager."""
    manager = _manager()
    from numba import cuda

    cuda.set_memory_manager(manager)
    return manager


def __getattr__(name: str) -> Any:
    if name == "_numba_memory_manager":  # what NUMBA_CUDA_MEMORY_MANAGER looks for
        return _manager()
    raise AttributeError(name)


__all__ = ["enable"]
