"""A GPU made of shared memory and the CPU's clock: the code for CUDA runs on it, its kernels do not.

`install()` replaces, in a process about to be forked, what that code asks of torch and the driver. Nothing waits,
so only logic can be tested on it: what is lent, forgotten and freed, what is measured, who is told what.
"""

import contextlib
import ctypes
import mmap
import os
import tempfile
import time
from types import SimpleNamespace

import torch

from kernelgate.tools.worker import (
    candidate,
    cuda_bench,
    cuda_candidate,
    cuda_ceilings,
    cuda_driver,
    cuda_lending,
    cuda_rehearsal,
    cuda_timing,
    referee,
    signals,
)

CACHE_BYTES = 1 << 20
FREE_BYTES = 8 << 30
BUSY = "busy"
SLICE_S = 0.002


class FakeDriver:
    """Allocations are files in a folder; a handle is a file's name."""

    folder = ""
    freed = 0

    def __init__(self) -> None:
        self._mapped: dict[int, tuple[mmap.mmap, str]] = {}

    def allocate(self, size_bytes: int) -> int:
        descriptor, path = tempfile.mkstemp(dir=self.folder)
        os.ftruncate(descriptor, size_bytes)
        return self._map(descriptor, path)

    def free(self, address: int) -> None:
        memory, path = self._mapped.pop(address)
        os.unlink(path)
        FakeDriver.freed += 1
        self._scrub(memory)

    def export(self, address: int) -> bytes:
        return os.path.basename(self._mapped[address][1]).encode().ljust(cuda_driver.HANDLE_BYTES, b"\0")

    def open(self, handle: bytes) -> int:
        path = os.path.join(self.folder, handle.rstrip(b"\0").decode())
        return self._map(os.open(path, os.O_RDWR), path)

    def close(self, address: int) -> None:
        self._mapped.pop(address)

    def unpin_cache(self) -> None:
        """There is none."""

    def _map(self, descriptor: int, path: str) -> int:
        memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        os.close(descriptor)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._mapped[address] = (memory, path)
        return address

    def _scrub(self, memory: mmap.mmap) -> None:
        """Whoever reads freed memory shall notice."""
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0xAB, len(memory))


class FakeEvent:
    """Happens at once."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self._at_ns = 0

    def record(self) -> None:
        self._at_ns = time.perf_counter_ns()

    def query(self) -> bool:
        return False

    def elapsed_time(self, other: "FakeEvent") -> float:
        return (other._at_ns - self._at_ns) / 1e6


def keep_busy() -> None:
    """What a kernel without an end does, as others see it: their work waits for its turn."""
    open(os.path.join(FakeDriver.folder, BUSY), "w").close()


def end_busy() -> None:
    """The device is idle again."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(FakeDriver.folder, BUSY))


def synchronize() -> None:
    """Nothing is ever under way but what keeps the device busy."""
    if os.path.exists(os.path.join(FakeDriver.folder, BUSY)):
        time.sleep(SLICE_S)


def install(folder: str) -> None:
    """For this process and those that it forks."""
    FakeDriver.folder = folder
    for module in (candidate, cuda_ceilings, cuda_driver, cuda_lending, cuda_rehearsal, cuda_timing, referee):
        module.CUDA_DEVICE = "cpu"
    for module in (cuda_candidate, cuda_rehearsal, referee):
        module.start_cuda = FakeDriver
    referee.observe = lambda uuid: {"sm_clock_mhz": 1}
    cuda_timing._SLEEP = lambda cycles: time.sleep(cycles / cuda_timing.CYCLES_PER_US / 1e6)
    cuda_timing._SYNCHRONIZE = synchronize
    cuda_timing._EVENT = FakeEvent
    cuda_timing.OUTSIDE_ERROR_US = 2_000.0  # nothing is enqueued ahead here: the host's gaps count
    signals.SPIN_S = 0.0  # two processors are few: who spins takes one from whom it waits for
    cuda_bench.CONTEXT_BYTES = 1
    cuda_ceilings.COPY_BYTES = 1 << 20
    cuda_ceilings.MATMUL_SIZE = 64
    torch.cuda.synchronize = lambda: None
    torch.cuda.empty_cache = lambda: None
    torch.cuda._sleep = cuda_timing._SLEEP
    torch.cuda.mem_get_info = lambda *_: (FREE_BYTES, FREE_BYTES)
    torch.cuda.memory_reserved = torch.cuda.memory_allocated = lambda *_: 0
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(L2_cache_size=CACHE_BYTES)
