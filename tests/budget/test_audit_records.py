"""What the chain covers beside results: rows rewritten, taken out or put in without a new hash are named."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from book_scenario import ACCOUNT, ENVIRONMENT, TASK, Scenario
from test_ledger_audit import forge, recompute_chain, said

from kernelgate.budget.audit import AuditReport, audit, rendered
from kernelgate.budget.chain import EVENT_COLUMNS
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Budget, Rung
from kernelgate.budget.triggers import expected_triggers
from kernelgate.tasks.model import Candidate

OLD_BOOK = Path(__file__).parent / "books" / "schema_1.db.gz"
DIGEST = "does not have its digest"


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    """Two candidates, what the house found out, and refusals of each kind that the book can tell."""
    book = Scenario(tmp_path / "book.db", rule="halving", budget=Budget(device_s=100.0, deadline_s=1000.0))
    first = book.climb(Rung.quick, "# first\n")
    other = Candidate(files={"candidate.py": "# second\n"})
    second, _ = book.ledger.register_candidate(
        "r1", other, account=ACCOUNT, parent_id=first.candidate_id, note="an idea"
    )
    book.ledger.record_qualification(
        TASK, ENVIRONMENT, qualified=True, why="fit", facts={"n": 1}, paid=Amount(cpu_s=2.0)
    )
    book.ledger.record_calibration(
        ENVIRONMENT, "noise_floor", {"floor": 0.05}, paid=Amount(cpu_s=1.0), task_digest=TASK.digest
    )
    book.ledger.record_observation(ENVIRONMENT, {"load": 1.0})
    book.ledger.record_account("alice")
    book.refused(second, Rung.check)
    book.measure(second, Rung.compile)
    book.refused(second, Rung.quick)
    book.refused(first, Rung.check, 1000.0, least=Amount(cpu_s=200.0))
    book.refused(first, Rung.check, work_s=5000.0, least=Amount(work_s=5000.0))
    return book


def of_run(column: str, value: str) -> tuple[str, str]:
    return f"UPDATE runs SET {column} = {value}", f"row of runs that event 1 stands for (r1), or its task, {DIGEST}"


FORGED_ROWS: list[tuple[str, str]] = [
    ("UPDATE runs SET rule = 'flat', rule_version = 1, parameters_json = '{}'", "row of runs that event 1 stands for"),
    of_run("rule_version", "7"),
    of_run("account_id", "'alice'"),
    of_run("task_name", "'another'"),
    of_run("device_uid", "'GPU-1'"),
    of_run("idempotency_key", "'key'"),
    of_run("arguments_sha256", "'" + "0" * 64 + "'"),
    of_run("client_name", "'somebody'"),
    of_run("client_version", "'9'"),
    of_run("created_utc", "'1999'"),
    ("UPDATE calibrations SET facts_json = '{\"floor\":0.0001}'", "row of calibrations that event"),
    ("UPDATE calibrations SET cpu_s = 0", "row of calibrations that event"),
    ("DELETE FROM calibrations", "is gone"),
    ("UPDATE qualifications SET cpu_s = 0", "row of qualifications that event"),
    ("UPDATE qualifications SET qualified = 0", "row of qualifications that event"),
    ("DELETE FROM qualifications", "is gone"),
    ("DELETE FROM observations", "is gone"),
    ("UPDATE observations SET facts_json = '{}'", "row of observations that event"),
    (
        "INSERT INTO calibrations SELECT 9, task_digest, environment_id, kind, '{\"floor\":0.0}', 0, 0, 'x'"
        " FROM calibrations",
        "No event stands for the row of calibrations 9",
    ),
    ("INSERT INTO qualifications SELECT 9, task_digest, environment_id, 1, '', '{}', 0, 0, 'x' FROM qualifications",
     "No event stands for the row of qualifications 9"),
    ("UPDATE candidates SET parent_id = NULL WHERE number = 2", "row of candidates that event"),
    ("UPDATE candidates SET parent_id = 'c2' WHERE number = 1", "row of candidates that event"),
    ("UPDATE candidates SET note = 'my own idea' WHERE number = 2", "row of candidates that event"),
    ("UPDATE candidates SET language = 'cuda' WHERE number = 1", "row of candidates that event"),
    ("DELETE FROM candidates WHERE number = 2", "is gone"),
    (
        "INSERT INTO candidates SELECT 9, 'c9', run_id, replace(source_sha256, substr(source_sha256, 1, 1), '0'), NULL,"
        " 'forged', language, files_json, 'x' FROM candidates WHERE number = 1",
        "No event stands for the row of candidates c9",
    ),
    ("UPDATE tasks SET name = 'another'", "or its task, " + DIGEST),
    ("UPDATE tasks SET title = 'another'", "or its task, " + DIGEST),
    ("INSERT INTO tasks SELECT replace(task_digest, substr(task_digest, 1, 1), 'x'), name, title, spec_json, 'x'"
     " FROM tasks", "No event stands for task"),
    ("INSERT INTO runs SELECT 2, 'r2', account_id, task_digest, task_name, rule, rule_version, parameters_json,"
     " budget_json, device_kind, device_uid, environment_id, 'k', arguments_sha256, client_name, client_version, 'x',"
     " 0.0 FROM runs", "No event stands for the row of runs r2"),
]  # fmt: skip


def test_a_book_with_all_of_it_holds(book: Scenario) -> None:
    report = audit(book.path, head=book.ledger.head())
    assert report.ok, report.findings
    assert "rows_not_covered" not in report.counts
    kinds = [row["refusal_kind"] for row in book.ledger.query("SELECT refusal_kind FROM events WHERE kind = 'refuse'")]
    assert kinds == ["rung_missing", "rung_missing", "purse", "deadline"]


@pytest.mark.parametrize(("statement", "part"), FORGED_ROWS)
def test_a_forged_row_is_named_though_no_event_was_touched(book: Scenario, statement: str, part: str) -> None:
    assert said(forge(book, statement), part)


@pytest.mark.parametrize("table", ["runs", "candidates", "calibrations"])
def test_a_digest_that_was_dropped_is_found_even_when_the_chain_was_recomputed(book: Scenario, table: str) -> None:
    stands = "kind = 'grant'" if table == "runs" else f"reason LIKE '{table} %'"
    report = forge(book, f"UPDATE events SET rows_sha256 = NULL WHERE {stands}", rehash=True)
    assert said(report, f"No event stands for the row of {table}")


def test_all_digests_dropped_are_found_even_when_the_chain_was_recomputed(book: Scenario) -> None:
    """The version of the schema says that there must be some."""
    report = forge(book, "UPDATE events SET rows_sha256 = NULL WHERE kind IN ('grant', 'note')", rehash=True)
    assert said(report, "No event stands for the row of runs r1")


SETTLED = "kind = 'settle' AND rung = 'check'"
FORGED_EVENTS: list[tuple[str, str]] = [
    (f"UPDATE events SET account_id = 'alice' WHERE {SETTLED}", "is booked on alice, which is not the run's account"),
    (f"UPDATE events SET run_id = NULL WHERE {SETTLED}", "is of no run"),
    ("UPDATE events SET cpu_s = 1 WHERE kind = 'grant'", "is not of the run's budget"),
    ("UPDATE events SET work_s = 1 WHERE kind = 'grant'", "is not of the run's budget"),
    ("UPDATE events SET override_calls = 9 WHERE kind = 'grant'", "is not of the run's budget"),
    ("UPDATE events SET cpu_s = 9 WHERE kind = 'refuse'", "carries amounts"),
    ("UPDATE events SET cpu_s = 9 WHERE reason = 'calibrations 1'", "not one that the house makes"),
    ("UPDATE events SET account_id = 'alice' WHERE reason = 'calibrations 1'", "not one that the house makes"),
]


@pytest.mark.parametrize(("statement", "part"), FORGED_EVENTS)
def test_a_forged_event_is_named_even_when_the_chain_was_recomputed(book: Scenario, statement: str, part: str) -> None:
    assert said(forge(book, statement, rehash=True), part)


def appended(book: Scenario, like: str, changes: dict[str, str]) -> AuditReport:
    """Append an event that is hashed as it should be: a copy of another with some columns changed, and audit."""
    columns = [changes.get(name, name) for name in EVENT_COLUMNS]
    columns[0] = "(SELECT max(seq) + 1 FROM events)"
    columns[EVENT_COLUMNS.index("purse_json")] = (
        "NULL" if changes.get("run_id") == "NULL"
        else "(SELECT purse_json FROM events WHERE run_id = 'r1' ORDER BY seq DESC LIMIT 1)"
    )  # fmt: skip
    with closing(sqlite3.connect(book.path, isolation_level=None)) as connection:
        for name in expected_triggers():
            connection.execute(f"DROP TRIGGER {name}")
        row = f"SELECT {', '.join(columns)} FROM events WHERE {like} LIMIT 1"
        connection.execute(f"INSERT INTO events ({', '.join(EVENT_COLUMNS)}) {row}")
        recompute_chain(connection)
        for text in expected_triggers().values():
            connection.execute(text)
    return audit(book.path)


NO_RUN = {"run_id": "NULL", "candidate_id": "NULL", "job_id": "NULL", "rung": "NULL", "rows_sha256": "NULL"}
OF_A_PASSED = "kind = 'refuse' AND candidate_id = 'c1'"
FALSE: list[tuple[str, dict[str, str], str]] = [
    ("kind = 'settle'", {**NO_RUN, "kind": "'overrun'", "account_id": "'house'", "gpu_s": "1000.0"}, "is of no run"),
    ("kind = 'settle'", {**NO_RUN, "hold_seq": "2", "account_id": "'alice'", "kind": "'overrun'"}, "is of no run"),
    (OF_A_PASSED, {"refusal_kind": "'purse'", "reason": "'Nothing is left.'"}, "something else than the purse"),
    (OF_A_PASSED, {"refusal_kind": "'purse'", "reason": "'All 100 check calls of this run are used or held.'"},
     "something else than the purse"),
    (OF_A_PASSED, {"refusal_kind": "'purse'",
                   "reason": "'0.000 device seconds are left, and check needs 1.000.'"}, "something else than"),
    (OF_A_PASSED, {"refusal_kind": "'deadline'", "reason": "'Run r1 is closed (closed).'"}, "something else than"),
    (OF_A_PASSED, {"refusal_kind": "'rung_missing'", "reason": "'c1 has not been through check.'", "rung": "'quick'",
                   "missing": "'check: a passing result.'"}, "says that check is missing"),
    (OF_A_PASSED, {"refusal_kind": "'rung_missing'", "reason": "'c1 has not been through compile.'",
                   "missing": "'a better source'"}, "names no rung that check needs"),
    (OF_A_PASSED, {"refusal_kind": "'rule'", "reason": "'No.'"}, "needs a decision of the rule"),
]  # fmt: skip


@pytest.mark.parametrize(("like", "changes", "part"), FALSE)
def test_an_appended_event_that_says_what_is_not_so_is_named(
    book: Scenario, like: str, changes: dict[str, str], part: str
) -> None:
    assert said(appended(book, like, changes), part)


def test_an_unlawful_rule_does_not_let_a_promotion_pass_unseen(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", rule="halving")
    book.climb(Rung.quick, ratio=1.5)
    slow = book.climb(Rung.quick, ratio=0.5, spread=0.05)
    assert said(
        forge(book, "UPDATE runs SET rule = 'flat', rule_version = 1, parameters_json = '{}'"),
        "row of runs that event 1",
    )
    book.hold(slow, Rung.precise)
    assert said(audit(book.path), "row of runs that event 1")


def old_book(folder: Path) -> Path:
    file = folder / "book.db"
    file.write_bytes(gzip.decompress(OLD_BOOK.read_bytes()))
    return file


def test_rows_of_an_older_version_are_counted_until_a_newer_one_opens_the_ledger(tmp_path: Path) -> None:
    file = old_book(tmp_path)
    report = audit(file)
    assert report.ok
    assert report.counts["rows_not_covered"] == 9
    assert "9 rows not covered" in rendered(report)
    Ledger.open(file).close()
    report = audit(file)
    assert report.ok, report.findings
    assert "rows_not_covered" not in report.counts


@pytest.mark.parametrize("statement", [
    "UPDATE runs SET client_name = 'somebody' WHERE number = 1",
    "UPDATE calibrations SET facts_json = '{}'",
    "UPDATE candidates SET note = 'x' WHERE number = 1",
    "UPDATE tasks SET title = 'x'",
    "DELETE FROM calibrations",
    "INSERT INTO calibrations SELECT 9, task_digest, environment_id, kind, facts_json, 0, 0, 'x'"
    " FROM calibrations LIMIT 1",
])  # fmt: skip
def test_from_then_on_the_rows_from_before_are_covered_too(tmp_path: Path, statement: str) -> None:
    file = old_book(tmp_path)
    with Ledger.open(file) as ledger:
        ledger.record_calibration(ENVIRONMENT, "noise_floor", {"floor": 0.02}, paid=Amount())
    assert audit(file).ok
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for name in expected_triggers():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
        for text in expected_triggers().values():
            connection.execute(text)
    assert not audit(file).ok
    assert said(audit(file), "The rows from before event 41") or said(audit(file), "is gone")
