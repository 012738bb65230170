"""The one acting place: admit -> run -> settle, for every rung.

A rung of a climb is answered from the book, refused, or measured; each ends as a row. Pure functions decide (the rule,
`judge`, `advice`); only this module and `tries` move money and start work.
"""

import logging
import time
import uuid
from typing import Any, Final

from pydantic import JsonValue

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LADDER, TOOL_OF_RUNG, Amount, Code, RefusalKind, Rung, UnjudgedReason, Verdict
from kernelgate.budget.outcomes import AdmitRequest, Admitted, Refused, Settled
from kernelgate.budget.purse import charge, plus, under
from kernelgate.budget.records import CandidateRecord, ResultInput, RunRecord
from kernelgate.server import advice
from kernelgate.server.calibrating import noise_floor
from kernelgate.server.environment import device_amount
from kernelgate.server.measure import (
    build_on_device,
    our_side_holds,
    trouble_with,
    why_unsound,
)
from kernelgate.server.other_baselines import time_other_baselines
from kernelgate.server.passages import (
    Passage,
    company_of,
    cost_of,
    facts_in,
    farmed,
    least_of,
    lends_hidden,
    may_build_on_device,
    refused,
    remaining_of,
    replayed,
    samples_of,
    score_of,
    step_of,
    sum_costs,
    with_inspection,
    with_output,
)  # fmt: skip
from kernelgate.server.services import AnyMeasuringTool, Door, Services
from kernelgate.server.summaries import summary_of
from kernelgate.server.tries import ENDED_IT, run_within_hold, trouble_of
from kernelgate.server.work import Job
from kernelgate.tasks.model import Candidate, Frozen
from kernelgate.tools.compile import CompileReport
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.envelope import NextStep, Refusal, held_of, reply_model
from kernelgate.tools.kit.spec import RungReport
from kernelgate.tools.kit.timing_report import TimingFacts
from kernelgate.tools.kit.wire import WorkerReply
from kernelgate.tools.precise_time import PrecisePlan

log = logging.getLogger("kernelgate")

NEIGHBOURS_DO_IT_TOO: Final[frozenset[Code | None]] = frozenset({"TIMER_PATCH", "BASELINE_POISON"})
"""What a candidate is suspected of and another process on the same GPU does without its help."""
BOOKED_LATER: Final = "The work is done: it is booked and charged once the book can be written; then ask again."


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
        # What was measured before may be owed to the book still: then it answers this very call.
        await self._services.endings.catch_up(run.run_id)
        settings = args.model_dump(mode="json", exclude={"wait_s", "source", "files", "note", "parent_id", "run_id"})
        settings["candidate_id"] = candidate.candidate_id
        door = await self._services.door(
            run,
            candidate,
            fresh=getattr(args, "fresh", False),
            override_reason=getattr(args, "override_reason", None),
            depth=getattr(args, "depth", "counters"),
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
        remaining = remaining_of(await self._services.purse(run.run_id))
        held = f" {held_of(remaining)}." if remaining.held_device_s > 0 else ""
        return reply_model(tool.report)(
            status="running",
            summary=f"{tool.name} is still at work ({why}): call job with this job_id to wait or cancel.{held}",
            run_id=run.run_id,
            candidate_id=candidate.candidate_id,
            rung=tool.rung,
            job_id=job_id,
            next_steps=(NextStep(tool="job", arguments={"job_id": job_id}, why="wait for it, or cancel it"),),
            remaining=remaining,
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
            passages.append(replayed(tool, stored))
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
        absent = await self._absent(door, rung)
        if absent is not None:
            await self._services.refuse(door, rung, job.job_id, *absent)
            return refused(rung, *absent)
        plan = await self._services.plan(tool, door)
        hold, usual_s = await self._services.hold_for(tool, door)
        await self._services.endings.catch_up(door.run.run_id)
        admitted = await self._services.ledger.do(
            lambda ledger: ledger.admit(
                AdmitRequest(
                    run_id=door.run.run_id, candidate_id=door.candidate.candidate_id, rung=rung,
                    environment_id=door.environment_at(rung).environment_id,
                    environment_of_below=door.target.environment_id,
                    hold=hold, least=least_of(hold, usual_s), job_id=job.job_id,
                    override_reason=door.override_reason, account=self._account,
                )
            )
        )  # fmt: skip
        if isinstance(admitted, Refused):
            return refused(rung, admitted.kind, admitted.why, admitted.missing)
        return await self._measured(job, door, tool, plan, admitted)

    async def _absent(self, door: Door, rung: Rung) -> tuple[RefusalKind, str, str] | None:
        """Why a rung cannot be climbed on this device, and what is missing; None if it can.

        A run that goes on in another environment than it was opened in has its task tried here first.
        """
        tool = TOOL_OF_RUNG[rung]
        if absent := advice.not_here(rung, door.candidate.language, door.device.kind):
            return "not_here", f"{tool} is not possible on this device: {absent}.", "a GPU"
        if rung is Rung.compile:
            return None
        if trouble := await trouble_with(self._services, door.task, door.device, door.environment):
            return "not_here", f"{tool} is not possible now: {trouble}.", "a GPU that is well"
        unsound = await why_unsound(self._services, door)
        return ("task_unqualified", unsound, "a task that is sound here") if unsound else None

    async def _measured(
        self, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted
    ) -> Passage:
        """Run what was admitted and settle it; a fault of ours releases the hold."""
        job.begun_s, job.earlier, job.faults = None, Amount(), 0
        job.takes(admitted.hold_seq)
        try:
            if isinstance(plan, PrecisePlan):
                plan = plan.model_copy(update={"floor": await noise_floor(self._services, job, door)})
                await time_other_baselines(self._services, job, door, plan.floor)
                job.takes(admitted.hold_seq)  # a calibration is booked by itself
            reply = await run_within_hold(self._services, job, door, tool, plan, admitted)
        except Exception:
            await self._release(door, admitted, "")
            raise
        except BaseException:
            await self._left(job, door, tool, admitted)
            raise
        if reply.fault:
            return await self._faulted(job, door, tool, plan, admitted, reply)
        return await self._settled(door, tool, plan, admitted, reply)

    async def _release(self, door: Door, admitted: Admitted, why: str, house_s: float = 0.0) -> None:
        await self._services.endings.end_hold(
            door.run.run_id, f"the release of hold {admitted.hold_seq}",
            lambda ledger: ledger.release(admitted.hold_seq, "fault_of_ours", why, house_s=house_s),
        )  # fmt: skip

    async def _left(self, job: Job, door: Door, tool: AnyMeasuringTool, admitted: Admitted) -> None:
        """The server leaves in the middle: what ran is charged as cancelled work, what only waited is released."""
        if job.begun_s is None and job.earlier == Amount():
            await self._release(door, admitted, "the server left before the work began", job.device_s)
            return
        elapsed_s = 0.0 if job.begun_s is None else time.monotonic() - job.begun_s
        device_s = 0.0 if tool.rung is Rung.compile else elapsed_s
        ran = plus(job.earlier, device_amount(door.device, device_s, calls=1, work_s=elapsed_s))

        def leaving(ledger: Ledger) -> Settled:
            # No worker measured this: an overrun that nobody saw is not booked.
            within = charge(ran, ledger.held(admitted.hold_seq))
            return ledger.settle_unjudged(admitted.hold_seq, within, "cancelled")

        await self._services.endings.end_hold(
            door.run.run_id, f"the settlement of hold {admitted.hold_seq}", leaving
        )  # fmt: skip

    async def _faulted(
        self, job: Job, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted, reply: WorkerReply
    ) -> Passage:
        """A fault on our side was the last word: the candidate's if it is the second and a known good one passes."""
        started = reply.exit.kind != "not_started"
        reference = uuid.uuid4().hex[:8]
        log.error("reference %s: %s", reference, reply.fault)
        # Below its first line may stand what a dying process printed: that is for the log alone.
        fault = hidden.fault_told(
            reply.fault, door.task, door.device.kind, seen=started and lends_hidden(plan)
        ).partition("\n")[0].rstrip(".")  # fmt: skip
        trouble = trouble_of(self._services, door, tool)
        if job.faults > 0 and started and not trouble and await our_side_holds(self._services, door, tool, plan):
            return await self._settled(door, tool, plan, admitted, reply.model_copy(update={"fault": f"{fault}."}))
        await self._release(door, admitted, f"{fault}.", reply.lease_s + reply.house_s)
        raise EnvironmentFault(
            f"{tool.name} could not run: {trouble or fault}. Nothing was charged (reference {reference})."
        )

    async def _settled(
        self, door: Door, tool: AnyMeasuringTool, plan: Frozen, admitted: Admitted, reply: WorkerReply
    ) -> Passage:
        rung = tool.rung
        lease_s = reply.lease_s if rung is not Rung.compile else 0.0
        measured = device_amount(door.device, lease_s, calls=1, work_s=reply.wall_s)
        measured = measured.model_copy(update={"override_calls": admitted.hold.override_calls})
        if reply.exit.kind == "cancelled" or reply.observation.get(ENDED_IT):
            return await self._charged_without_result(door, tool, admitted, measured, reply)
        facts = None if reply.facts is None else facts_in(tool, reply)
        report: RungReport = tool.judge(facts, reply.exit, plan) if not reply.fault else farmed(tool, reply.fault)
        blamed = report.verdict is Verdict.suspicious and report.code in NEIGHBOURS_DO_IT_TOO
        if blamed and (company := company_of(reply)):
            # The referee's clock holds the time of others too, and they keep the device busy: it contradicts nobody.
            await self._release(door, admitted, f"{company}.", lease_s + reply.house_s)
            raise EnvironmentFault(f"{tool.name} could not judge: {company}. Nothing was charged; ask again later.")
        if isinstance(report, CompileReport) and may_build_on_device(door, report):
            report = await build_on_device(self._services, door, report)
        report, artifacts = with_output(report, reply.log, plan)
        artifacts += with_inspection(facts)
        result = ResultInput(
            rung=rung, verdict=report.verdict, code=report.code, report=report.model_dump(mode="json"),
            score=score_of(tool, report), workload_set=self._services.workload_set(tool, door),
            plan_digest=self._services.plan_digest(plan), house_s=reply.house_s, queue_s=reply.queue_s,
            prepare_s=reply.prepare_s, wall_s=reply.wall_s,
        )  # fmt: skip
        samples = samples_of(facts) if isinstance(facts, TimingFacts) else ()
        settled: Settled = await self._services.endings.end_hold(
            door.run.run_id, f"the settlement of hold {admitted.hold_seq}",
            lambda ledger: ledger.settle(
                admitted.hold_seq, measured, result, samples=samples, artifacts=artifacts,
                observation=reply.observation or None,
            ),
            later=BOOKED_LATER,
        )  # fmt: skip
        return Passage(
            rung=rung, verdict=report.verdict, summary=report.summary, report=report, refusal=None,
            cost=cost_of(settled.charged, settled.overrun_s, reply), company=company_of(reply),
        )  # fmt: skip

    async def _charged_without_result(
        self, door: Door, tool: AnyMeasuringTool, admitted: Admitted, measured: Amount, reply: WorkerReply
    ) -> Passage:
        """Cancelled work, or work that the purse could not carry to its limit: charged as used, judged not at all."""
        reason: UnjudgedReason = "cancelled" if reply.exit.kind == "cancelled" else "purse_ended"
        settled = await self._services.endings.end_hold(
            door.run.run_id, f"the settlement of hold {admitted.hold_seq}",
            lambda ledger: ledger.settle_unjudged(admitted.hold_seq, measured, reason),
            later=BOOKED_LATER,
        )  # fmt: skip
        cost = cost_of(settled.charged, settled.overrun_s, reply)
        if reason == "cancelled":
            return Passage(tool.rung, None, f"{tool.name} was cancelled; what it used was charged.", None, None, cost)
        kind: RefusalKind = "deadline" if reply.observation.get(ENDED_IT) == "deadline" else "purse"
        missing = "time before the deadline" if kind == "deadline" else "device seconds"
        cap = await self._services.ledger.do(lambda ledger: ledger.binding_cap(door.run.run_id))
        by_cap = under(cap) if kind == "purse" else ""
        why = f"{tool.name} needed more {missing} than the run has left{by_cap}; what it used was charged."
        still = settled.purse.open
        held, unit = (still.work_s, "s of work") if kind == "deadline" else (still.device_s, "device seconds")
        if held > 0:  # by others: this hold has ended
            why += f" {advice.held_back(held, unit)}: wait for them (job), then ask again."
        return Passage(tool.rung, None, why, None, Refusal(kind=kind, why=why, missing=missing), cost)

    async def _reply(self, tool: AnyMeasuringTool, door: Door, passages: list[Passage]) -> dict[str, JsonValue]:
        last = passages[-1]
        bearings = await self._services.bearings(door.run, door.environment.environment_id)
        standing = await self._services.standing(door)
        own = next((p.report for p in passages if p.rung is tool.rung), None)
        envelope = reply_model(tool.report)(
            status="refused" if last.refusal is not None else "ok" if last.passed else "failed",
            summary=await summary_of(self._services, tool, door, last),
            run_id=door.run.run_id,
            candidate_id=door.candidate.candidate_id,
            rung=last.rung,
            verdict=last.verdict,
            report=own,
            last_report=None if last.report is None or last.rung is tool.rung else last.report.model_dump(mode="json"),
            refusal=last.refusal,
            replayed=last.replayed,
            climbed=tuple(step_of(p) for p in passages if p.verdict is not None) if len(passages) > 1 else (),
            cost=sum_costs([p.cost for p in passages]),
            remaining=remaining_of(bearings.purse),
            next_steps=advice.next_steps(bearings, door.run.run_id, door.device.kind, standing),
            stop_advice=getattr(own, "stop_advice", "") or advice.cannot_afford(bearings),
            ledger_head=await self._services.head(),
        )
        return envelope.model_dump(mode="json")
