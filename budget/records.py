"""What goes into the book and what comes out of it, as frozen models. Units stand in the names."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from kernelgate.budget.model import (
    PASSING,
    VERDICTS_OF,
    Budget,
    CandidateId,
    Code,
    JobId,
    JobState,
    Rung,
    RunId,
    Verdict,
    as_tuple,
)  # fmt: skip
from kernelgate.tasks.model import DeviceKind, Frozen, canonical_json, sha256_hex

Sha256: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
AccountId: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Json: TypeAlias = dict[str, JsonValue]
SampleSide: TypeAlias = Literal["baseline", "candidate", "incumbent"]


class Record(Frozen):
    """Base of the book's models: built when first used, so that a server starts fast."""

    model_config = ConfigDict(defer_build=True)


class Head(Record):
    """Number and hash of the last event: whoever kept one can tell later whether the book was cut or rewritten."""

    seq: int = Field(ge=0)
    hash: Sha256

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read `seq:hash` back; raises ValueError."""
        seq, _, digest = text.strip().partition(":")
        if not seq.isdecimal():
            raise ValueError(f"a head reads like 12:<64 hexadecimal digits>, got {text[:80]!r}")
        return cls(seq=int(seq), hash=digest)


class Environment(Record):
    """Where numbers were made: device, driver, torch, triton, CUDA, harness digest, precision policy; or a compile
    target. Numbers of different environments are never compared.
    """  # noqa: D205 -- one sentence too long for a line

    facts: Json

    @property
    def environment_id(self) -> str:
        """Derived from the facts: equal facts are one environment."""
        return "e" + sha256_hex(canonical_json(self.facts))[:16]


class RunRequest(Record):
    """What `start_run` needs to know beside the task."""

    account: AccountId
    rule: str = "halving"
    parameters: dict[str, float] = Field(default_factory=dict)
    """Of the rule; what is missing takes the rule's default."""
    budget: Budget = Budget()
    device_kind: DeviceKind
    device_uid: str
    environment: Environment
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    arguments_sha256: Sha256
    """Over the arguments that the client sent: the same key with others is a conflict."""
    client_name: str = ""
    client_version: str = ""


class RunRecord(Record):
    """One run."""

    run_id: RunId
    account_id: str
    task_digest: Sha256
    task_name: str
    rule: str
    rule_version: int
    parameters: dict[str, float]
    budget: Budget
    device_kind: DeviceKind
    device_uid: str
    environment_id: str
    client_name: str
    client_version: str
    created_utc: str
    last_utc: str
    """Time of its last event."""
    closed: str | None = None
    """Why it was closed; None while it is open."""


class TaskRecord(Record):
    """One task as it stood when a run used it."""

    task_digest: Sha256
    name: str
    title: str
    spec: Json
    """The whole `Task`, with the reference's source."""


class QualificationRecord(Record):
    """The latest judgement of a task's fitness in one environment."""

    task_digest: Sha256
    environment_id: str
    qualified: bool
    why: str
    facts: Json
    created_utc: str


class CalibrationRecord(Record):
    """A calibration of a device, or of a task on it: noise floor, ceilings."""

    task_digest: Sha256 | None
    environment_id: str
    kind: str
    facts: Json
    created_utc: str


class CandidateRecord(Record):
    """One candidate. Its files are left out of lists."""

    candidate_id: CandidateId
    run_id: RunId
    source_sha256: Sha256
    parent_id: CandidateId | None
    note: str
    language: str
    files: dict[str, str] = Field(default_factory=dict)
    created_utc: str


class Score(Record):
    """Baseline time / candidate time with its interval; above 1 is faster."""

    ratio: float = Field(gt=0)
    low: float = Field(ge=0)
    high: float

    @model_validator(mode="after")
    def _interval_holds_the_ratio(self) -> "Score":
        if not self.low <= self.ratio <= self.high:
            raise ValueError(f"the interval {self.low} to {self.high} does not hold the ratio {self.ratio}")
        return self


class ResultInput(Record):
    """What came of one attempt at a rung. The hold says which candidate, rung and environment."""

    rung: Rung
    verdict: Verdict
    code: Code | None = None
    report: Json
    """The tool's validated report."""
    score: Score | None = None
    workload_set: str
    """Names what was run: equal texts are the same workloads."""
    plan_digest: str = ""
    """Of all that the caller could vary about the measurement; part of the replay key."""
    house_s: float = Field(default=0.0, ge=0)
    queue_s: float = Field(default=0.0, ge=0)
    prepare_s: float = Field(default=0.0, ge=0)
    wall_s: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _numbers_only_where_the_verdict_allows(self) -> "ResultInput":
        if self.verdict not in VERDICTS_OF[self.rung]:
            raise ValueError(f"{self.rung} never says {self.verdict}")
        timed = self.rung in (Rung.quick, Rung.precise) and self.verdict in PASSING[self.rung]
        if self.score is not None and not timed:
            raise ValueError(f"{self.verdict} at {self.rung} has no score")
        if self.score is None and timed and self.verdict is not Verdict.ambiguous:
            raise ValueError(f"{self.verdict} at {self.rung} needs a score")
        return self


class SampleInput(Record):
    """One timed block, raw."""

    workload: str
    block_index: int = Field(ge=0)
    side: SampleSide
    samples_us: Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
    """One per call by the side's own clock; kept as float32."""
    outside_us: Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
    """The same by the referee's clock."""
    verified: bool = False
    voided: bool = False
    """Throttled or disturbed: counted, not used."""
    state: Json | None = None
    """Device state of the block."""


class ArtifactInput(Record):
    """A log, PTX, profile: kept beside the book by its SHA-256."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}$")]
    media_type: str = "text/plain"
    data: bytes


class ArtifactRecord(Record):
    """One artifact of a result."""

    artifact_id: int
    result_id: int
    run_id: RunId
    name: str
    media_type: str
    artifact_sha256: Sha256
    size_bytes: int
    path: str | None
    """Relative to the book's folder; None where the run's share was used up."""


class ResultRecord(Record):
    """One stored attempt at a rung."""

    result_id: int
    event_seq: int
    run_id: RunId
    candidate_id: CandidateId
    source_sha256: Sha256
    task_digest: Sha256
    workload_set: str
    plan_digest: str
    rung: Rung
    environment_id: str
    verdict: Verdict
    code: Code | None
    report: Json
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    gpu_s: float
    cpu_s: float
    work_s: float
    overrun_s: float
    house_s: float
    queue_s: float
    prepare_s: float
    wall_s: float
    replay_of: int | None
    created_utc: str

    @property
    def device_s(self) -> float:
        """Charged device seconds, whichever device it was."""
        return self.gpu_s + self.cpu_s

    @property
    def passed(self) -> bool:
        """Whether the rung counts as passed."""
        return self.verdict in PASSING[self.rung]


class SampleRecord(Record):
    """One stored block; the times are what float32 kept."""

    result_id: int
    workload: str
    block_index: int
    side: SampleSide
    samples_us: tuple[float, ...]
    outside_us: tuple[float, ...]
    verified: bool
    voided: bool
    state: Json | None


class Owner(Record):
    """The process that works on a job; a process id alone is used again by others."""

    pid: int = Field(gt=0)
    start_s: float
    """When the process started, as the host counts it."""
    place: str = ""
    """Where that number means this process: the boot and the pid namespace. Empty where that is not known."""


class InUse(Record):
    """What a job has used of a device under the hold in hand: told with each heartbeat, in case it is the last."""

    job_id: JobId
    hold_seq: int
    device_s: float = Field(ge=0)


class JobRequest(Record):
    """Work that somebody asked for."""

    run_id: RunId
    candidate_id: CandidateId | None = None
    account: AccountId
    tool: str
    arguments: Json
    owner: Owner

    @property
    def arguments_sha256(self) -> str:
        """Equal work has equal arguments."""
        return sha256_hex(canonical_json(self.arguments))


class JobRecord(Record):
    """One job."""

    job_id: JobId
    run_id: RunId
    candidate_id: CandidateId | None
    account_id: str
    tool: str
    arguments_sha256: Sha256
    arguments: Json
    state: JobState
    result: Json | None
    owner: Owner
    created_utc: str
    heartbeat_utc: str
    finished_utc: str | None
