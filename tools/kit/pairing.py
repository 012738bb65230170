"""Paired blocks: baseline and candidate alternate in random order, and only the ratio of a pair is compared.

Sequential timing drifts (one matmul read 178 and 246 µs on the same card, docs/decisions/0004); the two blocks of a
pair share the drift. Blocks come in two lengths, so that the referee's wall clock gives a slope that is free of the
constant cost of a hand-over and that no candidate can forge.
"""

import time
from typing import Annotated, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Block, Comparison, Fault, Prepared, Side, WorkloadFacts
from kernelgate.tools.kit.statistics import Bounds, median, median_bounds

BLOCK_US: Final = 2_000.0
"""A short block lasts about so long: long against a hand-over (about 100 µs), short against drift."""
MAX_CALLS: Final = 16
"""Calls of a short block; a long one has `LONG` times as many. Bounds the samples that a frame must carry."""
LONG: Final = 3
POOL_ENTRIES: Final = 3
"""Inputs that a block rotates over, so that no call sees the values of the one before."""
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
        """Ratios by the referee's wall clock: slopes over a short and a long block, from neighbouring pairs."""
        found: list[float] = []
        for first, second in zip(self.pairs[::2], self.pairs[1::2], strict=False):
            baseline = _slope_us(first.baseline, second.baseline)
            candidate = _slope_us(first.candidate, second.candidate)
            if baseline > 0 and candidate > 0:
                found.append(baseline / candidate)
        return tuple(found)

    def bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by own clocks."""
        return median_bounds(self.ratios(), confidence)

    def outside_bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by the referee's wall clock."""
        return median_bounds(self.outside_ratios(), confidence)


def _slope_us(one: Block, other: Block) -> float:
    short, long = sorted((one, other), key=lambda block: len(block.samples_us))
    calls = len(long.samples_us) - len(short.samples_us)
    return (long.wall_us - short.wall_us) / calls if calls else 0.0


def prepare(bench: Bench, workload: WorkloadFacts) -> WorkloadTiming:
    """Ready a workload for pairs."""
    prepared = bench.prepare(workload.name, POOL_ENTRIES)
    if isinstance(prepared, Fault):
        return WorkloadTiming(workload=workload, fault=prepared)
    return WorkloadTiming(workload=workload, prepared=prepared)


def measure_pairs(bench: Bench, timing: WorkloadTiming, until: int, deadline_s: float) -> WorkloadTiming:
    """Add pairs up to a number of them, or until `time.perf_counter()` passes the deadline; stops at a failure."""
    assert timing.prepared is not None
    short = _calls(timing.prepared)
    pairs = list(timing.pairs)
    calls = len(pairs[-1].candidate.samples_us) if pairs else short
    while len(pairs) < until and time.perf_counter() < deadline_s:
        # One short and one long pair form a slope; which comes first is drawn anew for each two.
        if len(pairs) % 2 == 0:
            calls = bench.secret.choice((short, short * LONG))
        else:
            calls = short * LONG if calls == short else short
        outcome = _pair(bench, calls, verify=not pairs or bench.secret.random() < VERIFY_SHARE)
        if isinstance(outcome, Fault):
            return timing.model_copy(update={"pairs": tuple(pairs), "fault": outcome})
        pairs.append(outcome)
        comparison = outcome.candidate.comparison
        if comparison is not None and comparison.problem != "none":
            return timing.model_copy(update={"pairs": tuple(pairs), "wrong": comparison})
    return timing.model_copy(update={"pairs": tuple(pairs)})


def _calls(prepared: Prepared) -> int:
    slower_us = max(prepared.candidate_us, prepared.baseline_us, 1.0)
    return max(1, min(MAX_CALLS, round(BLOCK_US / slower_us)))


def _pair(bench: Bench, calls: int, *, verify: bool) -> Pair | Fault:
    order: list[Side] = ["baseline", "candidate"]
    bench.secret.shuffle(order)
    blocks: dict[Side, Block] = {}
    for side in order:
        block = bench.block(side, calls, verify=verify and side == "candidate")
        if isinstance(block, Fault):
            return block
        blocks[side] = block
    return Pair(baseline=blocks["baseline"], candidate=blocks["candidate"])
