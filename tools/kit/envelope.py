"""What every reply carries around a tool's own report: status, cost, what remains, what comes next, the head hash."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field, JsonValue

from kernelgate.budget.model import (
    CandidateId,
    JobId,
    JobState,
    RefusalKind,
    Rung,
    RunId,
    Verdict,
    as_tuple,
)  # fmt: skip
from kernelgate.tasks.model import DeviceKind, Frozen


class Cost(Frozen):
    """What a call took. Only `charged_s` leaves the purse."""

    charged_s: float = 0.0
    """Seconds the device was held for the call: GPU-seconds on a GPU, CPU-seconds on the CPU device."""
    calls: int = 0
    prepare_s: float = 0.0
    """Import, construction and first calls; part of the lease, apart from the measurement."""
    queue_s: float = 0.0
    """Waited for the device. Free."""
    wall_s: float = 0.0
    """Work from start to reply. Free, but counts against the deadline."""
    overrun_s: float = 0.0
    """Beyond the limit; paid by the house."""
    free_because: str = ""


class Remaining(Frozen):
    """What the run may still spend."""

    device_s: float
    held_device_s: float = 0.0
    """Held for calls that run now, so not in `device_s`; what they do not use comes back."""
    deadline_s: float
    compile_calls: int
    check_calls: int
    quick_calls: int
    precise_calls: int
    profile_calls: int
    override_calls: int
    """Promotions against the rule, each with a written reason (`override_reason`)."""


def held_of(remaining: Remaining) -> str:
    """What is held, for a summary."""
    return f"{remaining.held_device_s:.2f} device seconds are held for work that runs: what it does not use comes back"


class NextStep(Frozen):
    """A call that makes sense now."""

    tool: str
    arguments: dict[str, str]
    why: str
    price_device_s: float = 0.0
    """Expected, from what such calls cost before."""
    allowed: bool = True
    missing: str = ""
    """If not allowed: what is missing."""


class Refusal(Frozen):
    """Why the gate said no. It is a row of the ledger and cost nothing."""

    kind: RefusalKind
    why: str
    missing: str
    """The evidence or money that is missing."""


class Step(Frozen):
    """One rung of a climb with `up_to`."""

    rung: Rung
    verdict: Verdict
    summary: str
    charged_s: float = 0.0
    replayed: bool = False


ReportT = TypeVar("ReportT", bound=Frozen)


class RungReply(Frozen, Generic[ReportT]):
    """The reply of a rung."""

    status: Literal["ok", "failed", "refused", "running"]
    """`failed`: the candidate did not pass; `refused`: the gate did not let it in; `running`: ask `job`."""
    summary: str
    run_id: RunId
    candidate_id: CandidateId
    rung: Rung
    """The rung that this reply is about: with `up_to`, the last one tried."""
    verdict: Verdict | None = None
    """Of `rung`, like `status` and `summary`."""
    report: ReportT | None = None
    """The report of the tool's own rung: with `up_to` still that of compile, whatever `rung` is."""
    last_report: dict[str, JsonValue] | None = None
    """The report of `rung`, where that is not the tool's own: with `up_to` it is the one that `verdict` is from."""
    refusal: Refusal | None = None
    job_id: JobId | None = None
    """Of running work: `job` waits for it or cancels it."""
    replayed: bool = False
    """Answered from the book, free: the same source was measured in this environment before."""
    climbed: Annotated[tuple[Step, ...], BeforeValidator(as_tuple)] = ()
    """The rungs of this call, in order."""
    cost: Cost = Cost()
    remaining: Remaining | None = None
    next_steps: Annotated[tuple[NextStep, ...], BeforeValidator(as_tuple)] = ()
    stop_advice: str = ""
    """Why to stop here, if there is a reason."""
    ledger_head: str = ""
    """`seq:hash` of the book's last event; keep it, and nobody can rewrite what came before."""


class Answer(Frozen):
    """Base of the replies that come from the book."""

    status: Literal["ok", "failed", "running"] = "ok"
    summary: str
    next_steps: Annotated[tuple[NextStep, ...], BeforeValidator(as_tuple)] = ()
    ledger_head: str = ""


class WorkloadView(Frozen):
    """A public workload as the agent sees it."""

    name: str
    set: dict[str, JsonValue]
    """Constants of the reference file that it replaces."""
    devices: Annotated[tuple[DeviceKind, ...], BeforeValidator(as_tuple)]


class JobView(Frozen):
    """How work in progress stands."""

    job_id: JobId
    state: JobState
    tool: str
    run_id: RunId
    candidate_id: CandidateId | None
    stage: str = ""
    """Of running work, like the next two; where another server process does it, only that it is silent."""
    done: int | None = None
    total: int | None = None
    elapsed_s: float = Field(default=0.0, ge=0)
    """Since it was asked for; of ended work up to its end."""
    reply: dict[str, JsonValue] | None = None
    """Of finished work: the tool's reply."""


def reply_model(report: type[Frozen]) -> type[RungReply[Any]]:
    """The reply of the rung with that report, as a model of its own (pydantic keeps one per report)."""
    model: type[RungReply[Any]] = RungReply.__class_getitem__(report)  # type: ignore[assignment]  # chosen at run time
    return model
