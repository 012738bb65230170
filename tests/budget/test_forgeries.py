"""Every statement of `forgeries` against every table whose rows are written once."""

from pathlib import Path

import pytest
from book_scenario import Scenario
from forgeries import FORGERIES, changed_by_forgery
from write_old_book import live

from kernelgate.budget.model import Budget
from kernelgate.budget.triggers import expected_triggers

TABLES = sorted({text.split(" ON ")[1].split()[0] for text in expected_triggers().values()})


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = Scenario(
        tmp_path_factory.mktemp("book") / "book.db", rule="halving", budget=Budget(device_s=100.0, deadline_s=1000.0)
    )
    live(scenario)
    scenario.ledger.close()
    return scenario.path


@pytest.mark.parametrize("table", TABLES)
def test_no_statement_of_another_client_changes_or_removes_a_row(book: Path, table: str) -> None:
    lost = [sql for sql in FORGERIES for number in range(3) if changed_by_forgery(book, sql, table, number)]
    assert lost == []
