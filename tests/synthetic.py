"""Timings made from numbers, so that classes and stopping rules are tested without a device."""

import random
from collections.abc import Callable, Sequence

from kernelgate.tools.kit.facts import Block, Ceilings, Comparison, Prepared, Side, WorkloadFacts
from kernelgate.tools.kit.pairing import Pair, WorkloadTiming

HANDOVER_US = 10.0
"""What is left in the referee's time of a candidate's call after the usual hand-over is taken off."""
WORKLOAD = WorkloadFacts(name="w", held_out=False, bytes_in=4_000_000, bytes_out=4_000_000, flops=0)
CEILINGS = Ceilings(copy_gb_s=10.0, cache_gb_s=40.0, matmul_gflop_s=50.0)


def workload(name: str = "w", *, held_out: bool = False) -> WorkloadFacts:
    return WORKLOAD.model_copy(update={"name": name, "held_out": held_out})


def block(side: Side, samples_us: Sequence[float], outside_us: Sequence[float] | None = None, name: str = "w") -> Block:
    outside = samples_us if outside_us is None else outside_us
    return Block(side=side, workload=name, samples_us=tuple(samples_us), outside_us=tuple(outside))


def timing(
    baseline_us: Callable[[], float],
    candidate_us: Callable[[], float],
    pairs: int,
    *,
    true_candidate_us: Callable[[], float] | None = None,
    facts: WorkloadFacts = WORKLOAD,
    calls: int = 4,
) -> WorkloadTiming:
    """Pairs; `true_candidate_us` is what the referee's clock sees when the candidate's own is forged."""
    found = []
    for _ in range(pairs):
        count = calls
        claimed = [candidate_us() for _ in range(count)]
        true = claimed if true_candidate_us is None else [true_candidate_us() for _ in range(count)]
        found.append(
            Pair(
                baseline=block("baseline", [baseline_us() for _ in range(count)], name=facts.name),
                candidate=block("candidate", claimed, [us + HANDOVER_US for us in true], name=facts.name),
            )
        )
    return WorkloadTiming(workload=facts, prepared=prepared(facts), pairs=tuple(found))


def prepared(facts: WorkloadFacts = WORKLOAD) -> Prepared:
    return Prepared(workload=facts, prepare_s=0.1, candidate_us=500.0, baseline_us=500.0)


def noisy(rng: random.Random, centre_us: float, spread: float) -> Callable[[], float]:
    return lambda: centre_us * max(0.01, rng.gauss(1.0, spread))


def right(name: str = "w") -> Comparison:
    return Comparison(workload=name, distribution="normal", problem="none")


def wrong(name: str = "w") -> Comparison:
    return Comparison(
        workload=name, distribution="normal", problem="wrong_values", wrong_share=0.5, worst_abs=1.0, worst_rel=2.0
    )
