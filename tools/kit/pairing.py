"""Paired blocks: baseline and candidate alternate in random order, and only the ratio of a pair is compared.

Sequential timing drifts (one matmul read 178 and 246 µs on the same card, docs/decisions/0004); the two blocks of a
pair share the drift. Each call is timed twice: by the candidate's process, closely, and by the referee's clock, which
no candidate can forge.
"""

import time
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import DeviceKind, Frozen
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Block, Comparison, DeviceState, Fault, Prepared, Side, WorkloadFacts
from kernelgate.tools.kit.statistics import Bounds, median, median_bounds
from kernelgate.tools.kit.voiding import held_back, why_void

BLOCK_US: Final = 5_000.0
"""A block lasts about so long: its median shrugs off a disturbance, and it is short against drift."""
MAX_CALLS: Final = 32
"""Bounds the samples that a frame must carry: 192 pairs of a workload are less than 1 % of it."""
MAX_CUDA_CALLS: Final = 12
"""On a GPU the pool holds inputs for most calls of a block, and 24 pairs of 12 calls told ±0.3 %."""
LEAST_CALLS: Final = 5
"""Of a block on the CPU, where others take the processor for milliseconds: with two calls against ten a slower baseline
was hit far more often, and a 2x read 4x on a busy host."""
FEWEST_BLOCKS: Final = 12
SHORT_OF_TIME_US: Final = 2_500_000.0
"""Half of what a workload may take: pairs of slow calls must fit, rather fewer calls than too few pairs."""
CPU_MARGIN: Final = 0.10
"""On the CPU the baseline as its own candidate read up to 12 % slower and 9 % faster, for as long as its process lived:
another process has other pages and caches. No interval over its pairs holds that."""
POOL_ENTRIES: Final = 3
"""Inputs that a block rotates over, so that no call sees the values of the one before."""
LEAST_SHARE: Final = 0.05
"""Of the time that the referee saw of a call, so much is its own whatever the error of that clock."""
MOST_VOIDED: Final = 24
"""Of a workload; then the device is held back for good."""
PAUSE_S: Final = 0.05
"""For a device that is held back, before it is tried again."""
VERIFY_SHARE: Final = 1 / 3
"""Share of candidate blocks whose outputs are compared, drawn secretly; the first always is."""


class Pair(Frozen):
    """A baseline and a candidate block, measured one right after the other."""

    baseline: Block
    candidate: Block
    state: DeviceState | None = None
    """Of the device, behind it."""
    void: str = ""
    """Why it does not count; empty if it does."""
    process: int = Field(default=0, ge=0)
    """Of the fresh processes of the candidate that were measured, in order."""

    @property
    def ratio(self) -> float:
        """Baseline time / candidate time by each side's own clock."""
        return median(self.baseline.samples_us) / median(self.candidate.samples_us)


class WorkloadTiming(Frozen):
    """The pairs of one workload, or what kept it from being measured."""

    workload: WorkloadFacts
    prepared: Prepared | None = None
    pairs: Annotated[tuple[Pair, ...], BeforeValidator(as_tuple)] = ()
    """Those that count."""
    voided: Annotated[tuple[Pair, ...], BeforeValidator(as_tuple)] = ()
    fault: Fault | None = None
    wrong: Comparison | None = None
    """A timed output that was not right."""

    def processes(self) -> int:
        """How many fresh processes of the candidate the pairs are from."""
        return len({pair.process for pair in self.pairs})

    def candidate_us(self) -> float:
        """Median time of a candidate call, µs, by its own clock."""
        return median([median(pair.candidate.samples_us) for pair in self.pairs])

    def baseline_us(self) -> float:
        """Median time of a baseline call, µs."""
        return median([median(pair.baseline.samples_us) for pair in self.pairs])

    def candidate_outside_us(self) -> float:
        """Median time of a candidate call by the referee's clock, µs."""
        return median([median(pair.candidate.outside_us) for pair in self.pairs])

    def most_by_outside(self, confidence: float) -> Bounds | None:
        """Of the largest ratio that the referee's clock allows, its error taken off the candidate's calls."""
        error_us = self.prepared.outside_error_us if self.prepared is not None else 0.0

        def most(pair: Pair) -> float:
            seen_us = median(pair.candidate.outside_us)
            return median(pair.baseline.outside_us) / max(seen_us - error_us, LEAST_SHARE * seen_us)

        return self._bounds(most, confidence)

    def bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by own clocks: above 1 the candidate is faster."""
        return self._bounds(lambda pair: pair.ratio, confidence)

    def outside_bounds(self, confidence: float) -> Bounds | None:
        """Of the ratio by the referee's clock, less what a hand-over may hide."""
        hidden_us = self.prepared.hand_over_us if self.prepared is not None else 0.0

        def outside(pair: Pair) -> float:
            return median(pair.baseline.outside_us) / (median(pair.candidate.outside_us) + hidden_us)

        return self._bounds(outside, confidence)

    def _bounds(self, ratio: Callable[[Pair], float], confidence: float) -> Bounds | None:
        """Median of a number of each pair; None if a process has too few.

        Of several processes the median of their medians, between the outermost ends: each has its own places in
        memory, a bias that no number of its pairs takes away.
        """
        each = [
            median_bounds([ratio(pair) for pair in self.pairs if pair.process == process], confidence)
            for process in sorted({pair.process for pair in self.pairs})
        ]
        known = [bounds for bounds in each if bounds is not None]
        if not known or len(known) < len(each):
            return None
        return Bounds(median([b.median for b in known]), min(b.low for b in known), max(b.high for b in known))


def margin_of(device: DeviceKind) -> float:
    """What two processes on a device may differ by for reasons beside their work."""
    return CPU_MARGIN if device == "cpu" else 0.0


def prepare(bench: Bench, workload: WorkloadFacts) -> WorkloadTiming:
    """Ready a workload for pairs."""
    return placed_anew(bench, WorkloadTiming(workload=workload))


def placed_anew(bench: Bench, timing: WorkloadTiming) -> WorkloadTiming:
    """The same workload in other memory: inputs, answers and what the candidate allocates for itself."""
    prepared = bench.prepare(timing.workload.name, POOL_ENTRIES)
    return timing.model_copy(update={"fault": prepared} if isinstance(prepared, Fault) else {"prepared": prepared})


def measure_pairs(
    bench: Bench, timing: WorkloadTiming, until: int, deadline_s: float, block_us: float = BLOCK_US
) -> WorkloadTiming:
    """Add pairs up to a number of them, or until `time.perf_counter()` passes the deadline; stops at a failure.

    A pair during which the device was held back is kept apart and paid by the house; after each of those it gets a
    pause, and after `MOST_VOIDED` nothing more is tried.
    """
    assert timing.prepared is not None
    calls = calls_of(timing.prepared, bench.device.kind, block_us)
    pairs, voided = list(timing.pairs), list(timing.voided)
    before = bench.state()
    found: dict[str, object] = {}
    while len(pairs) < until and len(voided) < MOST_VOIDED and time.perf_counter() < deadline_s:
        start_s = time.perf_counter()
        outcome = _pair(bench, calls, verify=not pairs or bench.secret.random() < VERIFY_SHARE)
        if isinstance(outcome, Fault):
            found["fault"] = outcome
            break
        state = bench.state()
        why = why_void(before, state, counted=len(pairs), voided=[pair.void for pair in voided])
        outcome, before = outcome.model_copy(update={"state": state, "void": why}), state
        (voided if why else pairs).append(outcome)
        # Of a baseline block too: there it says that the inputs were changed meanwhile.
        wrong = [c for c in (outcome.candidate.comparison, outcome.baseline.comparison) if c and c.problem != "none"]
        if wrong:
            found["wrong"] = wrong[0]
            break
        if held_back(state):
            time.sleep(PAUSE_S)
        if why:
            bench.on_the_house(time.perf_counter() - start_s)
    return timing.model_copy(update={"pairs": tuple(pairs), "voided": tuple(voided), **found})


def calls_of(prepared: Prepared, device: DeviceKind, block_us: float) -> int:
    """Calls of a block, as many on both sides: one disturbed call spoils a median of few, and none of many.

    So there are at least `LEAST_CALLS`, unless `FEWEST_BLOCKS` pairs of so many would not fit into `SHORT_OF_TIME_US`.
    """
    slower_us = max(prepared.baseline_us, prepared.candidate_us, 1.0)
    most = MAX_CUDA_CALLS if device == "cuda" else MAX_CALLS
    wanted = min(most, round(block_us / slower_us))
    if device == "cuda":  # its calls are not disturbed one by one
        return max(1, wanted)
    affordable = int(SHORT_OF_TIME_US / (FEWEST_BLOCKS * (prepared.baseline_us + prepared.candidate_us)))
    return max(1, wanted, min(LEAST_CALLS, affordable))


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
