"""One byte each way around a call: with it the referee times a call by its own clock, from `GO` to `DONE`.

A call is asked for by a byte, and its end is told by a byte before anything is copied. So the outside time of a call
holds `forward` and one hand-over of the processor, whose cost the referee measures between threads of its own: a
candidate cannot make it look dearer. Frames begin with a zero byte (they are shorter than 16 MiB), signals never do.
"""

import socket
import threading
import time
from typing import Final

from kernelgate.tools.kit.statistics import median

READY: Final = b"r"
GO: Final = b"g"
DONE: Final = b"d"
ROUNDS: Final = 40
"""Hand-overs that are measured; takes about 3 ms."""


class CallSignals:
    """The candidate's side."""

    def __init__(self, conn: socket.socket) -> None:
        """Uses the candidate's line to the referee between two frames."""
        self._conn = conn

    def await_go(self) -> None:
        """Say that the next call may come and wait until it is asked for; leaves the process if the referee is gone."""
        self._conn.sendall(READY)
        if self._conn.recv(1) != GO:
            raise SystemExit(0)

    def done(self) -> None:
        """Say that the call has returned."""
        self._conn.sendall(DONE)


def round_trip_us() -> float:
    """What `GO` and `DONE` cost beside the call, µs: the lower quartile of some, between threads of this process.

    The lower one, so that what is taken off a candidate's time is never too much.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def echo() -> None:
            while theirs.recv(1):
                theirs.sendall(DONE)

        echoing = threading.Thread(target=echo, daemon=True)
        echoing.start()
        rounds_us: list[float] = []
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            ours.sendall(GO)
            ours.recv(1)
            rounds_us.append((time.perf_counter_ns() - start) / 1e3)
        ours.shutdown(socket.SHUT_WR)
        echoing.join()
    return median(sorted(rounds_us)[: ROUNDS // 2])
