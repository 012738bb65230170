"""Baselines beside the eager reference, where a task asks for them: torch.compile and a CUDA graph.

Each is the task's own reference in another dress, timed once in an environment as a candidate would be: in a process of
its own, under the same precision policy, in pairs with the eager one, on the house. Candidates are then compared with
it through the ratio that both have to the eager baseline.
"""

import logging
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Scored
from kernelgate.budget.records import CalibrationRecord
from kernelgate.server.calibrated import BASELINE_KIND
from kernelgate.server.calibrating import CLOCKS, moved
from kernelgate.server.comparisons import as_fast_as
from kernelgate.server.environment import device_amount
from kernelgate.server.measure import timed_on_the_house
from kernelgate.server.services import Door, Services
from kernelgate.server.work import Job
from kernelgate.tasks.model import ENTRY_FILE, Baseline, Frozen, canonical_json
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.precise_time import LIMIT_S, PrecisePlan, judge

log = logging.getLogger("kernelgate")

SPOKEN: Final[dict[Baseline, str]] = {
    "eager": "the eager reference", "compile": "torch.compile", "cuda_graph": "a CUDA graph of the reference",
}  # fmt: skip
# Imports lie inside: a reference may use any name for something else. Each workload is compiled as the only one: of
# several shapes the later ones would get code for all of them, which is slower.
_COMPILE: Final = """


class ModelNew(Model):
    def __init__(self, *positional, **named):
        import torch

        super().__init__(*positional, **named)
        torch.compiler.reset()
        self._compiled = torch.compile(super().forward)

    def forward(self, *positional, **named):
        return self._compiled(*positional, **named)
"""
_GRAPH: Final = '''


class ModelNew(Model):
    """Captured once for each kind of inputs, which are copied into the graph's own before it is replayed."""

    def __init__(self, *positional, **named):
        import torch
        from torch.utils import _pytree

        super().__init__(*positional, **named)
        self._graphs, self._libraries = {}, (torch, _pytree)

    def forward(self, *positional, **named):
        torch, pytree = self._libraries
        given, form = pytree.tree_flatten((positional, named))
        key = tuple(
            (leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in given
        )
        if key not in self._graphs:
            self._graphs[key] = self._captured(given, form)
        graph, inside, out = self._graphs[key]
        for own, leaf in zip(inside, given):
            if isinstance(leaf, torch.Tensor):
                own.copy_(leaf)
        graph.replay()
        return out

    def _captured(self, given, form):
        torch, pytree = self._libraries
        inside = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in given]
        positional, named = pytree.tree_unflatten(inside, form)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            super().forward(*positional, **named)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = super().forward(*positional, **named)
        return graph, inside, out
'''
DRESSES: Final[dict[Baseline, str]] = {"compile": _COMPILE, "cuda_graph": _GRAPH}
"""What behind a reference makes it the candidate that such a baseline is."""


class Timed(Frozen):
    """What is kept of such a baseline: its ratio to the eager one, or why it has none."""

    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    why_not: str = ""
    sm_clock_mhz: JsonValue = None
    memory_clock_mhz: JsonValue = None


async def time_other_baselines(services: Services, job: Job, door: Door, floor: float) -> None:
    """Time those of the task's baselines that were not timed yet in this environment at its clocks; on the house."""
    for name in _others(door.task.baselines):
        async with services.workshop.alone(name, door.run.task_digest, door.environment.environment_id):
            await _time_once(services, job, door, name, PrecisePlan(floor=floor))


async def _time_once(services: Services, job: Job, door: Door, name: Baseline, plan: PrecisePlan) -> None:
    here, digest, kind = door.environment.environment_id, door.run.task_digest, BASELINE_KIND.format(name)
    known, now = await services.ledger.do(
        lambda ledger: (ledger.calibration(here, kind, digest), ledger.latest_observation(here))
    )
    if known is not None and not moved(known.facts, now):
        return
    found, house_s = await _timed(services, job, door, name, plan)
    if found is None:
        return
    facts, paid = found.model_dump(mode="json", exclude_none=True), device_amount(door.device, house_s, calls=0)
    await services.ledger.do(
        lambda ledger: ledger.record_calibration(door.environment, kind, facts, task_digest=digest, paid=paid)
    )


async def _timed(
    services: Services, job: Job, door: Door, name: Baseline, plan: PrecisePlan
) -> tuple[Timed | None, float]:
    """A baseline against the eager one, and the device seconds that it took.

    None after a fault of ours, and on a device that was held back: that passes.
    """
    if name == "cuda_graph" and door.device.kind != "cuda":
        return Timed(why_not="there are none without a GPU"), 0.0
    files = {ENTRY_FILE: door.task.source + DRESSES[name]}
    reply = await timed_on_the_house(services, job, door, files, plan, LIMIT_S)
    house_s = reply.lease_s + reply.house_s
    if reply.fault:
        log.warning("%s of %s could not be timed: %s", SPOKEN[name], door.task.name, reply.fault)
        return None, house_s
    facts = None if reply.facts is None else TimingFacts.model_validate_json(canonical_json(reply.facts))
    report = judge(facts, reply.exit, plan)
    if facts is not None and report.ratio is None and any(timing.voided for timing in facts.timings):
        log.warning("%s of %s could not be timed: the device was held back", SPOKEN[name], door.task.name)
        return None, house_s
    clocks = {clock: reply.observation[clock] for clock in CLOCKS if clock in reply.observation}
    found: dict[str, JsonValue] = {"why_not": f"{report.verdict}: {report.summary}"}
    if report.ratio is not None:
        found = {"ratio": report.ratio, "low": report.low, "high": report.high}
    return Timed.model_validate({**found, **clocks}), house_s


def compared(ledger: Ledger, door: Door) -> list[str]:
    """What a precisely timed candidate is against each of them, behind `it is`; nothing where none is asked for."""
    names = _others(door.task.baselines)
    if not names:
        return []
    environment_id, run = door.environment.environment_id, door.run
    mine = {scored.candidate_id: scored for scored in ledger.history(run.run_id, environment_id).precise}.get(
        door.candidate.candidate_id
    )
    return [] if mine is None else [
        _said(name, mine, ledger.calibration(environment_id, BASELINE_KIND.format(name), run.task_digest))
        for name in names
    ]  # fmt: skip


def _said(name: Baseline, mine: Scored, known: CalibrationRecord | None) -> str:
    kept = Timed.model_validate(known.facts) if known is not None else Timed(why_not="it was not timed")
    if kept.low <= 0:
        return f"not compared with {SPOKEN[name]} ({kept.why_not})"
    return as_fast_as(SPOKEN[name], mine, kept)


def _others(baselines: Sequence[Baseline]) -> list[Baseline]:
    return [name for name in baselines if name != "eager"]
