"""Requests to the worker: the rungs of an agent, and what the house pays for (qualification, calibration, probe)."""

import itertools
import logging
import time
from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from kernelgate.budget.errors import LedgerError
from kernelgate.budget.model import HOUSE, Rung
from kernelgate.budget.records import Environment
from kernelgate.server.environment import device_amount
from kernelgate.server.health import Finding, finding_of, is_doubtful
from kernelgate.server.neighbours import Watch
from kernelgate.server.passages import facts_in, lends_hidden, limit_s_of
from kernelgate.server.services import AnyMeasuringTool, Door, Services
from kernelgate.server.work import Job
from kernelgate.tasks.model import Frozen, Task, canonical_json, sha256_hex
from kernelgate.tasks.qualify import Qualification, TaskFitness, judge_task, read_facts
from kernelgate.tasks.source_scan import scan_files
from kernelgate.tools import precise_time
from kernelgate.tools.compile import EXTENSION_LIMIT_S, CompileReport, built_on_device
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.book import ToolMistake
from kernelgate.tools.kit.house import DeviceBuildFacts
from kernelgate.tools.kit.spec import RungReport
from kernelgate.tools.kit.wire import DeviceRef, Progress, WorkerReply, WorkerRequest

log = logging.getLogger("kernelgate")

QUALIFY_LIMIT_S: Final = 240.0
TOO_SLOW: Final = (
    f"trying it took more than {QUALIFY_LIMIT_S:g} s: give it smaller workloads in a task.toml, or a faster device"
)
WAITING: Final = "waiting for the device"
"""The stage of a request that has no lease yet."""
PROBE_LIMIT_S: Final = 30.0
DEVICE_BUILD_LIMIT_S: Final = 60.0
KNOWN_GOOD: Final = "\n\nModelNew = Model\n"
"""Behind a reference this makes it its own candidate: always right, never faster."""

_request_ids = itertools.count(1)


def known_good(task: Task) -> dict[str, str]:
    """The reference as a candidate."""
    return {"candidate.py": task.source + KNOWN_GOOD}


async def measure(
    services: Services, job: Job | None, door: Door, tool: AnyMeasuringTool, plan: Frozen, cap_s: float
) -> WorkerReply:
    """Run a rung on the device; its progress and its request id go to the job.

    Of a run that was opened in another environment, or by a version that asked less of a task, the task is tried first.
    """
    task = door.task
    if not door.qualified and tool.rung is not Rung.compile:
        fitness = await qualify(services, task, door.device, door.environment)
        if not fitness.fit:
            why = f"The task does not qualify here: {fitness.refused_because}"
            return WorkerReply.model_validate({"request_id": 0, "exit": {"kind": "not_started"}, "fault": why})
        task = fitness.applied_to(task)
    return await _send(
        services, job, door.device, tool.name, task, door.candidate.files, plan,
        lease=tool.rung is not Rung.compile, cap_s=cap_s, account=door.account,
    )  # fmt: skip


async def against_itself(services: Services, job: Job, door: Door, plan: Frozen, cap_s: float) -> WorkerReply:
    """Time the task's baseline as its own candidate, for the sake of a job; on the house."""
    return await timed_on_the_house(services, job, door, known_good(door.task), plan, cap_s)


async def timed_on_the_house(
    services: Services, job: Job, door: Door, files: dict[str, str], plan: Frozen, cap_s: float
) -> WorkerReply:
    """Time files of ours against the task's baseline, for the sake of a job."""
    return await _send(
        services, None, door.device, precise_time.TOOL.name, door.task, files, plan, lease=True, cap_s=cap_s,
        beside=job, account=door.account,
    )  # fmt: skip


async def _send(
    services: Services, job: Job | None, device: DeviceRef, procedure: str, task: Task, files: dict[str, str],
    plan: Frozen | None, *, lease: bool, cap_s: float, beside: Job | None = None, account: str = HOUSE,
) -> WorkerReply:  # fmt: skip
    """Send a request to the worker of a device, when it is the account's turn.

    Args:
        services: those of this server.
        job: whose rung it is.
        device: where it runs.
        procedure: what the worker is asked for.
        task: the task of the call.
        files: the candidate.
        plan: how it is measured.
        lease: whether the call takes the device.
        cap_s: so long it may take there.
        beside: for whose sake the house asks.
        account: in whose place it stands in the queue.
    """
    settings: dict[str, JsonValue] = {} if plan is None else plan.model_dump(mode="json")
    request = WorkerRequest(
        request_id=next(_request_ids),
        procedure=procedure,
        task=task,
        files=files,
        digest=sha256_hex(canonical_json(dict(files))),
        plan=settings,
        device=device,
        lease=lease,
        cap_s=cap_s,
        state_dir=str(services.settings.state_dir),
        hidden=plan is not None and lends_hidden(plan) and hidden.exist_on(task, device.kind),
    )

    watch, user = Watch(device), job or beside

    def on_progress(progress: Progress) -> None:
        waits = progress.stage == WAITING
        if lease and not waits:
            watch.look()
        if user is not None and lease:
            user.has_device(has=not waits)
        if job is not None:
            job.begun_s = None if waits else job.begun_s or time.monotonic()
            job.progress(progress.stage, progress.done, progress.total)

    if job is not None:
        job.request_id = request.request_id
        job.begun_s = None  # what an earlier try used is counted apart, or was a fault of ours
        if job.cancel_wanted:
            return _cancelled(request)
    try:
        reply = await _in_turn(services, job, request, on_progress, account)
        return reply.model_copy(update={"observation": {**reply.observation, **watch.told()}})
    finally:
        if user is not None:
            user.has_device(has=False)
        if job is not None:
            job.request_id = job.give_up = None


async def _in_turn(
    services: Services, job: Job | None, request: WorkerRequest, on_progress: Callable[[Progress], None], account: str
) -> WorkerReply:
    """Have a request run when it is the account's turn."""
    device, asked_s, used_s = request.device, time.monotonic(), 0.0
    ticket = services.workshop.turns(device.uid, lease=request.lease).ask(account)
    try:
        if not ticket.granted and job is not None:
            job.give_up = ticket.give_up
            job.progress(WAITING, 0, 0)
        if not await ticket.called() or (job is not None and job.cancel_wanted):  # in the instant of its turn
            return _cancelled(request)
        queue_s = time.monotonic() - asked_s
        reply = await services.runner(device).run(request, on_progress)
        used_s = reply.lease_s if request.lease else reply.wall_s
        return reply.model_copy(update={"queue_s": reply.queue_s + queue_s})
    finally:
        ticket.done(used_s)


def _cancelled(request: WorkerRequest) -> WorkerReply:
    return WorkerReply.model_validate({"request_id": request.request_id, "exit": {"kind": "cancelled"}})


async def known_qualification(services: Services, task: Task, environment: Environment) -> Qualification | None:
    """What was found of a task in this environment; None if nobody tried it there with the facts of today."""
    stored = await services.ledger.do(lambda ledger: ledger.qualification(task.digest, environment.environment_id))
    return None if stored is None else read_facts(stored.facts)


async def qualify(services: Services, task: Task, device: DeviceRef, environment: Environment) -> TaskFitness:
    """Whether the task is sound in this environment; tried once, kept in the book, paid by the house.

    Raises `ToolMistake` where it is not known yet and cannot be tried now: the device is set aside, or others have it.
    """
    stored = await known_qualification(services, task, environment)
    if stored is not None:
        return judge_task(task, stored)
    async with services.workshop.alone("qualify", task.digest, environment.environment_id):
        stored = await known_qualification(services, task, environment)
        if stored is not None:
            return judge_task(task, stored)
        return await _qualify_now(services, task, device, environment)


async def _qualify_now(services: Services, task: Task, device: DeviceRef, environment: Environment) -> TaskFitness:
    if trouble := await trouble_with(services, task, device, environment):
        raise ToolMistake(f"task {task.name} cannot be tried now: {trouble}.")
    reply = await _send(services, None, device, "qualify", task, {}, None, lease=True, cap_s=QUALIFY_LIMIT_S)
    if reply.fault and reply.exit.kind == "not_started" and not reply.lease_s + reply.house_s:
        # It never had the device: nothing about the task.
        why = hidden.fault_told(reply.fault.partition("\n")[0], task, device.kind, seen=False)
        raise ToolMistake(f"task {task.name} could not be tried yet: {why.rstrip('.')}. Ask again later.")
    if reply.fault:
        # The reference could not be run: a fact about the task in this environment, not kept, so that a mended host
        # is asked again. Below its first line may stand what a dying process printed, our own paths among it.
        log.info("task %s was not qualified: %s", task.name, reply.fault)
        return judge_task(task, Qualification(error=reply.fault.partition("\n")[0]))
    if reply.facts is None:
        return judge_task(task, Qualification(error=TOO_SLOW))
    facts = Qualification.model_validate_json(canonical_json(reply.facts))
    fitness = judge_task(task, facts)
    await services.ledger.do(
        lambda ledger: ledger.record_qualification(
            task, environment, qualified=fitness.fit, why="; ".join(fitness.problems),
            facts=facts.model_dump(mode="json"), paid=device_amount(device, reply.lease_s + reply.house_s, calls=0),
        )
    )  # fmt: skip
    return fitness


async def why_unsound(services: Services, door: Door) -> str:
    """Why a task is not fit to be worked on here, for a refusal; empty if it is, by the book or by a trial now."""
    if door.qualified:
        return ""
    fitness = await qualify(services, door.task, door.device, door.environment)
    if fitness.fit:
        return ""
    problem = hidden.problems_told(fitness.problems, door.task, door.device.kind)[0].rstrip(".")
    return f"the task does not qualify in this environment, which is not that in which the run began: {problem}."


async def build_on_device(services: Services, door: Door, report: CompileReport) -> CompileReport:
    """Build a candidate that cannot be traced by its first calls on the device, under the lease, on the house."""
    if await trouble_with(services, door.task, door.device, door.environment):
        return report
    reply = await _send(
        services, None, door.device, "device_build", door.task, door.candidate.files, None, lease=True,
        cap_s=EXTENSION_LIMIT_S if door.candidate.language == "cuda" else DEVICE_BUILD_LIMIT_S,
    )  # fmt: skip
    if is_doubtful(door.device, reply):
        reply = await examined(services, door, reply)
    if reply.fault:
        return report
    facts = None if reply.facts is None else DeviceBuildFacts.model_validate_json(canonical_json(reply.facts))
    return built_on_device(report, facts, reply.exit, library_calls=door.task.allow_library_calls)


async def our_side_holds(services: Services, door: Door, tool: AnyMeasuringTool, plan: Frozen) -> bool:
    """Whether the same work on a known good candidate ends without a fault; on the house.

    Only the very procedure and plan that failed can tell: an easier probe would clear us of a fault that is ours.
    """
    reply = await _send(
        services, None, door.device, tool.name, door.task, known_good(door.task), plan,
        lease=tool.rung is not Rung.compile, cap_s=tool.limit_s,
    )  # fmt: skip
    return not reply.fault and reply.exit.kind == "finished" and reply.facts is not None


async def judged(services: Services, task: Task, device: DeviceRef, files: dict[str, str], rung: Rung) -> RungReport:
    """What a rung says of a candidate, without a run; on the house. Raises `ToolMistake` for a fault of ours."""
    tool = services.measuring[rung]
    plan = tool.plan()
    cap_s = limit_s_of(tool, scan_files(files).language)
    reply = await _send(
        services, None, device, tool.name, task, files, plan, lease=rung is not Rung.compile, cap_s=cap_s
    )
    if reply.fault:
        raise ToolMistake(f"{tool.name} could not run: {reply.fault}")
    facts = None if reply.facts is None else facts_in(tool, reply)
    report: RungReport = tool.judge(facts, reply.exit, plan)
    return report


async def probe(services: Services, task: Task, device: DeviceRef, files: dict[str, str]) -> Finding:
    """Whether a candidate is right on the smallest workload; on the house."""
    reply = await _send(services, None, device, "probe", task, files, None, lease=True, cap_s=PROBE_LIMIT_S)
    return finding_of(reply)


async def examined(services: Services, door: Door, reply: WorkerReply) -> WorkerReply:
    """The reply to a doubtful call, once a probe has told of its GPU: a fault of ours where that is not well."""
    finding = await _probe_device(services, door.task, door.device, door.environment)
    if finding.well is not False or reply.fault:
        return reply
    fault = f"The GPU was not well behind it: a known good candidate failed on it too ({finding.why})."
    return reply.model_copy(update={"fault": fault, "facts": None})


async def trouble_with(services: Services, task: Task, device: DeviceRef, environment: Environment) -> str:
    """Why a device takes no calls for now, for a sentence; empty if it takes them. After a while it is probed anew."""
    known = services.health_of(device)
    if known.is_due(services.clock.monotonic_s()):
        # Said before the answer is there: who asks meanwhile is answered at once.
        services.health[device.uid] = known.model_copy(update={"probed_s": services.clock.monotonic_s()})
        await _probe_device(services, task, device, environment)
    return services.health_of(device).trouble(device)


async def _probe_device(services: Services, task: Task, device: DeviceRef, environment: Environment) -> Finding:
    """Try the task's reference on a device, in a process of its own, and keep what it says of the device."""
    finding = await probe(services, task, device, known_good(task))
    log.info("probe of %s: %s %s", device.uid, finding.well, finding.why)
    told = hidden.fault_told(finding.why, task, device.kind, seen=False)
    finding = finding.model_copy(update={"why": told})
    now = services.health_of(device).after(finding, services.clock.monotonic_s(), services.clock.utc())
    services.health[device.uid] = now
    if now.is_aside:
        log.error("%s", now.trouble(device))
    try:
        seen: dict[str, JsonValue] = {"probe": finding.model_dump(mode="json"), "failed_in_a_row": now.failed}
        await services.ledger.do(lambda ledger: ledger.record_observation(environment, seen))
    except LedgerError as error:  # it is a note: what it is about does not wait for it
        log.warning("the probe of %s was not written: %s", device.uid, error)
    return finding
