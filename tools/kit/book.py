"""The book as tools may see it: one account's tasks, runs, candidates and jobs, behind a port."""

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import BeforeValidator, Field, JsonValue

from kernelgate.budget.model import Budget, CandidateId, JobId, RunId, as_tuple
from kernelgate.tasks.model import Frozen, Task
from kernelgate.tasks.qualify import Qualification
from kernelgate.tools.kit.envelope import JobView, NextStep, Remaining


class ToolMistake(Exception):
    """The arguments cannot be served: its one sentence says what, why and what is allowed, and reaches the client."""


class TaskRow(Frozen):
    """One task of the catalogue."""

    name: str
    title: str
    group: str
    unavailable: str = ""
    """Why it cannot be run here; empty if it can."""


class RunWish(Frozen):
    """What an agent asks of a new run. Budgets may be lower than the server's caps, never higher."""

    task: str
    rule: str
    budget: Budget
    asked: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Fields of the budget that the agent named; the others come from the server's caps."""
    device: str
    idempotency_key: str | None


class RunView(Frozen):
    """A run as its agent sees it."""

    run_id: RunId
    task: str
    rule: str
    rule_parameters: dict[str, float]
    device: str
    """`cpu`, `cuda:0`, …"""
    device_unit: str
    """What `device_s` counts on this device: `gpu_s` or `cpu_s`."""
    environment_id: str
    environment: dict[str, JsonValue]
    budget: Budget
    remaining: Remaining
    prices_s: dict[str, float]
    """Expected device seconds per rung."""
    spent_s: dict[str, float]
    """Device seconds settled per rung."""
    noise_floor: float | None = None
    """Half width of what this device calls equal: gaps below are no gain. None before the first precise_time."""
    incumbent: CandidateId | None = None
    incumbent_ratio: float | None = None
    open: bool = True


class CandidateRow(Frozen):
    """One line about a candidate."""

    candidate_id: CandidateId
    parent_id: CandidateId | None
    note: str
    language: str
    furthest: str = ""
    """Highest rung with a result."""
    verdict: str = ""
    """Of that rung."""
    ratio: float | None = None
    """Baseline time / candidate time at the dearest timing rung that gave one: above 1 is faster."""
    low: float | None = None
    high: float | None = None
    ratio_rung: str = ""
    """The rung that the ratio is from: `quick` although `furthest` is `precise`, where it failed there."""
    spent_s: float = 0.0
    structure: str = ""
    """Of a parent, like the next two: language, kernels, tile shape, features."""
    lineage: str = ""
    why: str = ""


class ResultView(Frozen):
    """One result of a candidate."""

    rung: str
    verdict: str
    code: str = ""
    report: dict[str, JsonValue]
    charged_s: float
    replayed: bool
    created_utc: str


class ArtifactRow(Frozen):
    """Something too long for a reply: read it with `get_candidate` by offset, limit and grep."""

    name: str
    bytes: int
    sha256: str


class CandidateView(Frozen):
    """A candidate with what is known of it."""

    row: CandidateRow
    run_id: RunId
    sha256: str
    notes: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    results: Annotated[tuple[ResultView, ...], BeforeValidator(as_tuple)] = ()
    artifacts: Annotated[tuple[ArtifactRow, ...], BeforeValidator(as_tuple)] = ()


class TextPage(Frozen):
    """A window of a text."""

    name: str
    text: str
    offset: int = Field(ge=0)
    next_offset: int | None = None
    """Where to read on; None at the end."""
    total_lines: int


class Resumed(Frozen):
    """A run that goes on."""

    run: RunView
    lost: tuple[JobId, ...]
    """Jobs whose server is gone, newest first, of which nobody was told yet: what they held is back in the purse."""
    lost_beside: int = Field(default=0, ge=0)
    """How many more there are."""
    same_environment: bool
    """Else candidates start again at check_correctness: numbers of two environments are never compared."""


class Book(Protocol):
    """What the look-up tools ask. Ids of another account read as unknown; mistakes raise `ToolMistake`."""

    async def tasks(self) -> tuple[TaskRow, ...]:
        """All tasks, in order of name."""
        ...

    async def task(self, name: str) -> Task:
        """One task that can be run."""
        ...

    async def qualification(self, task: Task) -> Qualification | None:
        """What the referee found of a task on the server's own device; None before the first run of it there."""
        ...

    async def why_on_cpu(self, device: str) -> str:
        """Why a run without a named device is on the CPU although there is a GPU, as a sentence; else empty."""
        ...

    async def start_run(self, wish: RunWish) -> RunView:
        """Open a run (or return the one of that key) on a qualified task; returns once its own kernel has climbed."""
        ...

    async def resume_run(self, run_id: RunId, task: str) -> Resumed:
        """Go on with an open run of a task, whichever server process worked on it before."""
        ...

    async def run(self, run_id: RunId) -> RunView:
        """One run of this account."""
        ...

    async def candidates(self, run_id: RunId) -> tuple[CandidateRow, ...]:
        """The candidates of a run, oldest first."""
        ...

    async def parents(self, run_id: RunId, ranked: Sequence[CandidateRow], limit: int) -> tuple[CandidateRow, ...]:
        """Of the run's candidates, best first: those worth mutating, the best and the best of each other structure."""
        ...

    async def candidate(self, candidate_id: CandidateId) -> CandidateView:
        """One candidate of this account."""
        ...

    async def text(self, candidate_id: CandidateId, name: str) -> str:
        """A source file or an artifact of a candidate, by name."""
        ...

    async def samples(self, candidate_id: CandidateId) -> str:
        """Every timed block of a candidate's results, a line each; of hidden workloads only how many there are."""
        ...

    async def job(self, job_id: JobId, *, wait_s: float, cancel: bool) -> JobView:
        """A job of this account, after waiting for its end or asking it to stop."""
        ...

    async def next_steps(self, run_id: RunId, candidate_id: CandidateId | None) -> tuple[NextStep, ...]:
        """What makes sense now, each with its price and whether it is allowed."""
        ...

    async def head(self) -> str:
        """`seq:hash` of the last event."""
        ...
