"""The C heap, set alike in referee and candidate: freed memory stays with the process while calls are timed.

By default glibc asks the kernel anew for each large block until it has seen a larger one freed, so two processes with
different pasts time the same operation differently: a softmax over 4 MiB of temporaries read 3.7 ms in a process that
had freed larger blocks, and 11.5 ms in a fresh one (2-core host, torch 2.13, page faults of each temporary).
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
"""Names of `mallopt`'s parameters (malloc.h)."""
_NEVER_TRIM: Final = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Serve all blocks from one heap that is not given back by itself; False where the C library cannot."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER_TRIM))


def give_freed_memory_back() -> None:
    """Return what is free now to the system: between calls, when nothing is timed."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # not glibc: it never kept any
        return
