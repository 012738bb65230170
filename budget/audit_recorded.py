"""Are the runs, candidates, tasks, calibrations and qualifications those that were written? Their events say so."""

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from kernelgate.budget.recorded import COVERED_FROM, EARLIER, OF_A_RUN, RECORDED, RecordedRows, named_by

_UNUSED_TASKS: Final = """SELECT task_digest FROM tasks t
WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.task_digest = t.task_digest)
AND NOT EXISTS (SELECT 1 FROM qualifications q WHERE q.task_digest = t.task_digest)
AND NOT EXISTS (SELECT 1 FROM calibrations c WHERE c.task_digest = t.task_digest)"""
_LATER: Final = """SELECT kind, run_id, rung, reason, rows_sha256 FROM events
WHERE seq > ? AND kind IN ('grant', 'note') AND rows_sha256 NOT NULL"""


class Stands(NamedTuple):
    """What an event says it stands for."""

    seq: int
    run_id: str | None
    table: str
    key: str
    rows_sha256: str


class RecordedAudit:
    """Compares recorded rows with the digests in the chain, event by event, and then what no event named."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows = RecordedRows(connection)
        self._named: dict[str, set[str]] = {table: set() for table in RECORDED}
        self._earlier: Stands | None = None
        self._is_covered = False
        """Whether any event stood for a row yet."""

    def wrong_at(self, event: Stands) -> list[str]:
        """What is wrong with the row of an event."""
        seq, run_id, table, key, rows_sha256 = event
        first, self._is_covered = not self._is_covered, True
        if table == EARLIER:
            if not first:
                return [f"Event {seq} stands for earlier rows, and events before it stand for rows already."]
            self._earlier = event
            return []
        self._named[table].add(key)
        found = self._rows.digest(table, key)
        if found is None:
            return [f"The row of {table} that event {seq} stands for ({key}) is gone."]
        if found != rows_sha256:
            return [f"The row of {table} that event {seq} stands for ({key}), or its task, does not have its digest."]
        if table in OF_A_RUN and run_id != self._run_of(table, key):
            return [f"Event {seq} stands for {key}, which is of another run."]
        return []

    def _run_of(self, table: str, key: str) -> str | None:
        row = self._connection.execute(f"SELECT run_id FROM {table} WHERE {RECORDED[table]} = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def others(self, last_seq: int) -> Iterator[tuple[int | None, str]]:
        """What is wrong with rows that no event up to the last one names, with the event where it shows."""
        for kind, run_id, rung, reason, digest in self._connection.execute(_LATER, (last_seq,)):
            later = named_by(kind, run_id, rung, reason, digest)  # written since: left to the next audit
            if later is not None and later[0] in self._named:
                self._named[later[0]].add(later[1])
        if self._earlier is not None:
            if self._rows.digest_of_all(self._rows.others(self._named)) != self._earlier.rows_sha256:
                seq = self._earlier.seq
                yield seq, f"The rows from before event {seq} do not have the digest that it carries."
        elif self._must_be_covered():
            for table, key in self._rows.others(self._named):
                yield None, f"No event stands for the row of {table} {key}."
        if self._must_be_covered():
            for (digest,) in self._connection.execute(_UNUSED_TASKS):
                yield None, f"No event stands for task {digest[:12]}."

    def not_covered(self) -> int:
        """Rows of a ledger that an older version wrote and no newer one has opened."""
        return 0 if self._must_be_covered() else sum(1 for _ in self._rows.others(self._named))

    def _must_be_covered(self) -> bool:
        (version,) = self._connection.execute("SELECT ifnull(max(version), 0) FROM schema_version").fetchone()
        return self._is_covered or int(version) >= COVERED_FROM
