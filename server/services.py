"""What the gate and the book stand on: ledger, workshop, workers, tasks. Built once, in `open_services`."""

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio
from pydantic import JsonValue

from kernelgate.budget.clock import Clock, SystemClock
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import LADDER, Amount, Promotion, Purse, RefusalKind, Rung, Verdict
from kernelgate.budget.outcomes import Replayed
from kernelgate.budget.reads import FULL
from kernelgate.budget.records import CandidateRecord, Environment, JobRequest, ResultRecord, RunRecord
from kernelgate.server import advice
from kernelgate.server.endings import Endings
from kernelgate.server.environment import device_amount, device_of, environment_of, harness_digest, target_of
from kernelgate.server.health import Health
from kernelgate.server.kinship import Shapes, kernels_of
from kernelgate.server.ledger_thread import LedgerThread
from kernelgate.server.owner import this_process
from kernelgate.server.policy import priced_tools
from kernelgate.server.prices import expected_s, hold_and_usual_s, leasts_s
from kernelgate.server.settings import Settings
from kernelgate.server.watch import keep_beating, keep_watch
from kernelgate.server.work import Job, Workshop
from kernelgate.tasks.catalogue import Catalogue
from kernelgate.tasks.model import Candidate, Frozen, Task, canonical_json, sha256_hex
from kernelgate.tasks.qualify import TaskFitness, judge_task, read_facts
from kernelgate.tasks.source_scan import kernel_names
from kernelgate.tasks.taskfile import TaskError
from kernelgate.tools.check_correctness import CheckPlan
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.book import ToolMistake
from kernelgate.tools.kit.caches import cache_folder
from kernelgate.tools.kit.runner import Runner, SupervisorOptions, SupervisorRunner
from kernelgate.tools.kit.spec import MeasuringTool
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.precise_time import PrecisePlan
from kernelgate.tools.profile import FULL_HOLD_S, Depth, ProfilePlan

log = logging.getLogger("kernelgate")

T = TypeVar("T")
AnyMeasuringTool = MeasuringTool[Any, Any, Any, Any, Any]
FIRST_WORK_HOLD_S: Final = 20.0
"""Wall clock held against the deadline before anything is known of a rung's cost."""


@dataclass(frozen=True)
class Door:
    """Everything that the rungs of one climb share."""

    account: str
    run: RunRecord
    task: Task
    candidate: CandidateRecord
    device: DeviceRef
    environment: Environment
    target: Environment
    qualified: bool = True
    """Whether the task was tried in this environment, and carries what was found; else it is before it is measured."""
    fresh: bool = False
    override_reason: str | None = None
    depth: Depth = "counters"
    """Of a profile."""

    def environment_at(self, rung: Rung) -> Environment:
        """A build depends on the target, everything else on the device."""
        return self.target if rung is Rung.compile else self.environment


@dataclass(eq=False)
class Services:
    """The parts of a running server."""

    settings: Settings
    ledger: LedgerThread
    endings: Endings
    workshop: Workshop
    catalogue: Catalogue
    measuring: dict[Rung, AnyMeasuringTool]
    harness: str
    clock: Clock = field(default_factory=SystemClock)
    health: dict[str, Health] = field(default_factory=dict[str, Health])
    """Device uid → what probes said of it. It ends with the server: a restart begins with trust."""
    shapes: Shapes = field(default_factory=Shapes)
    _runners: dict[str, Runner] = field(default_factory=dict[str, Runner])

    def runner(self, device: DeviceRef) -> Runner:
        """The worker of a device; its supervisor starts at the first request."""
        if device.uid not in self._runners:
            options = SupervisorOptions(require_confinement=self.settings.require_confinement)
            self._runners[device.uid] = SupervisorRunner(device, self.settings.state_dir, options)
        return self._runners[device.uid]

    def health_of(self, device: DeviceRef) -> Health:
        """What probes said of a device; all is well of one that nobody had to doubt."""
        return self.health.get(device.uid, Health())

    async def close(self) -> None:
        """End the workers."""
        for runner in self._runners.values():
            await runner.close()

    def task(self, name: str) -> Task:
        """A task that can be run; raises `ToolMistake`."""
        try:
            return self.catalogue.task(name)
        except TaskError as error:
            raise ToolMistake(sentence(error)) from None

    async def run(self, account: str, run_id: str) -> RunRecord:
        """A run of the account; raises `ToolMistake`."""
        return await self._known(lambda ledger: ledger.run(run_id, account))

    async def candidate(self, account: str, candidate_id: str) -> CandidateRecord:
        """A candidate of the account; raises `ToolMistake`."""
        return await self._known(lambda ledger: ledger.candidate(candidate_id, account))

    async def register(
        self, account: str, run_id: str, candidate: Candidate, *, parent_id: str | None, note: str
    ) -> CandidateRecord:
        """A new candidate, or the old one of the same source with the new note."""
        record, _ = await self._known(
            lambda ledger: ledger.register_candidate(run_id, candidate, account=account, parent_id=parent_id, note=note)
        )
        return record

    async def _known(self, work: Callable[[Ledger], T]) -> T:
        try:
            return await self.ledger.do(work)
        except LedgerError as error:
            raise ToolMistake(sentence(error)) from None

    async def purse(self, run_id: str) -> Purse:
        """What a run may still spend."""
        return await self.ledger.do(lambda ledger: ledger.spendable(run_id))

    async def head(self) -> str:
        """`seq:hash` of the book's last event."""
        return str(await self.ledger.do(lambda ledger: ledger.head()))

    # -- what a climb stands on ---------------------------------------------------------------------------------------

    def device(self, wish: str) -> DeviceRef:
        """The device of a wish; raises `NoSuchDevice`."""
        return device_of(wish, threads=self.settings.cpu_threads, target=self.settings.target)

    def environment(self, device: DeviceRef, task: Task) -> Environment:
        """Where a task is measured on a device."""
        return environment_of(device, task.precision, self.harness)

    async def door(
        self, run: RunRecord, candidate: CandidateRecord, *, fresh: bool, override_reason: str | None,
        depth: Depth = "counters",
    ) -> Door:  # fmt: skip
        """The climb of a candidate, on the task as it stood when the run began."""
        device = self.device_of_run(run)
        target = target_of(device, self.harness)

        def looking(ledger: Ledger) -> tuple[Task, TaskFitness | None]:
            ledger.record_environment(target)
            task = Task.model_validate_json(canonical_json(ledger.task(run.task_digest).spec))
            environment = self.environment(device, task)
            ledger.record_environment(environment)  # a run may go on in another one than it was opened in
            stored = ledger.qualification(run.task_digest, environment.environment_id)
            found = None if stored is None else read_facts(stored.facts)
            return task, None if found is None else judge_task(task, found)

        task, fitness = await self.ledger.do(looking)
        return Door(
            account=run.account_id, run=run, task=task if fitness is None else fitness.applied_to(task),
            candidate=candidate, device=device, environment=self.environment(device, task), target=target,
            qualified=fitness is not None and fitness.fit, fresh=fresh, override_reason=override_reason, depth=depth,
        )  # fmt: skip

    def device_of_run(self, run: RunRecord) -> DeviceRef:
        """The same device by UUID, whatever its index is now; raises `NoSuchDevice`."""
        return self.device("cpu" if run.device_kind == "cpu" else run.device_uid)

    def workload_set(self, tool: AnyMeasuringTool, door: Door) -> str:
        """Names what a rung runs, so that results over other workloads are never taken for the same."""
        if tool.rung is Rung.compile:
            return "trace"
        if tool.rung is Rung.profile and door.depth == "full":
            return f"{door.device.kind}:all{FULL}"
        return f"{door.device.kind}:smallest" if _interpreted(door) else f"{door.device.kind}:all"

    async def plan(self, tool: AnyMeasuringTool, door: Door) -> Frozen:
        """The plan of a rung, with what only the server knows."""
        if tool.rung is Rung.check:
            return CheckPlan(smallest_only=_interpreted(door))
        if tool.rung is Rung.precise:
            return PrecisePlan(held_out=hidden.exist_on(door.task, door.device.kind))
        if tool.rung is Rung.profile:
            kernels = await self.ledger.do(lambda ledger: kernels_of(ledger, door.candidate.candidate_id))
            return ProfilePlan(depth=door.depth, own_kernels=kernel_names(door.candidate.files), kernels=kernels)
        plan: Frozen = tool.plan()
        return plan

    def plan_digest(self, plan: Frozen) -> str:
        """Of what the caller could vary; a noise floor that was measured again changes no key."""
        return sha256_hex(canonical_json(plan.model_dump(mode="json", exclude={"floor"})))

    async def replay(self, door: Door, tool: AnyMeasuringTool, plan: Frozen) -> ResultRecord | None:
        """The stored answer of the same source on the same rung in the same environment, now also a row of this run."""
        environment_id = door.environment_at(tool.rung).environment_id

        def looking(ledger: Ledger) -> ResultRecord | None:
            found = ledger.find_replay(
                account=door.account, task_digest=door.run.task_digest, source_sha256=door.candidate.source_sha256,
                rung=tool.rung, workload_set=self.workload_set(tool, door), environment_id=environment_id,
                plan_digest=self.plan_digest(plan),
            )  # fmt: skip
            if found is None or not self._is_at_hand(found, door, tool):
                return None
            replayed = ledger.record_replay(
                account=door.account, run_id=door.run.run_id, candidate_id=door.candidate.candidate_id,
                source_result_id=found.result_id, environment_of_below=door.target.environment_id,
            )  # fmt: skip
            # Refused where a rung below is missing in this run: then the gate's own admit says so.
            return replayed.result if isinstance(replayed, Replayed) else None

        return await self.ledger.do(looking)

    def _is_at_hand(self, stored: ResultRecord, door: Door, tool: AnyMeasuringTool) -> bool:
        """Whether the later rungs on this device find what a stored build left. Another GPU of its kind has no cache.

        Otherwise it is built again: without the lease, which they would hold meanwhile.
        """
        if tool.rung is not Rung.compile or stored.verdict is not Verdict.built:
            return True
        if door.device.kind == "cpu" or door.candidate.language == "torch":
            return True
        return cache_folder(self.settings.state_dir, door.device, Candidate(files=door.candidate.files).digest).is_dir()

    async def hold_for(self, tool: AnyMeasuringTool, door: Door) -> tuple[Amount, float]:
        """What to hold for a call, and what one takes most often (0 if unknown), device seconds.

        Learned from past cost, else the tool's first guess.
        """
        environment_id = door.environment_at(tool.rung).environment_id
        prices = await self.ledger.do(lambda ledger: ledger.prices(door.run.task_digest, environment_id))
        learned = prices.get(tool.rung)
        work_s = learned.hold_work_s if learned else FIRST_WORK_HOLD_S
        if tool.rung is Rung.compile:
            return Amount(calls=1, work_s=work_s), 0.0
        seconds, usual_s = hold_and_usual_s(tool, learned)
        if tool.rung is Rung.profile and door.depth == "full":
            seconds = FULL_HOLD_S  # learned prices are those of the cheaper depth
        return device_amount(door.device, seconds, calls=1, work_s=work_s), usual_s

    async def standing(self, door: Door) -> advice.Standing:
        """What is known of the candidate, and what the rule would say of its promotion."""
        candidate_id = door.candidate.candidate_id

        def looking(ledger: Ledger) -> advice.Standing:
            verdicts: dict[Rung, Verdict] = {}
            for rung in (*LADDER, Rung.profile):
                latest = ledger.latest_result(candidate_id, rung, door.environment_at(rung).environment_id)
                if latest is not None:
                    verdicts[rung] = latest.verdict
            promotion = None
            if Rung.quick in verdicts:
                history = ledger.history(door.run.run_id, door.environment.environment_id)
                wish = Promotion(candidate_id=candidate_id, rung=Rung.precise)
                promotion = ledger.rule_of(door.run).decide(history, wish, door.run.parameters)
            return advice.Standing(candidate_id, door.candidate.language, verdicts, promotion)

        return await self.ledger.do(looking)

    async def bearings(self, run: RunRecord, environment_id: str) -> advice.Bearings:
        """Where a run stands, in one visit to the book."""

        def looking(ledger: Ledger) -> advice.Bearings:
            prices = ledger.prices(run.task_digest, environment_id)
            return advice.Bearings(
                ledger.spendable(run.run_id),
                expected_s(self.measuring, prices),
                leasts_s(self.measuring, prices),
                advice.leader_of(ledger.history(run.run_id), ledger.rule_of(run).decide, run.parameters),
                next(iter(ledger.jobs_that_hold(run.run_id)), None),
            )

        return await self.ledger.do(looking)

    async def refuse(self, door: Door, rung: Rung, job_id: str, kind: RefusalKind, why: str, missing: str) -> Purse:
        """A refusal that is not the rule's: a row like any other."""
        environment_id = door.environment_at(rung).environment_id

        refused = await self.ledger.do(
            lambda ledger: ledger.refuse(
                run_id=door.run.run_id, account=door.account, kind=kind, why=why, missing=missing,
                candidate_id=door.candidate.candidate_id, rung=rung, environment_id=environment_id, job_id=job_id,
            )
        )  # fmt: skip
        return refused.purse

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def join_or_start(
        self, door: Door, tool: str, settings: dict[str, JsonValue],
        work: Callable[[Job], Awaitable[dict[str, JsonValue]]],
    ) -> Job | str:  # fmt: skip
        """The running job of the same work, a new one, or the id of one that another server process runs."""
        request = JobRequest(
            run_id=door.run.run_id, candidate_id=door.candidate.candidate_id, account=door.account, tool=tool,
            arguments=settings, owner=this_process(),
        )  # fmt: skip
        key = canonical_json([request.run_id, request.candidate_id, tool, request.arguments_sha256])
        if (joined := self.workshop.running(key)) is not None:
            return joined
        with self.workshop.room_for(door.account):
            record, created = await self._known(lambda ledger: ledger.open_job(request))
            if not created:
                ours = self.workshop.get(record.job_id)
                if ours is None or not ours.ended.is_set():
                    return ours or record.job_id
                # It ended here, but its end never came into the book: an ended job is nothing to join.
                ended = record.job_id
                await self._known(lambda ledger: ledger.cancel_job(ended))
                record, created = await self._known(lambda ledger: ledger.open_job(request))
                if not created:
                    return record.job_id
            job = Job(record.job_id, door.account, tool, request.run_id, request.candidate_id, key)

            async def working(job: Job) -> dict[str, JsonValue]:
                what = f"the end of {job.job_id}"
                try:
                    await self.ledger.do(lambda ledger: ledger.start_job(job.job_id))
                    reply = await work(job)
                except BaseException:
                    await self.endings.end_job(job.run_id, what, lambda ledger: ledger.cancel_job(job.job_id))
                    raise
                if job.ends_cancelled():
                    await self.endings.end_job(job.run_id, what, lambda ledger: ledger.cancel_job(job.job_id, reply))
                else:
                    await self.endings.end_job(job.run_id, what, lambda ledger: ledger.finish_job(job.job_id, reply))
                return reply

            self.workshop.start(job, working)
            return job


def sentence(error: Exception) -> str:
    """An error's text with exactly one end."""
    text = str(error).rstrip()
    return text if text.endswith(("?", "!", ".")) else f"{text}."


def _interpreted(door: Door) -> bool:
    return door.device.kind == "cpu" and door.candidate.language == "triton"


def open_catalogue(settings: Settings) -> Catalogue:
    """Bundled tasks, the ones added to the data folder, and those of the settings; raises `TaskError`."""
    added = [settings.own_tasks] if settings.own_tasks.exists() else []
    return Catalogue([*settings.task_dirs, *added], settings.kernelbench)


@contextlib.asynccontextmanager
async def open_services(settings: Settings, runners: Mapping[str, Runner] | None = None) -> AsyncGenerator[Services]:
    """Open ledger and workshop, and close them again; raises `LedgerError` or `TaskError` with a sentence.

    Args:
        settings: how the server is set up.
        runners: device uid → runner, in place of a supervisor of its own.
    """
    catalogue = open_catalogue(settings)
    ledger = LedgerThread(settings.ledger)
    await ledger.open()
    try:
        await ledger.do(lambda book: book.set_caps(settings.policy.device_s_caps))
        async with anyio.create_task_group() as group:
            services = Services(
                settings=settings,
                ledger=ledger,
                endings=Endings(ledger),
                workshop=Workshop(group),
                catalogue=catalogue,
                measuring=priced_tools(settings.policy),
                harness=harness_digest(),
                _runners=dict(runners or {}),
            )
            group.start_soon(keep_watch, services.ledger, services.endings)
            group.start_soon(keep_beating, services.ledger, services.workshop)
            try:
                yield services
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await services.close()
    finally:
        with anyio.CancelScope(shield=True):
            await ledger.close()
