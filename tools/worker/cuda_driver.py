"""The few calls of NVIDIA's driver that torch does not offer: memory that other processes may open, and its handles.

Only for children of the supervisor. A process that has called into the driver must never be forked.
"""

import ctypes
from typing import Final

import torch

CUDA_DEVICE: Final = "cuda:0"
"""A child sees one device only, the one whose UUID its environment names, whatever its number on the host."""
LIBRARY: Final = "libcuda.so.1"
HANDLE_BYTES: Final = 64
_OUT_OF_MEMORY: Final = 2
_LAZY_PEER_ACCESS: Final = 1
"""The only flag that opening a handle takes."""


class CudaFailure(Exception):
    """CUDA cannot be used, or a call of the driver failed: one sentence."""


class DeviceMemoryFull(MemoryError):
    """The device has no room for an allocation; the message is one sentence."""


class _Handle(ctypes.Structure):
    """`CUipcMemHandle`, passed by value."""

    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class Driver:
    """The driver, in a thread whose current context is torch's own. Addresses are plain integers."""

    def __init__(self) -> None:
        """Raises `CudaFailure` where there is no driver."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaFailure(
                f"NVIDIA's driver library {LIBRARY} cannot be loaded ({error}): is it installed?"
            ) from None

    def allocate(self, size_bytes: int) -> int:
        """Device memory of its own; raises `DeviceMemoryFull`. To be given back with `free`."""
        address = ctypes.c_uint64()
        code = self._library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes))
        if code == _OUT_OF_MEMORY:
            torch.cuda.empty_cache()  # what torch keeps for later is ours to take
            code = self._library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes))
        if code == _OUT_OF_MEMORY:
            free, total = torch.cuda.mem_get_info()
            raise DeviceMemoryFull(
                f"the device has no room for {size_bytes:,} bytes of lent memory: {free:,} of {total:,} are free; "
                "close other processes that use this GPU, or choose a smaller workload"
            )
        self._check(code, "allocating lent memory")
        return int(address.value)

    def free(self, address: int) -> None:
        """Give memory back; waits for the device."""
        self._check(self._library.cuMemFree_v2(ctypes.c_uint64(address)), "freeing lent memory")

    def export(self, address: int) -> bytes:
        """What another process of the same user opens the allocation with."""
        handle = _Handle()
        self._check(
            self._library.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)), "exporting lent memory"
        )
        return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)

    def open(self, handle: bytes) -> int:
        """Map what another process exported; raises ValueError for what is no handle."""
        if len(handle) != HANDLE_BYTES:
            raise ValueError(f"a handle of {len(handle)} bytes instead of {HANDLE_BYTES}")
        address = ctypes.c_uint64()
        copied = _Handle.from_buffer_copy(handle)
        code = self._library.cuIpcOpenMemHandle_v2(ctypes.byref(address), copied, ctypes.c_uint(_LAZY_PEER_ACCESS))
        self._check(code, "opening lent memory")
        return int(address.value)

    def close(self, address: int) -> None:
        """Unmap it again."""
        self._check(self._library.cuIpcCloseMemHandle(ctypes.c_uint64(address)), "closing lent memory")

    def unpin_cache(self) -> None:
        """Turn cache lines that were made to persist into ordinary ones."""
        self._check(self._library.cuCtxResetPersistingL2Cache(), "resetting persisting cache lines")

    def _check(self, code: int, what: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        said = (text.value or b"an error without a name").decode(errors="replace")
        raise CudaFailure(f"CUDA error {code} while {what}: {said}")


def start_cuda() -> Driver:
    """Make the device's context in this thread, about 0.3 s; raises `CudaFailure` with what is missing."""
    driver = Driver()
    if torch.version.cuda is None:
        raise CudaFailure("this build of torch has no CUDA: install the one for CUDA")
    try:
        torch.cuda.set_device(CUDA_DEVICE)
        torch.zeros(1, device=CUDA_DEVICE)
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise CudaFailure(f"CUDA cannot be started on this device: {_first_line(error)}") from error
    return driver


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
