"""Ledgers of older versions open after an upgrade, and an upgrade happens whole or not at all."""

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from book_scenario import Scenario

from kernelgate.budget import connection, migrations
from kernelgate.budget.audit import audit
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.export import export
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.migrations import SCHEMA_VERSION, queries
from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.recorded import COVERED_FROM

BOOKS = Path(__file__).parent / "books"
VERSIONS = range(1, SCHEMA_VERSION + 1)


def unpacked(version: int, folder: Path) -> Path:
    file = folder / "book.db"
    file.write_bytes(gzip.decompress((BOOKS / f"schema_{version}.db.gz").read_bytes()))
    return file


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_ledger_opens_keeps_what_it_says_and_goes_on(version: int, tmp_path: Path) -> None:
    file = unpacked(version, tmp_path)
    old = sqlite3.connect(file)
    events = old.execute("SELECT seq, hash, purse_json FROM events ORDER BY seq").fetchall()
    old.close()
    with Ledger.open(file) as ledger:
        assert ledger.query("SELECT max(version) AS v FROM schema_version") == [{"v": SCHEMA_VERSION}]
        again = [tuple(row.values()) for row in ledger.query("SELECT seq, hash, purse_json FROM events ORDER BY seq")]
        assert again[: len(events)] == events
        assert len(again) == len(events) + (version < COVERED_FROM)
        assert ledger.incumbent("r1").candidate_id == "c1"
        for view in queries():
            assert ledger.query(f"SELECT * FROM {view}") or view == "wrongly_dropped"
        (held,) = ledger.open_holds("r1")
        ledger.settle_unjudged(held, Amount(calls=1, cpu_s=0.5), "cancelled")
        assert ledger.head().seq == len(again) + 1
    report = audit(file)
    assert report.ok, report.findings


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_ledger_can_be_audited_and_exported_as_it_stands(version: int, tmp_path: Path) -> None:
    file = unpacked(version, tmp_path)
    report = audit(file)
    assert report.ok, report.findings
    assert ("rows_not_covered" in report.counts) == (version < COVERED_FROM)
    assert sum('"table":"events"' in line for line in export(file)) == report.head.seq


def test_what_was_lost_before_an_upgrade_is_not_told_to_who_goes_on_after_it(tmp_path: Path) -> None:
    file = unpacked(2, tmp_path)
    old = sqlite3.connect(file)
    lost = old.execute("UPDATE jobs SET state = 'lost', finished_utc = heartbeat_utc WHERE run_id = 'r1'").rowcount
    old.commit()
    old.close()
    assert lost > 0
    with Ledger.open(file) as ledger:
        assert ledger.tell_lost("r1", 10) == ((), 0)


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, sql: str) -> None:
    """A next step of the schema."""
    step = folder / "step.sql"
    step.write_text(sql)
    monkeypatch.setattr(migrations, "_STEPS", (*migrations._STEPS, str(step)))
    for module in (migrations, connection):
        monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)


def version_of(ledger: Ledger) -> Any:
    return ledger.query("SELECT count(*) AS steps, max(version) AS version FROM schema_version")[0]


def test_a_new_step_is_applied_once_to_a_ledger_with_work_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.quick)
    head = book.ledger.head()
    book.ledger.close()
    plant(
        monkeypatch, tmp_path, "ALTER TABLE candidates ADD COLUMN colour TEXT;\nCREATE TABLE extra (n INTEGER) STRICT;"
    )
    for _ in range(2):
        with Ledger.open(book.path) as ledger:
            assert version_of(ledger) == {"steps": SCHEMA_VERSION + 1, "version": SCHEMA_VERSION + 1}
            assert ledger.query("SELECT colour FROM candidates") == [{"colour": None}]
            assert ledger.head() == head
    assert audit(book.path).ok


def test_a_step_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Scenario(tmp_path / "book.db")
    candidate = book.climb(Rung.compile)
    book.ledger.close()
    with monkeypatch.context() as newer:
        plant(newer, tmp_path, "CREATE TABLE extra (n INTEGER) STRICT;\nALTER TABLE absent ADD COLUMN colour TEXT;")
        with pytest.raises(LedgerError, match="no such table"):
            Ledger.open(book.path)
    with Ledger.open(book.path) as ledger:
        assert version_of(ledger)["version"] == SCHEMA_VERSION
        assert ledger.query("SELECT name FROM sqlite_schema WHERE name = 'extra'") == []
        assert ledger.candidate(candidate.candidate_id) == candidate
