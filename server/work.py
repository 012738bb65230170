"""Work in progress: it belongs to the job table, not to the request that started it.

A cancelled request ends its wait; `cancel` ends the work. Starting the same work twice joins it.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup
from pydantic import JsonValue

from kernelgate.budget.model import Amount, CandidateId, JobId, JobState, RunId
from kernelgate.budget.records import InUse

HEARTBEAT_S: Final = 5.0
"""Idle watchdogs of clients see a sign of life this often."""

OnProgress = Callable[[str, int, int], Awaitable[None]]
"""(stage, done, total)"""


@dataclass(eq=False)
class Job:
    """One piece of work and where it stands. Owned by the `Workshop`."""

    job_id: JobId
    tool: str
    run_id: RunId
    candidate_id: CandidateId | None
    key: str
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    state: JobState = "running"
    stage: str = "starting"
    done: int = 0
    total: int = 0
    reply: dict[str, JsonValue] | None = None
    error: BaseException | None = None
    cancel_wanted: bool = False
    request_id: int | None = None
    """Of the worker's request in flight, so that `cancel` can reach it."""
    begun_s: float | None = None
    """Monotonic time at which the rung in hand began to run; None before that and while it waits for the device."""
    earlier: Amount = field(default_factory=Amount)
    """What a first try of the rung in hand used, when its hold was extended for a second one."""
    faults: int = 0
    """Faults of ours in the rung in hand that were tried again."""
    hold_seq: int | None = None
    """The hold of the rung in hand; once it has ended, that of the rung before."""
    leased_s: float | None = None
    """Monotonic time since which it has the device, or the house for its sake; None while neither has."""
    used_s: float = 0.0
    """How long it had the device before, under the hold in hand."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    moved: anyio.Event = field(default_factory=anyio.Event)

    @property
    def elapsed_s(self) -> float:
        """Since it was started, up to its end."""
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.started_s

    @property
    def device_s(self) -> float:
        """For how long it has had the device under the hold in hand, whoever pays."""
        return self.used_s + (0.0 if self.leased_s is None else time.monotonic() - self.leased_s)

    def takes(self, hold_seq: int) -> None:
        """Go on under a hold of which nothing is used yet."""
        self.hold_seq, self.leased_s, self.used_s = hold_seq, None, 0.0

    def has_device(self, *, has: bool) -> None:
        """Note that it has the device now, or that it has it no longer."""
        self.used_s = self.device_s if not has else self.used_s
        self.leased_s = (self.leased_s or time.monotonic()) if has else None

    def progress(self, stage: str, done: int, total: int) -> None:
        """Note how far it is and wake who waits."""
        self.stage, self.done, self.total = stage, done, total
        moved, self.moved = self.moved, anyio.Event()
        moved.set()


class Workshop:
    """The jobs of this server process. Ended jobs stay until `KEPT` newer ones have ended."""

    KEPT: Final = 200

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._jobs: dict[JobId, Job] = {}

    def get(self, job_id: JobId) -> Job | None:
        """A job of this process."""
        return self._jobs.get(job_id)

    def in_use(self) -> list[InUse]:
        """What each job has used of a device under the hold in hand."""
        return [
            InUse(job_id=job.job_id, hold_seq=job.hold_seq, device_s=job.device_s)
            for job in self._jobs.values()
            if job.hold_seq is not None and not job.ended.is_set()
        ]

    def running(self, key: str) -> Job | None:
        """Work in progress under a key, to be joined."""
        return next((job for job in self._jobs.values() if job.key == key and not job.ended.is_set()), None)

    def start(self, job: Job, work: Callable[[Job], Awaitable[dict[str, JsonValue]]]) -> None:
        """Run the work in the background; its reply or its exception ends the job."""
        self._jobs[job.job_id] = job
        ended = [j.job_id for j in self._jobs.values() if j.ended.is_set()]
        for old in ended[: max(0, len(ended) - self.KEPT)]:
            del self._jobs[old]
        self._group.start_soon(self._run, job, work)

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[dict[str, JsonValue]]]) -> None:
        try:
            job.reply = await work(job)
            job.state = "cancelled" if job.cancel_wanted and job.reply.get("status") == "failed" else "done"
        except Exception as error:  # noqa: BLE001 -- whoever waits raises it again; the job must end
            job.error = error
            job.state = "done"
        finally:
            job.ended_s = time.monotonic()
            job.ended.set()
            job.progress("", 0, 0)

    async def wait(self, job: Job, wait_s: float, on_progress: OnProgress | None) -> bool:
        """Until the job has ended (True) or the time is up (False); reports progress and heartbeats meanwhile."""
        with anyio.move_on_after(wait_s):
            while not job.ended.is_set():
                moved = job.moved
                if on_progress is not None:
                    await on_progress(job.stage, job.done, job.total)
                with anyio.move_on_after(HEARTBEAT_S):
                    await moved.wait()
        return job.ended.is_set()
