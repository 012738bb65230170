"""Truths read out of a ledger: what its runs under the rule flat found out, so that other rules are replayed on it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kernelgate.budget.ladder.model import FLAT, Outcome, Tried, Truth
from kernelgate.budget.model import LADDER, PASSING, Rung, Verdict
from kernelgate.budget.reads import Reads
from kernelgate.budget.records import RunRecord

MOST_RUNS: Final = 10_000
MOST_NAMED: Final = 3
_RESULTS: Final = f"""
SELECT c.candidate_id, c.parent_id, r.rung, r.verdict, r.ratio, r.ratio_low, r.ratio_high, r.replay_of,
  r.gpu_s + r.cpu_s AS device_s, r.wall_s, o.run_id AS paid_by, o.gpu_s + o.cpu_s AS paid_s, o.wall_s AS paid_wall_s
FROM candidates c
LEFT JOIN results r ON r.candidate_id = c.candidate_id AND r.rung IN ({", ".join(f"'{rung}'" for rung in LADDER)})
  AND (r.rung = 'compile' OR r.environment_id = ?)
LEFT JOIN results o ON o.result_id = r.replay_of
WHERE c.run_id = ? ORDER BY c.number, r.event_seq"""


class Recorded(NamedTuple):
    """What a book can say to a comparison."""

    truths: tuple[Truth, ...]
    """One a run under flat with candidates, oldest first."""
    left_out: tuple[str, ...]
    """Which runs are no truth, and why: a sentence for each other rule, and one for each run without a result."""


def recorded_truths(book: Reads, run_id: str | None = None) -> Recorded:
    """The truths of a book, or of one of its runs.

    Raises:
        UnknownId: no such run.
    """
    runs = book.runs(limit=MOST_RUNS)[::-1] if run_id is None else (book.run(run_id),)
    truths: list[Truth] = []
    left_out: list[str] = []
    guarded: dict[str, list[str]] = {}
    for run in runs:
        if run.rule != FLAT:
            guarded.setdefault(run.rule, []).append(run.run_id)
            continue
        found = truth_of(book, run)
        if found.tried:
            truths.append(found)
        else:
            left_out.append(f"{run.run_id} has no candidate with a result.")
    told = [
        f"{_listed(ids)} ran under {rule}: it measured precisely only what that rule let in."
        for rule, ids in guarded.items()
    ]
    return Recorded(tuple(truths), (*told, *left_out))


def _listed(ids: list[str]) -> str:
    """The first few by name: a book may hold thousands."""
    more = len(ids) - MOST_NAMED
    return ", ".join(ids[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def truth_of(book: Reads, run: RunRecord) -> Truth:
    """What a run found out about its candidates, in its own environment.

    The latest result of a rung counts; what all of them cost is added up. A result that the book answered from another
    run costs what that run paid for it: the candidate would have cost as much here. Work without a result (cancelled,
    lost) is left out. Where a candidate was not taken as far as it passed, the truth is not complete.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in book.query(_RESULTS, run.environment_id, run.run_id):
        rows.setdefault(row["candidate_id"], []).append(row)
    tried: list[Tried] = []
    complete = True
    for candidate_id, found in rows.items():
        outcomes, whole = _climbed([row for row in found if row["rung"] is not None], run.run_id)
        complete = complete and whole
        if outcomes:
            tried.append(Tried(id=candidate_id, outcomes=outcomes, parent=found[0]["parent_id"]))
    facts = book.environment(run.environment_id)
    device = str(facts.get("name") or facts.get("device") or run.device_kind)
    return Truth(
        stream=f"{run.run_id} {run.task_name}", task=run.task_name, device=device, tried=tuple(tried),
        complete=complete,
    )  # fmt: skip


def _climbed(rows: list[Mapping[str, Any]], run_id: str) -> tuple[tuple[Outcome, ...], bool]:
    """The outcomes as far as each rung was passed, and whether the climb came to its end."""
    outcomes: list[Outcome] = []
    for rung in LADDER:
        of_rung = [row for row in rows if row["rung"] == rung]
        if not of_rung:
            return tuple(outcomes), False
        outcomes.append(_outcome(rung, of_rung, run_id))
        if outcomes[-1].verdict not in PASSING[rung]:
            break
    return tuple(outcomes), True


def _outcome(rung: Rung, rows: list[Mapping[str, Any]], run_id: str) -> Outcome:
    last = rows[-1]
    costs = [_cost(row, run_id) for row in rows]
    return Outcome(
        rung=rung, verdict=Verdict(last["verdict"]), ratio=last["ratio"], low=last["ratio_low"],
        high=last["ratio_high"], device_s=round(sum(device_s for device_s, _ in costs), 9),
        wall_s=round(sum(wall_s for _, wall_s in costs), 9),
    )  # fmt: skip


def _cost(row: Mapping[str, Any], run_id: str) -> tuple[float, float]:
    if row["replay_of"] is not None and row["paid_by"] not in (None, run_id):
        return row["paid_s"], row["paid_wall_s"]
    return row["device_s"], row["wall_s"]
