"""The ledger in other people's tools: Datasette, sqlite-utils, DuckDB, and the export as JSON lines."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from book_scenario import Scenario
from sqlite_utils import Database

from kernelgate.budget.connection import open_for_reading
from kernelgate.budget.datasette import metadata
from kernelgate.budget.errors import BookNotFound, NotABook
from kernelgate.budget.export import UnknownRelation, export
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.migrations import queries
from kernelgate.budget.model import Rung, Verdict

HERE = Path(__file__).parent
# What a number is without a unit: counts, ids, shares, ratios, flags, places in an order.
PLAIN_REAL = re.compile(r"(^|_)(ratio|low|high|share)$|^(ratio|precise_over_quick|best_ratio_before)")
UNITS = re.compile(r"_(s|us|ns|bytes)(_cap|_left)?$")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A closed ledger with something in every view."""
    scenario = Scenario(tmp_path / "book.db", rule="halving")
    scenario.climb(Rung.precise, ratio=2.0)
    dropped = scenario.climb(Rung.quick, verdict=Verdict.clearly_slower, ratio=0.8)
    scenario.refused(dropped, Rung.precise)
    scenario.measure(dropped, Rung.precise, ratio=3.0, override_reason="it should win on large rows")
    scenario.ledger.close()
    return scenario.path


def test_every_page_of_the_datasette_site_opens(book: Path, tmp_path: Path) -> None:
    described = tmp_path / "metadata.json"
    described.write_text(json.dumps(metadata("book")))
    answer = subprocess.run(
        [sys.executable, str(HERE / "site_pages.py"), str(book), str(described)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    pages = json.loads(answer.stdout)
    assert {page: status for page, (status, _) in pages.items() if status != 200} == {}
    assert len(pages) > 2 + 2 * len(queries())


def test_the_site_describes_only_what_the_ledger_has_and_all_of_it(book: Path) -> None:
    described: Any = metadata("book")["databases"]["book"]
    with Ledger.open(book) as ledger:
        names = {row["name"] for row in ledger.query("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")}
        columns = {name: {row["name"] for row in ledger.query(f"PRAGMA table_info({name})")} for name in names}
        for page in described["queries"].values():
            assert ledger.query(page["sql"]), page["title"]
    assert set(described["tables"]) | {"sqlite_sequence"} >= names
    for name, table in described["tables"].items():
        used = {*table.get("columns", ()), *table.get("units", ()), *table.get("facets", ())} | {table.get("sort_desc")}
        assert used - {None} <= columns[name]
    assert {name.removeprefix("show_"): page["sql"] for name, page in described["queries"].items()} == queries()
    assert all(page["description"].endswith(".") for page in described["queries"].values())


def test_sqlite_utils_reads_strict_tables_and_all_views(book: Path) -> None:
    database = Database(book)
    ours = [table for table in database.tables if not table.name.startswith(("sqlite_", "_sqlite"))]
    assert [table.name for table in ours if not table.strict] == []
    assert {view.name for view in database.views} == set(queries())
    assert [view.name for view in database.views if not list(view.rows)] == []
    database.close()


def test_columns_of_real_numbers_end_in_their_unit(book: Path) -> None:
    with Ledger.open(book) as ledger:
        names = [row["name"] for row in ledger.query("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
        nameless = [
            (name, column)
            for name in names
            for row in ledger.query(f"SELECT * FROM {name} LIMIT 50")
            for column, value in row.items()
            if isinstance(value, float) and not UNITS.search(column) and not PLAIN_REAL.search(column)
        ]
    assert nameless == []


def test_queries_use_only_what_duckdb_hands_back_to_sqlite_unchanged() -> None:
    """Its scanner parses each view and prints it again: these forms come out as an error or as 32 bits."""
    unsafe = re.compile(r"count\(\*\)|AS (INTEGER|REAL)\)")
    assert [name for name, select in queries().items() if unsafe.search(select)] == []
    unions = [name for name, select in queries().items() if "UNION" in select and "RECURSIVE" not in select]
    assert unions == []


def lines_of(path: Path, *names: str, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export(path, names, **more)]


def test_an_export_holds_every_row_of_every_table_once_and_in_the_same_order_each_time(book: Path) -> None:
    first, again = list(export(book)), list(export(book))
    assert first == again
    counted: dict[str, int] = {}
    for line in first:
        name = json.loads(line)["table"]
        counted[name] = counted.get(name, 0) + 1
    with Ledger.open(book) as ledger:
        tables = [row["name"] for row in ledger.query("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows = {name: ledger.query(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in tables if name[0] != "_"}
    assert counted == {name: n for name, n in rows.items() if n}
    assert [line["seq"] for line in lines_of(book, "events")] == list(range(1, rows["events"] + 1))


def test_sqlite_utils_makes_the_same_rows_of_an_export(book: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text("".join(f"{line}\n" for line in export(book, ["samples"])))
    command = [
        sys.executable,
        "-m",
        "sqlite_utils",
        "insert",
        "--nl",
        str(tmp_path / "copy.db"),
        "samples",
        str(samples),
    ]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    copy, original = sqlite3.connect(tmp_path / "copy.db"), open_for_reading(book)
    wanted = "SELECT sample_id, samples_us, outside_us FROM samples ORDER BY sample_id"
    assert copy.execute(wanted).fetchall() == original.execute(wanted).fetchall()
    copy.close()
    original.close()


def test_blobs_are_exported_as_digests_where_asked(book: Path) -> None:
    (first, *_) = lines_of(book, "samples", blobs="sha256")
    assert first["samples_us"]["bytes"] == 12
    assert len(first["samples_us"]["$sha256"]) == 64


def test_a_view_is_exported_by_its_name(book: Path) -> None:
    assert [(row["table"], row["place"], row["candidate_id"]) for row in lines_of(book, "leaderboard")] == [
        ("leaderboard", 1, "c2"), ("leaderboard", 2, "c1"),
    ]  # fmt: skip


def test_infinity_and_broken_text_of_a_forger_do_not_break_the_lines(book: Path) -> None:
    forger = sqlite3.connect(book)
    forger.execute("UPDATE accounts SET device_s_cap = 9e999 WHERE account_id = 'local'")
    forger.execute("INSERT INTO accounts VALUES (CAST(x'ff41' AS TEXT), NULL, '2026')")
    forger.commit()
    forger.close()
    rows = lines_of(book, "accounts")
    assert {row["account_id"]: row["device_s_cap"] for row in rows} == {"local": "inf", "house": None, "\ufffdA": None}


def test_an_export_shows_one_moment_of_a_book_that_others_write(book: Path) -> None:
    with Ledger.open(book) as ledger:
        before = ledger.head().seq
        lines = export(book, ["tasks", "events"])
        next(lines)
        ledger.close_run("r1", "meanwhile")
        assert len(list(lines)) == before
    assert len(list(export(book, ["events"]))) == before + 1


def consumed(lines: Iterable[str]) -> None:
    for _ in lines:
        pass


def test_what_cannot_be_exported_is_said_in_one_sentence(book: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownRelation, match=r"no table or view 'event'; it has: .*events"):
        consumed(export(book, ["event"]))
    with pytest.raises(BookNotFound, match="no book at"):
        consumed(export(tmp_path / "nothing.db"))
    with pytest.raises(NotABook, match="is a folder; name the ledger file"):
        consumed(export(tmp_path))
