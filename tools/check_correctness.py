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
WAITED: Final = (
    "with a wait for the whole device it was right: it works on a stream that its caller's stream does not wait for"
)


class CheckPlan(Frozen):
    """How much to check."""

    compared: int = COMPARED
    """Answers compared on each workload; each distribution at least once."""
    smallest_only: bool = False
    """Triton's interpreter is slow: on the CPU device such a candidate is checked on the smallest workload."""


class CheckFacts(Frozen):
    """All comparisons up to the first that is wrong, and what was asked because of it."""

    comparisons: Annotated[tuple[Comparison, ...], BeforeValidator(as_tuple)] = ()
    planned: int = 0
    fault: Fault | None = None
    again: Comparison | None = None
    """On a GPU: the values of the wrong answer once more."""
    waited: Comparison | None = None
    """The same, handed over when all streams of the device were idle."""
    before: Comparison | None = None
    """The values that it was right on last, once more."""


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
    rounds = [
        _rounds(bench.secret, bench.task.distributions, plan.compared, one_twice=index == 0)
        for index in range(len(workloads))
    ]
    planned = sum(len(of_workload) for of_workload in rounds)
    done: list[Comparison] = []
    for workload, of_workload in zip(workloads, rounds, strict=True):
        for number, (distribution, again) in enumerate(of_workload):
            answer = bench.compare(workload.name, distribution, again)
            if isinstance(answer, Fault):
                return CheckFacts(comparisons=tuple(done), planned=planned, fault=answer)
            done.append(answer)
            bench.progress("checking", len(done), planned)
            if answer.problem != "none":
                facts = CheckFacts(comparisons=tuple(done), planned=planned)
                return facts.model_copy(update=_asked_once_more(bench, workload.name, of_workload, answer, number))
    return CheckFacts(comparisons=tuple(done), planned=planned)


def _rounds(
    secret: random.Random, distributions: Sequence[Distribution], count: int, *, one_twice: bool
) -> list[tuple[Distribution, int | None]]:
    """What is compared on one workload: each distribution, and perhaps the number of the round whose values it repeats.

    A candidate that keeps something between its calls is asked the same twice, at a place that it cannot know.
    """
    fresh = max(count - one_twice, len(distributions))
    rounds: list[tuple[Distribution, int | None]] = [(d, None) for d in _in_secret_order(secret, distributions, fresh)]
    if one_twice:
        place = secret.randrange(1, fresh + 1)
        earlier = secret.randrange(place)
        rounds.insert(place, (rounds[earlier][0], earlier))
    return rounds


def _asked_once_more(
    bench: Bench, workload: str, rounds: Sequence[tuple[Distribution, int | None]], answer: Comparison, wrong: int
) -> dict[str, Comparison]:
    """What tells of a wrong answer: on a GPU the same again, as it was and with a wait; what had been right before.

    Work on a stream that nobody waited for leaves what its memory held: nothing, or an earlier answer.
    """
    by_value = answer.problem in ("wrong_values", "nonfinite") and not answer.again
    late = by_value and bench.device.kind == "cuda" and answer.looks_like not in ("input", "low_precision")
    unexplained = by_value and not answer.looks_like and not answer.untouched_share
    found: dict[str, Comparison] = {}
    for name, number, wait, asked in (
        ("again", wrong, False, late),
        ("waited", wrong, True, late),
        ("before", wrong - 1, False, unexplained and wrong > 0),
    ):
        if not asked:
            continue
        told = bench.compare(workload, rounds[number][0], number, wait=wait)
        if isinstance(told, Fault):
            break
        found[name] = told
        if number == wrong and told.problem == "none":
            break
    return found


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
    wrong = facts.comparisons[-1] if facts.comparisons else None
    if wrong is not None and wrong.problem != "none":
        failure = _with_what_it_depends_on(failures.of_comparison(wrong), facts)
        return CheckReport(
            verdict=failure.verdict,
            code=failure.code,
            summary=failure.summary,
            wrong=wrong,
            first=wrong.first,
            **counted,
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


def _with_what_it_depends_on(failure: failures.Failure, facts: CheckFacts) -> failures.Failure:
    """The failure with what other answers tell of it: right on other shapes or values, or on the same ones."""
    last, earlier = facts.comparisons[-1], facts.comparisons[:-1]
    if facts.waited is not None and facts.waited.problem == "none":
        return failure._replace(code="WRONG_STREAM", summary=f"{failure.summary}; {WAITED}")
    if failure.code not in (None, "NONFINITE") or last.problem == "input_mutation":
        return failure
    if facts.again is not None and facts.again.problem == "none":
        said = f"{failure.summary}; on the same values it was right the second time: it races, or {failures.KEEPS}"
        return failure._replace(code="PHASE_SNIFF", summary=said)
    if facts.before is not None and facts.before.problem != "none":
        said = f"{failure.summary}; values that it had been right on were then wrong too: {failures.KEEPS}"
        return failure._replace(code="PHASE_SNIFF", summary=said)
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
