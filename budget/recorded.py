"""Rows that events stand for beside results: runs, candidates, and what the house found out, each with its task."""

import hashlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kernelgate.budget.rows import RowText
from kernelgate.tasks.model import sha256_hex

RECORDED: Final[dict[str, str]] = {
    # Table → what names a row in the event that stands for it.
    "runs": "run_id",
    "candidates": "candidate_id",
    "qualifications": "qualification_id",
    "calibrations": "calibration_id",
    "observations": "observation_id",
}
COVERED_FROM: Final = 2
"""The version of the schema since which each such row has its event."""
OF_A_RUN: Final = ("runs", "candidates")
EARLIER: Final = "earlier rows"
"""Reason of the one event that stands for all rows from before the chain covered them."""
_ONLY: Final = {"observations": "result_id IS NULL"}
"""Those of a result belong to the digest of its settle."""


def said(table: str, key: object) -> str:
    """The reason of an event that stands for a row: `candidates c3`."""
    return f"{table} {key}"


def named_by(
    kind: str, run_id: str | None, rung: str | None, reason: str, rows_sha256: str | None
) -> tuple[str, str] | None:
    """Table and key of the row that an event stands for; None where it stands for none, or for rows of a result."""
    if rows_sha256 is None:
        return None
    if kind == "grant" and run_id is not None:
        return "runs", run_id
    if kind != "note" or rung is not None:
        return None
    if reason == EARLIER:
        return EARLIER, ""
    table, _, key = reason.partition(" ")
    return (table, key) if table in RECORDED and table != "runs" else None


class RecordedRows:
    """The digests of recorded rows, as they stand in the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tasks: dict[object, str] = {}

    def digest(self, table: str, key: object) -> str | None:
        """SHA-256 over the canonical JSON of a row, and of its task's; None where there is no such row."""
        text = self._text(table, RECORDED[table], key)
        return None if text is None else sha256_hex(text)

    def others(self, named: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
        """Table and key of each recorded row that is not among those."""
        for table, column in RECORDED.items():
            where = _ONLY.get(table, "1")
            for (key,) in self._connection.execute(f"SELECT {column} FROM {table} WHERE {where} ORDER BY {column}"):
                if str(key) not in named.get(table, ()):
                    yield table, str(key)

    def digest_of_all(self, rows: Iterator[tuple[str, str]]) -> str:
        """SHA-256 over the digests of these rows."""
        total = hashlib.sha256()
        for table, key in rows:
            total.update(f"{table} {key} {self.digest(table, key)}\n".encode())
        return total.hexdigest()

    def _text(self, table: str, column: str, key: object) -> str | None:
        cursor = self._connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (key,))
        row = cursor.fetchone()
        if row is None:
            return None
        # Without what is NULL, so that a column which a later version adds changes no digest.
        cells = {column[0]: cell for column, cell in zip(cursor.description, row, strict=True) if cell is not None}
        text = RowText(cells)
        own = text.of([cells[name] for name in text.columns])
        if table == "tasks" or "task_digest" not in cells:
            return own
        return f"{own}\n{self._task(cells['task_digest'])}"

    def _task(self, task_digest: object) -> str:
        if task_digest not in self._tasks:
            self._tasks[task_digest] = sha256_hex(self._text("tasks", "task_digest", task_digest) or "")
        return self._tasks[task_digest]
