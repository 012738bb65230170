import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from book_scenario import TASK, Scenario, run_request

from kernelgate.budget.audit import audit
from kernelgate.budget.errors import BookBusy, BookDiskFull, BookNotFound, BookReadOnly, BookTooNew, NotABook
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.migrations import SCHEMA_VERSION, queries
from kernelgate.budget.model import Rung


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "deep" / "er" / "book.db") as ledger:
        assert ledger.head().seq == 0
    assert ledger.path.is_file()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BookNotFound, match="cannot be made"):
        Ledger.open(tmp_path / "file" / "book.db")


def test_a_folder_in_the_place_of_the_book_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotABook, match="is a folder"):
        Ledger.open(tmp_path)


def test_a_link_to_nowhere_is_told_with_the_place_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "book.db").symlink_to(tmp_path / "moved" / "away.db")
    with pytest.raises(
        BookNotFound, match=r"is a link to .*moved/away\.db, which is not there; mend or remove the link"
    ):
        Ledger.open(tmp_path / "book.db")
    assert not (tmp_path / "moved").exists()


def test_links_that_lead_in_a_circle_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "book.db").symlink_to(tmp_path / "other.db")
    (tmp_path / "other.db").symlink_to(tmp_path / "book.db")
    with pytest.raises(BookNotFound, match="is a link that leads back to itself; remove it"):
        Ledger.open(tmp_path / "book.db")


def test_a_link_to_a_book_is_followed(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "book.db").close()
    (tmp_path / "link.db").symlink_to(tmp_path / "book.db")
    with Ledger.open(tmp_path / "link.db") as ledger:
        assert ledger.head().seq == 0


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "socket", "device"])
def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "book.db"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(file))
    elif kind == "device":
        file.symlink_to(os.devnull)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        os.mkfifo(tmp_path / "pipe")
        file.symlink_to(tmp_path / "pipe")
    with pytest.raises(NotABook, match="is a pipe, a socket or a device, no file"):
        Ledger.open(file)


@pytest.mark.parametrize("content", [b"hello, I am a text file\n" * 100, b"SQLite format 2\x00" * 100, b"x"])
def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "book.db"
    file.write_bytes(content)
    with pytest.raises(NotABook, match="not a SQLite database"):
        Ledger.open(file)
    assert file.read_bytes() == content


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "book.db"
    file.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4080)
    with pytest.raises(NotABook, match="not a SQLite database"):
        Ledger.open(file)


def test_somebody_elses_sqlite_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "recipes.db"
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(NotABook, match="not a ledger of kernelgate"):
        Ledger.open(file)
    assert file.read_bytes() == before


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "book.db"
    with Ledger.open(file) as ledger, ledger.transaction() as connection:
        connection.execute("INSERT INTO schema_version VALUES (?, '2030')", (SCHEMA_VERSION + 1,))
    with pytest.raises(BookTooNew, match="install the newer kernelgate"):
        Ledger.open(file)
    with pytest.raises(BookTooNew):
        audit(file)


def test_an_empty_file_becomes_a_book(tmp_path: Path) -> None:
    (tmp_path / "book.db").touch()
    with Ledger.open(tmp_path / "book.db") as ledger:
        assert ledger.start_run(TASK, run_request()).run_id == "r1"


def test_a_book_is_opened_again_as_it_was_left(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    candidate = book.climb(Rung.quick)
    head = book.ledger.head()
    book.ledger.close()
    with Ledger.open(book.path) as again:
        assert again.head() == head
        assert again.candidate(candidate.candidate_id) == candidate


OPEN = """
import os, sys
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.rules import find_rules
find_rules()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    Ledger.open(sys.argv[1])
except LedgerError as error:
    print(type(error).__name__, error)
"""


def as_nobody(path: Path) -> str:
    """Open the book in another process that has no rights beyond the file modes."""
    answer = subprocess.run(
        [sys.executable, "-c", OPEN, str(path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return answer.stdout


@pytest.mark.parametrize("what", ["file", "folder", "new file"])
def test_a_read_only_place_is_said_to_be_read_only(what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "book.db")
        if what != "new file":
            Ledger.open(file).close()
        file.exists() and file.chmod(0o444 if what == "file" else 0o666)
        Path(folder).chmod(0o777 if what == "file" else 0o555)
        said = as_nobody(file)
        Path(folder).chmod(0o700)
    assert said.startswith(BookReadOnly.__name__), said
    assert "writable" in said


def test_a_full_disk_is_said_loses_nothing_and_the_next_call_is_right(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.check)
    (pages,) = book.ledger._connection.execute("PRAGMA page_count").fetchone()
    book.ledger._connection.execute(f"PRAGMA max_page_count = {pages}")  # what a full disk answers: SQLITE_FULL
    head = book.ledger.head()
    with pytest.raises(BookDiskFull, match="free space, nothing was charged"):
        book.candidate("x" * 400_000)
    assert book.ledger.head() == head
    book.ledger._connection.execute("PRAGMA max_page_count = 1000000")
    book.climb(Rung.check)
    assert audit(book.path).ok


LIMITED = """
import resource, sys
from pathlib import Path
from kernelgate.budget.errors import LedgerError
from kernelgate.budget.ledger import Ledger
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    Ledger.open(sys.argv[1])
except LedgerError as error:
    print(type(error).__name__, error)
"""


def test_a_file_that_may_not_grow_is_an_error_of_the_book(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "book.db")],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "size limit" in answer.stdout
    with Ledger.open(tmp_path / "book.db") as ledger:
        assert ledger.head().seq == 0


def test_a_locked_book_is_busy_charges_nothing_and_works_afterwards(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    candidate = book.climb(Rung.compile)
    book.ledger.close()
    book.ledger = Ledger.open(book.path, busy_timeout_s=0.02)
    other = sqlite3.connect(book.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    head = book.ledger.head()
    with pytest.raises(BookBusy, match="nothing was charged") as caught:
        book.hold(candidate, Rung.check)
    assert caught.value.retriable
    with pytest.raises(BookBusy):
        Ledger.open(book.path, busy_timeout_s=0.02)
    assert book.ledger.head() == head
    other.execute("ROLLBACK")
    other.close()
    book.hold(candidate, Rung.check)


def test_the_book_imports_neither_torch_nor_sqlite_utils(tmp_path: Path) -> None:
    check = "import sys, kernelgate.budget.ledger; print([m for m in ('torch', 'sqlite_utils') if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", check],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout.strip() == "[]"


def test_views_of_an_older_or_edited_book_give_way_to_the_queries_of_this_version(tmp_path: Path) -> None:
    file = tmp_path / "book.db"
    Ledger.open(file).close()
    edited = sqlite3.connect(file)
    edited.execute("DROP VIEW funnel")
    edited.execute("CREATE VIEW funnel AS SELECT 1 AS other")
    edited.execute("DROP VIEW leaderboard")
    edited.commit()
    edited.close()
    Ledger.open(file).close()
    found = sqlite3.connect(file)
    views = dict(found.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'").fetchall())
    found.close()
    assert views == {name: f"CREATE VIEW {name} AS {select}" for name, select in queries().items()}
