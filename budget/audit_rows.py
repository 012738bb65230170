"""Results as an audit walks over them, beside their events: tuples, in one pass, whatever the book's size."""

import sqlite3
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kernelgate.budget.errors import one_line


class EventRow(NamedTuple):
    """What the invariants ask of an event."""

    seq: int
    kind: str
    account_id: str
    run_id: str | None
    candidate_id: str
    rung: str
    environment_id: str
    hold_seq: int
    calls: int
    override_calls: int
    gpu_s: float
    cpu_s: float
    work_s: float
    overrun_s: float
    purse_json: str | None
    decision_json: str | None
    refusal_kind: str | None
    reason: str
    missing: str


class ResultRow(NamedTuple):
    """What the invariants ask of a result, and of the candidate that it names."""

    result_id: int
    event_seq: int
    run_id: str
    candidate_id: str
    source_sha256: str
    task_digest: str
    rung: str
    environment_id: str
    verdict: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    gpu_s: float
    cpu_s: float
    work_s: float
    overrun_s: float
    replay_of: int | None
    candidate_sha256: str | None


_REASON_SIGNS: Final = 200
CANDIDATE: Final = "candidate_sha256"
CANDIDATE_CELL: Final = "c.source_sha256"


class Replayed(NamedTuple):
    """The result that another one repeats."""

    source_sha256: str
    task_digest: str
    verdict: str
    environment_id: str


def reason_of(error: BaseException) -> str:
    """Why a row cannot be read or judged: one line, whatever the row says."""
    said = one_line(str(error))
    return f"{type(error).__name__}{f' ({said[:_REASON_SIGNS]})' if said else ''}"


class ResultStream:
    """Results in order of their event, taken one event at a time."""

    def __init__(self, connection: sqlite3.Connection, columns: tuple[str, ...], run: str | None) -> None:
        where, values = ("", ()) if run is None else ("WHERE r.run_id = ?", (run,))
        joined = "LEFT JOIN candidates c ON c.candidate_id = r.candidate_id" if CANDIDATE in columns else ""
        cells = ", ".join(CANDIDATE_CELL if name == CANDIDATE else f"r.{name}" for name in columns)
        self._rows = connection.execute(f"SELECT {cells} FROM results r {joined} {where} ORDER BY r.event_seq", values)
        self._seq_at = columns.index("event_seq")
        self._named = itemgetter(columns.index("result_id"), columns.index("run_id"))
        self._next: tuple[Any, ...] | None = self._rows.fetchone()
        self._strays: list[tuple[int, str]] = []

    def at(self, seq: int) -> tuple[Any, ...] | None:
        """The cells of the result of this event; results of earlier numbers belong to none."""
        while (row := self._next) is not None and row[self._seq_at] <= seq:
            self._next = self._rows.fetchone()
            if row[self._seq_at] == seq:
                return row
            self._strays.append(self._named(row))
        return None

    def strays(self) -> list[tuple[int, str]]:
        """Number and run of the results whose event does not exist, after the last event."""
        rest = [] if self._next is None else [self._next, *self._rows]
        return [*self._strays, *map(self._named, rest)]
