"""The numbers that both timing rungs report, and the failures that both share. Pure."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from kernelgate.budget.model import Verdict, as_tuple
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit import failures
from kernelgate.tools.kit.facts import Block, Ceilings, Comparison, Fault, WorkloadFacts
from kernelgate.tools.kit.failures import Failure
from kernelgate.tools.kit.pairing import WorkloadTiming
from kernelgate.tools.kit.statistics import Bounds, geometric_mean, median
from kernelgate.tools.kit.wire import ChildExit

FEWEST_PAIRS: Final = 6
ROW_US: Final = 800.0
CALL_US: Final = 100.0
UNSEEN_SHARE: Final = 0.10
"""Processor time outside the windows that honest candidates use: 250 to 600 µs a row, on a busy host too."""
HELPERS_US: Final = 150.0
HELPERS_SHARE: Final = 0.05
"""The same of other threads: none of theirs run."""
FORGED_SHARE: Final = 0.30
"""A claimed ratio may be so much above all that the outside clock allows before it is suspicious: honest ones were up
to 13 % above its interval, on kernels of 2 to 7 ms. A smaller forgery makes nothing faster: that needs the referee's
own interval above 1 too."""
PHYSICS_SLACK: Final = 0.5
"""A claim under half of the physical bound is impossible; the ceilings are measured, not data-sheet, values."""
NEAR_BOUND: Final = 1.05
STOLEN: Final = 0.05
"""A larger share of processor time that the host takes for others is told: it lies on both sides, unevenly."""
FAR: Final = 10.0
"""A gain over this is more often a trick than a kernel: it is checked harder before it is told."""


class TimingFacts(Frozen):
    """Pairs of each measured workload, or what kept the candidate from being measured."""

    timings: Annotated[tuple[WorkloadTiming, ...], BeforeValidator(as_tuple)] = ()
    ceilings: Ceilings | None = None
    margin: float = 0.0
    """What two processes of the device may differ by for reasons beside their work."""
    fault: Fault | None = None
    """While loading, or while it was checked again."""
    again: Annotated[tuple[Comparison, ...], BeforeValidator(as_tuple)] = ()
    """Of what was too fast to be believed at once: answers compared after it was timed, up to the first wrong one."""
    processes: int = Field(default=1, ge=1)
    """Fresh processes of the candidate that were asked, whether each gave pairs or not."""

    def voided(self) -> list[str]:
        """Why pairs do not count, one for each of those."""
        return [pair.void for timing in self.timings for pair in timing.voided]


def with_process(facts: TimingFacts, further: TimingFacts) -> TimingFacts:
    """Measurements with those of one more fresh process behind them; what failed there failed."""
    number = facts.processes
    timings = list(facts.timings)
    for index, more in enumerate(further.timings):
        known = timings[index]
        pairs, voided = (
            tuple(p.model_copy(update={"process": number}) for p in own) for own in (more.pairs, more.voided)
        )
        update = {
            "pairs": known.pairs + pairs,
            "voided": known.voided + voided,
            "fault": more.fault,
            "wrong": more.wrong,
        }
        timings[index] = known.model_copy(update=update)
    return facts.model_copy(
        update={
            "timings": tuple(timings),
            "fault": further.fault,
            "again": facts.again + further.again,
            "processes": number + 1,
        }
    )


class WorkloadRatio(Frozen):
    """One workload's result. Ratios are baseline time / candidate time: above 1 the candidate is faster."""

    workload: str
    """Held-out workloads are named `held_out_1`, …: their shapes stay hidden."""
    ratio: float
    low: float
    high: float
    """95 % interval."""
    outside_ratio: float | None = None
    """The same by the referee's clock, which a candidate cannot touch, less what a hand-over may hide; None if too few
    pairs. On the CPU `ratio` is by that clock too."""
    outside_low: float | None = None
    outside_high: float | None = None
    candidate_us: float | None = None
    """None of a held-out workload, like the next one and the bound: they say how large it is, and this one is a claim
    of the candidate, which could put anything into its digits."""
    baseline_us: float | None = None
    pairs: int
    bound_us: float | None = None
    """Least time that the task's bytes and operations need at the device's measured ceilings; see `bound_us`."""
    headroom: float | None = None
    """candidate_us / bound_us: times faster it could become at most."""


def _bytes_us(workload: WorkloadFacts, gb_s: float) -> float:
    return (workload.bytes_in + workload.bytes_out) / (gb_s * 1e3) if gb_s > 0 else 0.0


def _operations_us(workload: WorkloadFacts, ceilings: Ceilings) -> float:
    return workload.flops / (ceilings.matmul_gflop_s * 1e3) if ceilings.matmul_gflop_s > 0 else 0.0


def does_less(workload: WorkloadFacts, ceilings: Ceilings, call_us: float) -> bool:
    """Whether a call is told to take under half of what the reference's operations need at the measured rate.

    Algebra does that honestly (scaling rows instead of multiplying by a diagonal matrix), as do split products on
    tensor cores; so does an answer that nobody computed. It is checked harder, like a gain that is `FAR`.
    """
    return call_us < _operations_us(workload, ceilings) * PHYSICS_SLACK


def bound_us(workload: WorkloadFacts, ceilings: Ceilings, call_us: float) -> float:
    """Least time of a workload, µs: its bytes at the memory's bandwidth, or the operations if they take longer.

    Bytes alone for a call that `does_less`; operations are the reference's, at the measured rate.
    """
    compute = bound_class(workload, ceilings, call_us) == "compute"
    return _operations_us(workload, ceilings) if compute else _bytes_us(workload, ceilings.copy_gb_s)


def bound_class(workload: WorkloadFacts, ceilings: Ceilings, call_us: float) -> Literal["memory", "compute"]:
    """Which of the two the bound of a call is."""
    longer = _operations_us(workload, ceilings) >= _bytes_us(workload, ceilings.copy_gb_s)
    return "compute" if longer and not does_less(workload, ceilings, call_us) else "memory"


class Reached(Frozen):
    """What a call does a second by the task's bytes and operations, and the device's measured ceilings."""

    gb_s: float
    """Bytes that the task needs to read and write; above the ceiling where they stay in the cache."""
    ceiling_gb_s: float
    """Of a large copy, read and write."""
    gflop_s: float
    """Operations of the reference's products and convolutions; 0 if it has none."""
    ceiling_gflop_s: float
    """Of a large product under the task's precision policy."""


def reached(workload: WorkloadFacts, ceilings: Ceilings, call_us: float) -> Reached:
    """Of a call that takes so long; zeros for one that takes no time."""
    per_ns = 1 / (call_us * 1e3) if call_us > 0 else 0.0
    return Reached(
        gb_s=(workload.bytes_in + workload.bytes_out) * per_ns, ceiling_gb_s=ceilings.copy_gb_s,
        gflop_s=workload.flops * per_ns, ceiling_gflop_s=ceilings.matmul_gflop_s,
    )  # fmt: skip


def public_name(timing: WorkloadTiming, held_out_index: int) -> str:
    """What the agent may call a workload."""
    return f"held_out_{held_out_index}" if timing.workload.held_out else timing.workload.name


def public_names(timings: Sequence[WorkloadTiming]) -> list[str]:
    """The names of all, held-out ones numbered."""
    names: list[str] = []
    hidden = 0
    for timing in timings:
        hidden += timing.workload.held_out
        names.append(public_name(timing, hidden))
    return names


def ratio_of(timing: WorkloadTiming, name: str, ceilings: Ceilings | None) -> WorkloadRatio | None:
    """A workload's numbers, or None if it has too few pairs for a 95 % interval."""
    own = timing.bounds(0.95)
    if own is None:
        return None
    outside = timing.outside_bounds(0.95)
    public = not timing.workload.held_out
    candidate_us = timing.candidate_us()
    least_us = bound_us(timing.workload, ceilings, candidate_us) if ceilings and public else None
    return WorkloadRatio(
        workload=name,
        ratio=own.median,
        low=own.low,
        high=own.high,
        outside_ratio=outside.median if outside else None,
        outside_low=outside.low if outside else None,
        outside_high=outside.high if outside else None,
        candidate_us=candidate_us if public else None,
        baseline_us=timing.baseline_us() if public else None,
        pairs=len(timing.pairs),
        bound_us=least_us,
        headroom=candidate_us / least_us if least_us else None,
    )


def outside_clock(facts: TimingFacts) -> str:
    """What the outside ratios rest on."""
    return next((timing.prepared.outside_clock for timing in facts.timings if timing.prepared is not None), "")


def combined(bounds: Sequence[Bounds]) -> Bounds:
    """Geometric mean over workloads; the ends of the interval are the means of the ends, which is conservative."""
    return Bounds(
        geometric_mean([b.median for b in bounds]),
        geometric_mean([max(b.low, 1e-9) for b in bounds]),
        geometric_mean([b.high for b in bounds]),
    )


def failure_of(facts: TimingFacts | None, exit_: ChildExit, limit_s: float) -> Failure | None:
    """A fault, a wrong timed output or a bad end, if there is one."""
    if facts is None:
        ended = failures.of_exit(exit_, limit_s)
        return ended or Failure(Verdict.crashed, "CRASH", "it ended before the measurement did")
    if facts.fault is not None:
        return failures.of_fault(facts.fault, exit_, limit_s)
    for timing, name in zip(facts.timings, public_names(facts.timings), strict=True):
        if timing.fault is not None:
            return failures.of_fault(timing.fault, exit_, limit_s)
        if timing.wrong is not None:
            return _wrong_while_timed(timing.wrong, timing.workload, name, "an output of a timed call is wrong")
        if any(pair.candidate.recompiled for pair in timing.pairs):
            return Failure(
                Verdict.recompiles,
                None,
                f"on {name} it compiles kernels while it is timed, after its first calls: make what it specialises on "
                "the same for all inputs of a shape",
            )
    names = dict(zip((timing.workload.name for timing in facts.timings), public_names(facts.timings), strict=True))
    workloads = {timing.workload.name: timing.workload for timing in facts.timings}
    for wrong in facts.again:
        if wrong.problem != "none":
            said = f"it is over {FAR:g}x, so it was checked once more, and an answer is wrong"
            return _wrong_while_timed(wrong, workloads[wrong.workload], names[wrong.workload], said)
    return failures.of_exit(exit_, limit_s)


def _wrong_while_timed(wrong: Comparison, workload: WorkloadFacts, name: str, said: str) -> Failure:
    failure = failures.of_comparison(wrong.model_copy(update={"workload": name}))
    if workload.held_out:
        # Nothing of the comparison is told: it would give the shape away.
        hidden = f"on {name}, a shape that it was not shown, its answer is not right ({failure.verdict})"
        return failure._replace(code="SHAPE_FIT", summary=hidden)
    if failure.verdict is Verdict.wrong_values:
        # It was right when checked and wrong when timed: a fact about when it works, not only about its values.
        return failure._replace(code=failure.code or "PHASE_SNIFF", summary=f"{said}: {failure.summary}")
    return failure


def forged(timing: WorkloadTiming) -> str:
    """How the referee's clock contradicts a claim, with both numbers of a public workload; empty if it does not.

    A claimed gain beyond all that the referee's clock allows: its interval, and its own error taken off each call.
    """
    own, allowed = timing.bounds(0.95), timing.most_by_outside(0.95)
    if own is None or allowed is None or own.median <= allowed.high * (1 + FORGED_SHARE):
        return ""
    claimed_us, outside_us = timing.candidate_us(), timing.candidate_outside_us()
    if claimed_us >= outside_us:  # it claims no less than was seen: the baseline is too short for the referee's clock
        return ""
    if timing.workload.held_out:
        return "on a hidden workload its own clock contradicts the referee's"
    return f"its own clock says {claimed_us:,.0f} µs a call, the referee's {outside_us:,.0f} µs"


def unseen_work(timing: WorkloadTiming) -> str:
    """The two numbers of work that no window of a call holds; empty if there is none to speak of."""
    if len(timing.pairs) < FEWEST_PAIRS:
        return ""
    blocks = [pair.candidate for pair in timing.pairs]
    beyond = median([block.unseen_us - _usual_us(block, ROW_US, CALL_US, UNSEEN_SHARE) for block in blocks])
    helpers = median([block.helpers_us - _usual_us(block, HELPERS_US, 0.0, HELPERS_SHARE) for block in blocks])
    if beyond <= 0 and helpers <= 0:
        return ""
    said = (
        "it works before or after its calls, or on more threads than it may: compute in the thread that makes the call"
    )
    if timing.workload.held_out:
        return f"on a hidden workload {said}"
    unseen_us = median([max(block.unseen_us, block.helpers_us) / len(block.samples_us) for block in blocks])
    return (
        f"beside {timing.candidate_us():,.0f} µs a call it kept the processor busy for {unseen_us:,.0f} µs more: {said}"
    )


def _usual_us(block: Block, row_us: float, call_us: float, share: float) -> float:
    """What an honest candidate may use outside its windows: reading a question, writing an answer, freeing memory."""
    return block.rows * row_us + call_us * len(block.samples_us) + share * sum(block.samples_us)


def impossible(timing: WorkloadTiming, ceilings: Ceilings | None) -> str:
    """How a claim beats physics, with both numbers of a public workload; empty if it does not.

    Bytes must be moved by whoever answers, at the cache's bandwidth at best. The reference's operations need not be
    done: see `does_less`.
    """
    if ceilings is None or not timing.pairs:
        return ""
    least = _bytes_us(timing.workload, max(ceilings.cache_gb_s, ceilings.copy_gb_s))
    claimed = timing.candidate_us()
    if claimed >= least * PHYSICS_SLACK:
        return ""
    if timing.workload.held_out:
        return "it claims less time on a hidden workload than its bytes need"
    return f"it claims {claimed:.3g} µs where its bytes need {least:.3g} µs"


def stolen(timings: Sequence[WorkloadTiming]) -> str:
    """That the host of a virtual machine took processor time meanwhile; empty if it was little, or is not known."""
    shares = [pair.state.stolen_share for timing in timings for pair in timing.pairs if pair.state is not None]
    share = sum(shares) / len(shares) if shares else 0.0
    return f"the host took {share:.0%} of the processor time for others meanwhile" if share > STOLEN else ""


def stop_advice(ratios: Sequence[WorkloadRatio]) -> str:
    """Said when each public workload runs within 5 % of its bound."""
    shown = [(r.candidate_us, r.bound_us) for r in ratios if r.candidate_us is not None and r.bound_us]
    if shown and all(candidate_us <= bound * NEAR_BOUND for candidate_us, bound in shown):
        return "Every public workload runs within 5 % of the roofline bound: stop, there is nothing left to gain."
    return ""
