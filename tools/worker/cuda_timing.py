"""Timing blocks of calls on a GPU: the one loop that both sides use, and what is made of the referee's wall clock.

A block: a sleeping kernel, then for each call a flush of the cache, an event, `forward`, an event, and the copy of the
answer into its buffer; then a wait for the whole device. The calls are enqueued while the device sleeps, so that the
host's gaps between launches do not count (13 µs fell to 4 for one small kernel, 31 to 8 for three). Events carry 2 to
3 µs of their own on calls of a few µs.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import torch

from kernelgate.tools.kit.statistics import median
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE, Driver
from kernelgate.tools.worker.timing import Arguments, nothing

FLUSH_SHARE: Final = 2
"""So many times the second-level cache is written before each call."""
CYCLES_PER_US: Final = 2_000
"""Of a sleeping kernel, at about 2 GHz; on a slower clock it sleeps longer, which does no harm."""
MOST_SLEEP_US: Final = 20_000.0
LEAST_SLEEP_US: Final = 150.0
FIRST_ENQUEUE_US: Final = 60.0
"""A call's time on the host until it is known: a flush, two events, a few launches, a copy."""
ONCE_US: Final = 150.0
"""Enqueueing takes so long once in a block, beside its calls."""
ROOM: Final = 1.5
"""The device sleeps so many times longer than enqueueing is expected to take."""
PACE_KEPT: Final = 3
"""So many blocks are remembered for that: a single slow one does not lengthen all that follow."""
MOST_DOUBLINGS: Final = 3
"""A block that was not covered is measured again behind twice the sleep, and so on."""
SLEEP_STEP: Final = 1.25
"""Sleeps are rounded up to steps: blocks that sleep alike have the same surroundings."""
HOPELESS: Final = 4
"""After so many blocks in a row whose calls were not enqueued in time, the side is not waited for any more: it waits
for the device itself, or launches more than fits the device's queue."""
QUIET_ROOM_US: Final = 300.0
"""On a device that others use as well an answer waits for their slice of its time, about 2 ms, to end."""
QUIET_ANSWERS: Final = 3
"""So many in a row: with others at work one in several comes at once all the same."""
LEAST_SHARE: Final = 0.05
"""A call shorter than what is taken off is still given this share of what was seen."""
OUTSIDE_SLACK_US: Final = 400.0
"""By so much two processes may differ in what a block costs beside its calls: waking up, one hand-over."""
OUTSIDE_ERROR_US: Final = 15.0
"""So much the outside time of a call may be off, with the smallest blocks that are measured."""
UNCOVERED_ERROR_US: Final = 150.0
"""The same where the candidate waits for the device in each call: the wall clock then sees the host's gaps as well."""
OUTSIDE_CLOCK: Final = "referee's wall clock: blocks of two lengths, flush and copies taken off"
_CLOCK: Final = time.perf_counter_ns
# Bound before any candidate is loaded; what a candidate's process says of its time is a claim all the same.
_SLEEP: Final[Callable[[int], None]] = torch.cuda._sleep  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]  # torch has no public one
_SYNCHRONIZE: Final = torch.cuda.synchronize
_EVENT: Final[Callable[..., "Event"]] = torch.cuda.Event

Side = Literal["baseline", "candidate"]


class Event(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self) -> None:
        """Behind what the current stream holds now."""
        ...

    def query(self) -> bool:
        """Whether it has happened."""
        ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds to a later one."""
        ...


def new_event() -> Event:
    """An event that keeps its time."""
    return _EVENT(enable_timing=True)


def cache_bytes() -> int:
    """Size of the device's second-level cache."""
    cuda: Any = torch.cuda  # it has no type for the properties
    return int(cuda.get_device_properties(CUDA_DEVICE).L2_cache_size)


@dataclass(frozen=True)
class BlockTimes:
    """A block by the clock of the process that ran it."""

    samples_ns: tuple[int, ...]
    """One per call, from event to event."""
    enqueue_us: float
    """How long the host took for all calls."""
    covered: bool
    """All calls were enqueued before the first began."""


class CudaTimer:
    """Runs blocks on this process's device. Holds a buffer of twice the cache, and events that are used again."""

    def __init__(self, driver: Driver) -> None:
        """In a process whose CUDA was started."""
        self._driver = driver
        size_bytes = FLUSH_SHARE * max(cache_bytes(), 1 << 20)
        self._flush = torch.empty(size_bytes, dtype=torch.uint8, device=CUDA_DEVICE)
        self._events: list[tuple[Event, Event]] = []
        self._word = torch.zeros(1, device=CUDA_DEVICE)
        self._least_answer_us = math.inf

    def time_block(
        self,
        forward: Callable[..., Any],
        pool: Mapping[int, Arguments],
        order: Sequence[int],
        before: Callable[[], None],
        after: Callable[[int, Any], None],
        sleep_us: float,
        finished: Callable[[], None] = nothing,
    ) -> BlockTimes:
        """Call `forward` on pool entries in this order, without gradients, and wait for the device.

        The window between the events holds `forward` only. `before` (buffers put back) and the flush lie in front of
        it; `after` (the answer's copy) lies right behind it on the same stream, so that late work cannot mend an
        answer. `finished` is told when the device is idle again, before the events are read.
        """
        pairs = self._pairs(len(order))
        self._driver.unpin_cache()
        with torch.no_grad():
            start = _CLOCK()
            _SLEEP(int(sleep_us * CYCLES_PER_US))
            for index, (begin, end) in zip(order, pairs, strict=True):
                positional, named = pool[index]
                before()
                self._flush.zero_()
                begin.record()
                output = forward(*positional, **named)
                end.record()
                after(index, output)
                del output
            covered = not pairs[0][0].query()
            enqueue_us = (_CLOCK() - start) / 1e3
        _SYNCHRONIZE()
        finished()
        # An event resolves half a microsecond; elapsed_time is in milliseconds.
        samples = tuple(max(0, round(begin.elapsed_time(end) * 1e6)) for begin, end in pairs)
        return BlockTimes(samples, enqueue_us, covered)

    def wake(self) -> None:
        """Have the device turn to this process: the turn takes some 100 µs, and is no part of what follows."""
        self._flush.zero_()
        _SYNCHRONIZE()

    def learn_how_soon_it_answers(self) -> None:
        """While no work of others can be on the device; what was learned on a quieter one stays."""
        self._answer_us()
        self._least_answer_us = min(self._least_answer_us, median([self._answer_us() for _ in range(QUIET_ANSWERS)]))

    def becomes_quiet(self, limit_s: float) -> bool:
        """Wait until nobody else has work on the device; False if somebody still has when the time is up."""
        return becomes_quiet(self._answer_us, self._least_answer_us + QUIET_ROOM_US, limit_s)

    def _answer_us(self) -> float:
        """How long the smallest piece of work takes, there and back."""
        start = _CLOCK()
        self._word.zero_()
        _SYNCHRONIZE()
        return (_CLOCK() - start) / 1e3

    def _pairs(self, count: int) -> list[tuple[Event, Event]]:
        while len(self._events) < count:
            self._events.append((new_event(), new_event()))
        return self._events[:count]


def becomes_quiet(answer_us: Callable[[], float], most_us: float, limit_s: float) -> bool:
    """Whether `QUIET_ANSWERS` in a row come within `most_us`, before the time is up."""
    end_s = time.monotonic() + limit_s
    in_a_row = 0
    while in_a_row < QUIET_ANSWERS:
        in_a_row = in_a_row + 1 if answer_us() <= most_us else 0
        if in_a_row == 0 and time.monotonic() > end_s:
            return False
    return True


@dataclass
class Pace:
    """How long the device must sleep at the front of a block, for both sides alike; learned from the blocks."""

    enqueue_us: dict[Side, deque[float]] = field(default_factory=dict["Side", deque[float]])
    """Of one call, in the last blocks of a side; none of its first, in which kernels are loaded or compiled."""
    missed: dict[Side, int] = field(default_factory=dict["Side", int])
    """Blocks in a row whose calls were not enqueued in time."""
    explained: dict[Side, int] = field(default_factory=dict["Side", int])
    """Of these, those that showed that a call takes longer than was known: the sleep follows from that."""

    def sleep_us(self, calls: int) -> float:
        """For a block of at most so many calls."""
        sides: tuple[Side, ...] = ("baseline", "candidate")
        expected_us = max((self._expected_us(side) for side in sides if not self.hopeless(side)), default=0.0)
        sleep_us = LEAST_SLEEP_US
        while sleep_us < min(MOST_SLEEP_US, ROOM * (ONCE_US + calls * expected_us)):
            sleep_us *= SLEEP_STEP
        return min(MOST_SLEEP_US, sleep_us)

    def _expected_us(self, side: Side) -> float:
        seen = sorted(self.enqueue_us.get(side, ())) or [FIRST_ENQUEUE_US]
        unexplained = self.missed.get(side, 0) - self.explained.get(side, 0)
        return seen[(len(seen) - 1) // 2] * 2.0 ** min(unexplained, MOST_DOUBLINGS)

    def hopeless(self, side: Side) -> bool:
        """Whether no sleep is long enough for a side."""
        return self.missed.get(side, 0) >= HOPELESS

    def note(self, side: Side, calls: int, enqueue_us: float, *, covered: bool) -> None:
        """Learn from a block."""
        if side not in self.enqueue_us:
            self.enqueue_us[side] = deque(maxlen=PACE_KEPT)
            return
        each_us, expected_us = max(0.0, enqueue_us - ONCE_US) / calls, self._expected_us(side)
        if not covered and each_us > expected_us:
            self.explained[side] = self.explained.get(side, 0) + 1
            self.enqueue_us[side].clear()
        self.enqueue_us[side].append(each_us)
        self.missed[side] = 0 if covered else self.missed.get(side, 0) + 1
        if covered:
            self.explained[side] = 0


@dataclass(frozen=True)
class Row:
    """A block by the referee's wall clock: from the word to begin until the device was idle again."""

    calls: int
    wall_us: float


@dataclass(frozen=True)
class Surroundings:
    """What a block costs beside its calls, measured by the referee with a forward that does nothing."""

    sleep_us: float
    """The sleep that it was measured with."""
    each_us: float
    """For each call: flush, events, copy of the answer."""
    whole_us: dict[int, float]
    """Wall clock of blocks by number of calls, the sleep and the final wait included."""

    @classmethod
    def of(cls, sleep_us: float, whole_us: dict[int, float]) -> "Surroundings":
        """From blocks of one or two lengths; of one alone what each call costs is not known: 0."""
        (short, short_us), (long, long_us) = min(whole_us.items()), max(whole_us.items())
        each_us = max(0.0, (long_us - short_us) / (long - short)) if long > short else 0.0
        return cls(sleep_us, each_us, whole_us)

    @property
    def constant_us(self) -> float:
        """Sleep and final wait alone."""
        calls, wall_us = min(self.whole_us.items())
        return wall_us - calls * self.each_us


def block_lengths(calls: int, entries: int) -> tuple[int, ...]:
    """Lengths of the runs that make up a block of about so many calls: n and 3n, no entry twice in one of them.

    Where memory allows fewer than three entries, single calls: they are long enough to be timed one by one.
    """
    short = min(max(1, round(calls / 4)), entries // 3)
    return (short, 3 * short) if short > 0 else (1,) * max(1, calls)


def outside_us(rows: Sequence[Row], around: Surroundings, constant_us: float | None) -> float:
    """Time of one call by the referee's wall clock alone, µs.

    From two lengths it is their slope: what both have in common (the sleep, waking up, a hand-over) falls out. A
    process that makes its short block last longer would flatten the slope, so a second bound holds beside it: the long
    block less what a block costs beside its calls (`constant_us`, seen in the referee's own blocks; None where the
    process is trusted). Flush and copy are taken off as the referee measured them. The bias that stays, alike on both
    sides: a flush runs into the call behind it, which events keep apart.
    """
    longest = max(rows, key=lambda row: row.calls)
    shortest = min(rows, key=lambda row: row.calls)
    if longest.calls == shortest.calls:
        gone_us = around.whole_us.get(longest.calls, around.constant_us + longest.calls * around.each_us)
        each_us = median([row.wall_us - gone_us for row in rows]) / longest.calls
        return max(each_us, LEAST_SHARE * max(longest.wall_us - around.sleep_us, 0.0) / longest.calls, 1e-3)
    slope_us = (longest.wall_us - shortest.wall_us) / (longest.calls - shortest.calls)
    if constant_us is not None:
        slope_us = max(slope_us, (longest.wall_us - constant_us - OUTSIDE_SLACK_US) / longest.calls)
    return max(slope_us - around.each_us, LEAST_SHARE * max(slope_us, 0.0), 1e-3)
