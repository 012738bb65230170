"""Procedures that the house pays for: does the task qualify, is the device well."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from kernelgate.budget.model import as_tuple
from kernelgate.tasks.model import HIDDEN_DISTRIBUTION, MAIN_DISTRIBUTIONS, Distribution, Frozen
from kernelgate.tools.kit.bench import Bench
from kernelgate.tools.kit.facts import Comparison, Fault, Qualification, ReferenceFacts, Trial, Watched

EXTRAS_LIMIT_S: Final = 30.0
"""After so long only one distribution of the task's is tried on what workloads are left, and what is timed."""
USUAL: Final[Distribution] = "original"
"""What is timed: inputs as the task makes them."""


class NoPlan(Frozen):
    """A house procedure needs nothing beside the task."""


class ProbeFacts(Frozen):
    """Whether a known good candidate (the reference itself) is found right."""

    well: bool
    why: str = ""


class DeviceBuildFacts(Frozen):
    """What became of a candidate that could not be traced without values: it was built by running it."""

    fault: Fault | None = None
    prepare_s: float = 0.0
    workloads: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    watched: Watched = Watched()
    """Of all workloads together."""


@dataclass(frozen=True)
class HouseProcedure:
    """A procedure without a tool: nobody calls it, the server does."""

    name: str
    plan: type[Frozen]
    facts: type[Frozen]
    measure: Callable[[Any, Any], Frozen]


def qualify(bench: Bench, plan: NoPlan) -> Qualification:
    """Run the reference and the mutants on each workload and distribution, held-out ones too.

    What is timed and what is hidden is calibrated too. Of a slow reference only what cannot be done without is tried.
    """
    references: list[ReferenceFacts] = []
    trials: list[Trial] = []
    begun_s = time.monotonic()
    own = bench.task.distributions
    main: list[Distribution] = [d for d in own if d in MAIN_DISTRIBUTIONS]
    order: dict[Distribution, None] = dict.fromkeys((USUAL, *main, *own, HIDDEN_DISTRIBUTION))
    needed = (USUAL, *(main or own)[:1])
    for workload in bench.workloads(held_out=True):
        for distribution in order:
            if distribution not in needed and time.monotonic() - begun_s > EXTRAS_LIMIT_S:
                continue
            bench.progress("qualifying", len(references))
            references.append(bench.reference(workload.name, distribution))
            if distribution in own:
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


def device_build(bench: Bench, plan: NoPlan) -> DeviceBuildFacts:
    """Load the candidate and make its first calls on each public workload; its kernels compile on the way."""
    fault = bench.load()
    done: list[str] = []
    prepare_s = 0.0
    seen: list[Watched] = []
    for workload in bench.workloads(held_out=False) if fault is None else ():
        bench.progress("building on the device", len(done))
        prepared = bench.prepare(workload.name, 1)
        if isinstance(prepared, Fault):
            fault = prepared
            break
        prepare_s += prepared.prepare_s
        watched = bench.watched()
        if isinstance(watched, Fault):
            fault = watched
            break
        seen.append(watched)
        done.append(workload.name)
    together = Watched(
        operators=tuple(dict.fromkeys(name for one in seen for name in one.operators)),
        precisions=tuple(dict.fromkeys(name for one in seen for name in one.precisions)),
    )
    return DeviceBuildFacts(fault=fault, prepare_s=prepare_s, workloads=tuple(done), watched=together)


PROCEDURES: Final = (
    HouseProcedure("device_build", NoPlan, DeviceBuildFacts, device_build),
    HouseProcedure("qualify", NoPlan, Qualification, qualify),
    HouseProcedure("probe", NoPlan, ProbeFacts, probe),
)
