"""How much memory a call will need, and how much there is: refuse before anybody is killed."""

import contextlib
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Final

import torch

from kernelgate.tools.worker.confine import CPU_ADDRESS_SPACE_BYTES

CALL_OVERHEAD_BYTES: Final = 256 << 20
"""Float64 pieces of a comparison, and what interpreters and allocators of two processes take beside tensors."""
CANDIDATE_BYTES: Final = CPU_ADDRESS_SPACE_BYTES - (3 << 30)
"""Of a candidate's address space on the CPU what is left beside torch's libraries and their heaps."""
USABLE_SHARE: Final = 0.8
"""Of the free memory: the rest of the host lives too."""
CUDA_OVERHEAD_BYTES: Final = 2 << 30
"""On a GPU: the context of the candidate's process, both flush buffers, kernels, pieces of a comparison."""
CUDA_USABLE_SHARE: Final = 0.95


class DoesNotFit(Exception):
    """A call would need more memory than there is. The message is one sentence."""

    def __init__(self, what: str, needed_bytes: int, allowed_bytes: int) -> None:
        """`what` names the workload."""
        super().__init__(
            f"{what} needs {needed_bytes:,} bytes of memory; {allowed_bytes:,} may be used here: choose a smaller one"
        )
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes


def call_bytes(inputs: int, outputs: int, weights: int) -> int:
    """Memory of one comparison on the CPU, both processes together.

    Inputs are held privately and lent; outputs are expected, lent, and made on either side; weights lie in both
    modules and, while they are handed over, in the parcel.
    """
    return 2 * inputs + 6 * outputs + 3 * weights + CALL_OVERHEAD_BYTES


def cuda_call_bytes(inputs: int, outputs: int, weights: int) -> int:
    """Device memory of one comparison, both processes together.

    Some distributions are drawn through two more tensors of an input's size, before anything is lent.
    """
    return max(2 * inputs + 4 * outputs, 3 * inputs + outputs) + 3 * weights + CUDA_OVERHEAD_BYTES


def candidate_bytes(inputs: int, outputs: int, weights: int) -> int:
    """Of that, what an honest candidate's process maps: what it is lent, its answer, its module."""
    return inputs + 4 * outputs + 2 * weights


def available_bytes(device: str = "cpu") -> int:
    """What may be used now of a device's memory.

    On the CPU from the kernel's estimate of memory that is free without swapping; on a GPU what is free, or kept by
    this process for later.
    """
    if device != "cpu":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int((free + kept) * CUDA_USABLE_SHARE)
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(int(rest.split()[0]) * 1024 * USABLE_SHARE)
    except OSError:  # no /proc in this namespace: ask the system call, which does not count what caches could give up
        return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * USABLE_SHARE)
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * USABLE_SHARE)


def what_was_lacking(error: torch.OutOfMemoryError) -> str:
    """How much it wanted; behind that torch tells of its own settings, which nobody can change here."""
    return ". ".join(str(error).split(". ", 2)[:2])


def whole_bytes(device: str) -> int:
    """What could be used of a GPU's memory if nobody else had any."""
    return int(torch.cuda.mem_get_info(device)[1] * CUDA_USABLE_SHARE)


@contextlib.contextmanager
def bounded(more_bytes: int) -> Generator[None, None, None]:
    """Let this process map so much more and no further: an allocation then fails where the kernel would have killed.

    Sets and restores the soft limit of the address space. Not for processes that use CUDA, which reserves terabytes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
    known = [value for value in (soft, hard, limit) if value != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
