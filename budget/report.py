"""Reading a run back for people: leaderboard, funnel, what was spent on what, and what the ladder saved.

What was charged is read from the settle events, by the views of `budget/queries`: a charge without a result counts too.
"""

import statistics
from collections.abc import Iterable
from typing import Any

from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Rung, Verdict
from kernelgate.tasks.model import Frozen


class LeaderboardRow(Frozen):
    """One timed candidate."""

    place: int
    candidate_id: str
    parent_id: str | None
    language: str
    note: str
    precise_verdict: Verdict | None
    precise_ratio: float | None
    precise_low: float | None
    precise_high: float | None
    quick_verdict: Verdict | None
    quick_ratio: float | None
    quick_low: float | None
    quick_high: float | None
    device_s: float
    """Charged for all of its calls, with and without a result."""


class FunnelRow(Frozen):
    """One rung of a run: candidates that entered, passed, failed, and were refused at the door."""

    rung: Rung
    entered: int
    passed: int
    failed: int
    refused: int
    """Candidates refused at least once."""
    refusals: int
    calls: int
    """Charged, judged or not; replays are apart."""
    replays: int
    device_s: float
    """Charged for those calls."""


class LedgerRow(Frozen):
    """One event of a run."""

    seq: int
    kind: str
    """`grant`, `hold`, `override`, `extend`, `settle`, `release`, `refuse`, `overrun`, `note`, `close`."""
    rung: Rung | None
    candidate_id: str | None
    job_id: str | None
    calls: int
    device_s: float
    """Held by a hold, charged by a settle."""
    overrun_s: float
    """Beyond the hold; paid by the house."""
    refusal_kind: str | None
    reason: str
    missing: str
    created_utc: str


class Savings(Frozen):
    """The ladder against timing every correct candidate precisely. Checking costs the same either way."""

    candidates: int
    never_precise: int
    """Candidates that quick timed, so that precise could have, and precise did not."""
    precise_device_s_median: float | None
    """Of the precise calls that were made; None before the first."""
    quick_device_s: float
    """What the quick rung cost: without the ladder it would not be needed."""
    spent_device_s: float
    """What all rungs cost."""
    unjudged_device_s: float
    """Of that, what ended without a verdict: cancelled, or more than the purse could carry."""
    saved_device_s: float | None
    """`never_precise` × the median, less the quick rung; negative if the ladder did not pay."""


def leaderboard(ledger: Ledger, run_id: str, *, limit: int = 20) -> tuple[LeaderboardRow, ...]:
    """The timed candidates of a run in its environment, best first."""
    rows = ledger.query(
        "SELECT * FROM leaderboard WHERE run_id = ? AND environment_id = ? ORDER BY place LIMIT ?",
        run_id,
        ledger.run(run_id).environment_id,
        limit,
    )
    return tuple(LeaderboardRow.model_validate(_only(row, LeaderboardRow), strict=False) for row in rows)


def funnel(ledger: Ledger, run_id: str) -> tuple[FunnelRow, ...]:
    """The rungs of a run, lowest first."""
    rows = ledger.query("SELECT * FROM funnel WHERE run_id = ? ORDER BY step", run_id)
    return tuple(FunnelRow.model_validate(_only(row, FunnelRow), strict=False) for row in rows)


def recent_rows(ledger: Ledger, run_id: str, *, limit: int) -> tuple[LedgerRow, ...]:
    """The last events of a run, newest first; without the amounts of the purse, which each of them repeats."""
    rows = ledger.query(
        "SELECT *, gpu_s + cpu_s AS device_s FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT ?", run_id, limit
    )
    return tuple(LedgerRow.model_validate(_only(row, LedgerRow), strict=False) for row in rows)


def savings(ledger: Ledger, run_id: str) -> Savings:
    """What was saved against measuring everything precisely."""
    results = ledger.query(
        "SELECT candidate_id, rung, ratio, gpu_s + cpu_s AS device_s, replay_of FROM results WHERE run_id = ?", run_id
    )
    charges = ledger.query("SELECT rung, result_id, gpu_s + cpu_s AS device_s FROM charges WHERE run_id = ?", run_id)
    (found,) = ledger.query("SELECT count(*) AS n FROM candidates WHERE run_id = ?", run_id)
    precise = {row["candidate_id"] for row in results if row["rung"] == Rung.precise}
    quick = {row["candidate_id"] for row in results if row["rung"] == Rung.quick and row["ratio"] is not None}
    measured = [row["device_s"] for row in results if row["rung"] == Rung.precise and row["replay_of"] is None]
    quick_s = _whole_ns(row["device_s"] for row in charges if row["rung"] == Rung.quick)
    median_s = statistics.median(measured) if measured else None
    never = len(quick - precise)
    return Savings(
        candidates=found["n"],
        never_precise=never,
        precise_device_s_median=median_s,
        quick_device_s=quick_s,
        spent_device_s=_whole_ns(row["device_s"] for row in charges),
        unjudged_device_s=_whole_ns(row["device_s"] for row in charges if row["result_id"] is None),
        saved_device_s=None if median_s is None else never * median_s - quick_s,
    )


def spent_per_rung(ledger: Ledger, run_id: str) -> dict[str, float]:
    """Charged device seconds of a run, per rung: with and without a result."""
    return _spent_per(ledger, run_id, "rung")


def spent_per_candidate(ledger: Ledger, run_id: str) -> dict[str, float]:
    """Charged device seconds of a run, per candidate: with and without a result; who was charged nothing is missing."""
    return _spent_per(ledger, run_id, "candidate_id")


def _spent_per(ledger: Ledger, run_id: str, column: str) -> dict[str, float]:
    rows = ledger.query(
        f"SELECT {column} AS name, sum(gpu_s + cpu_s) AS device_s FROM charges WHERE run_id = ? GROUP BY name", run_id
    )
    return {row["name"]: _whole_ns([row["device_s"]]) for row in rows}


def _whole_ns(seconds: Iterable[float]) -> float:
    """A sum of charges, to the nanosecond to which each is kept: equal sums come out equal, however they are split."""
    return round(float(sum(seconds)), 9)


def _only(row: dict[str, Any], model: type[Frozen]) -> dict[str, Any]:
    return {name: row[name] for name in model.model_fields}
