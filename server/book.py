"""The book as the look-up tools see it: one account's runs, candidates and jobs. Implements `tools/kit/book.py`."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import anyio

from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Budget, CandidateId, JobId, Rung, RunId
from kernelgate.budget.records import JobRecord, RunRequest
from kernelgate.budget.report import spent_per_candidate, spent_per_rung
from kernelgate.server import advice
from kernelgate.server.calibrated import AA_KIND
from kernelgate.server.calibrating import floor_told
from kernelgate.server.environment import why_on_cpu
from kernelgate.server.gate import Gate
from kernelgate.server.gpus import NoSuchDevice
from kernelgate.server.kinship import structures
from kernelgate.server.measure import known_qualification, qualify
from kernelgate.server.owner import is_alive
from kernelgate.server.passages import remaining_of, text_of
from kernelgate.server.prices import expected_s
from kernelgate.server.samples_text import samples_text
from kernelgate.server.services import Services, sentence
from kernelgate.server.views import notes_of, result_view, row_of, texts_of
from kernelgate.tasks.model import Task, canonical_json, sha256_hex
from kernelgate.tasks.qualify import Qualification
from kernelgate.tools.compile import CompileArgs
from kernelgate.tools.kit import hidden
from kernelgate.tools.kit.book import (
    CandidateRow,
    CandidateView,
    Resumed,
    RunView,
    RunWish,
    TaskRow,
    ToolMistake,
)  # fmt: skip
from kernelgate.tools.kit.envelope import JobView, NextStep
from kernelgate.tools.kit.parents import parents

OWN_KERNEL: Final = "the kernel that the task starts from"
POLL_S: Final = 0.25
"""How often a job of another server process is looked at."""
AFTER_ITS_END: Final = "the job is lost then, and asking again starts it anew"
SILENT_S: Final = 90.0
"""Three times the longest pause between two heartbeats: a server that was silent for so long may hang."""
MOST_TOLD: Final = 10
"""Lost jobs that are named to who goes on with a run; the rest is counted."""


class ServerBook:
    """One account's view, for one client."""

    def __init__(self, services: Services, account: str, client: tuple[str, str]) -> None:
        self._services = services
        self._account = account
        self._client = client

    async def tasks(self) -> tuple[TaskRow, ...]:
        """All tasks."""
        entries = await anyio.to_thread.run_sync(self._services.catalogue.entries)
        return tuple(
            TaskRow(name=e.name, title=e.title, group=e.group, unavailable=e.unavailable or "") for e in entries
        )

    async def task(self, name: str) -> Task:
        """One task that can be run."""
        return self._services.task(name)

    async def qualification(self, task: Task) -> Qualification | None:
        """What the referee found of a task on the server's own device; None before the first run of it there."""
        services = self._services
        try:
            device = services.device(services.settings.device)
        except NoSuchDevice:
            return None
        return await known_qualification(services, task, services.environment(device, task))

    async def why_on_cpu(self, device: str) -> str:
        """Why a run without a named device is on the CPU although there is a GPU; empty otherwise."""
        return why_on_cpu(device or self._services.settings.device)

    async def start_run(self, wish: RunWish) -> RunView:
        """Qualify the task, then open the run; a task's own kernel becomes its first candidate."""
        services = self._services
        task = services.task(wish.task)
        device = services.device(wish.device or services.settings.device)
        if not task.workloads_on(device.kind, held_out=False):
            raise ToolMistake(
                f"task {task.name} has no workload for device {device.kind}: add one to its task.toml, or use "
                "another device."
            )
        environment = services.environment(device, task)
        budget = granted(wish, services.settings.policy.caps)  # a trial of the task may take minutes
        await services.require_something_left(self._account, wish.idempotency_key)
        fitness = await qualify(services, task, device, environment)
        if not fitness.fit:
            problems = "; ".join(hidden.problems_told(fitness.problems, task, device.kind))
            raise ToolMistake(f"task {task.name} does not qualify on this device: {problems.rstrip('.')}.")
        rule = wish.rule or services.settings.policy.rule
        request = RunRequest(
            account=self._account,
            rule=rule,
            parameters=services.settings.policy.rules.get(rule, {}),
            budget=budget,
            device_kind=device.kind,
            device_uid=device.uid,
            environment=environment,
            idempotency_key=wish.idempotency_key,
            arguments_sha256=sha256_hex(canonical_json(wish.model_dump(mode="json"))),
            client_name=self._client[0],
            client_version=self._client[1],
        )
        try:
            run = await services.ledger.do(lambda ledger: ledger.start_run(task, request))
        except LedgerError as error:
            raise ToolMistake(sentence(error)) from None
        if task.baseline_kernel is not None:
            await self._climb_own_kernel(run.run_id, task.baseline_kernel)
        return await self.run(run.run_id)

    async def resume_run(self, run_id: RunId, task: str) -> Resumed:
        """Go on with an open run: jobs of servers that are gone are lost now and not at the next sweep."""
        services = self._services
        run = await services.run(self._account, run_id)
        if run.task_name != task:
            raise ToolMistake(
                f"{run_id} is a run of task {run.task_name}, not of {task}; name that one, or another run."
            )
        if run.closed is not None:
            raise ToolMistake(f"{run_id} is closed ({run.closed}); open a new run, without resume.")
        try:
            device = services.device_of_run(run)
        except NoSuchDevice as error:
            raise ToolMistake(f"{run_id} cannot go on here: {str(error).rstrip('.')}; open a new run.") from None

        def sweeping(ledger: Ledger) -> tuple[tuple[str, ...], int]:
            ledger.sweep(is_alive)  # the server's own sweep may have come first: what it lost is told too
            return ledger.tell_lost(run_id, MOST_TOLD)

        lost, lost_beside = await services.ledger.do(sweeping)
        environment = services.environment(device, services.task(task))
        return Resumed(
            run=await self.run(run_id), lost=lost, lost_beside=lost_beside,
            same_environment=environment.environment_id == run.environment_id,
        )  # fmt: skip

    async def _climb_own_kernel(self, run_id: RunId, source: str) -> None:
        """The user's kernel goes first: as far as it can, so that it is the incumbent that others must beat."""
        tool = self._services.measuring[Rung.compile]
        args = CompileArgs(
            run_id=run_id,
            source=source,
            note=OWN_KERNEL,
            up_to="precise_time",
            override_reason=OWN_KERNEL,
            wait_s=600.0,
        )
        await Gate(self._services, self._account).call(tool, args, None)

    async def run(self, run_id: RunId) -> RunView:
        """One run."""
        services = self._services
        run = await services.run(self._account, run_id)

        def looking(ledger: Ledger) -> RunView:
            prices_s = expected_s(services.measuring, ledger.prices(run.task_digest, run.environment_id))
            purse = ledger.purse(run_id)
            incumbent = ledger.incumbent(run_id)
            calibration = ledger.calibration(run.environment_id, AA_KIND, run.task_digest)
            return RunView(
                run_id=run.run_id, task=run.task_name, rule=run.rule, rule_parameters=run.parameters,
                device=run.device_kind, device_unit="gpu_s" if run.device_kind == "cuda" else "cpu_s",
                environment_id=run.environment_id, environment=ledger.environment(run.environment_id),
                budget=purse.granted, remaining=remaining_of(ledger.spendable(run_id)),
                prices_s={rung.value: seconds for rung, seconds in prices_s.items()},
                spent_s=spent_per_rung(ledger, run_id),
                noise_floor=floor_told(calibration, run.device_kind),
                incumbent=incumbent.candidate_id if incumbent else None,
                incumbent_ratio=incumbent.ratio if incumbent else None,
                open=run.closed is None,
            )  # fmt: skip

        return await services.ledger.do(looking)

    async def candidates(self, run_id: RunId) -> tuple[CandidateRow, ...]:
        """The candidates of a run, oldest first."""
        run = await self._services.run(self._account, run_id)

        def looking(ledger: Ledger) -> tuple[CandidateRow, ...]:
            records = ledger.candidates(run_id, order="oldest", limit=100_000)
            spent_s = spent_per_candidate(ledger, run_id)
            return tuple(
                row_of(record, ledger.results(record.candidate_id), run, spent_s.get(record.candidate_id, 0.0))
                for record in records
            )

        return await self._services.ledger.do(looking)

    async def parents(self, run_id: RunId, ranked: Sequence[CandidateRow], limit: int) -> tuple[CandidateRow, ...]:
        """Of the run's candidates, best first: those worth mutating, the best and the best of each other structure."""
        services = self._services
        return parents(ranked, await structures(services.shapes, services.ledger, run_id), limit)

    async def candidate(self, candidate_id: CandidateId) -> CandidateView:
        """One candidate with its results."""
        record = await self._services.candidate(self._account, candidate_id)
        run = await self._services.run(self._account, record.run_id)

        def looking(ledger: Ledger) -> CandidateView:
            results = ledger.results(candidate_id)
            spent_s = spent_per_candidate(ledger, run.run_id).get(candidate_id, 0.0)
            return CandidateView(
                row=row_of(record, results, run, spent_s), run_id=run.run_id, sha256=record.source_sha256,
                notes=notes_of(ledger, candidate_id),
                results=tuple(result_view(result) for result in results),
                artifacts=texts_of(record, ledger.artifacts(candidate_id)),
            )  # fmt: skip

        return await self._services.ledger.do(looking)

    async def text(self, candidate_id: CandidateId, name: str) -> str:
        """A source file or an artifact, by name."""
        record = await self._services.candidate(self._account, candidate_id)
        if name in record.files:
            return record.files[name]
        artifacts = await self._services.ledger.do(lambda ledger: ledger.artifacts(candidate_id))
        stored = next((a for a in reversed(artifacts) if a.name == name), None)
        if stored is None:
            known = sorted({*record.files, *(a.name for a in artifacts)})
            raise ToolMistake(f"candidate {candidate_id} has no text {name!r}; it has: {', '.join(known)}.")
        try:
            data = await self._services.ledger.do(lambda ledger: ledger.read_artifact(stored))
        except LedgerError as error:
            raise ToolMistake(str(error)) from None
        return text_of(stored, data, self._services.settings.data_dir)

    async def samples(self, candidate_id: CandidateId) -> str:
        """Every timed block of a candidate's results, a line each."""
        await self._services.candidate(self._account, candidate_id)

        def looking(ledger: Ledger) -> str:
            found = [(result, ledger.samples(result.result_id)) for result in ledger.results(candidate_id)]
            return samples_text([(result, blocks) for result, blocks in found if blocks])

        return await self._services.ledger.do(looking)

    async def job(self, job_id: JobId, *, wait_s: float, cancel: bool) -> JobView:
        """A job after waiting for its end, or asking it to stop."""
        record = await self._job(job_id)
        ours = self._services.workshop.get(job_id)
        if ours is None:
            return await self._job_elsewhere(record, wait_s, cancel=cancel)
        if cancel and not ours.ended.is_set():
            ours.ask_to_end()
            if ours.request_id is not None:
                run = await self._services.run(self._account, ours.run_id)
                device = self._services.device_of_run(run)
                await self._services.runner(device).cancel(ours.request_id)
        if await self._services.workshop.wait(ours, wait_s, None) and ours.error is not None:
            raise ours.error
        view = JobView(
            job_id=job_id, state=ours.state, tool=ours.tool, run_id=ours.run_id, candidate_id=ours.candidate_id,
            elapsed_s=ours.elapsed_s, reply=ours.reply,
        )  # fmt: skip
        if ours.ended.is_set():
            return view
        return view.model_copy(update={"stage": ours.stage, "done": ours.done, "total": ours.total})

    async def _job(self, job_id: JobId) -> JobRecord:
        try:
            return await self._services.ledger.do(lambda ledger: ledger.job(job_id, self._account))
        except LedgerError as error:
            raise ToolMistake(sentence(error)) from None

    async def _job_elsewhere(self, record: JobRecord, wait_s: float, *, cancel: bool) -> JobView:
        """A job of another server process, or one that ended before: read from the book."""
        if cancel and record.state in ("queued", "running"):
            raise ToolMistake(
                f"{record.job_id} runs in another server process: cancel it through the client that started it; if "
                f"that server hangs, end its process {record.owner.pid}: {AFTER_ITS_END}."
            )
        with anyio.move_on_after(wait_s):
            while record.state in ("queued", "running"):
                await anyio.sleep(POLL_S)
                record = await self._job(record.job_id)
        return JobView(
            job_id=record.job_id, state=record.state, tool=record.tool, run_id=record.run_id,
            candidate_id=record.candidate_id, elapsed_s=elapsed_s(record), reply=record.result, stage=_silence(record),
        )  # fmt: skip

    async def next_steps(self, run_id: RunId, candidate_id: CandidateId | None) -> tuple[NextStep, ...]:
        """What makes sense now."""
        services = self._services
        run = await services.run(self._account, run_id)
        bearings = await services.bearings(run, run.environment_id)
        standing = None
        if candidate_id is not None:
            record = await services.candidate(self._account, candidate_id)
            with contextlib.suppress(NoSuchDevice):
                door = await services.door(run, record, fresh=False, override_reason=None)
                standing = await services.standing(door)
        return advice.next_steps(bearings, run_id, run.device_kind, standing)

    async def head(self) -> str:
        """`seq:hash` of the last event."""
        return await self._services.head()


def elapsed_s(record: JobRecord) -> float:
    """From when a job was asked for to its end; of a lost one to its last sign of life, of a running one to now."""
    last = record.heartbeat_utc if record.state == "lost" else record.finished_utc
    end = datetime.now(UTC) if last is None else datetime.fromisoformat(last)
    return max(0.0, (end - datetime.fromisoformat(record.created_utc)).total_seconds())


def _silence(record: JobRecord) -> str:
    """Of work whose server gives no sign of life: that, and what to do; empty otherwise."""
    silent_s = (datetime.now(UTC) - datetime.fromisoformat(record.heartbeat_utc)).total_seconds()
    if record.state not in ("queued", "running") or silent_s < SILENT_S:
        return ""
    return (
        f"its server, process {record.owner.pid}, has given no sign of life for {silent_s:.0f} s; if it hangs, end "
        f"that process: {AFTER_ITS_END}"
    )


def granted(wish: RunWish, caps: Budget) -> Budget:
    """The caps, lowered where the agent asked for less; raises `ToolMistake` where it asked for more."""
    chosen = caps.model_dump()
    for name in wish.asked:
        asked, most = getattr(wish.budget, name), chosen[name]
        if asked > most:
            raise ToolMistake(
                f"start_run: {name}={asked:g} is above the server's cap of {most:g}; ask for at most that."
            )
        chosen[name] = asked
    return Budget.model_validate(chosen)
