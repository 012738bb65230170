"""Work in progress: it belongs to the job table, not to the request that started it.

A cancelled request ends its wait; `cancel` ends the work. Starting the same work twice joins it.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup
from pydantic import JsonValue

from kernelgate.budget.model import Amount, CandidateId, JobId, JobState, RunId
from kernelgate.budget.records import InUse
from kernelgate.server.turns import Turns
from kernelgate.tools.kit.book import ToolMistake

AHEAD: Final = 2
"""Calls that are let through to a device at once: one has it, the next is ready when it ends."""
HEARTBEAT_S: Final = 5.0
"""Idle watchdogs of clients see a sign of life this often."""

OnProgress = Callable[[str, int, int], Awaitable[None]]
"""(stage, done, total)"""


@dataclass(eq=False)
class Job:
    """One piece of work and where it stands. Owned by the `Workshop`."""

    job_id: JobId
    account: str
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
    outcome: Literal["done", "cancelled"] = "done"
    """How it goes into the book; it is told so too."""
    give_up: Callable[[], None] | None = None
    """Leaves the queue before the device, while it stands there."""
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

    def ends_cancelled(self) -> bool:
        """Decide how it ends, once: a wish to cancel that comes while that is written comes too late."""
        self.outcome = "cancelled" if self.cancel_wanted else "done"
        return self.cancel_wanted

    def ask_to_end(self) -> None:
        """Have it stop: in the queue at once, at work when its worker is told."""
        self.cancel_wanted = True
        if self.give_up is not None:
            self.give_up()

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
    MOST: Final = 64
    """Of one account at a time: its next call is refused, before the server drowns in work that nobody can wait for."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._jobs: dict[JobId, Job] = {}
        self._turns: dict[tuple[str, bool], Turns] = {}
        self._begun: Counter[str] = Counter()
        self._alone: dict[tuple[str, ...], anyio.Lock] = {}

    def turns(self, device_uid: str, *, lease: bool) -> Turns:
        """The queue of the calls that take this device, or of those beside it that only build."""
        places = AHEAD if lease else os.cpu_count() or 1
        return self._turns.setdefault((device_uid, lease), Turns(places))

    def alone(self, *what: str) -> anyio.Lock:
        """Held while the house finds something out, so that all who need it wait for one finding and make no second."""
        return self._alone.setdefault(what, anyio.Lock())

    @contextlib.contextmanager
    def room_for(self, account: str) -> Generator[None]:
        """While a job of an account is begun; raises `ToolMistake` where it has as many in progress as it may."""
        at_work = [job.job_id for job in self._jobs.values() if job.account == account and not job.ended.is_set()]
        if len(at_work) + self._begun[account] >= self.MOST:
            oldest = f" (the oldest is {at_work[0]})" if at_work else ""
            why = f"{self.MOST} calls of this account are at work, and more are not begun"
            raise ToolMistake(f"{why}: wait for one with job{oldest}, or cancel it.")
        self._begun[account] += 1
        try:
            yield
        finally:
            self._begun[account] -= 1

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
            job.state = job.outcome
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
