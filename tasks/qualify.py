"""Is a task fit to be worked on? The facts that the referee measures, and the judgement over them. No torch.

A task is unfit if somebody who computes nothing could pass its check, or if an honest candidate could fail it:

- the reference must run, fit the device, give the same answer twice, and an answer that varies;
- each mutant (`zeros`, `passthrough`) must be told from the reference on every workload by at least one of the
  distributions that a check draws from. One is enough, since a candidate must be right on all of them; none means
  that an answer without any work behind it is *correct* there, whatever the other workloads say.

A distribution on which the reference is not finite does not count (large inputs overflow an honest exponential); a
workload on which none is left makes the task unfit.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from kernelgate.tasks.model import Distribution, Frozen, Override, Task, as_tuples
from kernelgate.tasks.source import halvable_constants

Mutant: TypeAlias = Literal["zeros", "passthrough"]
_MUTANTS: Final[tuple[tuple[Mutant, str], ...]] = (
    ("zeros", "an answer of zeros"),
    ("passthrough", "an input handed back as the answer"),
)
_ALWAYS_POSSIBLE: Final[frozenset[Mutant]] = frozenset({"zeros"})
"""Handing back an input needs one of the answer's shape; a missing trial of such a mutant says that there is none."""


class Trial(Frozen):
    """A mutant's answer judged under the task's tolerance on one workload and distribution."""

    mutant: Mutant
    workload: str
    distribution: Distribution
    passes: bool
    """Under the tolerance everywhere; of `passthrough`: for any input that could be handed back."""


def _nothing() -> dict[str, Override]:
    return {}


class ReferenceFacts(Frozen):
    """The reference on one workload and distribution."""

    workload: str
    distribution: Distribution
    finite: bool
    deterministic: bool
    output_std: float
    """Standard deviation over all elements of the outputs for two different inputs together (so that an answer of one
    number varies too); 0 if not finite."""
    bytes_needed: int
    overrides: dict[str, Annotated[Override, BeforeValidator(as_tuples)]] = Field(default_factory=_nothing)
    """The constants that were replaced; of a workload that was made small, those that were halved and their values."""
    inputs: Annotated[tuple[str, ...], BeforeValidator(as_tuples)] = ()
    """Of each input, `float32 [64, 256]`."""


class Qualification(Frozen):
    """What the referee found when it tried the task itself."""

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

    @property
    def refused_because(self) -> str:
        """One line for a refusal; empty if fit."""
        if self.fit:
            return ""
        others = len(self.problems) - 1
        return self.problems[0] + (f" (and {others} more: kernelgate tasks check shows all)" if others else "")


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
    left_out: dict[Distribution, list[str]] = {
        distribution: [r.workload for r in facts.references if r.distribution == distribution and not r.finite]
        for distribution in task.distributions
    }
    counting: tuple[Distribution, ...] = tuple(
        distribution for distribution in task.distributions if not left_out[distribution]
    )
    sentences = tuple(
        f"inputs drawn as {distribution!r} do not count: the reference is not finite on {', '.join(workloads)}"
        for distribution, workloads in left_out.items()
        if workloads
    )
    if not counting:
        return _unfit(f"the reference of {task.name} is finite under none of its distributions", sentences)
    problems = tuple(
        problem
        for workload in dict.fromkeys(reference.workload for reference in facts.references)
        for problem in _problems_on(workload, counting, facts)
    )
    return TaskFitness(fit=not problems, problems=problems, distributions=counting, left_out=sentences)


def _problems_on(workload: str, counting: tuple[Distribution, ...], facts: Qualification) -> Iterator[str]:
    """What is wrong on one workload, a sentence each."""
    references = [r for r in facts.references if r.workload == workload and r.distribution in counting]
    measured = {reference.distribution for reference in references}
    if missing := [distribution for distribution in counting if distribution not in measured]:
        yield f"the reference was not measured on workload {workload} with inputs drawn as {_listed(missing)}"
    if moving := [reference.distribution for reference in references if not reference.deterministic]:
        yield (
            f"the reference gives another answer the second time on workload {workload} with inputs drawn as "
            f"{_listed(moving)}: nothing can be compared with it"
        )
    if references and not any(reference.output_std > 0 for reference in references):
        yield f"the reference's answer on workload {workload} is the same number everywhere, whatever the input"
    for mutant, words in _MUTANTS:
        trials = [
            t for t in facts.trials if t.mutant == mutant and t.workload == workload and t.distribution in counting
        ]
        if not trials and mutant in _ALWAYS_POSSIBLE:
            yield f"mutant {mutant} was not tried on workload {workload}"
        elif trials and all(trial.passes for trial in trials):
            yield (
                f"mutant {mutant} ({words}) passes on workload {workload} with inputs drawn as "
                f"{_listed([trial.distribution for trial in trials])}: tighten [tolerance] in its task.toml, or add a "
                "distribution that tells them apart"
            )


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
