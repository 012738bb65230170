"""What the ledger answers when it is asked to admit, extend, settle, release or replay; and its learned prices."""

from collections.abc import Mapping
from typing import TypeAlias

from pydantic import Field

from kernelgate.budget.model import Amount, CandidateId, Decision, JobId, Purse, RefusalKind, ReleaseReason, Rung, RunId
from kernelgate.budget.records import AccountId, Head, Record, ResultRecord


class AdmitRequest(Record):
    """A candidate at the door of a rung, with what the call may cost."""

    run_id: RunId
    candidate_id: CandidateId
    rung: Rung
    environment_id: str
    environment_of_below: str | None = None
    """Environment in which `compile` must have passed (its target id); None: any. The other rungs below must have
    passed in `environment_id` itself."""
    hold: Amount
    least: Amount = Amount()
    """If less than `hold` is left, hold what is left, but not less than this many seconds."""
    job_id: JobId
    override_reason: str | None = Field(default=None, min_length=1, max_length=2000)
    account: AccountId


class Admitted(Record):
    """The amount is held; end the hold with `settle` or `release`."""

    hold_seq: int
    hold: Amount
    """What was held; less than asked when little was left."""
    decision: Decision | None
    purse: Purse
    head: Head


class Refused(Record):
    """Nothing is held; the refusal is a row."""

    seq: int
    kind: RefusalKind
    why: str
    missing: str
    decision: Decision | None
    purse: Purse
    head: Head


class Extended(Record):
    """A hold was raised."""

    hold: Amount
    """All that is held now."""
    purse: Purse
    head: Head


class Settled(Record):
    """A hold ended and was charged."""

    result_id: int | None
    """None where nothing was judged."""
    charged: Amount
    overrun_s: float
    """Device seconds measured above the hold: the house's. Work seconds above it stand in the book alone."""
    purse: Purse
    head: Head


class Released(Record):
    """A hold ended without a result; nothing was charged."""

    reason: ReleaseReason
    purse: Purse
    head: Head


class Replayed(Record):
    """An answer from the book, free."""

    result: ResultRecord
    purse: Purse
    head: Head


class Swept(Record):
    """What a sweep found: jobs whose owner is gone, and their holds."""

    jobs: tuple[JobId, ...]
    released: tuple[int, ...]


class LearnedPrice(Record):
    """What a rung cost so far on a task and environment."""

    rung: Rung
    n: int
    device_s_median: float
    hold_device_s: float
    """Worth holding: the 90th percentile with headroom."""
    hold_work_s: float


Prices: TypeAlias = Mapping[Rung, LearnedPrice]
