"""Ledgers on full disks, cut short, without locks, opened twice: a sentence each, and nothing lost."""

import errno
import fcntl
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from book_scenario import TASK, Scenario, purse_adds_up, result_input, run_request, sample_inputs

from kernelgate.budget import connection
from kernelgate.budget.audit import audit
from kernelgate.budget.errors import (
    BookBusy,
    BookDamaged,
    BookDiskFull,
    BookWithoutLocks,
    LedgerError,
    NotABook,
)  # fmt: skip
from kernelgate.budget.export import export
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.records import ArtifactInput

OTHER_PROCESS = """
import sys
from kernelgate.budget.ledger import Ledger
with Ledger.open(sys.argv[1]) as ledger:
    ledger.record_account("another process")
    print(*(run.run_id for run in ledger.runs()))
"""


def in_another_process(path: Path) -> str:
    """Open the book, write, close, and say which runs are there."""
    return subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    "look",
    [lambda path: Ledger.open(path).close(), audit, lambda path: list(export(path))],
    ids=["open", "audit", "export"],
)
def test_looking_at_a_book_that_this_process_has_open_loses_no_write(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    """Closing any descriptor of a file drops all locks that a process has on it: then the next to leave tidies up."""
    with Ledger.open(tmp_path / "book.db") as ledger:
        ledger.start_run(TASK, run_request())
        look(ledger.path)
        in_another_process(ledger.path)
        ledger.start_run(TASK, run_request())
        assert in_another_process(ledger.path) == "r2 r1"


@contextmanager
def file_size_limit(limit_bytes: int) -> Generator[None]:
    """No file of this process may grow beyond: a disk that is full for the ledger, its log and its artifacts."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("artifacts", [(), (ArtifactInput(name="log", data=b"x" * 100_000),)], ids=["rows", "artifact"])
def test_a_settle_that_finds_no_space_is_wholly_undone_and_works_once_there_is_some(
    tmp_path: Path, artifacts: tuple[ArtifactInput, ...]
) -> None:
    book = Scenario(tmp_path / "book.db")
    hold = book.hold(book.climb(Rung.check), Rung.quick)
    head = book.ledger.head()
    big = {"samples": sample_inputs(400), "artifacts": artifacts}
    with file_size_limit(60_000), pytest.raises(BookDiskFull, match="free"):
        book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.5), result_input(Rung.quick), **big)
    assert book.ledger.head() == head
    assert book.ledger.open_holds("r1") == (hold.hold_seq,)
    assert book.ledger.query("SELECT count(*) AS n FROM samples")[0]["n"] == 0
    assert [file for file in tmp_path.rglob("*") if file.name.startswith("tmp")] == []
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.5), result_input(Rung.quick), **big)
    assert purse_adds_up(book)


@pytest.mark.parametrize("kept", [1, 20, 99, 100, 511, 512, 4096, 4097, 0.25, 0.5, 0.9])
def test_a_ledger_that_was_cut_short_is_said_to_be_and_left_alone(tmp_path: Path, kept: float) -> None:
    book = Scenario(tmp_path / "book.db")
    book.climb(Rung.precise)
    book.ledger.close()
    whole = book.path.read_bytes()
    size = int(kept if kept >= 1 else kept * len(whole))
    book.path.write_bytes(whole[:size])
    for read in (Ledger.open, audit, lambda path: list(export(path))):
        with pytest.raises((NotABook, BookDamaged), match=r"not a SQLite database|is damaged; keep a copy"):
            read(book.path)
    assert book.path.read_bytes() == whole[:size]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_not_called_busy(tmp_path: Path, number: int) -> None:
    """SQLite takes a lock that cannot be had for one that somebody else has."""
    Ledger.open(tmp_path / "book.db").close()
    other = sqlite3.connect(tmp_path / "book.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BookBusy):
        Ledger.open(tmp_path / "book.db", busy_timeout_s=0.02)

    def refused(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as file_system:
        file_system.setattr(fcntl, "lockf", refused)
        with pytest.raises(BookWithoutLocks, match=r"put it on a local disk and name that with --data") as caught:
            Ledger.open(tmp_path / "book.db", busy_timeout_s=0.02)
    assert not caught.value.retriable
    other.close()


def test_a_file_system_without_shared_memory_is_refused_rather_than_used_without_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def without_shared_memory(file: Path, **more: Any) -> sqlite3.Connection:
        return connect(f"{file.as_uri()}?vfs=unix-none", uri=True, **more)

    monkeypatch.setattr(connection.sqlite3, "connect", without_shared_memory)
    with pytest.raises(BookWithoutLocks, match=r"journal mode delete alone.*put it on a local disk"):
        Ledger.open(tmp_path / "book.db")


def test_a_folder_is_told_from_a_ledger_by_everything_that_reads(tmp_path: Path) -> None:
    for read in (Ledger.open, audit, lambda path: list(export(path))):
        with pytest.raises(LedgerError, match="is a folder; name"):
            read(tmp_path)
