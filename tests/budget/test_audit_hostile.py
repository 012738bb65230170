"""An audit reads whatever stands in the file: what cannot be read or judged is a finding, and the rest is audited."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from book_scenario import ACCOUNT, ENVIRONMENT, TASK, Scenario, result_input, run_request

from kernelgate.budget.audit import AuditReport, audit, rendered
from kernelgate.budget.errors import BookRefusedRow, LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Rung, Verdict
from kernelgate.budget.records import ArtifactInput, Head
from kernelgate.budget.triggers import expected_triggers
from kernelgate.server.run_commands import audit_book
from kernelgate.tasks.model import Candidate

CANDIDATE = Candidate(files={"candidate.py": "d = 1\n"})
HOSTILE = ("not json", "{}", "null", '"\\ud800"', "[/bold]\x1b[2J", "", "quick", "9" * 400, "[" * 20_000,
           None, 0, -1, 2**63 - 1, 7, 0.5, float("inf"), b"\x00\x01\x02\x03")  # fmt: skip
"""What somebody may write into a cell; what the schema refuses is passed over."""
SILENT = {
    "schema_version.version", "schema_version.applied_utc", "accounts.device_s_cap", "accounts.created_utc",
    "environments.created_utc", "jobs.candidate_id", "jobs.tool",
    "jobs.arguments_sha256", "jobs.arguments_json", "jobs.state", "jobs.result_json", "jobs.owner_pid",
    "jobs.owner_start_s", "jobs.owner_place", "jobs.created_utc", "jobs.heartbeat_utc", "jobs.finished_utc",
    "jobs.used_hold_seq", "jobs.used_device_s", "jobs.loss_told",
    "_sqlite_migrations.id", "_sqlite_migrations.migration_set", "_sqlite_migrations.name",
    "_sqlite_migrations.applied_at",
}  # fmt: skip
"""Cells that no digest covers: an edit of one may pass. What cannot be read must be told all the same."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book with rows in every table, closed."""
    path = tmp_path_factory.mktemp("hostile") / "book.db"
    book = Scenario(path, rule="halving")
    ledger = book.ledger
    ledger.record_qualification(TASK, ENVIRONMENT, qualified=True, why="ok", facts={"n": 3}, paid=Amount(cpu_s=2.0))
    ledger.record_calibration(ENVIRONMENT, "floor", {"floor": 0.1}, paid=Amount(cpu_s=1.0), task_digest=TASK.digest)
    first = book.climb(Rung.precise, "a = 1\n")
    slow = book.climb(Rung.quick, "b = 1\n", ratio=0.5, spread=0.05, verdict=Verdict.clearly_slower)
    third = book.candidate("c = 1\n", parent_id=first.candidate_id)
    hold = book.hold(third, Rung.compile)
    ledger.settle(
        hold.hold_seq, Amount(calls=1, work_s=0.1), result_input(Rung.compile),
        artifacts=(ArtifactInput(name="log", media_type="text/plain", data=b"hello"),), observation={"load": 1.0},
    )  # fmt: skip
    book.refused(slow, Rung.precise)
    job = book.job()
    ledger.start_job(job.job_id)
    ledger.finish_job(job.job_id, {"x": 1})
    ledger.close()
    return path


@pytest.fixture
def book(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template.parent, tmp_path / "copy")
    return tmp_path / "copy" / template.name


def forged(path: Path, *statements: str, values: tuple[object, ...] = ()) -> AuditReport:
    with closing(sqlite3.connect(path, isolation_level=None)) as forger:
        for name in expected_triggers():
            forger.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            forger.execute(statement, values)
        for text in expected_triggers().values():
            forger.execute(text)
    return audit(path)


def cells(path: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as reader:
        for (table,) in reader.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for column in reader.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, column[1]


def changed_by(forger: sqlite3.Connection, table: str, column: str, value: object) -> bool:
    """Write a value into the last row of a table, with the triggers taken away and put back."""
    forger.execute("PRAGMA synchronous = OFF")
    forger.execute("BEGIN")
    for name in expected_triggers():
        forger.execute(f"DROP TRIGGER {name}")
    last = f"rowid = (SELECT max(rowid) FROM {table})"
    try:
        done = forger.execute(f"UPDATE {table} SET {column} = ? WHERE {last} AND {column} IS NOT ?", (value, value))
    except (sqlite3.Error, OverflowError):
        return False
    for text in expected_triggers().values():
        forger.execute(text)
    forger.execute("COMMIT")
    return done.rowcount == 1


def silent_cells(book: Path, most: int) -> set[str]:
    """Up to so many of the hostile values in each column in turn; returns the columns that passed."""
    with closing(sqlite3.connect(book)) as plain:
        plain.execute("PRAGMA journal_mode = DELETE")  # then the file is the whole book
    honest, silent = book.read_bytes(), set[str]()
    for at, (table, column) in enumerate(list(cells(book))):
        tried = 0
        for value in (*HOSTILE[at % len(HOSTILE) :], *HOSTILE[: at % len(HOSTILE)]):
            if tried == most:
                break
            with closing(sqlite3.connect(book, isolation_level=None)) as forger:
                if not changed_by(forger, table, column, value):
                    continue
            tried += 1
            try:
                report = audit(book)
            except LedgerError:
                assert table == "schema_version", f"{table}.{column} = {str(value)[:40]!r}"
            else:
                rendered(report)
                report.model_dump_json()
                if report.ok:
                    silent.add(f"{table}.{column}")
            book.write_bytes(honest)
    return silent


def test_whatever_stands_in_a_cell_an_audit_ends_with_a_finding_or_a_documented_silence(book: Path) -> None:
    assert silent_cells(book, 1) <= SILENT


@pytest.mark.long
def test_every_hostile_value_in_every_cell_ends_with_a_finding_or_a_documented_silence(book: Path) -> None:
    assert silent_cells(book, len(HOSTILE)) <= SILENT


@pytest.mark.parametrize(("statement", "topic", "seq", "run_id"), [
    ("UPDATE candidates SET files_json = 'not json' WHERE number = 2", "sources", None, None),
    ("UPDATE events SET purse_json = 'x' WHERE seq = 8", "run", 8, "r1"),
    ("UPDATE events SET decision_json = '{}' WHERE decision_json NOT NULL", "run", 11, "r1"),
    ("UPDATE events SET rung = NULL WHERE seq = 7", "run", 7, "r1"),
    ("UPDATE events SET gpu_s = 9e999 WHERE seq = 7", "run", 7, "r1"),
    ("UPDATE events SET rung = 'quick' WHERE seq = 6", "run", 6, "r1"),
    ("UPDATE events SET hash = replace(hash, substr(hash, 1, 1), 'Z') WHERE seq = (SELECT max(seq) FROM events)",
     "chain", None, None),
    ("UPDATE tasks SET spec_json = '[]'", "sources", None, None),
    ("UPDATE environments SET facts_json = '7'", "sources", None, None),
    ("UPDATE runs SET parameters_json = '{'", "run", None, "r1"),
    ("UPDATE runs SET budget_json = '{}x'", "run", None, "r1"),
    ("UPDATE results SET event_seq = 9 WHERE event_seq = 8", "run", 9, "r1"),
    ("UPDATE events SET reason = CAST(x'ff41' AS TEXT) WHERE seq = 8", "file", 8, None),
    ("UPDATE runs SET client_name = CAST(x'ff41' AS TEXT)", "file", None, "r1"),
    ("UPDATE samples SET workload = CAST(x'ff41' AS TEXT) WHERE sample_id = 1", "file", None, None),
])  # fmt: skip
def test_a_cell_that_cannot_be_read_or_judged_is_named_and_the_rest_is_audited(
    book: Path, statement: str, topic: str, seq: int | None, run_id: str | None
) -> None:
    report = forged(book, statement, "UPDATE events SET missing = 'x' WHERE seq = 10")
    found = {(each.topic, each.seq, each.run_id) for each in report.findings}
    assert (topic, seq, run_id) in found or (seq is None and (topic, run_id) in {(t, r) for t, _, r in found}), found
    assert any(each.seq == 10 and each.topic == "chain" for each in report.findings)
    json.loads(report.model_dump_json())


def test_a_table_that_is_gone_is_named_and_the_rest_is_audited(book: Path) -> None:
    with closing(sqlite3.connect(book, isolation_level=None)) as forger:
        forger.execute("DROP TRIGGER events_refuse_update")
        forger.execute("UPDATE events SET missing = 'x' WHERE seq = 10")
        forger.execute("DROP TABLE artifacts")
    report = audit(book)
    assert any(each.what == "The table artifacts is gone." for each in report.findings)
    assert any("cannot be read to its end: no such table" in each.what for each in report.findings)


def test_thousands_of_results_without_an_event_are_named_too(book: Path) -> None:
    with closing(sqlite3.connect(book)) as reader:
        columns = ", ".join(row[1] for row in reader.execute("PRAGMA table_info(results)"))
    cells = columns.replace("result_id", "NULL").replace("event_seq", "-n")
    report = forged(
        book,
        f"""WITH RECURSIVE many (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 1500)
        INSERT INTO results ({columns}) SELECT {cells} FROM many, results WHERE result_id = 1""",
    )
    assert report.counts["findings"] >= 1500


@pytest.mark.parametrize(("statement", "topic", "what"), [
    ("CREATE TRIGGER evil BEFORE INSERT ON events BEGIN SELECT raise(IGNORE); END", "triggers", "The trigger evil is"),
    ("CREATE VIEW mine AS SELECT 1", "schema", "The view mine is no part of a ledger"),
    ("CREATE TABLE mine (x)", "schema", "The table mine is no part"),
    ("CREATE UNIQUE INDEX mine ON samples (workload, block_index, side, result_id)", "schema", "The index mine is no"),
    ("DROP INDEX events_of_run", "schema", "The index events_of_run is gone"),
])  # fmt: skip
def test_what_was_added_to_the_schema_or_taken_from_it_is_found(
    book: Path, statement: str, topic: str, what: str
) -> None:
    with closing(sqlite3.connect(book)) as forger:
        forger.execute(statement)
    (finding,) = audit(book).findings
    assert finding.topic == topic
    assert finding.what.startswith(what)


def test_an_edited_view_is_found_and_gone_once_a_server_has_opened_the_book(book: Path) -> None:
    with closing(sqlite3.connect(book)) as forger:
        forger.execute("DROP VIEW leaderboard")
        forger.execute("CREATE VIEW leaderboard AS SELECT 'r1' AS run_id, 9.9 AS precise_ratio")
    (finding,) = audit(book).findings
    assert finding.what.startswith("The view leaderboard does not have the text that this version writes; opening")
    Ledger.open(book).close()
    assert audit(book).ok


@pytest.mark.parametrize(("table", "write"), [
    ("events", lambda ledger: ledger.start_run(TASK, run_request())),
    ("candidates", lambda ledger: ledger.register_candidate("r1", CANDIDATE, account=ACCOUNT)),
])  # fmt: skip
def test_a_row_that_a_foreign_trigger_swallows_is_noticed_before_it_is_answered(
    book: Path, table: str, write: Callable[[Ledger], object]
) -> None:
    with closing(sqlite3.connect(book)) as forger:
        forger.execute(f"CREATE TRIGGER evil BEFORE INSERT ON {table} BEGIN SELECT raise(IGNORE); END")
    with Ledger.open(book) as ledger:
        head = ledger.head()
        with pytest.raises(BookRefusedRow, match=f"left out a row of {table}.*kernelgate audit"):
            write(ledger)
        assert ledger.head() == head


def test_an_audit_of_one_run_says_that_others_were_not_looked_into(book: Path) -> None:
    first, *_ = rendered(audit(book, run="r1")).splitlines()
    assert first.startswith("Run r1 holds")
    assert first.endswith("Other runs were not looked into.")
    assert rendered(audit(book)).startswith("The book holds")


def test_a_head_of_event_0_is_refused_unless_it_is_the_genesis(book: Path) -> None:
    assert audit(book, head=Head(seq=0, hash="0" * 64)).ok
    (finding,) = audit(book, head=Head(seq=0, hash="f" * 64)).findings
    assert (finding.topic, finding.seq) == ("head", 0)


def test_what_the_house_paid_counts_before_its_first_overrun(template: Path) -> None:
    with closing(sqlite3.connect(template)) as reader:
        assert reader.execute("SELECT count(*) FROM events WHERE kind = 'overrun'").fetchone() == (0,)
        house = reader.execute(
            "SELECT qualifying_device_s, calibrating_device_s FROM cost_per_account WHERE account_id = 'house'"
        ).fetchall()
    assert house == [(2.0, 1.0)]


@pytest.mark.parametrize(("ledger", "head", "part"), [
    ("none.db", None, "there is no ledger"),
    (".", None, "is a folder"),
    ("book.db", "41:9f2c", "all 64 digits"),
])  # fmt: skip
def test_an_audit_that_cannot_look_says_why_in_json_too(
    book: Path, capsys: pytest.CaptureFixture[str], ledger: str, head: str | None, part: str
) -> None:
    assert audit_book(book.parent / ledger, head, as_json=True) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is None
    assert part in said["error"]


def test_what_a_forger_wrote_is_printed_without_steering_the_terminal(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged(book, "UPDATE events SET decision_json = '[/bold]\x1b[2J' WHERE decision_json NOT NULL")
    with closing(sqlite3.connect(book)) as forger:
        forger.execute('CREATE VIEW "[/red]\x1b[2J" AS SELECT 1')
    assert audit_book(book, None, as_json=False) == 1
    printed = capsys.readouterr().out
    assert "[/red]?[2J" in printed
    assert "\x1b" not in printed
