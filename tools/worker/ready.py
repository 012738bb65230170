"""A workload made ready for timing: its pool, the baseline's side of it, and how many entries memory allows."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from kernelgate.tools.worker import memory
from kernelgate.tools.worker.handover import Handover
from kernelgate.tools.worker.inputs import Drawn, reseed
from kernelgate.tools.worker.pool import InputPool
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.structure import call_arguments
from kernelgate.tools.worker.timing import time_calls

POOL_BYTES: Final = 512 << 20
"""Most memory of a prepared pool, both processes together."""
MAX_ENTRIES: Final = 64
WARM_US: Final = 5_000.0
"""Warm calls last about so long together; at least one, at most `MAX_WARM_CALLS`."""
MAX_WARM_CALLS: Final = 20
REMEMBERED_ROWS: Final = 15
HANDOVER_SLACK: Final = 1.5


@dataclass
class ReadyWorkload:
    """What `block` works on."""

    held: HeldWorkload
    pool: InputPool
    limit: int
    """Most entries."""
    expected: Any
    """An answer of the reference: the form of all answers."""
    handovers_us: list[float] = field(default_factory=list[float])
    """Putting one answer in place and describing it, measured on the baseline, row by row."""
    places: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict[int, dict[str, torch.Tensor]])
    """The baseline's own answer buffers: its answers are never in lent memory."""

    @property
    def handover_us(self) -> float:
        """What an answer's hand-over costs: the candidate's wall clock contains it, though it is not its work.

        A median, so that one disturbed row does not take time off a candidate's wall clock, and near the least seen.
        """
        recent = self.handovers_us[-REMEMBERED_ROWS:]
        return min(statistics.median(recent), HANDOVER_SLACK * min(recent)) if recent else 0.0

    def extend_places(self) -> None:
        """Answer buffers of the baseline for entries that have none."""
        for index, entry in enumerate(self.pool.entries):
            if index not in self.places:
                self.places[index] = {path: torch.empty_like(answer) for path, answer in entry.answers.items()}

    def further_inputs(self, calls: int) -> list[Drawn]:
        """Inputs that the pool lacks for a block of so many calls, as far as memory allows."""
        missing = min(calls, self.limit) - len(self.pool.entries)
        return [self.pool.variant(lambda: self.held.draw("original")) for _ in range(missing)]

    def time_baseline(self, order: Sequence[int], seed: int) -> tuple[list[float], float]:
        """Samples and wall clock (µs) of the reference on the lent inputs, through the code that times candidates."""
        built = self.held.built
        pool = {index: call_arguments(self.pool.entries[index].lent) for index in order}
        handover = Handover(self.places)
        spent_ns = 0

        def take(index: int, output: object) -> None:
            nonlocal spent_ns
            start = time.perf_counter_ns()
            handover.take(index, output)
            spent_ns += time.perf_counter_ns() - start

        before = built.before_call(seed)
        reseed(seed)
        start_ns = time.perf_counter_ns()
        samples = time_calls(built.module, pool, order, before, take)
        end_ns = time.perf_counter_ns()
        handover.answers()
        wall_us = (end_ns - start_ns - spent_ns) / 1e3
        self.handovers_us.append((spent_ns + time.perf_counter_ns() - end_ns) / 1e3 / len(order))
        return [sample / 1e3 for sample in samples], wall_us


def entries_that_fit(held: HeldWorkload) -> int:
    """How many pool entries memory allows; at least one."""
    each = 2 * held.sizes.inputs_bytes + 4 * held.sizes.outputs_bytes
    room = min(POOL_BYTES, memory.available_bytes() // 4)
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
