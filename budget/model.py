"""The nouns of the budget: rungs, verdicts, amounts, purses, decisions. Shared by tools, ledger and server."""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints

from kernelgate.tasks.model import Frozen


def as_tuple(value: object) -> object:
    """JSON has lists where a frozen model has tuples."""
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


class Rung(StrEnum):
    """A step of the ladder; `profile` is a priced side door, open from `quick` on."""

    compile = "compile"
    check = "check"
    quick = "quick"
    precise = "precise"
    profile = "profile"


LADDER: Final = (Rung.compile, Rung.check, Rung.quick, Rung.precise)
RUNG_BELOW: Final = {
    Rung.compile: None,
    Rung.check: Rung.compile,
    Rung.quick: Rung.check,
    Rung.precise: Rung.quick,
    Rung.profile: Rung.quick,
}
TOOL_OF_RUNG: Final = {
    Rung.compile: "compile",
    Rung.check: "check_correctness",
    Rung.quick: "quick_time",
    Rung.precise: "precise_time",
    Rung.profile: "profile",
}


class Verdict(StrEnum):
    """What a rung says of a candidate (CLOSED: see `VERDICTS_OF`)."""

    built = "built"
    build_failed = "build_failed"
    build_timed_out = "build_timed_out"
    needs_device = "needs_device"
    forbidden = "forbidden"
    correct = "correct"
    wrong_values = "wrong_values"
    wrong_shape = "wrong_shape"
    wrong_dtype = "wrong_dtype"
    wrong_type = "wrong_type"
    nonfinite = "nonfinite"
    input_mutation = "input_mutation"
    crashed = "crashed"
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    suspicious = "suspicious"
    maybe_faster = "maybe_faster"
    undecided = "undecided"
    clearly_slower = "clearly_slower"
    faster = "faster"
    same = "same"
    slower = "slower"
    ambiguous = "ambiguous"
    no_sample_left = "no_sample_left"
    impossible = "impossible"
    recompiles = "recompiles"
    diagnosed = "diagnosed"
    no_finding = "no_finding"
    not_permitted = "not_permitted"


CHECK_FAILURES: Final = frozenset({
    Verdict.wrong_values, Verdict.wrong_shape, Verdict.wrong_dtype, Verdict.wrong_type, Verdict.nonfinite,
    Verdict.input_mutation, Verdict.crashed, Verdict.timed_out, Verdict.out_of_memory, Verdict.suspicious,
})  # fmt: skip
PASSING: Final = {
    Rung.compile: frozenset({Verdict.built}),
    Rung.check: frozenset({Verdict.correct}),
    Rung.quick: frozenset({Verdict.maybe_faster, Verdict.undecided, Verdict.clearly_slower}),
    Rung.precise: frozenset({Verdict.faster, Verdict.same, Verdict.slower, Verdict.ambiguous}),
    Rung.profile: frozenset({Verdict.diagnosed, Verdict.no_finding}),
}
"""The verdicts with which a rung counts as passed; a rule may still refuse the next one."""
_TIMING_FAILURES = CHECK_FAILURES | {Verdict.impossible, Verdict.recompiles}
VERDICTS_OF: Final = {
    Rung.compile: PASSING[Rung.compile]
    | {Verdict.build_failed, Verdict.build_timed_out, Verdict.needs_device, Verdict.forbidden},
    Rung.check: PASSING[Rung.check] | CHECK_FAILURES,
    Rung.quick: PASSING[Rung.quick] | _TIMING_FAILURES | {Verdict.no_sample_left},
    Rung.precise: PASSING[Rung.precise] | _TIMING_FAILURES | {Verdict.no_sample_left},
    Rung.profile: PASSING[Rung.profile] | {Verdict.not_permitted} | CHECK_FAILURES,
}  # fmt: skip

Code: TypeAlias = Literal[
    "TIMER_PATCH", "CHECKER_PATCH", "OUTPUT_REPLAY", "PHASE_SNIFF", "STALE_MEMORY", "EXPECTED_SCAN", "INPUT_MUTATION",
    "PASSTHROUGH", "CONSTANT", "PRECISION_DOWNGRADE", "DISTRIBUTION_FIT", "SHAPE_FIT", "WRONG_STREAM", "DEFERRED",
    "THREAD", "LAZY_OUTPUT", "L2_PERSIST", "GRAPH_STALE", "GLOBAL_STATE", "REFERENCE_CALL", "NO_GAIN", "FAKE_REPORT",
    "PICKLE", "NONFINITE", "CRASH", "HANG", "OOM", "FORK", "FLOOD", "DISK", "PERSIST", "LEAK", "KILL_PARENT",
    "KILL_REFEREE", "BASELINE_POISON", "FAULT_FARMING", "IMPOSSIBLE",
]  # fmt: skip
"""Class of a trick or failure; it comes with each failed or suspicious verdict where one is known."""

RefusalKind: TypeAlias = Literal["rung_missing", "rule", "purse", "deadline", "not_here", "task_unqualified"]
JobState: TypeAlias = Literal["queued", "running", "done", "cancelled", "lost"]
EventKind: TypeAlias = Literal[
    "grant", "hold", "extend", "settle", "release", "refuse", "override", "overrun", "note", "close"
]
"""`extend` raises a hold once; `overrun` books on the house what a settle could not; `note` records a repeated
source's new note, a replay, or the digest of a row that was written; `close` ends a run."""
ReleaseReason: TypeAlias = Literal["fault_of_ours", "cancelled_unstarted", "owner_lost", "queue_limit", "free"]
ESTIMATED: Final = "; estimated: {:.3f} s of the device by its last heartbeat"
"""Ends the reason where the house pays for what a lost owner used: nobody measured it to its end."""

UnjudgedReason: TypeAlias = Literal["cancelled", "purse_ended"]
"""Why used-up work has no result: somebody stopped it, or the purse could not carry it to the rung's limit."""

RunId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^r[1-9][0-9]{0,17}$")]
CandidateId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^c[1-9][0-9]{0,17}$")]
JobId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^j[1-9][0-9]{0,17}$")]

HOUSE: Final = "house"
"""Account that pays for calibration, qualification, overruns and the faults of ours."""
ALL_ACCOUNTS: Final = "*"
"""Stands for all accounts of a ledger together where a cap is set; nobody has it."""
LOCAL: Final = "local"
"""Account of everybody who connects over stdio."""


class Amount(Frozen):
    """What one call may take or took. Never negative."""

    calls: int = Field(default=0, ge=0)
    """Calls of the rung that the amount is for."""
    override_calls: int = Field(default=0, ge=0)
    """Of the exploration purse: promotions against the rule."""
    gpu_s: float = Field(default=0.0, ge=0)
    """Seconds that the lease of a GPU is held."""
    cpu_s: float = Field(default=0.0, ge=0)
    """The same on the CPU device."""
    work_s: float = Field(default=0.0, ge=0)
    """Wall clock of work, against the run's deadline: no queueing, no downtime."""

    @property
    def device_s(self) -> float:
        """Seconds of the device, whichever it is."""
        return round(self.gpu_s + self.cpu_s, 9)


class Budget(Frozen):
    """What a run is granted. All limits are totals over the run."""

    compile_calls: int = Field(default=200, ge=0, le=1_000_000)
    check_calls: int = Field(default=100, ge=0, le=1_000_000)
    quick_calls: int = Field(default=60, ge=0, le=1_000_000)
    precise_calls: int = Field(default=20, ge=0, le=1_000_000)
    profile_calls: int = Field(default=10, ge=0, le=1_000_000)
    override_calls: int | None = Field(default=None, ge=0, le=1_000_000)
    """Exploration purse; default max(1, 5 % of `precise_calls`)."""
    device_s: float = Field(default=120.0, ge=0, le=1e7)
    """GPU-seconds on a GPU, CPU-seconds on the CPU device."""
    deadline_s: float = Field(default=3600.0, ge=0, le=1e7)
    """Wall clock of work; waiting, downtime and sleep do not count."""

    @property
    def overrides(self) -> int:
        """The exploration purse in calls."""
        return self.override_calls if self.override_calls is not None else max(1, self.precise_calls // 20)

    def calls(self, rung: Rung) -> int:
        """Calls granted for a rung."""
        limits = {
            Rung.compile: self.compile_calls,
            Rung.check: self.check_calls,
            Rung.quick: self.quick_calls,
            Rung.precise: self.precise_calls,
            Rung.profile: self.profile_calls,
        }
        return limits[rung]


class Spent(Frozen):
    """A total per resource: what is open (held) or settled in a run."""

    compile_calls: int = 0
    check_calls: int = 0
    quick_calls: int = 0
    precise_calls: int = 0
    profile_calls: int = 0
    override_calls: int = 0
    device_s: float = 0.0
    work_s: float = 0.0

    def plus(self, rung: Rung, amount: Amount, sign: Literal[1, -1] = 1) -> "Spent":
        """The total after an amount for a rung was added (or taken off); a rounding rest below zero becomes zero."""
        name = f"{rung.value}_calls"
        fields = {each: getattr(self, each) for each in Spent.model_fields}
        fields[name] += sign * amount.calls
        fields["override_calls"] += sign * amount.override_calls
        fields["device_s"] = max(0.0, round(self.device_s + sign * (amount.gpu_s + amount.cpu_s), 9))
        fields["work_s"] = max(0.0, round(self.work_s + sign * amount.work_s, 9))
        return Spent(**fields)


class Purse(Frozen):
    """What a run was granted, holds open and has settled; each event carries the purse after it."""

    granted: Budget
    open: Spent = Spent()
    settled: Spent = Spent()

    def calls_left(self, rung: Rung) -> int:
        """Calls of a rung that may still be admitted."""
        name = f"{rung.value}_calls"
        taken: int = getattr(self.open, name) + getattr(self.settled, name)
        return self.granted.calls(rung) - taken

    @property
    def overrides_left(self) -> int:
        """Promotions against the rule that are left."""
        return self.granted.overrides - self.open.override_calls - self.settled.override_calls

    @property
    def device_s_left(self) -> float:
        """Device seconds neither held nor settled, to the nanosecond: a rest of rounding is no time."""
        return max(0.0, round(self.granted.device_s - self.open.device_s - self.settled.device_s, 9))

    def holding(self, rung: Rung, amount: Amount) -> "Purse":
        """The purse with so much more held open."""
        return Purse(granted=self.granted, open=self.open.plus(rung, amount), settled=self.settled)

    def ended(self, rung: Rung, held: Amount, charged: Amount) -> "Purse":
        """The purse once a hold has ended and so much of it was charged; the remainder is free again."""
        opened, settled = self.open.plus(rung, held, -1), self.settled.plus(rung, charged)
        return Purse(granted=self.granted, open=opened, settled=settled)

    @property
    def deadline_s_left(self) -> float:
        """Work seconds left before the run's deadline, to the nanosecond."""
        return max(0.0, round(self.granted.deadline_s - self.open.work_s - self.settled.work_s, 9))


class Scored(Frozen):
    """A timing result as a rule sees it. Ratios are baseline time / candidate time: above 1 is faster."""

    candidate_id: CandidateId
    ratio: float
    low: float
    high: float
    verdict: Verdict
    device_s: float = 0.0
    seq: int
    """Sequence number of the settle event that paid for it (or of the event at replay)."""


class History(Frozen):
    """What a rule may look at: the run's passing timing results, one per candidate, in order of `seq`."""

    quick: Annotated[tuple[Scored, ...], BeforeValidator(as_tuple)] = ()
    precise: Annotated[tuple[Scored, ...], BeforeValidator(as_tuple)] = ()
    overlap_admissions: int = 0
    """Admissions to precise by interval overlap since the incumbent last improved."""
    precise_calls_left: int = 0
    overrides_left: int = 0
    last_seq: int = 0


class Promotion(Frozen):
    """A candidate at the door of a rung."""

    candidate_id: CandidateId
    rung: Rung
    override_reason: str | None = None
    """The agent's written reason to promote against the rule, out of the exploration purse."""


class Decision(Frozen):
    """What a rule said, with the compact input that lets an auditor replay it."""

    rule: str
    rule_version: int
    parameters: dict[str, float]
    saw: dict[str, JsonValue]
    """n, rank, cut, own and incumbent interval, overlap admissions, last seq: enough to decide again."""
    admit: bool
    overridden: bool = False
    """Admitted against the rule, out of the exploration purse."""
    why: str
    """One sentence for the agent."""
    missing: str = ""
    """What would have been needed; empty when admitted."""
