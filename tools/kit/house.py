"""Procedures that the house pays for: does the task qualify, is the device well."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Comparison, Fault, Qualification, ReferenceFacts, Trial


class NoPlan(Frozen):
    """A house procedure needs nothing beside the task."""


class ProbeFacts(Frozen):
    """Whether a known good candidate (the reference itself) is found right."""

    well: bool
    why: str = ""


@dataclass(frozen=True)
class HouseProcedure:
    """A procedure without a tool: nobody calls it, the server does."""

    name: str
    plan: type[Frozen]
    facts: type[Frozen]
    measure: Callable[[Any, Any], Frozen]


def qualify(bench: Bench, plan: NoPlan) -> Qualification:
    """Run the reference and the mutants on each workload and distribution, held-out ones too."""
    references: list[ReferenceFacts] = []
    trials: list[Trial] = []
    for workload in bench.workloads(held_out=True):
        for distribution in bench.task.distributions:
            references.append(bench.reference(workload.name, distribution))
            trials.extend(bench.trials(workload.name, distribution))
    return Qualification(references=tuple(references), trials=tuple(trials))


def probe(bench: Bench, plan: NoPlan) -> ProbeFacts:
    """Judge the known good candidate in the slot where a fault was seen."""
    fault = bench.load()
    if fault is not None:
        return ProbeFacts(well=False, why=fault.error)
    smallest = bench.workloads(held_out=False)[0]
    answer: Comparison | Fault = bench.compare(smallest.name, bench.task.distributions[0])
    if isinstance(answer, Fault):
        return ProbeFacts(well=False, why=answer.error or answer.kind)
    return ProbeFacts(well=answer.problem == "none", why=answer.problem)


PROCEDURES: Final = (
    HouseProcedure("qualify", NoPlan, Qualification, qualify),
    HouseProcedure("probe", NoPlan, ProbeFacts, probe),
)
