"""What came of a rung, and the forms that it takes: pure functions between the worker's words and the reply's."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from kernelgate.budget.model import PASSING, Amount, Purse, Rung, Verdict
from kernelgate.budget.records import ArtifactInput, ArtifactRecord, ResultRecord, SampleInput, Score
from kernelgate.server import advice
from kernelgate.server.prices import least_device_s
from kernelgate.server.services import AnyMeasuringTool, Door
from kernelgate.tasks.model import Frozen, canonical_json
from kernelgate.tools.compile import EXTENSION_LIMIT_S, LIBRARY, CompileReport
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.book import ToolMistake
from kernelgate.tools.kit.envelope import Cost, Refusal, Remaining, Step
from kernelgate.tools.kit.pairing import Pair, WorkloadTiming
from kernelgate.tools.kit.spec import RungReport
from kernelgate.tools.kit.timing_report import TimingFacts, public_names
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.precise_time import PrecisePlan, PreciseReport
from kernelgate.tools.profile import ProfileFacts

LOG_ARTIFACT: Final = "output.log"
NSIGHT_ARTIFACT: Final = "profile.ncu-rep"


class Neighbour(Frozen):
    """A process that is not ours on the GPU that was measured on."""

    pid: int
    memory_mib: int
    """0 where the driver does not tell."""


_NEIGHBOURS: Final = TypeAdapter(tuple[Neighbour, ...])


@dataclass(frozen=True)
class Passage:
    """What came of one rung."""

    rung: Rung
    verdict: Verdict | None
    summary: str
    report: RungReport | None
    refusal: Refusal | None
    cost: Cost
    replayed: bool = False
    company: str = ""
    """Who else used the GPU while it was measured; the last words of its summary."""

    @property
    def passed(self) -> bool:
        """Whether a climb may go on."""
        return self.verdict is not None and self.verdict in PASSING[self.rung]


def remaining_of(purse: Purse) -> Remaining:
    """What a purse still allows."""
    return Remaining(
        device_s=purse.device_s_left,
        held_device_s=purse.open.device_s,
        deadline_s=purse.deadline_s_left,
        override_calls=purse.overrides_left,
        **{f"{rung.value}_calls": purse.calls_left(rung) for rung in Rung},
    )


def may_build_on_device(door: Door, report: CompileReport) -> bool:
    """Whether running a candidate tells what a trace could not: it reads values, wants a GPU, must be seen to compute.

    Its kernels need a GPU; what computes without any can be seen on the CPU too.
    """
    if report.verdict is not Verdict.needs_device:
        return False
    if door.device.kind == "cuda":
        return not report.missing
    return report.code == LIBRARY and door.candidate.language == "torch"


def wants_more(tool: AnyMeasuringTool, plan: Frozen, reply: WorkerReply) -> bool:
    """Whether one more fresh process of the candidate is to be measured before a reply is judged."""
    if tool.wants_more is None or reply.fault or reply.facts is None or reply.exit.kind != "finished":
        return False
    return tool.wants_more(facts_in(tool, reply), plan)


def with_more(tool: AnyMeasuringTool, reply: WorkerReply, further: WorkerReply) -> WorkerReply:
    """A reply with that of one more process behind it; how that one ended is how it ended."""
    both = behind(reply, further)
    if tool.with_more is None or further.facts is None:
        return both
    facts: Frozen = tool.with_more(facts_in(tool, reply), facts_in(tool, further))
    return both.model_copy(update={"facts": facts.model_dump(mode="json")})


def behind(earlier: WorkerReply, later: WorkerReply) -> WorkerReply:
    """The later of two replies for the same call, with what both took."""
    taken = ("lease_s", "house_s", "prepare_s", "queue_s", "wall_s")
    sums = {name: getattr(earlier, name) + getattr(later, name) for name in taken}
    return later.model_copy(update={**sums, "observation": {**earlier.observation, **later.observation}})


def facts_in(tool: AnyMeasuringTool, reply: WorkerReply) -> Frozen:
    """What a worker measured; the reply must have facts."""
    facts: Frozen = tool.facts.model_validate_json(canonical_json(reply.facts))
    return facts


def farmed(tool: AnyMeasuringTool, fault: str) -> RungReport:
    """The report on a candidate that brought our side down twice where others pass: faults must not be a way out."""
    verdict = Verdict.build_failed if tool.rung is Rung.compile else Verdict.crashed
    summary = f"twice our side failed on it, and a known good candidate passes in its place: {fault}"
    report: RungReport = tool.report(verdict=verdict, code="FAULT_FARMING", summary=summary)
    return report


def limit_s_of(tool: AnyMeasuringTool, language: str) -> float:
    """Seconds of a call on a candidate. Inline C++ and CUDA take a compiler for as long as all else together."""
    return EXTENSION_LIMIT_S if tool.rung is Rung.compile and language == "cuda" else tool.limit_s


def lends_hidden(plan: Frozen) -> bool:
    """Whether a call by this plan lends hidden inputs to the candidate."""
    return isinstance(plan, PrecisePlan) and plan.held_out


def with_output(report: RungReport, output: str, plan: Frozen) -> tuple[RungReport, tuple[ArtifactInput, ...]]:
    """A report and what the candidate printed, as an artifact; or the sentence that it is not kept."""
    if not output:
        return report, ()
    if not lends_hidden(plan):
        return report, (ArtifactInput(name=LOG_ARTIFACT, data=output.encode("utf-8", "replace")),)
    if isinstance(report, PreciseReport):
        report = report.model_copy(update={"log": f"{report.log}\n{hidden.OUTPUT_NOT_KEPT}".lstrip()})
    return report, ()


def with_inspection(facts: Frozen | None) -> tuple[ArtifactInput, ...]:
    """Nsight Compute's own report of a call, as an artifact."""
    if not isinstance(facts, ProfileFacts) or not facts.inspection.report:
        return ()
    return (ArtifactInput(name=NSIGHT_ARTIFACT, data=base64.b64decode(facts.inspection.report)),)


def text_of(artifact: ArtifactRecord, data: bytes, folder: Path) -> str:
    """An artifact that is text; raises `ToolMistake` with the place in the data folder of one that is none."""
    if artifact.name != NSIGHT_ARTIFACT:
        return data.decode("utf-8", "replace")
    place = folder / str(artifact.path)
    raise ToolMistake(f"{artifact.name} is no text: open {place} with ncu-ui, or `ncu --import {place}`.")


def least_of(hold: Amount, usual_s: float) -> Amount:
    """The least of a hold for which a call is worth starting, as an amount."""
    if hold.gpu_s > 0:
        return Amount(gpu_s=least_device_s(hold.gpu_s, usual_s))
    return Amount(cpu_s=least_device_s(hold.cpu_s, usual_s))


def refused(rung: Rung, kind: Any, why: str, missing: str) -> Passage:
    """A refusal as a passage, in the words of its reader: it costs nothing."""
    refusal = Refusal(kind=kind, why=advice.in_tools(why), missing=advice.in_tools(missing))
    summary = f"refused ({kind}): {refusal.why}"
    return Passage(rung, None, summary, None, refusal, Cost(free_because="a refusal costs nothing"))


def replayed(tool: AnyMeasuringTool, stored: ResultRecord) -> Passage:
    """A stored answer as a passage."""
    report = tool.report.model_validate_json(canonical_json(stored.report))
    cost = Cost(free_because="answered from the book: the same source was measured in this environment before")
    return Passage(tool.rung, stored.verdict, report.summary, report, None, cost, replayed=True)


def score_of(tool: AnyMeasuringTool, report: RungReport) -> Score | None:
    """The score that a timing report carries, for the book."""
    score = tool.score(report)
    return None if score is None else Score(ratio=score.ratio, low=score.low, high=score.high)


def cost_of(charged: Amount, overrun_s: float, reply: WorkerReply) -> Cost:
    """What a call cost, for the reply."""
    return Cost(
        charged_s=round(charged.gpu_s + charged.cpu_s, 6),
        calls=charged.calls,
        prepare_s=round(reply.prepare_s, 6),
        queue_s=round(reply.queue_s, 6),
        wall_s=round(reply.wall_s, 6),
        overrun_s=round(overrun_s, 6),
    )


def sum_costs(costs: list[Cost]) -> Cost:
    """The costs of a climb in one."""
    if len(costs) == 1:
        return costs[0]
    return Cost(
        charged_s=round(sum(c.charged_s for c in costs), 6),
        calls=sum(c.calls for c in costs),
        prepare_s=round(sum(c.prepare_s for c in costs), 6),
        queue_s=round(sum(c.queue_s for c in costs), 6),
        wall_s=round(sum(c.wall_s for c in costs), 6),
        overrun_s=round(sum(c.overrun_s for c in costs), 6),
        free_because=costs[0].free_because if all(c.free_because for c in costs) else "",
    )


def step_of(passage: Passage) -> Step:
    """One rung of a climb, for the reply."""
    assert passage.verdict is not None
    return Step(
        rung=passage.rung,
        verdict=passage.verdict,
        summary=with_company(passage.summary, passage.company),
        charged_s=passage.cost.charged_s,
        replayed=passage.replayed,
    )


def company_of(reply: WorkerReply) -> str:
    """Who else used the GPU during a call, as the end of a sentence; empty where nobody was seen."""
    try:
        seen = _NEIGHBOURS.validate_python(reply.observation.get("foreign_processes", ()))
    except ValidationError:
        return ""
    named = "; ".join(f"pid {one.pid}" + (f", {one.memory_mib} MiB" if one.memory_mib else "") for one in seen)
    who = "another process" if len(seen) == 1 else f"{len(seen)} other processes"
    return f"{who} used this GPU meanwhile: {named}" if seen else ""


def with_company(summary: str, company: str) -> str:
    """A summary with that at its end."""
    return f"{summary}; {company}" if company else summary


def samples_of(facts: TimingFacts) -> tuple[SampleInput, ...]:
    """Raw blocks of both sides. Held-out workloads keep their public name: the book may be read by the agent's user."""
    return tuple(
        SampleInput(
            workload=name,
            block_index=index,
            side=block.side,
            samples_us=block.samples_us,
            outside_us=block.outside_us,
            verified=block.comparison is not None,
            voided=bool(pair.void),
            state=_state_of(pair) | ({} if block.side == "baseline" else _hand_over(timing)),
        )
        for timing, name in zip(facts.timings, public_names(facts.timings), strict=True)
        for index, pair in enumerate((*timing.pairs, *timing.voided))
        for block in (pair.baseline, pair.candidate)
    )


def _hand_over(timing: WorkloadTiming) -> dict[str, JsonValue]:
    """What is added to each of the candidate's outside times before they bound its ratio; empty where nothing is."""
    hidden_us = timing.prepared.hand_over_us if timing.prepared is not None else 0.0
    return {"hand_over_us": hidden_us} if hidden_us else {}


def _state_of(pair: Pair) -> dict[str, JsonValue]:
    """What is known of a pair beside its times; empty if nothing is."""
    state: dict[str, JsonValue] = (
        {} if pair.state is None else pair.state.model_dump(mode="json", exclude_defaults=True)
    )
    if pair.process:
        state["process"] = pair.process
    if pair.void:
        state["void"] = pair.void
    return state
