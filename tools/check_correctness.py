"""`check_correctness`: is the candidate right? Secret inputs, several distributions, every public workload."""

import random
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, model_validator

from kernelgate.budget.model import Rung, Verdict, as_tuple
from kernelgate.tasks.model import MAIN_DISTRIBUTIONS, Distribution, Frozen
from kernelgate.tasks.qualify import COMPARED
from kernelgate.tools.kit import failures
from kernelgate.tools.kit.arguments import RungArgs
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Comparison, Fault, Mismatch
from kernelgate.tools.kit.spec import MeasuringTool, RungReport
from kernelgate.tools.kit.wire import ChildExit

LIMIT_S: Final = 60.0


class CheckPlan(Frozen):
    """How much to check."""

    compared: int = COMPARED
    """Answers compared on each workload; each distribution at least once."""
    smallest_only: bool = False
    """Triton's interpreter is slow: on the CPU device such a candidate is checked on the smallest workload."""


class CheckFacts(Frozen):
    """All comparisons up to the first that is wrong."""

    comparisons: Annotated[tuple[Comparison, ...], BeforeValidator(as_tuple)] = ()
    planned: int = 0
    fault: Fault | None = None


class CheckReport(RungReport):
    """What the check found."""

    compared: int = 0
    """Answers compared."""
    planned: int = 0
    workloads: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    worst_abs: float | None = None
    """Largest absolute error of the answers that were compared by value."""
    worst_rel: float | None = None
    wrong: Comparison | None = None
    """The answer that was wrong; only with the verdicts that a wrong answer has."""
    first: Annotated[tuple[Mismatch, ...], BeforeValidator(as_tuple)] = ()
    log: str = ""
    """End of what the candidate raised."""

    @model_validator(mode="after")
    def _a_correct_candidate_has_no_wrong_answer(self) -> "CheckReport":
        if self.verdict is Verdict.correct and (self.wrong is not None or self.compared == 0):
            raise ValueError("correct means that answers were compared and none was wrong")
        return self


def measure(bench: Bench, plan: CheckPlan) -> CheckFacts:
    """Compare answers, smallest workload first, until one is wrong."""
    fault = bench.load()
    if fault is not None:
        return CheckFacts(fault=fault)
    workloads = bench.workloads(held_out=False)[: 1 if plan.smallest_only else None]
    distributions = bench.task.distributions
    each = max(plan.compared, len(distributions))
    planned = each * len(workloads)
    done: list[Comparison] = []
    for workload in workloads:
        for distribution in _in_secret_order(bench.secret, distributions, each):
            answer = bench.compare(workload.name, distribution)
            if isinstance(answer, Fault):
                return CheckFacts(comparisons=tuple(done), planned=planned, fault=answer)
            done.append(answer)
            bench.progress("checking", len(done), planned)
            if answer.problem != "none":
                return CheckFacts(comparisons=tuple(done), planned=planned)
    return CheckFacts(comparisons=tuple(done), planned=planned)


def _in_secret_order(secret: random.Random, distributions: Sequence[Distribution], count: int) -> list[Distribution]:
    """So many distributions, none a second time before each was there once; the main ones, which tell most, first."""
    order: list[Distribution] = []
    while len(order) < count:
        order += sorted(secret.sample(distributions, len(distributions)), key=lambda d: d not in MAIN_DISTRIBUTIONS)
    return order[:count]


def judge(facts: CheckFacts | None, exit_: ChildExit, plan: CheckPlan) -> CheckReport:
    """The verdict: a wrong answer, a fault, or correct."""
    facts = facts or CheckFacts()
    counted = _counted(facts)
    last = facts.comparisons[-1] if facts.comparisons else None
    if last is not None and last.problem != "none":
        failure = _fitted(failures.of_comparison(last), facts.comparisons)
        return CheckReport(
            verdict=failure.verdict, code=failure.code, summary=failure.summary, wrong=last, first=last.first, **counted
        )
    if facts.fault is not None:
        failure = failures.of_fault(facts.fault, exit_, LIMIT_S)
        return CheckReport(
            verdict=failure.verdict, code=failure.code, summary=failure.summary, log=facts.fault.log, **counted
        )
    ended = failures.of_exit(exit_, LIMIT_S)
    if ended is not None:
        return CheckReport(verdict=ended.verdict, code=ended.code, summary=ended.summary, **counted)
    if not facts.comparisons or len(facts.comparisons) < facts.planned:
        return CheckReport(verdict=Verdict.crashed, code="CRASH", summary="it ended before the check did", **counted)
    where = "the smallest workload, through Triton's interpreter" if plan.smallest_only else "all public workloads"
    return CheckReport(
        verdict=Verdict.correct, summary=f"{len(facts.comparisons)} answers were right on {where}", **counted
    )


def _fitted(failure: failures.Failure, comparisons: Sequence[Comparison]) -> failures.Failure:
    """The failure with what tells of it that some answers were right: on other shapes, or on other values."""
    last, earlier = comparisons[-1], comparisons[:-1]
    if failure.code not in (None, "NONFINITE") or last.problem == "input_mutation":
        return failure
    here = {c.distribution for c in earlier if c.workload == last.workload}
    others = ", ".join(dict.fromkeys(c.workload for c in earlier if c.workload != last.workload))
    if others and not here:
        said = f"{failure.summary}; it was right on {others}: look at what depends on the shape"
        return failure._replace(code="SHAPE_FIT", summary=said)
    if here and last.distribution not in here:
        said = f"{failure.summary}; it was right on {', '.join(sorted(here))}: look at what depends on the values"
        return failure._replace(code="DISTRIBUTION_FIT", summary=said)
    return failure


def _counted(facts: CheckFacts) -> dict[str, Any]:
    by_value = [c for c in facts.comparisons if c.problem in ("none", "wrong_values")]
    return {
        "compared": len(facts.comparisons),
        "planned": facts.planned,
        "workloads": tuple(dict.fromkeys(c.workload for c in facts.comparisons)),
        "worst_abs": max((c.worst_abs for c in by_value), default=None),
        "worst_rel": max((c.worst_rel for c in by_value), default=None),
    }


TOOL: Final = MeasuringTool(
    name="check_correctness",
    title="Check correctness",
    description=(
        "Is a built candidate right? Compares its answers with the reference on secret inputs: several seeds and "
        "value distributions, every public workload, smallest first, stopping at the first wrong answer. "
        "Needs verdict `built`. Costs about 0.1-2 device seconds. Reports the share of wrong elements, the worst "
        "errors, the first five (index, got, want) and a pattern hint; never seeds. Next: quick_time."
    ),
    rung=Rung.check,
    args=RungArgs,
    plan=CheckPlan,
    facts=CheckFacts,
    report=CheckReport,
    measure=measure,
    judge=judge,
    score=lambda report: None,
    limit_s=LIMIT_S,
    first_hold_s=4.0,
)
