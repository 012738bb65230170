"""Paired blocks: baseline and candidate alternate in random order, and only the ratio of a pair is compared.

Sequential timing drifts (one matmul read 178 and 246 µs on the same card, docs/decisions/0004); the two blocks of a
pair share the drift. Each call is timed twice: by the candidate's process, closely, and by the referee's clock, which
no candidate can forge.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import DeviceKind, Frozen
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Block, Comparison, Fault, Prepared, Side, WorkloadFacts
from kernelgate.tools.kit.statistics import Bounds, median, median_bounds

BLOCK_US: Final = 5_000.0
"""A block lasts about so long: its median shrugs off a disturbance, and it is short against drift."""
MAX_CALLS: Final = 32
"""Bounds the samples that a frame must carry: 192 pairs of four workloads are about half of it."""
MAX_CUDA_CALLS: Final = 12
"""On a GPU the pool holds inputs for most calls of a block, and 24 pairs of 12 calls told ±0.3 %."""
CPU_MARGIN: Final = 0.10
"""On the CPU the baseline as its own candidate read up to 12 % slower and 9 % faster, for as long as its process lived:
another process has other pages and caches. No interval over its pairs holds that."""
POOL_ENTRIES: Final = 3
"""Inputs that a block rotates over, so that no call sees the values of the one before."""
LEAST_SHARE: Final = 0.05
"""Of the time that the referee saw of a call, so much is its own whatever the error of that clock."""
VERIFY_SHARE: Final = 1 / 3
"""Share of candidate blocks whose outputs are compared, drawn secretly; the first always is."""


class Pair(Frozen):
    """A baseline and a candidate block, measured one right after the other."""

    baseline: Block
    candidate: Block

    @property
    def ratio(self) -> float:
        """Baseline time / candidate time by each side's own clock."""
        return median(self.baseline.samples_us) / median(self.candidate.samples_us)


class WorkloadTiming(Frozen):
    """The pairs of one workload, or what kept it from being measured."""

    workload: WorkloadFacts
    prepared: Prepared | None = None
    pairs: Annotated[tuple[Pair, ...], BeforeValidator(as_tuple)] = ()
    fault: Fault | None = None
    wrong: Comparison | None = None
    """A timed output that was not right."""

    def ratios(self) -> tuple[float, ...]:
        """One per pair: above 1 the candidate is faster."""
        return tuple(pair.ratio for pair in self.pairs)

    def candidate_us(self) -> float:
        """Median time of a candidate call, µs, by its own clock."""
        return median([median(pair.candidate.samples_us) for pair in self.pairs])

    def baseline_us(self) -> float:
        """Median time of a baseline call, µs."""
        return median([median(pair.baseline.samples_us) for pair in self.pairs])

    def outside_ratios(self) -> tuple[float, ...]:
        """One per pair, by the referee's clock alone, less what a hand-over may hide."""
        hidden_us = self.prepared.hand_over_us if self.prepared is not None else 0.0
        return tuple(
            median(pair.baseline.outside_us) / (median(pair.candidate.outside_us) + hidden_us) for pair in self.pairs
        )

    def candidate_outside_us(self) -> float:
        """Median time of a candidate call by the referee's clock, µs."""
        return median([median(pair.candidate.outside_us) for pair in self.pairs])

    def most_by_outside(self, confidence: float) -> Bounds | None:
        """Of the largest ratio that the referee's clock allows, its error taken off the candidate's calls."""
        error_us = self.prepared.outside_error_us if self.prepared is not None else 0.0
        ratios: list[float] = []
        for pair in self.pairs:
            seen_us = median(pair.candidate.outside_us)
            ratios.append(median(pair.baseline.outside_us) / max(seen_us - error_us, LEAST_SHARE * seen_us))
        return median_bounds(ratios, confidence)

    def bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by own clocks."""
        return median_bounds(self.ratios(), confidence)

    def outside_bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by the referee's clock."""
        return median_bounds(self.outside_ratios(), confidence)


def margin_of(device: DeviceKind) -> float:
    """What two processes on a device may differ by for reasons beside their work."""
    return CPU_MARGIN if device == "cpu" else 0.0


def prepare(bench: Bench, workload: WorkloadFacts) -> WorkloadTiming:
    """Ready a workload for pairs."""
    prepared = bench.prepare(workload.name, POOL_ENTRIES)
    if isinstance(prepared, Fault):
        return WorkloadTiming(workload=workload, fault=prepared)
    return WorkloadTiming(workload=workload, prepared=prepared)


def measure_pairs(
    bench: Bench, timing: WorkloadTiming, until: int, deadline_s: float, block_us: float = BLOCK_US
) -> WorkloadTiming:
    """Add pairs up to a number of them, or until `time.perf_counter()` passes the deadline; stops at a failure."""
    assert timing.prepared is not None
    calls = _calls(timing.prepared, bench.device.kind, block_us)
    pairs = list(timing.pairs)
    while len(pairs) < until and time.perf_counter() < deadline_s:
        outcome = _pair(bench, calls, verify=not pairs or bench.secret.random() < VERIFY_SHARE)
        if isinstance(outcome, Fault):
            return timing.model_copy(update={"pairs": tuple(pairs), "fault": outcome})
        pairs.append(outcome)
        # Of a baseline block too: there it says that the inputs were changed meanwhile.
        for comparison in (outcome.candidate.comparison, outcome.baseline.comparison):
            if comparison is not None and comparison.problem != "none":
                return timing.model_copy(update={"pairs": tuple(pairs), "wrong": comparison})
    return timing.model_copy(update={"pairs": tuple(pairs)})


def _calls(prepared: Prepared, device: DeviceKind, block_us: float) -> dict[Side, int]:
    """Calls of a block. On the CPU each side fills its own; on a GPU both make blocks of the same lengths."""
    times_us: dict[Side, float] = {"baseline": prepared.baseline_us, "candidate": prepared.candidate_us}
    most, slower_us = (MAX_CUDA_CALLS if device == "cuda" else MAX_CALLS), max(times_us.values())
    return {
        side: max(1, min(most, round(block_us / max(slower_us if device == "cuda" else us, 1.0))))
        for side, us in times_us.items()
    }


def _pair(bench: Bench, calls: Mapping[Side, int], *, verify: bool) -> Pair | Fault:
    order: list[Side] = ["baseline", "candidate"]
    bench.secret.shuffle(order)
    blocks: dict[Side, Block] = {}
    for side in order:
        block = bench.block(side, calls[side], verify=verify and side == "candidate")
        if isinstance(block, Fault):
            return block
        blocks[side] = block
    return Pair(baseline=blocks["baseline"], candidate=blocks["candidate"])
