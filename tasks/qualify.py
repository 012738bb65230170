"""Is a task fit to be worked on? The facts that the referee measures, and the judgement over them. No torch.

A task is unfit if somebody who computes nothing, or less than was asked, could pass its check, or if an honest
candidate could fail it:

- the reference must run, fit the device, give the same answer twice, and an answer that varies;
- each mutant of `MUTANTS` must be told from the reference on every workload by at least one of the distributions that a
  check draws from. One is enough, since a candidate must be right on all of them; none means that such an answer is
  *correct* there, whatever the other workloads say.

A distribution does not count where the reference is not finite (large inputs overflow an honest exponential), or is
further from its own float64 run than any answer may be; a workload on which none is left makes the task unfit.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue

from kernelgate.tasks.model import (
    MAIN_DISTRIBUTIONS,
    Bound,
    Distribution,
    Frozen,
    Override,
    Task,
    as_tuples,
    canonical_json,
)
from kernelgate.tasks.source import halvable_constants
from kernelgate.tasks.tolerance import OutputFacts

FACTS_VERSION: Final = 4
"""Facts of another version lack what is judged here: they are measured again."""

COMPARED: Final = 9
"""Answers that a check compares on each workload, every distribution at least once: as often a mutant is tried."""

Mutant: TypeAlias = Literal[
    "zeros", "constant", "passthrough", "previous", "tail", "half", "half_inputs", "weights", "ignored"
]
_TIGHTEN: Final = "tighten [tolerance] in its task.toml, or add a distribution that tells them apart"
_MOVE: Final = "give it inputs or sizes on which its answer depends on what goes in"
_MUTANTS: Final[dict[Mutant, tuple[str, str]]] = {
    "zeros": ("an answer of zeros", _TIGHTEN),
    "constant": ("one number everywhere, the mean of another answer", _TIGHTEN),
    "passthrough": ("an input handed back as the answer", _TIGHTEN),
    "previous": ("the answer to other inputs", _MOVE),
    "tail": ("an answer whose last row was left at zero", _TIGHTEN),
    "half": ("inputs, weights and answer rounded to half precision, which its precision policy forbids", _TIGHTEN),
    "weights": (
        "the answer of a module with other weights",
        "let Model use its weights in a way that shows in its answer, and draw them at random",
    ),
}
UNSETTLED: Final = 0.001
"""A larger share of whole numbers that hang on rounding would be a matter of taste among honest candidates."""
NAMED: Final = 5
"""Of a long list."""
_IGNORED: Final[Mutant] = "ignored"
"""Judged by itself: what has no effect anywhere is told, not refused."""
_HALF_INPUTS: Final[Mutant] = "half_inputs"
"""Told, not refused: an answer that averages many numbers may be as near with them in half precision."""
_ALWAYS_POSSIBLE: Final[frozenset[Mutant]] = frozenset({"zeros"})
"""Others need something that a task may not have: an input of the answer's shape, weights, floats; a missing trial says
that it has not."""


class Trial(Frozen):
    """A mutant's answer judged under the task's tolerance on one workload and distribution."""

    mutant: Mutant
    workload: str
    distribution: Distribution
    passes: bool
    """Under the tolerance everywhere, on each draw that was tried; of `passthrough`: for any input handed back."""
    of: str = ""
    """Of `ignored`: which one was exchanged while the others stayed, `input 2` or `weight linear.bias`."""
    effect: bool = True
    """Of `ignored`: whether that moved the answer by more than rounding does."""


def _nothing() -> dict[str, Override]:
    return {}


class ReferenceFacts(Frozen):
    """The reference on one workload and distribution."""

    workload: str
    distribution: Distribution
    finite: bool
    deterministic: bool
    output_std: float
    """Standard deviation over the elements of the largest output, for a person to read; 0 for one number, or if not
    finite. Whether answers vary is judged by the mutants `constant` and `previous`."""
    unsettled_share: float = 0.0
    """Of the whole numbers in its answer the share that changes with inputs that differ by rounding alone: ties."""
    bytes_needed: int
    overrides: dict[str, Annotated[Override, BeforeValidator(as_tuples)]] = Field(default_factory=_nothing)
    """The constants that were replaced; of a workload that was made small, those that were halved and their values."""
    made_small: bool = False
    """Whether those constants were halved by the referee."""
    inputs: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """Of each input, `float32 [64, 256]`."""
    plain_weights: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """Weights that are all ones or all zeros as the reference makes them."""
    refused_by_own_check: str = ""
    """What the task's own check has against the reference's answer; empty if it has none, or none was asked."""
    outputs: Annotated[tuple[OutputFacts, ...], BeforeValidator(as_tuples)] = ()
    """Of each output: the reference's own error, and how far an answer may be from it."""


class Qualification(Frozen):
    """What the referee found when it tried the task itself."""

    version: int = FACTS_VERSION
    references: Annotated[tuple[ReferenceFacts, ...], BeforeValidator(as_tuples)] = ()
    trials: Annotated[tuple[Trial, ...], BeforeValidator(as_tuples)] = ()
    error: str = ""
    """Why the reference could not be run at all: exception type and message."""
    bytes_needed: int = 0
    bytes_allowed: int = 0
    """When the first exceeds the second, the task does not fit this device, or no size of it a workload's limit."""


class TaskFitness(Frozen):
    """Whether anybody may run on a task here, and why not."""

    fit: bool
    problems: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """One sentence each; empty if fit."""
    distributions: Annotated[tuple[Distribution, ...], BeforeValidator(as_tuples)] = ()
    """Those of the task's that count, in its order: the reference is finite on them on every workload."""
    left_out: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """For each of the others, one sentence that says why."""
    bounds: Annotated[tuple[Bound, ...], BeforeValidator(as_tuples)] = ()
    """How far an answer may be from the reference's, where that was calibrated; also under distributions that are not
    the task's own: what is timed, and what is hidden."""
    notes: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """What somebody who trusts the verdicts should know, one sentence each."""
    inert: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """Those of the notes that anybody may read: they name no workload."""

    def applied_to(self, task: Task) -> Task:
        """The task as its answers are judged here: by the distributions that count, and the bounds that were found."""
        return task.model_copy(
            update={"distributions": self.distributions or task.distributions, "bounds": self.bounds}
        )

    @property
    def refused_because(self) -> str:
        """One line for a refusal; empty if fit."""
        if self.fit:
            return ""
        others = len(self.problems) - 1
        return self.problems[0] + (f" (and {others} more: kernelgate tasks check shows all)" if others else "")


def read_facts(stored: JsonValue) -> Qualification | None:
    """Facts out of the book; None if they are of another version, which had other questions."""
    if not isinstance(stored, dict) or stored.get("version") != FACTS_VERSION:
        return None
    return Qualification.model_validate_json(canonical_json(stored))


def judge_task(task: Task, facts: Qualification) -> TaskFitness:
    """Judge a task from what was measured of it on one device. Pure."""
    if facts.bytes_needed > facts.bytes_allowed:  # before the error, which says the same without what to do about it
        return _unfit(
            f"{task.name} needs {_size(facts.bytes_needed)} and this device allows {_size(facts.bytes_allowed)}: "
            f"{_smaller(task, facts.bytes_allowed)}"
        )
    if facts.error:
        return _unfit(f"the reference of {task.name} does not run: {facts.error}")
    if not facts.references:
        return _unfit(f"nothing was measured of {task.name}: it has no workload for this device")
    left_out = {d: why for d in task.distributions if (why := _why_left_out(task, d, facts))}
    counting: tuple[Distribution, ...] = tuple(d for d in task.distributions if d not in left_out)
    sentences = tuple(f"inputs drawn as {d!r} do not count: {why}" for d, why in left_out.items())
    if not counting:
        return _nothing_counts(task, facts, tuple(dict.fromkeys(left_out.values())), sentences)
    problems = tuple(
        problem
        for workload in dict.fromkeys(reference.workload for reference in facts.references)
        for problem in _problems_on(workload, counting, facts)
    )
    inert = tuple(_inert(counting, facts))
    return TaskFitness(
        fit=not problems,
        problems=problems,
        distributions=counting,
        left_out=sentences,
        bounds=tuple(_bounds(facts)),
        notes=(*_notes(counting, facts), *inert),
        inert=inert,
    )


def _nothing_counts(task: Task, facts: Qualification, why: tuple[str, ...], left_out: tuple[str, ...]) -> TaskFitness:
    """Mutants that pass say more than that there are no numbers to judge by."""
    wild = {reference.distribution for reference in facts.references if not reference.finite}
    finite: tuple[Distribution, ...] = tuple(d for d in task.distributions if d not in wild)
    workloads = dict.fromkeys(trial.workload for trial in facts.trials)
    if passing := tuple(p for workload in workloads for p in _passing_on(workload, finite, facts)):
        return TaskFitness(fit=False, problems=passing, left_out=left_out)
    hint = _halved(facts.references)
    said = "; ".join([*why, *([hint] if hint else [])])
    return _unfit(f"no answer of {task.name} can be judged under any of its distributions: {said}", left_out)


def _why_left_out(task: Task, distribution: Distribution, facts: Qualification) -> str:
    """Why a distribution does not count; empty if it does."""
    found = [r for r in facts.references if r.distribution == distribution]
    if distribution != "nonfinite" and (where := [r.workload for r in found if not r.finite]):
        return f"the reference is not finite on {', '.join(where)}"
    if far := [r.workload for r in found if r.deterministic and any(output.beyond_cap for output in r.outputs)]:
        return f"the reference's answer is mostly rounding on {_listed(far)}, by its float64 run: no error can be told"
    main = [d for d in task.distributions if d in MAIN_DISTRIBUTIONS]
    first = (main or task.distributions)[0]
    if distribution != first and len(found) < len({reference.workload for reference in facts.references}):
        return "there was no time for them"
    if distribution in main or not main:
        return ""
    if tied := [r.workload for r in found if r.unsettled_share > UNSETTLED]:
        return f"equal numbers leave open which whole numbers are right on {_listed(tied)}"
    if uncalibrated := [r.workload for r in found if any(output.source == "default" for output in r.outputs)]:
        return f"the tolerance is not calibrated on {_listed(uncalibrated)}"
    return ""


def _bounds(facts: Qualification) -> Iterator[Bound]:
    for reference in facts.references:
        if (reference.finite or reference.distribution == "nonfinite") and not any(
            output.beyond_cap for output in reference.outputs
        ):
            for output in reference.outputs:
                if bound := output.bound(reference.workload, reference.distribution):
                    yield bound


def _notes(counting: tuple[Distribution, ...], facts: Qualification) -> Iterator[str]:
    """Where the tolerance is a guess, and where it cannot tell half precision."""
    guessed = {o.why: r.workload for r in facts.references for o in r.outputs if o.source == "default" and o.why}
    for why, workload in guessed.items():
        yield f"its tolerance is the default of the dtype, not calibrated: {why} (workload {workload})"
    halves = [t for t in facts.trials if t.mutant == _HALF_INPUTS and t.distribution in counting]
    untold = [w for w in dict.fromkeys(t.workload for t in halves) if all(t.passes for t in halves if t.workload == w)]
    if untold:
        yield (
            f"inputs and weights in half precision give right answers on {_listed(untold)}: its answers do not tell "
            "them from float32, read the precisions that compile reports"
        )


def _inert(counting: tuple[Distribution, ...], facts: Qualification) -> Iterator[str]:
    """Inputs and weights that no answer reacted to: a candidate may ignore them."""
    trials = [t for t in facts.trials if t.mutant == _IGNORED and t.distribution in counting]
    reacted = {trial.of for trial in trials if trial.effect or not trial.passes}
    if inert := [name for name in dict.fromkeys(trial.of for trial in trials) if name not in reacted]:
        named = ", ".join(inert)
        yield f"no answer of its reference reacts to {named} beyond its tolerance: a candidate that ignores it is right"
    plain = list(dict.fromkeys(name for reference in facts.references for name in reference.plain_weights))
    if plain:
        more = f" and {len(plain) - NAMED} more" if len(plain) > NAMED else ""
        yield (
            f"weights {', '.join(plain[:NAMED])}{more} are all ones or all zeros as its reference makes them: a "
            "candidate that leaves them out is right; draw them at random to have them count"
        )


def _ignored_on(workload: str, counting: tuple[Distribution, ...], facts: Qualification) -> Iterator[str]:
    """What could be left out of account on one workload although it has an effect there."""
    trials = [trial for trial in _trials_on(workload, counting, facts) if trial.mutant == _IGNORED]
    for name in dict.fromkeys(trial.of for trial in trials):
        mine = [trial for trial in trials if trial.of == name]
        if all(trial.passes for trial in mine) and any(trial.effect for trial in mine):
            yield (
                f"mutant {_IGNORED} (the answer with {name} as it was for another question) passes on workload "
                f"{workload} with inputs drawn as {_listed([trial.distribution for trial in mine])}: {_TIGHTEN}"
            )


def _problems_on(workload: str, counting: tuple[Distribution, ...], facts: Qualification) -> Iterator[str]:
    """What is wrong on one workload, a sentence each."""
    references = [r for r in facts.references if r.workload == workload and r.distribution in counting]
    measured = {reference.distribution for reference in references}
    for said in dict.fromkeys(r.refused_by_own_check for r in references if r.refused_by_own_check):
        yield f"its own check() does not accept the reference's answer on workload {workload}: {said}"
    if missing := [distribution for distribution in counting if distribution not in measured]:
        yield f"the reference was not measured on workload {workload} with inputs drawn as {_listed(missing)}"
    if moving := [reference.distribution for reference in references if not reference.deterministic]:
        yield (
            f"the reference gives another answer the second time on workload {workload} with inputs drawn as "
            f"{_listed(moving)}: nothing can be compared with it"
        )
    tried = {trial.mutant for trial in _trials_on(workload, counting, facts)}
    for mutant in sorted(_ALWAYS_POSSIBLE - tried):
        yield f"mutant {mutant} was not tried on workload {workload}"
    yield from _passing_on(workload, counting, facts)
    yield from _ignored_on(workload, counting, facts)


def _trials_on(workload: str, distributions: Sequence[Distribution], facts: Qualification) -> list[Trial]:
    return [t for t in facts.trials if t.workload == workload and t.distribution in distributions]


def _passing_on(workload: str, distributions: Sequence[Distribution], facts: Qualification) -> Iterator[str]:
    """Mutants that passed under each distribution that they were tried under."""
    references = [r for r in facts.references if r.workload == workload and r.distribution in distributions]
    for mutant, (words, advice) in _MUTANTS.items():
        trials = [trial for trial in _trials_on(workload, distributions, facts) if trial.mutant == mutant]
        if trials and all(trial.passes for trial in trials):
            yield (
                f"mutant {mutant} ({words}) passes on workload {workload} with inputs drawn as "
                f"{_listed([trial.distribution for trial in trials])}: {_halved(references) or advice}"
            )


def _halved(references: Iterable[ReferenceFacts]) -> str:
    """What to do about a mutant that passes at sizes which nobody chose; empty for those of an author."""
    sizes = next((r.overrides for r in references if r.made_small), None)
    if not sizes:  # none, or the sizes of the file itself
        return ""
    told = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return f"if that is so only at these sizes ({told}), which were halved to fit, add a task.toml with workloads"


def _unfit(problem: str, left_out: tuple[str, ...] = ()) -> TaskFitness:
    return TaskFitness(fit=False, problems=(problem,), left_out=left_out)


def _listed(distributions: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(distributions))


def _smaller(task: Task, allowed: int) -> str:
    """How a task that does not fit can be made to."""
    if all(workload.shrink_to_bytes != allowed for workload in task.workloads):
        return "give it smaller workloads in a task.toml, or a larger device"
    names = halvable_constants(task.source)
    tried = f"halving {', '.join(names)} is not enough" if names else "it has no module constant that could be halved"
    return f"{tried}; put its sizes into module constants (ROWS = 4096), or add a task.toml with workloads"


def _size(count: int) -> str:
    return f"{math.ceil(count / (1 << 20)):,} MiB" if count >= 1 << 20 else f"{math.ceil(count / (1 << 10))} KiB"
