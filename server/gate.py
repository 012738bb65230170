"""The one acting place: admit -> run -> settle, for every rung.

A rung of a climb is answered from the book, refused, or measured; each ends as a row. Pure functions decide (the rule,
`judge`, `advice`); only this module moves money and starts work.
"""

import logging
import uuid
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from kernelgate.budget.model import (
    LADDER,
    PASSING,
    TOOL_OF_RUNG,
    Amount,
    Purse,
    Rung,
    UnjudgedReason,
    Verdict,
)  # fmt: skip
from kernelgate.budget.outcomes import AdmitRequest, Admitted, Extended, Refused, Settled
from kernelgate.budget.records import (
    ArtifactInput,
    CandidateRecord,
    ResultInput,
    ResultRecord,
    RunRecord,
    SampleInput,
    Score,
)
from kernelgate.server import advice
from kernelgate.server.measure import build_on_device, is_well, measure, noise_floor
from kernelgate.server.services import AnyMeasuringTool, Door, Services, device_amount
from kernelgate.server.work import Job
from kernelgate.tasks.model import Candidate, Frozen, canonical_json
from kernelgate.tools.compile import EXTENSION_LIMIT_S, CompileReport
from kernelgate.tools.kit.envelope import Cost, NextStep, Refusal, Remaining, Step, reply_model
from kernelgate.tools.kit.spec import RungReport
from kernelgate.tools.kit.timing_report import TimingFacts, public_names
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.precise_time import PrecisePlan

log = logging.getLogger("kernelgate")

LEAST_HOLD_S: Final = 0.05
"""With less left than this a call is refused: nothing can be measured in it."""
LOG_ARTIFACT: Final = "output.log"


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

    @property
    def passed(self) -> bool:
        """Whether a climb may go on."""
        return self.verdict is not None and self.verdict in PASSING[self.rung]


class EnvironmentFault(Exception):
    """The device side failed, not the candidate; nothing was charged. The sentence is for the client."""


class Gate:
    """Lets the calls of one account through, or not."""

    def __init__(self, services: Services, account: str) -> None:
        self._services = services
        self._account = account

    async def call(self, tool: AnyMeasuringTool, args: Any, on_progress: Any) -> Frozen | dict[str, JsonValue]:
        """One tool call: start the work or join it, wait, and answer with the reply or a job id."""
        candidate, rungs = await self._candidate(tool, args)
        run = await self._services.run(self._account, candidate.run_id)
        settings = args.model_dump(mode="json", exclude={"wait_s", "source", "files", "note", "parent_id", "run_id"})
        settings["candidate_id"] = candidate.candidate_id
        door = await self._services.door(
            run, candidate, fresh=getattr(args, "fresh", False), override_reason=getattr(args, "override_reason", None)
        )
        known = () if door.fresh else await self._from_book(door, rungs)
        if known and (len(known) == len(rungs) or not known[-1].passed):
            return await self._reply(tool, door, list(known))
        job = await self._services.join_or_start(
            door, tool.name, settings, lambda job: self._work(job, tool, door, known, rungs[len(known) :])
        )
        if isinstance(job, str):
            return await self._running(tool, run, candidate, job, "it runs in another server process")
        if not await self._services.workshop.wait(job, args.wait_s, on_progress):
            return await self._running(tool, run, candidate, job.job_id, f"{job.stage} after {args.wait_s:g} s")
        if job.error is not None:
            raise job.error
        assert job.reply is not None
        return job.reply

    async def _candidate(self, tool: AnyMeasuringTool, args: Any) -> tuple[CandidateRecord, tuple[Rung, ...]]:
        """The candidate that the call is about, registered if it is new, and the rungs to climb."""
        if tool.rung is not Rung.compile:
            return await self._services.candidate(self._account, args.candidate_id), (tool.rung,)
        candidate: Candidate = args.candidate()
        await self._services.run(self._account, args.run_id)
        record = await self._services.register(
            self._account, args.run_id, candidate, parent_id=args.parent_id, note=args.note
        )
        top = next(rung for rung in LADDER if TOOL_OF_RUNG[rung] == args.up_to)
        return record, LADDER[: LADDER.index(top) + 1]

    async def _running(
        self, tool: AnyMeasuringTool, run: RunRecord, candidate: CandidateRecord, job_id: str, why: str
    ) -> Frozen:
        return reply_model(tool.report)(
            status="running",
            summary=f"{tool.name} is still at work ({why}): call job with this job_id to wait or cancel.",
            run_id=run.run_id,
            candidate_id=candidate.candidate_id,
            rung=tool.rung,
            job_id=job_id,
            next_steps=(NextStep(tool="job", arguments={"job_id": job_id}, why="wait for it, or cancel it"),),
            remaining=remaining_of(await self._services.purse(run.run_id)),
            ledger_head=await self._services.head(),
        )

    async def _from_book(self, door: Door, rungs: tuple[Rung, ...]) -> tuple[Passage, ...]:
        """The first rungs of a climb that the book can answer: no job is needed for them."""
        passages: list[Passage] = []
        for rung in rungs:
            tool = self._services.measuring[rung]
            stored = await self._services.replay(door, tool, await self._services.plan(tool, door))
            if stored is None:
                break
            passages.append(_replayed(tool, stored))
            if not passages[-1].passed:
                break
        return tuple(passages)

    async def _work(
        self, job: Job, tool: AnyMeasuringTool, door: Door, known: tuple[Passage, ...], rungs: tuple[Rung, ...]
    ) -> dict[str, JsonValue]:
        passages = list(known)
        for rung in rungs:
            passages.append(await self._climb(job, door, rung))
            if not passages[-1].passed or job.cancel_wanted:
                break
        return await self._reply(tool, door, passages)

    async def _climb(self, job: Job, door: Door, rung: Rung) -> Passage:
        """One rung that the book could not answer: refused here, or admitted and measured."""
        tool = self._services.measuring[rung]
        absent = advice.not_here(rung, door.candidate.language, door.device.kind)
        if absent:
            why = f"{TOOL_OF_RUNG[rung]} is not possible on this device: {absent}."
            await self._services.refuse(door, rung, job.job_id, "not_here", why, "a GPU")
            return _refused(rung, "not_here", why, "a GPU")
        plan = await self._services.plan(tool, door)
        hold = await self._services.hold_for(tool, door)
        admitted = await self._services.ledger.do(
            lambda ledger: ledger.admit(
                AdmitRequest(
                    run_id=door.run.run_id, candidate_id=door.candidate.candidate_id, rung=rung,
                    environment_id=door.environment_at(rung).environment_id,
                    environment_of_below=door.target.environment_id,
                    hold=hold, least=_least(hold), job_id=job.job_id,
                    override_reason=door.override_reason, account=self._account,
                )
            )
        )  # fmt: skip
        if isinstance(admitted, Refused):
            return _refused(rung, admitted.kind, admitted.why, admitted.missing)
        return await self._measured(job, door, tool, plan, admitted)

    async def _measured(
        self, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted
    ) -> Passage:
        """Run what was admitted and settle it; a fault of ours releases the hold."""
        try:
            if isinstance(plan, PrecisePlan):
                plan = plan.model_copy(update={"floor": await noise_floor(self._services, door)})
            reply = await self._run(job, door, tool, plan, admitted)
        except BaseException:
            await self._services.ledger.do(lambda ledger: ledger.release(admitted.hold_seq, "fault_of_ours"))
            raise
        if reply.fault:
            return await self._faulted(door, tool, plan, admitted, reply)
        return await self._settled(door, tool, plan, admitted, reply)

    async def _faulted(
        self, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted, reply: WorkerReply
    ) -> Passage:
        """Twice there was a fault on our side. It is the candidate's if a known good one passes in the same slot."""
        blame = reply.exit.kind != "not_started" and await is_well(self._services, door)
        if blame:
            return await self._settled(door, tool, plan, admitted, reply)
        await self._services.ledger.do(
            lambda ledger: ledger.release(admitted.hold_seq, "fault_of_ours", reply.fault, house_s=reply.lease_s)
        )
        reference = uuid.uuid4().hex[:8]
        log.error("reference %s: %s", reference, reply.fault)
        raise EnvironmentFault(
            f"{tool.name} could not run: {reply.fault.rstrip('.')}. Nothing was charged (reference {reference})."
        )

    async def _run(self, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted) -> WorkerReply:
        """The worker's reply; a fault is retried once, and a hold that was reached is extended once."""
        held_s = admitted.hold.gpu_s + admitted.hold.cpu_s
        cap_s = held_s if tool.rung is not Rung.compile else _build_limit_s(tool, door)
        reply = await measure(self._services, job, door, tool, plan, cap_s)
        if reply.fault and not job.cancel_wanted:
            reply = await measure(self._services, job, door, tool, plan, cap_s)
        if reply.exit.kind != "cap_reached" or cap_s >= tool.limit_s:
            return reply
        # The estimate was too small: that says nothing about the candidate. Only the rung's own limit does.
        spent_s = reply.lease_s
        more = device_amount(door.device, tool.limit_s + spent_s - held_s, calls=0)
        extended = await self._services.ledger.do(lambda ledger: ledger.extend(admitted.hold_seq, more))
        if not isinstance(extended, Extended):
            return reply.model_copy(update={"observation": {**reply.observation, "purse_ended_it": True}})
        again = await measure(self._services, job, door, tool, plan, tool.limit_s)
        return again.model_copy(update={"lease_s": again.lease_s + spent_s, "wall_s": again.wall_s + reply.wall_s})

    async def _settled(
        self, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted, reply: WorkerReply
    ) -> Passage:
        rung = tool.rung
        lease_s = reply.lease_s if rung is not Rung.compile else 0.0
        measured = device_amount(door.device, lease_s, calls=1, work_s=reply.wall_s)
        measured = measured.model_copy(update={"override_calls": admitted.hold.override_calls})
        if reply.exit.kind == "cancelled" or reply.observation.get("purse_ended_it"):
            return await self._charged_without_result(door, tool, admitted, measured, reply)
        facts = None if reply.facts is None else tool.facts.model_validate_json(canonical_json(reply.facts))
        report: RungReport = tool.judge(facts, reply.exit, plan) if not reply.fault else _farmed(tool, reply.fault)
        if isinstance(report, CompileReport) and _may_build_on_device(door, report):
            report = await build_on_device(self._services, door, report)
        result = ResultInput(
            rung=rung, verdict=report.verdict, code=report.code, report=report.model_dump(mode="json"),
            score=_score(tool, report), workload_set=self._services.workload_set(tool, door),
            plan_digest=self._services.plan_digest(plan), house_s=reply.house_s, queue_s=reply.queue_s,
            prepare_s=reply.prepare_s, wall_s=reply.wall_s,
        )  # fmt: skip
        samples = _samples(facts) if isinstance(facts, TimingFacts) else ()
        artifacts = (ArtifactInput(name=LOG_ARTIFACT, data=reply.log.encode("utf-8", "replace")),) if reply.log else ()
        settled: Settled = await self._services.ledger.do(
            lambda ledger: ledger.settle(
                admitted.hold_seq, measured, result, samples=samples, artifacts=artifacts,
                observation=reply.observation or None,
            )
        )  # fmt: skip
        return Passage(
            rung=rung, verdict=report.verdict, summary=report.summary, report=report, refusal=None,
            cost=_cost(settled.charged, settled.overrun_s, reply),
        )  # fmt: skip

    async def _charged_without_result(
        self, door: Door, tool: AnyMeasuringTool, admitted: Admitted, measured: Amount, reply: WorkerReply
    ) -> Passage:
        """Cancelled work, or work that the purse could not carry to its limit: charged as used, judged not at all."""
        reason: UnjudgedReason = "cancelled" if reply.exit.kind == "cancelled" else "purse_ended"
        settled = await self._services.ledger.do(
            lambda ledger: ledger.settle_unjudged(admitted.hold_seq, measured, reason)
        )
        cost = _cost(settled.charged, settled.overrun_s, reply)
        if reason == "cancelled":
            return Passage(tool.rung, None, f"{tool.name} was cancelled; what it used was charged.", None, None, cost)
        why = f"{tool.name} needed more device seconds than the run has left; what it used was charged."
        return Passage(tool.rung, None, why, None, Refusal(kind="purse", why=why, missing="device seconds"), cost)

    async def _reply(self, tool: AnyMeasuringTool, door: Door, passages: list[Passage]) -> dict[str, JsonValue]:
        last = passages[-1]
        purse = await self._services.purse(door.run.run_id)
        prices_s = await self._services.prices_s(door.run, door.environment.environment_id)
        standing = await self._services.standing(door)
        own = next((p.report for p in passages if p.rung is tool.rung), None)
        envelope = reply_model(tool.report)(
            status="refused" if last.refusal is not None else "ok" if last.passed else "failed",
            summary=last.summary,
            run_id=door.run.run_id,
            candidate_id=door.candidate.candidate_id,
            rung=last.rung,
            verdict=last.verdict,
            report=own,
            last_report=None if last.report is None or last.rung is tool.rung else last.report.model_dump(mode="json"),
            refusal=last.refusal,
            replayed=last.replayed,
            climbed=tuple(_step(p) for p in passages if p.verdict is not None) if len(passages) > 1 else (),
            cost=_sum_costs([p.cost for p in passages]),
            remaining=remaining_of(purse),
            next_steps=advice.next_steps(
                purse, prices_s, door.run.run_id, door.device.kind, standing, await self._services.leader(door.run)
            ),
            stop_advice=getattr(own, "stop_advice", "") or advice.cannot_afford(purse, prices_s),
            ledger_head=await self._services.head(),
        )
        return envelope.model_dump(mode="json")


def remaining_of(purse: Purse) -> Remaining:
    """What a purse still allows."""
    return Remaining(
        device_s=purse.device_s_left,
        deadline_s=purse.deadline_s_left,
        override_calls=purse.overrides_left,
        **{f"{rung.value}_calls": purse.calls_left(rung) for rung in Rung},
    )


def _may_build_on_device(door: Door, report: CompileReport) -> bool:
    """A candidate that reads values of tensors can be built only by running it, where there is a GPU."""
    return report.verdict is Verdict.needs_device and door.device.kind == "cuda" and door.candidate.language == "triton"


def _farmed(tool: AnyMeasuringTool, fault: str) -> RungReport:
    """The report on a candidate that brought our side down twice where others pass: faults must not be a way out."""
    verdict = Verdict.build_failed if tool.rung is Rung.compile else Verdict.crashed
    summary = f"twice our side failed on it, and a known good candidate passes in its place: {fault}"
    report: RungReport = tool.report(verdict=verdict, code="FAULT_FARMING", summary=summary)
    return report


def _build_limit_s(tool: AnyMeasuringTool, door: Door) -> float:
    """Inline C++ and CUDA take a compiler for as long as all else together."""
    return EXTENSION_LIMIT_S if door.candidate.language == "cuda" else tool.limit_s


def _least(hold: Amount) -> Amount:
    if hold.gpu_s > 0:
        return Amount(gpu_s=min(hold.gpu_s, LEAST_HOLD_S))
    return Amount(cpu_s=min(hold.cpu_s, LEAST_HOLD_S))


def _refused(rung: Rung, kind: Any, why: str, missing: str) -> Passage:
    refusal = Refusal(kind=kind, why=why, missing=missing)
    return Passage(rung, None, f"refused ({kind}): {why}", None, refusal, Cost(free_because="a refusal costs nothing"))


def _replayed(tool: AnyMeasuringTool, stored: ResultRecord) -> Passage:
    report = tool.report.model_validate_json(canonical_json(stored.report))
    cost = Cost(free_because="answered from the book: the same source was measured in this environment before")
    return Passage(tool.rung, stored.verdict, report.summary, report, None, cost, replayed=True)


def _score(tool: AnyMeasuringTool, report: RungReport) -> Score | None:
    score = tool.score(report)
    return None if score is None else Score(ratio=score.ratio, low=score.low, high=score.high)


def _cost(charged: Amount, overrun_s: float, reply: WorkerReply) -> Cost:
    return Cost(
        charged_s=round(charged.gpu_s + charged.cpu_s, 6),
        calls=charged.calls,
        prepare_s=round(reply.prepare_s, 6),
        queue_s=round(reply.queue_s, 6),
        wall_s=round(reply.wall_s, 6),
        overrun_s=round(overrun_s, 6),
    )


def _sum_costs(costs: list[Cost]) -> Cost:
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


def _step(passage: Passage) -> Step:
    assert passage.verdict is not None
    return Step(
        rung=passage.rung,
        verdict=passage.verdict,
        summary=passage.summary,
        charged_s=passage.cost.charged_s,
        replayed=passage.replayed,
    )


def _samples(facts: TimingFacts) -> tuple[SampleInput, ...]:
    """Raw blocks of both sides. Held-out workloads keep their public name: the book may be read by the agent's user."""
    return tuple(
        SampleInput(
            workload=name,
            block_index=index,
            side=block.side,
            samples_us=block.samples_us,
            outside_us=block.outside_us,
            verified=block.comparison is not None,
        )
        for timing, name in zip(facts.timings, public_names(facts.timings), strict=True)
        for index, pair in enumerate(timing.pairs)
        for block in (pair.baseline, pair.candidate)
    )
