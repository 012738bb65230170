"""`quick_time`: could the candidate be fast? A few pairs on the smallest and the largest workload, with an interval."""

import time
from typing import Annotated, Final

from pydantic import BeforeValidator, model_validator

from kernelgate.budget.model import PASSING, Rung, Verdict, as_tuple
from kernelgate.tasks.model import DeviceKind, Frozen
from kernelgate.tools.kit.arguments import RungArgs
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.pairing import WorkloadTiming, margin_of, measure_pairs, prepare
from kernelgate.tools.kit.spec import MeasuringTool, RungReport, Score
from kernelgate.tools.kit.timing_report import (
    TimingFacts,
    WorkloadRatio,
    combined,
    failure_of,
    forged,
    impossible,
    outside_clock,
    public_names,
    ratio_of,
    stolen,
    unseen_work,
)  # fmt: skip
from kernelgate.tools.kit.voiding import none_left, said_of
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 20.0
PAIRS: Final = 10
"""Ten pairs give a 97.9 % interval for the median: the second and the ninth value."""
CUDA_PAIRS: Final = 6
"""On a GPU pairs scatter by some 0.2 %: fewer will do. The least and the greatest of six give a 96.9 % interval."""
QUICK_BLOCK_US: Final[dict[DeviceKind, float]] = {"cpu": 2_000.0, "cuda": 1_000.0}
"""A first opinion is content with shorter blocks than a verdict."""
CONFIDENCE: Final = 0.95
WORKLOAD_CAP_S: Final = 4.0


class QuickPlan(Frozen):
    """How much to measure."""

    pairs: int = PAIRS
    cuda_pairs: int = CUDA_PAIRS


class QuickReport(RungReport):
    """A class and an interval; no verdict on how much."""

    ratio: float | None = None
    """Baseline time / candidate time, geometric mean over workloads: above 1 the candidate is faster."""
    low: float | None = None
    high: float | None = None
    """95 % interval."""
    workloads: Annotated[tuple[WorkloadRatio, ...], BeforeValidator(as_tuple)] = ()
    clock: str = ""
    """What the outside ratio rests on."""
    log: str = ""

    @model_validator(mode="after")
    def _numbers_only_where_it_was_measured(self) -> "QuickReport":
        if (self.verdict in PASSING[Rung.quick]) != (self.ratio is not None):
            raise ValueError("a ratio comes with the three classes of quick, and only with them")
        return self


def measure(bench: Bench, plan: QuickPlan) -> TimingFacts:
    """Pairs on the smallest and the largest public workload."""
    fault = bench.load()
    if fault is not None:
        return TimingFacts(fault=fault)
    pairs = plan.cuda_pairs if bench.device.kind == "cuda" else plan.pairs
    public = bench.workloads(held_out=False)
    chosen = public if len(public) < 2 else (public[0], public[-1])
    timings: list[WorkloadTiming] = []
    for index, workload in enumerate(chosen):
        bench.progress("timing", index, len(chosen))
        timing = prepare(bench, workload)
        if timing.fault is None:
            block_us = QUICK_BLOCK_US[bench.device.kind]
            timing = measure_pairs(bench, timing, pairs, time.perf_counter() + WORKLOAD_CAP_S, block_us)
        timings.append(timing)
        if timing.fault is not None or timing.wrong is not None:
            break
    margin = margin_of(bench.device.kind)
    return TimingFacts(timings=tuple(timings), ceilings=bench.ceilings(), margin=margin)


def judge(facts: TimingFacts | None, exit_: ChildExit, plan: QuickPlan) -> QuickReport:
    """Class from the interval of the geometric mean: wholly above 1, wholly below 1, or neither."""
    failure = failure_of(facts, exit_, LIMIT_S)
    if failure is not None or facts is None:
        assert failure is not None
        log = facts.fault.log if facts and facts.fault else ""
        return QuickReport(verdict=failure.verdict, code=failure.code, summary=failure.summary, log=log)
    for timing in facts.timings:
        if beaten := impossible(timing, facts.ceilings):
            return QuickReport(verdict=Verdict.impossible, code="IMPOSSIBLE", summary=beaten)
        if contradiction := forged(timing):
            return QuickReport(verdict=Verdict.suspicious, code="TIMER_PATCH", summary=contradiction)
        if unseen := unseen_work(timing):
            return QuickReport(verdict=Verdict.suspicious, code="THREAD", summary=unseen)
    return _classified(facts)


def _classified(facts: TimingFacts) -> QuickReport:
    names = public_names(facts.timings)
    ratios = [ratio_of(timing, name, facts.ceilings) for timing, name in zip(facts.timings, names, strict=True)]
    bounds = [timing.bounds(CONFIDENCE) for timing in facts.timings]
    known = [b for b in bounds if b is not None]
    voided = facts.voided()
    if (not known or len(known) < len(bounds)) and voided:
        return QuickReport(verdict=Verdict.no_sample_left, summary=none_left(voided))
    if not known or len(known) < len(bounds):
        return QuickReport(
            verdict=Verdict.timed_out, code="HANG",
            summary=f"one call takes so long that {WORKLOAD_CAP_S:g} s did not hold enough pairs for an interval",
        )  # fmt: skip
    whole = combined(known)
    if whole.low > 1:
        verdict, said = Verdict.maybe_faster, "it looks faster than the baseline"
    elif whole.high < 1 / (1 + facts.margin):
        verdict, said = Verdict.clearly_slower, "it is slower than the baseline"
    else:
        verdict, said = Verdict.undecided, "it cannot be told from the baseline this cheaply"
    return QuickReport(
        verdict=verdict,
        summary="; ".join(
            [
                f"{said}: {whole.median:.3f}x, between {whole.low:.3f}x and {whole.high:.3f}x",
                *filter(None, (said_of(voided), stolen(facts.timings))),
            ]
        ),
        ratio=whole.median,
        low=whole.low,
        high=whole.high,
        workloads=tuple(ratio for ratio in ratios if ratio is not None),
        clock=outside_clock(facts),
    )


def score(report: QuickReport) -> Score | None:
    """What halving ranks by."""
    if report.ratio is None or report.low is None or report.high is None:
        return None
    return Score(ratio=report.ratio, low=report.low, high=report.high)


TOOL: Final = MeasuringTool(
    name="quick_time",
    title="Quick timing",
    description=(
        "Could a correct candidate be fast? Times a few random-order pairs of baseline and candidate on the smallest "
        "and the largest workload and answers with an interval and a class: maybe_faster, undecided, clearly_slower. "
        "Not a verdict on how much. Needs verdict `correct`. Costs well under a device second. Triton candidates on "
        "a CPU device are refused (`not_here`). Next: precise_time for the best, compile another for the rest."
    ),
    rung=Rung.quick,
    args=RungArgs,
    plan=QuickPlan,
    facts=TimingFacts,
    report=QuickReport,
    measure=measure,
    judge=judge,
    score=score,
    limit_s=LIMIT_S,
    first_hold_s=2.0,
)
