"""A workload made ready for timing: its pool, the baseline's side of it, and how many entries memory allows."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from kernelgate.tools.worker import memory
from kernelgate.tools.worker.handover import Handover
from kernelgate.tools.worker.inputs import Drawn, reseed
from kernelgate.tools.worker.lending import Loan
from kernelgate.tools.worker.placement import leave_place, take_place
from kernelgate.tools.worker.pool import InputPool
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.signals import Around, CallSignals, conducted_here, round_trip_us
from kernelgate.tools.worker.structure import call_arguments
from kernelgate.tools.worker.timing import time_calls

POOL_BYTES: Final = 512 << 20
"""Most memory of a prepared pool, both processes together."""
CUDA_POOL_BYTES: Final = 8 << 30
"""On a GPU: twelve entries of 128 MB each way take six of it."""
LEAST_SHARE: Final = 0.05
"""A call shorter than the hand-over is still given this share of what was seen."""
MAX_ENTRIES: Final = 64
WARM_US: Final = 5_000.0
"""Warm calls last about so long together; at least one, at most `MAX_WARM_CALLS`."""
MAX_WARM_CALLS: Final = 20


class Preparing:
    """Seconds until first calls were through: import, construction, and all that compiles meanwhile."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._load_s = 0.0

    def note_load(self, began_s: float) -> None:
        """The import, which counts with the next first call; times are of `time.perf_counter`."""
        self._load_s += time.perf_counter() - began_s

    def note_first_call(self, began_s: float | None) -> float:
        """Count a first call that is through now, and all that was done for it. None: it was no first one."""
        if began_s is None:
            return 0.0
        added_s, self._load_s = time.perf_counter() - began_s + self._load_s, 0.0
        self.total_s += added_s
        return added_s


@dataclass
class ReadyWorkload:
    """What `block` works on."""

    held: HeldWorkload
    pool: InputPool
    limit: int
    """Most entries."""
    expected: Any
    """An answer of the reference: the form of all answers."""
    places: dict[int, list[dict[str, torch.Tensor]]] = field(default_factory=dict[int, list[dict[str, torch.Tensor]]])
    """The baseline's own answer buffers: of the same kind of memory, so that a copy costs the same, but never given."""
    loans: list[Loan] = field(default_factory=list[Loan])
    """They keep those buffers alive."""

    round_trip_us: float = field(init=False)
    """What is taken off the time of a call, on both sides."""

    def __post_init__(self) -> None:
        """Measures the hand-over, for 3 ms."""
        self.round_trip_us = round_trip_us(torch.get_num_threads() if self.held.device == "cpu" else 0)

    def extend_places(self) -> None:
        """Answer buffers of the baseline for entries that have none."""
        for index, entry in enumerate(self.pool.entries):
            if index not in self.places:
                loan, self.places[index] = self.pool.private_answers(entry)
                self.loans.append(loan)

    def further_inputs(self, calls: int) -> list[Drawn]:
        """Inputs that the pool lacks for a block of so many calls, as far as memory allows."""
        missing = min(calls, self.limit) - len(self.pool.entries)
        return [self.pool.variant(lambda: self.held.draw("original")) for _ in range(missing)]

    def outside_us(self, walls_us: Sequence[float]) -> tuple[float, ...]:
        """Times of calls by the referee's clock, without the hand-over."""
        return tuple(max(LEAST_SHARE * wall_us, wall_us - self.round_trip_us) for wall_us in walls_us)

    def time_baseline(self, order: Sequence[int], secret: random.Random, *, refresh: bool) -> tuple[float, ...]:
        """Time the reference on the lent inputs as a candidate is timed: the same loop, the same clock, µs.

        With `refresh`, inputs get new values right before their call, as a candidate's do.
        """
        built = self.held.built
        pool = {index: call_arguments(self.pool.entries[index].lent) for index in order}
        handover = Handover(self.places)
        seed = secret.getrandbits(31)
        restore = built.before_call(seed)
        threads = torch.get_num_threads()

        def work(signals: CallSignals) -> list[int]:
            def before() -> None:
                restore()
                signals.await_go()

            def after(index: int, output: object) -> None:
                handover.take(index, output, signals.returned())
                signals.done()

            reseed(seed)
            take_place(threads)
            try:
                return time_calls(built.module, pool, order, before, after)
            finally:
                leave_place(threads)

        def at_ready(position: int) -> None:
            if refresh:
                # As a candidate's are poisoned: from another core than the one that writes next.
                for answer in (answer for places in self.places[order[position]] for answer in places.values()):
                    answer.zero_()
                self.pool.entries[order[position]].refresh(secret, lambda: self.held.draw("original"))

        def place(position: int) -> int:
            return secret.randrange(len(self.places[order[position]]))

        _, walls_us = conducted_here(work, len(order), Around(at_ready, place=place))
        return self.outside_us(walls_us)


def entries_that_fit(held: HeldWorkload) -> int:
    """How many pool entries memory allows; at least one."""
    sets = 8 if held.device == "cpu" else 4  # three of either side, what is made, what is expected
    each = 2 * held.sizes.inputs_bytes + sets * held.sizes.outputs_bytes
    most = POOL_BYTES if held.device == "cpu" else CUDA_POOL_BYTES
    room = min(most, memory.available_bytes(held.device) // 4)
    return max(1, min(MAX_ENTRIES, room // max(each, 1)))


def rotation(calls: int, entries: int) -> list[int]:
    """Each entry in turn."""
    return [index % entries for index in range(calls)]


def warm_calls(call_us: float) -> int:
    """How many calls to warm up with."""
    return max(1, min(MAX_WARM_CALLS, int(WARM_US / max(call_us, 1.0))))


def mean_us(samples: Sequence[float]) -> float:
    """The mean of some samples."""
    return sum(samples) / len(samples)
