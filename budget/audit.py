"""Is the book true? Everything is recomputed: chain, triggers, purses, holds, rungs, decisions, artifacts beside it."""

import contextlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from pydantic import Field

from kernelgate.budget.artifacts import state_of
from kernelgate.budget.audit_booking import wrong_of_no_run
from kernelgate.budget.audit_hashes import readable, wrong_in
from kernelgate.budget.audit_house import HouseAudit
from kernelgate.budget.audit_rows import EventRow, Replayed, ResultRow, ResultStream, reason_of
from kernelgate.budget.audit_run import RunAudit
from kernelgate.budget.audit_schema import bad_texts, wrong_parts
from kernelgate.budget.chain import head_of
from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.errors import UnknownId, translate
from kernelgate.budget.records import Environment, Head
from kernelgate.budget.rules import Rules, find_rules
from kernelgate.budget.triggers import GENESIS_HASH
from kernelgate.tasks.model import Frozen, Task, canonical_json, digest_of_spec, sha256_hex

FINDINGS_LIMIT: Final = 200
"""Enough to see what happened; the count goes on."""
_FOLLOWING: Final = ("sources", "run", "artifacts")
"""Topics of what is said and not right: it often follows from a row that is not as it was written, told before."""
LONG_BOOK: Final = 50_000
"""Events from which on a second process is worth its start."""
Topic: TypeAlias = Literal["file", "schema", "triggers", "chain", "head", "sources", "rows", "run", "artifacts"]
_T = TypeVar("_T")
_WRONG_FILES: Final = {
    "changed": "does not have its SHA-256: changed on disk",
    "unreadable": "cannot be read as a file",
}


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
    """The first of them, what was rewritten before what follows from it; `counts["findings"]` has the number."""
    counts: dict[str, int]
    """Events, runs, results, decisions replayed, and so on."""
    house_s: dict[str, float] = Field(default_factory=dict[str, float])
    """Device seconds that the house paid beside the runs' own, by cause."""
    run_id: str | None = None
    """The only run that was looked into; None: all of them."""
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
    try:
        return _audit(path, run, head)
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise translate(error, Path(path)) from error
    except sqlite3.Error as error:
        raise translate(error, Path(path)) from error
    try:  # reading each text through Python costs time, and an honest book needs it nowhere
        return _audit(path, run, head, any_text=True)
    except sqlite3.Error as error:
        raise translate(error, Path(path)) from error


def _audit(path: str | os.PathLike[str], run: str | None, head: Head | None, *, any_text: bool = False) -> AuditReport:
    with contextlib.closing(open_for_reading(path)) as connection:
        if any_text:
            connection.text_factory = readable
        connection.execute("BEGIN")  # one snapshot, while others go on writing
        if run is not None and not connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run,)).fetchone():
            raise UnknownId(f"unknown run {run!r} in {path}; `kernelgate runs` lists those of your ledger")
        return _Auditor(connection, find_rules(), run, any_text=any_text).report(head, Path(path).absolute())


def rendered(report: AuditReport) -> str:
    """The report for people: one line that says whether the book holds, then what does not."""
    counts = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in report.counts.items())
    good = "The book holds: chain, sums, decisions and artifacts verify."
    if report.run_id is not None:
        good = (
            f"Run {report.run_id} holds: its sums, decisions and artifacts verify, and so do chain and triggers of the "
            "whole book. Other runs were not looked into."
        )
    lines = [good if report.ok else "The book does not hold.", f"Looked at {counts}.", f"Head {report.head}"]
    if report.house_s:
        paid = ", ".join(f"{seconds:.3f} {cause.replace('_', ' ')}" for cause, seconds in report.house_s.items())
        lines.append(f"Device seconds that the house paid: {paid}.")
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
    def __init__(self, connection: sqlite3.Connection, rules: Rules, run: str | None, *, any_text: bool) -> None:
        self._connection = connection
        self._any_text = any_text
        self._rules = rules
        self._run = run
        self._house = HouseAudit(connection)
        self._counts: Counter[str] = Counter()
        self._rewritten: list[Finding] = []
        self._following: list[Finding] = []
        self._runs: dict[str, RunAudit | None] = {}
        """Each run that was met; None for one that nobody asked for or that does not exist."""

    def report(self, head: Head | None, path: Path) -> AuditReport:
        last = self._last()
        hashes = partial(wrong_in, path, last.seq, self._run, head, any_text=self._any_text)
        # SQLite looks at its pages without Python's lock, and in a long book another process makes the hashes: each
        # takes about a third of the time.
        elsewhere = _process() if last.seq > LONG_BOOK else ThreadPoolExecutor(max_workers=1)
        with ThreadPoolExecutor(max_workers=1) as beside, elsewhere:
            damage = beside.submit(_damage, path)
            rewritten = elsewhere.submit(hashes)
            for part in wrong_parts(self._connection):
                self._find(part.topic, part.what)
            if self._any_text:
                self._texts(path)
            for walk in (self._events, self._sources, lambda: self._artifacts(path.parent)):
                self._as_far_as_it_goes(walk)
            for what in damage.result():
                self._find("file", what)
            try:
                found = self._as_far_as_it_goes(rewritten.result)
            except BrokenProcessPool:  # the host did not let it live; then it takes longer
                found = self._as_far_as_it_goes(hashes)
            if found is not None and found.not_covered:
                self._counts["rows_not_covered"] = found.not_covered
            for wrong in () if found is None else found.wrong:
                self._find(wrong.topic, wrong.what, wrong.seq, wrong.run_id)
        return AuditReport(
            ok=not self._counts["findings"],
            findings=tuple([*self._rewritten, *self._following][:FINDINGS_LIMIT]),
            counts=dict(sorted(self._counts.items())),
            house_s=self._house.paid_s(),
            run_id=self._run,
            head=last,
        )

    def _last(self) -> Head:
        try:
            return head_of(self._connection)
        except ValueError as error:
            (seq,) = self._connection.execute("SELECT max(seq) FROM events").fetchone()
            self._find("chain", f"The last event has no number or no hash: {reason_of(error)}.", seq)
            return Head(seq=max(0, seq), hash=GENESIS_HASH)

    def _as_far_as_it_goes(self, walk: Callable[[], _T]) -> _T | None:
        """A table or a column that is not there ends a walk, and is a finding."""
        try:
            return walk()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            self._find("schema", f"The book cannot be read to its end: {error}.")
            return None

    def _texts(self, path: Path) -> None:
        with contextlib.closing(open_for_reading(path)) as connection:
            for table, rowid, column in bad_texts(connection):
                seq, run_id = rowid if table == "events" else None, f"r{rowid}" if table == "runs" else None
                self._find("file", f"Row {rowid} of {table}: its {column} is not UTF-8.", seq, run_id)

    def _find(self, topic: Topic, what: str, seq: int | None = None, run_id: str | None = None) -> None:
        self._counts["findings"] += 1
        findings = self._following if topic in _FOLLOWING else self._rewritten
        if len(findings) < FINDINGS_LIMIT:
            shown_run = None if run_id is None else _shown(run_id)
            findings.append(Finding(topic=topic, what=_shown(what), seq=seq, run_id=shown_run))

    def _events(self) -> None:
        """One walk over the events, with the results beside it in the same order: does it say what is right?"""
        results = ResultStream(self._connection, ResultRow._fields, self._run)
        n = 0
        rows = self._connection.execute(f"SELECT {', '.join(EventRow._fields)} FROM events ORDER BY seq")
        for event in map(EventRow._make, rows):
            n += 1
            found = results.at(event.seq)
            self._one_event(event, None if found is None else ResultRow._make(found))
        self._counts["events"] = n
        for result_id, run_id in results.strays():
            self._find("run", f"Result {result_id} has no event that paid for it.", None, run_id)
        self._ends()

    def _one_event(self, event: EventRow, result: ResultRow | None) -> None:
        if event.run_id is None:
            for what in wrong_of_no_run(event):
                self._find("run", what, event.seq)
            return
        try:
            state = self._runs[event.run_id]
        except KeyError:
            state = self._runs[event.run_id] = self._run_audit(event.run_id)
        if state is None:
            return
        replayed = None
        if result is not None:
            self._counts["results"] += 1
            replayed = None if result.replay_of is None else self._replayed(result.replay_of)
        if event.decision_json is not None:
            self._counts["decisions"] += 1
        for what in state.apply(event, result, replayed):
            self._find("run", what, event.seq, event.run_id)
        if event.kind == "overrun":
            for what in self._house_paid(event):
                self._find("run", what, event.seq, event.run_id)

    def _house_paid(self, overrun: EventRow) -> list[str]:
        try:
            return self._house.wrong_at(overrun)
        except (TypeError, ValueError, AttributeError) as error:  # whatever stands in a cell is a finding
            return [f"What overrun {overrun.seq} says was used cannot be judged: {reason_of(error)}."]

    def _replayed(self, result_id: int) -> Replayed | None:
        columns = ", ".join(Replayed._fields)
        row = self._connection.execute(f"SELECT {columns} FROM results WHERE result_id = ?", (result_id,)).fetchone()
        return None if row is None else Replayed._make(row)

    def _run_audit(self, run_id: str) -> RunAudit | None:
        if self._run not in (None, run_id):
            return None
        cursor = self._connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,))
        names = [column[0] for column in cursor.description]
        row = cursor.fetchone()
        if row is None:
            return None
        try:
            return RunAudit(dict(zip(names, row, strict=True)), self._rules)
        except Exception as error:  # noqa: BLE001 -- whatever stands in a cell is a finding, not the audit's end
            self._find("run", f"Run {run_id} cannot be judged, nor its events: {reason_of(error)}.", None, run_id)
            return None

    def _ends(self) -> None:
        """What only shows after the last event."""
        where, values = ("", ()) if self._run is None else ("WHERE run_id = ?", (self._run,))
        for (run_id,) in self._connection.execute(f"SELECT run_id FROM runs {where} ORDER BY number", values):
            self._counts["runs"] += 1
            state = self._runs[run_id] if run_id in self._runs else self._run_audit(run_id)
            for at_seq, what in () if state is None else state.at_the_end():
                self._find("run", what, at_seq, run_id)

    def _sources(self) -> None:
        """Candidates, tasks and environments are named by their content, and results name them."""
        for candidate_id, digest, files in self._connection.execute(
            "SELECT candidate_id, source_sha256, files_json FROM candidates"
        ):
            self._counts["candidates"] += 1
            self._named(digest, _source_digest, files, f"The source of {candidate_id} does not have its digest")
        for digest, spec in self._connection.execute("SELECT task_digest, spec_json FROM tasks"):
            self._named(digest, _task_digest, spec, f"Task {digest[:12]} does not have its digest")
        for environment_id, facts in self._connection.execute("SELECT environment_id, facts_json FROM environments"):
            what = f"The facts of environment {environment_id} do not have its id"
            self._named(environment_id, _environment_id, facts, what)

    def _named(self, name: str, name_of: Callable[[str], str], text: str, what: str) -> None:
        try:
            if name_of(text) != name:
                self._find("sources", f"{what}.")
        except Exception as error:  # noqa: BLE001 -- whatever stands in a cell is a finding, not the audit's end
            self._find("sources", f"{what}: it cannot be read, {reason_of(error)}.")

    def _artifacts(self, folder: Path) -> None:
        """The files beside the book are what their rows say. A missing one is counted: artifacts may be pruned."""
        where, values = ("", ()) if self._run is None else ("AND run_id = ?", (self._run,))
        for run_id, path, digest, result_id, name in self._connection.execute(
            f"""SELECT min(run_id), path, artifact_sha256, min(result_id), min(name) FROM artifacts
            WHERE path NOT NULL {where} GROUP BY path, artifact_sha256 ORDER BY min(artifact_id)""",
            values,
        ):
            try:
                state = state_of(folder / path, digest)
            except ValueError:  # a path with a NUL in it
                state = "unreadable"
            self._counts["artifacts_missing" if state == "missing" else "artifacts"] += 1
            if state in _WRONG_FILES:
                self._find("artifacts", f"{path} ({name} of result {result_id}) {_WRONG_FILES[state]}.", None, run_id)


def _shown(text: str) -> str:
    """A text that a forger may have written, sign by sign, without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _source_digest(files_json: str) -> str:
    return sha256_hex(canonical_json(json.loads(files_json)))


def _task_digest(spec_json: str) -> str:
    spec = json.loads(spec_json)
    Task.model_validate(spec, strict=False)
    return digest_of_spec(spec)


def _environment_id(facts_json: str) -> str:
    return Environment(facts=json.loads(facts_json)).environment_id


def _process() -> ProcessPoolExecutor:
    """A fresh interpreter: a fork would share SQLite's locks with us."""
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))


def _damage(path: Path) -> list[str]:
    """What SQLite itself finds wrong with the file."""
    with contextlib.closing(open_for_reading(path)) as connection:
        broken = [f"SQLite says: {line}." for (line,) in connection.execute("PRAGMA quick_check(5)") if line != "ok"]
        loose = [
            f"Row {rowid} of {table} points to a row of {parent} that does not exist."
            for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
    return broken + loose
