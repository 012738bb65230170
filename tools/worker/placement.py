"""Which processor a single-threaded side runs on: the same one for baseline and candidate, none of the conductor's.

Both are then woken from another core, find the same caches, and share that core's disturbances within a pair. Left to
the scheduler, a call is woken now on the core of whoever asks and now on another: that alone made 180 µs of 58.
"""

import os
from functools import cache


@cache
def _cores() -> frozenset[int]:
    """Those that this process may use, as it began."""
    return frozenset(os.sched_getaffinity(0))


def take_place(threads: int) -> None:
    """Run the calling thread where calls are timed. Does nothing with several threads, or on a single core."""
    if threads == 1 and len(_cores()) > 1:
        os.sched_setaffinity(0, {max(_cores())})


def leave_place(threads: int) -> None:
    """Keep the calling thread off that core; with several threads it may use all."""
    if len(_cores()) > 1:
        os.sched_setaffinity(0, _cores() - {max(_cores())} if threads == 1 else _cores())
