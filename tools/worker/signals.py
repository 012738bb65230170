"""One byte each way around a call: with it the referee times a call by its own clock, from `GO` to `DONE`.

A call is asked for by a byte, and its end is told by a byte before anything is copied. So the outside time of a call
holds `forward` and one hand-over of the processor, whose cost the referee measures between threads of its own: a
candidate cannot make it look dearer. Frames begin with a zero byte (they are shorter than 16 MiB), signals never do.
"""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker.placement import take_place

READY: Final = b"r"
GO: Final = b"g"
RETURNED: Final = b"t"
DONE: Final = b"d"
PLACES: Final = b"123456789"
"""Which of the sets of buffers an answer goes into."""
T = TypeVar("T")
_BESIDE: Final = ThreadPoolExecutor(1, thread_name_prefix="beside")
"""One thread for all rows, started with the first."""
SPIN_S: Final = 0.05
"""A wait that takes longer is no part of a short block: then the processor may sleep."""
ROUNDS: Final = 40
"""Hand-overs that are measured; takes about 3 ms."""


def nothing(position: int) -> None:
    """Nothing to be done before or behind a call."""


@dataclass(frozen=True)
class Around:
    """What the referee does around a call, with the call's position."""

    at_ready: Callable[[int], None] = nothing
    """After the other side is ready, before it is asked to go. Inputs get their values here, so that nothing can be
    computed from them before the clock runs."""
    at_done: Callable[[int], None] = nothing
    """Right after it has said that the call is done."""
    place: Callable[[int], int] | None = None
    """Which set of buffers the answer goes into; told once `forward` has returned. None where that is not asked."""


class OutOfTurn(Exception):
    """Another byte than was expected."""


def conduct(sock: socket.socket, calls: int, around: Around, *, spin: bool = False) -> list[float]:
    """Ask for each call and time it by our clock, µs, hand-over included.

    With `spin` the processor does not sleep while it waits: waking up takes 50 to 200 µs. Ends early where a frame
    comes instead of a signal, or the stream ends. Raises `OutOfTurn` and OSError.
    """
    walls_us: list[float] = []
    for position in range(calls):
        if not _signalled(sock, READY):
            break
        around.at_ready(position)
        start = time.perf_counter_ns()
        sock.sendall(GO)
        if around.place is not None:
            if not _signalled(sock, RETURNED):
                break
            sock.sendall(PLACES[around.place(position) :][:1])
        if not _signalled(sock, DONE, spin=spin):
            break
        walls_us.append((time.perf_counter_ns() - start) / 1e3)
        around.at_done(position)
    return walls_us


def _signalled(sock: socket.socket, expected: bytes, *, spin: bool = False) -> bool:
    """Wait for a byte; False where a frame begins or the stream ends."""
    if spin:
        spin_until_readable(sock)
    byte = sock.recv(1, socket.MSG_PEEK)
    if byte in (b"", b"\0"):
        return False
    sock.recv(1)
    if byte != expected:
        raise OutOfTurn
    return True


def spin_until_readable(sock: socket.socket) -> None:
    """Until there is something to read, or for `SPIN_S` at most."""
    end_s = time.monotonic() + SPIN_S
    while time.monotonic() < end_s:
        try:
            sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        return


def conducted_here(work: Callable[["CallSignals"], T], calls: int, around: Around) -> tuple[T, list[float]]:
    """Make calls in this thread and have another one conduct them, as if this were another process.

    The baseline is timed so: it waits, wakes up and hands over as the candidate does, on a first thread as well, whose
    heap is another than that of further ones.
    """
    ours, theirs = socket.socketpair()
    side = _SideHere(theirs)

    def at_done(position: int) -> None:
        side.noted.release()
        around.at_done(position)

    with ours:
        conducted = _BESIDE.submit(conduct, ours, calls, replace(around, at_done=at_done))
        with theirs:  # closed with the work: a failure must not leave the other waiting for a signal
            made = work(side)
        return made, conducted.result()


class CallSignals:
    """The candidate's side."""

    def __init__(self, conn: socket.socket) -> None:
        """Uses the candidate's line to the referee between two frames."""
        self._conn = conn

    def await_go(self, *, spin: bool = False) -> None:
        """Say that the next call may come and wait until it is asked for; leaves the process if the referee is gone."""
        self._conn.sendall(READY)
        if spin:
            spin_until_readable(self._conn)
        if self._conn.recv(1) != GO:
            raise SystemExit(0)

    def returned(self) -> int:
        """Say that `forward` has returned, and hear into which set of buffers its answer goes."""
        self._conn.sendall(RETURNED)
        return max(0, PLACES.find(self._conn.recv(1)))

    def done(self) -> None:
        """Say that the answer is in place."""
        self._conn.sendall(DONE)


class _SideHere(CallSignals):
    """A side in this process: it waits until its `DONE` was noted, or both would want the interpreter at once."""

    def __init__(self, conn: socket.socket) -> None:
        super().__init__(conn)
        self.noted = threading.Semaphore(0)

    def done(self) -> None:
        super().done()
        self.noted.acquire()


def round_trip_us(threads: int) -> float:
    """What the signals of a call cost beside it, two there and two back, µs: the lower quartile of some.

    Between threads of this process, placed as the sides of a call are (`threads` of the run; 0: anywhere). The lower
    one, so that what is taken off a call is never too much.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def echo() -> None:
            take_place(threads)
            while theirs.recv(1):
                theirs.sendall(RETURNED)
                theirs.recv(1)
                theirs.sendall(DONE)

        echoing = threading.Thread(target=echo, daemon=True)
        echoing.start()
        rounds_us: list[float] = []
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            for signal in (GO, PLACES[:1]):
                ours.sendall(signal)
                ours.recv(1)
            rounds_us.append((time.perf_counter_ns() - start) / 1e3)
        ours.shutdown(socket.SHUT_WR)
        echoing.join()
    return median(sorted(rounds_us)[: ROUNDS // 2])
