"""Is the book true? Everything is recomputed: chain, triggers, purses, holds, rungs, decisions, artifacts beside it."""

import hashlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from kernelgate.budget.artifacts import state_of
from kernelgate.budget.audit_run import RunAudit
from kernelgate.budget.chain import EVENT_COLUMNS
from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.errors import UnknownId, translate
from kernelgate.budget.records import Environment, Head
from kernelgate.budget.rows import PAID_TABLES, rows_of_result
from kernelgate.budget.rules import Rules, find_rules
from kernelgate.budget.triggers import GENESIS_HASH, expected_triggers
from kernelgate.tasks.model import Frozen, Task, canonical_json, sha256_hex

FINDINGS_LIMIT: Final = 200
"""Enough to see what happened; the count goes on."""
Topic: TypeAlias = Literal["file", "triggers", "chain", "head", "sources", "run", "artifacts"]
_WRONG_FILES: Final = {
    "changed": "does not have its SHA-256: changed on disk",
    "unreadable": "cannot be read as a file",
}
_HASHED: Final = tuple(sorted(set(EVENT_COLUMNS) - {"prev_hash", "hash"}))
"""In the order of canonical JSON, so that a row's text needs no sorting."""


class Finding(Frozen):
    """One thing that is not as it should be."""

    topic: Topic
    seq: int | None = None
    """The event where it shows."""
    run_id: str | None = None
    what: str


class AuditReport(Frozen):
    """What an audit found."""

    ok: bool
    findings: tuple[Finding, ...]
    """The first of them; `counts["findings"]` has the number."""
    counts: dict[str, int]
    """Events, runs, results, decisions replayed, and so on."""
    head: Head
    """Compare with one that was kept outside: the book alone cannot show that its end was cut off."""


def audit(path: str | os.PathLike[str], run: str | None = None, head: Head | None = None) -> AuditReport:
    """Recompute a book from its file and the artifacts beside it, without writing to either.

    Args:
        path: the SQLite file.
        run: look into this run only; chain and triggers are always checked whole.
        head: one that was kept outside: the book must still contain it.

    Raises:
        LedgerError: the file is missing, not a ledger, of a newer schema, or unreadable.
        UnknownId: there is no such run.
    """
    connection = open_for_reading(path)
    try:
        connection.execute("BEGIN")  # one snapshot, while others go on writing
        if run is not None and not connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run,)).fetchone():
            raise UnknownId(f"unknown run {run!r}")
        return _Auditor(connection, find_rules(), run).report(head, Path(path).absolute().parent)
    except sqlite3.Error as error:
        raise translate(error, Path(path)) from error
    finally:
        connection.close()


def rendered(report: AuditReport) -> str:
    """The report for people: one line that says whether the book holds, then what does not."""
    counts = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in report.counts.items())
    good = "The book holds: chain, sums, decisions and artifacts verify."
    lines = [good if report.ok else "The book does not hold.", f"Looked at {counts}.", f"Head {report.head}"]
    missing = report.counts.get("artifacts_missing", 0)
    if missing:
        lines.append(f"Artifacts that are not beside the book: {missing}. They may be pruned; their rows stay.")
    for finding in report.findings:
        where = " ".join(
            part
            for part in (
                f"run {finding.run_id}" if finding.run_id else "",
                f"event {finding.seq}" if finding.seq is not None else "",
            )
            if part
        )
        lines.append(f"- {finding.topic}{f' ({where})' if where else ''}: {finding.what}")
    return "\n".join(lines)


class _Auditor:
    def __init__(self, connection: sqlite3.Connection, rules: Rules, run: str | None) -> None:
        self._connection = connection
        self._rules = rules
        self._run = run
        self._counts: Counter[str] = Counter()
        self._findings: list[Finding] = []
        self._has = {table: self._with_rows(table) for table in PAID_TABLES if table != "results"}

    def report(self, head: Head | None, folder: Path) -> AuditReport:
        self._file()
        self._triggers()
        last = self._events(head)
        self._sources()
        self._artifacts(folder)
        return AuditReport(
            ok=not self._counts["findings"],
            findings=tuple(self._findings),
            counts=dict(sorted(self._counts.items())),
            head=last,
        )

    def _with_rows(self, table: str) -> set[int]:
        """The results that have rows in a table: three look-ups less for each that has none."""
        return {result_id for (result_id,) in self._connection.execute(f"SELECT DISTINCT result_id FROM {table}")}

    def _find(self, topic: Topic, what: str, seq: int | None = None, run_id: str | None = None) -> None:
        self._counts["findings"] += 1
        if len(self._findings) < FINDINGS_LIMIT:
            self._findings.append(Finding(topic=topic, what=what, seq=seq, run_id=run_id))

    def _file(self) -> None:
        for (line,) in self._connection.execute("PRAGMA quick_check(5)"):
            if line != "ok":
                self._find("file", f"SQLite says: {line}.")
        for table, rowid, parent, _ in self._connection.execute("PRAGMA foreign_key_check"):
            self._find("file", f"Row {rowid} of {table} points to a row of {parent} that does not exist.")

    def _triggers(self) -> None:
        present = dict(self._connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
        for name, text in expected_triggers().items():
            if name not in present:
                self._find("triggers", f"The trigger {name} is gone: rows may have been changed unseen.")
            elif present[name] != text:
                self._find("triggers", f"The trigger {name} does not have the text that this version writes.")

    def _events(self, head: Head | None) -> Head:
        """One walk over the chain, with the results beside it in the same order."""
        encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
        runs = self._run_audits()
        results = _Merge(self._results())
        prev_hash, seq = GENESIS_HASH, 0
        cursor = self._connection.execute(f"SELECT prev_hash, hash, {', '.join(_HASHED)} FROM events ORDER BY seq")
        for row in cursor:
            event = dict(zip(_HASHED, row[2:], strict=True))
            if event["seq"] != seq + 1:
                self._find("chain", f"Event {seq + 1} is missing.", event["seq"])
            seq = event["seq"]
            digest = hashlib.sha256((prev_hash + encode(event)).encode()).hexdigest()
            if row[0] != prev_hash or row[1] != digest:
                self._find("chain", f"Event {seq} does not have the hash of its content and its predecessor.", seq)
            prev_hash = row[1]
            if head is not None and head.seq == seq and head.hash != prev_hash:
                self._find("head", f"Event {seq} has another hash than the head that was kept: rewritten.", seq)
            self._counts["events"] += 1
            result = results.at(seq)
            if event["run_id"] in runs:
                self._one_event(runs[event["run_id"]], event, result)
        if head is not None and head.seq > seq:
            self._find("head", f"The book ends at event {seq}, the head that was kept is {head.seq}: cut off.", seq)
        for stray in results.strays():
            self._find("run", f"Result {stray['result_id']} has no event that paid for it.", None, stray["run_id"])
        for run_id, state in runs.items():
            for at_seq, what in state.at_the_end():
                self._find("run", what, at_seq, run_id)
        return Head(seq=seq, hash=prev_hash)

    def _one_event(self, state: RunAudit, event: dict[str, Any], result: dict[str, Any] | None) -> None:
        digest = None
        if result is not None:
            self._counts["results"] += 1
            result_id = result["result_id"]
            among = [table for table in PAID_TABLES if table == "results" or result_id in self._has[table]]
            digest = rows_of_result(self._connection, result_id, among).digest()
        if event["decision_json"] is not None:
            self._counts["decisions"] += 1
        for what in state.apply(event, result, digest):
            self._find("run", what, event["seq"], event["run_id"])

    def _run_audits(self) -> dict[str, RunAudit]:
        where, values = ("", ()) if self._run is None else ("WHERE run_id = ?", (self._run,))
        rows = self._connection.execute(f"SELECT * FROM runs {where} ORDER BY number", values)
        names = [column[0] for column in rows.description]
        audits: dict[str, RunAudit] = {}
        for values_of_row in rows:
            row = dict(zip(names, values_of_row, strict=True))
            audits[row["run_id"]] = RunAudit(row, self._rules)
        self._counts["runs"] = len(audits)
        return audits

    def _results(self) -> Iterator[dict[str, Any]]:
        where, values = ("", ()) if self._run is None else ("WHERE r.run_id = ?", (self._run,))
        rows = self._connection.execute(
            f"""SELECT r.result_id, r.event_seq, r.run_id, r.candidate_id, r.source_sha256, r.task_digest, r.rung,
            r.environment_id, r.verdict, r.ratio, r.ratio_low, r.ratio_high, r.gpu_s, r.cpu_s, r.work_s, r.overrun_s,
            r.replay_of, c.source_sha256 AS candidate_sha256, o.source_sha256 AS replayed_sha256,
            o.task_digest AS replayed_task, o.verdict AS replayed_verdict, o.environment_id AS replayed_environment
            FROM results r LEFT JOIN candidates c ON c.candidate_id = r.candidate_id
            LEFT JOIN results o ON o.result_id = r.replay_of {where} ORDER BY r.event_seq""",
            values,
        )
        names = [column[0] for column in rows.description]
        for row in rows:
            yield dict(zip(names, row, strict=True))

    def _sources(self) -> None:
        """Candidates, tasks and environments are named by their content, and results name them."""
        for candidate_id, digest, files in self._connection.execute(
            "SELECT candidate_id, source_sha256, files_json FROM candidates"
        ):
            self._counts["candidates"] += 1
            if sha256_hex(canonical_json(json.loads(files))) != digest:
                self._find("sources", f"The source of {candidate_id} does not have its digest.")
        for digest, spec in self._connection.execute("SELECT task_digest, spec_json FROM tasks"):
            if Task.model_validate(json.loads(spec), strict=False).digest != digest:
                self._find("sources", f"Task {digest[:12]} does not have its digest.")
        for environment_id, facts in self._connection.execute("SELECT environment_id, facts_json FROM environments"):
            if Environment(facts=json.loads(facts)).environment_id != environment_id:
                self._find("sources", f"The facts of environment {environment_id} do not have its id.")

    def _artifacts(self, folder: Path) -> None:
        """The files beside the book are what their rows say. A missing one is counted: artifacts may be pruned."""
        where, values = ("", ()) if self._run is None else ("AND run_id = ?", (self._run,))
        for run_id, path, digest, result_id, name in self._connection.execute(
            f"""SELECT min(run_id), path, artifact_sha256, min(result_id), min(name) FROM artifacts
            WHERE path NOT NULL {where} GROUP BY path, artifact_sha256 ORDER BY min(artifact_id)""",
            values,
        ):
            state = state_of(folder / path, digest)
            self._counts["artifacts_missing" if state == "missing" else "artifacts"] += 1
            if state in _WRONG_FILES:
                self._find("artifacts", f"{path} ({name} of result {result_id}) {_WRONG_FILES[state]}.", None, run_id)


class _Merge:
    """Results in order of their event, taken one event at a time."""

    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
        self._rows = rows
        self._next = next(rows, None)
        self._strays: list[dict[str, Any]] = []

    def at(self, seq: int) -> dict[str, Any] | None:
        """The result of this event; results of earlier numbers belong to none."""
        while self._next is not None and self._next["event_seq"] < seq:
            self._strays.append(self._next)
            self._next = next(self._rows, None)
        if self._next is None or self._next["event_seq"] != seq:
            return None
        found, self._next = self._next, next(self._rows, None)
        return found

    def strays(self) -> list[dict[str, Any]]:
        """Results whose event does not exist, after the last event."""
        rest = [] if self._next is None else [self._next, *self._rows]
        return [*self._strays, *rest]
