"""`precise_time`: is the candidate faster, and by how much? Paired blocks until the class is certain."""

import time
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from kernelgate.budget.model import PASSING, Rung, Verdict, as_tuple
from kernelgate.tasks.model import Distribution, Frozen
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.arguments import PromotionArgs
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Ceilings, Comparison, Fault, WorkloadFacts
from kernelgate.tools.kit.failures import Failure
from kernelgate.tools.kit.pairing import WorkloadTiming, margin_of, measure_pairs, placed_anew, prepare
from kernelgate.tools.kit.spec import MeasuringTool, RungReport, Score
from kernelgate.tools.kit.statistics import Bounds
from kernelgate.tools.kit.timing_report import (
    FAR,
    TimingFacts,
    WorkloadRatio,
    combined,
    does_less,
    failure_of,
    forged,
    impossible,
    outside_clock,
    public_names,
    ratio_of,
    stolen,
    stop_advice,
    unseen_work,
    with_process,
)  # fmt: skip
from kernelgate.tools.kit.voiding import none_left, said_of
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 90.0
LOOKS: Final = (12, 24, 48, 96, 192)
"""The only numbers of pairs at which a class is decided: peeking at each pair inflates false gains."""
LOOK_CONFIDENCE: Final = 0.998
"""At each look; five looks at 99.8 % keep false classes under 1 %."""
TIGHT: Final = 0.005
"""Half width of the 95 % interval at which more pairs would not change what anybody does."""
LEAST_FLOOR: Final = 0.005
"""No gap under 0.5 % is called a gain, however quiet the device."""
LOUD: Final = 0.25
"""With a larger noise floor nothing is called the same: gaps that matter would hide in it."""
WORKLOAD_CAP_S: Final = 5.0
PROCESSES: Final = 3
"""Fresh processes in which a small gain must be seen."""
SMALL_GAIN: Final = 0.05
"""Where a process's memory lies made a difference of up to 1.3 % on an H200 host; larger gains need no second look."""

WorkloadClass = Literal["faster", "same", "slower", "ambiguous"]


class PrecisePlan(Frozen):
    """What the referee needs to know to stop early."""

    floor: float = Field(default=LEAST_FLOOR, ge=0)
    """Largest gap that this device makes of the baseline against itself (A/A)."""
    looks: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = LOOKS
    held_out: bool = True
    """Whether hidden workloads are run: then nothing that the candidate prints is kept (see `kit/hidden.py`)."""


class PreciseReport(RungReport):
    """A class, and by how much."""

    ratio: float | None = None
    """Baseline time / candidate time, geometric mean over all workloads: above 1 the candidate is faster."""
    low: float | None = None
    high: float | None = None
    """95 % interval at the stop."""
    outside_ratio: float | None = None
    """The same by the referee's clock."""
    outside_low: float | None = None
    outside_high: float | None = None
    floor: float = 0.0
    """Gaps up to this are noise on this device."""
    workloads: Annotated[tuple[WorkloadRatio, ...], BeforeValidator(as_tuple)] = ()
    worst_workload: str = ""
    """The workload with the lowest ratio."""
    processes: int = 1
    """Fresh processes of the candidate that were measured; the interval holds what each of them showed."""
    voided: int = 0
    """Pairs that do not count, and are not charged."""
    clock: str = ""
    stop_advice: str = ""
    log: str = ""

    @model_validator(mode="after")
    def _numbers_only_where_it_was_measured(self) -> "PreciseReport":
        if (self.verdict in PASSING[Rung.precise]) != (self.ratio is not None):
            raise ValueError("a ratio comes with the four classes of precise, and only with them")
        if self.verdict is Verdict.faster and not (self.outside_low is not None and self.outside_low > 1):
            raise ValueError("faster needs an outside interval above 1")
        return self


def class_at_look(own: Bounds | None, outside: Bounds | None, floor: float) -> WorkloadClass:
    """The class that an interval allows. `faster` also needs the outside clock above 1."""
    if own is None:
        return "ambiguous"
    if own.low > 1 + floor:
        return "faster" if outside is not None and outside.low > 1 else "ambiguous"
    if own.high < 1 / (1 + floor):
        return "slower"
    if own.low >= 1 / (1 + floor) and own.high <= 1 + floor and floor <= LOUD:
        return "same"
    return "ambiguous"


def certain(timing: WorkloadTiming, floor: float) -> bool:
    """Whether more pairs would not change the class, or not change what anybody does."""
    if class_at_look(timing.bounds(LOOK_CONFIDENCE), timing.outside_bounds(0.95), floor) != "ambiguous":
        return True
    own = timing.bounds(0.95)
    return own is not None and own.high - own.low <= 2 * TIGHT * own.median and own.low <= 1 + floor


def measure(bench: Bench, plan: PrecisePlan) -> TimingFacts:
    """Pairs on every workload, held-out ones last, each until its class is certain or its time is up."""
    fault = bench.load()
    if fault is not None:
        return TimingFacts(fault=fault)
    chosen = sorted(bench.workloads(held_out=plan.held_out), key=lambda workload: workload.held_out)
    timings: list[WorkloadTiming] = []
    margin = margin_of(bench.device.kind)
    for index, workload in enumerate(chosen):
        bench.progress("timing", index, len(chosen))
        timing = prepare(bench, workload)
        deadline_s = time.perf_counter() + WORKLOAD_CAP_S
        for look in plan.looks:
            if timing.pairs:
                timing = placed_anew(bench, timing)
            if timing.fault is None:
                timing = measure_pairs(bench, timing, look, deadline_s)
            if timing.fault or timing.wrong or len(timing.pairs) < look or certain(timing, max(plan.floor, margin)):
                break
        timings.append(timing)
        if timing.fault is not None or timing.wrong is not None:
            break
    ceilings = bench.ceilings()
    facts = TimingFacts(timings=tuple(timings), ceilings=ceilings, margin=margin)
    if len(timings) < len(chosen) or not any(is_far(each) or needs_less(each, ceilings) for each in timings):
        return facts
    return facts.model_copy(update=_checked_harder(bench, chosen))


def is_far(timing: WorkloadTiming) -> bool:
    """Whether a workload's gain is too large to be believed at once."""
    own = timing.bounds(0.95)
    return timing.fault is None and timing.wrong is None and own is not None and own.median > FAR


def needs_less(timing: WorkloadTiming, ceilings: Ceilings | None) -> bool:
    """Whether a workload was answered in less time than the reference's operations need."""
    if ceilings is None or not timing.pairs or timing.fault is not None or timing.wrong is not None:
        return False
    return does_less(timing.workload, ceilings, timing.candidate_us())


def _checked_harder(bench: Bench, workloads: Sequence[WorkloadFacts]) -> dict[str, object]:
    """Each distribution on each workload, hidden ones too, in the process that was timed, up to a wrong answer."""
    asked: list[tuple[WorkloadFacts, Distribution]] = [(w, d) for w in workloads for d in bench.task.distributions]
    done: list[Comparison] = []
    for number, (workload, distribution) in enumerate(asked):
        bench.progress("checking what is so fast", number, len(asked))
        answer = bench.compare(workload.name, distribution)
        if isinstance(answer, Fault):
            return {"fault": answer, "again": tuple(done)}
        done.append(answer)
        if answer.problem != "none":
            break
    return {"again": tuple(done)}


def judge(facts: TimingFacts | None, exit_: ChildExit, plan: PrecisePlan) -> PreciseReport:
    """The class of the geometric mean, with the worst workload beside it."""
    failure = failure_of(facts, exit_, LIMIT_S)
    if failure is not None or facts is None:
        assert failure is not None
        log = facts.fault.log if facts and facts.fault else ""
        if _may_have_seen_hidden(facts, plan):
            failure, log = _untold(failure, facts), ""
        return PreciseReport(verdict=failure.verdict, code=failure.code, summary=failure.summary, log=log)
    for timing in facts.timings:
        if beaten := impossible(timing, facts.ceilings):
            return PreciseReport(verdict=Verdict.impossible, code="IMPOSSIBLE", summary=beaten)
        if contradiction := forged(timing):
            return PreciseReport(verdict=Verdict.suspicious, code="TIMER_PATCH", summary=contradiction)
        if unseen := unseen_work(timing):
            return PreciseReport(verdict=Verdict.suspicious, code="THREAD", summary=unseen)
    return _classified(facts, plan)


def _may_have_seen_hidden(facts: TimingFacts | None, plan: PrecisePlan) -> bool:
    """Whether hidden inputs may have been lent: they come last, so only once one of them stands among the timings."""
    return plan.held_out if facts is None else any(timing.workload.held_out for timing in facts.timings)


def _untold(failure: Failure, facts: TimingFacts | None) -> Failure:
    last = facts.timings[-1] if facts is not None else None
    failed = last is not None and last.fault is not None and last.workload.held_out
    where = public_names(facts.timings)[-1] if facts is not None and failed else ""
    return hidden.untold(failure, last.fault if last is not None else None, where)


def _classified(facts: TimingFacts, plan: PrecisePlan) -> PreciseReport:
    names = public_names(facts.timings)
    ratios = [ratio_of(timing, name, facts.ceilings) for timing, name in zip(facts.timings, names, strict=True)]
    shown = [ratio for ratio in ratios if ratio is not None]
    looks = [timing.bounds(LOOK_CONFIDENCE) for timing in facts.timings]
    strict = [b for b in looks if b is not None]
    voided = facts.voided()
    silent = any(timing.processes() < facts.processes for timing in facts.timings)
    if not shown or len(shown) < len(ratios) or len(strict) < len(looks) or silent:
        said = f"fewer than {LOOKS[0]} pairs fitted into {WORKLOAD_CAP_S:g} s a workload: no class can be given"
        said = none_left(voided) if voided else said
        return PreciseReport(verdict=Verdict.no_sample_left, summary=said, voided=len(voided))
    outside = [timing.outside_bounds(0.95) for timing in facts.timings]
    clocks = [b for b in outside if b is not None]
    outside_whole = combined(clocks) if len(clocks) == len(outside) else None
    whole = combined([Bounds(r.ratio, r.low, r.high) for r in shown])
    floor = max(plan.floor, facts.margin, LEAST_FLOOR)
    verdict = class_at_look(combined(strict), outside_whole, floor)
    worst = min(shown, key=lambda r: r.ratio)
    return PreciseReport(
        verdict=Verdict(verdict),
        code="NO_GAIN" if verdict == "same" else None,
        summary="; ".join(
            [
                _summary(verdict, whole, worst, floor, outside_whole),
                *filter(None, (_in_processes(facts), said_of(voided), stolen(facts.timings), _confirmed(facts))),
            ]
        ),
        ratio=whole.median,
        low=whole.low,
        high=whole.high,
        outside_ratio=outside_whole.median if outside_whole else None,
        outside_low=outside_whole.low if outside_whole else None,
        outside_high=outside_whole.high if outside_whole else None,
        floor=floor,
        workloads=tuple(shown),
        worst_workload=worst.workload,
        processes=facts.processes,
        voided=len(voided),
        clock=outside_clock(facts),
        stop_advice=stop_advice(shown),
    )


def _summary(verdict: WorkloadClass, whole: Bounds, worst: WorkloadRatio, floor: float, outside: Bounds | None) -> str:
    numbers = f"{whole.median:.3f}x, 95 % interval {whole.low:.3f}x to {whole.high:.3f}x; noise floor {floor:.1%}"
    words = {
        "faster": "faster than",
        "same": "the same as",
        "slower": "slower than",
        "ambiguous": "not told apart from",
    }
    said = f"{words[verdict]} the baseline: {numbers}"
    if verdict == "ambiguous":
        said += f"; {_why_ambiguous(whole, floor, outside)}"
    if verdict == "faster" and worst.high < 1 / (1 + floor):
        said += f"; but workload {worst.workload} got slower ({worst.ratio:.3f}x)"
    return said


def _why_ambiguous(whole: Bounds, floor: float, outside: Bounds | None) -> str:
    """What kept a class from being given, and what may help."""
    if whole.low > 1 + floor and (outside is None or outside.low <= 1):
        return "own clock only: the referee's clock does not confirm the gain"
    if floor > LOUD:
        return "this device is too noisy to tell: ask again with fresh=true when it has less to do"
    return f"too wide at the {LOOK_CONFIDENCE:.1%} that a class takes: fresh=true on a quieter device may narrow it"


def _confirmed(facts: TimingFacts) -> str:
    if not facts.again:
        return ""
    fewer = any(needs_less(timing, facts.ceilings) for timing in facts.timings)
    why = "faster than the reference's operations could be done" if fewer else f"over {FAR:g}x"
    return f"{why}: {len(facts.again)} more answers were right behind the timing"


def _in_processes(facts: TimingFacts) -> str:
    return f"in each of {facts.processes} fresh processes" if facts.processes > 1 else ""


def wants_more(facts: TimingFacts, plan: PrecisePlan) -> bool:
    """Whether a gain is so small that other places in memory could make it: then further processes must show it.

    By the referee's clock too: on a GPU the other one is a claim of the candidate, who could make it a little larger.
    """
    report = judge(facts, ChildExit(kind="finished"), plan)
    if report.verdict is not Verdict.faster or report.low is None or report.outside_low is None:
        return False
    proven = min(report.low, report.outside_low)
    return proven < (1 + report.floor) * (1 + SMALL_GAIN) and report.processes < PROCESSES


def score(report: PreciseReport) -> Score | None:
    """What leaderboard and incumbent go by."""
    if report.ratio is None or report.low is None or report.high is None:
        return None
    return Score(ratio=report.ratio, low=report.low, high=report.high)


def noise_floor(facts: TimingFacts) -> float:
    """From the baseline measured as its own candidate: the gap that the interval over all workloads reaches.

    Over all, because that is what a verdict compares; `LEAST_FLOOR` if nothing could be measured.
    """
    known = [bounds for timing in facts.timings if (bounds := timing.bounds(0.95)) is not None]
    if not known:
        return LEAST_FLOOR
    whole = combined(known)
    return max(LEAST_FLOOR, whole.high - 1, 1 - whole.low)


TOOL: Final = MeasuringTool(
    name="precise_time",
    title="Precise timing",
    description=(
        "Is a candidate faster than the baseline, and by how much? Random-order pairs on every workload, hidden ones "
        "too, timed outputs verified, until the class is certain: faster, same, slower, ambiguous. A small gain must "
        "show in three fresh processes. Guarded by the run's rule: only candidates that quick_time ranked well may "
        "enter; a refusal says what is missing, and override_reason spends the small exploration purse. Where hidden "
        "shapes run, no output is kept and no error text told. Costs 1-20 device seconds on a CPU, about 0.1-1 per "
        "workload on a GPU. May answer with a job_id: then call job."
    ),
    rung=Rung.precise,
    args=PromotionArgs,
    plan=PrecisePlan,
    facts=TimingFacts,
    report=PreciseReport,
    measure=measure,
    judge=judge,
    score=score,
    limit_s=LIMIT_S,
    first_hold_s=20.0,
    wants_more=wants_more,
    with_more=with_process,
)
