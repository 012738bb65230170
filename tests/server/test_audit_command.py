"""`kernelgate audit`: a verdict that a person can read, JSON for programs, and the exit status."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from test_command_mistakes import run

sys.path.insert(0, str(Path(__file__).parents[1] / "budget"))

from book_scenario import Scenario

from kernelgate.budget.model import Rung


@pytest.fixture
def book(tmp_path: Path) -> Scenario:
    book = Scenario(tmp_path / "ledger.db")
    book.climb(Rung.quick)
    return book


def forged(book: Scenario) -> None:
    with sqlite3.connect(book.path) as connection:
        connection.execute("DROP TRIGGER events_refuse_update")
        connection.execute("UPDATE events SET reason = 'nicer' WHERE seq = 4")
    connection.close()


def test_an_honest_book_is_said_to_hold(book: Scenario) -> None:
    done = run("audit", str(book.path), "--head", str(book.ledger.head()), "--run", "r1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Run r1 holds")
    assert str(book.ledger.head()) in done.stdout


def test_a_forged_book_is_said_not_to_hold_with_the_event(book: Scenario) -> None:
    forged(book)
    done = run("audit", str(book.path))
    assert done.returncode == 1
    assert done.stdout.startswith("The book does not hold.")
    assert "event 4" in done.stdout
    said = json.loads(run("audit", str(book.path), "--json").stdout)
    assert not said["ok"]
    assert {"chain", "triggers"} < {finding["topic"] for finding in said["findings"]}


def test_a_book_whose_end_was_cut_off_does_not_hold_against_a_head_that_was_kept(book: Scenario) -> None:
    head = book.ledger.head()
    done = run("audit", str(book.path), "--head", f"{head.seq + 1}:{head.hash}")
    assert done.returncode == 1
    assert "cut off" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--run", "r9"), "unknown run 'r9'"), (("--head", "12"), "--head takes seq:hash with all 64 digits")],
)
def test_what_cannot_be_audited_is_one_sentence(book: Scenario, arguments: tuple[str, str], said: str) -> None:
    done = run("audit", str(book.path), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
