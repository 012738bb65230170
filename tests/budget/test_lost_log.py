"""A write-ahead log that was taken away is told, and never taken for an empty book."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from book_scenario import TASK, Scenario, run_request

from kernelgate.budget.audit import audit
from kernelgate.budget.connection import log_beside
from kernelgate.budget.errors import BookDamaged
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.migrations import SCHEMA_VERSION
from kernelgate.budget.model import Rung


@pytest.fixture
def live(tmp_path: Path) -> Scenario:
    """A book that is open, as a server that is killed leaves it."""
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.check)
    return book


def left_by_a_kill(live: Scenario, to: Path, *parts: str) -> Path:
    to.mkdir()
    for part in ("", *parts):
        shutil.copyfile(f"{live.path}{part}", to / f"book.db{part}")
    return to / "book.db"


def test_what_a_killed_server_left_is_whole_with_its_log(live: Scenario, tmp_path: Path) -> None:
    path = left_by_a_kill(live, tmp_path / "left", "-wal", "-shm")
    assert audit(path, head=live.ledger.head()).ok
    with Ledger.open(path) as ledger:
        assert ledger.head() == live.ledger.head()


def test_a_log_that_was_removed_after_a_kill_is_told_and_nothing_is_begun_anew(live: Scenario, tmp_path: Path) -> None:
    path = left_by_a_kill(live, tmp_path / "left", "-shm")
    before = path.read_bytes()
    for look in (Ledger.open, audit):
        with pytest.raises(BookDamaged, match=r"book.db-wal is gone.*put it back\. To go on without"):
            look(path)
    assert path.read_bytes() == before
    path.with_name("book.db-shm").unlink()  # as the sentence says
    assert audit(path).ok


def test_the_file_of_a_book_has_its_tables_before_it_has_a_log(live: Scenario, tmp_path: Path) -> None:
    path = left_by_a_kill(live, tmp_path / "left")
    with closing(sqlite3.connect(path)) as alone:
        assert alone.execute("SELECT count(*) FROM schema_version").fetchone() == (SCHEMA_VERSION,)


def test_a_file_that_lost_its_tables_with_its_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    with pytest.raises(
        BookDamaged, match=r"has no tables: the log .* is gone; put it back, or start a new ledger else"
    ):
        Ledger.open(path)
    assert path.read_bytes() == before
    assert not log_beside(path).exists()


def test_a_log_that_is_removed_under_an_open_book_ends_its_writes_with_a_clear_sentence(live: Scenario) -> None:
    head = live.ledger.head()
    log_beside(live.path).unlink()
    for _ in range(2):  # the turn is passed on: the second is refused by the same sentence
        with pytest.raises(BookDamaged, match=r"taken away while the book was open.*nothing charged"):
            live.ledger.start_run(TASK, run_request())
    assert live.ledger.head() == head


def test_the_log_of_a_book_behind_a_link_lies_beside_the_book(live: Scenario, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.db"
    link.symlink_to(live.path)
    assert log_beside(link) == live.path.with_name("book.db-wal")
    with Ledger.open(link) as ledger:
        assert ledger.head() == live.ledger.head()
